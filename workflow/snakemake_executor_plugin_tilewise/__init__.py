"""The executor `tilewise` of slurm/config.yaml: that of snakemake-executor-plugin-slurm, patient and talkative.

Only public methods are overridden. What version 2.8.0 does without them: if the Slurm controller does not answer, it
forgets its jobs and waits for ever; it says nothing of jobs that Slurm does not start; without an account it looks for
one in the user's old jobs; and it looks at jobs of minutes less and less often, up to every three minutes.
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
LOOK_S = 10


class Executor(slurm.Executor):
    """The plugin's executor, as the module says."""

    told = ""

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """The account of the settings, or else Slurm's own default."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])

    @property
    def next_seconds_between_status_checks(self) -> float:
        """What the plugin says, but no more than LOOK_S."""
        return min(super().next_seconds_between_status_checks, LOOK_S)

    @next_seconds_between_status_checks.setter
    def next_seconds_between_status_checks(self, seconds: float) -> None:
        slurm.Executor.next_seconds_between_status_checks.fset(self, seconds)

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """Look at the jobs, and say why some of them do not start; yields those that still wait or run."""
        waiting = pending() if active_jobs else {}
        if isinstance(waiting, str):
            self._tell(f"Slurm does not answer: {waiting}; waiting for it", {})
            for job in active_jobs:
                yield job
            return
        ours = {each.job.jobid: waiting[each.external_jobid] for each in active_jobs if each.external_jobid in waiting}
        counts = Counter(ours.values()).most_common()
        self._tell("; ".join(f"jobs that wait in Slurm: {count}: {reason}" for reason, count in counts), ours)
        async for job in super().check_active_jobs(active_jobs):
            yield job

    def _tell(self, text: str, waiting: dict[int, str]) -> None:
        if text != self.told:
            self.told = text
            self.logger.info(text, extra={"waiting": waiting})


def pending() -> dict[str, str] | str:
    """Slurm's reasons for this user's jobs that wait, by their numbers; or its error if it does not answer."""
    query = ["squeue", "--noheader", f"--user={getpass.getuser()}", "--states=PENDING", "--format=%i|%r"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer.returncode:
        return answer.stderr.strip()
    lines = (line.partition("|") for line in answer.stdout.splitlines())
    return {number: reason for number, _, reason in lines}
