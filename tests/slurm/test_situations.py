"""What a cluster answers to settings that do not fit, each tried on a real Slurm with one small job: the run ends soon,
its last lines name rule, platform, cause and remedy, and nothing that would fail again is submitted again."""

import json
import re
import shutil
import sys
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from waiting import wait_until

pytestmark = pytest.mark.slow
PROBE = "results/emulated/device.json"


@pytest.fixture(scope="module")
def clone(emulated, tmp_path_factory):
    """A clone in which nothing has been run."""
    return emulated(tmp_path_factory.mktemp("situations") / "clone", {"emulated": {}})


@pytest.fixture
def with_settings(clone):
    """A function that gives the clone's only platform its Slurm settings, and another backend."""

    def change(backend="emulator", **slurm):
        platforms = {"emulated": {"backend": backend, "slurm": slurm}}
        (clone / "config/cluster.yaml").write_text(yaml.safe_dump({"slurm": None, "platforms": platforms}))
        shutil.rmtree(clone / "results", ignore_errors=True)
        return clone

    return change


def test_a_job_over_the_partitions_limit_is_reported_in_a_minute_and_a_setting_makes_it_run(
    cluster, with_settings, start, tmp_path
):
    node = cluster("sinfo", "-h", "-o", "%n")
    cluster("scontrol", "create", "PartitionName=short", f"Nodes={node}", "MaxTime=5")
    run = start(with_settings(partition="short"), "--", PROBE).ends(status=1, seconds=100)
    submitted, stated = (run.output.index(words) for words in ("has been submitted", "cannot start"))
    assert submitted < stated
    [line] = set(run.last_words())
    assert "cannot start: probe (platform=emulated): PartitionTimeLimit: set `max_minutes`" in line
    [(number, (state, _))] = run.jobs().items()
    assert state == "CANCELLED"
    times = dict(re.findall(r"(SubmitTime|EndTime)=(\S+)", cluster("scontrol", "show", "job", str(number))))
    waited = datetime.fromisoformat(times["EndTime"]) - datetime.fromisoformat(times["SubmitTime"])
    assert waited.total_seconds() < 60

    # The remedy; on a login node without sacct, which the plugin asks by default.
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in reversed(cluster.environment["PATH"].split(":")):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name not in ("sacct", "sacctmgr", "sshare"):
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    run = start(with_settings(partition="short", max_minutes=5), "--", PROBE, PATH=str(programs)).ends()
    [number] = run.jobs()
    facts = cluster("scontrol", "show", "job", str(number))
    assert "TimeLimit=00:05:00" in facts
    assert "JobName=tilewise_" in facts, "squeue shows the first eight characters"
    assert not re.search("guess|invalid option|sacct", run.output)
    device = json.loads((run.clone / PROBE).read_text())
    assert (device["node"], device["slurm_job"]) == (node, str(number))


REFUSED = {
    "feature": ({"constraint": "green"}, "Invalid feature specification", "sinfo -o '%P %N %G %f %c %m'"),
    "partition": ({"partition": "nowhere"}, "invalid partition specified: nowhere", "sinfo -s"),
    "gres": ({"gres": "fpga:1"}, "Invalid generic resource", "sinfo -o '%P %N %G %f %c %m'"),
    "node": ({"extra": "--nodelist=nowhere"}, "Invalid node name specified", ""),
}


def test_what_sbatch_refuses_is_said_once_with_its_remedy(emulated, start, tmp_path):
    clone = emulated(tmp_path / "clone", {name: settings for name, (settings, _, _) in REFUSED.items()})
    run = start(clone, "--", *(f"results/{name}/device.json" for name in REFUSED)).ends(status=1, seconds=100)
    lines = set(run.last_words())
    assert len(lines) == len(REFUSED)
    for name, (_, answer, remedy) in REFUSED.items():
        [line] = [line for line in lines if line.startswith(f"Slurm refuses probe (platform={name}): ")]
        assert answer in line
        assert remedy in line
    assert "Trying to restart" not in run.output
    assert not run.jobs()


def test_a_job_that_fails_by_itself_is_not_submitted_again_and_the_last_line_has_its_cause(with_settings, start):
    run = start(with_settings(backend="gpu"), "--", PROBE).ends(status=1, seconds=100)
    [(number, (state, _))] = run.jobs().items()
    assert state == "FAILED"
    [line] = set(run.last_words())
    assert line.startswith(
        f"Slurm job {number} ended as FAILED: probe (platform=emulated): the platform's backend is gpu"
    )
    assert line.endswith(f"its log is {run.clone}/logs/slurm/rule_probe/emulated/{number}.log")


def test_a_node_without_the_environment_is_named_as_the_cause(cluster, with_settings, start, tmp_path):
    environment = tmp_path / "environment"
    environment.symlink_to(Path(sys.executable).parents[1])
    cluster("scontrol", "update", "PartitionName=main", "State=DOWN")  # jobs wait, and this may pass
    try:
        run = start(with_settings(), "--", PROBE, python=str(environment / "bin/python"))
        wait_until(lambda: set(cluster.running()) - run.before, 60, "the job")
        environment.unlink()
    finally:
        cluster("scontrol", "update", "PartitionName=main", "State=UP")
    run.ends(status=1, seconds=100)
    [line] = set(run.last_words())
    assert re.search(r"ended as FAILED: probe \(platform=emulated\): .*environment/bin/python.*not found", line)
    assert "cannot start" not in run.output


def test_a_job_whose_constraint_no_node_meets_any_more_is_reported_and_withdrawn(cluster, with_settings, start):
    node = cluster("sinfo", "-h", "-o", "%n")
    cluster("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        run = start(with_settings(constraint="red"), "--", PROBE)
        wait_until(lambda: set(cluster.running()) - run.before, 60, "the job")
        cluster("scontrol", "update", f"NodeName={node}", "AvailableFeatures=blue", "ActiveFeatures=blue")
        cluster("scontrol", "update", "PartitionName=main", "State=UP")
        run.ends(status=1, seconds=100)
    finally:
        cluster("scontrol", "update", f"NodeName={node}", "AvailableFeatures=red,blue", "ActiveFeatures=red,blue")
        cluster("scontrol", "update", "PartitionName=main", "State=UP")
    [line] = set(run.last_words())
    assert "cannot start: probe (platform=emulated): BadConstraints: compare config/cluster.yaml" in line
    assert [state for state, _ in run.jobs().values()] == ["CANCELLED"]
