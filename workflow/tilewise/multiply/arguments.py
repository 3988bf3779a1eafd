"""Check the types, shapes and strides of matrices."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kernelscope.element_types import ELEMENT_TYPES
from tilewise import UserError
from tilewise.nvidia.layout import is_column_major, pitch
from tilewise.study.precision import result_of

#: The element types by those of the arrays. NumPy and CuPy have bfloat16 as the type of the package ml_dtypes.
DTYPES = {np.dtype(ELEMENT_TYPES[name].array_name): name for name in ("float", "double", "half", "bfloat16", "int8")}
#: Bytes that are loaded at a time, by our kernels, by cuBLAS's fast ones and by TMA.
ALIGNED = 16
#: cuBLAS's sizes, and our kernels', are ints.
_LARGEST_INT = 2**31 - 1


class Layout(NamedTuple):
    """Where a matrix lies: its type, shape and strides as NumPy has them, and the bytes after a multiple of ALIGNED."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def of(cls, array: Any) -> "Layout":
        """That of CuPy's array."""
        return cls(array.dtype, array.shape, array.strides, array.data.ptr % ALIGNED)

    @classmethod
    def in_rows(cls, dtype: np.dtype, rows: int, columns: int) -> "Layout":
        """That of a new array."""
        return cls(dtype, (rows, columns), (columns * dtype.itemsize, dtype.itemsize))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def T(self) -> "Layout":
        """That of the transposed matrix."""
        return self._replace(shape=self.shape[::-1], strides=self.strides[::-1])

    @property
    def is_dense(self) -> bool:
        """Whether it lies row by row without gaps, from a multiple of ALIGNED on."""
        return self.offset == 0 and pitch(self.shape, self.strides, self.itemsize) == self.shape[1]

    @property
    def is_even(self) -> bool:
        """Whether each of its rows, or columns, begins and ends at a multiple of ALIGNED."""
        lies = self.T if is_column_major(self) else self
        elements = (lies.shape[1], pitch(lies.shape, lies.strides, self.itemsize) or 0)
        return not any(number % ALIGNED for number in (self.offset, *(self.itemsize * each for each in elements)))


def result_type(dtype: np.dtype) -> np.dtype:
    """The type of C for A and B of a type: int32 for int8, for others the type itself."""
    name = DTYPES[dtype]
    return np.dtype(np.int32) if result_of(name).name != name else dtype


def check(given: Mapping[str, Layout]) -> None:
    """UserError for matrices that cannot be multiplied: A, B and, if it is given, `out`, by their names."""
    A, B, out = given["A"], given["B"], given.get("out")
    if A.dtype not in DTYPES or B.dtype != A.dtype:
        names = ", ".join(dtype.name for dtype in DTYPES)
        raise UserError(f"matmul: {_words(given)}; A and B must be of the same type, one of {names}")
    if out is not None and out.dtype != (wanted := result_type(A.dtype)):
        raise UserError(f"matmul: {_words(given)}; out must be of the type {wanted.name}")
    if any(len(each.shape) != 2 or max(each.shape) > _LARGEST_INT for each in given.values()):
        raise UserError(f"matmul: {_words(given)}; all must be matrices, with sizes below 2^31")
    if A.shape[1] != B.shape[0] or (out is not None and out.shape != (A.shape[0], B.shape[1])):
        raise UserError(f"matmul: {_words(given)}; A must be n x p, B p x m and out n x m")
    for name, each in given.items():
        if not each.size:
            continue
        across = is_column_major(each)
        if across is None:
            raise UserError(
                f"matmul: {name} has strides of {_strides(each)}; rows or columns must be in one piece, as cuBLAS "
                "takes them; pass a copy of it"
            )
        lies = each.T if across else each
        if (pitch(lies.shape, lies.strides, each.itemsize) or 0) > _LARGEST_INT:
            raise UserError(f"matmul: {name} has strides of {_strides(each)}; pass a copy, with less between its rows")


def overlap(one: Layout, at: int, other: Layout, there: int) -> bool:
    """Whether two matrices, which begin at these addresses, have a byte in common."""
    if at >= there + _extent(other) or there >= at + _extent(one):
        return False
    return np.shares_memory(np.asarray(_Placed(one, at)), np.asarray(_Placed(other, there)))


@functools.lru_cache(1024)
def _extent(lies: Layout) -> int:
    """Bytes from a matrix's first element to the end of its last."""
    return lies.size and sum(stride * (size - 1) for stride, size in zip(lies.strides, lies.shape)) + lies.itemsize


class _Placed:
    """A matrix at an address, as NumPy takes it; nothing is read there."""

    def __init__(self, lies: Layout, place: int) -> None:
        kind = {"shape": lies.shape, "strides": lies.strides, "typestr": f"|V{lies.itemsize}"}
        self.__array_interface__ = kind | {"data": (place, True), "version": 3}


def _strides(matrix: Layout) -> str:
    return f"{' and '.join(map(str, matrix.strides))} B"


def _words(given: Mapping[str, Layout]) -> str:
    return ", ".join(f"{name} {each.dtype}{list(each.shape)}" for name, each in given.items())
