"""The executor `tilewise` of slurm/config.yaml: snakemake-executor-plugin-slurm, with reports of why jobs wait.

It overrides public methods only. Without them version 2.8.0 loses its jobs and waits for ever if the Slurm controller
does not answer; leaves jobs in Slurm if it is stopped while it looks at them; does not report jobs that Slurm does not
start; without an account, takes one from the user's old jobs; and looks at jobs of minutes less and less often, up to
every three minutes.
"""

import getpass
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import snakemake_executor_plugin_slurm as slurm
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
#: The most seconds between two looks at the jobs.
CHECK_S = 10


class Executor(slurm.Executor):
    """The plugin's executor: `seen` has the jobs of the last look, `ended` those that ended in it, `told` its words."""

    told, seen, ended = "", tuple[SubmittedJobInfo, ...](), tuple[SubmittedJobInfo, ...]()

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        self.ended += (job_info,)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **facts: Any) -> None:
        self.ended += (job_info,)
        super().report_job_error(job_info, msg, **facts)

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """The account of the settings, or else Slurm's default."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])

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
            counts = Counter(ours.values()).most_common()
            self._tell("; ".join(f"jobs that wait in Slurm: {count}: {reason}" for reason, count in counts), ours)
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
        super().cancel_jobs(list(jobs.values()))

    def _tell(self, text: str, waiting: dict[int, str]) -> None:
        if text != self.told:
            self.told = text
            self.logger.info(text, extra={"waiting": waiting})


def pending() -> dict[str, str] | str:
    """Slurm's reasons for this user's jobs that wait, by their numbers; or its error if it does not answer."""
    query = ["squeue", "--noheader", f"--user={getpass.getuser()}", "--states=PENDING", "--format=%i|%r"]
    try:
        answer = subprocess.run(query, capture_output=True, encoding="utf-8", timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode:
        return answer.stderr.strip()
    lines = (line.partition("|") for line in answer.stdout.splitlines())
    return {number: reason for number, _, reason in lines}
