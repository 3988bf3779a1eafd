"""Figures are entries of figures.yaml: what an entry may say, and what follows from it."""

import os
import subprocess
import sys

import pandas as pd
import pytest
import synthetic
from clones import copy_repository, edit, package_path

from tilewise import UserError
from tilewise.evidence import load_evidence
from tilewise.report import figures, specs
from tilewise.report.figure_rows import fill
from tilewise.report.svg import missing_reason

ENTRY = """
  noise:
    chart: bars
    rows: ladder
    where: dtype == "float" and n == 8192 and p == n and m == n
    empty: Nothing was timed.
    sort: [noise]
    panel: [platform]
    title: "{dtype}, {shape}"
    row_height: 0.3
    y: "{kernel}"
    x: noise
    unit: standard deviation / mean
    numbers: "{noise:.1%}"
    hover: "{kernel} {choice}: {noise:.2%}"
"""
DRAW = """
import sys
from tilewise.evidence import load_evidence
from tilewise.report import figures, specs
specs.check()
figures.save(lambda: figures.OVERVIEW["noise"](load_evidence([sys.argv[1]], recorded=sys.argv[1])), sys.argv[2])
"""


def test_a_figure_of_a_known_kind_is_one_entry(tmp_path):
    """In a copy of the repository whose only change is that entry."""
    clone = copy_repository(tmp_path / "clone")
    edit(clone / "workflow/tilewise/report/figures.yaml", "\ntask:\n", f"{ENTRY}\ntask:\n")
    folder, drawing = synthetic.write(tmp_path / "gpu"), tmp_path / "noise.svg"
    variables = os.environ | {"PYTHONPATH": package_path(clone)}
    subprocess.run([sys.executable, "-c", DRAW, folder, drawing], cwd=clone, env=variables, check=True)
    drawn = drawing.read_text()
    assert "standard deviation / mean" in drawn and drawn.count("<title>") == drawn.count("%</title>") > 3
    assert ">naive<" in drawn and "<title>naive " in drawn and "float, (8192, 8192, 8192)" in drawn


def test_the_entries_are_right():
    specs.check()
    assert specs.FILE.name == "figures.yaml"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("chart: heat", "chart: heap", "study.speedup.chart: 'heap' is not one of"),
        (
            "    row_height: 0.27",
            "    row_hight: 0.27",
            "study.speedup: unknown key 'row_hight'; did you mean 'row_height'?",
        ),
        (
            "rows: traffic",
            "rows: trafic",
            "study.roofline.rows: there is no table 'trafic'; name a function of tables.py",
        ),
        (
            "prepare: in_order",
            "prepare: order",
            "study.speedup.prepare: there is no function 'order'; add it to figure_rows.py",
        ),
    ],
)
def test_a_wrong_entry_is_one_message(tmp_path, old, new, said):
    wrong = tmp_path / "figures.yaml"
    text = specs.FILE.read_text()
    assert old in text
    wrong.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as error:
        specs.check(wrong)
    assert str(error.value).startswith(f"{wrong}: {said}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{kernel}: {rate:three}", "tiled: 1,234"),
        ("{small:three}[, {share:.0%}]", "0.5"),
        ("{small:.1f}[, of {rate:,.0f}]", "0.5, of 1,234"),
        ("TFLOP/s[{rate:?}, of the peak][{share:?}, of another]", "TFLOP/s, of the peak"),
        ("{quantity:words}", "memory bandwidth"),
    ],
)
def test_words_are_filled_in_from_a_row(template, said):
    row = {"kernel": "tiled", "rate": 1234.0, "small": 0.5, "share": float("nan"), "quantity": "memory_bandwidth"}
    assert fill(template, row) == said


def test_every_bar_says_its_own_value(tmp_path):
    """Whatever the order of the rows: seaborn draws a colour at a time."""
    evidence = load_evidence([synthetic.write(tmp_path / "gpu")])
    rows = pd.DataFrame({"platform": "gpu", "outcome": ["refused", "launched", "refused", "launched"]})
    rows = rows.assign(block=["a", "b", "c", "d"], shared_bytes=0, percent_of_limit=[110.0, 20.0, 130.0, 40.0])
    for kept in (rows, rows.iloc[[1, 3]], rows.iloc[:1]):
        [axis] = figures.draw("launch_limits", evidence, kept).axes
        bars = [bar for container in axis.containers for bar in container.patches]
        assert len(bars) == len(kept)
        assert all(f" {bar.get_width():,.4g} % of the limit" in bar.get_gid() for bar in bars)
    assert missing_reason(figures.draw("launch_limits", evidence, rows.iloc[:0])) == "No launch was tried."
