# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Tilewise: how fast can a GPU multiply matrices, and why?
#
# One product, C = A B, computed by kernels that differ in one idea each: from the textbook's one thread an element,
# through tiles in shared memory, to several tiles a block. Every product is checked. The figures
# stand beside those of a published study on an RTX 2080 Ti (*source a*), so that you can see what carries over to
# another machine and what does not.

# %% tags=["parameters"]
import sys

from IPython.display import display

sys.path.insert(0, "../workflow")  # so that the notebook also opens where the package is not installed

from tilewise.report import claims, data, figures, findings, tables
from tilewise.report.render import claims_layout, show_figure, show_table, text

folders = None  # the folders of this run's platforms; None: all in results/
recorded = data.RECORDED

# %%
evidence = data.load(folders, recorded=recorded)
published = data.published()
labels = evidence.labels
tasks = evidence.config["tasks"]
ladder = tables.ladder(evidence, published)
failed = tables.failures(evidence)
verified = tables.verification(evidence)


def task_table(name, layout, caption, rows=lambda table: table, hide=()):
    """The table of a task, or a note where this run's config has no such task."""
    if name not in tasks:
        return text(f"*The config of this run has no task `{name}`.*")
    return show_table(rows(tables.task(name, evidence, published)), layout, caption, labels, hide)


def task_figure(name, caption):
    """The figure of a task, where this run's config has it."""
    return show_figure(figures.task(name, evidence, published), caption) if name in tasks else None


text(findings.origin(evidence))

# %% [markdown]
# ## The verdicts
#
# What the five sources claim, tried on the measured tables. A claim holds or does not hold by the condition in
# `report/claims.yaml`; the range of a measured value follows from the quartiles of its times, and a verdict that would
# change within that range says so. A claim is about the machine that it names; that it fails on another one is no error
# of its source. Where a source's own figures do not agree,
# the note below the claim says so.

# %%
verdicts = claims.verdicts(claims.load(), evidence)
text(findings.verdict_counts(verdicts, evidence))

# %%
beside = claims.side_by_side(verdicts, evidence)
caption = f"<b>Claims.</b> Source by source, all {len(beside)}; the table scrolls."
show_table(beside, claims_layout(evidence), caption)

# %% [markdown]
# ## Summary

# %%
text(findings.summary(evidence, ladder, verified, failed))

# %% [markdown]
# **How to read the tables.** C is n × m, A is n × p and B is p × m; shapes are written (n, m, p), as source a writes
# them. A time is the median of isolated runs in milliseconds; the *spread* is the interquartile range over the median.
# *Ratio* is the published time over the measured one: 10× means ten times faster here. cuBLAS, NVIDIA's own library in
# the same precision (TF32 off), stands beside every GPU table as the anchor, NumPy's BLAS beside the CPU loop. A mark †
# means that the point's standard deviation passed the study's limit, so its last digits mean nothing. A point that did
# not run keeps its row, and its cause is in [What failed and why](#What-failed-and-why).

# %% [markdown]
# ## The CPU loop
#
# The baseline is three nested loops in the order k, i, j on one core: the innermost walks along a row of B and a row of
# C, so the processor reads memory in order. It is a fair loop, not a fast one; NumPy's BLAS, which blocks for the
# caches and uses every core, shows what the same processor can do.

# %%
task_table("cpu", "cpu", "<b>CPU times.</b> The loop in float, beside the host of source a (its model is not given).")

# %%
task_figure(
    "cpu",
    "<b>The CPU.</b> Rate of the kij loop (one thread) and of NumPy's BLAS at each shape; the axis is logarithmic.",
)

# %% [markdown]
# ## One thread an element
#
# The naive kernel gives each element of C to a thread, which reads a row of A and a column of B from global memory. The
# only choice is how 1024 threads lie in a block. It matters, because the 32 threads of a warp share their loads: in a
# block of 32 or more along x, a warp covers one row of C, asks for 32 neighbours in B and for a single element of A; in
# a block of 8 × 128 it covers four rows, so a request for A touches four lines, and one for B brings 8 neighbours.

# %%
task_table(
    "task1a",
    "winners",
    "<b>Table 1.</b> Naive kernel, float, at the best block for each shape, with the CPU loop of the same machine.",
)

# %%
task_figure(
    "task1a",
    "<b>Block dimensions, float.</b> Rate of the naive kernel over the shape of its block, 1024 threads in each.",
)

# %%
task_table(
    "task1b",
    "sweep",
    "<b>Table 2.</b> Naive kernel, double, over the block dimensions at the largest shape.",
    rows=tables.largest,
    hide=("bound_ratio", "tile", "ntb", "dtype"),
)

