"""The climb from the naive kernel to the limit of the chip: what its instructions allow each rung, what it reaches.

A scheduler issues one instruction per cycle. So the share of multiply-adds among the instructions that a kernel
executes is a ceiling of its rate, in units of the rate that multiply-adds alone reach (`multiply_add_rate` of the task
`bandwidth`). ncu counts what was executed; where it did not, the share is that of the loop's machine code, as if each
of its branches ran.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence, time_range
from tilewise.explain.profiles import PER_MULTIPLY_ADD, beside_hardware, beside_schedulers, waits_of
from tilewise.explain.timings import by_kernel, cubes, describe, timed_rows
from tilewise.explain.traffic import beside_traffic
from tilewise.study.columns import COLUMNS
from tilewise.study.device import SCHEDULERS, WARP

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

#: The roof of shared memory: 10^9 passes per second.
SHARED_PASSES = ("shared_wavefronts_16_bytes", "float")


@functools.lru_cache(maxsize=8)
def climb(evidence: Evidence, task: str) -> pd.DataFrame:
    """Every timed row of a task with what its machine code, its launch, ncu and its memory traffic say.

    To the columns of `instructions` come wavefronts_per_100 (of shared memory, per 100 multiply-adds of a warp) and
    conflict_percent (bank conflicts as a share of all wavefronts), counted by ncu or else by the emulator, and how the
    schedulers fared (issue_percent and the stalls), which is empty unless the row is as fast as the launch counted.
    """
    return explained(evidence.select_tasks(task).gpu, evidence)


def explained(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The timed ones of some rows with what is known of their kernels."""
    rows = _on_device(describe(timed_rows(rows).reset_index(drop=True), evidence), evidence)
    counted = evidence.facts["instructions"].drop(columns=["registers", "build_sha256"])
    rows = rows.merge(counted, how="left", on=INSTANCE)
    rows = _beside_ceiling(beside_hardware(rows, evidence), evidence)
    rows = beside_traffic(beside_schedulers(rows, evidence), evidence)
    return rows.assign(
        wavefronts_per_100=rows["hardware_wavefronts_per_100"].fillna(rows["wavefronts_per_100"]),
        conflict_percent=rows["hardware_conflict_percent"].fillna(rows["conflict_percent"]),
    )


@functools.lru_cache(maxsize=4)
def instructions(evidence: Evidence) -> pd.DataFrame:
    """The multiply-add loop of every instance whose machine code was read, with its rate and its ceiling.

    The rate is the best of the instance at any shape. `ceiling_gflops` is known for instances that multiply on the CUDA
    cores, on a device whose rate of multiply-adds was measured.
    """
    rows = _on_device(describe(timed_rows(evidence.gpu), evidence), evidence)
    best = rows.sort_values("gflops", kind="stable").drop_duplicates(["platform", *INSTANCE], keep="last")
    best = beside_hardware(best, evidence)
    shown = ["shape", "choice", "gflops", "warps", *PER_MULTIPLY_ADD]
    best = best[["platform", *INSTANCE, *shown]]
    return _beside_ceiling(evidence.facts["instructions"].merge(best, how="left", on=INSTANCE), evidence)


def loops(evidence: Evidence) -> pd.DataFrame:
    """The fastest instance of each kernel and element type in `instructions`; the first if none was timed."""
    table = instructions(evidence)
    of_a_kind = table.groupby(["kernel", "dtype"])["gflops"]
    order = table[table["gflops"].notna() | (of_a_kind.transform("count") == 0)]
    order = order.sort_values("gflops", ascending=False, na_position="last", kind="stable")
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


