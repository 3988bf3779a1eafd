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

# %% tags=["parameters"]
import functools
from pathlib import Path

from IPython.display import HTML, display

from tilewise.measure import accuracy
from tilewise.report import claims, data, drawings, figures, findings, notes, tables
from tilewise.report.exhibits import claims_html, show_figure, show_kernel, show_table, text

folders = None  # the folders of this run's platforms; None: all in results/
recorded = data.RECORDED
drawn = None  # the folder of the tasks' figures, if they are drawn already

# %% tags=["needed"]
evidence = data.load(folders, recorded=recorded)
published = data.published(kernels=evidence.kernels)
tasks = evidence.config["tasks"]
# Functions, so that a table that cannot be made costs only those pieces that need it.
ladder = functools.cache(lambda: tables.ladder(evidence, published))
failed = functools.cache(lambda: tables.failures(evidence))
verified = functools.cache(lambda: tables.verification(evidence))
climb = functools.cache(lambda task=tables.CLIMB: tables.climb(evidence, task))
rungs = functools.cache(lambda task=tables.CLIMB: tables.rungs(climb(task), evidence))
loops = functools.cache(lambda: tables.loops(evidence))
verdicts = functools.cache(lambda: claims.verdicts(claims.load(), evidence))
limits = functools.cache(lambda: tables.limits(evidence))


def piece(name):
    """In a cell that shows several pieces, one of them."""
    return notes.piece(name, lambda note: display(HTML(note)))


def task_table(name, layout, caption, rows=lambda table: table, hide=()):
    """The table of a task, or a note if this run's config has no such task."""
    if name not in tasks:
        return text(f"*The config of this run has no task `{name}`.*")
    table = rows(tables.task(name, evidence, published))
    caption = f"{caption} {findings.overhead(table, evidence)}".strip()
    return show_table(table, layout, caption, evidence, hide, name)


def task_figure(name, caption):
    """The figure of a task, if this run's config has that task."""
    if name not in tasks:
        return None
    figure = Path(drawn, f"{name}.svg").read_text() if drawn else figures.task(name, evidence, published)
    return show_figure(figure, caption, name)


# %% Text: answer
text(findings.answer(evidence, rungs(), ladder()))

# %% Figure: The ladder, float
show_figure(
    figures.rungs(rungs(), evidence),
    "<b>The ladder, float.</b> The rate of every rung, from the textbook's kernel to the last. The lines are what "
    "limits it; an upright mark is what a rung's own loop allows; a hatched rung is slower than one before it.",
    "rungs",
)

# %% Text: reasons
text(findings.reasons(evidence, rungs()))

# %% Text: origin
text(findings.origin(evidence))

# %% Text: verdict counts
text(findings.verdict_counts(verdicts(), evidence))

# %% Table: Claims
HTML(claims_html(verdicts(), evidence))

# %% [markdown]
# ## One thread per element
#
# The naive kernel gives each element of C to one thread, which reads a row of A and a column of B from global memory.
# The only choice is how the 1024 threads of a block are arranged. This choice matters, because the 32 threads of a warp
# share their loads. If a block is 32 or more threads wide along x, a warp covers one row of C: it asks for 32
# neighbours in B and for a single element of A. In a block of 8 × 128 a warp covers four rows: a request for A touches
# four lines, and a request for B brings 8 neighbours.

# %% Figure: Block dimensions, float
task_figure(
    "task1a",
    "<b>Block dimensions, float.</b> Rate of the naive kernel for each shape of its block, always 1024 threads.",
)

# %% Text: block shapes
text(findings.block_shapes(evidence))

# %% Table: Best blocks, float
task_table(
    "task1a",
    "winners",
    "<b>Best blocks, float.</b> The naive kernel beside source a's Table 1, with the CPU loop of the same machine.",
)

# %% Figure: Block dimensions, double
task_figure(
    "task1b",
    "<b>Block dimensions, double.</b> The same in double; source a has the largest shape only.",
)

# %% Table: Blocks in double
task_table(
    "task1b",
    "sweep",
    "<b>Blocks in double.</b> The naive kernel at the largest shape, beside source a's Table 2.",
    rows=tables.largest,
    hide=("bound_ratio", "dtype"),
)

# %% Text: double cost
text(findings.double_cost(evidence, published))

# %% Text: double cause
text(findings.double_cause(evidence, limits()))

# %% [markdown]
# ### Which index should run along a row?
#
# The transposed kernels make threadIdx.x the row of C, as source c does. Then neighbouring threads of a warp read and
# write elements that lie a whole row apart, so every request breaks into up to 32 pieces.

# %% Figure: Coalescing
task_figure(
    "coalescing", "<b>Coalescing.</b> Rates with threadIdx.x as the column and, in the transposed kernels, as the row."
)

# %% Text: coalescing
text(
    findings.found(
        evidence.of("coalescing"),
        """
        On {platform}, with threadIdx.x as the row, the naive kernel takes {time(kernel='naive_transposed', block_x=32,
        cube=8192) / time(kernel='naive', block_x=32, cube=8192)} times as long at 8192 cubed (blocks of 32 × 32), and
        the tiled kernel {time(kernel='tiled_transposed', tile=32) / time(kernel='tiled', tile=32)} times as long at
        4096 cubed.
        """,
    )
)

# %% Table: Coalescing
task_table("coalescing", "sweep", "<b>Coalescing.</b> threadIdx.x as the column and as the row.", hide=("bound_ratio",))

# %% [markdown]
# ## Tiles in shared memory
#
# The threads of a block need the same rows of A and columns of B. So they work together to load a tile of each into
# shared memory, and use every loaded element as many times as the tile is wide. Global loads fall by that factor. The
# time falls by less: the caches already served many of the naive kernel's loads, and shared memory has a limited rate
# too.

# %% Figure: Tile width, float
task_figure(
    "task2a",
    "<b>Tile width, float.</b> Rate of the tiled kernel; a block has as many threads as a tile has elements.",
)

# %% Table: Best tiles, float
task_table(
    "task2a",
    "winners",
    "<b>Best tiles, float.</b> The tiled kernel at the best width for each shape, beside source a's Table 4.",
)

# %% Figure: Tile width, double
task_figure(
    "task2b",
    "<b>Tile width, double.</b> The tiles take twice the shared memory.",
)

# %% Table: Best tiles, double
task_table(
    "task2b",
    "winners",
    "<b>Best tiles, double.</b> The same in double; source a ran it but did not print it.",
    hide=("published_block", "published_grid", "published_ms", "published_cpu_ms", "cpu_ms", "ratio"),
)

# %% Text: shared rate
text(findings.shared_rate(evidence, limits()))

# %% [markdown]
# ### A tile width chosen at run time
#
# Source d chooses the size of the tiles at run time, for any device. Then the compiler cannot unroll the inner loop,
# and cannot turn the offsets into constants. The table also shows the same widths, fixed at compile time.

# %% Figure: Run-time tile
task_figure("dynamic_tile", "<b>Run-time tile.</b> Rates for each tile width.")

# %% Text: dynamic tile
text(
    findings.found(
        evidence.of("dynamic_tile"),
        """
        On {platform} the best width chosen at run time is {best('tile', kernel='dynamic_tile')}. With it the kernel
        takes {time(kernel='dynamic_tile') / time(kernel='tiled')} times as long as with the best fixed width.
        """,
    )
)

# %% Table: Run-time tile
task_table("dynamic_tile", "sweep", "<b>Run-time tile.</b> Compared with tiles of fixed width.", hide=("bound_ratio",))

