"""Summarise the verdicts of the accuracy gate: the operands for which a kernel may replace SGEMM."""

import pandas as pd

from tilewise.study.status import Accuracy

#: Sums of fewer products say little of long ones.
LONG_SUM = 1024


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
