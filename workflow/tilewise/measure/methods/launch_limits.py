"""Launches that a device refuses: too many threads, or too much shared memory, per block.

Each case is really launched, on a GPU twice: through the driver, whose names our launches show, and through the CUDA
runtime, whose error a program compiled by nvcc prints. C is poisoned first, so that a refusal shows in what it leaves.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kernelscope.limits import DEFAULT_SHARED_BYTES
from tilewise import UserError
from tilewise.measure import environment
from tilewise.measure.backends import Setting, bench_of
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import failed_row, message_of, verification_columns
from tilewise.measure.row_summary import row_summary
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.sweeps import Reading

LOG = logging.getLogger(__name__)


class Case(NamedTuple):
    """A launch to try: `raised` says whether the kernel's limit of shared memory is raised before."""

    job: Job
    raised: bool = False


def cases(jobs: Sequence[Job], limits: Mapping[str, Any]) -> list[Case]:
    """The launches of a task: each job as it is, or, if its kernel's shared memory is dynamic, as much of it as is
    granted without asking, one byte more, as much as is granted on request, and again one byte more."""
    found = []
    for job in jobs:
        [launch] = job.launches
        if not launch.dynamic_shared_bytes:
            found.append(Case(job))
            continue
        default, most = DEFAULT_SHARED_BYTES, limits["shared_bytes_per_block_optin"]
        for size, raised in ((default, False), (default + 1, False), (most, True), (most + 1, True)):
            asked = dataclasses.replace(launch, dynamic_shared_bytes=size)
            found.append(Case(dataclasses.replace(job, launches=(asked,)), raised))
    return sorted(found, key=lambda case: case.raised)  # a kernel keeps a limit that was raised


class LaunchLimits(Method):
    """A refused launch has the status invalid_launch and the CUDA error's own name; a launch that is taken has its
    product verified. Nothing is timed."""

    name = "launch_limits"
    reading = Reading(emulators_shapes=False, only_cuda=True)

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError for kernels of several launches; any number of threads is allowed."""
        for point in points:
            if len(kernels[point.kernel].plan(point).launches) > 1 or kernels[point.kernel].workspaces:
                raise UserError(f"{place}: {point.kernel} is several launches; launch_limits is for kernels of one")

    def run(self, work: Work) -> Tables:
        """Facts: a row per launch that was tried."""
        bench = bench_of(Setting(work.device, work.config, work.samples))
        rows: list[Row] = []
        facts: list[Row] = []
        tried = cases(work.jobs(), work.device.limits)
        for number, case in enumerate(tried, 1):
            [launch] = case.job.launches
            row = case.job.row | {"shared_bytes": launch.dynamic_shared_bytes}
            if row["status"] in NOT_BUILT:
                rows.append(row)
                continue
            try:
                found = bench.attempt(case.job, case.raised)
            except Exception as error:  # whatever it is: the other launches are tried in this process too
                rows.append(failed_row(case.job, Status.ERROR, message_of(error)))
            else:
                row |= {"gpu_uuid": found.gpu_uuid} | environment.columns(found.gpu_uuid)
                refusal = {"status": Status.INVALID_LAUNCH, "message": f"{found.error}: {found.error_text}"}
                note = "launched and verified, not timed"
                rows.append(row | (verification_columns(case.job, found.check, note) if found.check else refusal))
                said = found._asdict() | {"outcome": "launched" if found.check else "refused"}
                facts.append(row | said | {"limit_raised": case.raised, "threads": launch.threads})
            LOG.info("%d/%d %s: %s", number, len(tried), case.job.point.label(), row_summary(rows[-1]))
        return columns.frame(rows, "measurements", work.parameters), columns.frame(facts, "launch_limits")