# %% Table: Occupancy
show_table(
    tables.occupancy(evidence),
    "occupancy",
    "<b>Occupancy.</b> Blocks of a kernel that fit on a multiprocessor: computed from the build, and as CUDA says.",
    evidence,
)

# %% [markdown]
# ### What a matrix struct costs
#
# The kernel of source e reads its operands through a struct with a stride, so it can also multiply sub-matrices.

# %% Figure: Matrix struct
task_figure("matrix_struct", "<b>Matrix struct.</b> Rates with the struct and with plain pointers.")

# %% Text: matrix struct
text(
    findings.found(
        evidence.of("matrix_struct"),
        """
        On {platform}, float with tiles of 32, the struct takes {time(kernel='matrix_struct', dtype='float', tile=32) /
        time(kernel='tiled_exact', dtype='float', tile=32)} times as long as the same kernel with plain pointers.
        """,
    )
)

# %% Table: Matrix struct
task_table("matrix_struct", "sweep", "<b>Matrix struct.</b> Compared with plain pointers.", hide=("bound_ratio",))

# %% [markdown]
# ## Several tiles per block
#
# A block that computes NTB neighbouring tiles of C loads each tile of A once for all of them, and each thread keeps NTB
# sums in registers: every load serves more arithmetic. Each further tile saves less than the one before. With NTB tiles
# per block, each tile needs (1 + 1/NTB) / 2 of the loads that it needs with one tile per block. So fewer loads alone
# can at most double the speed. The price is registers and shared memory, which may leave room for fewer blocks on a
# multiprocessor (see Occupancy).

# %% Figure: NTB
task_figure(
    "task3",
    "<b>NTB.</b> Rate over the number of tiles per block, and speed relative to one tile, beside source a's curve.",
)

# %% Text: tile curve
text(findings.tile_curve(tables.tile_counts(evidence), evidence))

# %% Text: few blocks
text(findings.few_blocks(evidence))

# %% Table: Tiles per block
task_table(
    "task3",
    "sweep",
    "<b>Tiles per block.</b> NTB at the largest shape; source a's Table 5 has only float with tile 32.",
    rows=tables.largest,
    hide=("bound_ratio",),
)

# %% [markdown]
# ## From one load per multiply-add to the limit
#
# Here each kernel changes one idea of the one before, from the textbook's loop to the last file of `kernels/ladder/`,
# all in float on the CUDA cores. Two limits help to say why each is faster. First, a scheduler issues one instruction
# per cycle, and whatever is not a multiply-add takes a multiply-add's place. So the share of multiply-adds in the
# innermost loop, read from the machine code, is a ceiling: this share of the rate that multiply-adds alone reach.
# Second, a multiprocessor has four schedulers and one pipe to its caches and shared memory, which takes at most one
# request of a warp per cycle. From 25 requests per 100 multiply-adds on, this pipe sets the pace.

# %% tags=["needed"]
told = []


def show_tiles(row, idea):
    """The drawing of a kernel's tiles at the point of a row, beside the lines that begin with `idea`."""
    kernel = evidence.kernels[row["kernel"]]
    point = data.point_of(row, kernel)
    tiles = point and drawings.tiling(kernel, point, evidence.device(row["platform"]))
    if tiles:
        display(show_kernel(kernel, tiles, idea))


def show_tiles_of(ideas):
    """The same of kernels at the product at which each is fastest: name -> (sentence, idea)."""
    timed = ladder()[(ladder()["status"] == "ok") & ladder()["gflops"].notna()].sort_values("gflops")
    for name, (sentence, idea) in ideas.items():
        own = timed[timed["kernel"] == name]
        if len(own):
            display(text(f"`{name}`: {' '.join(sentence.split())}"))
            with piece(f"Figure: Tiles of {name}"):
                first = own[own["dtype"] == evidence.kernels[name].dtypes[0]]  # the type for which it was written
                show_tiles((first if len(first) else own).iloc[-1], idea)


def rung(name, *sentences, idea=""):
    """Heading, paragraph, drawing and picture of a rung, if it was timed; `idea` begins the lines that carry it."""
    told.append(name)
    if name in set(rungs()["kernel"]):
        kernel, row = evidence.kernels[name], rungs()[rungs()["kernel"] == name].iloc[0]
        title = kernel.title if kernel.title.startswith(name) else f"{name}: {kernel.title}"
        display(text(f"### {notes.plain(title)}"))
        with piece(f"Text: {name}"):
            display(text(findings.rung(evidence, climb(), rungs(), name, *sentences)))
        with piece(f"Figure: Tiles of {name}"):
            show_tiles(row, idea)
        with piece(f"Figure: {name}"):
            beside = f", beside {row['before']}" if row["before"] else ""
            caption = (
                f"<b>{name}</b>{beside}. Left: the instructions of the loop. Right: the rate; the mark is its ceiling, "
                "the broken line cuBLAS."
            )
            display(show_figure(figures.rung(rungs(), name, evidence), caption))


# %% The rung naive
rung(
    "naive",
    """
    Every operand comes from global memory each time it is used: {this('global_bytes_per_multiply_add')} bytes for each
    multiply-add. Of the loop's {this('instructions')} instructions only {this('multiply_add_percent')} % are
    multiply-adds; the rest are loads and their addresses. That alone would allow {this('ceiling_gflops') / 1000}
    TFLOP/s.
    """,
    """
    But the pipe to the caches has to take {this('accesses_per_100')} loads for 100 multiply-adds, which allows no more
    than {25 / this('accesses_per_100') * roof('multiply_add_rate') / 1000}.
    """,
    idea="for (int k = 0; k < p; ++k)",
)

# %% The rung tiled
rung(
    "tiled",
    """
    The threads of a block share what they load.
    """,
    """
    {only if this('global_bytes_per_multiply_add') < last('global_bytes_per_multiply_add') and this('others_per_100') <
    last('others_per_100')} Loads from global memory fall from {last('global_bytes_per_multiply_add')} to
    {this('global_bytes_per_multiply_add')} bytes per multiply-add. The same operands now come from shared memory,
    {this('shared_bytes_per_multiply_add')} bytes per multiply-add, but at fixed offsets: the addresses vanish, and
    {this('others_per_100')} other instructions for 100 multiply-adds remain of {last('others_per_100')}.
    """,
    """
    The pipe still takes {this('accesses_per_100')} requests for 100 multiply-adds, since the compiler joins only the
    reads of A. That allows {25 / this('accesses_per_100') * roof('multiply_add_rate') / 1000} TFLOP/s, and the threads
    wait for each other twice per tile.
    """,
    idea="for (int start = 0; start < p; start += TILE) {",
)

# %% The rung multi_tile
rung(
    "multi_tile",
    """
    An element of A, once read, serves several tiles of C ({this('choice')}).
    """,
    """
    {only if this('shared_bytes_per_multiply_add') < last('shared_bytes_per_multiply_add')} So
    {this('shared_bytes_per_multiply_add')} bytes per multiply-add come from shared memory instead of
    {last('shared_bytes_per_multiply_add')}, and the loop needs {this('others_per_100')} other instructions for 100
    multiply-adds instead of {last('others_per_100')}.
    """,
    """
    Every multiply-add still reads its own element of B: {this('accesses_per_100')} requests for 100 multiply-adds,
    where {25 / this('accesses_per_100') * roof('multiply_add_rate') / 1000} TFLOP/s is the most. Elements of B must be
    shared as well.
    """,
    idea="for (int k = 0; k < TILE; ++k) {",
)

