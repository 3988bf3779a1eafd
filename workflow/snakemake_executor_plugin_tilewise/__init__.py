"""The executor `tilewise` of slurm/config.yaml: snakemake-executor-plugin-slurm, with reports of why jobs wait.

It overrides public methods only. Without them version 2.8.0 loses its jobs and waits for ever if the Slurm controller
does not answer; lets jobs fail that are submitted meanwhile; leaves jobs in Slurm if it is stopped while it looks at
them; does not report jobs that Slurm does not start; without an account, takes one from the user's old jobs; refuses
GPUs with a hyphen in their names; loses Slurm's words of groups of jobs; and looks at jobs of minutes less and less
often, up to every three minutes.
"""

import getpass
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as slurm
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_tilewise import words
from tilewise import ROOT, UserError
from tilewise.study.slurm import REQUEST

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
#: The most seconds between two looks at the jobs.
CHECK_S = 10
#: What a path must not have: a shell on the login node acts on the first within double quotes, or ends a quotation at
#: an apostrophe; Slurm replaces a per cent sign in the names of logs.
UNFIT_PATH = re.compile(r"""[$`"\\'%\n]""")


class Executor(slurm.Executor):
    """The plugin's executor: `seen` has the jobs of the last look, `ended` those that ended in it, `told` its words."""

    told, seen, ended = "", tuple[SubmittedJobInfo, ...](), tuple[SubmittedJobInfo, ...]()

    def __post_init__(self, test_mode: bool = False) -> None:
        self.stopped = threading.Event()
        super().__post_init__(test_mode)

    def run_job(self, job: Any) -> None:
        """Submit a job as soon as Slurm answers."""
        while isinstance(error := pending(), str) and not self.stopped.is_set():
            self._tell(f"Slurm does not answer: {error}; waiting for it", {})
            self.stopped.wait(CHECK_S)
        if self.stopped.is_set():
            return
        try:
            super().run_job(job)
        except AttributeError as error:  # where the plugin names the rule of the job, which a group lacks
            self.report_job_error(SubmittedJobInfo(job), f"Job submission failed: {error.__context__ or error}")

    def print_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **facts: Any) -> None:
        """Report the words for every job of a group, too: Snakemake leaves them out."""
        for job in job_info.job.jobs if job_info.job.is_group() else [job_info.job]:
            job.log_error(msg, external_jobid=job_info.external_jobid, **facts)

    def cancel(self) -> None:
        self.stopped.set()
        super().cancel()

    def shutdown(self) -> None:
        self.stopped.set()
        super().shutdown()

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        self.ended += (job_info,)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **facts: Any) -> None:
        self.ended += (job_info,)
        known, text, log = "", msg or "", (job_info.aux or {}).get("slurm_logfile")
        if number := job_info.external_jobid:
            known = answer("scontrol", "--oneliner", "show", "job", number)[1]
        empty = "'FAILED'" in text and log is not None and not (log.is_file() and log.stat().st_size)
        super().report_job_error(job_info, words.failure(text, known, empty), **facts)

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """The account of the settings, or else Slurm's default."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])

    def get_partition_arg(self, job: Any) -> str:
        """The partition, and the GPUs whose names the plugin would refuse."""
        request = job.resources.get(REQUEST)
        return super().get_partition_arg(job) + (f" {shlex.quote(request)}" if request else "")

    @property
    def next_seconds_between_status_checks(self) -> float:
        """The plugin's choice, at most CHECK_S."""
        return min(super().next_seconds_between_status_checks, CHECK_S)

    @next_seconds_between_status_checks.setter
    def next_seconds_between_status_checks(self, seconds: float) -> None:
        slurm.Executor.next_seconds_between_status_checks.fset(self, seconds)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Look at the jobs, and say why some of them do not start; yields those that still wait or run."""
        self.seen, self.ended = tuple(active_jobs), ()
        waiting = pending() if active_jobs else {}
        known, error = active_jobs, waiting
        if not isinstance(waiting, str):
            ours = {job.job.jobid: waiting[job.external_jobid] for job in active_jobs if job.external_jobid in waiting}
            # Slurm gives no reason until it has looked at a job.
            counts = Counter(reason for reason in ours.values() if reason != "None").most_common()
            self._tell("; ".join(words.waiting(reason, count) for reason, count in counts), ours)
            known = [job async for job in super().check_active_jobs(active_jobs)]
            error = "no state of any job" if active_jobs and not known and not self.ended else ""
        if error:
            self._tell(f"Slurm does not answer: {error}; waiting for it", {})
            known = active_jobs
        for job in known:
            yield job

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel these jobs and those of a look that is under way, in which Snakemake has no active jobs."""
        ended = {job.external_jobid for job in self.ended}
        jobs = {job.external_jobid: job for job in (*self.seen, *active_jobs) if job.external_jobid not in ended}
        try:
            super().cancel_jobs(list(jobs.values()))
        except WorkflowError:
            numbers = " ".join(filter(None, jobs))
            print(f"Slurm does not answer, and its jobs may go on; later, type `scancel {numbers}`", file=sys.stderr)
            raise

    def _tell(self, text: str, waiting: dict[int, str]) -> None:
        if text != self.told:
            self.told = text
            self.logger.info(text, extra={"waiting": waiting})


def check() -> None:
    """Raise UserError if no job could run: because of a path, or because there is no Slurm."""
    for path in (Path.cwd(), ROOT, Path(sys.executable)):
        if found := UNFIT_PATH.search(str(path)):
            raise UserError(f"{path}: Slurm's jobs cannot run in a folder with {found[0]!r} in its path; rename it")
    here = "run this on a login node of the cluster; without `--profile slurm` the study runs on this machine"
    if not shutil.which("sbatch"):
        raise UserError(f"there is no sbatch on the PATH: {here}")
    if isinstance(error := pending(), str):
        raise UserError(f"Slurm does not answer ({error}); if it is down, run the same command later; else {here}")


def pending() -> dict[str, str] | str:
    """Slurm's reasons for this user's jobs that wait, by their numbers; or its error if it does not answer."""
    query = ("squeue", "--noheader", f"--user={getpass.getuser()}", "--states=PENDING", "--format=%i|%r")
    answers, text = answer(*query)
    lines = (line.partition("|") for line in text.splitlines())
    return {number: reason for number, _, reason in lines} if answers else text


def answer(*command: str) -> tuple[bool, str]:
    """Whether a command of Slurm's succeeds within 30 s, and what it prints, or the last line of its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return not done.returncode, "".join(done.stderr.strip().splitlines()[-1:]) if done.returncode else done.stdout
