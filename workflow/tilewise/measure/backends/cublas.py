"""cuBLAS's GEMM, called as it is: `cupy.matmul` multiplies a row by a column by other means."""

import ctypes
from collections.abc import Callable
from typing import Any

from cupy.cuda import cublas, device, runtime

#: cublasComputeType_t
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32F_FAST_TF32 = 68, 70, 77
#: cublasGemmAlgo_t: cuBLAS chooses
_DEFAULT_ALGORITHM = -1
#: Element type -> (type of the matrices, how to compute, type of alpha and beta).
_TYPES = {
    "float": (runtime.CUDA_R_32F, _COMPUTE_32F, ctypes.c_float),
    "tf32": (runtime.CUDA_R_32F, _COMPUTE_32F_FAST_TF32, ctypes.c_float),
    "double": (runtime.CUDA_R_64F, _COMPUTE_64F, ctypes.c_double),
    "half": (runtime.CUDA_R_16F, _COMPUTE_32F, ctypes.c_float),
    "bfloat16": (runtime.CUDA_R_16BF, _COMPUTE_32F, ctypes.c_float),
}


def gemm(dtype: str, n: int, p: int, m: int, A: Any, B: Any, C: Any) -> Callable[[int], None]:
    """C = A B by cuBLAS as a function of a stream's address.

    cuBLAS counts columns first, so its C^T = B^T A^T is ours without a transposition.
    """
    kind, compute, scalar = _TYPES[dtype]
    one, zero = scalar(1), scalar(0)
    handle = device.get_cublas_handle()
    pointers = ctypes.addressof(one), ctypes.addressof(zero)

    def multiply(stream: int = 0, _kept: Any = (one, zero)) -> None:
        cublas.setStream(handle, stream)
        cublas.gemmEx(
            *(handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, m, n, p),
            *(pointers[0], B.data.ptr, kind, m, A.data.ptr, kind, p),
            *(pointers[1], C.data.ptr, kind, m, compute, _DEFAULT_ALGORITHM),
        )

    return multiply
