"""cuBLAS's GEMM, called as it is: `cupy.matmul` multiplies a row by a column by other means.

Bytes go through cublasGemmEx, which asks cublasLt's heuristics for an algorithm: CuPy has no functions of cublasLt.
Its kernels of the tensor cores take bytes only if both operands lie along k, with addresses and pitches of multiples of
4 (cuBLAS manual: cublasGemmEx, cublasLtMatmul, "IMMA kernels"). So a B that lies in rows is turned first, by the kernel
that wgmma_int8 uses, too.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cupy
from cupy.cuda import Stream, cublas, device, runtime

from tilewise.nvidia.layout import pitch
from tilewise.study.sources import INCLUDE

#: cublasComputeType_t
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_32I, _COMPUTE_32F_FAST_TF32 = 68, 70, 72, 77
#: cudaDataType: doubles, signed bytes and 32-bit integers
_CUDA_R_64F, _CUDA_R_8I, _CUDA_R_32I = 1, 3, 10
#: CUDA's limit of a grid in y
_MOST_GRID_Y = 65535
#: cublasGemmAlgo_t: cuBLAS chooses
_DEFAULT_ALGORITHM = -1
#: cublasMath_t: as it comes, and without partial sums that are rounded to two bytes
_DEFAULT_MATH, _SUMS_IN_FLOAT = 0, 16
#: What a user calls for these types: its own function. cublasGemmEx takes 1.5 us more at shapes such as 1100 (H200).
_ROUTINES = {"float": cublas.sgemm, "double": cublas.dgemm}
#: The others: type of the matrices, how to compute.
_EX = {
    "tf32": (runtime.CUDA_R_32F, _COMPUTE_32F_FAST_TF32),
    "half": (runtime.CUDA_R_16F, _COMPUTE_32F),
    "bfloat16": (runtime.CUDA_R_16BF, _COMPUTE_32F),
}
#: And of those that have their own function, for a batch.
_BATCHED = {"float": (runtime.CUDA_R_32F, _COMPUTE_32F), "double": (_CUDA_R_64F, _COMPUTE_64F)}


@dataclass(frozen=True)
class _Stream:
    """A stream by its address, as CuPy takes those of others."""

    address: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def gemm(dtype: str, n: int, p: int, m: int, A: Any, B: Any, C: Any, batch: int = 1) -> Callable[[int], None]:
    """C = A B by cuBLAS as a function of a stream's address; of a batch, whose matrices lie one below the other, by its
    strided batched call.

    CuPy's functions set the handle's stream to CuPy's current one before each call, so the stream has to be that.
    """
    cublas.setMathMode(device.get_cublas_handle(), _math_mode(dtype))

    on = _streams()
    if dtype == "int8":
        return _gemm_of_bytes(n, p, m, A, B, C, on)
    call = _bound(dtype, A, B, C) if batch == 1 else _bound_batch(dtype, n, p, m, A, B, C, batch)

    def multiply(stream: int = 0) -> None:
        with on(stream):
            call()

    return multiply


def multiply(dtype: str, A: Any, B: Any, C: Any) -> None:
    """C = A B by cuBLAS on CuPy's current stream, with CuPy's handle left as it was.

    A and B may be transposed (`layout.is_column_major`); the rows of C are in one piece. Of bytes, the rows of A are
    too, B is transposed or dense, and sizes, addresses and pitches are multiples of 4.
    """
    handle = device.get_cublas_handle()
    before = cublas.getMathMode(handle)
    cublas.setMathMode(handle, _math_mode(dtype))
    try:
        if dtype == "int8":
            _multiply_bytes(A, B, C)
        else:
            _bound(dtype, A, B, C)()
    finally:
        cublas.setMathMode(handle, before)


def _math_mode(dtype: str) -> int:
    return _SUMS_IN_FLOAT if dtype in ("half", "bfloat16") else _DEFAULT_MATH


def _bound(dtype: str, A: Any, B: Any, C: Any) -> Callable[[], None]:
    """C = A B on CuPy's current stream.

    cuBLAS counts columns first, so its C^T = B^T A^T is ours without a transposition.
    """
    (n, p), m = A.shape, B.shape[1]
    lies = (_as_it_lies(each.shape, each.strides, each.itemsize) for each in (B, A, C))
    (b_operation, b_pitch), (a_operation, a_pitch), (_, c_pitch) = lies
    alpha, beta, _ = _scalars(dtype)
    shape = device.get_cublas_handle(), b_operation, a_operation, m, n, p, alpha
    a, b, c = (array.data.ptr for array in (A, B, C))

    def own() -> None:
        _ROUTINES[dtype](*shape, b, b_pitch, a, a_pitch, beta, c, c_pitch)

    def ex() -> None:
        kind, compute = _EX[dtype]
        matrices = b, kind, b_pitch, a, kind, a_pitch, beta, c, kind, c_pitch
        cublas.gemmEx(*shape, *matrices, compute, _DEFAULT_ALGORITHM)

    return own if dtype in _ROUTINES else ex


def _bound_batch(dtype: str, n: int, p: int, m: int, A: Any, B: Any, C: Any, batch: int) -> Callable[[], None]:
    """The products of a batch on CuPy's current stream."""
    kind, compute = (_EX | _BATCHED)[dtype]
    alpha, beta, _ = _scalars(dtype)
    a, b, c = (array.data.ptr for array in (A, B, C))
    shape = device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, m, n, p, alpha
    matrices = b, kind, m, p * m, a, kind, p, n * p, beta, c, kind, m, n * m

    def multiply() -> None:
        cublas.gemmStridedBatchedEx(*shape, *matrices, batch, compute, _DEFAULT_ALGORITHM)

    return multiply


