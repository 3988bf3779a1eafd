"""The texts for the H200's record of e6262346; run in a clone that has it. docs/ladder.md's tables are by ladder2.py."""
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
('recorded on H200s\non 28 November 2026 at commit 21b3bcb with cuBLAS 13.10;', 'recorded on H200s\non 29 November 2026 at commit e6262346 with cuBLAS 13.10;'),
('Multiply-adds alone reach 63.3 TFLOP/s.', 'Multiply-adds alone reach 63.4 TFLOP/s.'),
('(parameter `walk`): 49.6 at 4096³ in pairs of rows, 48.9 row by row.', '(parameter `walk`): 49.7 at 4096³ in pairs of rows, 49.1 row by row.'),
('reaches 24.1 of the 33.5 TFLOP/s', 'reaches 24.3 at 4096³, of the 33.5 TFLOP/s'),
('run at 1.65 to 1.82 GHz;', 'run at 1.62 to 1.77 GHz;'),
('On six H200s its ratio is 1.02 to 1.04 at 8192³ alone and 1.06 to 1.07 under load; at\n4096³ it is 1.04 to 1.06 and 1.06 to 1.10.',
 'On seven H200s its ratio is 1.02 to 1.04 at 8192³ alone and 1.04 to 1.07 under load; at\n4096³ it is 1.04 to 1.06 and 1.06 to 1.10.'),
('At 4096³ it reaches 97 % of the rate of its instructions alone, and cuBLAS 91 %.', 'At 4096³ it reaches 95 % of the rate of its instructions alone, and cuBLAS 90 %.'),
('recorded run to 1.41 GHz with `wgmma`, 1.49 GHz with cuBLAS and 1.52 GHz with `clusters` at 8192³, where the tensor\ncores can reach 819, so `clusters` is at 0.85 of what this clock allows, and at 0.94 with single products, at 1.61 GHz.\nAt 1100³ rows are no multiple of 16 bytes in these types: a first launch copies A and B, and the product is still 1.7 to\n1.8 times as fast as cuBLAS.',
 'recorded run to 1.40 GHz with `wgmma` and 1.47 GHz with cuBLAS and `clusters` at 8192³, where the tensor cores can reach\n795, so `clusters` is at 0.86 of what this clock allows, and at 0.94 with single products, at 1.58 GHz. At 1100³ rows are\nno multiple of 16 bytes in these types: `wgmma` and `clusters` copy A and B in a first launch, and are still 1.9 times as\nfast as cuBLAS.'),
('`clusters` reaches 816 in single products, each after a pause, and 693 back to back.', '`clusters` reaches 802 in single products, each after a pause, and 682 back to back.'),
('`float_from_half` runs at 1.49 GHz in the recorded run. At that clock the tensor cores can\nreach 807 TFLOP/s; its three products, over the whole time with the splitting, are 674. It is 4.4 times as fast as\nSGEMM there, and 3.9 times under load, at 1.43 GHz.',
 '`float_from_half` runs at 1.46 GHz in the recorded run. At that clock the tensor cores can\nreach 791 TFLOP/s; its three products, over the whole time with the splitting, are 664. It is 4.4 times as fast as\nSGEMM there, and 3.8 times under load, at 1.38 GHz.'),
("it reaches 0.94 of `float_from_half`'s rate at 8192³, 0.89 at 4096³, 0.78 at 1100³ and 0.74 at\n1024³.", "it reaches 0.94 of `float_from_half`'s rate at 8192³, 0.90 at 4096³, 0.77 at 1100³ and 0.73 at\n1024³."),
('Up to 512 its four launches cost more than they save: 0.43, 0.53, 0.56 and 0.68 of SGEMM\nat 64, 128, 256 and 512;', 'Up to 512 its four launches take more time than they save: 0.37, 0.47, 0.46 and 0.64 of SGEMM\nat 64, 128, 256 and 512;'),
('At 8192³ it splits in 0.40 ms of 5.23, decides in 0.03,', 'At 8192³ it splits in 0.39 ms of 5.31, decides in 0.03,'),
('at 8192³ the clock falls from 1.98 to 1.70 GHz, and to 1.55 under load.', 'at 8192³ the clock falls from 1.98 to 1.67 GHz, and to 1.52 under load.'),
('in the recorded run it takes 113, beside 112 of cuBLAS 13.10.', 'in the recorded run it takes 113, beside 110 of cuBLAS 13.10.'),
('''| 1024 | 46.7 | 21.4 | 26.4 | 22.5 |
| 1100 | 40.7 | 19.2 | 20.4 | 18.6 |
| 4096 | 60.9; 52.9 | 71.7; 64.7 | 85.3; 74.6 | 80.0; 71.2 |
| 8192 | 59.6; 53.7 | 85.9; 73.9 | 101; 85.9 | 93.6; 80.7 |''',
'''| 1024 | 48.6 | 22.1 | 27.1 | 22.9 |
| 1100 | 42.2 | 19.5 | 20.6 | 18.8 |
| 4096 | 59.9; 51.9 | 71.2; 63.8 | 84.1; 72.3 | 78.9; 70.1 |
| 8192 | 58.2; 53.1 | 84.0; 73.7 | 97.5; 83.6 | 90.7; 79.4 |'''),
('At n = 8192, 13 moduli reach 108; 91.5, 15 reach 93.2; 78.7, and 16 reach 86.7; 74.2: at the same error, 15 moduli are 1.08\ntimes as fast as the emulation, and 1.07 times under load.',
 'At n = 8192, 13 moduli reach 105; 90.8, 15 reach 90.6; 77.9, and 16 reach 85.2; 73.7: at the same error, 15 moduli are 1.08\ntimes as fast as the emulation, and 1.06 times under load.'),
