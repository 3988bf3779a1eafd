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
        registry = ran[ran["registered"]]
        best = (chosen if len(chosen) else case).iloc[0]
        about = {name: best[name] for name in [*CASE, "shape", "shape_class"]}
        gflops = best["gflops"] if len(chosen) else None
        before = registry["gflops"].iloc[0] if len(registry) else None
        found.append(
            about
            | {"variants": len(case), "failed": len(case) - len(ran), "spilled": int((ran["spill_bytes"] > 0).sum())}
            | {"within_percent": int((ran["gflops"] >= AS_GOOD * case["gflops"].max()).sum()) if gflops else None}
            | {"choice": best["choice"] if len(chosen) else "", "gflops": gflops, "registry_gflops": before}
            | {"time_ms": best["time_ms"] if len(chosen) else None}
            | {"gain_percent": 100 * (gflops / before - 1) if gflops and before else None}
        )
    names = ["shape", "shape_class", "variants", "failed", "spilled", "within_percent", "choice", "time_ms", "gflops"]
    table = pd.DataFrame(found, columns=[*CASE, *names, "registry_gflops", "gain_percent"])
    return beside_anchor(columns.set_types(table), evidence.gpu, evidence)
