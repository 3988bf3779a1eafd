"""What a cluster answers to settings that do not fit, each tried on a real Slurm with one small job: the run names the
rule, the platform and Slurm's reason within a minute, once, and says where Slurm's answers are explained."""

import json
import re
import shutil
import signal
import sys
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


def failure(run):
    """The cause of the only failure, which is the probe's and is told once."""
    assert run.output.count("probe on emulated failed") == 1
    return run.failures()["probe on emulated"]


def test_a_job_over_the_partitions_limit_is_told_with_slurms_reason_and_a_setting_makes_it_run(
    cluster, with_settings, start, tmp_path
):
    node = cluster("sinfo", "-h", "-o", "%n")
    cluster("scontrol", "create", "PartitionName=short", f"Nodes={node}", "MaxTime=5")
    run = start(with_settings(partition="short"), "--", PROBE)
    wait_until(lambda: "jobs that wait in Slurm: 1: PartitionTimeLimit" in run.output, 60, "the reason")
    assert " left: " not in run.output, "what waits is not at work"
    run.process.send_signal(signal.SIGTERM)
    run.ends(status=1, seconds=300)
    # Slurm's accounting learns of it a moment later.
    wait_until(lambda: [state for state, _ in run.jobs().values()] == ["CANCELLED"], 120, "the state in the accounting")

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
    "feature": ({"constraint": "green"}, "Invalid feature specification"),
    "partition": ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
    "gres": ({"gres": "fpga:1"}, "Invalid generic resource"),
    "node": ({"extra": "--nodelist=nowhere"}, "Invalid node name specified"),
    "name": ({"extra": "--job-name=mine"}, "job-name"),
}


def test_what_sbatch_refuses_is_said_once_in_its_words(emulated, start, tmp_path):
    clone = emulated(tmp_path / "clone", {name: settings for name, (settings, _) in REFUSED.items()})
    run = start(clone, "--", *(f"results/{name}/device.json" for name in REFUSED)).ends(status=1, seconds=300)
    said = run.failures()
    assert set(said) == {f"probe on {name}" for name in REFUSED}
    for name, (_, answer) in REFUSED.items():
        assert answer in said[f"probe on {name}"] and "docs/cluster.md" in said[f"probe on {name}"]
        assert run.output.count(f"probe on {name} failed") == 1
    assert "Traceback" not in run.output and not run.jobs()


def test_a_group_of_jobs_that_sbatch_refuses_is_told_in_its_words(emulated, start, tmp_path):
    clone = emulated(tmp_path / "clone", {name: {"constraint": "green"} for name in ("one", "two")})
    grouped = ("--groups", "probe=probes", "--group-components", "probes=2")
    targets = ("results/one/device.json", "results/two/device.json")
    run = start(clone, *grouped, "--retries", "0", "--", *targets).ends(status=1, seconds=300)
    said = run.failures()
    assert set(said) == {"probe on one", "probe on two"}
    assert all("Invalid feature specification" in text for text in said.values())


def test_a_job_that_fails_is_told_with_its_cause(with_settings, start):
    run = start(with_settings(backend="gpu"), "--retries", "0", "--", PROBE).ends(status=1, seconds=300)
    [(number, (state, _))] = run.jobs().items()
    assert state == "FAILED"
    assert re.search(rf"SLURM-job '{number}' failed.*\nthe platform's backend is gpu", failure(run))
    assert f"/{number}.log" in failure(run)


def test_a_node_without_the_environment_has_a_log_that_says_so(cluster, with_settings, start, tmp_path):
    environment = tmp_path / "environment"
    environment.symlink_to(Path(sys.executable).parents[1])
    cluster("scontrol", "update", "PartitionName=main", "State=DOWN")  # jobs wait, and this may pass
    try:
        run = start(with_settings(), "--retries", "0", "--", PROBE, python=str(environment / "bin/python"))
        wait_until(lambda: "jobs that wait in Slurm: 1: PartitionDown" in run.output, 60, "Slurm's reason")
        environment.unlink()
    finally:
        cluster("scontrol", "update", "PartitionName=main", "State=UP")
    run.ends(status=1, seconds=300)
    [log] = re.findall(r"[^(; ]*/\d+\.log", failure(run))
    assert re.search(r"environment/bin/python.*not found", Path(log).read_text())


def test_an_absent_controller_is_told_and_waited_for(cluster, with_settings, start):
    cluster("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        run = start(with_settings(), "--", PROBE)
        wait_until(lambda: "jobs that wait in Slurm" in run.output, 60, "Slurm's reason")
        cluster.end("slurmctld", signal.SIGTERM)
        wait_until(lambda: "Slurm does not answer: " in run.output, 60, "the message")
    finally:
        cluster.script("daemon", "slurmctld")
        wait_until(lambda: cluster("sinfo", "-h"), 60, "the controller")
        cluster("scontrol", "update", "PartitionName=main", "State=UP")
    run.ends()
    assert [state for state, _ in run.jobs().values()] == ["COMPLETED"]
