"""Verify CUDA kernels on the CPU emulator: it counts and checks, it does not time."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewise import UserError
from tilewise.measure.backends import Attempt, Setting
from tilewise.measure.job import Job, Row
from tilewise.measure.rows import failed, outcome, shares
from tilewise.microscope.emulator import Emulator, LaunchError, run
from tilewise.study import verify
from tilewise.study.precision import result_of
from tilewise.study.status import Status

#: cudaMalloc hands out memory in units of this many bytes.
ALLOCATION_UNIT = 512

#: A library is opened once per process: that reads its symbols, and its fibers' stacks live as long as it is open.
_opened = functools.cache(Emulator)


class Backend:
    """The emulated device: the limits of device.json, and a memory whose size the config sets."""

    def __init__(self, setting: Setting):
        self.device, self.config = setting.device, setting.config

    def measure(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Verify the jobs; nothing has a time."""
        for job in jobs:
            answer(self.once(job))

    screen = measure

    def once(self, job: Job) -> Row:
        """One run of a job, whose whole product is checked. If the kernel has variables, in which it could keep what it
        made, two more runs follow: with other operands in the same arrays, then with these again."""
        A, B, C = self._operands(job)
        try:
            check, also = self._checked(job, A, B, C, self.device.limits)
            keeps = any(_opened(file).written for file, _ in job.files.values())
            for changed in (True, False):
                if keeps and check.ok:
                    check = self._again(job, A, B, C, changed, check)
        except LaunchError as error:
            return failed(job, Status.INVALID_LAUNCH, error)
        except UserError as error:
            return failed(job, Status.ERROR, error)
        return job.row | outcome(job, check, "emulated: verified, not timed", also)

    def memory(self) -> tuple[int, int]:
        total = self.config["emulator"]["memory_bytes"]
        return total, total

    def allocates(self, sizes: Sequence[int]) -> bool:
        units = sum(math.ceil(size / ALLOCATION_UNIT) for size in sizes)
        return units * ALLOCATION_UNIT <= self.memory()[0]

    def attempt(self, job: Job, raised: bool) -> Attempt:
        """Launch a job in the only way there is, so that there is one error."""
        limits = self.device.limits
        if not raised:
            limits = {**limits, "shared_bytes_per_block_optin": limits["shared_bytes_per_block"]}
        A, B, C = self._operands(job)
        try:
            check, _ = self._checked(job, A, B, C, limits)
        except LaunchError as error:
            name, text = str(error).split(": ", 1)
            return Attempt(name, text, "", verify.untouched(C, job.point.dtype), None)
        return Attempt("", "", "", verify.untouched(C, job.point.dtype), check)

    def _again(
        self, job: Job, A: np.ndarray, B: np.ndarray, C: np.ndarray, changed: bool, first: verify.Check
    ) -> verify.Check:
        """The check of the first run, if a further one, with C spoiled and workspaces made again, is right, too."""
        point = job.point
        if changed:
            A[...], B[...] = verify.operands(
                np, point.dtype, point.n, point.p, point.m, self.config["seed"] + 1, point.batch
            )
        verify.begin(C, point.dtype, job.kernel.wanted)
        check, _ = self._checked(job, A, B, C, self.device.limits)
        return first if check.ok else replace(check, message=f"a further product: {check.message}")

    def _operands(self, job: Job) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, B and C as it begins."""
        point = job.point
        A, B = verify.operands(np, point.dtype, point.n, point.p, point.m, self.config["seed"], point.batch)
        C = np.empty((point.batch * point.n, point.m), result_of(point.dtype).stored)
        A, B, C = (verify.laid(*each) for each in zip((A, B, C), job.kernel.lying(point).values()))
        verify.begin(C, point.dtype, job.kernel.wanted)
        return A, B, C

    def _checked(
        self, job: Job, A: np.ndarray, B: np.ndarray, C: np.ndarray, limits: Mapping
    ) -> tuple[verify.Check, str]:
        """Run a job and check what it leaves in C; what it says of its ways. Raises LaunchError if a device of these
        limits would refuse."""
        libraries = {name: _opened(file) for name, (file, _) in job.files.items()}
        spaces = run(libraries, job.launches, job.workspaces, {"A": A, "B": B, "C": C}, limits)
        point = job.point
        right = verify.reference(A, B, point.dtype, point.batch)
        check = verify.check(C, *right, point.dtype, point.p, job.kernel.wanted)
        return check, shares(job.kernel, spaces)
