"""What a device refuses to launch: blocks of too many threads, and more shared memory than a block can have.

Each case is really launched, twice on a GPU: through the driver, whose names CuPy shows, and through the CUDA runtime,
whose error a program compiled by nvcc prints. C is poisoned first, so that a refusal shows in what it leaves behind.
"""

import contextlib
import ctypes
import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tilewise.build import build
from tilewise.count.occupancy import DEFAULT_SHARED_BYTES
from tilewise.measure import task as measure
from tilewise.measure import verify
from tilewise.measure.backends import emulator
from tilewise.measure.worker import outcome
from tilewise.study.registry import DTYPES, Geometry

COLUMNS = (
    "platform kernel dtype n p m block_x block_y threads shared_bytes limit_raised outcome error error_text "
    "driver_error c_untouched"
).split()
#: cudaFuncAttributeMaxDynamicSharedMemorySize
MAX_DYNAMIC_SHARED_SIZE = 8


@dataclass(frozen=True)
class Case:
    """A launch to try: `raised` says whether the kernel's limit of shared memory is raised before."""

    point: object
    geometry: Geometry
    raised: bool = False


def cases(points, kernels, limits):
    """The launches of a task: each point as it is, or, where its kernel's shared memory is dynamic, as much of it as is
    granted without asking, one byte more, as much as is granted on request, and again one byte more."""
    found = []
    for point in points:
        geometry = kernels[point.kernel].geometry(point)
        if not geometry.dynamic_shared_bytes:
            found.append(Case(point, geometry))
            continue
        default, most = DEFAULT_SHARED_BYTES, limits["shared_bytes_per_block_optin"]
        for size, raised in ((default, False), (default + 1, False), (most, True), (most + 1, True)):
            found.append(Case(point, dataclasses.replace(geometry, dynamic_shared_bytes=size), raised))
    return sorted(found, key=lambda case: case.raised)  # a kernel keeps a limit that was raised


def launch_limits(points, kernels, builds, device, config):
    """Try every launch; returns (measurements, facts), two DataFrames of one row a case.

    The arguments are those of measure.Work. A refused launch has the status invalid_launch and the CUDA error's own
    name; a launch that is taken has its product verified. Nothing is timed.
    """
    manifests = build.manifests(builds)
    attempt = _emulated if device["backend"] == "emulator" else _on_gpu
    rows, facts = [], []
    for case in cases(points, kernels, device["limits"]):
        job = measure.prepare(case.point, kernels[case.point.kernel], manifests, builds, device, config)
        row = job["row"] | {"shared_bytes": case.geometry.dynamic_shared_bytes}
        if row["status"] == "compile_error":
            rows.append(row)
            continue
        found, check = attempt(case, job, device, config)
        refusal = {"status": "invalid_launch", "message": f"{found['error']}: {found['error_text']}"}
        rows.append(row | (outcome(check, "launched and verified, not timed") if check else refusal))
        found |= {"outcome": "launched" if check else "refused", "limit_raised": case.raised}
        found["threads"] = case.geometry.threads
        facts.append(row | found)
    return measure.to_frame(rows), pd.DataFrame(facts, columns=COLUMNS).astype({"shared_bytes": "Int64"})


def untouched(C):
    """Whether C still is as `verify.poison` left it."""
    return bool(((C != C) if C.dtype.kind == "f" else (C == verify.INTEGER_POISON)).all())


def _emulated(case, job, device, config):
    row, limits = job["row"], device["limits"]
    if not case.raised:
        limits = limits | {"shared_bytes_per_block_optin": limits["shared_bytes_per_block"]}
    n, p, m = row["n"], row["p"], row["m"]
    A, B = verify.operands(np, row["dtype"], n, p, m, config["seed"])
    C = np.empty((n, m), DTYPES[row["dtype"]][1])
    verify.poison(C)
    found, check = {"error": "", "error_text": "", "driver_error": "", "c_untouched": None}, None
    try:
        emulator.Emulator(job["file"]).launch(job["instance"], case.geometry, A, B, C, n, p, m, limits)
        check = verify.check(C, *verify.reference(A, B), row["dtype"], p)
    except emulator.LaunchError as error:
        found["error"], found["error_text"] = str(error).split(": ", 1)
    return found | {"c_untouched": untouched(C)}, check


