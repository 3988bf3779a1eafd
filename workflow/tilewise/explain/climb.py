"""The climb from the naive kernel to the limit of the chip: each kernel's counts, bound, rate and tiles.

ncu counts what a kernel executed; where it did not, the counts are those of the machine code of the loop, as if each of
its branches ran.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence, time_range
from tilewise.explain.bottleneck import BOUNDS, beside_bounds
from tilewise.explain.counts import PER_MULTIPLY_ADD, beside_counters, beside_traffic, waits_of
from tilewise.explain.timings import by_kernel, cubes, describe, fastest_first, largest_square, swept_tasks, timed_rows
from tilewise.study.columns import COLUMNS
from tilewise.study.device import WARP

#: The task whose kernels climb from naive to the limit of the chip.
CLIMB = "ladder_float"
#: The columns that name an instance whose machine code was read.
INSTANCE = ["kernel", "dtype", "instance", "architecture"]
#: What a load brings per thread, by column, in bytes.
WIDTHS = {"128": 16, "64": 8, "32": 4}
#: The kinds of instructions that the memory pipe of a multiprocessor takes, one request of a warp per cycle at best.
ACCESSES = [
    *(f"{where}_loads_{bits}" for where in ("shared", "global") for bits in WIDTHS),
    *("matrix_loads", "shared_stores", "async_copies", "global_stores"),
]
#: What decides the sizes of a launch's tiles.
TILING = ("covers_n", "covers_m", "covers_k", "threads", "block_x", "block_y", "ntb", "thread_n", "thread_m")
#: A warp of the kernels whose threads compute thread_n x thread_m lies over C with so many threads side by side.
WARP_COLUMNS = 4


@functools.lru_cache(maxsize=8)
def climb(evidence: Evidence, task: str) -> pd.DataFrame:
    """Every timed row of a task with what is known of its kernel, as `explained` adds it."""
    return explained(evidence.select_tasks(task).gpu, evidence)


def explained(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The timed ones of some rows with what machine code, launch, ncu and emulator say of their kernels.

    Adds the counts of `facts["instructions"]` and those of `_beside_counts`; wavefronts_per_100 (of shared memory, per
    100 multiply-adds of a warp) and conflict_percent (bank conflicts as a share of all wavefronts), counted by ncu or
    else by the emulator; how the schedulers fared (issue_percent and the stalls), which is empty unless the row is as
    fast as the launch counted; and the BOUNDS that follow.
    """
    rows = _on_device(describe(timed_rows(rows).reset_index(drop=True), evidence), evidence)
    counted = evidence.facts["instructions"].drop(columns=["registers", "build_sha256"])
    rows = beside_counters(rows.merge(counted, how="left", on=INSTANCE), evidence)
    rows = beside_traffic(_beside_counts(rows), evidence)
    rows = rows.assign(
        wavefronts_per_100=rows["hardware_wavefronts_per_100"].fillna(rows["wavefronts_per_100"]),
        conflict_percent=rows["hardware_conflict_percent"].fillna(rows["conflict_percent"]),
    )
    return beside_bounds(rows, evidence)


def limited_by(evidence: Evidence) -> pd.DataFrame:
    """Bottlenecks of the best choice of each kernel and element type at the largest square product of each GPU."""
    rows = largest_square(evidence.select_tasks(*swept_tasks(evidence)).gpu)
    rows = explained(fastest_first(rows).drop_duplicates(["platform", "kernel", "dtype"]), evidence)
    return rows.sort_values(["platform", "dtype", "gflops"], kind="stable", ignore_index=True)


def instructions(evidence: Evidence) -> pd.DataFrame:
    """The multiply-add loop of the fastest instance of each kernel and element type, with its best rate at any shape.

    For an untimed kernel, it is the first instance with known machine code.
    """
    key = ["platform", *INSTANCE]
    best = explained(evidence.gpu, evidence).sort_values("gflops", kind="stable").drop_duplicates(key, keep="last")
    best = best[[*key, "shape", "choice", "gflops", "warps", *PER_MULTIPLY_ADD, *BOUNDS]]
    table = _beside_counts(evidence.facts["instructions"].merge(best, how="left", on=INSTANCE))
    timed = table.groupby(["kernel", "dtype"])["gflops"].transform("count") > 0
    order = table[table["gflops"].notna() | ~timed].sort_values("gflops", ascending=False, kind="stable")
    return table.loc[order.drop_duplicates(["platform", "kernel", "dtype"]).index.sort_values()]