# %% The rung register_tile
rung(
    "register_tile",
    """
    A thread now computes a square of C: 8 elements of A and 8 of B, held in registers, make 64 multiply-adds.
    """,
    """
    {only if this('shared_bytes_per_multiply_add') < last('shared_bytes_per_multiply_add')} Reads of shared memory fall
    from {last('shared_bytes_per_multiply_add')} bytes per multiply-add to {this('shared_bytes_per_multiply_add')}, and
    {this('multiply_add_percent')} % of the loop multiply ({last('multiply_add_percent')} % before). It reaches
    {this('percent_of_ceiling')} % of the new ceiling.
    """,
    """
    {only if this('warps') < last('warps')} One cause is occupancy: with {this('registers')} registers per thread a
    multiprocessor holds {this('warps')} warps, where it held {last('warps')}, to work while others wait.
    """,
    """
    {only if this('conflict_percent') > 10} Another is shared memory: the threads of a warp read columns that begin 32
    bytes apart, so {this('conflict_percent')} % of its passes are bank conflicts, and 100 multiply-adds take
    {this('wavefronts_per_100')} passes (the emulator's count, before the compiler joins reads).
    """,
    idea="for (int k = 0; k < TILE_K; ++k) {",
)

# %% The rung vector_loads
rung(
    "vector_loads",
    """
    One instruction moves four floats as well as one, if they lie side by side; so A is transposed on its way into
    shared memory.
    """,
    """
    {only if this('others_per_100') < last('others_per_100')} The copies of {last('kernel')}, element by element,
    shrink: {this('others_per_100')} other instructions for 100 multiply-adds instead of {last('others_per_100')}.
    """,
    """
    {only if this('others_per_100') >= last('others_per_100')} Its loop has more other instructions,
    {this('others_per_100')} for 100 multiply-adds instead of {last('others_per_100')}: a second branch, for rows that
    do not begin at multiples of 16 bytes, is counted too, although it does not run here.
    """,
    """
    {only if this('wavefronts_per_100') < last('wavefronts_per_100')} A pass of shared memory serves more of them:
    {this('wavefronts_per_100')} passes for 100 multiply-adds instead of {last('wavefronts_per_100')}.
    """,
    """
    {only if this('warps') > last('warps')} And {this('registers')} registers instead of {last('registers')} let
    {this('warps')} warps in, where there were {last('warps')}.
    """,
    idea="for (int k = 0; k < TILE_K; ++k) {",
)

# %% The rung warp_tile
rung(
    "warp_tile",
    """
    {only if 0.95 < this('multiply_add_percent') / last('multiply_add_percent') < 1.05} The machine code is nearly the
    same: {this('multiply_add_percent')} % multiply-adds
    ({last('multiply_add_percent')} % before), {this('registers')} registers ({last('registers')}). What changes is
    which thread computes what.
    """,
    """
    {only if this('conflict_percent') < last('conflict_percent') and this('wavefronts_per_100') < 25} Neighbours now
    read neighbouring 16 bytes or the same ones: bank conflicts fall from {last('conflict_percent')} % of
    the passes of shared memory to {this('conflict_percent')} %, and 100 multiply-adds need {this('wavefronts_per_100')}
    passes instead of {last('wavefronts_per_100')}: shared memory, which can deliver 25 in that time, no longer sets the
    pace.
    """,
    idea="for (int v = 0; v < ROWS / WIDTH; ++v) a[v] = load_vector",
)

# %% The rung pipelined
rung(
    "pipelined",
    """
    The next tile and the next fragments are fetched while these are multiplied.
    """,
    """
    {only if this('warps') < last('warps') and this('others_per_100') < last('others_per_100') and
    this('ceiling_gflops') > last('ceiling_gflops') and this('percent_of_ceiling') > last('percent_of_ceiling')} Where
    nothing is waited for, {this('warps')} warps per multiprocessor are enough ({last('warps')} before), a thread may
    have twice as many sums, and reads {this('shared_bytes_per_multiply_add')} bytes of shared memory per multiply-add.
    Other instructions fall from {last('others_per_100')} for 100 multiply-adds to {this('others_per_100')}: the ceiling
    rises to {this('ceiling_gflops') / 1000} TFLOP/s, and the kernel comes nearer to it, {this('percent_of_ceiling')} %
    where it was {last('percent_of_ceiling')}.
    """,
    """
    {only if this('reused_per_multiply_add') > row('reused_per_multiply_add', kernel='pipelined', walk=80) and
    this('gflops') > row('gflops', kernel='pipelined', walk=80)} The order of the multiply-adds matters too. In
    serpentine order they take {this('reused_per_multiply_add')} operands
    each from what the one before has kept. Row by row it is {row('reused_per_multiply_add', kernel='pipelined',
    walk=80)}, more wait for the register file, and the same loop makes {row('gflops', kernel='pipelined', walk=80) /
    1000} TFLOP/s.
    """,
    idea="for (int k = 0; k < TILE_K; ++k) {",
)

# %% The rung async_copies
rung(
    "async_copies",
    """
    Here both tiles bypass the registers, by cp.async. But cp.async cannot transpose, so A stays as it lies, and the
    elements that meet in a multiply-add land in registers of the same bank.
    """,
    """
    {only if last('kernel') == 'pipelined' and this('gflops') < last('gflops') and this('percent_of_ceiling') <
    last('percent_of_ceiling') and this('reused_per_multiply_add') < last('reused_per_multiply_add')} It loses. The loop
    has as many multiply-adds ({this('multiply_add_percent')} %; {last('multiply_add_percent')}
    % in pipelined), but they keep {this('reused_per_multiply_add')} operands each for the next one, not
    {last('reused_per_multiply_add')}, and the kernel reaches {this('percent_of_ceiling')} % of its ceiling where
    pipelined reaches {last('percent_of_ceiling')}.
    """,
    idea="const auto fetch = ",
)

# %% The rung tma_ring
rung(
    "tma_ring",
    """
    One thread of its own fetches whole tiles by TMA. Its time includes a first launch that transposes A.
    """,
    """
    {only if last('kernel') == 'pipelined' and this('integer') < last('integer')} What does not multiply leaves the
    loop: {this('integer')} instructions for addresses and conditions are left of {last('integer')}, and no barrier
    holds all warps at once. {this('multiply_add_percent')} % are multiply-adds, each takes
    {this('reused_per_multiply_add')} kept operands ({last('reused_per_multiply_add')} in pipelined), and the kernel
    reaches {this('percent_of_ceiling')} % of its ceiling where pipelined reached {last('percent_of_ceiling')}.
    """,
    """
    {only if this('waves') > 1} What is left is partly the end: the last of {ceil_div(this('waves'), 1)} waves of
    blocks does not fill the multiprocessors, so {100 * (1 - this('waves') / ceil_div(this('waves'), 1))} % of all
    places stay empty.
    """,
    """
    {only if this('waves') < 1} The product has too few blocks for the multiprocessors: {100 * (1 - this('waves'))} %
    of all places stay empty.
    """,
    idea="for (int step = 0; step < steps; ++step) {",
)