def _on_gpu(case, job, device, config):
    import cupy

    row = job["row"]
    A, B = verify.operands(cupy, row["dtype"], row["n"], row["p"], row["m"], config["seed"])
    C = cupy.empty((row["n"], row["m"]), A.dtype)

    def attempt(launch):
        verify.poison(C)
        cupy.cuda.runtime.deviceSynchronize()
        error = launch(case, job, A, B, C)
        cupy.cuda.runtime.deviceSynchronize()
        return error, untouched(C)

    driver_error, untouched_by_driver = attempt(_through_driver)
    try:
        (error, text), untouched_by_runtime = attempt(_through_runtime)
    except OSError:  # no runtime library: the driver's word has to do
        error, text, untouched_by_runtime = driver_error, "", untouched_by_driver
    launched = not (driver_error or error)
    check = verify.check(C, *verify.reference(A, B), row["dtype"], row["p"]) if launched else None
    found = {"error": error, "error_text": text, "driver_error": driver_error}
    return found | {"c_untouched": untouched_by_driver and untouched_by_runtime}, check


def _through_driver(case, job, A, B, C):
    """Launch as CuPy does; returns the driver's error name, or nothing."""
    import cupy

    kernel = cupy.RawModule(path=job["file"]).get_function(job["symbol"])
    sizes = tuple(np.int32(job["row"][name]) for name in "npm")
    shared = case.geometry.dynamic_shared_bytes
    try:
        if case.raised:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel(case.geometry.grid, case.geometry.block, (A, B, C, *sizes), shared_mem=shared)
    except cupy.cuda.driver.CUDADriverError as error:
        return str(error).split(":")[0]
    return ""


class _Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def _through_runtime(case, job, A, B, C):
    """Launch as a program compiled by nvcc does; returns the runtime's error name and text, or two empty strings."""
    cudart = ctypes.CDLL(_cudart())
    cudart.cudaGetErrorName.restype = cudart.cudaGetErrorString.restype = ctypes.c_char_p
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    shared = case.geometry.dynamic_shared_bytes
    values = [ctypes.c_void_p(array.data.ptr) for array in (A, B, C)]
    values += [ctypes.c_int(job["row"][name]) for name in "npm"]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    grid, block = (_Dim3(*pair, 1) for pair in (case.geometry.grid, case.geometry.block))
    path = str(Path(job["file"]).resolve()).encode()

    def steps():
        yield cudart.cudaLibraryLoadFromFile(ctypes.byref(library), path, None, None, 0, None, None, 0)
        yield cudart.cudaLibraryGetKernel(ctypes.byref(kernel), library, job["symbol"].encode())
        if case.raised:
            yield cudart.cudaFuncSetAttribute(kernel, MAX_DYNAMIC_SHARED_SIZE, shared)
        yield cudart.cudaLaunchKernel(kernel, grid, block, addresses, ctypes.c_size_t(shared), None)
        yield cudart.cudaDeviceSynchronize()

    error = next((code for code in steps() if code), 0)
    cudart.cudaGetLastError()  # and forget it
    if library:
        cudart.cudaLibraryUnload(library)
    return (cudart.cudaGetErrorName(error).decode(), cudart.cudaGetErrorString(error).decode()) if error else ("", "")


def _cudart():
    """Path of the CUDA runtime library: of CUDA's Python packages, or the system's."""
    with contextlib.suppress(Exception):  # it has an exception for each way not to find a library
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib("cudart").abs_path
    return "libcudart.so.13"
