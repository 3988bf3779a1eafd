"""Which matrices can be multiplied, and how BLAS reads them in memory: by their types, shapes and strides alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewise import UserError

#: The element types by those of the arrays. NumPy and CuPy have bfloat16 as the type of the package ml_dtypes.
DTYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.float16): "half",
    np.dtype(ml_dtypes.bfloat16): "bfloat16",
}
#: cuBLAS's sizes, and our kernels', are ints.
_LARGEST_INT = 2**31 - 1


def pitch(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int | None:
    """Elements from a row of a matrix to the next, if each row is in one piece and none overlaps another; else None.

    `strides` are bytes, as NumPy has them.
    """
    (rows, columns), (down, across) = shape, strides
    if columns > 1 and across != itemsize:
        return None
    if rows <= 1:
        return max(1, columns)
    return down // itemsize if down % itemsize == 0 and down >= columns * itemsize else None


def turned(matrix: Any) -> bool | None:
    """Whether a matrix, of NumPy or CuPy, lies in columns: False if its rows are in one piece, True if its columns are,
    None if neither is."""
    if pitch(matrix.shape, matrix.strides, matrix.itemsize) is not None:
        return False
    return True if pitch(matrix.T.shape, matrix.T.strides, matrix.itemsize) is not None else None


def check(given: Mapping[str, Any]) -> None:
    """UserError for arrays that cannot be multiplied: A, B and, if it is given, `out`, by their names."""
    A, B, out = given["A"], given["B"], given.get("out")
    if any(each.dtype not in DTYPES or each.dtype != A.dtype for each in given.values()):
        names = ", ".join(dtype.name for dtype in DTYPES)
        raise UserError(f"matmul: {_words(given)}; all must be of one of the types {names}")
    if any(each.ndim != 2 or max(each.shape) > _LARGEST_INT for each in given.values()):
        raise UserError(f"matmul: {_words(given)}; all must be matrices, with sizes below 2^31")
    if A.shape[1] != B.shape[0] or (out is not None and out.shape != (A.shape[0], B.shape[1])):
        raise UserError(f"matmul: {_words(given)}; A must be n x p, B p x m and out n x m")
    for name, each in given.items():
        if each.size and turned(each) is None:
            raise UserError(
                f"matmul: {name} has strides of {' and '.join(map(str, each.strides))} B; rows or columns must be in "
                "one piece, as cuBLAS takes them; pass a copy of it"
            )


def _words(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {each.dtype}{list(each.shape)}" for name, each in given.items())
