"""The roofs of a device, measured and compared with its peaks.

They are how fast its memory, its caches and its shared memory deliver, and how fast the CUDA cores and the tensor
cores multiply and add.

The kernels are in kernels/bandwidth/ with their own registry: they multiply no matrices. Two CUDA events
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

from tilewise import KERNELS
from tilewise.compile.build import build
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.job import prepare
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import message_of
from tilewise.measure.task import Work
from tilewise.study import columns, registry
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point, point
from tilewise.study.precision import PRECISIONS, result_of
from tilewise.study.status import Status

LOG = logging.getLogger(__name__)
PROBES = KERNELS / "bandwidth"
#: The arithmetic intensities of source d, in FLOP/B: no reuse, and tiles of 16 x 16.
INTENSITIES = (0.25, 4)
WARM_UP, SAMPLES = 3, 20
ARRAY_BYTES = 2**30
#: n, p and m on the emulator.
SMALL_SHAPE = (2, 2, 9)
WRONG = {"status": Status.INCORRECT, "message": "the result is wrong, so its time means nothing"}


@dataclass(frozen=True)
class Probe:
    """A kernel that measures one quantity: how much work a run does, and what C must hold afterwards.

    work(point) is in bytes, operations or wavefronts, expected(A, B, point) an array or a number that C must equal
    exactly. `ceiling` gives the datasheet's figure from the device and the element type; None if it has none.
    `parameters` are those of the kernel, `shape` is n, p and m on a GPU, `operands` how many elements of A it reads; a
    probe that is `only_timed` does not run on the emulator.
    """

    quantity: str
    unit: str
    kernel: str
    work: Callable[[Point], int]
    expected: Callable[[Any, Any, Point], Any]
    ceiling: Callable[[Mapping[str, Any], str], float | None]
    parameters: Mapping[str, int]
    shape: tuple[int, int, int] | None = None
    operands: int = 1
    only_timed: bool = True


def _per_cycle(amount: int) -> Callable[[Mapping[str, Any], str], float]:
    """10^9 per second, from a number per cycle and multiprocessor."""
    return lambda gpu, dtype: amount * gpu["sms"] * gpu["sm_clock_mhz"] / 1000


def _peak(gpu: Mapping[str, Any], dtype: str) -> float | None:
    return (gpu["peak_gflops"] or {}).get(dtype)


MEMORY = Probe(
    "memory_bandwidth",
    "GB/s",
    "add",
    lambda at: 3 * at.n * at.m * PRECISIONS[at.dtype].itemsize,
    lambda A, B, at: A + B,
    lambda gpu, dtype: gpu["memory_bandwidth_gb_s"],
    {"block_x": 256, "block_y": 1},
    only_timed=False,
)
ARITHMETIC = Probe(
    "multiply_add_rate",
    "GFLOP/s",
    "multiply_add",
    lambda at: 16 * at.multiply_adds,
    lambda A, B, at: 28 + 8 * at.p,
    _peak,
    {"block_x": 256, "block_y": 1},
    only_timed=False,
)
#: Hopper multiplies and adds as many pairs per cycle as floats (CUDA Programming Guide: Arithmetic Instructions). The
#: chains have turns of 16 steps, up and down.
PAIRS = Probe(
    "multiply_add_rate",
    "GFLOP/s",
    "multiply_add_pairs",
    lambda at: 32 * at.multiply_adds,
    lambda A, B, at: 2 * (28 + 8 * 16 * (-(-at.p // 16) % 2)),
    lambda gpu, dtype: _per_cycle(2 * 2 * 128)(gpu, dtype) if gpu["compute_capability"] == "9.0" else None,
    {"block_x": 256, "block_y": 1},
    (4096, 65 * 16, 4096),
)
#: A wavefront, one pass of shared memory, moves 128 bytes, one in each cycle of a multiprocessor at most.
SHARED = [
    Probe(
        f"shared_wavefronts_{width}_bytes",
        "10⁹/s",
        "shared_loads",
        lambda at: 4 * at.multiply_adds * dict(at.parameters)["width"] // 128,
        lambda A, B, at: at.p * dict(at.parameters)["width"],
        _per_cycle(1),
        {"width": width},
        (4096, 1024, 1024),
    )
    for width in (4, 8, 16)
]
#: The L1 cache moves 128 bytes per cycle too. What the L2 cache can is in no datasheet.
CACHES = [
    Probe(
        f"l{level}_bandwidth",
        "GB/s",
        "cached_loads",
        lambda at: 64 * at.multiply_adds,
        lambda A, B, at: 16 * at.p,
        ceiling,
        {"level": level, "region": region},
        shape,
        region,
    )
    for level, region, ceiling, shape in (
        (1, 2**13, _per_cycle(128), (4096, 256, 1024)),
        (2, 2**22, lambda gpu, dtype: None, (1024, 256, 1024)),
    )
]
#: The double tensor cores' rate is in the datasheet of some GPUs, but does not follow from clocks and units.
TENSOR, TENSOR_INT8, TENSOR_DOUBLE = (
    Probe("tensor_rate", "GFLOP/s", kernel, work, expected, ceiling, {}, shape)
    for kernel, work, expected, ceiling, shape in (
        (
            "tensor_products",
            lambda at: 2 * 128 * 128 // PRECISIONS[at.dtype].itemsize * at.multiply_adds,
            lambda A, B, at: 1,
            _peak,
            (132, 8192, 1024),
        ),
        (
            "int8_products",
            lambda at: 2 * 128 * 128 * at.multiply_adds,
            lambda A, B, at: 1,
            _peak,
            (132, 8192, 1024),
        ),
        (
            "double_products",
            lambda at: 2 * 512 * at.multiply_adds,
            lambda A, B, at: 512 * at.p,
            lambda gpu, dtype: None,
            (528, 1024, 1024),
        ),
    )
)
CASES = [
    (MEMORY, "float"),
    *((ARITHMETIC, dtype) for dtype in ("float", "double", "int32")),
    *((PAIRS, dtype) for dtype in ("half", "bfloat16")),
    *((probe, "float") for probe in (*SHARED, *CACHES)),
    *((TENSOR, dtype) for dtype in ("half", "bfloat16", "tf32")),
    (TENSOR_INT8, "int8"),
    (TENSOR_DOUBLE, "double"),
]


class Bandwidth(Method):
    """The emulator runs the same kernels at small sizes and checks what they compute; it measures nothing.

    A probe that fails or is wrong has a row that says so, without a rate.
    """

    name = "bandwidth"

    def sources(self) -> list[Path]:
        return [PROBES / "registry.yaml", *(file for kernel in registry.load(PROBES).values() for file in kernel.files)]

    def run(self, work: Work) -> Tables:
        """Facts: a row per roof; measurements.csv gets no row, because nothing is multiplied."""
        kernels = registry.load(PROBES)
        emulated = work.device.backend == "emulator"
        cases = [(probe, dtype) for probe, dtype in CASES if not (emulated and probe.only_timed)]
        with tempfile.TemporaryDirectory() as folder:
            rows = []
            for number, (probe, dtype) in enumerate(cases, 1):
                row = _row(probe, dtype, kernels[probe.kernel], work, Path(folder))
                found = f"{row['measured']:,.1f} {row['unit']}" if row.get("measured") else row["message"]
                LOG.info("%d/%d %s %s: %s", number, len(cases), probe.quantity, dtype, found)
                rows.append(row)
        facts = columns.frame(rows + ceilings(rows[0]), self.name)
        return columns.frame([], "measurements", work.parameters), facts


def _row(probe: Probe, dtype: str, kernel: Kernel, work: Work, folder: Path) -> Row:
    device = work.device
    row: Row = {"platform": device.platform, "quantity": probe.quantity, "dtype": dtype, "unit": probe.unit}
    sheet = probe.ceiling(device.gpu, dtype) if device.gpu else None
    row |= {"datasheet": sheet, "samples": 0, "status": Status.OK, "message": ""}
    run = _emulated if device.backend == "emulator" else _timed

    def job(n: int, p: int, m: int) -> Job:
        at = point("bandwidth", kernel.name, dtype, n, p, m, **probe.parameters)
        builds = build({kernel.name: kernel.plan(at).instances}, {kernel.name: kernel}, device, folder)
        return prepare(at, kernel, builds, device, work.config)

    try:
        small = job(*SMALL_SHAPE)
        if small.row["status"] != Status.ERROR:  # as it is before a run
            return row | {name: small.row[name] for name in ("status", "message")}
        return row | run(probe, dtype, work, job)
    except Exception as error:  # whatever it is: the other probes run in this process too
        return row | {"status": Status.ERROR, "message": message_of(error)}


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


def _emulated(probe: Probe, dtype: str, work: Work, job: Callable[..., Job]) -> Row:
    from kernelscope.emulator import Emulator, run

    small, precision, result = job(*SMALL_SHAPE), PRECISIONS[dtype], result_of(dtype)
    size = max(probe.operands, small.point.n * small.point.m)
    A, B = (precision.narrow(np, np.ones(size, np.float32)) for _ in range(2))
    C = np.zeros((small.point.n, small.point.m), result.stored)
    libraries = {name: Emulator(file) for name, (file, _) in small.files.items()}
    run(libraries, small.launches, small.workspaces, {"A": A, "B": B, "C": C})
    wanted = probe.expected(precision.wide(np, A[:1]), precision.wide(np, B[:1]), small.point)
    right = bool((result.wide(np, C) == wanted).all())
    return {"message": "emulated: verified, not measured"} if right else WRONG


def _timed(probe: Probe, dtype: str, work: Work, job: Callable[..., Job]) -> Row:
    backend = open_backend("cuda", Setting(work.device, work.config, work.samples))
    precision, result = PRECISIONS[dtype], result_of(dtype)
    xp, kind = backend.xp, precision.stored
    if probe is MEMORY:
        free, _ = backend.memory()
        side = math.isqrt(min(ARRAY_BYTES, free // 8) // kind.itemsize)
        large = job(side, 1, side)
        A, B = (xp.random.default_rng(seed).random((side, side), dtype=kind) for seed in (1, 2))
    else:
        large = job(*(probe.shape or (4096, _steps(_peak(work.device.gpu, dtype)), 4096)))
        A, B = (precision.narrow(xp, xp.ones(size, xp.float32)) for size in (probe.operands, 1))
    at = large.point
    C = xp.zeros((at.n, at.m), result.stored)
    times_ms = backend.times(large, A, B, C, WARM_UP + SAMPLES)[WARM_UP:]
    if not bool((probe.expected(A, B, at) == result.wide(xp, C)).all()):
        return WRONG
    return {
        "measured": probe.work(at) / float(np.median(times_ms)) / 1e6,
        "samples": SAMPLES,
        "noise": float(np.std(times_ms) / np.mean(times_ms)),
    }


def _steps(gflops: float | None) -> int:
    """Length of the chains with which 4096 x 4096 threads take about 5 ms; a short one if no rate is known."""
    return 64 if gflops is None else max(16, round(gflops * 5e6 / (16 * 4096**2)))
