"""The roofline of a device: its memory bandwidth and its rate of multiply-adds, measured beside the datasheet's.

The two kernels are in kernels/bandwidth/ with a registry of their own: they multiply no matrices. Two CUDA events
are precise enough for runs of milliseconds on arrays that pass every cache, so NVBench is not needed here.
"""

import logging
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewise import KERNELS, UserError
from tilewise.build.build import build
from tilewise.measure.job import Job, Row, prepare
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import Work
from tilewise.study import columns, registry
from tilewise.study.points import Point, point
from tilewise.study.precision import PRECISIONS
from tilewise.study.registry import Kernel

LOG = logging.getLogger(__name__)
FOLDER = KERNELS / "bandwidth"
#: The arithmetic intensities of source d, in FLOP/B: no reuse, and tiles of 16 x 16.
INTENSITIES = (0.25, 4)
WARM_UP, SAMPLES = 3, 20
ARRAY_BYTES = 2**30


@dataclass(frozen=True)
class Probe:
    """A kernel that measures one quantity: how much work a run does, and what C must hold afterwards.

    work(point) is in bytes or operations, expected(A, B, point) an array or a number that C must equal exactly.
    """

    quantity: str
    unit: str
    kernel: str
    work: Callable[[Point], int]
    expected: Callable[[Any, Any, Point], Any]


MEMORY = Probe(
    "memory_bandwidth",
    "GB/s",
    "add",
    lambda at: 3 * at.n * at.m * PRECISIONS[at.dtype].itemsize,
    lambda A, B, at: A + B,
)
ARITHMETIC = Probe(
    "multiply_add_rate",
    "GFLOP/s",
    "multiply_add",
    lambda at: 16 * at.multiply_adds,
    lambda A, B, at: 28 + 8 * at.p,
)
CASES = [(MEMORY, "float"), *((ARITHMETIC, dtype) for dtype in ("float", "double", "int32"))]


class Bandwidth(Method):
    """The emulator runs the same kernels at small sizes and checks what they compute; it measures nothing."""

    name = "bandwidth"

    def sources(self) -> list[Path]:
        """As Method says."""
        return [FOLDER / "registry.yaml", *(file for kernel in registry.load(FOLDER).values() for file in kernel.files)]

    def run(self, work: Work) -> Tables:
        """As Method says. No product is made: measurements.csv gets no row."""
        kernels = registry.load(FOLDER)
        with tempfile.TemporaryDirectory() as folder:
            rows = []
            for number, (probe, dtype) in enumerate(CASES, 1):
                row = _row(probe, dtype, kernels[probe.kernel], work, Path(folder))
                found = f"{row['measured']:,.1f} {row['unit']}" if row.get("measured") else row["message"]
                LOG.info("%d/%d %s %s: %s", number, len(CASES), probe.quantity, dtype, found)
                rows.append(row)
        facts = columns.frame(rows + ceilings(rows[0]), self.name)
        return columns.frame([], "measurements", work.parameters), facts


def _row(probe: Probe, dtype: str, kernel: Kernel, work: Work, folder: Path) -> Row:
    device = work.device
    row = {"platform": device["platform"], "quantity": probe.quantity, "dtype": dtype, "unit": probe.unit}
    row |= {"datasheet": datasheet(device, probe.quantity, dtype), "samples": 0, "status": "ok", "message": ""}
    run = _emulated if device["backend"] == "emulator" else _timed

    def job(n: int, p: int, m: int) -> Job:
        at = point("bandwidth", kernel.name, dtype, n, p, m, block_x=256, block_y=1)
        place = folder / kernel.name / dtype
        manifest = build(kernel, kernel.instances(at), device, place)
        return prepare(at, kernel, {kernel.name: manifest}, {kernel.name: place}, device, work.config)

    return row | run(probe, dtype, device, job)


def datasheet(device: Mapping[str, Any], quantity: str, dtype: str) -> float | None:
    """The figure of device.json, from the clocks and units of the chip; None if there is no GPU or none is known."""
    gpu = device["gpu"]
    if not gpu:
        return None
    if quantity == MEMORY.quantity:
        return gpu["memory_bandwidth_gb_s"]
    return (gpu["peak_gflops"] or {}).get(dtype)


def ceilings(memory: Row) -> list[Row]:
    """The rates that a row of memory bandwidth allows at source d's intensities, as rows."""

    def rate(gb_s: float | None, intensity: float) -> float | None:
        return None if gb_s is None else gb_s * intensity

    return [
        memory
        | {"quantity": f"ceiling_at_{intensity:g}_flop_per_byte", "unit": "GFLOP/s"}
        | {key: rate(memory.get(key), intensity) for key in ("measured", "datasheet")}
        for intensity in INTENSITIES
    ]


def _emulated(probe: Probe, dtype: str, device: Mapping[str, Any], job: Callable[..., Job]) -> Row:
    from tilewise.build.emulator import Emulator, run

    small = job(9, 9, 9)
    A, B = (np.ones((9, 9), PRECISIONS[dtype].stored) for _ in range(2))
    C = np.zeros_like(A)
    libraries = {name: Emulator(file) for name, (file, _) in small.files.items()}
    run(libraries, small.launches, small.workspaces, {"A": A, "B": B, "C": C})
    _compare(np.array_equal(C, np.broadcast_to(probe.expected(A, B, small.point), C.shape)), small)
    return {"message": "emulated: verified, not measured"}


def _timed(probe: Probe, dtype: str, device: Mapping[str, Any], job: Callable[..., Job]) -> Row:
    import cupy

    from tilewise.measure.backends.cuda import bound, elapsed

    kind = PRECISIONS[dtype].stored
    if probe is MEMORY:
        free, _ = cupy.cuda.runtime.memGetInfo()
        side = math.isqrt(min(ARRAY_BYTES, free // 8) // kind.itemsize)
        large = job(side, 1, side)
        A, B = (cupy.random.default_rng(seed).random((side, side), dtype=kind) for seed in (1, 2))
    else:
        large = job(4096, _steps(datasheet(device, probe.quantity, dtype)), 4096)
        A, B = cupy.ones(1, kind), cupy.ones(1, kind)
    at = large.point
    C = cupy.zeros((at.n, at.m), kind)
    launch, _, _kept = bound(large, A, B, C)
    times_ms: list[float] = []
    for _ in range(WARM_UP + SAMPLES):
        with elapsed() as ms:
            launch(0)
        times_ms += ms
    _compare(bool((probe.expected(A, B, at) == C).all()), large)
    times_ms = times_ms[WARM_UP:]
    return {
        "measured": probe.work(at) / float(np.median(times_ms)) / 1e6,
        "samples": SAMPLES,
        "noise": float(np.std(times_ms) / np.mean(times_ms)),
    }


def _steps(gflops: float | None, seconds: float = 0.005) -> int:
    """Length of the chains with which 4096 x 4096 threads take about so long; a short one if no rate is known."""
    return 64 if gflops is None else max(16, round(gflops * 1e9 * seconds / (16 * 4096**2)))


def _compare(equal: bool, job: Job) -> None:
    if not equal:
        raise UserError(f"{job.kernel.path}: the result is wrong, so its time means nothing")
