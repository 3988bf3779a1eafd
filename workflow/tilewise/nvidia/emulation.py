"""cuBLAS's doubles made of products of bytes, its "fixed-point emulation", which CuPy has no functions for.

Where tensor cores multiply doubles, cuBLAS emulates only with the strategy `eager` and a workspace as large as its
manual computes ("Floating Point Emulation", "Fixed-Point"); otherwise it multiplies natively, without a word. So the
number of bits that it says it kept is read once.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import cupy
from cupy.cuda import cublas, device, runtime

#: cublasEmulationStrategy_t, cudaEmulationMantissaControl, cublasComputeType_t
_EAGER, _FIXED, _EMULATED_64F = 2, 1, 79
#: Bits of each element that are kept: those of a double and two more.
BITS = 55
#: cudaDataType of doubles, cublasGemmAlgo_t by which cuBLAS chooses, and what no number of bits is
_DOUBLES, _ANY_ALGORITHM, _NO_BITS = 1, -1, -1


class Unsupported(Exception):
    """This cuBLAS cannot do what a kernel asks of it: emulate doubles, or offer algorithms."""


@functools.cache
def _library() -> Any:
    """The library that CuPy has loaded, with the functions that CuPy does not call."""
    return ctypes.CDLL(f"libcublas.so.{cublas.getVersion(device.get_cublas_handle()) // 10000}")


def _call(name: str, *arguments: Any) -> None:
    """Call a function of the library. Raises Unsupported where it has none, CUBLASError if it fails."""
    try:
        function = getattr(_library(), name)
    except AttributeError:
        raise Unsupported(f"this cuBLAS has no {name}") from None
    if status := function(*arguments):
        raise cublas.CUBLASError(status)


@functools.cache
def _handle() -> tuple[ctypes.c_void_p, Any]:
    """A handle that emulates, and the array where it says how many bits it kept."""
    handle, kept = ctypes.c_void_p(), cupy.empty(1, cupy.int32)
    _call("cublasCreate_v2", ctypes.byref(handle))
    _call("cublasSetEmulationStrategy", handle, _EAGER)
    _call("cublasSetFixedPointEmulationMantissaControl", handle, _FIXED)
    _call("cublasSetFixedPointEmulationMaxMantissaBitCount", handle, BITS)
    _call("cublasSetFixedPointEmulationMantissaBitCountPointer", handle, ctypes.c_void_p(kept.data.ptr))
    return handle, kept


def workspace_bytes(n: int, p: int, m: int) -> int:
    """The bytes of the workspace, by the manual's formula."""
    n, p, m = (-(-side // multiple) * multiple for side, multiple in ((n, 1024), (p, 128), (m, 1024)))
    slices = -(-(BITS + 1) // 8)
    return int(1.25 * (slices * p + 4) * (n + m)) + 2**27


def gemm(n: int, p: int, m: int, A: Any, B: Any, C: Any) -> Callable[[int], None]:
    """C = A B in double by emulation as a function of a stream's address. Raises Unsupported if cuBLAS does without."""
    handle, kept = _handle()
    space = cupy.empty(workspace_bytes(n, p, m), cupy.uint8)
    one, zero = ctypes.c_double(1), ctypes.c_double(0)
    a, b, c, at = (ctypes.c_void_p(array.data.ptr) for array in (A, B, C, space))
    matrices = b, _DOUBLES, m, a, _DOUBLES, p, ctypes.byref(zero), c, _DOUBLES, m

    def multiply(stream: int = 0) -> None:
        _call("cublasSetStream_v2", handle, ctypes.c_void_p(stream))  # and the workspace is cuBLAS's own again
        _call("cublasSetWorkspace_v2", handle, at, ctypes.c_size_t(space.nbytes))
        _call("cublasGemmEx", handle, 0, 0, m, n, p, ctypes.byref(one), *matrices, _EMULATED_64F, _ANY_ALGORITHM)

    kept.fill(_NO_BITS)
    multiply()
    runtime.deviceSynchronize()
    if int(kept[0]) == _NO_BITS:
        raise Unsupported("this cuBLAS does not emulate doubles on this GPU")
    return multiply
