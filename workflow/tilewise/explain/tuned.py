"""Variants that the tuner tried, and the gain of the best over the registered choice."""

import functools

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import CASE, beside_anchor, with_words
from tilewise.study import columns
from tilewise.study.status import Status

#: A variant is as good as the best if its rate is at least this fraction of the best one's.
AS_GOOD = 0.95


@functools.lru_cache(maxsize=4)
def variants(evidence: Evidence) -> pd.DataFrame:
    """Every variant that the tuner tried, with its rank and its rate in % of the best one's.

    Ranks count from 1 among those that ran at the same shape on the same platform.
    """
    rows = evidence.facts["tune"]
    rates = rows.groupby(CASE, sort=False)["gflops"]
    return with_words(rows, evidence).assign(
        rank=rates.rank(ascending=False, method="first").astype("Int64"),
        percent_of_best=100 * rows["gflops"] / rates.transform("max"),
    )


def tuning(evidence: Evidence) -> pd.DataFrame:
    """Results of the tuner, one row per kernel, element type and shape.

    The best is the variant that was chosen for the class of the shape. Without times, on the emulator, nothing is best.
    """
    rows, found = variants(evidence), []
    for _, case in rows.groupby(CASE, sort=False):
        ran, chosen = case[case["status"] == Status.OK], case[case["chosen"]]
        registry = ran[ran["registered"]]
        best = (chosen if len(chosen) else case).iloc[0]
        about = {name: best[name] for name in [*CASE, "shape", "shape_class"]}
        gflops = best["gflops"] if len(chosen) else None
        before = registry["gflops"].iloc[0] if len(registry) else None
        found.append(
            about
            | {"variants": len(case), "failed": len(case) - len(ran), "spilled": int((ran["spill_bytes"] > 0).sum())}
            | {"within_percent": int((ran["percent_of_best"] >= 100 * AS_GOOD).sum()) if gflops else None}
            | {"choice": best["choice"] if len(chosen) else "", "gflops": gflops, "registry_gflops": before}
            | {"time_ms": best["time_ms"] if len(chosen) else None}
            | {"gain_percent": 100 * (gflops / before - 1) if gflops and before else None}
        )
    names = ["shape", "shape_class", "variants", "failed", "spilled", "within_percent", "choice", "time_ms", "gflops"]
    table = pd.DataFrame(found, columns=[*CASE, *names, "registry_gflops", "gain_percent"])
    return beside_anchor(columns.set_types(table), evidence.gpu, evidence)
