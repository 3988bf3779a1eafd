"""Variants that the tuner tried, and the gain of the best over the registered choice."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import CASE, beside_anchor, with_words
from tilewise.study import columns
from tilewise.study.status import Status

#: A variant is as good as the best if its rate is at least this fraction of the best one's.
AS_GOOD = 0.95


def tuning(evidence: Evidence) -> pd.DataFrame:
    """Results of the tuner, one row per kernel, element type and shape.

    The best is the variant that was chosen for the class of the shape. Without times, on the emulator, nothing is best.
    """
    found = []
    for _, case in with_words(evidence.facts["tune"], evidence).groupby(CASE, sort=False):
        ran, chosen = case[case["status"] == Status.OK], case[case["chosen"]]
        best = (chosen if len(chosen) else case).iloc[0]
        row = {name: best[name] for name in [*CASE, "shape", "shape_class"]}
        row |= {"variants": len(case), "failed": len(case) - len(ran), "spilled": (ran["spill_bytes"] > 0).sum()}
        if len(chosen):
            row |= {name: best[name] for name in ("choice", "time_ms", "gflops")}
            row["within_percent"] = (ran["gflops"] >= AS_GOOD * case["gflops"].max()).sum()
        found.append(row | {"registry_gflops": ran.loc[ran["registered"], "gflops"].max()})
    names = ["shape", "shape_class", "variants", "failed", "spilled", "within_percent", "choice", "time_ms", "gflops"]
    table = columns.set_types(pd.DataFrame(found, columns=[*CASE, *names, "registry_gflops"]))
    table = table.assign(gain_percent=100 * (table["gflops"] / table["registry_gflops"] - 1))
    return beside_anchor(table, evidence.gpu, evidence)