# %% The rung transposing_ring
rung(
    "transposing_ring",
    """
    The threads beside the one that starts TMA transpose A on its way into the ring, so there is no launch before. The
    loop that multiplies has {this('instructions')} instructions, and {rung('tma_ring', 'instructions')} in tma_ring.
    """,
    """
    {only if this('gflops') < rung('tma_ring', 'gflops')} The launch costs less than these stores if C is wide.
    """,
    """
    At n = p = 8192 and m = 1024 it makes {rate(kernel='transposing_ring', n=8192, p=8192, m=1024) / 1000} TFLOP/s and
    tma_ring {rate(kernel='tma_ring', n=8192, p=8192, m=1024) / 1000}.
    """,
    idea="for (int step = 0; step < steps; ++step) {",
)

# %% The rung stream_k
rung(
    "stream_k",
    """
    As many blocks as there are multiprocessors take tiles in turn, and the last tiles are cut into equal shares.
    """,
    """
    {only if this('waves') < last('waves')} That is {this('waves')} wave instead of {last('waves')}.
    """,
    """
    The loop is that of the ring ({this('multiply_add_percent')} % multiply-adds), and it reaches
    {this('percent_of_ceiling')} % of its ceiling.
    """,
    """
    {only if rate(kernel='stream_k', cube=1024) > 1.05 * rate(kernel='tma_ring', cube=1024)} It decides where there are
    few tiles: at 1024 cubed it makes {rate(kernel='stream_k', cube=1024) / 1000} TFLOP/s, tma_ring
    {rate(kernel='tma_ring', cube=1024) / 1000}, and cuBLAS {rate(kernel='cublas', dtype='float', cube=1024) / 1000}.
    """,
    idea="const auto next_segment = ",
)

# %% Other rungs
for name in rungs().loc[~rungs()["anchor"], "kernel"].unique():
    if name not in told:
        rung(
            name,
            """
            {this('multiply_add_percent')} % of the {this('instructions')} instructions of its loop are multiply-adds,
            which allows {this('ceiling_gflops') / 1000} TFLOP/s; it reaches {this('percent_of_ceiling')} % of that.
            """,
        )

# %% [markdown]
# ### All rungs in numbers
#
# *Others per 100* and *reused* come from the machine code: other instructions for 100 multiply-adds, and operands that
# a multiply-add takes from what the one before has kept. *Wavefronts* are passes of shared memory for 100 multiply-adds
# of a warp; the emulator counts them as the source reads, before the compiler joins reads. *Waves* are the blocks of
# the grid, divided by those that the whole chip holds at a time.

# %% Table: The ladder, float
show_table(rungs(), "rungs", "<b>The ladder, float.</b> What was measured, and what explains it.", evidence)

# %% Table: The ladder at all shapes
task_table(
    "ladder_float",
    "sweep",
    "<b>The ladder at all shapes.</b> Every point, with the parameters that were best on an H200.",
    hide=("bound_ratio", "block", "grid", "dtype", "published_ms", "ratio"),
)

# %% [markdown]
# ### What the loops are made of
#
# nvdisasm takes the machine code of every kernel apart, which needs no GPU. The figure shows the innermost loop with
# the most multiply-adds. On the tensor cores one instruction makes hundreds or thousands of multiply-adds, so a small
# share of such instructions is no ceiling.

# %% Figure: Instructions of the multiply-add loop
if loops().empty:
    display(text("No machine code was read: neither this run nor a recorded one has it."))
else:
    display(
        show_figure(
            figures.instructions(loops(), evidence),
            "<b>Instructions of the multiply-add loop.</b> The fastest choice of each kernel and element type.",
        )
    )

# %% Table: Instructions of the multiply-add loop
if not loops().empty:
    display(
        show_table(
            loops(),
            "instructions",
            "<b>Instructions of the multiply-add loop.</b> Counted in the machine code; rates are at the best shape.",
            evidence,
        )
    )

# %% [markdown]
# ## The climb in double
#
# The vector units take a double multiply-add in every second cycle, so other instructions find free slots, and the
# units themselves are the ceiling. The way past it leads through the tensor cores, which have instructions for double
# too (DMMA).

# %% Figure: The ladder, double
double = "ladder_double"
if not rungs(double).empty:
    display(
        show_figure(
            figures.rungs(rungs(double), evidence),
            "<b>The ladder, double.</b> pipelined multiplies on the CUDA cores, dmma and dmma_pipelined on the tensor "
            "cores. An upright mark is what a rung's own loop allows.",
        )
    )

# %% Text: top, double
if not rungs(double).empty:
    display(text(findings.top(evidence, rungs(double))))

# %% Text: the rungs of the ladder, double
if not rungs(double).empty:
    for name, sentence in {
        "pipelined": """
            The rung of the float ladder, on the vector units: {this('percent_of_ceiling')} % of what multiply-adds
            alone reach there.
            """,
        "dmma": """
            The tensor cores fed straight from tiles in shared memory. {this('multiply_add_instructions')} of the
            loop's {this('instructions')} instructions are {this('multiply_add')}, and everything else is in their way.
            """,
        "dmma_pipelined": """
            The copies run ahead by cp.async, and the fragments are read 16 bytes at a time:
            {this('others_per_100') / 100} other instructions for each {this('multiply_add')} instead of
            {rung('dmma', 'others_per_100') / 100}. The clock held {this('sm_clock_mhz')} MHz, and
            {rung('cublas', 'sm_clock_mhz')} MHz with cuBLAS.
            """,
    }.items():
        said = findings.rung(evidence, climb(double), rungs(double), name, sentence, dtype="double")
        if said:
            display(text(f"`{name}`: {said}"))

# %% Figures: Tiles of the kernels for double
if not rungs(double).empty:
    show_tiles_of(
        {
            "dmma": (
                "four warps share a tile; each instruction takes 16 × 8 of C, or 8 × 8.",
                "for (int c = 0; c < 4; ++c) {",
            ),
            "dmma_pipelined": (
                "while the tensor cores work, the next fragments of B come from shared memory, and the next tile from "
                "global memory.",
                "load_b(b[1 - now]",
            ),
        }
    )

# %% Table: The ladder, double
task_table("ladder_double", "sweep", "<b>The ladder, double.</b> Every point.", hide=("bound_ratio", "block", "grid"))

# %% [markdown]
# ## Short numbers on the tensor cores
#
# bfloat16, half and TF32: `mma_sync` keeps fragments in registers; with `wgmma` the tensor cores read shared memory,
# which TMA fills; `warp_specialised` gives fetching a warp group of its own; and in `clusters` the blocks stay, and
# store their results while the next tiles arrive.

# %% Figures: Tiles of the kernels for short numbers
show_tiles_of(
    {
        "mma_sync": (
            """each warp holds fragments of A and B in its registers, and fetches the next set while the tensor cores
            multiply this one.""",
            "if (set == SETS - 1) {",
        ),
        "wgmma": (
            """one instruction of four warps multiplies straight from shared memory. While it runs, one thread asks TMA
            for a later tile.""",
            "begin_products();",
        ),
        "warp_specialised": (
            """a warp group of its own does nothing but fetch. It waits until a stage is empty, and the groups that
            multiply wait until it is full.""",
            "for (int step = 0; step < steps; ++step) {",
        ),
        "clusters": (
            """the blocks stay for tile after tile. In a cluster of two, each fetches half of B for both.""",
            "for (int panel = 0; panel < PANELS; ++panel) {",
        ),
    }
)

# %% Figure: Short numbers
task_figure(
    "ladder_short",
    "<b>Short numbers.</b> Rates for each type; a larger mark is a larger product.",
)

# %% Table: Short numbers
task_table("ladder_short", "sweep", "<b>Short numbers.</b> Every point, beside cuBLAS.", hide=("block", "grid"))

