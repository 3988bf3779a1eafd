"""The tables of docs/ladder.md, from the recorded run: `python -m tilewise.explain.ladder` writes them.

Each table lies between a comment that says what it holds, `<!-- rates: TASK TYPE -->`, `<!-- errors: P P -->` or
`<!-- moduli: COUNT COUNT -->`, and the comment `<!-- end -->`.
"""

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd

from tilewise import RECORDED, ROOT
from tilewise.evidence import Evidence, load_evidence
from tilewise.explain.timings import beside_anchor, best, describe, timed
from tilewise.files import replacing
from tilewise.measure import grading, residues
from tilewise.measure.methods.grading import MODELLED_SIDE, MODELLED_SUM, PHIS
from tilewise.study.columns import SHAPE
from tilewise.study.status import Accuracy, Origin

FILE = ROOT / "docs" / "ladder.md"
#: The run whose numbers the page has.
RUN = "nvidia-h200"
_GENERATED = re.compile(r"(<!-- (\w+): (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def evidence(recorded: Path | str = RECORDED) -> Evidence:
    """The recorded run alone."""
    return load_evidence([Path(recorded) / RUN], recorded=Path(recorded) / RUN)


def with_tables(text: str, evidence: Evidence) -> str:
    """A Markdown text with its tables as the evidence has them."""

    def made(found: re.Match[str]) -> str:
        head, *lines = {"rates": rates, "errors": errors, "moduli": moduli}[found[2]](evidence, *found[3].split())
        return f"{found[1]}{_line(head)}{_line(['---'] * len(head))}{''.join(map(_line, lines))}{found[4]}"

    return _GENERATED.sub(made, text)


def rates(evidence: Evidence, *about: str) -> list[list[str]]:
    """The rates of a task's kernels in TFLOP/s, and how many times those of the library they are: a head and lines.

    `about` has the task and the element type.
    """
    task, dtype = about
    rows = timed(evidence.of(task).gpu)
    rows = describe(rows[rows["dtype"] == dtype], evidence)
    rows = beside_anchor(best(rows), rows, evidence)
    work = rows[SHAPE].astype("float64").prod(axis=1)
    shapes = list(dict.fromkeys(rows["shape"].loc[work.sort_values(ascending=False, kind="stable").index]))
    lines = [["rung", "idea", "parameters of the largest", *map(_power, shapes)]]
    for name in sorted(rows["kernel"].unique(), key=[*evidence.kernels].index):
        own = rows[rows["kernel"] == name].set_index("shape")
        largest = next(shape for shape in shapes if shape in own.index)
        cells = [_rate(own.loc[shape]) if shape in own.index else "" for shape in shapes]
        lines.append([f"`{name}`", evidence.kernels[name].title, own.loc[largest, "choice"], *cells])
    return lines


def errors(evidence: Evidence, *sums: str) -> list[list[str]]:
    """The errors of floats computed from short numbers over SGEMM's, by the length of the sums: a head and lines."""
    rows = evidence.facts["accuracy"]
    rows = rows[rows["origin"] == Origin.MEASURED]
    judged = set(rows["kernel"])
    kernels = [name for name, kernel in evidence.kernels.items() if name in judged and kernel.accuracy.get("from_p")]
    kernels += [name for name in rows["kernel"].unique() if name == "three_tf32"]
    lines = [["operands", *(f"`{name}`" for name in kernels)]]
    for operands in dict.fromkeys(rows["operands"]):
        cells = []
        for name in kernels:
            own = rows[(rows["kernel"] == name) & (rows["operands"] == operands)].set_index("p")
            cells.append("; ".join(dict.fromkeys(_errors(own.loc[int(p)]) for p in sums)))
        lines.append([f"`{operands}`", *cells])
    return lines


def moduli(evidence: Evidence, *counts: str) -> list[list[str]]:
    """The errors that the model of doubles made of bytes predicts, over moduli and phi: a head and lines."""
    side, seed = MODELLED_SIDE["double"], evidence.gpus[0].config["seed"]
    operands = [grading.operands(np, "double", grading.WIDE, side, MODELLED_SUM, side, seed, phi) for phi in PHIS]
    lines = [["moduli", "`accurate`", *(f"φ = {phi}" for phi in PHIS)]]
    right = [grading.Reference(A, B, "double") for A, B in operands]
    for count, accurate in itertools.product(map(int, counts), (0, 1)):
        products = (residues.product(A, B, count, bool(accurate)) for A, B in operands)
        found = [reference.quotients(C) for reference, C in zip(right, products, strict=True)]
        cells = ["refused" if each.lost else f"{each.componentwise:.2g}" for each in found]
        lines.append([str(count), str(accurate), *cells])
    return lines


def _errors(row: pd.Series) -> str:
    if row["verdict"] == Accuracy.REFUSES:
        return row["verdict"]
    ratios = [row[name] / row[f"sgemm_{name}"] for name in ("relative_error", "worst_error")]
    return ", ".join(f"{ratio:.2f}" if ratio < 1 else f"{ratio:.2g}" for ratio in ratios)


def _rate(row: pd.Series) -> str:
    tflops = row["gflops"] / 1000
    rate = f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.1f}"
    return rate if row["anchor"] else f"{rate} ({row['percent_of_anchor'] / 100:.2f})"


def _power(shape: str) -> str:
    """`8192³` for (8192, 8192, 8192)."""
    sides = re.findall(r"\d+", shape)
    return f"{sides[0]}³" if len({*sides}) == 1 else shape


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")


def main() -> None:
    """Write the tables of docs/ladder.md."""
    with replacing(FILE) as temporary:
        temporary.write_text(with_tables(FILE.read_text(encoding="utf-8"), evidence()), encoding="utf-8")


if __name__ == "__main__":
    main()
