"""`tilewise list` names what the study has, `tilewise status` how far a run is."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from clones import edit, variables

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT
from tilewise.__main__ import main

STUDY = read_yaml(ROOT / "config/config.yaml")["tasks"]
PIPES = {"capture_output": True, "text": True}
HEAD = {"kernel": "naive", "dtype": "float", "n": 8, "p": 8, "m": 8}


@pytest.fixture
def results(tmp_path):
    """A run of two tasks on one platform, of which one is finished with a point that is not right, and one begun."""
    folder = tmp_path / "results/fast"
    (folder / "tasks").mkdir(parents=True)
    (folder / "journal").mkdir()
    (folder / "device.json").write_text("{}")
    tasks = {"task1a": {"title": "a"}, "task3": {"title": "b"}, "tune": {"title": "c", "method": "tune"}}
    (folder / "config.json").write_text(json.dumps({"tasks": tasks}))
    rows = [
        HEAD | {"block_x": 32, "block_y": 8, "status": "ok", "message": ""},
        HEAD | {"block_x": None, "block_y": 4, "status": "incorrect", "message": "12 elements are <wrong>"},
        HEAD | {"kernel": "kij", "status": "timeout", "message": "would take about 700 s"},
    ]
    pd.DataFrame(rows).to_csv(folder / "tasks/task1a.csv", index=False)
    row = HEAD | {"status": "ok", "message": ""}
    (folder / "journal/task3.jsonl").write_text(f"\n{json.dumps({'key': 'k', 'row': row})}\n")
    return tmp_path / "results"


def test_a_run_is_told_task_by_task_with_what_is_not_right(results, capsys):
    assert main(["status", str(results)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "fast: 1 of 2 tasks are finished",
        "  task1a  3 points, finished",
        "            naive float 8x8x8 block_y=4.0: incorrect: 12 elements are <wrong>",
        "  task3   1 point, not finished",
        f"  left out of this run: {', '.join(name for name in STUDY if name not in ('task1a', 'task3', 'tune'))}",
        "there is no report yet",
    ]


def test_a_task_that_the_last_whole_run_left_out_is_not_in_the_report(results, capsys):
    pd.DataFrame([HEAD | {"status": "ok", "message": ""}]).to_csv(results / "fast/tasks/task4.csv", index=False)
    main(["status", str(results)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fast: 1 of 2 tasks are finished"
    assert "  task4   1 point, finished, not in the report" in lines


def test_a_run_without_a_fault_has_the_status_0_and_names_its_report(results, capsys):
    (results / "fast/tasks/task1a.csv").unlink()
    (results / "report.html").touch()
    (results / "notes.json").write_text('["a sentence cannot be made: no rows"]')
    assert main(["status", str(results), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["report"] == str(results / "report.html") and found["lacks"] == ["a sentence cannot be made: no rows"]
    assert found["platforms"]["fast"]["task1a"] == {"finished": False, "points": 0, "not_right": [], "left_out": False}


def test_junit_has_a_case_per_point(results, tmp_path, capsys):
    main(["status", str(results), "--junit", str(tmp_path / "junit.xml")])
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert suite.attrib == {"name": "fast.task1a", "tests": "3", "failures": "1", "errors": "0"}
    cases = suite.findall("testcase")
    assert len({case.get("name") for case in cases}) == 3
    assert [failure.attrib for failure in suite.iter("failure")] == [
        {"type": "incorrect", "message": "12 elements are <wrong>"}
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["status", "no/such/folder"],
            "no/such/folder: there are no results; `make quick`",
        ),
        (["status", "{results}", "--junit", "/no/such/folder/x.xml"], "/no/such/folder/x.xml: it cannot be written"),
    ],
)
def test_bad_input_is_one_message(arguments, said, results, capsys):
    assert main([word.format(results=results) for word in arguments]) == 2
    assert capsys.readouterr().err.startswith(f"tilewise: {said}")


def test_the_list_has_every_task_kernel_and_claim_with_its_title(capsys):
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sources = {"tasks": "config/config.yaml", "kernels": "kernels/registry.yaml", "claims": "report/claims.yaml"}
    for kind, path in sources.items():
        entries = yaml.safe_load((ROOT / path).read_text())
        names = [each["id"] for each in entries] if kind == "claims" else list(entries.get("tasks", entries))
        assert [each["name"] for each in found[kind]] == names and all(each["title"] for each in found[kind])
    assert main(["list", "kernels"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "naive"


def test_bash_completes_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--print-completion", "bash"])
    assert "machine-code" in capsys.readouterr().out and Path("/bin/bash").exists()


def test_a_task_that_the_config_sets_to_null_is_no_task(clone, tmp_path):
    edit(clone / "config/config.yaml", "  task3:\n", "  task3: null\n  another:\n")
    (tmp_path / "results/fast").mkdir(parents=True)
    (tmp_path / "results/fast/device.json").write_text("{}")
    for command in (["list", "tasks"], ["status", tmp_path / "results"]):
        run = [sys.executable, "-m", "tilewise", *command]
        done = subprocess.run(run, cwd=clone, env=variables(clone), **PIPES)
        assert done.returncode == 0 and "task3" not in done.stdout, done.stderr