# %% [markdown]
# ## Past the peak: floats made of short numbers
#
# A product of floats stops at the rate of the float units, in every kernel above and in cuBLAS. But the same chip also
# has tensor cores, which multiply numbers of two bytes many times as fast. They are too short for a float: a
# half has 11 significant bits and a bfloat16 has 8, where a float has 24.
#
# **Why splitting works.** A float is the sum of short numbers. Round it to a half: what is lost is itself a number, and
# the nearest half to that holds the next 11 bits. So a = high + low, but for about the last two bits, and
#
# a b = high high + high low + low high + low low.
#
# The last term is as small as what was lost anyway. The other three are products of halves, which a tensor core makes
# exactly. Three products in place of one leave a third of what the tensor cores gain. A half has few exponents,
# so before the split 64 numbers of a row or column are multiplied by a power of two that brings the largest near the
# top; that is exact, and is taken out again afterwards. A bfloat16 has all exponents of a float but fewer bits: three
# parts, six products, half the rate, no limit of range.
#
# **Why the tensor core's own sum is not enough.** A tensor core adds 16 products at a time to its sum. It keeps 25 bits
# below the largest of them and cuts off what is further down, always towards zero. One cut does little harm. But the
# cuts all point the same way, so after p products the error has grown with p, where that of a float sum, rounded now up
# and now down, grows with the square root of p. `three_tf32` splits well and leaves the sum to the tensor core. The
# others take the sum out after every 64 of k and add it to a float of their own.
#
# **What it costs.** Three or six times the products, a pass over A and B that splits them, twice or three times the
# bytes in shared memory, and as many registers again for the second sum, so that tiles are smaller. All of it is in the
# times below.

# %% Figure: The ladder past the peak
show_figure(
    figures.past_the_peak(ladder(), evidence),
    "<b>The ladder past the peak.</b> Rates of products of floats; hatched kernels make them of short numbers. "
    "Everything is counted, splitting too.",
)

# %% Text: the tensor cores alone
text(
    findings.found(
        evidence.of("bandwidth"),
        """
        On {platform} the tensor cores alone make {roof('tensor_rate', 'half') / 1000} TFLOP/s of halves,
        {roof('tensor_rate', 'half') / roof('multiply_add_rate')} times what the float units make of floats.
        """,
    )
)

# %% Text: past the peak
text(findings.past_the_peak(ladder(), evidence))

# %% Figures: Tiles of the kernels past the peak
show_tiles_of(
    {
        "three_tf32": (
            """three products in place of one, all in the tensor core's own sum.""",
            "for (int i = 0; i < PRODUCTS; ++i) {",
        ),
        "float_from_bf16": (
            """a first launch writes three bfloat16 parts of each float; the second multiplies six pairs of them.""",
            "for (int part = 0; part < 3; ++part) {",
        ),
        "float_from_half": (
            """a first launch scales each float and writes two halves of it; the second multiplies three pairs.""",
            "const float x = value.x * scale",
        ),
    }
)

# %% Table: Float results
task_table("float_accuracy", "sweep", "<b>Float results.</b> All with the whole time of a product, splitting included.")

# %% Figure: Float results
task_figure("float_accuracy", "<b>Float results.</b> Rates at each shape, splitting included.")

# %% Figure: Accuracy against rate
show_figure(
    figures.accuracy_and_rate(ladder(), evidence),
    "<b>Accuracy against rate.</b> Every kernel in every type at the largest square product; cuBLAS is grey. The best "
    "place is below on the right.",
)

# %% [markdown]
# ### As accurate as SGEMM?
#
# The study's rounding bound cannot answer that: it grows with p, and plain TF32 passes it. So the accuracy gate looks
# at cuBLAS's SGEMM on the same operands, both against float64: a kernel passes if neither its error in the Frobenius
# norm nor its worst element, relative to the sum of the magnitudes there, is larger. One kind of operands could flatter
# a scheme, so there are seven. A kernel that meets operands out of its range fills the rows and columns concerned with
# NaN, which the gate calls *refuses*: no wrong product is returned. Where no GPU measured, a model predicts the errors
# from a few rows and columns: it computes what a tensor core computes, bit for bit as an H200 does.

# %% Text: the accuracy gate
if "accuracy_gate" in tasks:
    kinds = {name.replace("_", " "): words for name, words in accuracy.MEANING.items()}
    display(text("\n".join(f"- *{name}*: {words}" for name, words in kinds.items())))
    display(text(findings.gate(evidence)))

# %% Figure: The accuracy gate
task_figure(
    "accuracy_gate",
    "<b>The accuracy gate.</b> Errors as multiples of SGEMM's, kernel by kernel; right of the line is a failure.",
)

# %% Table: The accuracy gate
task_table("accuracy_gate", "accuracy", "<b>The accuracy gate.</b> Errors beside those of SGEMM; smaller is better.")

# %% [markdown]
# ## What others would write, and what it costs in energy
#
# Triton compiles a matrix product of 30 lines of Python, tiles and tensor cores included; its `tf32x3` makes a float of
# three TF32 products with one accumulator. The energy is that of the whole board, by NVML's counter, over at least two
# seconds of the same product again and again.

# %% Figure: Triton
task_figure("triton", "<b>Triton.</b> Rates over its usual space.")

# %% Table: Triton
task_table(
    "triton", "sweep", "<b>Triton.</b> Its matmul over its usual space of tiles, warps and stages.", hide=("block",)
)

# %% Figure: Energy
task_figure(
    "energy", "<b>Energy.</b> 10⁹ operations per joule, and the rate at which they were made; libraries in grey."
)

# %% Text: energy
text(findings.energy(evidence, published))

# %% Table: Energy
task_table("energy", "energy", "<b>Energy.</b> Joules per product and operations per joule, beside the rate.")

# %% [markdown]
# ## The kernels side by side
#
# Here each kernel, with its best choice of block, tile or NTB, is compared with the chip. The *vector peak* is the rate
# that the multiply-add units reach at the highest clock. cuBLAS may exceed it in double: on data-centre GPUs since the
# A100, it uses FP64 tensor cores, which have about twice that rate, as `dmma` and `dmma_pipelined` do.

# %% Figure: Against the peak
show_figure(
    figures.peak(ladder(), evidence),
    "<b>Against the peak.</b> The best rate of each kernel at the largest square shape; cuBLAS in grey.",
)

# %% Figure: Speed-up, float
show_figure(
    figures.speedup(ladder(), evidence),
    "<b>Speed-up, float.</b> The best of each kernel over the best naive kernel, shape by shape.",
)

# %% Table: The ladder
show_table(
    ladder()[ladder()["speedup_over_naive"].notna()],
    "ladder",
    "<b>The ladder.</b> The best of each kernel and type, at the shapes for which the naive kernel was timed too.",
    evidence,
)

# %% [markdown]
# ### Is the best choice clear?
#
# A best block, tile or NTB means something only if the difference to the runner-up is larger than the scatter of the
# measurement. The last column says whether the ranges of the two do not overlap: from the fastest to the slowest of
# several runs, or else between the quartiles of one.

# %% Table: Best choices
show_table(
    tables.choices(evidence, *tasks),
    "choices",
    "<b>Best choices.</b> The fastest choice of each sweep, and the second fastest.",
    evidence,
)

