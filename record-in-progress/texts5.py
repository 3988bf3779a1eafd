"""The texts for the H200's record of 53ad44f5; run with a clone that has it. docs/ladder.md's tables are by ladder2.py."""
import os, re, sys
os.chdir(sys.argv[1])
def edit(p, pairs):
    s = open(p).read()
    for a, b in pairs:
        found = re.compile(r'\s+'.join(map(re.escape, a.split()))).findall(s)  # however its lines are broken
        if len(found) != 1: print('NOT', len(found), p, a[:90]); continue
        s = s.replace(found[0], b)
    open(p, 'w').write(s)
edit('docs/ladder.md', [
('and 1.30 warps per issued instruction wait', 'and 1.31 warps per issued instruction wait'),
('these are 16 and 0.78; passes', 'these are 16 and 0.87; passes'),
('recorded on H200s on 29 November 2026 at commit e6262346 with cuBLAS 13.10;', 'recorded on H200s\non 30 November 2026 at commit 53ad44f5 with cuBLAS 13.10;'),
('(parameter `walk`): 49.7 at 4096³ in pairs of rows, 49.1 row by row.', '(parameter `walk`): 49.6 at 4096³ in pairs of rows, 49.0 row by row.'),
('The recorded run has 8 parts at most. In turns on H200s on 30 November 2026, n = m = 128, µs alone and back to back:',
 'Clusters of 16 are new in this run. In turns with cuBLAS 13.1 on H200s on 30 November 2026, n = m = 128, µs alone and\nback to back:'),
('µs alone and back to back (cuBLAS back to back: the recorded run):', 'µs alone and back to back (cuBLAS back to back: the recorded run of that day, e6262346):'),
('run at 1.62 to 1.77 GHz;', 'run at 1.65 to 1.80 GHz;'),
('On seven H200s its ratio is 1.02 to 1.04 at 8192³ alone and 1.04 to 1.07 under load; at 4096³ it is 1.04 to 1.06 and 1.06 to 1.10.',
 'On H200s its ratio is 1.02 to 1.05 at 8192³ alone and 1.04 to 1.07 under load; at 4096³ it is 1.04 to 1.06 and\n1.06 to 1.10.'),
('At 4096³ it reaches 95 % of the rate of its instructions alone, and cuBLAS 90 %.', 'At 4096³ it reaches 97 % of the rate of its instructions alone, and cuBLAS 92 %.'),
('recorded run to 1.40 GHz with `wgmma` and 1.47 GHz with cuBLAS and `clusters` at 8192³, where the tensor cores can reach 795, so `clusters` is at 0.86 of what this clock allows, and at 0.94 with single products, at 1.58 GHz.',
 'recorded run to 1.40 GHz with `wgmma`, 1.47 GHz with cuBLAS and 1.49 GHz with `clusters` at 8192³, where the tensor cores\ncan reach 803, so `clusters` is at 0.85 of what this clock allows, and at 0.94 with single products, at 1.61 GHz.'),
('copy A and B in a first launch, and are still 1.9 times as fast as cuBLAS.', 'copy A and B in a first launch, and are still 1.8 and 1.9\ntimes as fast as cuBLAS.'),
('group lets its products begin once the other has started the last products of its tile. The recorded run lacks it. In turns with the better call of cuBLAS on H200s in the night to 30 November 2026, ratios alone and back to back (ranges: two cards):',
 '''group lets its products begin once the other has started the last products of its tile. The next table was measured in
turns with the better call of cuBLAS 13.1 on H200s in the night to 30 November 2026: ratios alone and back to back
(ranges: two cards). In the recorded run power holds the chip to 1.57 GHz with `wgmma_turns` at 4096³, and to 1.61 with
`clusters` and cuBLAS: there it is at 0.97, `clusters` at 1.01, and at 8192³ both are at 1.00:'''),
('`clusters` reaches 802 in single products, each after a pause, and 682 back to back.', '`clusters` reaches 817 in single products, each after a pause, and 682 back to back.'),
('`float_from_half` runs at 1.46 GHz in the recorded run. At that clock the tensor cores can reach 791 TFLOP/s; its three products, over the whole time with the splitting, are 664. It is 4.4 times as fast as SGEMM there, and 3.8 times under load, at 1.38 GHz.',
 '`float_from_half` runs at 1.51 GHz in the recorded run. At that clock the tensor cores can\nreach 816 TFLOP/s; its three products, over the whole time with the splitting, are 684. It is 4.5 times as fast as\nSGEMM there, and 3.9 times under load, at 1.43 GHz.'),
("it reaches 0.94 of `float_from_half`'s rate at 8192³, 0.90 at 4096³, 0.77 at 1100³ and 0.73 at 1024³.", "it reaches 0.92 of `float_from_half`'s rate at 8192³, 0.89 at 4096³, 0.80 at 1100³ and 0.76 at\n1024³."),
('0.37, 0.47, 0.46 and 0.64 of SGEMM at 64, 128, 256 and 512;', '0.46, 0.57, 0.56 and 0.70 of SGEMM\nat 64, 128, 256 and 512;'),
('At 8192³ it splits in 0.39 ms of 5.31, decides in 0.03,', 'At 8192³ it splits in 0.40 ms of 5.21, decides in 0.03,'),
('at 8192³ the clock falls from 1.98 to 1.67 GHz, and to 1.52 under load.', 'at 8192³ the clock falls from 1.98 to 1.70 GHz, and to 1.53 under load.'),
('in the recorded run it takes 113, beside 110 of cuBLAS 13.10.', 'in the recorded run it takes 112, beside 111 of cuBLAS 13.10.'),
('At 4096³ cuBLAS is ahead of it. Each', 'At 4096³ cuBLAS is level with it or ahead. Each'),
('Two rungs that the recorded run lacks remove one of these costs each:', 'Two further rungs remove one of these costs each:'),
('In turns with the better call of cuBLAS, on several H200s in the night to 30 November 2026;', 'In turns with the better call of cuBLAS 13.1, on several H200s in the night to 30 November 2026;'),
('''| 1024 | 48.6 | 22.1 | 27.1 | 22.9 |
| 1100 | 42.2 | 19.5 | 20.6 | 18.8 |
| 4096 | 59.9; 51.9 | 71.2; 63.8 | 84.1; 72.3 | 78.9; 70.1 |
| 8192 | 58.2; 53.1 | 84.0; 73.7 | 97.5; 83.6 | 90.7; 79.4 |''',
'''| 1024 | 46.7 | 21.6 | 28.2 | 24.1 |
| 1100 | 40.7 | 19.3 | 21.2 | 19.4 |
| 4096 | 60.8; 52.4 | 71.7; 63.5 | 85.9; 74.3 | 80.2; 70.1 |
| 8192 | 58.6; 53.2 | 85.4; 73.7 | 101; 86.1 | 92.9; 80.2 |'''),
('At n = 8192, 13 moduli reach 105; 90.8, 15 reach 90.6; 77.9, and 16 reach 85.2; 73.7: at the same error, 15 moduli are 1.08 times as fast as the emulation, and 1.06 times under load.',
 'At n = 8192, 13 moduli reach 107; 91.4, 15 reach 93.3; 79.1, and 16 reach 86.2; 74.1: at the same error, 15 moduli are 1.09\ntimes as fast as the emulation, and 1.07 times under load.'),
('at n = 8192 the products of bytes take 9.6 of the 11.3 ms that its launches take one by one, at 1,610 TOPS (`wgmma_int8` alone: 1,497). Power limits them alone (1.60 GHz), and takes a further seventh under load. The rest is memory (splitting 0.83, sizes 0.28 ms) and, where results are joined (0.58 ms), the double units.',
 'at n = 8192 the products of bytes take 10.2 of the 12.0 ms that its launches take one by one, at 1,512 TOPS\n(`wgmma_int8` alone: 1,522). Power limits them alone (1.65 GHz), and takes a further seventh under load. The rest is\nmemory (splitting 0.84, sizes 0.29 ms) and, where results are joined (0.69 ms), the double units.'),
('''In the recorded run, the geometric mean of the shares is 1.06 in float,
1.13 in bfloat16, 1.10 in double, 1.18 in TF32, 1.00 in int8 and 1.01 in half; with kernels of short numbers and of bytes it
is 1.98 in float and 1.19 in double. 16 of 198 products are below 0.90. Where a share is below 0.95, one of these causes
explains it. The run of the H100 is older (26 November, commit b7e3855): it did not take turns, its shares are those of the
default call, and `split_sums`, `dmma_split` and `mma_split` did not exist.''',
'''In the recorded run, the geometric mean of the shares is 1.06 in float,
1.16 in bfloat16, 1.08 in double, 1.17 in TF32, 1.18 in int8 and 1.01 in half; with kernels of short numbers and of bytes it
is 1.98 in float and 1.16 in double. 10 of 198 products are below 0.90: 1025³ (0.75), 128 × 8192 × 128 (0.80) and
16384 × 8192 × 64 (0.89) in float; 127³ (0.74), 512 × 8192 × 512 (0.82), 1536³ (0.87), 512 × 2048 × 512 (0.88) and
64 × 2048 × 16384 (0.89) in bfloat16; 1536³ in half (0.86); 127³ in TF32 (0.89). Of the squares from 1024³ on, those of int8
are at 1.03 to 1.37, of float at 1.03 to 1.25 and of double at 1.02 to 1.10. Where a share is below 0.95, one of these
causes explains it. The run of the H100 is older (26 November, commit b7e3855): it did not take turns, its shares are those
of the default call, and the kernels of the last column that have a name of their own did not exist.'''),
])
s = open('docs/ladder.md').read()
a = s.index('The whole task once more, on another H200'); b = s.index('| products | H200 | H100 | cause on the H200 |')
s = s[:a] + s[b:]
def rows(first, new):
    global s
    a = s.index(first); b = s.index('\n', a)
    s = s[:a] + new + s[b:]
