"""Summarise the tests of accuracy: the grades of kernels with their rates, and the verdicts of the accuracy gate."""

import numpy as np
import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import largest_square
from tilewise.study.accuracy import CURVE, ROUNDING, SPECIAL, SPREAD, WIDE, Grade
from tilewise.study.status import Accuracy

_KEYS = ["platform", "kernel", "dtype", ROUNDING]
GRADE_COLUMNS = [*_KEYS, "grade", "claimed_grade", "slope", "fails", "special", "holds_to", "slowest_test"]
#: The tests whose operands are not finite, which may be as slow as they like.
_INFINITE_OR_NAN = ("infinite", "not a number")
#: Steeper than this, errors grow faster than the number of products.
STEEPEST = 1.0
#: Sums of fewer products say little of long ones.
LONG_SUM = 1024


def grades(evidence: Evidence, ladder: pd.DataFrame) -> pd.DataFrame:
    """The grade of each kernel on each machine, and its rate at the largest square product of `ladder`.

    A kernel has a row for each value of ROUNDING. `slope` is that of the error over the number of products, both
    logarithmic, `fails` the tests with a lesser grade than A, `special` those of them with numbers that are not normal,
    which do not count for the grade, and `holds_to` the exponent of the fourth test up to which it has grade A.
    `slowest_test` is the least rate with the finite operands of the tests, in percent of the library's, where they were
    timed.
    """
    rows = _with_rounding(evidence.facts["grading"])
    case = ["platform", "dtype", "n", "p", "m", "test", "number"]
    of_library = rows[rows["kernel"].isin(evidence.libraries)].drop_duplicates(case)[[*case, "test_ms"]]
    rows = rows.merge(of_library, how="left", on=case, suffixes=("", "_library"))
    rows = rows.assign(percent=100 * rows["test_ms_library"] / rows["test_ms"])
    rows, found = rows[rows["grade"] != ""], []
    for key, own in rows.groupby(_KEYS, sort=False, dropna=False):
        usual = own[~own["test"].isin([CURVE, SPREAD, *_INFINITE_OR_NAN])]
        about = {"claimed_grade": own["claimed_grade"].iloc[0], "slowest_test": usual["percent"].min()}
        found.append(dict(zip(_KEYS, key)) | about | summary(own))
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
    held = spread.loc[(spread["grade"] == Grade.A).cummin(), "number"]
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


def gate(rows: pd.DataFrame) -> pd.DataFrame:
    """The worst verdict on each kernel for each kind of operands, in long sums if there are any.

    `rows` are those of the table of the task. A row has the operands of each verdict in words, with p where other sums
    fare better, and the cases in which the kernel claims an accuracy that it does not have.
    """
    rows = rows[rows["verdict"] != ""]
    place = dict(zip(rows["kernel"].unique(), range(len(rows))))
    found = []
    groups = sorted(rows.groupby(["kernel", "platform"], sort=False), key=lambda group: place[group[0][0]])
    for (kernel, platform), own in groups:
        long = own[own["p"] >= LONG_SUM] if (own["p"] >= LONG_SUM).any() else own
        words: dict[Accuracy, list[str]] = {verdict: [] for verdict in Accuracy}
        for operands, kind in long.groupby("operands", sort=False):
            verdict = max(kind["verdict"], key=list(Accuracy).index)
            words[Accuracy(verdict)].append(f"{operands}{_at(kind[kind['verdict'] == verdict], kind)}")
        broken = own[own["claimed"].fillna(False).astype(bool) & (own["verdict"] != Accuracy.PASSES)]
        claimed = [f"{operands}{_at(kind, kind.head(0))}" for operands, kind in broken.groupby("operands", sort=False)]
        said = {str(verdict): ", ".join(each) for verdict, each in words.items()}
        found.append({"kernel": kernel, "platform": platform, **said, "claimed, but not so": ", ".join(claimed)})
    names = ["kernel", "platform", *map(str, Accuracy), "claimed, but not so"]
    return pd.DataFrame(found, columns=names, dtype="str")


def _at(some: pd.DataFrame, every: pd.DataFrame) -> str:
    """The numbers of products of `some` rows in words, unless they are those of `every` row."""
    lengths, others = (sorted(int(p) for p in rows["p"].unique()) for rows in (some, every))
    return "" if lengths == others else f" (p = {', '.join(f'{p:,}' for p in lengths)})"
