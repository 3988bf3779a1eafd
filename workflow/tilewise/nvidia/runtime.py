"""Launch through the CUDA runtime, as a program compiled by nvcc does: to see the errors that such a program prints."""

import contextlib
import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelscope.launch import Array, Number
from tilewise.study.architectures import TOOLKITS
from tilewise.study.jobs import Job

#: cudaFuncAttributeMaxDynamicSharedMemorySize
MAX_DYNAMIC_SHARED_SIZE = 8


class _Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def library() -> ctypes.CDLL | None:
    """The CUDA runtime, if there is one."""
    try:
        cudart = ctypes.CDLL(_cudart())
    except OSError:
        return None
    cudart.cudaGetErrorName.restype = cudart.cudaGetErrorString.restype = ctypes.c_char_p
    return cudart


def launch_through_runtime(cudart: ctypes.CDLL, job: Job, operands: Sequence[Any], raised: bool) -> tuple[str, str]:
    """Launch a job of one launch without workspaces; returns the runtime's error name and text, or two empty strings.

    `cudart` is from `library`, `operands` are A, B and C.
    """
    loaded, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    [launch] = job.launches
    file, symbol = job.files[launch.instance]
    addresses = {name: array.data.ptr for name, array in zip("ABC", operands)}
    values: list[Any] = []
    for argument in launch.arguments:
        assert isinstance(argument, Array | Number)  # launch_limits is for kernels that every source could have
        values.append(ctypes.c_void_p(addresses[argument.name]) if isinstance(argument, Array) else argument.packed())
    arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    shared = launch.dynamic_shared_bytes
    path = str(Path(file).resolve()).encode()

    def steps() -> Any:
        yield cudart.cudaLibraryLoadFromFile(ctypes.byref(loaded), path, None, None, 0, None, None, 0)
        yield cudart.cudaLibraryGetKernel(ctypes.byref(kernel), loaded, symbol.encode())
        if raised:
            yield cudart.cudaFuncSetAttribute(kernel, MAX_DYNAMIC_SHARED_SIZE, shared)
        grid, block = _Dim3(*launch.grid), _Dim3(*launch.block)
        yield cudart.cudaLaunchKernel(kernel, grid, block, arguments, ctypes.c_size_t(shared), None)
        yield cudart.cudaDeviceSynchronize()

    error = next((code for code in steps() if code), 0)
    cudart.cudaGetLastError()  # and forget it
    if loaded:
        cudart.cudaLibraryUnload(loaded)
    return (cudart.cudaGetErrorName(error).decode(), cudart.cudaGetErrorString(error).decode()) if error else ("", "")


def _cudart() -> str:
    """Path of the CUDA runtime library: of CUDA's Python packages, or the system's."""
    with contextlib.suppress(Exception):  # it has an exception for each way not to find a library
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib("cudart").abs_path
    return f"libcudart.so.{TOOLKITS[-1].major}"
