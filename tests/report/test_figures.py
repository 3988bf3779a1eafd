"""What figures share: names, tables and empty figures, tooltips of bars, the order of marks."""

import os
import subprocess
import sys

import pytest
import synthetic
from clones import copy_repository, edit, package_path

from tilewise.evidence import load_evidence
from tilewise.explain import timings
from tilewise.report import figures, plots, sweep_figures, template_context
from tilewise.report.svg import missing_reason

MINE = """
@shows(tables.ladder, "Nothing was timed.", lambda rows, _: rows[(rows["dtype"] == "float") & (rows["n"] == 8192)])
def noise(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    figure, parts = facets(rows.sort_values("noise"), ["platform", "shape"], evidence, "shape", line=0.3)
    for axis, part in parts:
        bars(axis, part, "noise", "standard deviation / mean", part["kernel"], color=colours(part, evidence))
        plots.write_beside(axis, part["noise"].map("{:.1%}".format))
    return figure


#: The figures of the whole study"""
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
    edit(package / "figures.py", "\n#: The figures of the whole study", MINE)
    edit(package / "template_context.py", 'STUDY_FIGURES = ("', 'STUDY_FIGURES = ("noise", "')
    folder, drawing = synthetic.write(tmp_path / "gpu"), tmp_path / "noise.svg"
    variables = os.environ | {"PYTHONPATH": package_path(clone)}
    subprocess.run([sys.executable, "-c", DRAW, folder, drawing], cwd=clone, env=variables, check=True)
    drawn = drawing.read_text()
    assert "standard deviation / mean" in drawn and drawn.count("<title>") == drawn.count(" / mean</title>") > 3
    assert ">naive<" in drawn and "<title>naive: " in drawn and "(8192, 8192, 8192)" in drawn


def test_every_name_has_its_figure(evidence):
    """Those of the study, of the page, and of the methods of tasks, which are drawn or say why they are empty."""
    for name in template_context.STUDY_FIGURES:
        assert missing_reason(figures.OVERVIEW[name](evidence)) == "", name
    assert missing_reason(figures.draw("climb", evidence)) == ""
    drawn = {name for name in evidence.tasks if not missing_reason(figures.task(name, evidence))}
    assert {"task1a", "task3", "sizes"} <= drawn
    assert missing_reason(figures.task("launch_limits", evidence)).startswith("This task has no figure")


def test_the_same_figure_gives_the_same_file(evidence):
    for name in ("rungs", "accuracy_and_rate", "roofline"):
        first, second = (figures.svg(figures.OVERVIEW[name](evidence)) for _ in range(2))
        assert first == second, name


def test_a_larger_product_has_a_larger_mark_below_the_smaller_ones(evidence):
    rows = sweep_figures.with_labels(timings.describe(evidence.select_tasks("ladder_float").gpu, evidence), evidence)
    assert rows.groupby("shape", observed=True)["area"].nunique().max() == 1
    [axis, *_] = plots.Figure().subplots(1, 1, squeeze=False).ravel()
    plots.marks(axis, rows, "rate", "label", evidence)
    sizes = [marks.get_sizes()[0] for marks in axis.collections if "cublas" not in marks.get_label()]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 3
