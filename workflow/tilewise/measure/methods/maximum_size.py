"""The largest square product that a device holds: found by allocating, then timed once."""

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelscope.files import digest
from tilewise import UserError
from tilewise.measure.backends import Bench, Setting, bench_of
from tilewise.measure.journal import Journal
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import row_or_failure
from tilewise.measure.row_summary import row_summary
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, bytes_of_product, result_of
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.sweeps import UNIT, Reading

LOG = logging.getLogger(__name__)
#: The share of the budget that is planned with: the rate falls with n (H200: by 2% from n = 32768 to 54328).
PLANNED = 0.95
#: Bytes that a GPU's generator of random numbers, or the check of rows, takes in addition to the matrices.
SPARE = 2**28


def theoretical_n(memory_bytes: int, dtype: str) -> int:
    """The largest n whose three n x n matrices are no larger than the memory: sqrt(bytes / those of three elements)."""
    return math.isqrt(memory_bytes // bytes_of_product(dtype, 1, 1, 1))


def largest(fits: Callable[[int], bool], upper: int) -> int:
    """The largest n in 1..upper for which `fits(n)`, exact to 1, by bisection; 0 if not even 1 fits."""
    low, high = 0, upper + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def n_within(budget_s: float, gflops: float) -> int:
    """The largest n whose 2 n^3 operations take no longer than the budget at a rate in GFLOP/s."""
    return max(1, int((budget_s * gflops * 1e9 / 2) ** (1 / 3)))


class MaximumSize(Method):
    """For each kernel: theoretical_n follows from the device's whole memory, allocatable_n is the largest n whose three
    matrices, and the workspaces of the kernel, really allocate, predicted_ms what the kernel would take there at the
    rate of a smaller run, timed_n the largest n that keeps within maximum_size.budget_s. A row each for the sizes of
    maximum_size.also_n that fit. The emulator times nothing: there predicted_ms and time_ms are missing."""

    name = "maximum_size"
    reading = Reading(shapes=False, only_cuda=True)
    points_per_point = 80

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return [config["maximum_size"], config["emulator"]["memory_bytes"] if backend == "emulator" else None]

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError for several points of one kernel, too."""
        super().check(points, kernels, place)
        names = [point.kernel for point in points]
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{place}: maximum_size is for one dtype and choice of {name}, not {names.count(name)}")

    def run(self, work: Work) -> Tables:
        """Measurements: the product of the largest n that was timed, per kernel. Facts: a row per kernel."""
        rows: list[Row] = []
        found: list[Row] = []
        with Journal(work.journal) as remembered:
            for point in work.points:
                row, facts = self._found(point, work, remembered)
                rows.append(row)
                found += facts
        return columns.frame(rows, "measurements", work.parameters), columns.frame(found, self.name)

    def _found(self, point: Point, work: Work, remembered: Journal) -> tuple[Row, list[Row]]:
        """The row of a kernel and its facts, from the journal or else from the device."""

        def job(n: int) -> Job:
            return work.jobs([dataclasses.replace(point, n=n, p=n, m=n)])[0]

        first = job(UNIT)
        key = digest([first.key, self.settings(work.config, work.device.backend)])
        if first.row["status"] in NOT_BUILT:
            remembered.rows[key] = first.row | {"facts": []}
        if key not in remembered.rows:
            bench = bench_of(Setting(work.device, work.config, work.samples))
            facts: list[Row] = []
            row = row_or_failure(first, lambda: _probe(point, job, bench, work, facts))
            remembered.add(key, row | {"facts": facts})
        row = dict(remembered.rows[key])
        return row, row.pop("facts")


def _probe(point: Point, job: Callable[[int], Job], bench: Bench, work: Work, found: list[Row]) -> Row:
    """The row of the largest product, whose facts are added to `found`; `job(n)` is the kernel's job at n.

    A kernel that fails at a small size has that row and no facts.
    """
    kernel = work.kernels[point.kernel]
    operand, result = PRECISIONS[point.dtype].itemsize, result_of(point.dtype).itemsize
    free, total = bench.memory()
    theoretical = theoretical_n(total, point.dtype)
    # The size of a workspace may depend on what divides n, so that a larger n needs less.
    unit = UNIT if kernel.workspaces else 1

    def most(spare: int) -> int:
        """The largest n that leaves this many bytes free."""

        def fits(units: int) -> bool:
            n = units * unit
            spaces = kernel.plan(dataclasses.replace(point, n=n, p=n, m=n), work.device).workspaces
            matrices = [n * n * each for each in (operand, operand, result)]
            return bench.allocates(matrices + [space.bytes for space in spaces] + [spare] * bool(spare))

        return unit * largest(fits, theoretical // unit)

    allocatable = most(0)
    settings = work.config["maximum_size"]
    budget = settings["budget_s"]
    small = _small(bench, job, allocatable, budget)
    if small["status"] != Status.OK:
        return small
    gflops = small["gflops"]
    timed = allocatable
    if gflops is not None:
        within = max(unit, n_within(PLANNED * budget, gflops) // unit * unit)
        timed = within if within < allocatable else most(SPARE)
    LOG.info("%s: the largest n that allocates is %d; %d is timed", point.kernel, allocatable, timed)
    facts = {
        "platform": work.device.platform,
        "kernel": point.kernel,
        "dtype": point.dtype,
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "theoretical_n": theoretical,
        "allocatable_n": allocatable,
        "predicted_ms": None if gflops is None else 2 * allocatable**3 / gflops / 1e6,
        "budget_s": budget,
    }
    rows = {}
    for n in [*(also for also in settings["also_n"] if also < timed), timed]:
        rows[n] = bench.once(job(n))
        LOG.info("%s: %s", job(n).point.label(), row_summary(rows[n]))
        checked = min(work.config["verification"]["rows"], n) if rows[n]["status"] == Status.OK else None
        found.append(facts | {"timed_n": n, "time_ms": rows[n]["time_ms"], "rows_checked": checked})
    return rows[timed]


def _small(bench: Bench, job: Callable[[int], Job], allocatable: int, budget_s: float) -> Row:
    """The row of the kernel at a size that takes a sixtieth of the budget or more; any, if nothing is timed.

    Not smaller: the rate falls with n (H200: by 4% from 16384 to 54711).
    """
    n = min(1024, allocatable)
    bench.once(job(n))  # loads the module, which is no part of the kernel's time
    while True:
        row = bench.once(job(n))
        if row["time_ms"] is None or row["time_ms"] > 1000 * budget_s / 60 or 2 * n > allocatable:
            return row
        n *= 2
