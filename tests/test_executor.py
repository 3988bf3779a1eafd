"""The executor of Slurm's jobs, without Slurm."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake
import snakemake_executor_plugin_slurm as slurm
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

import snakemake_executor_plugin_tilewise as plugin
from snakemake_executor_plugin_tilewise import words
from tilewise import ROOT, UserError, preflight


@pytest.fixture
def executor():
    """An executor without a workflow."""
    executor = object.__new__(plugin.Executor)
    executor.logger, executor.stopped = logging.getLogger(), SimpleNamespace(is_set=lambda: False, wait=lambda s: None)
    return executor


@pytest.mark.parametrize(("ends", "cancelled"), [(False, ["1", "2"]), (True, ["2"])])
def test_a_stop_during_a_look_cancels_the_jobs_that_are_looked_at(executor, monkeypatch, ends, cancelled):
    """Snakemake itself has no active jobs then."""
    found = []
    jobs = [SimpleNamespace(external_jobid=number, job=SimpleNamespace(jobid=int(number))) for number in "12"]

    async def look(self, active_jobs):
        if ends:
            self.report_job_success(active_jobs[0])
        self.cancel_jobs([])
        for job in active_jobs:
            yield job

    monkeypatch.setattr(plugin, "pending", dict)
    monkeypatch.setattr(slurm.Executor, "check_active_jobs", look)
    monkeypatch.setattr(slurm.Executor, "report_job_success", lambda self, job: None)
    monkeypatch.setattr(slurm.Executor, "cancel_jobs", lambda self, jobs: found.extend(jobs))

    async def looked():
        return [job async for job in executor.check_active_jobs(jobs)]

    assert asyncio.run(looked()) == jobs
    assert [job.external_jobid for job in found] == cancelled


def test_a_job_is_submitted_when_slurm_answers_again_and_not_after_a_stop(executor, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    answers, submitted = iter(["no route", "no route", {}, "no route", "no route"]), []
    monkeypatch.setattr(plugin, "pending", lambda: next(answers))
    monkeypatch.setattr(slurm.Executor, "run_job", lambda self, job: submitted.append(job))
    executor.run_job("first")
    assert submitted == ["first"]
    assert caplog.messages == ["Slurm does not answer: no route; waiting for it"]
    executor.stopped = SimpleNamespace(is_set=lambda: True)
    executor.run_job("second")
    assert submitted == ["first"]


class Job:
    """A job, or a group of some, which notes what is reported of it."""

    def __init__(self, *jobs):
        self.jobs, self.said = jobs, []

    def is_group(self):
        return bool(self.jobs)

    def log_error(self, msg=None, **facts):
        self.said.append(msg)


def test_a_group_that_slurm_refuses_keeps_slurms_words(executor, monkeypatch):
    jobs, ended = [Job(), Job()], []
    group = Job(*jobs)
    executor.workflow = SimpleNamespace(scheduler=SimpleNamespace(error_callback=ended.append))
    executor.report_job_error(SubmittedJobInfo(group), "SLURM sbatch failed.")
    assert [job.said for job in jobs] == [["SLURM sbatch failed."]] * 2 and ended == [group]

    def refuse(self, job):
        try:
            raise ValueError("the account is wrong")
        except ValueError as error:
            self.logger.error(f"{job.rule.name}: {error}")  # as the plugin does

    monkeypatch.setattr(plugin, "pending", dict)
    monkeypatch.setattr(slurm.Executor, "run_job", refuse)
    executor.run_job(group)
    assert all("the account is wrong" in job.said[-1] for job in jobs) and ended == [group] * 2


SACCT = " Detailed failure reason unavailable (status command is not 'sacct')."
FACTS = "JobId=7 JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0 ReqNodeList=(null) NodeList=n1 BatchHost=n1"
CALL = "\n    sbatch call:\n        sbatch --exclude=n1 -t 5"


@pytest.mark.parametrize(
    ("said", "facts", "empty", "expected"),
    [
        ("status is: 'FAILED'." + SACCT, FACTS, False, "status is: 'FAILED'. It ended on n1 with exit code 1:0"),
        ("status is: 'FAILED'." + SACCT, FACTS, True, "df -h"),
        ("status is: 'FAILED'." + SACCT, "", False, "status is: 'FAILED'."),
        ("status is: 'CANCELLED'.", "NodeList=(null)", False, "status is: 'CANCELLED'.\nsomebody"),
        ("error: AssocMaxSubmitJobLimit" + CALL, "", False, "--jobs 2"),
        ("error: Requested node configuration is not available" + CALL, "", False, "must not use n1"),
    ],
)
def test_a_failure_comes_with_what_to_do(said, facts, empty, expected):
    text, call, _ = words.failure(said, facts, empty).partition(words.COMMAND)
    assert expected in text and "sacct" not in text
    assert bool(call) == (CALL in said)


def test_a_reason_to_wait_comes_with_what_to_do():
    assert words.waiting("Resources", 2) == "jobs that wait in Slurm: 2: Resources"
    assert "max_minutes" in words.waiting("PartitionTimeLimit", 1)


@pytest.mark.parametrize("name", ["o'brien", "a$b", "50%jobs"])
def test_a_path_in_which_no_job_could_run_is_refused(tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(UserError, match="rename it"):
        plugin.check()


def test_a_machine_without_slurm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sbatch"):
        plugin.check()
    for name, script in (("sbatch", "exit 0"), ("squeue", "echo 'first\nno controller' >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(UserError, match=r"does not answer \(no controller\)"):
        plugin.check()
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    plugin.check()


def test_a_profile_that_changes_the_executor_is_told_and_never_submits_this_machine(monkeypatch, capsys):
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "lab")
    others, own = (ExecutorPluginRegistry().get_plugin(name) for name in ("slurm", "local"))
    with pytest.raises(UserError, match=r"slurm of SNAKEMAKE_PROFILE=lab .*SNAKEMAKE_PROFILE=none"):
        preflight.check_executor(others, auto=True)
    preflight.check_executor(others, auto=False)
    assert capsys.readouterr().err.count("\n") == 1
    preflight.check_executor(own, auto=True)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("--profile", "slurm"), ("-n", "task3")])
def test_snakemake_of_another_environment_ends_with_the_remedy(options):
    # -S leaves out what .pth files add, and with it the project.
    packages = Path(snakemake.__file__).parents[1]
    code = f"import sys; sys.path.append({str(packages)!r}); from snakemake.cli import main; main()"
    command = [sys.executable, "-S", "-c", code, "--cores", "1", *options]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=300)
    [said] = [line for line in done.stderr.splitlines() if not line.startswith("Using")]
    assert done.returncode == 1 and ". .venv/bin/activate" in said
