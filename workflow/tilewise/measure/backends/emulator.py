"""Verify CUDA kernels on the CPU emulator: it counts and checks, it does not time."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernelscope.emulator import Emulator, LaunchError, run
from tilewise import UserError
from tilewise.measure.backends import Attempt, Setting
from tilewise.measure.perturbation import Arrays, Change, deck
from tilewise.measure.result_rows import failed_row, shares, verification_columns
from tilewise.study import verify
from tilewise.study.jobs import Job, Row
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
        """One run of a job, whose whole product is checked. If the kernel has variables or workspaces, in which it
        could keep what it made, further runs follow, each after another change of what it meets."""
        arrays = self._arrays(job)
        _fill(arrays, job)
        try:
            spaces = self._run(job, arrays, self.device.limits)
            check, also = arrays.check(), shares(job.kernel, spaces)
            if check.ok:
                for change in self._changes(job, arrays):
                    arrays.perturb(change, [list(spaces.values())] * 2, job.kernel.reads_c)
                    if job.kernel.wanted.begins:
                        verify.begin(arrays.C, job.point.dtype, job.kernel.wanted)
                    self._run(job, arrays, self.device.limits, spaces)
                    found = arrays.check_lines()
                    if not found.ok:
                        check = replace(check, ok=False, message=f"a further product, after {change}: {found.message}")
                        break
        except LaunchError as error:
            return failed_row(job, Status.INVALID_LAUNCH, error)
        except UserError as error:
            return failed_row(job, Status.ERROR, error)
        return job.row | verification_columns(job, check, "emulated: verified, not timed", also)

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
        point = job.point
        arrays = self._arrays(job)
        verify.begin(arrays.C, point.dtype, job.kernel.wanted)
        try:
            self._run(job, arrays, limits)
        except LaunchError as error:
            name, text = str(error).split(": ", 1)
            return Attempt(name, text, "", verify.is_untouched(arrays.C, point.dtype), None)
        return Attempt("", "", "", verify.is_untouched(arrays.C, point.dtype), arrays.check())

    def _arrays(self, job: Job) -> Arrays:
        """The arrays of a job, as they lie."""
        point, arrays = job.point, Arrays(np, self.config)
        lying = tuple(job.kernel.lying(point).values())
        arrays.prepare(point.dtype, point.n, point.p, point.m, point.batch, lying=lying, wanted=job.kernel.wanted)
        return arrays

    @staticmethod
    def _changes(job: Job, arrays: Arrays) -> list[Change]:
        """The changes after which a job runs again: of every kind if its kernel keeps variables, of all operands if it
        keeps only workspaces."""
        if any(_opened(file).written for file, _ in job.files.values()):
            return deck(arrays.chance)
        return [Change("all")] if job.workspaces else []

    @staticmethod
    def _run(
        job: Job, arrays: Arrays, limits: Mapping, spaces: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Run a job, with workspaces as they are or new ones, which are returned. Raises LaunchError if a device of
        these limits would refuse."""
        libraries = {name: _opened(file) for name, (file, _) in job.files.items()}
        given = {"A": arrays.A, "B": arrays.B, "C": arrays.C} | dict(spaces or {})
        return run(libraries, job.launches, job.workspaces, given, limits)


def _fill(arrays: Arrays, job: Job) -> None:
    """Poison C, and fill a random half of it with plausible numbers that are wrong, so that the first run exposes a
    kernel that writes only where it finds poison, or not at all."""
    verify.begin(arrays.C, job.point.dtype, job.kernel.wanted)
    if job.kernel.wanted.begins:
        return
    assert arrays.reference
    product, _ = arrays.reference
    plausible = np.roll(product, 1)
    chosen = (np.random.default_rng().random(product.shape) < 0.5) & (plausible != product)
    result = result_of(job.point.dtype)
    arrays.C[chosen] = result.narrow(np, plausible[chosen].astype(np.float64 if result.exact else np.float32))
