"""The largest square product that a device holds: found by allocating, then timed once."""

import dataclasses
import math

import pandas as pd

from tilewise.build import build
from tilewise.files import digest
from tilewise.measure import task as measure
from tilewise.measure import worker
from tilewise.study.registry import DTYPES

COLUMNS = (
    "platform kernel dtype memory_total_bytes memory_free_bytes theoretical_n allocatable_n predicted_ms budget_s "
    "timed_n time_ms rows_checked"
).split()
#: cudaMalloc hands out memory in units of this many bytes.
ALLOCATION_UNIT = 512
#: The share of the budget that is planned with: the rate falls with n (H200: by 2% from n = 32768 to 54328).
PLANNED = 0.95


def theoretical_n(memory_bytes, itemsize):
    """The largest n whose three n x n matrices are no larger than the memory: sqrt(bytes / (3 itemsize))."""
    return math.isqrt(memory_bytes // (3 * itemsize))


def largest(fits, upper):
    """The largest n in 1..upper for which `fits(n)`, exact to 1, by bisection; 0 where not even 1 fits."""
    low, high = 0, upper + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def n_within(budget_s, gflops):
    """The largest n whose 2 n^3 operations take no longer than the budget at a rate in GFLOP/s."""
    return max(1, int((budget_s * gflops * 1e9 / 2) ** (1 / 3)))


def maximum_size(points, kernels, builds, device, config, journal):
    """Find and time the largest product of a kernel; returns (measurements, facts), two DataFrames of one row.

    The arguments are those of measure.measure_task; the one point carries the kernel, dtype and parameters.
    theoretical_n follows from the device's whole memory, allocatable_n is the largest n whose three matrices really
    allocate, predicted_ms what the kernel would take there at the rate of a smaller run, timed_n the largest n that
    keeps within maximum_size.budget_s. The emulator times nothing: there predicted_ms and time_ms are missing.
    """
    [point] = points
    kernel = kernels[point.kernel]
    manifests = build.manifests(builds)

    def job(n):
        square = dataclasses.replace(point, n=n, p=n, m=n)
        return measure.prepare(square, kernel, manifests, builds, device, config)

    key = digest([job(1)["key"], config["maximum_size"]])
    with measure.Journal(journal) as remembered:
        if key not in remembered.rows:
            row, facts = _probe(point, kernel, job, device, config)
            remembered.add(key, row | {"facts": facts})
        row = dict(remembered.rows[key])
    facts = row.pop("facts")
    return measure.to_frame([row]), pd.DataFrame([facts], columns=COLUMNS)


def _probe(point, kernel, job, device, config):
    """The row and the facts of the largest product; `job(n)` is the kernel's job at n."""
    itemsize = DTYPES[point.dtype][1].itemsize
    backend = _Emulated(device) if device["backend"] == "emulator" else _gpu()
    free, total = backend.memory()
    theoretical = theoretical_n(total, itemsize)
    allocatable = largest(lambda n: backend.allocates(n, itemsize), theoretical)
    budget = config["maximum_size"]["budget_s"]
    gflops = _rate(backend, job, allocatable, budget, config)
    timed = allocatable if gflops is None else min(allocatable, n_within(PLANNED * budget, gflops))
    row = backend.once(job(timed), config)
    facts = {
        "platform": device["platform"],
        "kernel": kernel.name,
        "dtype": point.dtype,
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "theoretical_n": theoretical,
        "allocatable_n": allocatable,
        "predicted_ms": None if gflops is None else 2 * allocatable**3 / gflops / 1e6,
        "budget_s": budget,
        "timed_n": timed,
        "time_ms": row["time_ms"],
        "rows_checked": min(config["verification"]["rows"], timed) if row["status"] == "ok" else None,
    }
    return row, facts


def _rate(backend, job, allocatable, budget_s, config):
    """GFLOP/s of the kernel at a size that takes a twentieth of the budget or more; None where nothing is timed.

    Not smaller: the rate falls with n (H200: by 4% from 16384 to 54711).
    """
    n = min(1024, allocatable)
    backend.once(job(n), config)  # loads the module, which is no part of the kernel's time
    while True:
        row = backend.once(job(n), config)
        if row["time_ms"] is None:
            return None
        if row["time_ms"] > 1000 * budget_s / 20 or 2 * n > allocatable:
            return row["gflops"]
        n *= 2


def _gpu():
    from tilewise.measure.backends import cuda as gpu

    return gpu


class _Emulated:
    """The memory of the emulated device, and a product on it; the same names as in tilewise.gpu."""

    def __init__(self, device):
        self.device = device

    def memory(self):
        total = self.device["limits"]["memory_bytes"]
        return total, total

    def allocates(self, n, itemsize):
        matrix = math.ceil(n * n * itemsize / ALLOCATION_UNIT) * ALLOCATION_UNIT
        return 3 * matrix <= self.memory()[0]

    def once(self, job, config):
        return worker.run_emulated(job, self.device, config)
