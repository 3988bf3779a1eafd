"""What figures share: names, tables and empty figures, tooltips of bars, the order of marks."""

import math
import re
import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
import synthetic
from clones import copy_repository, edit, variables

from tilewise.evidence import load_evidence
from tilewise.report import beside, figures, headlines, tables
from tilewise.report.svg import missing_reason

MINE = """
def noise(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    rows = rows[(rows["dtype"] == "float") & (rows["n"] == 8192)].sort_values("noise")
    figure, parts = plots.facets(rows, ["platform", "shape"], evidence, "kernel", line=0.3)
    for axis, part in parts:
        plots.marks(axis, part, "noise", "kernel", legend=False, **plots.looks(part, evidence))
        axis.set_xlabel("standard deviation / mean")
    return figure


_NO_RUNGS = """
ENTRY = """
    "noise": (tables.ladder, noise, "Nothing was timed."),
    "rungs": ("""
DRAW = """
import sys
from tilewise.evidence import load_evidence
from tilewise.report import figures
figures.save(lambda: figures.OVERVIEW["noise"](load_evidence([sys.argv[1]], recorded=sys.argv[1])), sys.argv[2])
"""


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "gpu"
    return load_evidence([synthetic.write(folder, with_traffic=True)], recorded=folder / "none")


def test_a_figure_is_a_function_and_its_name(tmp_path):
    """In a copy of the repository whose only changes are these."""
    clone = copy_repository(tmp_path / "clone")
    package = clone / "workflow/tilewise/report"
    edit(package / "figures.py", "\n_NO_RUNGS = ", MINE)
    edit(package / "figures.py", '\n    "rungs": (', ENTRY)
    edit(package / "tables.py", 'STUDY_FIGURES = ("', 'STUDY_FIGURES = ("noise", "')
    folder, drawing = synthetic.write(tmp_path / "gpu"), tmp_path / "noise.svg"
    subprocess.run([sys.executable, "-c", DRAW, folder, drawing], cwd=clone, env=variables(clone), check=True)
    drawn = drawing.read_text()
    assert "standard deviation / mean" in drawn and drawn.count("<title>") == drawn.count(" TFLOP/s</title>") > 3
    assert ">naive<" in drawn and "<title>naive, " in drawn and "(8192, 8192, 8192)" in drawn


def test_every_figure_of_the_study_is_drawn_and_twice_the_same(evidence):
    """Those of all tasks, some of which have none, are in test_tables.py."""
    for name in tables.STUDY_FIGURES:
        first, second = (figures.OVERVIEW[name](evidence) for _ in range(2))
        assert missing_reason(first) == "" and figures.svg(first) == figures.svg(second), name
    assert missing_reason(figures.draw("climb", evidence)) == ""
    for name in ("task1a", "task3", "sizes"):
        assert missing_reason(figures.task(name, evidence)) == "", name


def test_a_larger_product_has_a_larger_mark_below_the_smaller_ones(evidence):
    figure = figures.task("ladder_float", evidence)
    [axis] = figure.axes
    [points] = axis.collections
    sizes = list(points.get_sizes())
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 3
    said = re.findall("<title>(.*?)</title>", figures.svg(figure))
    work = [math.prod(map(int, re.search(r"\((\d+), (\d+), (\d+)\)", words).groups())) for words in said]
    assert len(work) == len(sizes) and work == sorted(work, reverse=True), "a tooltip belongs to its mark"


def test_any_number_of_runs_are_told_apart_by_their_speedups(evidence):
    first, sides = (
        headlines.speedups(beside.Sides(evidence, None)),
        [f"{'own' if k else 'recorded'} {k}" for k in range(12)],
    )
    table = pd.concat([first.assign(side=side) for side in sides])
    figure = headlines.draw_speedups(
        table, SimpleNamespace(headings={side: f"run {side}" for side in sides}, first=evidence)
    )
    [marks] = figure.axes[0].collections
    rings = [face[3] == 0 for face in marks.get_facecolors()]
    assert (
        rings == table["side"].str.startswith("recorded").tolist() and len({*map(tuple, marks.get_edgecolors())}) == 9
    )
    assert figures.svg(figure).count(" TFLOP/s, run own 11, n = ") == len(first)