@functools.lru_cache(1024)
def _as_it_lies(shape: tuple[int, int], strides: tuple[int, int], itemsize: int) -> tuple[int, int]:
    """What cuBLAS has to do to a matrix, and its pitch in elements."""
    if (found := pitch(shape, strides, itemsize)) is not None:
        return cublas.CUBLAS_OP_N, found
    across = pitch(shape[::-1], strides[::-1], itemsize)
    assert across is not None  # the caller has looked
    return cublas.CUBLAS_OP_T, across


@functools.cache
def _scalars(dtype: str) -> tuple[int, int, Any]:
    """The addresses of alpha = 1 and beta = 0 in the type of the sums, and what holds them."""
    _, _, _, scalar, _ = compute_types(dtype)
    alpha_beta = (scalar * 2)(1, 0)
    place = ctypes.addressof(alpha_beta)
    return place, place + ctypes.sizeof(alpha_beta) // 2, alpha_beta


def compute_types(dtype: str) -> tuple[int, int, int, Any, int]:
    """cublasLt's types of a product: of A and B, of the computation, of alpha and beta, also in ctypes, and of C."""
    if dtype == "int8":
        return _CUDA_R_8I, _COMPUTE_32I, _CUDA_R_32I, ctypes.c_int32, _CUDA_R_32I
    kind, compute = (_EX | _BATCHED)[dtype]
    if dtype == "double":
        return kind, compute, _CUDA_R_64F, ctypes.c_double, kind
    return kind, compute, runtime.CUDA_R_32F, ctypes.c_float, kind


def turned_bytes(B: Any) -> tuple[Callable[[int], None], Any]:
    """A function of a stream's address that turns B, of bytes, and the array with the columns of B as its rows."""
    turned, on = _room_for_turned(B), _streams()
    turn = _turning(B, turned)

    def launch(stream: int = 0) -> None:
        with on(stream):
            turn()

    return launch, turned


def _room_for_turned(B: Any) -> Any:
    """A new array for the columns of B, of bytes, as rows."""
    p, m = B.shape
    return cupy.empty((m, -(-p // 16) * 16), cupy.int8)


def _turning(B: Any, turned: Any) -> Callable[[], None]:
    """A function that writes the columns of B, dense and of bytes, as rows on CuPy's current stream."""
    (p, m), pitch = B.shape, turned.shape[1]
    grid = -(-pitch // 128), -(-m // 128)
    if grid[1] <= _MOST_GRID_Y:
        return functools.partial(_turn_bytes(), grid, (256,), (B, turned, p, m, pitch))

    def by_elements() -> None:
        turned[:, :p], turned[:, p:] = B.T, 0

    return by_elements


def _streams() -> Callable[[int], Any]:
    """A function that returns CuPy's stream at an address, the last of which is kept."""

    @functools.lru_cache(1)
    def on(stream: int) -> Any:
        return Stream.from_external(_Stream(stream))

    return on


def _gemm_of_bytes(n: int, p: int, m: int, A: Any, B: Any, C: Any, on: Callable[[int], Any]) -> Callable[[int], None]:
    """`gemm` of int8, sums and C in int32; p and m are multiples of 4."""
    turn, b_turned = turned_bytes(B)
    call = _bound_bytes((n, p, m), (A.data.ptr, p), (b_turned.data.ptr, b_turned.shape[1]), (C.data.ptr, m))

    def multiply(stream: int = 0) -> None:
        turn(stream)
        with on(stream):
            call()

    return multiply


def _multiply_bytes(A: Any, B: Any, C: Any) -> None:
    """`multiply` of int8."""
    b, (operation, b_pitch) = B.data.ptr, _as_it_lies(B.shape, B.strides, 1)
    if operation == cublas.CUBLAS_OP_N:
        turned = _room_for_turned(B)
        _turning(B, turned)()
        b, b_pitch = turned.data.ptr, turned.shape[1]
    a, c = ((each.data.ptr, _as_it_lies(each.shape, each.strides, each.itemsize)[1]) for each in (A, C))
    _bound_bytes((*A.shape, B.shape[1]), a, (b, b_pitch), c)()


def _bound_bytes(
    sizes: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]
) -> Callable[[], None]:
    """The product of bytes on CuPy's current stream, by addresses and pitches; B lies along k, as A does."""
    (n, p, m), (alpha, beta, _) = sizes, _scalars("int8")
    shape = device.get_cublas_handle(), cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, m, n, p, alpha

    def multiply() -> None:
        matrices = b[0], _CUDA_R_8I, b[1], a[0], _CUDA_R_8I, a[1], beta, c[0], _CUDA_R_32I, c[1]
        cublas.gemmEx(*shape, *matrices, _COMPUTE_32I, _DEFAULT_ALGORITHM)

    return multiply


@functools.cache
def _turn_bytes() -> Any:
    """The kernel of turn_bytes.cuh, as CuPy launches it."""
    code = (INCLUDE / "turn_bytes.cuh").read_text(encoding="utf-8")
    module = cupy.RawModule(code=code, options=("-std=c++17", f"-I{INCLUDE}"), name_expressions=["turn_bytes"])
    return module.get_function("turn_bytes")
