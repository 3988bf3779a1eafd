"""The roofline of a device: its memory bandwidth and its rate of multiply-adds, measured beside the datasheet's.

The two kernels are in kernels/bandwidth/ and not in the registry: they multiply no matrices. Two CUDA events
are precise enough for runs of milliseconds on arrays that pass every cache, so NVBench is not needed here.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tilewise import UserError
from tilewise.build.build import build
from tilewise.measure.backends import emulator
from tilewise.study.points import Point
from tilewise.study.registry import DTYPES, KERNELS, Kernel

COLUMNS = ["platform", "quantity", "dtype", "measured", "datasheet", "unit", "samples", "noise", "status", "message"]
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
    kernel: Kernel
    work: object
    expected: object


def _kernel(name, columns):
    return Kernel(
        name,
        name,
        "cuda",
        tuple(DTYPES),
        f"{name}.cu",
        ("dtype",),
        ("block",),
        ("block_x", "block_y"),
        (1, columns),
        folder=KERNELS / "bandwidth",
    )


MEMORY = Probe(
    "memory_bandwidth",
    "GB/s",
    _kernel("add", "8 * block_x"),
    lambda at: 3 * at.n * at.m * DTYPES[at.dtype][1].itemsize,
    lambda A, B, at: A + B,
)
ARITHMETIC = Probe(
    "multiply_add_rate",
    "GFLOP/s",
    _kernel("multiply_add", "block_x"),
    lambda at: 16 * at.n * at.m * at.p,
    lambda A, B, at: 28 + 8 * at.p,
)
CASES = [(MEMORY, "float"), *((ARITHMETIC, dtype) for dtype in DTYPES)]


def bandwidth(device, folder):
    """Measure the roofline of a platform; returns a DataFrame with COLUMNS.

    `device` is the content of device.json, `folder` receives the build. The emulator runs the same kernels at small
    sizes and checks what they compute; it measures nothing.
    """
    run = _emulated if device["backend"] == "emulator" else _timed
    rows = []
    for probe, dtype in CASES:
        place = Path(folder) / probe.kernel.name
        instance = f"{probe.kernel.name}<{DTYPES[dtype][0]}>"
        entry = build(probe.kernel, [instance], device, place / dtype)["instances"][instance]
        row = dict.fromkeys(COLUMNS) | {"platform": device["platform"], "quantity": probe.quantity, "dtype": dtype}
        row |= {"datasheet": datasheet(device, probe.quantity, dtype), "unit": probe.unit, "samples": 0}
        rows.append(row | {"status": "ok", "message": ""} | run(probe, dtype, device, instance, entry, place / dtype))
    return pd.DataFrame(rows + ceilings(rows[0]), columns=COLUMNS).astype({"samples": "Int64"})


def datasheet(device, quantity, dtype):
    """The figure of device.json, from the clocks and units of the chip; None where there is no GPU or none is known."""
    gpu = device["gpu"]
    if not gpu:
        return None
    if quantity == MEMORY.quantity:
        return gpu["memory_bandwidth_gb_s"]
    return (gpu["peak_gflops"] or {}).get(dtype)


def ceilings(memory):
    """The rates that a row of memory bandwidth allows at source d's intensities, as rows."""

    def rate(gb_s, intensity):
        return None if gb_s is None else gb_s * intensity

    return [
        memory
        | {"quantity": f"ceiling_at_{intensity:g}_flop_per_byte", "unit": "GFLOP/s"}
        | {key: rate(memory[key], intensity) for key in ("measured", "datasheet")}
        for intensity in INTENSITIES
    ]


def _point(probe, dtype, n, p, m):
    return Point("bandwidth", probe.kernel.name, dtype, n, p, m, block_x=256, block_y=1)


def _emulated(probe, dtype, device, instance, entry, folder):
    at = _point(probe, dtype, 9, 9, 9)
    A, B = np.ones((9, 9), DTYPES[dtype][1]), np.ones((9, 9), DTYPES[dtype][1])
    C = np.zeros_like(A)
    library = emulator.Emulator(Path(folder) / f"{probe.kernel.name}.so")
    library.launch(instance, probe.kernel.geometry(at), A, B, C, 9, 9, 9)
    _compare(np.array_equal(C, np.broadcast_to(probe.expected(A, B, at), C.shape)), probe)
    return {"message": "emulated: verified, not measured"}


def _timed(probe, dtype, device, instance, entry, folder):
    import cupy
    from cupy.cuda import Event, Stream, get_elapsed_time, runtime

    kind = DTYPES[dtype][1]
    free, _ = runtime.memGetInfo()
    if probe is MEMORY:
        side = math.isqrt(min(ARRAY_BYTES, free // 8) // kind.itemsize)
        at = _point(probe, dtype, side, 1, side)
        A, B = (cupy.random.default_rng(seed).random((side, side), dtype=kind) for seed in (1, 2))
    else:
        at = _point(probe, dtype, 4096, _steps(datasheet(device, probe.quantity, dtype)), 4096)
        A, B = cupy.ones(1, kind), cupy.ones(1, kind)
    C = cupy.zeros((at.n, at.m), kind)
    geometry = probe.kernel.geometry(at)
    kernel = cupy.RawModule(path=str(Path(folder) / entry["file"])).get_function(entry["symbol"])
    arguments = (A, B, C, *(np.int32(size) for size in (at.n, at.p, at.m)))
    times_ms = []
    for _ in range(WARM_UP + SAMPLES):
        start, end = Event(), Event()
        start.record()
        kernel(geometry.grid, geometry.block, arguments, stream=Stream.null)
        end.record()
        end.synchronize()
        times_ms.append(get_elapsed_time(start, end))
    _compare(bool((probe.expected(A, B, at) == C).all()), probe)
    times_ms = times_ms[WARM_UP:]
    return {
        "measured": probe.work(at) / float(np.median(times_ms)) / 1e6,
        "samples": SAMPLES,
        "noise": float(np.std(times_ms) / np.mean(times_ms)),
    }


def _steps(gflops, seconds=0.005):
    """Length of the chains with which 4096 x 4096 threads take about so long; a short one where no rate is known."""
    return 64 if gflops is None else max(16, round(gflops * 1e9 * seconds / (16 * 4096**2)))


def _compare(equal, probe):
    if not equal:
        raise UserError(f"{probe.kernel.path}: the result is wrong, so its time means nothing")
