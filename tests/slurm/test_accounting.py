"""The study on a cluster of two nodes whose accounting knows users, accounts and limits (slurmdbd on MariaDB)."""

import json
import re

import pandas as pd
import pytest
import yaml

pytestmark = pytest.mark.slow
PROBE = "results/emulated/device.json"


@pytest.fixture(scope="module")
def clone(emulated, tmp_path_factory):
    return emulated(tmp_path_factory.mktemp("accounting") / "clone", {"emulated": {}})


@pytest.fixture
def with_settings(clone):
    """A function that gives the clone's platforms their settings, and forgets what was measured."""

    def change(slurm=None, **platforms):
        config = {"slurm": slurm, "platforms": platforms or {"emulated": {"backend": "emulator"}}}
        task = {"title": "small", "sweeps": [{"kernel": "tiled", "dtype": "float", "shapes": "square", "tile": 8}]}
        loops = {"title": "loops", "sweeps": [{"kernel": "kij", "dtype": "float", "shapes": "square_64"}]}
        config["tasks"] = {"task4": task, "loop_orders": loops}
        (clone / "config/cluster.yaml").write_text(yaml.safe_dump(config))
        (clone / PROBE).unlink(missing_ok=True)
        return clone

    return change


def test_an_account_or_a_quality_of_service_that_is_not_there_is_said(accounting, with_settings, start):
    platforms = {
        "account": {"backend": "emulator", "slurm": {"account": "nobodys"}},
        "service": {"backend": "emulator", "slurm": {"qos": "best"}},
    }
    targets = [f"results/{name}/device.json" for name in platforms]
    run = start(with_settings(**platforms), "--", *targets, on=accounting).ends(status=1, seconds=300)
    said = run.failures()
    assert "nobodys appears to be invalid" in said["probe on account"]
    assert "Invalid qos specification" in said["probe on service"]
    assert not run.jobs()


def test_the_efficiency_report_has_the_jobs_of_the_run_and_sacct_follows_them(accounting, with_settings, start):
    options = ("--tilewise-status-command", "sacct", "--tilewise-efficiency-report")
    run = start(with_settings({"account": "study"}), *options, "--", PROBE, on=accounting).ends()
    [number] = run.jobs()
    assert "Account=study" in accounting("scontrol", "show", "job", str(number))
    [path] = run.clone.glob("efficiency_report_tilewise_*.csv")
    report = pd.read_csv(path)
    assert set(report.MainJobID) == {number}
    assert set(report.RuleName) == {"rule_probe_wildcards_emulated"}


def test_nodes_measures_on_each_of_two_nodes_whatever_their_names(accounting, with_settings, start):
    clone = with_settings(small={"backend": "emulator", "nodes": 2})
    tables = [f"results/small-{number}/tasks/task4.csv" for number in (1, 2)]
    run = start(clone, "--", *tables, on=accounting).ends()
    probed = [json.loads((clone / f"results/small-{number}/device.json").read_text())["node"] for number in (1, 2)]
    assert set(probed) == {accounting("hostname", "-s"), "other"}
    for number, table in enumerate(tables):
        rows = pd.read_csv(clone / table)
        assert set(rows.node) == {probed[number]}
        assert set(rows.platform) == {f"small-{number + 1}"}
    for number, (_, comment) in run.jobs().items():
        asked = re.search(r"ReqNodeList=(\S+) ExcNodeList=(\S+)", accounting("scontrol", "show", "job", str(number)))
        expected = {
            "rule_probe_wildcards_small-1": ("(null)", "(null)"),
            "rule_probe_wildcards_small-2": ("(null)", probed[0]),
            "rule_measure_wildcards_small-1_task4": (probed[0], "(null)"),
            "rule_measure_wildcards_small-2_task4": (probed[1], "(null)"),
        }.get(comment, ("(null)", "(null)"))
        assert asked.groups() == expected, comment
