"""BLAS layouts of matrices in memory, from their shapes and strides."""

from collections.abc import Sequence
from typing import Any


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


def is_column_major(matrix: Any) -> bool | None:
    """Whether a matrix, of NumPy or CuPy, lies in columns: False if its rows are in one piece, True if its columns are,
    None if neither is."""
    if pitch(matrix.shape, matrix.strides, matrix.itemsize) is not None:
        return False
    return True if pitch(matrix.T.shape, matrix.T.strides, matrix.itemsize) is not None else None