def _on_device(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Timed rows with how their launches lie on the device, from the recorded occupancy.

    Adds warps (that a multiprocessor holds) and waves (blocks of the grid per blocks that the device holds). They are
    empty for a library and for a kernel that is not written in CUDA C++.
    """
    key = ["platform", "kernel", "dtype", *evidence.choice]
    held = rows[key].merge(evidence.facts["occupancy"], how="left", on=key).set_axis(rows.index)["active_blocks"]
    sms = rows["platform"].map({gpu.name: gpu.device.gpu["sms"] for gpu in evidence.gpus})
    return rows.assign(
        warps=(held * -(-rows["threads"] // WARP)).astype("float64"),
        waves=(rows["blocks"] / (held.where(held > 0) * sms)).astype("float64"),
    )


def _beside_counts(table: pd.DataFrame) -> pd.DataFrame:
    """Adds the counts of a loop per multiply-add; instructions and requests are ncu's where the CUDA cores multiply."""
    adds = table["multiply_add_instructions"].astype("float64")
    read = {
        f"{where}_bytes_per_multiply_add": sum(size * table[f"{where}_loads_{bits}"] for bits, size in WIDTHS.items())
        for where in ("shared", "global")
    }
    # One instruction of the tensor cores is many multiply-adds.
    on_cuda_cores = (table["multiply_add"].fillna("") != "") & ~table["multiply_add"].fillna("").str.contains("MMA")
    share = (1 / table["executed_each"]).where(on_cuda_cores).fillna(table["multiply_add_share"].astype("float64"))
    accesses = sum(table[name] for name in ACCESSES).astype("float64") / adds
    return table.assign(
        multiply_add_percent=100 * table["multiply_add_share"],
        executed_percent=100 * share,
        others_per_100=100 * (1 / share - 1),
        accesses_per_100=100 * table["requests_each"].where(on_cuda_cores).fillna(accesses),
        **{name: count.astype("float64") / adds for name, count in read.items()},
        reused_per_multiply_add=table["reused_operands"].astype("float64") / adds,
    )


def rungs(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The kernels of `climb` rows in the registry's order, each with its best choice; the library comes last.

    They are compared at the cube at which most kernels were timed, the largest if there are several. Adds
    percent_of_anchor, and `before`: the fastest kernel of those before it, to whose rate `gain` is the ratio, and to
    whose bound `bound_gain`; the two are `as_fast` if the ranges of their times overlap. Adds what the warps wait for
    most (top_wait, top_wait_each), which is empty if ncu did not see it.
    """
    square, found = cubes(rows), []
    for _, part in square.groupby(["platform", "dtype"], sort=False):
        if part["anchor"].all():
            continue
        kernels = part.groupby("n")["kernel"].nunique()
        part = part[part["n"] == kernels[kernels == kernels.max()].index.max()]
        part = part.sort_values("gflops", kind="stable").drop_duplicates("kernel", keep="last")
        found.append(by_kernel(part, evidence))
    table = pd.concat([_beside_steps(part) for part in found or [square.head(0)]], ignore_index=True)
    waits = [(waits_of(row) or [("", math.nan)])[0] for row in table.to_dict("records")]
    words = [COLUMNS[name].meaning.removeprefix("warps that wait ") if name else "" for name, _ in waits]
    return table.assign(
        top_wait=pd.Series(words, dtype="str"), top_wait_each=pd.Series([each for _, each in waits], dtype="float64")
    )


def _beside_steps(part: pd.DataFrame) -> pd.DataFrame:
    """Adds percent_of_anchor, before, gain, bound_gain and as_fast to the rungs of one platform and element type."""
    own = part[~part["anchor"]]
    before = own["kernel"].where(own["gflops"] > own["gflops"].cummax().shift(fill_value=0)).ffill().shift()
    fastest = own.set_index("kernel").reindex(before).set_axis(own.index)
    (low, high), (fastest_low, fastest_high) = time_range(own), time_range(fastest)
    as_fast = ((low <= fastest_high) & (high >= fastest_low)).fillna(False).where(before.notna(), False)
    return part.assign(
        percent_of_anchor=100 * part["gflops"] / part.loc[part["anchor"], "gflops"].max(),
        before=before.reindex(part.index).fillna("").astype("str"),
        gain=(own["gflops"] / fastest["gflops"]).reindex(part.index).astype("float64"),
        bound_gain=(own["bound_gflops"] / fastest["bound_gflops"]).reindex(part.index).astype("float64"),
        as_fast=as_fast.reindex(part.index, fill_value=False).astype("boolean"),
    )


def tile_sizes(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tile sizes of a row of measurements.csv in elements, (rows, columns) of C; None if it covers no tiles of C.

    They are those of its `block`, `warp` and `thread`, None where the launch does not say them. `depth` is how many
    steps of k a block loads at a time, and `repeats` how many parts of C a thread has, side by side and a tile apart.
    If the elements of a thread are `parted`, they are no neighbours.
    """
    known = {name: int(row[name]) for name in TILING if not pd.isna(row.get(name))}
    if not {"covers_n", "covers_m"} <= set(known):
        return None
    rows, columns, repeats, x = known["covers_n"], known["covers_m"], known.get("ntb", 1), known["block_x"]
    thread, across, parted = (0, 0), min(WARP, x), "thread_n" in known
    if parted:
        thread, across = (known["thread_n"], known["thread_m"]), WARP_COLUMNS
    elif known["block_y"] > 1:  # threadIdx.x runs along a row, as everywhere here
        thread = (rows // known["block_y"], columns // repeats // x)
    sizes = {"threads": known["threads"], "block": (rows, columns), "repeats": repeats, "depth": known.get("covers_k")}
    # Others have threads that only fetch, or results that wait elsewhere.
    if math.prod(thread) * repeats * known["threads"] != rows * columns:
        return sizes | {"thread": None, "warp": None, "parted": False}
    warp = (WARP // across * thread[0], across * thread[1])
    return sizes | {"thread": thread, "warp": warp, "parted": parted}
