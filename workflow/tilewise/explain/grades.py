"""The grades of kernels in short, beside their rates."""

import numpy as np
import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import largest_square
from tilewise.measure.grading import CURVE, SPECIAL, SPREAD, Grade
from tilewise.study.status import Origin

GRADE_COLUMNS = [
    *("platform", "kernel", "dtype", "origin", "grade", "claimed_grade", "slope", "fails", "special", "holds_to"),
    *("gflops", "percent_of_anchor"),
]
#: Steeper than this, errors grow faster than the number of products.
STEEPEST = 1.0


def grades(evidence: Evidence, ladder: pd.DataFrame) -> pd.DataFrame:
    """The grade of each kernel on each machine, and its rate at the largest square product of `ladder`.

    What was measured goes before what models predict. `slope` is that of the error over the number of products, both
    logarithmic, `fails` the tests with a lesser grade than A, `special` those of them with numbers that are not normal,
    which do not count for the grade, and `holds_to` the exponent of the fourth test up to which it has grade A.
    """
    rows = evidence.facts["grading"]
    rows, found = rows[rows["grade"] != ""], []
    for (platform, kernel, dtype), every in rows.groupby(["platform", "kernel", "dtype"], sort=False):
        measured = every["origin"] == Origin.MEASURED
        own = every[measured] if measured.any() else every
        about = {"platform": platform, "kernel": kernel, "dtype": dtype, "origin": own["origin"].iloc[0]}
        found.append(about | {"claimed_grade": own["claimed_grade"].iloc[0]} | summary(own))
    table = pd.DataFrame(found, columns=GRADE_COLUMNS[:-2])
    if ladder.empty:
        return table.assign(gflops=np.nan, percent_of_anchor=np.nan)
    keys = ["platform", "kernel", "dtype"]
    rates = largest_square(ladder).sort_values("time_ms", kind="stable").drop_duplicates(keys)
    return table.merge(rates[[*keys, "gflops", "percent_of_anchor"]], how="left", on=keys)


def summary(rows: pd.DataFrame) -> dict:
    """The grade of one kernel by its tests, and what decides it."""
    lesser = rows[rows["grade"] != Grade.A]
    usual = lesser[~lesser["test"].isin(SPECIAL)]
    order = list(Grade)
    slope = _slope(rows[rows["test"] == CURVE])
    grade = max([Grade.A, *map(Grade, usual["grade"])], key=order.index)
    if slope > STEEPEST:
        grade = max(grade, Grade.B, key=order.index)
    spread = rows[rows["test"] == SPREAD].sort_values("number")
    passed = (spread["grade"] == Grade.A).cummin()
    held = spread.loc[passed, "number"]
    return {
        "grade": str(grade),
        "slope": slope,
        "fails": ", ".join(dict.fromkeys(usual["test"])),
        "special": ", ".join(dict.fromkeys(lesser.loc[lesser["test"].isin(SPECIAL), "test"])),
        "holds_to": held.max() if len(held) else None,
    }


def _slope(curve: pd.DataFrame) -> float:
    """Of the error of an element over the number of products, both logarithmic."""
    curve = curve[(curve["componentwise"] > 0) & np.isfinite(curve["componentwise"].astype("float64"))]
    if len(curve) < 2:
        return np.nan
    products, errors = (np.log(curve[name].astype("float64")) for name in ("p", "componentwise"))
    return float(np.polyfit(products, errors, 1)[0])