# %% Table: Variants
if not evidence.facts["tune"].empty:
    display(
        text(
            "### Choosing the parameters\n\n"
            "The tuner tries every variant of a kernel's space: it verifies each, times it in a few runs, and measures "
            "the best few like every other point. If the line of a kernel is flat at its left end, the choice hardly "
            "matters; if it falls at once, a choice that was made for another machine or shape costs much."
        )
    )
    display(
        show_table(
            tables.tuning(evidence, published),
            "tuning",
            "<b>Variants.</b> How many were tried, how many are as good as the best, and what the best gains over the "
            "choice that the registry had.",
            evidence,
        )
    )

# %% Figure: Variants by rank
if not evidence.facts["tune"].empty:
    display(
        show_figure(
            figures.tuning(evidence, published),
            "<b>Variants by rank.</b> How flat is the optimum? Rates in % of the best: in colour at the largest "
            "product, in grey at the others. The dashed line is at 95 %; a cross is a variant that spills registers.",
        )
    )

# %% Text: tuned
if not evidence.facts["tune"].empty:
    display(text(findings.tuned(tables.tuning(evidence, published), evidence)))

# %% [markdown]
# ## Every shape, every size

# %% [markdown]
# ### Shapes that are not multiples of a tile
#
# Real matrices end in the middle of a tile. The kernels fill the part of a tile beyond the edge with zeros, so the
# product is right for every shape, down to a single element. Source a showed n = p = m = 1100. The other shapes are the
# hard cases: primes, single rows and columns, one less and one more than a tile. *Error / bound* is the largest error
# divided by the largest error that rounding can explain; it must stay below 1, and integers must be exact. The time of
# a tiny product is the time of a launch.

# %% Figure: Ragged shapes
task_figure("task4", "<b>Ragged shapes.</b> Rates for each type, on a logarithmic axis.")

# %% Table: Ragged and degenerate shapes
task_table(
    "task4",
    "sweep",
    "<b>Ragged and degenerate shapes.</b> Tile 16, three tiles per block.",
    hide=("block", "gflops", *evidence.parameters),
)

# %% [markdown]
# ### Ragged edges against multiples of the tile
#
# What does it cost to accept any shape? The tiled kernel runs on a shape with three ragged edges, and on the next
# multiples of 32. There it is compared with the kernel of source e, which does not test the edges and is wrong for
# every other shape.

# %% Figure: Rectangles
task_figure("rectangular", "<b>Rectangles.</b> Rates of the tiled kernels for each shape.")

# %% Text: rectangular
text(
    findings.found(
        evidence.of("rectangular"),
        """
        On {platform}, float with tiles of 32, the kernel that accepts any shape takes {time(kernel='tiled',
        dtype='float', tile=32, n=3008) / time(kernel='tiled_exact', dtype='float', tile=32)} times as long on multiples
        of 32 as the kernel without tests. The ragged shape, with {(3001 * 2003 * 4021) / (3008 * 2016 * 4032)} times
        the work, takes {time(kernel='tiled', dtype='float', tile=32, n=3001) / time(kernel='tiled', dtype='float',
        tile=32, n=3008)} times as long as the multiples.
        """,
    )
)

# %% Text: rectangular
text(
    findings.found(
        evidence.of("rectangular"),
        """
        A test inside the innermost loop, as source d warns of, is another matter: on {platform} the kernel with it
        takes {time(kernel='tiled_inner_test', dtype='float', tile=32, n=3008) / time(kernel='tiled', dtype='float',
        tile=32, n=3008)} times as long on the multiples of 32 as the one that fills its tiles with zeros.
        """,
    )
)

# %% Table: Rectangles
task_table("rectangular", "sweep", "<b>Rectangles.</b> With and without tests at the edges.", hide=("block",))

# %% [markdown]
# ### The largest product
#
# Three square matrices of n² floats need 12 n² bytes, so memory limits n. In theory the limit follows from the memory
# that the device reports; in practice the driver and the context keep some of it. So the probe searches by bisection
# for the largest n whose three matrices can really be allocated. The study then times one product of that size and
# verifies random rows of C. If that product would take longer than the study's budget, the study times a smaller one.
# From n = 46,341 on, n² no longer fits into a 32-bit integer, so the kernels use 64-bit indices.

# %% Figure: Maximum size
task_figure(
    "task1c",
    "<b>Maximum size.</b> The largest n in theory, the largest that was allocated, and the n that was timed.",
)

# %% Text: largest products
text(findings.largest_products(evidence, published))

# %% Text: largest rates
text(findings.largest_rates(evidence))

# %% Table: The largest product
task_table(
    "task1c",
    "maximum_size",
    "<b>The largest product.</b> Three float matrices, beside source a's Table 3.",
)

# %% [markdown]
# ## The roofs of the device
#
# How fast are memory, the caches and shared memory really, and how many multiply-adds do the units really do? Small
# kernels that do nothing else measure each. A kernel with 0.25 FLOP per byte, or with 4, cannot exceed the resulting
# rates if every byte comes from memory.

# %% Figure: Roofs
task_figure("bandwidth", "<b>Roofs.</b> Measured rates as a percentage of those in the datasheet.")

# %% Text: bandwidth
text(
    findings.found(
        evidence.of("bandwidth", "task1a"),
        """
        On {platform} memory delivers {roof('memory_bandwidth')} GB/s, and the float units reach
        {roof('multiply_add_rate')} GFLOP/s. At 0.25 FLOP per byte that memory rate allows
        {0.25 * roof('memory_bandwidth')} GFLOP/s, and at 4 FLOP per byte {4 * roof('memory_bandwidth')}. The best naive
        kernel reaches {rate(kernel='naive', dtype='float', cube=8192)} GFLOP/s, because most of its loads never go to
        memory.
        """,
    )
)

# %% Text: bandwidth
text(
    findings.found(
        evidence.of("bandwidth"),
        """
        The L2 cache of {platform} delivers {roof('l2_bandwidth')} GB/s, {roof('l2_bandwidth') /
        roof('memory_bandwidth')} times what memory does; the first caches together {roof('l1_bandwidth')} GB/s.
        """,
    )
)

# %% Text: bandwidth
text(
    findings.found(
        evidence.of("bandwidth"),
        """
        Multiply-adds on the CUDA cores of {platform} make {roof('multiply_add_rate', 'double')} GFLOP/s in double, and
        {roof('multiply_add_rate', 'half')} in half, two per instruction; its tensor cores make {roof('tensor_rate',
        'double')} in double and {roof('tensor_rate', 'half')} in half.
        """,
    )
)

# %% Text: missing roofs
text(findings.missing_roofs(evidence.of("bandwidth")))

# %% Table: Roofs
task_table("bandwidth", "bandwidth", "<b>Roofs.</b> Measured here, beside the datasheet.")

# %% Table: Limited by
if not limits().empty:
    display(
        text(
            "## What limits each kernel\n\n"
            "Each kernel asks for so much per multiply-add: issue slots, passes of shared memory, look-ups and bytes "
            "of the first cache, and from memory every matrix once, or what ncu counted at full size. Times its rate, "
            "that is a share of what the device can deliver. The largest share is what limits it, if it is above half; "
            "otherwise the kernel waits."
        )
    )
    display(
        show_table(
            limits(),
            "limited_by",
            "<b>Limited by.</b> The best choice of each kernel at the largest product.",
            evidence,
        )
    )

# %% [markdown]
# ## What the kernels ask of memory

# %% Table: Memory traffic
if evidence.facts["traffic"].empty:
    display(text("This run did not trace any kernel."))
