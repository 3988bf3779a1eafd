"""Effects of the block shape and of double precision on naive kernels, and products with too few blocks."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.bottleneck import HALF
from tilewise.explain.climb import climb
from tilewise.study.status import Status


def block_shapes(evidence: Evidence) -> pd.DataFrame:
    """The naive kernel in float at its largest product, block by block.

    looked_up is the lines of 128 bytes that the first cache looks up per multiply-add of a warp, used_percent the share
    of its cycles that they take at the measured rate. `cause` is look-ups if a block needs more lines than another,
    other if its look-ups are no bottleneck, or else empty. Of the last, ncu's counts at the same size are added.
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
    found = evidence.facts["counters"]
    found = found[(found["kernel"] == "naive") & (found["dtype"] == "float") & found["profiled_ns"].notna()]
    at = ["platform", "block_x", "block_y", "n", "p", "m"]  # counts at another size explain nothing here
    seen = ["l1_hit_percent", "l2_hit_percent", "l2_percent", "dram_percent"]
    return rows.merge(found[[*at, *seen]].drop_duplicates(at), how="left", on=at).sort_values("block_x", kind="stable")


def double_cost(evidence: Evidence) -> pd.DataFrame:
    """The cost of double: ratios of the naive kernel's times at its largest square product, with the best block of each
    type.

    One row of all blocks, and one of those that source a `tried`, if they have another result.
    """
    published = evidence.published
    tried = published[(published["source"] == "a") & (published["kernel"] == "naive") & published["block_x"].notna()]
    rows = evidence.select_tasks("task1a", "task1b").gpu
    rows = timings.describe(timings.cubes(rows), evidence)
    found: list[dict] = []
    for platform, own in rows[rows["kernel"] == "naive"].groupby("platform", sort=False):
        costs = [_double_over_float(part) for part in (own, own[own["block_x"].isin(tried["block_x"])])]
        if costs[0]:
            found.append({"platform": platform, "tried": False} | costs[0])
            found += [{"platform": platform, "tried": True} | costs[1]] if costs[1] not in ({}, costs[0]) else []
    return pd.DataFrame(found, columns=["platform", "tried", "longer_percent", "blocks"])


def _double_over_float(rows: pd.DataFrame) -> dict:
    best = timings.best(rows[rows["n"] == rows["n"].max()])
    best = best[(best["status"] == Status.OK) & best["time_ms"].notna()].set_index("dtype")
    if not {"float", "double"} <= set(best.index):
        return {}
    one, two = best.loc["float"], best.loc["double"]
    blocks = f"{one['choice']} for both" if one["choice"] == two["choice"] else f"{one['choice']} and {two['choice']}"
    return {"longer_percent": 100 * (two["time_ms"] / one["time_ms"] - 1), "blocks": blocks}


def few_blocks(evidence: Evidence) -> pd.DataFrame:
    """The best and the last number of tiles per block at the smallest square product in float, if the last leaves fewer
    blocks than the chip has multiprocessors: two rows per platform, with their `blocks`."""
    rows = evidence.select_tasks("task3").gpu
    rows = rows[(rows["kernel"] == "multi_tile") & (rows["dtype"] == "float") & (rows["status"] == Status.OK)]
    rows = timings.describe(timings.cubes(rows[rows["tile"] == 32]), evidence).assign(
        blocks=rows["grid_x"] * rows["grid_y"]
    )
    found = [rows.head(0)]
    for gpu in evidence.gpus:
        own = rows[(rows["platform"] == gpu.name) & rows["gflops"].notna()]
        own = own[own["n"] == own["n"].min()].sort_values("ntb", kind="stable")
        few = (own["blocks"] < gpu.device.gpu["sms"]).fillna(False)  # a recorded run may lack the grids
        if len(own) > 1 and few.iloc[-1]:
            pair = pd.concat([own.loc[[own["gflops"].idxmax()]], own.tail(1)])
            found.append(pair if pair["ntb"].nunique() == 2 else pair.head(0))
    return pd.concat(found)
