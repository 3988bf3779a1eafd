"""cuBLAS's GEMM, called as it is: `cupy.matmul` multiplies a row by a column by other means."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cupy.cuda import Stream, cublas, device, runtime

#: cublasComputeType_t
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
#: cublasGemmAlgo_t: cuBLAS chooses
_DEFAULT_ALGORITHM = -1
#: cublasMath_t: as it comes, and without partial sums that are rounded to two bytes
_DEFAULT_MATH, _SUMS_IN_FLOAT = 0, 16
#: What a user calls for these types: its own function. cublasGemmEx takes 1.5 us more at shapes such as 1100 (H200).
_ROUTINES = {"float": (cublas.sgemm, ctypes.c_float), "double": (cublas.dgemm, ctypes.c_double)}
#: The others: type of the matrices, how to compute.
_EX = {
    "tf32": (runtime.CUDA_R_32F, _COMPUTE_32F_FAST_TF32),
    "half": (runtime.CUDA_R_16F, _COMPUTE_32F),
    "bfloat16": (runtime.CUDA_R_16BF, _COMPUTE_32F),
}


@dataclass(frozen=True)
class _Stream:
    """A stream by its address, as CuPy takes those of others."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def gemm(dtype: str, n: int, p: int, m: int, A: Any, B: Any, C: Any) -> Callable[[int], None]:
    """C = A B by cuBLAS as a function of a stream's address.

    cuBLAS counts columns first, so its C^T = B^T A^T is ours without a transposition. CuPy's functions set the handle's
    stream to CuPy's current one before each call, so the stream has to be that.
    """
    scalar = _ROUTINES[dtype][1] if dtype in _ROUTINES else ctypes.c_float
    one, zero = scalar(1), scalar(0)
    handle = device.get_cublas_handle()
    cublas.setMathMode(handle, _SUMS_IN_FLOAT if dtype in ("half", "bfloat16") else _DEFAULT_MATH)
    shape = handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, m, n, p
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
    a, b, c = (array.data.ptr for array in (A, B, C))

    @functools.lru_cache(1)
    def on(stream: int) -> Any:
        return Stream.from_external(_Stream(stream))

    def own(stream: int = 0, _kept: Any = (one, zero)) -> None:
        with on(stream):
            _ROUTINES[dtype][0](*shape, alpha, b, m, a, p, beta, c, m)

    def ex(stream: int = 0, _kept: Any = (one, zero)) -> None:
        kind, compute = _EX[dtype]
        with on(stream):
            cublas.gemmEx(*shape, alpha, b, kind, m, a, kind, p, beta, c, kind, m, compute, _DEFAULT_ALGORITHM)

    return own if dtype in _ROUTINES else ex