# %%
task_figure(
    "task1b",
    "<b>Block dimensions, double.</b> As above in double; the shapes beyond Table 2 are an addition to source a.",
)

# %%
text(findings.double_cost(evidence, published))

# %% [markdown]
# ## The largest product
#
# Three square matrices of n² floats need 12 n² bytes, so memory bounds n. In theory the bound follows from the memory
# that the device reports; in practice the driver and the context keep some. The probe therefore looks for the largest
# n whose three matrices really allocate, by bisection. One product of that size is then timed, unless it would take
# longer than the study's budget, and random rows of C are verified. From n = 46,341 on, n² no longer fits a 32-bit
# integer: the kernels index with 64 bits.

# %%
task_table("task1c", "maximum_size", "<b>Table 3.</b> Maximum size, three float matrices, naive kernel.")

# %%
task_figure(
    "task1c",
    "<b>Maximum size.</b> The largest n in theory, the largest that was allocated, and the n that was timed.",
)

# %% [markdown]
# ## Tiles in shared memory
#
# The threads of a block need the same rows of A and columns of B. So they load a tile of each into shared memory
# together, and every element loaded is used as often as the tile is wide. Global loads fall by that factor. The time
# falls by less: caches had served many of the naive kernel's loads already, and shared memory has a rate of its own.

# %%
task_table(
    "task2a",
    "winners",
    "<b>Table 4.</b> Tiled kernel, float, at the best tile width for each shape.",
)

# %%
task_figure(
    "task2a",
    "<b>Tile width, float.</b> Rate of the tiled kernel; a block has as many threads as a tile has elements.",
)

# %%
task_table(
    "task2b",
    "winners",
    "<b>Table 4 in double.</b> The same sweep in double, which source a ran but did not print.",
    hide=("published_block", "published_grid", "published_ms", "published_cpu_ms", "cpu_ms", "ratio"),
)

# %%
task_figure(
    "task2b",
    "<b>Tile width, double.</b> The tiles take twice the shared memory.",
)

# %% [markdown]
# ## Several tiles a block
#
# A block that computes NTB neighbouring tiles of C loads each tile of A once for all of them, and each thread keeps NTB
# sums in registers: more arithmetic for every load. Each further tile saves less than the one before: NTB tiles load
# (1 + 1/NTB) / 2 of what one tile does for each, so fewer loads alone can double the speed at most. The price is
# registers and shared memory; it is due when they leave room for fewer blocks on a multiprocessor (see Occupancy).

# %%
task_table(
    "task3",
    "sweep",
    "<b>Table 5.</b> Tiles a block (NTB) at the largest shape; source a printed float with tile 32.",
    rows=tables.largest,
    hide=("bound_ratio",),
)

# %%
task_figure(
    "task3",
    "<b>NTB.</b> Rate over the number of tiles a block, and speed relative to one tile beside source a's curve.",
)

# %% [markdown]
# ## Shapes that are no multiple of a tile
#
# Real matrices end in the middle of a tile. The kernels fill what lies beyond the edge with zeros, so every shape is
# right, down to a single element. Source a showed n = p = m = 1100; the other shapes are the hard cases: primes, single
# rows and columns, one less and one more than a tile. *Error / bound* is the largest error over what rounding can
# explain, which must stay below 1; integers must be exact. Times of tiny products are the time of a launch.

# %%
task_table(
    "task4",
    "sweep",
    "<b>Ragged and degenerate shapes.</b> Tile 16, three tiles a block.",
    hide=("block", "gflops", "tile", "ntb"),
)

# %%
task_figure("task4", "<b>Ragged shapes.</b> Rates by type, on a logarithmic axis.")

# %% [markdown]
# ## The kernels side by side
#
# The best of each kernel, whatever was chosen for it, against the chip. The *vector peak* is what the multiply-add
# units reach at the highest clock. cuBLAS may pass it in double: on data-centre GPUs since the A100 it uses FP64 tensor
# cores, which have about twice that rate and which none of the kernels here uses.

# %%
show_figure(
    figures.peak(ladder, evidence),
    "<b>Against the peak.</b> GFLOP/s and share of the vector peak at the largest square shape; cuBLAS in grey.",
)

# %%
show_figure(
    figures.speedup(ladder, evidence),
    "<b>Speed-up, float.</b> Best of each kernel over the best naive kernel, and over one core's loop on that machine.",
)

# %%
show_table(
    ladder[ladder["speedup_over_naive"].notna()],
    "ladder",
    "<b>The ladder.</b> The best of each kernel and type at the shapes where the naive kernel was timed too.",
    labels,
)