def _beside_ceiling(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds what follows from the counts of a loop and of ncu, and `ceiling_gflops` and percent_of_ceiling."""
    adds = table["multiply_add_instructions"].astype("float64")
    read = {
        f"{where}_bytes_per_multiply_add": sum(size * table[f"{where}_loads_{bits}"] for bits, size in WIDTHS.items())
        for where in ("shared", "global")
    }
    # One instruction of the tensor cores is many multiply-adds.
    on_cuda_cores = (table["multiply_add"].fillna("") != "") & ~table["multiply_add"].fillna("").str.contains("MMA")
    share = (1 / table["executed_each"]).where(on_cuda_cores).fillna(table["multiply_add_share"].astype("float64"))
    accesses = sum(table[name] for name in ACCESSES).astype("float64") / adds
    accesses = table["requests_each"].where(on_cuda_cores).fillna(accesses)
    table = table.assign(
        multiply_add_percent=100 * table["multiply_add_share"],
        executed_percent=100 * share,
        others_per_100=100 * (1 / share - 1),
        accesses_per_100=100 * accesses,
        **{name: count.astype("float64") / adds for name, count in read.items()},
        reused_per_multiply_add=table["reused_operands"].astype("float64") / adds,
    )
    ceilings = [_ceiling(row, evidence) for row in table.to_dict("records")]
    table = table.assign(ceiling_gflops=pd.Series(ceilings, index=table.index, dtype="float64"))
    return table.assign(percent_of_ceiling=100 * table["gflops"] / table["ceiling_gflops"])


def _ceiling(row: Mapping[str, Any], evidence: Evidence) -> float | None:
    """The highest rate in GFLOP/s that a kernel's instructions allow on the CUDA cores; None if that is not known.

    Units that take a multiply-add in every second cycle, such as Hopper's for double, leave the other slots free.
    """
    gpu = next((gpu.device.gpu for gpu in evidence.gpus if gpu.name == row["platform"]), None)
    measured = evidence.roofs(row["platform"]).get(("multiply_add_rate", row["dtype"]))
    peak = gpu and (gpu["peak_gflops"] or {}).get(row["dtype"])
    on_cuda_cores = isinstance(row["multiply_add"], str) and row["multiply_add"] and "MMA" not in row["multiply_add"]
    if not gpu or not peak or measured is None or not on_cuda_cores:
        return None
    slots = 2e-3 * gpu["sms"] * SCHEDULERS * WARP * gpu["sm_clock_mhz"]
    return min(1.0, row["executed_percent"] / 100 * slots / peak) * measured


def rungs(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The kernels of `climb` rows in the registry's order, each with its best choice; the library comes last.

    They are compared at the cube at which most kernels were timed, the largest if there are several. Adds
    percent_of_anchor, and `before`: the fastest kernel of those before it, to whose rate `gain` is the ratio; the two
    are `as_fast` if the ranges of their times overlap. Adds what arithmetic allows (bound_gflops, bound_by, bound_gain)
    and what the warps wait for most (top_wait, top_wait_each).
    """
    square, found = cubes(rows), []
    for _, part in square.groupby(["platform", "dtype"], sort=False):
        if part["anchor"].all():
            continue
        kernels = part.groupby("n")["kernel"].nunique()
        part = part[part["n"] == kernels[kernels == kernels.max()].index.max()]
        part = part.sort_values("gflops", kind="stable").drop_duplicates("kernel", keep="last")
        found.append(by_kernel(part, evidence))
    parts = [_beside_bounds(_beside_steps(part), evidence) for part in found or [square.head(0)]]
    return pd.concat(parts, ignore_index=True)


def _beside_bounds(rungs: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds bound_gflops, bound_by, bound_gain, top_wait and top_wait_each to the rungs of a platform and type."""
    rows = [_bound(row, evidence) + _top_wait(row) for row in rungs.to_dict("records")]
    names = ["bound_gflops", "bound_by", "top_wait", "top_wait_each"]
    types = {name: "str" if name in ("bound_by", "top_wait") else "float64" for name in names}
    rungs = rungs.join(pd.DataFrame(rows, columns=names, index=rungs.index).astype(types))
    before = rungs["before"].map(dict(zip(rungs["kernel"], rungs["bound_gflops"]))).astype("float64")
    return rungs.assign(bound_gain=rungs["bound_gflops"] / before)


def _bound(row: Mapping[str, Any], evidence: Evidence) -> tuple[float, str]:
    """The lowest of the rates in GFLOP/s that the counts of a rung on the CUDA cores allow, and which count sets it."""
    gpu = evidence.device(row["platform"]).gpu
    clock = gpu["sm_clock_mhz"] if pd.isna(row["sm_clock_mhz"]) else row["sm_clock_mhz"]
    passes = evidence.roofs(row["platform"]).get(SHARED_PASSES, math.nan)
    if pd.isna(row["ceiling_gflops"]) or pd.isna(row["executed_each"]):  # a loop's machine code alone may mislead
        return math.nan, ""
    # A pass serves the 32 threads of a warp, each of which makes two operations per multiply-add.
    served = row["hardware_wavefronts_per_100"] / 100 / (2 * WARP * passes)
    # The pipe of a multiprocessor takes one request per cycle at best, at the clock of the row.
    taken = row["accesses_per_100"] / 100 / (2 * WARP * gpu["sms"] * clock / 1000)
    needs = {"requests": taken, "passes of shared memory": served}
    limits = {name: 1 / need for name, need in needs.items() if need > 0} | {"instructions": row["ceiling_gflops"]}
    by = min(limits, key=lambda name: limits[name])
    return limits[by], by


def _top_wait(row: Mapping[str, Any]) -> tuple[str, float]:
    """What most warps wait for, in words, and how many do per instruction issued; nothing if ncu did not see it."""
    waits = waits_of(row)
    if not waits:
        return "", math.nan
    top, each = waits[0]
    return COLUMNS[f"stall_{top}"].meaning.removeprefix("warps that wait "), each


def _beside_steps(part: pd.DataFrame) -> pd.DataFrame:
    """Adds percent_of_anchor, before, gain and as_fast to the rungs of one platform and element type."""
    own = part[~part["anchor"]]
    before = own["kernel"].where(own["gflops"] > own["gflops"].cummax().shift(fill_value=0)).ffill().shift()
    fastest = own.set_index("kernel").reindex(before).set_axis(own.index)
    (low, high), (fastest_low, fastest_high) = time_range(own), time_range(fastest)
    as_fast = ((low <= fastest_high) & (high >= fastest_low)).fillna(False).where(before.notna(), False)
    return part.assign(
        percent_of_anchor=100 * part["gflops"] / part.loc[part["anchor"], "gflops"].max(),
        before=before.reindex(part.index).fillna("").astype("str"),
        gain=(own["gflops"] / fastest["gflops"]).reindex(part.index).astype("float64"),
        as_fast=as_fast.reindex(part.index, fill_value=False).astype("boolean"),
    )
