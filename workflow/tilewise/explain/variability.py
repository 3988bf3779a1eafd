"""Variation between runs and between cards, and clock frequencies."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.bottleneck import LOWERED
from tilewise.explain.timings import describe, with_words
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status

#: A product that takes less is short, in ms: its time depends on when the host launches it.
SHORT = 0.01
#: A point differs from card to card if its times are further apart, in %.
CARDS_DIFFER = 3
#: So far, in ms, the times of a launch on two machines may be apart (docs/comparing.md).
LAUNCH_MS = 0.0025
#: The columns that only `_why` needs; `with_words` would show them as parameters.
_CYCLES = ["low_cycles", "high_cycles"]


def between_runs(evidence: Evidence) -> pd.DataFrame:
    """Variation between the runs of a point, each in a separate process: one row per GPU, shares in percent.

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


def cards_differ(evidence: Evidence) -> pd.DataFrame:
    """The points whose times differ by more than CARDS_DIFFER from card to card, the largest differences first.

    low_ms, high_ms, low_mhz and high_mhz are the extremes of time and clock, `why` is the reason if one is known.
    """
    found = _by_point(evidence)
    found = found[found["cards_percent"] > CARDS_DIFFER]
    found = found.assign(why=[_why(row) for row in found.to_dict("records")])
    found = with_words(found.drop(columns=_CYCLES), evidence)
    return found.sort_values("cards_percent", ascending=False, kind="stable", ignore_index=True)


def with_cards(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with cards_percent, the variation of their point's times in these tasks between cards.

    It is empty where one card measured a point.
    """
    found = _by_point(evidence.select_tasks(*rows["task"].unique()))
    keys = _keys(evidence)
    known = found.loc[found["card_count"] > 1, [*keys, "cards_percent"]]
    return rows.merge(known, how="left", on=keys).set_axis(rows.index)


def _keys(evidence: Evidence) -> list[str]:
    return ["platform", "kernel", "dtype", *SHAPE, *evidence.choice]


def _by_point(evidence: Evidence) -> pd.DataFrame:
    """One row per point that a known card measured, in any task: how many cards did, and the extremes of the times."""
    keys = _keys(evidence)
    wanted = [*keys, "gpu_uuid", "time_ms", "sm_clock_mhz"]
    own = evidence.gpu[(evidence.gpu["status"] == Status.OK) & (evidence.gpu["gpu_uuid"].fillna("") != "")]
    others = [gpu.cards.loc[gpu.cards["task"].isin(own["task"])] for gpu in evidence.gpus if len(gpu.cards)]
    rows = columns.set_types(pd.concat([own, *others], ignore_index=True).reindex(columns=wanted))
    groups = rows.assign(cycles=rows["time_ms"] * rows["sm_clock_mhz"]).groupby(keys, sort=False, dropna=False)
    found = groups.agg(
        card_count=("gpu_uuid", "nunique"),
        low_ms=("time_ms", "min"),
        high_ms=("time_ms", "max"),
        low_mhz=("sm_clock_mhz", "min"),
        high_mhz=("sm_clock_mhz", "max"),
        low_cycles=("cycles", "min"),
        high_cycles=("cycles", "max"),
    ).reset_index()
    return found.assign(cards_percent=(100 * (found["high_ms"] / found["low_ms"] - 1)).where(found["card_count"] > 1))


def _why(row: Mapping[str, Any]) -> str:
    if row["high_ms"] - row["low_ms"] <= LAUNCH_MS:
        return "no more apart than launches on two machines"
    # The product of time and clock is the number of cycles: the clock explains what that leaves of the difference.
    if row["high_cycles"] / row["low_cycles"] - 1 <= row["cards_percent"] / 200:
        return f"the clock: {row['low_mhz']:.0f} to {row['high_mhz']:.0f} MHz"
    return ""


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
    """Whether the lowest clock of each row was below the chip's highest."""
    highest = rows["platform"].map({gpu.name: gpu.device.gpu["sm_clock_mhz"] for gpu in evidence.gpus})
    least = rows["sm_clock_min_mhz"].fillna(rows["sm_clock_mhz"])
    return (least < LOWERED * highest.astype("float64")).fillna(False).astype(bool)
