"""Kernels that were timed in turns: ratios to the library's rate, alone and under load."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.provenance import on_all_cards
from tilewise.explain.timings import CASE, LOWERED, by_shape, describe, fastest_first
from tilewise.study.accuracy import ROUNDING
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status


def duels(evidence: Evidence) -> pd.DataFrame:
    """A row per kernel, product and task that was timed in turns, its best choice; the largest product first.

    Choices that round differently have a row each: a product of fewer moduli is another product.

    Adds `sustained_gflops`, and `power_limited`: whether the clock under load is below LOWERED times that of isolated
    launches, empty for kernels that were too short to be loaded. Where several cards timed a point in turns, adds their
    number, `card_count`, and the extremes of their ratios, `cards_low` to `cards_sustained_high`. Under load, too, the
    library's best is the faster of its calls: a search that found the best alone may have found a slower one.
    """
    rows = evidence.gpu[evidence.gpu["turns"].notna() & (evidence.gpu["status"] == Status.OK)]
    key = ["platform", "task", "kernel", "dtype", *SHAPE, *({ROUNDING} & {*rows})]
    rows = fastest_first(rows).drop_duplicates(key).sort_index()
    smaller = -rows[SHAPE].astype("float64").prod(axis="columns")
    table = describe(rows.loc[smaller.sort_values(kind="stable").index], evidence)
    slower = table["sustained_mhz"] < LOWERED * table["sm_clock_mhz"]
    other = table["sustained_vs_default"] < table["sustained_vs_best"]
    for end in ("", "_low", "_high"):
        best = table[f"sustained_vs_best{end}"]
        table[f"sustained_vs_best{end}"] = best.mask(other, table[f"sustained_vs_default{end}"])
    table = table.assign(
        sustained_gflops=table["gflops"] * table["time_ms"] / table["sustained_ms"],
        power_limited=slower.astype("boolean").where(table["sustained_mhz"].notna()),
    )
    key = ["task", *CASE, *evidence.choice]
    rows = on_all_cards(table, evidence, [*key, "gpu_uuid", "vs_best", "sustained_vs_best"]).dropna(subset="vs_best")
    over_cards = rows.groupby(key, sort=False, dropna=False).agg(
        card_count=("gpu_uuid", "nunique"),
        cards_low=("vs_best", "min"),
        cards_high=("vs_best", "max"),
        cards_sustained_low=("sustained_vs_best", "min"),
        cards_sustained_high=("sustained_vs_best", "max"),
    )
    return by_shape(table.merge(over_cards[over_cards["card_count"] > 1].reset_index(), how="left", on=key))
