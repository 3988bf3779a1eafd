"""Effects of the block shape and of double precision on naive kernels."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.bottleneck import HALF
from tilewise.explain.climb import climb


def block_shapes(evidence: Evidence) -> pd.DataFrame:
    """The naive kernel in float at its largest product, block by block.

    looked_up is the lines of 128 bytes that the first cache looks up per multiply-add of a warp, used_percent the share
    of its cycles that they take at the measured rate. `cause` is look-ups if a block needs more lines than another,
    other if its look-ups are no bottleneck, or else empty.
    """
    rows = climb(evidence, "task1a")
    rows = rows[(rows["kernel"] == "naive") & rows["lines_per_100"].notna()]
    rows = timings.largest(rows) if len(rows) else rows
    sms = rows["platform"].map({gpu.name: gpu.device.gpu["sms"] for gpu in evidence.gpus})
    looked_up = rows["lines_per_100"] / 100
    used = rows["gflops"] / 64 * looked_up / (sms * rows["sm_clock_mhz"] / 1000)
    more = looked_up > 1.01 * looked_up.groupby(rows["platform"]).transform("min")
    cause = more.map({True: "look-ups", False: ""}).where(more | (used >= HALF), "other")
    rows = rows.assign(looked_up=looked_up, used_percent=100 * used, cause=cause)
    return rows.sort_values("block_x", kind="stable")


def double_cost(evidence: Evidence) -> pd.DataFrame:
    """How much longer double takes than float, in percent, with the naive kernel at its largest square product and the
    best block of each type: one row per platform."""
    rows = evidence.select_tasks("task1a", "task1b").gpu
    rows = timings.describe(timings.cubes(rows[rows["kernel"] == "naive"]), evidence)
    best = timings.best(timings.largest_square(rows))
    times = best.pivot_table(index="platform", columns="dtype", values="time_ms", sort=False)
    times = times.reindex(columns=["float", "double"]).dropna()
    return (100 * (times["double"] / times["float"] - 1)).rename("longer_percent").reset_index()
