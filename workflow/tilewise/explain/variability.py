"""Checks of each machine's points: what was verified, variation between runs and between cards, and clocks."""

import pandas as pd

from tilewise.evidence import Evidence, Platform
from tilewise.explain import provenance
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import LOWERED, describe, with_words
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status

#: A product that takes less is short, in ms: its time depends on when the host launches it.
SHORT = 0.01
#: A point differs from card to card if its times are further apart, in %.
CARDS_DIFFER = 3
#: The largest usual difference, in ms, between the launch times of two machines (docs/comparing.md).
LAUNCH_MS = 0.0025


def checks(evidence: Evidence) -> pd.DataFrame:
    """What was verified on each machine, and what may have disturbed its times: one column per machine."""
    points = provenance.every_point(evidence)
    found = {evidence.labels[each.name]: _checks(each, points, evidence) for each in evidence.gpus_first}
    return pd.DataFrame(found).rename_axis("fact").reset_index()


def _checks(platform: Platform, points: pd.DataFrame, evidence: Evidence) -> dict[str, str]:
    own = points[points["platform"] == platform.name]
    right = own[own["status"] == Status.OK]
    found = {"products verified": f"{len(right):,} of {len(own):,}"}
    if right["bound_ratio"].notna().any():
        worst = right[right["bound_ratio"] == right["bound_ratio"].max()]
        single = ", where every element is a single product, rounded once" * bool((worst["p"] == 1).all())
        found["largest error"] = f"{rounded(100 * worst['bound_ratio'].iloc[0], '%')} % of its rounding bound{single}"
    causes = own["status"].value_counts().drop(Status.OK, errors="ignore")
    found["other points"] = ", ".join(f"{count:,} {status}" for status, count in causes.items()) or "none"
    if platform.has_gpu:
        own = own[evidence.on_gpu(own["kernel"])]
        found |= _of_runs(own, evidence) | _of_clocks(own[own["sm_clock_mhz"].notna()], platform, evidence)
        found["other users of the GPU at the start"] = "; ".join(platform.device.gpu.get("busy") or []) or "none known"
    known = platform.measurements["alone"].dropna().astype(bool)
    if not known.all():
        found["measured beside other work"] = f"{(~known).sum():,} of {len(known):,} points; see the column alone"
    return found


def _of_runs(own: pd.DataFrame, evidence: Evidence) -> dict[str, str]:
    """How well the runs of a point agree, each in a separate process."""
    own = own[own["runs"] > 1]
    if own.empty:
        return {}
    apart = 100 * (own["run_high_ms"] - own["run_low_ms"]) / own["time_ms"]
    shares = (f"{rounded(100 * (apart <= most).mean(), '%')} % within {most} %" for most in (1, 2))
    said = f"{', '.join(shares)} of {len(own):,} points; the farthest apart are {rounded(apart.max(), '%')} %"
    beyond = own[apart > 2]
    short = beyond["time_ms"] < SHORT
    lowered = (~short & _throttled(beyond, evidence)).sum()
    if short.any() or lowered:
        said += f"; of those beyond 2 %, {short.sum():,} take less than 10 µs and {lowered:,} ran at a lowered clock"
    return {"runs that agree": said}


def _of_clocks(own: pd.DataFrame, platform: Platform, evidence: Evidence) -> dict[str, str]:
    """At how many points the clock was below the highest, to which percentages of a peak refer, and the lowest."""
    slow, highest = describe(own[_throttled(own, evidence)], evidence), platform.device.gpu["sm_clock_mhz"]
    said = f"{len(slow):,} of {len(own):,} points below {100 * LOWERED:.0f} % of {highest:,} MHz"
    if len(slow):
        row = slow.sort_values("sm_clock_mhz", kind="stable").iloc[0]
        choice = f" ({row['choice']})" if row["choice"] else ""
        which = f"{row['kernel']}{choice} in {row['dtype']} at {row['shape']}"
        said += f"; the lowest median, {rounded(row['sm_clock_mhz'], 'MHz')} MHz, is that of {which}"
    return {"lowered clocks": said} if len(own) else {}


def cards_differ(evidence: Evidence) -> pd.DataFrame:
    """The points whose times differ by more than CARDS_DIFFER from card to card, the largest differences first.

    low_ms, high_ms, low_mhz and high_mhz are the extremes of time and clock, `why` is the reason if one is known.
    """
    found = _by_point(evidence)
    found = found[found["cards_percent"] > CARDS_DIFFER]
    words = [f"the clock: {low:.0f} to {high:.0f} MHz" for low, high in zip(found["low_mhz"], found["high_mhz"])]
    # The product of time and clock is the number of cycles: the clock explains what that leaves of the difference.
    explained = found["high_cycles"] / found["low_cycles"] - 1 <= found["cards_percent"] / 200
    launches = found["high_ms"] - found["low_ms"] <= LAUNCH_MS
    why = (
        pd.Series(words, found.index, "str")
        .where(explained, "")
        .mask(launches, "no more apart than launches on two machines")
    )
    found = with_words(found.drop(columns=["low_cycles", "high_cycles"]).assign(why=why), evidence)
    return found.sort_values("cards_percent", ascending=False, kind="stable", ignore_index=True)


def with_cards(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with cards_percent, the variation of their point's times in these tasks between cards.

    It is empty where one card measured a point.
    """
    found = _by_point(evidence.select_tasks(*rows["task"].unique()))
    keys = _keys(evidence)
    known = found.loc[found["card_count"] > 1, [*keys, "cards_percent"]]
    return rows.merge(known, how="left", on=keys).set_axis(rows.index)


def on_all_cards(own: pd.DataFrame, evidence: Evidence, wanted: list[str]) -> pd.DataFrame:
    """The columns `wanted` of some rows of GPUs, followed by those of further cards in the same tasks."""
    others = [gpu.cards.loc[gpu.cards["task"].isin(own["task"])] for gpu in evidence.gpus if len(gpu.cards)]
    return columns.set_types(pd.concat([own, *others], ignore_index=True).reindex(columns=wanted))


def _keys(evidence: Evidence) -> list[str]:
    return ["platform", "kernel", "dtype", *SHAPE, *evidence.choice]


def _by_point(evidence: Evidence) -> pd.DataFrame:
    """One row per point that a known card measured, in any task: how many cards did, and the extremes of the times."""
    keys = _keys(evidence)
    own = evidence.gpu[(evidence.gpu["status"] == Status.OK) & (evidence.gpu["gpu_uuid"].fillna("") != "")]
    rows = on_all_cards(own, evidence, [*keys, "gpu_uuid", "time_ms", "sm_clock_mhz"])
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


def _throttled(rows: pd.DataFrame, evidence: Evidence) -> pd.Series:
    """Whether the lowest clock of each row was below the chip's highest."""
    highest = rows["platform"].map({gpu.name: gpu.device.gpu["sm_clock_mhz"] for gpu in evidence.gpus})
    least = rows["sm_clock_min_mhz"].fillna(rows["sm_clock_mhz"])
    return (least < LOWERED * highest.astype("float64")).fillna(False).astype(bool)
