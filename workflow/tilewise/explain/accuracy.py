"""Summarise the verdicts of the accuracy gate: the operands for which a kernel may replace SGEMM."""

import pandas as pd

from tilewise.study.status import Accuracy

#: Sums of fewer products say little of long ones.
LONG_SUM = 1024


def gate(rows: pd.DataFrame) -> pd.DataFrame:
    """The worst verdict on each kernel for each kind of operands, in long sums if there are any.

    `rows` are those of the table of the task. `sums` has the
    numbers of products in the long sums of the kernel, `some` those with the worst verdict, if others fare better.
    """
    rows, found = rows[rows["verdict"] != ""], []
    for (platform, kernel), own in rows.groupby(["platform", "kernel"], sort=False):
        long = own[own["p"] >= LONG_SUM]
        sums = _lengths(long)
        for operands, kind in (long if len(long) else own).groupby("operands", sort=False):
            verdict = max(kind["verdict"], key=list(Accuracy).index)
            worst = _lengths(long[(long["operands"] == operands) & (long["verdict"] == verdict)])
            about = {"platform": platform, "kernel": kernel, "operands": operands}
            found.append(about | {"verdict": verdict, "sums": sums, "some": worst if len(worst) < len(sums) else ()})
    names = ["platform", "kernel", "operands", "verdict", "sums", "some"]
    return pd.DataFrame(found, columns=names)


def broken_claims(rows: pd.DataFrame) -> pd.DataFrame:
    """The cases in which a kernel claims the accuracy of SGEMM and does not have it: operands and p."""
    rows = rows[rows["verdict"] != ""]
    rows = rows[rows["claimed"].fillna(False).astype(bool) & (rows["verdict"] != Accuracy.PASSES)]
    return rows.drop_duplicates(["platform", "kernel", "operands", "p"])


def _lengths(rows: pd.DataFrame) -> tuple[int, ...]:
    return tuple(sorted(int(p) for p in rows["p"].unique()))