rows('| int8, 16³ to 768³', '| int8, 16³ to 768³ | 1.09 to 1.35 | 0.93 to 1.11 | before: a constant of 0.3 to 0.7 µs, for descriptors of TMA, barriers, a block that stays | [overlapping launches](#launches-that-overlap), then `transposing_int8` |')
rows('| bfloat16, even sizes to 768³', '| bfloat16, even sizes to 768³ | 0.91 to 1.11 | 0.91 to 1.00 | the same constant, from 384³ on | `mma_sync` below 384³ |')
rows('| bfloat16, odd sizes to 509³', '| bfloat16, odd sizes to 509³ | 0.74 to 1.15 | 0.73 to 1.46 | rows have a pitch that neither vector loads nor TMA can use, so elements are copied one by one; at 127³ the sums are too short to be split | `mma_split` |')
rows('| bfloat16, n = m = 128,', '| bfloat16, n = m = 128, p 512, 2048, 8192 | 0.95, 1.12, 1.02 | 0.55, 0.34, 0.14 | at p = 512, 32 of k per part are the least | `mma_split`, in at most 8 parts; then 16, instead of 0.87 at p = 8192 |')
rows('| bfloat16, n = m = 512, p 512', '| bfloat16, n = m = 512, p 512, 2048, 8192 | 0.93, 0.88, 0.82 | 0.92, 0.38, 0.24 | at p = 8192, 80 of 132 multiprocessors work, and [the parts of the sums](#float-on-the-cuda-cores) pass between shared memories; cuBLAS cuts the sums in 4, computes for 11.4 µs and adds for 5.1 | `wgmma_split`, instead of `clusters`: 0.85 and 0.57 |')
rows('| bfloat16, C of 64 rows', '| bfloat16, C of 64 rows or columns | 0.89 to 1.01 | 0.84 to 1.00 | a tile of `clusters` has 128 rows | `mma_split` for 64 rows |')
rows('| bfloat16, 8192 × 8192, p 128', '| bfloat16, 8192 × 8192, p 128 and 512 | 0.98, 1.01 | 0.95, 1.03 | most of the time goes to storing C. In the best algorithm two groups compute separate tiles of 128 × 160, so one stores while the other multiplies: 144,000 cycles at p = 512 with the tensor cores busy in 91 %, `clusters` 186,000 and 69 % | `wgmma_turns`, instead of `clusters`: 0.93 and 0.85 |')
rows('| bfloat16, 16384 × 2048 × 512', '| bfloat16, 16384 × 2048 × 512 | 0.99 | 0.88 | | `clusters` tuned for tall products: four stages instead of three |')
s = s.replace('| bfloat16 and half, 1536³ | 0.85, 0.86 | 0.85 |', '| bfloat16 and half, 1536³ | 0.87, 0.86 | 0.85 |').replace('35,000 cycles, 0.71 | none; `wgmma_turns` 0.86, 0.87 |', '35,000 cycles, 0.71 | none |')
rows('| half, to 1024³', '| half, to 1024³ | 0.96 to 1.09 | 0.55 to 0.80 | | `mma_sync`, and tiles of 128 × 64 at 1024³ |')
rows('| float, even sizes to 768³', '| float, even sizes to 768³ and 512 × 128 × 512 | 1.05 to 1.45 | 0.72 to 1.78 | | `split_sums` |')
rows('| float, odd sizes to 1023³', '| float, odd sizes to 1023³ | 0.92 to 1.10 | 0.56 to 1.45 | elements are copied one by one | `split_sums` |')
s = s.replace('| float, 1025³, 2039³, 2047³ | 0.73, 0.93, 0.91 |', '| float, 1025³, 2039³, 2047³ | 0.75, 0.94, 0.91 |')
rows('| float, n = m = 128,', '| float, n = m = 128, p 512, 2048, 8192 | 1.34, 1.10, 0.80 | 0.47, 0.36, 0.26 | [one warp per scheduler](#float-on-the-cuda-cores) issues in 51 % of the cycles; cuBLAS cuts the sums of p = 8192 in 64 | `split_sums`, in at most 8 parts; then 16 and tiles of 32 × 32, instead of 0.59 at p = 8192 |')
rows('| float, n = m = 512, p = 2048', '| float, n = m = 512, p = 2048 | 0.98 | 0.93 | `stream_k` cuts each sum in at most 24 | none |')
s = s.replace('| float, C of 64 rows or columns | 0.89 to 0.96 |', '| float, C of 64 rows or columns | 0.89 to 1.01 |')
s = s.replace('| double, even sizes to 768³ | 0.98 to 1.36 |', '| double, even sizes to 768³ | 0.94 to 1.17 |').replace('| double, odd sizes to 509³ | 0.98 to 1.07 |', '| double, odd sizes to 509³ | 0.95 to 1.01 |')
s = s.replace('| TF32, odd sizes to 1023³ | 0.94 to 1.20 |', '| TF32, odd sizes to 1023³ | 0.89 to 1.16 |').replace('| TF32, 128³ to 8192³ | 0.92 to 1.12 |', '| TF32, 128³ to 8192³ | 0.93 to 1.11 |')
# rows of the rungs that are new
def after(first, new):
    global s
    a = s.index(first); b = s.index('\n', a)
    s = s[:b + 1] + new + '\n' + s[b + 1:]