# %% [markdown]
# ### Is the best choice clear?
#
# A best block, tile or NTB means something only if the runner-up is slower by more than the measurement scatters. The
# last column says whether the quartile ranges of the two stay apart.

# %%
show_table(
    tables.choices(evidence, *tasks),
    "choices",
    "<b>Best choices.</b> The fastest of each sweep, and the next.",
    labels,
)

# %% [markdown]
# ## Integers
#
# Source b multiplies int32 matrices of 2000 × 2000 with blocks of 16 × 16 and compares them exactly. Its operands are
# all 1, so every element of C is 2000, whichever rows and columns are mixed up; here the operands are random.

# %%
task_table("integers", "sweep", "<b>Integers.</b> CPU loop in the order i, j, k, naive and tiled kernel.")

# %%
task_figure("integers", "<b>Integers.</b> Rates at 2000 × 2000, on a logarithmic axis.")

# %%
text(
    findings.found(
        evidence.of("integers"),
        """
        On {platform} the naive kernel takes {time(kernel='naive')} ms and the tiled one {time(kernel='tiled')} ms:
        tiling makes it {time(kernel='naive') / time(kernel='tiled')} times as fast. One core needs {time(kernel='ijk')}
        ms.
        """,
    )
)

# %% [markdown]
# ## A stopwatch around everything
#
# Source b finds tiling 17 times faster, with a stopwatch around allocation, copies and kernel. Its naive kernel ran
# first, and the first call of a process also creates the CUDA context. The same measurement here, each time in a fresh
# process, in both orders, and beside it the kernel alone.

# %%
task_table("cold_start", "cold_start", "<b>Whole calls.</b> Medians of fresh processes, step by step.")

# %%
task_figure("cold_start", "<b>Where the time of a call goes.</b> Whoever comes first pays for the context.")

# %%
text(
    findings.found(
        evidence.of("cold_start"),
        """
        On {platform} the first call takes {call('naive', 1)} ms when it is the naive one; {call('naive', 1, 'context')}
        ms of them create the context. Naive first and tiled second, tiling looks {call('naive', 1) / call('tiled', 2)}
        times as fast; tiled first and naive second, {call('naive', 2) / call('tiled', 1)} times. The kernels alone
        differ by a factor of {time(kernel='naive') / time(kernel='tiled')}.
        """,
    )
)

# %% [markdown]
# ## Which index should run along a row?
#
# The transposed kernels make threadIdx.x the row of C, as source c does. Neighbouring threads of a warp then read and
# write elements that lie a whole row apart, and every request breaks into up to 32 pieces.

# %%
task_table("coalescing", "sweep", "<b>Coalescing.</b> threadIdx.x as column and as row.", hide=("bound_ratio",))

# %%
task_figure("coalescing", "<b>Coalescing.</b> Rates with threadIdx.x as the column and, transposed, as the row.")

# %%
text(
    findings.found(
        evidence.of("coalescing"),
        """
        On {platform} the row as threadIdx.x makes the naive kernel take {time(kernel='naive_transposed', block_x=32,
        cube=8192) / time(kernel='naive', block_x=32, cube=8192)} times as long at 8192 cubed (blocks of 32 × 32), and
        the tiled one {time(kernel='tiled_transposed', tile=32) / time(kernel='tiled', tile=32)} times at 4096 cubed.
        """,
    )
)

# %% [markdown]
# ## Launches that are refused
#
# A block has at most 1024 threads and a limited share of shared memory. A launch beyond that is refused: the kernel
# never runs, and C stays as it was. Source b's function sees the error and returns before it copies C back; its main
# does not look, and compares host memory that was never written with products.

# %%
task_table("launch_limits", "launch_limits", "<b>Launch limits.</b> What was launched and what refused, by name.")

# %%
task_figure("launch_limits", "<b>Launch limits.</b> Each launch as a share of what the device allows a block.")

# %%
text(
    findings.found(
        evidence.of("launch_limits"),
        """
        On {platform} a block of 33 × 33 threads is refused with {launch('error', block_x=33)}, which reads
        "{launch('error_text', block_x=33)}".
        """,
        evidence.everyone,
    )
)

# %% [markdown]
# ## Orders of the CPU loop
#
# The three loops may be nested in six orders; each adds the same products in the same order of k, so the result is the
# same. What differs is the innermost step through memory: along rows (ikj, kij), along one row and down one column
# (ijk, jik), or down two columns (jki, kji).

# %%
task_table("loop_orders", "cpu", "<b>Loop orders.</b> One thread; the blocked loop works on blocks of 16.")

# %%
task_figure("loop_orders", "<b>Loop orders.</b> Rates in the cache and beyond it.")

