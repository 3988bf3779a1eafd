"""Summarise the grades of kernels, with their rates."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import largest_square
from tilewise.study.accuracy import CURVE, ROUNDING, SPECIAL, SPREAD, WIDE, Grade

_KEYS = ["platform", "kernel", "dtype", ROUNDING]
GRADE_COLUMNS = [*_KEYS, "grade", "claimed_grade", "slope", "fails", "special", "holds_to", "slowest_test"]
#: The tests whose operands are not finite, which may be as slow as they like.
_INFINITE_OR_NAN = ("infinite", "not a number")
#: Steeper than this, errors grow faster than the number of products.
STEEPEST = 1.0


def grades(evidence: Evidence, ladder: pd.DataFrame) -> pd.DataFrame:
    """The grade of each kernel on each machine, and its rate at the largest square product of `ladder`.

    A kernel has a row for each value of ROUNDING. `slope` is that of the error over
    the number of products, both logarithmic, `fails` the tests with a lesser grade than A, `special` those of them with
    numbers that are not normal, which do not count for the grade, and `holds_to` the exponent of the fourth test up to
    which it has grade A. `slowest_test` is the least rate with the finite operands of the tests, in percent of the
    library's, where they were timed.
    """
    rows = _with_share(_with_rounding(evidence.facts["grading"]), evidence.libraries)
    rows, found = rows[rows["grade"] != ""], []
    for key, own in rows.groupby(_KEYS, sort=False, dropna=False):
        about: dict[str, Any] = dict(zip(_KEYS, key))
        usual = own[~own["test"].isin([CURVE, SPREAD, *_INFINITE_OR_NAN])]
        about |= {"claimed_grade": own["claimed_grade"].iloc[0], "slowest_test": usual["percent"].min()}
        found.append(about | summary(own))
    table = _with_rounding(pd.DataFrame(found, columns=GRADE_COLUMNS))
    rates = _with_rounding(largest_square(ladder)).sort_values("time_ms", kind="stable").drop_duplicates(_KEYS)
    return table.merge(rates[[*_KEYS, "gflops", "percent_of_anchor"]], how="left", on=_KEYS)


def spread_of_exponents(evidence: Evidence) -> pd.DataFrame:
    """The errors of doubles over phi; without one where results are lost.

    Adds `variant`, the kernel with the number of its moduli in words, in their order.
    """
    rows = _with_rounding(evidence.facts["grading"])
    rows = rows[(rows["test"] == WIDE) & (rows["grade"] != "")]
    rows = rows.sort_values(ROUNDING, kind="stable", na_position="first")
    words = [
        f"{moduli:.0f} moduli" if moduli > 0 else kernel
        for kernel, moduli in rows[["kernel", ROUNDING]].astype(object).fillna(0).to_numpy()
    ]
    return rows.assign(
        variant=pd.Categorical(words, list(dict.fromkeys(words))),
        componentwise=rows["componentwise"].where(rows["message"] == ""),
    )


def _with_rounding(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with ROUNDING, which a registry need not have, as a whole number."""
    return rows.assign(**{ROUNDING: rows.get(ROUNDING, np.nan)}).astype({ROUNDING: "Int64"})


def _with_share(rows: pd.DataFrame, libraries: Collection[str]) -> pd.DataFrame:
    """Rows with the rate of each test as a percentage of the library's on the same operands, where both were timed."""
    case = ["platform", "dtype", "n", "p", "m", "test", "number"]
    of_library = rows[rows["kernel"].isin(libraries)].drop_duplicates(case)[[*case, "test_ms"]]
    found = rows.merge(of_library, how="left", on=case, suffixes=("", "_library"))
    return found.assign(percent=100 * found["test_ms_library"] / found["test_ms"])


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
    """The slope of the error of an element over the number of products, both logarithmic."""
    curve = curve[(curve["componentwise"] > 0) & np.isfinite(curve["componentwise"].astype("float64"))]
    if len(curve) < 2:
        return np.nan
    products, errors = (np.log(curve[name].astype("float64")) for name in ("p", "componentwise"))
    return float(np.polyfit(products, errors, 1)[0])
