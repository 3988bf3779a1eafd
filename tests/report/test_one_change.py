"""A figure, a sentence and a column are each added in one place; each test does it in a copy of the repository."""

import os
import re
import subprocess
import sys

import pytest
import synthetic
from clones import copy_repository, edit
from test_figures import ENTRY

SECTION = "tables/01-threads.md"
SHOW = f"""
import sys
from pathlib import Path
from tilewise import preflight
from tilewise.evidence import load_evidence
from tilewise.report import notes, render
from tilewise.study import registry
folder = Path(sys.argv[1])
preflight.check(registry.load(), True, load_evidence([folder], recorded=folder).tasks)
text = render.load([folder], folder).section("{SECTION}")
assert not notes.found(text), notes.found(text)
print(text)
"""
MEASURE = """
from types import SimpleNamespace
from tilewise import RECORDED
from tilewise.evidence import load_evidence
from tilewise.measure import rows
from tilewise.study import columns
row = rows.timing([1.0, 3.0, 2.0], SimpleNamespace(point=SimpleNamespace(multiply_adds=1)))
print(columns.frame([row], "measurements")["time_max_ms"].tolist(), "time_max_ms" in columns.markdown())
print(load_evidence([], recorded=RECORDED).gpu["time_max_ms"].isna().all())
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program in a copy of the repository with some edits (file, old, new); what it prints."""

    def printed(program, *edits):
        clone = copy_repository(tmp_path / "clone")
        for name, old, new in edits:
            edit(clone / name, old, new)
        folder = synthetic.write(tmp_path / "gpu")
        variables = os.environ | {"PYTHONPATH": str(clone / "workflow")}
        done = subprocess.run(
            [sys.executable, "-c", program, folder], cwd=clone, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return printed


def test_a_figure_is_an_entry_and_its_place_in_a_section(run):
    text = run(
        SHOW,
        ("workflow/tilewise/report/figures.yaml", "\ntask:\n", f"{ENTRY}\ntask:\n"),
        (f"report/sections/{SECTION}", "\n\n", '\n\n{{ figure("noise", "Noise of the kernels") }}\n\n'),
    )
    [figure] = re.findall(r'<figure id="figure-noise-of-the-kernels">.*?</figure>', text, re.DOTALL)
    assert "standard deviation / mean" in figure and ">naive<" in figure


def test_a_sentence_is_a_line_in_a_section(run):
    sentence = "{% sentence %}Mine takes {{ gpu.time(kernel='naive', cube=8192) }} ms.{% endsentence %}"
    loop = f"\n\n{{% for gpu in gpus() %}}\n{sentence}\n{{% endfor %}}\n\n"
    assert re.search(r"Mine takes [\d,.]+\sms\.", run(SHOW, (f"report/sections/{SECTION}", "\n\n", loop)))


def test_a_column_is_an_entry_and_the_code_that_measures_it(run):
    """The entry is in columns.yaml: what the column holds, and which file has it, with a ? because no record has it."""
    described = "  time_max_ms: {type: number, unit: ms, meaning: the slowest run}\n"
    data = "workflow/tilewise/study/columns.yaml"
    found = run(
        MEASURE,
        (data, "  time_q1_ms: {type", f"{described}  time_q1_ms: {{type"),
        (data, "run_high_ms? registers", "run_high_ms? time_max_ms? registers"),
        (
            "workflow/tilewise/measure/rows.py",
            '"time_min_ms": float(min(times_ms)),',
            '"time_min_ms": float(min(times_ms)), "time_max_ms": max(times_ms),',
        ),
    )
    assert found.splitlines() == ["[3.0] True", "True"]