# %%
text(
    findings.found(
        evidence.of("loop_orders"),
        """
        On {platform}, beyond the cache and in float, ijk takes {time(kernel='ijk', dtype='float', cube=800) /
        time(kernel='ikj', dtype='float', cube=800)} times as long as ikj, and jki {time(kernel='jki', dtype='float',
        cube=800) / time(kernel='ikj', dtype='float', cube=800)} times; ijk at 512 takes {time(kernel='ijk',
        dtype='float', cube=512) / time(kernel='ijk', dtype='float', cube=500)} times as long as at 500, for 1.07 times
        the work.
        """,
        evidence.everyone,
    )
)

# %%
if not evidence.facts["cache_lines"].empty:
    fetched = tables.cache_lines(evidence)
    display(
        text(
            "Why? The same loops also ran on elements that report each of their reads and writes to a model of a "
            "core's two caches, with lines of 64 B of which the least recently used gives way. A walk along a row "
            "fetches a line for 16 floats; a walk down a column fetches one for each, unless the lines of the whole "
            "column stay in the cache until the next column is read."
        )
    )
    display(
        show_table(
            fetched,
            "cache_lines",
            "<b>Cache lines.</b> What a multiply-add takes, and the lines that it fetches by the model.",
            labels,
        )
    )
    display(
        show_figure(
            figures.cache_lines(evidence),
            "<b>Cache lines.</b> Time over lines fetched. Loops at the same abscissa differ by what the model leaves "
            "out, such as vector instructions and lines fetched ahead.",
        )
    )
    display(text(findings.lines_explain(fetched, labels)))

# %% [markdown]
# ## Ragged edges against multiples of the tile
#
# What does it cost to accept any shape? The tiled kernel on a shape with three ragged edges, on the next multiples of
# 32, and there against the kernel of source e, which tests no edge and is wrong for every other shape.

# %%
task_table("rectangular", "sweep", "<b>Rectangles.</b> With and without tests at the edges.", hide=("block",))

# %%
task_figure("rectangular", "<b>Rectangles.</b> Rates of the tiled kernels by shape.")

# %%
text(
    findings.found(
        evidence.of("rectangular"),
        """
        On {platform}, float with tiles of 32, the kernel that accepts any shape takes {time(kernel='tiled',
        dtype='float', tile=32, n=3008) / time(kernel='tiled_exact', dtype='float', tile=32)} times as long as the one
        without tests, on multiples of 32; the ragged shape, with 0.99 times the work, takes {time(kernel='tiled',
        dtype='float', tile=32, n=3001) / time(kernel='tiled', dtype='float', tile=32, n=3008)} times as long as the
        multiples.
        """,
    )
)

# %% [markdown]
# ## A tile width chosen at run time
#
# Source d sizes the tiles at run time, for any device. The compiler then cannot unroll the inner loop, nor turn the
# offsets into constants. Beside it the same widths fixed at compile time.

# %%
task_table("dynamic_tile", "sweep", "<b>Run-time tile.</b> Against tiles of fixed width.", hide=("bound_ratio",))

# %%
task_figure("dynamic_tile", "<b>Run-time tile.</b> Rates by tile width.")

# %%
text(
    findings.found(
        evidence.of("dynamic_tile"),
        """
        On {platform} the best width chosen at run time is {best('tile', kernel='dynamic_tile')}, at
        {time(kernel='dynamic_tile') / time(kernel='tiled')} times the time of the best fixed one.
        """,
    )
)

# %%
show_table(
    tables.occupancy(evidence),
    "occupancy",
    "<b>Occupancy.</b> How many blocks of a kernel a multiprocessor holds, from the build's numbers, and as CUDA says.",
    labels,
)

# %% [markdown]
# ## What a matrix struct costs
#
# The kernel of source e reads its operands through a struct with a stride, so that it can also multiply sub-matrices.

# %%
task_table("matrix_struct", "sweep", "<b>Matrix struct.</b> Against plain pointers.", hide=("bound_ratio",))

# %%
task_figure("matrix_struct", "<b>Matrix struct.</b> Rates of the struct and of plain pointers.")

# %%
text(
    findings.found(
        evidence.of("matrix_struct"),
        """
        On {platform}, float with tiles of 32, the struct takes {time(kernel='matrix_struct', dtype='float', tile=32) /
        time(kernel='tiled_exact', dtype='float', tile=32)} times as long as the same kernel over plain pointers.
        """,
    )
)

# %% [markdown]
# ## The roofs of the device
#
# How fast the memory really is, and how many multiply-adds the units really do, measured by kernels that do nothing
# else. A kernel of 0.25 FLOP a byte, or of 4, cannot pass these rates if every byte comes from memory.

