"""The executor of Slurm's jobs, without Slurm."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
import snakemake_executor_plugin_slurm as slurm

import snakemake_executor_plugin_tilewise as plugin


@pytest.mark.parametrize(("ends", "cancelled"), [(False, ["1", "2"]), (True, ["2"])])
def test_a_stop_during_a_look_cancels_the_jobs_that_are_looked_at(monkeypatch, ends, cancelled):
    """Snakemake itself has no active jobs then."""
    executor, found = object.__new__(plugin.Executor), []
    executor.logger = logging.getLogger()
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
