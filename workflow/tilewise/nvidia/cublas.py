"""cuBLAS's GEMM, called as it is: `cupy.matmul` multiplies a row by a column by other means.

Bytes go through cublasGemmEx, which asks cublasLt's heuristics for an algorithm: CuPy has no functions of cublasLt.
Its kernels of the tensor cores take bytes only if both operands lie along k, with pitches of a multiple of 4 (cuBLAS
manual: cublasGemmEx, cublasLtMatmul, "IMMA kernels"). So B is turned first, by the kernel that wgmma_int8 uses, too.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cupy
from cupy.cuda import Stream, cublas, device, runtime

from tilewise.study.sources import INCLUDE

#: cublasComputeType_t
_COMPUTE_32F, _COMPUTE_32I, _COMPUTE_32F_FAST_TF32 = 68, 72, 77
#: cudaDataType: signed bytes and 32-bit integers
_CUDA_R_8I, _CUDA_R_32I = 3, 10
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

    if dtype == "int8":
        return _gemm_of_bytes(n, p, m, A, B, C, on)
    return own if dtype in _ROUTINES else ex


def _gemm_of_bytes(n: int, p: int, m: int, A: Any, B: Any, C: Any, on: Callable[[int], Any]) -> Callable[[int], None]:
    """`gemm` of int8, sums and C in int32; p and m are multiples of 4."""
    turn, one, zero = _turn_bytes(), ctypes.c_int32(1), ctypes.c_int32(0)
    pitch = -(-p // 16) * 16
    turned = cupy.empty((m, pitch), cupy.int8)
    grid = (-(-pitch // 128), -(-m // 128))
    shape = device.get_cublas_handle(), cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, m, n, p
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
    a, b, c = A.data.ptr, turned.data.ptr, C.data.ptr

    def multiply(stream: int = 0, _kept: Any = (one, zero, turned)) -> None:
        with on(stream):
            turn(grid, (256,), (B, turned, p, m, pitch))
            cublas.gemmEx(
                *(*shape, alpha, b, _CUDA_R_8I, pitch, a, _CUDA_R_8I, p, beta, c, _CUDA_R_32I, m),
                *(_COMPUTE_32I, _DEFAULT_ALGORITHM),
            )

    return multiply


@functools.cache
def _turn_bytes() -> Any:
    """The kernel of turn_bytes.cuh, as CuPy launches it."""
    code = (INCLUDE / "turn_bytes.cuh").read_text()
    module = cupy.RawModule(code=code, options=("-std=c++17",), name_expressions=["turn_bytes"])
    return module.get_function("turn_bytes")