x = s.index('\nbfloat16:\n')
a = s.index('| `clusters` | blocks stay', x); b = s.index('\n', a)
s = s[:b+1] + '| `wgmma_turns` | groups take turns, one multiplies while the other stores | tile_m 192, stages 4, band 16, cluster_blocks 1 | 821 (1.00); 680 (1.00) | 735 (0.97) |  |  |\n' + s[b+1:]
x = s.index('\nhalf:\n')
a = s.index('| `clusters` | blocks stay', x); b = s.index('\n', a)
s = s[:b+1] + '| `wgmma_turns` | groups take turns, one multiplies while the other stores | tile_m 192, stages 4, band 16, cluster_blocks 1 | 781 (1.00); 649 (1.00) | 728 (0.99) |\n' + s[b+1:]
after('| `wgmma_int8` | exact products of bytes', '''| `wgmma_int8_turns` | exact products of bytes, groups take turns | tile_m 128, stages 6, band 8, cluster_blocks 1 | 1513 (1.02); 1269 (1.03) | 1292 (1.05) |  |  |
| `transposing_int8` | exact products of bytes, B transposed in registers | tile_n 256, stages 9, band 8 | 1522 (1.03); 1259 (1.03) | 1313 (1.06) | 139 (1.36) | 197 (1.34) |''')
s = s.replace('| 757 (1.00) | 131 (1.87) | 187 (0.97) |', '| 763 (1.01) | 131 (1.87) | 187 (0.97) |')
import textwrap
def wrapped(block):
    lines = block.split('\n')
    if max(map(len, lines)) <= 126 or lines[0].startswith(('|', '#', '-', '```')): return block
    return textwrap.fill(' '.join(lines), 120, break_long_words=False, break_on_hyphens=False)
s = '\n\n'.join(map(wrapped, s.split('\n\n')))
open('docs/ladder.md', 'w').write(s)
edit('docs/matmul.md', [
('In the recorded runs, which are of an earlier version, the call took 28 to 58 µs up to n = 512 on the H200 and 17 to 57 on the H100, `cupy.matmul` 16 to 35 and 15 to 30.',
 'In the recorded run of the H200 the call takes 13 to 24 µs up to n = 512, and `cupy.matmul` 15 to 24; in that of the H100,\nwhich is of an earlier version, 17 to 57 and 15 to 30.'),
])
edit('docs/experiments.md', [
('of their 379 points in the recorded run of the H200, 362 ran at 97 % of the highest clock or above, and 364 of 379 on the H100.',
 'of their 379 points in the recorded\nrun of the H200, 360 ran at 97 % of the highest clock or above, and 364 of 379 on the H100.'),
('doubles, which use the tensor cores (12 and 13 points),', 'doubles, which use the tensor cores (14 and 13 points),'),
])