else:
    display(
        text(
            "The emulator runs the kernels thread by thread and counts what a profiler counts on a GPU: the requests "
            "of each warp, the 32-byte sectors that they touch, and the conflicts in shared memory. A warp that reads "
            "32 neighbouring floats needs 4 sectors; a warp that reads from 32 rows needs 32."
        )
    )
    display(
        show_table(
            tables.traffic(evidence),
            "traffic",
            "<b>Memory traffic.</b> Exact counts; each kernel at its largest traced shape. Faults are those "
            "of all shapes at which the kernel ran under every schedule; a blank is not a zero.",
        )
    )

# %% Figure: Roofline, float
if not evidence.facts["traffic"].empty:
    display(
        show_figure(
            figures.roofline(evidence),
            "<b>Roofline, float.</b> Each kernel at its counted intensity and measured rate; a name stands beside the "
            "fastest point of a kernel if there is room. The bytes are those that "
            "move between a multiprocessor and its caches, so a kernel may lie above the memory's roof if the caches "
            "serve its data.",
        )
    )

# %% Table: Kernels that the emulator does not run
without = tables.not_emulated(evidence)
if not without.empty:
    display(show_table(without, "not_emulated", "<b>Kernels that the emulator does not run.</b> Each with the reason."))

# %% Text: profiled
profiled = functools.cache(lambda: tables.profiled(evidence))
if not profiled().empty:
    display(text(findings.profiled(profiled(), evidence)))

# %% Table: Counters at full size
if not profiled().empty:
    display(
        show_table(
            profiled(),
            "profiled",
            "<b>Counters at full size.</b> What ncu counted of one launch, whose caches were empty before; the time is "
            "that of the profiled run.",
        )
    )

# %% Table: Counted against hardware
both_counted = not evidence.facts["counters"].empty and not evidence.facts["traffic"].empty
if both_counted:
    display(
        show_table(
            tables.agreement(evidence),
            "agreement",
            "<b>Counted against hardware.</b> The emulator's counts beside those of Nsight Compute, launch by launch.",
        )
    )

# %% Table: Where they differ
if both_counted:
    counted = tables.counted_against_hardware(evidence)
    display(
        show_table(
            counted[counted["counted"] != counted["hardware"]],
            "counted",
            "<b>Where they differ.</b> The compiler for the GPU joins neighbouring loads from shared memory into wider "
            "loads, which the source does not show; it does not join loads from global memory. In some runs, the "
            "wavefronts and conflicts of shared memory include accesses that had to wait for others.",
        )
    )

# %% [markdown]
# ## Other questions of the sources

# %% [markdown]
# ### Integers
#
# Source b multiplies int32 matrices of 2000 × 2000 with blocks of 16 × 16 and compares them exactly. Its operands are
# all 1, so every element of C is 2000, even if a kernel mixes up rows and columns. Here the operands are random.

# %% Figure: Integers
task_figure("integers", "<b>Integers.</b> Rates at 2000 × 2000, on a logarithmic axis.")

# %% Text: integers
text(
    findings.found(
        evidence.of("integers"),
        """
        On {platform} the naive kernel takes {time(kernel='naive')} ms and the tiled kernel {time(kernel='tiled')} ms:
        tiling makes it {time(kernel='naive') / time(kernel='tiled')} times as fast. One core needs {time(kernel='ijk')}
        ms.
        """,
    )
)

# %% Table: Integers
task_table(
    "integers", "sweep", "<b>Integers.</b> The CPU loop in the order i, j, k, the naive kernel and the tiled kernel."
)

# %% [markdown]
# ### A stopwatch around everything
#
# Source b finds that tiling is 17 times faster, with a stopwatch around allocation, copies and kernel. Its naive kernel
# ran first, and the first call of a process also creates the CUDA context. This study repeats the measurement in both
# orders, each time in a fresh process, and also measures the kernel alone.

# %% Figure: Where the time of a call goes
task_figure(
    "cold_start",
    "<b>Where the time of a call goes.</b> The first call also pays for the context, whichever kernel it is.",
)

# %% Text: cold start
text(
    findings.found(
        evidence.of("cold_start"),
        """
        On {platform} the first call takes {call('naive', 1)} ms if it is the naive one; creating the context takes
        {call('naive', 1, 'context')} ms of that. If naive runs first and tiled second, tiling looks {call('naive', 1) /
        call('tiled', 2)} times as fast; if tiled runs first and naive second, {call('naive', 2) / call('tiled', 1)}
        times. The kernels alone differ by a factor of {time(kernel='naive') / time(kernel='tiled')}.
        """,
    )
)

# %% Table: Whole calls
task_table("cold_start", "cold_start", "<b>Whole calls.</b> Medians over fresh processes, step by step.")

# %% [markdown]
# ### Launches that are refused
#
# A block has at most 1024 threads and a limited amount of shared memory. CUDA refuses a launch beyond these limits: the
# kernel never runs, and C stays as it was. In source b, the function sees the error and returns before it copies C
# back; but its main function does not check for the error, so it compares the products with host memory that was never
# written.

# %% Figure: Launch limits
task_figure("launch_limits", "<b>Launch limits.</b> Each launch as a percentage of what the device allows per block.")

# %% Text: launch limits
text(
    findings.found(
        evidence.of("launch_limits"),
        """
        On {platform} a block of 33 × 33 threads is refused with {launch('error', block_x=33)}, whose text is
        "{launch('error_text', block_x=33)}".
        """,
        evidence.everyone,
    )
)

# %% Table: Launch limits
task_table(
    "launch_limits",
    "launch_limits",
    "<b>Launch limits.</b> Which launches ran and which were refused, with the name of the error.",
)

# %% [markdown]
# ## The CPU loop
#
# The baseline is three nested loops in the order k, i, j on one core. The innermost loop walks along a row of B and a
# row of C, so the processor reads memory in order. It is a fair loop, but not a fast one. NumPy's BLAS works on blocks
# that fit the caches and uses every core; it shows what the same processor can do.

# %% Figure: The CPU
task_figure(
    "cpu",
    "<b>The CPU.</b> Rate of the kij loop (one thread) and of NumPy's BLAS at each shape; the axis is logarithmic.",
)

# %% Table: CPU times
task_table(
    "cpu",
    "cpu",
    "<b>CPU times.</b> The loop in float, beside the host of source a (which does not name the CPU's model).",
)

# %% [markdown]
# ### Orders of the CPU loop
#
# The three loops can be nested in six orders. Each order adds the same products in the same order of k, so the result
# is the same. What differs is how the innermost loop moves through memory: along rows (ikj, kij), along one row and
# down one column (ijk, jik), or down two columns (jki, kji).

# %% Figure: Loop orders
task_figure("loop_orders", "<b>Loop orders.</b> Rates of products that fit into the cache and of products that do not.")

# %% Text: loop orders
text(
    findings.found(
        evidence.of("loop_orders"),
        """
        On {platform}, in float and beyond the cache, ijk takes {time(kernel='ijk', dtype='float', cube=800) /
        time(kernel='ikj', dtype='float', cube=800)} times as long as ikj, and jki takes {time(kernel='jki',
        dtype='float', cube=800) / time(kernel='ikj', dtype='float', cube=800)} times as long. At 512, ijk takes
        {time(kernel='ijk', dtype='float', cube=512) / time(kernel='ijk', dtype='float', cube=500)} times as long as at
        500, for {(512 / 500) ** 3} times the work.
        """,
        evidence.everyone,
    )
)

# %% Table: Loop orders
task_table("loop_orders", "cpu", "<b>Loop orders.</b> One thread; the blocked loop works on blocks of 16.")