# %%
task_table("bandwidth", "bandwidth", "<b>Roofs.</b> Measured here, beside the datasheet.")

# %%
task_figure("bandwidth", "<b>Roofs.</b> Measured rates as a share of the datasheet's.")

# %%
text(
    findings.found(
        evidence.of("bandwidth", "task1a"),
        """
        On {platform} memory delivers {roof('memory_bandwidth')} GB/s, and the float units {roof('multiply_add_rate')}
        GFLOP/s. At 0.25 FLOP a byte that allows {0.25 * roof('memory_bandwidth')} GFLOP/s, at 4 FLOP a byte {4 *
        roof('memory_bandwidth')}. The best naive kernel reaches {rate(kernel='naive', dtype='float', cube=8192)}
        GFLOP/s, because most of its loads never go to memory.
        """,
    )
)

# %%
known = "cpu task1a task1b task1c task2a task2b task3 task4 integers cold_start coalescing launch_limits loop_orders"
known += " rectangular dynamic_tile matrix_struct bandwidth"
for name in [name for name in tasks if name not in known.split()]:
    display(text(f"## {tasks[name]['title']}\n\nThe task `{name}` of the config."))
    display(task_table(name, "sweep", f"<b>{tasks[name]['title']}.</b> Every point of the task."))
    display(task_figure(name, f"<b>{tasks[name]['title']}.</b>"))

# %% [markdown]
# ## What the kernels ask of memory

# %%
if evidence.facts["traffic"].empty:
    display(text("Nothing was traced in this run."))
else:
    display(
        text(
            "The emulator runs the kernels thread by thread and counts what a profiler counts on a GPU: the requests "
            "of a warp, the 32-byte sectors they touch, and the conflicts in shared memory. A warp that reads 32 "
            "neighbouring floats needs 4 sectors; one that reads 32 rows needs 32."
        )
    )
    display(
        show_table(
            tables.traffic(evidence),
            "traffic",
            "<b>Memory traffic.</b> Counted exactly; each kernel at its largest traced shape.",
        )
    )
    display(
        show_figure(
            figures.roofline(evidence),
            "<b>Roofline, float.</b> Each kernel at its counted intensity and measured rate. The bytes are those "
            "between "
            "a multiprocessor and its caches, so a kernel whose data the caches serve may lie above the memory's roof.",
        )
    )
if not evidence.facts["counters"].empty and not evidence.facts["traffic"].empty:
    counted = tables.counted_against_hardware(evidence)
    display(
        show_table(
            tables.agreement(evidence),
            "agreement",
            "<b>Counted against hardware.</b> The emulator's counts beside Nsight Compute's, launch by launch.",
        )
    )
    display(
        show_table(
            counted[counted["counted"] != counted["hardware"]],
            "counted",
            "<b>Where they differ.</b> The compiler for the GPU joins neighbouring loads from shared memory into wider "
            "ones, which the source does not show; loads from global memory it leaves as they are. Wavefronts and "
            "conflicts of shared memory include, in some runs, accesses that gave way to others.",
        )
    )

# %% [markdown]
# ## What failed and why

# %%
show_table(
    failed,
    "failures",
    "<b>Points that are not ok.</b> A refused launch or an exceeded budget is a result too; refusals that a task "
    "asks for are in its own table.",
    labels,
)

# %% [markdown]
# ## Verification
#
# Operands are seeded random numbers; the output is filled with NaN first. A product passes where every element differs
# from the float64 reference by no more than γ |A||B|, γ = p u / (1 − p u), the bound that rounding cannot pass;
# integers must be equal. What was timed is verified again after the last run. Where the whole reference is too dear,
# whole random rows are checked.

# %%
show_table(verified, "verification", "<b>Verified points.</b> By machine, kernel and type.", labels)

# %% [markdown]
# ## Where the numbers come from

# %%
show_table(tables.provenance(evidence), None, "<b>Provenance.</b> One column a machine.")

# %%
text(findings.configuration(evidence))

# %% [markdown]
# **Sources.** (a) R. Pellumbi, *CPSC 524 Assignment 4: CUDA Matrix Multiplication*, 2023, on an RTX 2080 Ti: the tables
# above. (b) *Speed up matrix multiplication 2*, int kernels on a V100. (c) *Reordering loops*, a tiled kernel from loop
# orders. (d) Notes on memory types and tiling, with the figures of an H100. (e) Notes on the CUDA guide's kernels over
# a matrix struct. Every figure that this study takes from them is in `report/published/`, with its place.