('at n = 8192 the products of bytes take 9.6 of the 11.3 ms that its launches take one by one, at 1,610 TOPS\n(`wgmma_int8` alone: 1,517). Power limits them alone (1.66 GHz), and takes a further seventh under load. The rest is\nmemory (splitting 0.84, sizes 0.28 ms) and, where results are joined (0.63 ms), the double units.',
 'at n = 8192 the products of bytes take 9.6 of the 11.3 ms that its launches take one by one, at 1,610 TOPS\n(`wgmma_int8` alone: 1,497). Power limits them alone (1.60 GHz), and takes a further seventh under load. The rest is\nmemory (splitting 0.83, sizes 0.28 ms) and, where results are joined (0.58 ms), the double units.'),
('''In the recorded run, the geometric mean of the shares is 0.90 in float,
1.08 in bfloat16, 1.00 in double, 1.10 in TF32, 1.00 in int8 and 0.95 in half; with kernels of short numbers and of bytes it
is 1.78 in float and 1.08 in double. Where a share is below 0.95, one of these causes explains it. The run of the H100 is
older (26 November, commit b7e3855): it did not take turns, and its shares are those of the default call.''',
'''In the recorded run, the geometric mean of the shares is 1.06 in float,
1.13 in bfloat16, 1.10 in double, 1.18 in TF32, 1.00 in int8 and 1.01 in half; with kernels of short numbers and of bytes it
is 1.98 in float and 1.19 in double. 16 of 198 products are below 0.90. Where a share is below 0.95, one of these causes
explains it. The run of the H100 is older (26 November, commit b7e3855): it did not take turns, its shares are those of the
default call, and `split_sums`, `dmma_split` and `mma_split` did not exist.'''),
])
s = open('docs/ladder.md').read()
a = s.index('| products | H200 | H100 | cause | change after the run of the H100 |'); b = s.index('Double at 2048³ on the H100 (0.94 then)')
s = s[:a] + '''| products | H200 | H100 | cause on the H200 | change after the run of the H100 |
| --- | --- | --- | --- | --- |
| int8, 16³ to 768³ | 0.84 to 1.09 | 0.93 to 1.11 | a constant of 0.3 to 0.7 µs: descriptors of TMA, barriers, a block that stays | none |
| bfloat16, even sizes to 768³ | 0.92 to 1.15 | 0.91 to 1.00 | the same, at 384³ and 512³ | `mma_sync` below 384³ |
| bfloat16, odd sizes to 509³ | 0.74 to 1.14 | 0.73 to 1.46 | rows have a pitch that neither vector loads nor TMA can use, so elements are copied one by one; at 127³ (9.2 µs, cuBLAS: 6.8) the sums are too short to be split | `mma_split` |
| bfloat16, n = m = 128, p 512, 2048, 8192 | 0.94, 1.12, 0.87 | 0.55, 0.34, 0.14 | eight parts per tile are fewer blocks than multiprocessors | `mma_split` |
| bfloat16, n = m = 512, p 512, 2048, 8192 | 0.94, 0.85, 0.57 | 0.92, 0.38, 0.24 | `clusters` remains faster than `mma_split`: `mma.sync` has 60 % of the rate of wgmma, whose rungs do not cut sums | tiles of 128 × 64 |
| bfloat16, C of 64 rows or columns | 0.92 to 1.01 | 0.84 to 1.00 | a tile of `clusters` has 128 rows | `mma_split` for 64 rows |
| bfloat16, 8192 × 8192, p 128 and 512 | 0.93, 0.85 | 0.95, 1.03 | most of the time goes to storing C. At p = 512 the share is 0.97 of the default call; what the best algorithm does differently was not examined | none |
| bfloat16, 16384 × 2048 × 512 | 0.98 | 0.88 | | `clusters` tuned for tall products: four stages instead of three |
| bfloat16 and half, 1536³ | 0.85, 0.86 | 0.85 | the last wave: 288 tiles of 128 × 64 are 2.2 waves on 132 multiprocessors, 96 of 128 × 192 are 0.7 | none |
| half, to 1024³ | 0.95 to 1.16 | 0.55 to 0.80 | | `mma_sync`, and tiles of 128 × 64 at 1024³ |
| float, even sizes to 768³ and 512 × 128 × 512 | 1.03 to 1.59 | 0.72 to 1.78 | | `split_sums` |
| float, odd sizes to 1023³ | 0.94 to 1.22 | 0.56 to 1.45 | elements are copied one by one | `split_sums` |
| float, 1025³, 2039³, 2047³ | 0.73, 0.93, 0.91 | 0.70, 0.89, 0.86 | 1025³: tiles that fill 132 multiprocessors compute 16 to 27 % more results than C has; all: a first launch copies B | none |
| float, n = m = 128, p 512, 2048, 8192 | 1.43, 0.96, 0.59 | 0.47, 0.36, 0.26 | 8 tiles of 32 × 64 in 8 parts are half as many blocks as multiprocessors; cuBLAS cuts the sums of p = 8192 in 66 | `split_sums` |
| float, n = m = 512, p = 2048 | 0.94 | 0.93 | `stream_k` cuts each sum in at most 24 | none |
| float, C of 64 rows or columns | 0.89 to 0.96 | 0.46 to 0.85 | 8 × 8 results per thread read shared memory twice as often as the 8 × 16 of `stream_k` | `split_sums` |
| double, even sizes to 768³ | 0.98 to 1.36 | 0.72 to 1.07 | | `dmma_split`: 64 tiles of 64 × 64 at 512³ were too few for 132 multiprocessors |
| double, odd sizes to 509³ | 0.98 to 1.07 | 0.45 to 0.83 | | `dmma_split` |
| TF32, odd sizes to 1023³ | 0.94 to 1.20 | 0.43 to 0.96 | elements are copied one by one | `mma_split` |
| TF32, 128³ to 8192³ | 0.92 to 1.12 | 0.65 to 0.96 | 3072³: the last wave | `wgmma_tf32` copies nothing; `three_tf32` moved 268 MB at 4096³, in 89 of 458 µs on an H100 |

Before the three kernels that split sums, an H200 (commit 21b3bcb) had geometric means of 0.90 in float, 1.00 in double,
1.08 in bfloat16 and 1.10 in TF32, and 40 of 198 products below 0.90.

''' + s[b:]
s = s.replace("In the recorded run `batched_ring` reaches 1.05 of the faster of cuBLAS's strided batched calls at 8 × 1024³ in float,\nand `batched_wgmma` 0.99 in bfloat16.", "In the recorded run `batched_ring` reaches 1.05 of the faster of cuBLAS's strided batched calls at 8 × 1024³ in float,\nand `batched_wgmma` 0.99 in bfloat16.")
open('docs/ladder.md', 'w').write(s)
edit('docs/experiments.md', [
('of their 379 points in the recorded\nrun of the H200, 359 ran at 97 % of the highest clock or above, and 364 of 379 on the H100. The others are cuBLAS\'s\ndoubles, which use the tensor cores (14 and 13 points), and six and two kernels of a long product.',
 'of their 379 points in the recorded\nrun of the H200, 362 ran at 97 % of the highest clock or above, and 364 of 379 on the H100. The others are cuBLAS\'s\ndoubles, which use the tensor cores (12 and 13 points), and five and two kernels of a long product.'),
('half of our kernels\' ratios are known\nwithin ± 0.9 %, and from n = 1024 on within ± 0.5 %.', 'half of our kernels\' ratios are known\nwithin ± 1.0 %, and from n = 1024 on within ± 0.5 %.'),
('Of the 951 points of `sizes`, 945 were repeated on another H200.', 'Of the 951 points that `sizes` had on 28 November 2026, 945 were repeated on another H200.'),
('Measured on six H200s on 28 November 2026 with cuBLAS 13.10: in the recorded run, in an earlier whole run (59c8549), and\non four further cards, which took 180 to 200 s each; a cell has the lowest and the highest ratio.',
 'Measured on seven H200s on 28 and 29 November 2026 with cuBLAS 13.10: in the recorded run, in two earlier whole runs\n(59c8549, 21b3bcb), and on four further cards, which took 180 to 200 s each; a cell has the lowest and the highest ratio.'),
('| `float_always`, float | 4.09 to 4.14 | 3.48 to 3.54 | 3.52 to 3.57 | 3.06 to 3.13 |\n| `float_from_half`, float | 4.38 to 4.45 | 3.78 to 3.91 | 3.94 to 4.01 | 3.34 to 3.42 |\n| `dmma_ring`, double | 1.022 to 1.038 | 1.059 to 1.073 | 1.044 to 1.061 | 1.062 to 1.095 |\n| `double_from_int8`, double | 1.637 to 1.685 | 1.575 to 1.632 | 1.401 to 1.406 | 1.382 to 1.415 |\n| `double_always`, double | 1.517 to 1.568 | 1.472 to 1.514 | 1.309 to 1.316 | 1.307 to 1.347 |\n| `clusters`, bfloat16 | 0.999 to 1.015 | 0.996 to 1.014 | 0.999 to 1.008 | |\n| `clusters`, half | 0.996 to 1.021 | 1.000 to 1.008 | 1.006 to 1.014 | |\n| `wgmma_tf32`, TF32 | 0.992 to 0.999 | 0.984 to 1.010 | 1.012 to 1.018 | 0.993 to 1.014 |\n| `wgmma_int8`, int8 | 1.015 to 1.030 | 1.036 to 1.050 | 0.979 to 0.991 | |',
 '| `float_always`, float | 4.07 to 4.14 | 3.48 to 3.54 | 3.50 to 3.57 | 3.06 to 3.13 |\n| `float_from_half`, float | 4.35 to 4.45 | 3.78 to 3.91 | 3.91 to 4.01 | 3.32 to 3.42 |\n| `dmma_ring`, double | 1.022 to 1.040 | 1.040 to 1.073 | 1.044 to 1.061 | 1.062 to 1.095 |\n| `double_from_int8`, double | 1.637 to 1.685 | 1.575 to 1.632 | 1.401 to 1.406 | 1.382 to 1.415 |\n| `double_always`, double | 1.517 to 1.568 | 1.472 to 1.514 | 1.309 to 1.318 | 1.307 to 1.350 |\n| `clusters`, bfloat16 | 0.998 to 1.015 | 0.996 to 1.014 | 0.997 to 1.008 | |\n| `clusters`, half | 0.996 to 1.021 | 0.999 to 1.008 | 1.006 to 1.014 | |\n| `wgmma_tf32`, TF32 | 0.992 to 0.999 | 0.984 to 1.010 | 1.010 to 1.018 | 0.993 to 1.014 |\n| `wgmma_int8`, int8 | 1.015 to 1.030 | 1.033 to 1.050 | 0.979 to 0.991 | |'),
])
edit('report/story.md', [('On six H200s, the times', 'On seven H200s, the times'), ('`stream_k` can take three times as long as cuBLAS.', 'our best kernel can take almost twice as long as cuBLAS.')])
edit('report/story.yaml', [('cards == 6 and', 'cards == 7 and'), ('long_sums: row("sizes", "vs_best", kernel="stream_k",', 'long_sums: row("sizes", "vs_best", kernel="split_sums", tile_n=32,'), ('2.7 < 1 / long_sums < 3.3', '1.6 < 1 / long_sums < 1.8')])
edit('report/assignment.md', [('of source a\'s six blocks, 128 × 8 and 256 × 4 tie on the H200.', 'of source a\'s six blocks, 128 × 8 is the fastest on this H200 and ties with 256 × 4 on another.')])
edit('report/assignment.yaml', [('fastest_128 <= slowest_256 and fastest_256 <= slowest_128 and fastest_others > min(slowest_128, slowest_256)', 'slowest_128 < min(fastest_256, fastest_others)')])
edit('report/assignment.yaml', [('    fastest_128: row("naive_blocks", "run_low_ms", kernel="naive", block_x=128)\n', ''), ('    slowest_256: row("naive_blocks", "run_high_ms", kernel="naive", block_x=256)\n', '')])
edit('README.md', [('6.19 for the naive kernel, 51.0 for the seventh rung, 57.6 for the ninth; cuBLAS has 51.1.', '6.29 for the naive kernel, 51.2 for the seventh rung, 57.6 for the ninth; cuBLAS has 51.3.'), ('about 45 minutes; about 30', 'about 50 minutes; about 30')])
edit('docs/running.md', [('about 45 minutes, eight of them for CPU loops', 'about 50 minutes, seven of them for CPU loops')])
edit('docs/recording.md', [('about 45 minutes on an H200', 'about 50 minutes on an H200')])