# %% Table: Cache lines
fetched = functools.cache(lambda: tables.cache_lines(evidence))
if not evidence.facts["cache_lines"].empty:
    display(
        text(
            "Why? The same loops also ran on elements that report each of their reads and writes to a model of a "
            "core's two caches. The model has lines of 64 B and replaces the line that was least recently used. A walk "
            "along a row fetches one line for 16 floats. A walk down a column fetches one line for each float, unless "
            "the lines of the whole column stay in the cache until the loop reads the next column."
        )
    )
    display(
        show_table(
            fetched(),
            "cache_lines",
            "<b>Cache lines.</b> The time of a multiply-add, and the lines that it fetches according to the model.",
            evidence,
        )
    )

# %% Figure: Cache lines
if not evidence.facts["cache_lines"].empty:
    display(
        show_figure(
            figures.cache_lines(evidence),
            "<b>Cache lines.</b> Time over lines fetched. Loops that fetch equally many lines differ by what the model "
            "leaves out, such as vector instructions and lines fetched ahead.",
        )
    )

# %% Text: cache lines
if not evidence.facts["cache_lines"].empty:
    display(text(findings.lines_explain(fetched(), evidence)))

# %% Further tasks
known = "cpu task1a task1b task1c task2a task2b task3 task4 integers cold_start coalescing launch_limits loop_orders"
known += " rectangular dynamic_tile matrix_struct bandwidth ladder_float ladder_double ladder_short float_accuracy"
known += " accuracy_gate energy triton overhead"
for name in [name for name in tasks if name not in known.split() and evidence.method(name) != "tune"]:
    title = notes.plain(tasks[name]["title"])
    display(text(f"## {title}\n\nThe task `{name}` of the config."))
    with piece(f"Table: {title}"):
        display(task_table(name, evidence.method(name), f"<b>{title}.</b> Everything that the task found."))
    with piece(f"Figure: {title}"):
        display(task_figure(name, f"<b>{title}.</b>"))

# %% Machines compared
both = evidence
if len(evidence.gpus) == 1 and not evidence.gpus[0].recorded:
    both = data.load(folders, recorded=recorded, beside=True)
differing = functools.cache(lambda: tables.platforms(both))
if len(both.gpus) > 1:
    display(
        text(
            "## Machines compared\n\nWhat carries over from one chip to another? The same points on both, each with "
            "its best time. Two times differ if their ranges lie apart: those of several runs, or else their quartiles."
        )
    )
    best = ladder() if both is evidence else tables.ladder(both, published)
    display(
        show_figure(
            figures.platforms(best, both),
            "<b>Two machines, float.</b> The best rate of each kernel on each machine, at the largest product of both.",
        )
    )

# %% Figure: The ladder on both
if both is not evidence and len(both.gpus) > 1:
    beside = tables.rungs(tables.climb(both, tables.CLIMB), both)
    caption = "<b>The ladder on both.</b> Every rung beside the limits of its own machine."
    display(show_figure(figures.rungs(beside, both), caption))

# %% Text: platforms
if len(both.gpus) > 1:
    display(text(findings.platforms(differing(), both)))

# %% Table: What changed
if len(both.gpus) > 1:
    display(
        show_table(
            differing()[differing()["changed"]],
            "platforms",
            "<b>What changed.</b> The points that differ by more than the spread, the largest differences first.",
            both,
        )
    )

# %% Text: conclusion
concluded = findings.conclusion(evidence, ladder(), limits(), verdicts())
if concluded:
    display(text(f"## Conclusion\n\n{concluded}"))

# %% [markdown]
# ## Appendix

# %% [markdown]
# ### How to read the tables
#
# C is n × m, A is n × p and B is p × m; shapes are written (n, m, p), as source a writes
# them. A time is the median of isolated runs in milliseconds; the *spread* is the interquartile range divided by the
# median. The *ratio* is the published time divided by the measured one: 10× means ten times faster here. Every GPU
# table includes cuBLAS, NVIDIA's own library, in the same precision (TF32 off) for comparison; the tables of the CPU
# loop include NumPy's BLAS. A mark † means that the point's standard deviation is above the study's limit, so its last
# digits mean nothing. A dash stands where there is no figure. A point that did not run keeps its row;
# [What failed and why](#What-failed-and-why) gives the cause.

# %% [markdown]
# ### How a verdict is reached
#
# The table lists what the five sources claim, and tests each claim on the measured values. The condition in
# `report/claims.yaml` decides whether a claim holds. The range of a measured value is what a bootstrap draws from the
# runs of its points, or follows from the quartiles of their times if each ran once; if the verdict would change within
# that range, the table says so. A claim is about the machine that it names:
# if it fails on another machine, that is not an error of its source. If a source's own figures do not agree with each
# other, the note below the claim says so.

# %% [markdown]
# ### Checks and failures

# %% Text: summary
text(findings.summary(evidence, ladder(), verified(), failed()))

# %% Text: clocks
text(findings.clocks(evidence))

# %% Text: between runs
text(findings.between_runs(evidence))

# %% [markdown]
# ### What failed and why

# %% Table: Points that are not ok
show_table(
    failed(),
    "failures",
    "<b>Points that are not ok.</b> A refused launch or an exceeded budget is a result too. If a task asks for "
    "refusals, they are in that task's own table.",
    evidence,
    hide=() if (failed()["points"] > 1).any() else ("points",),
)

# %% [markdown]
# ### Verification
#
# Operands are seeded random numbers, and the output is first filled with NaN. A product passes if every element differs
# from the float64 reference by at most γ |A||B|, with γ = p u / (1 − p u); rounding cannot exceed this bound. Integers
# must be equal. For half, bfloat16 and tf32, which a GPU multiplies exactly and sums in float, u is that of the sums,
# and the bound also covers what the kernel rounds: its operands, if it rounds them, and the result that it stores. The
# study verifies a timed product again after its last run. If computing the whole reference is too expensive, the study
# checks whole random rows.

# %% Table: Verified points
show_table(verified(), "verification", "<b>Verified points.</b> For each machine, kernel and type.", evidence)

# %% [markdown]
# ### Where the numbers come from

# %% Table: Provenance
show_table(tables.provenance(evidence), None, "<b>Provenance.</b> One column per machine.")

# %% Table: Cards of one model
compared = tables.cards(evidence)
if not compared.empty:
    display(
        show_table(
            compared,
            "cards",
            "<b>Cards of one model.</b> The rate of each at the points that all have measured, against their median.",
            evidence,
        )
    )
    display(text(findings.cards(compared, evidence)))

# %% Table: How long it took
if not evidence.facts["sweep"].empty:
    display(
        show_table(
            tables.durations(evidence),
            "durations",
            "<b>How long it took.</b> Each task in seconds, and the part of it during which NVBench timed kernels.",
            evidence,
        )
    )

# %% Text: configuration
text(findings.configuration(evidence))

# %% [markdown]
# **Sources.** (a) R. Pellumbi, *CPSC 524 Assignment 4: CUDA Matrix Multiplication*, 2023, on an RTX 2080 Ti: the tables
# above. (b) *Speed up matrix multiplication 2*, int kernels on a V100. (c) *Reordering loops*, which derives a tiled
# kernel from loop orders. (d) Notes on memory types and tiling, with the figures of an H100. (e) Notes on the CUDA
# guide's kernels that use a matrix struct. Every figure that this study takes from these sources is in
# `report/published/`, with its place in the source.
