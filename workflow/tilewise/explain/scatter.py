"""How far the runs of a point are apart, and at which clocks the chip made them."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.bottleneck import LOWERED
from tilewise.explain.timings import describe
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status

#: A product that takes less is short, in ms: its time depends on when the host asks for it.
SHORT = 0.01


def between_runs(evidence: Evidence) -> pd.DataFrame:
    """How far the runs of a point, each in a process of its own, are apart: one row per GPU, shares in percent.

    within_1_percent and within_2_percent are the shares of the points whose runs agree so well, apart_percent is the
    largest distance. Of the points that are `beyond` 2 %, `short` take less than 10 µs, `throttled` are others that ran
    at a lowered clock.
    """
    rows = evidence.gpu[evidence.gpu["runs"] > 1]
    apart = 100 * (rows["run_high_ms"] - rows["run_low_ms"]) / rows["time_ms"]
    beyond, short = apart > 2, rows["time_ms"] < SHORT
    rows = rows.assign(
        apart_percent=apart,
        within_1_percent=100.0 * (apart <= 1),
        within_2_percent=100.0 * (apart <= 2),
        beyond=beyond,
        short=beyond & short,
        throttled=beyond & ~short & _throttled(rows, evidence),
    )
    return (
        rows.groupby("platform", sort=False)
        .agg(
            points=("runs", "size"),
            runs=("runs", "max"),
            within_1_percent=("within_1_percent", "mean"),
            within_2_percent=("within_2_percent", "mean"),
            apart_percent=("apart_percent", "max"),
            beyond=("beyond", "sum"),
            short=("short", "sum"),
            throttled=("throttled", "sum"),
        )
        .reset_index()
    )


def between_cards(evidence: Evidence) -> pd.DataFrame:
    """How far the times of a point are apart that tasks measured on several cards: one row per GPU and element type.

    `points` counts them, apart_percent is the largest distance, kernel and shape are those of its point.
    """
    rows = evidence.gpu[(evidence.gpu["status"] == Status.OK) & (evidence.gpu["gpu_uuid"].fillna("") != "")]
    keys = ["platform", "kernel", "dtype", *SHAPE, *evidence.choice]
    points = describe(rows, evidence).groupby(keys, sort=False, dropna=False)
    found = points.agg(
        shape=("shape", "first"), cards=("gpu_uuid", "nunique"), low=("time_ms", "min"), high=("time_ms", "max")
    )
    found = found[found["cards"] > 1].reset_index()
    found = found.assign(apart_percent=100 * (found["high"] / found["low"] - 1))
    found = found.sort_values("apart_percent", ascending=False, kind="stable")
    kinds = found.groupby(["platform", "dtype"])["cards"]
    return found.assign(points=kinds.transform("size")).drop_duplicates(["platform", "dtype"]).reset_index(drop=True)


def clocks(evidence: Evidence) -> pd.DataFrame:
    """At which clocks each GPU ran: of how many `points` one is known, and how many ran at a lowered one.

    `lowered` counts those below limit_percent of the highest clock; kernel, choice, dtype, shape and sm_clock_mhz are
    of the point with the lowest.
    """
    known = evidence.gpu[evidence.gpu["sm_clock_mhz"].notna()]
    slow = describe(known[_throttled(known, evidence)], evidence).sort_values("sm_clock_mhz", kind="stable")
    least = slow.drop_duplicates("platform")[["platform", "kernel", "choice", "dtype", "shape", "sm_clock_mhz"]]
    found = known.groupby("platform", sort=False).size().rename("points").reset_index()
    lowered = found["platform"].map(slow["platform"].value_counts()).fillna(0).astype(int)
    return found.assign(lowered=lowered, limit_percent=100 * LOWERED).merge(least, how="left", on="platform")


def _throttled(rows: pd.DataFrame, evidence: Evidence) -> pd.Series:
    """Of each row, whether its lowest clock was below the chip's highest."""
    highest = rows["platform"].map({gpu.name: gpu.device.gpu["sm_clock_mhz"] for gpu in evidence.gpus})
    least = rows["sm_clock_min_mhz"].fillna(rows["sm_clock_mhz"])
    return (least < LOWERED * highest.astype("float64")).fillna(False).astype(bool)
