"""Check the types, shapes and strides of matrices."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelscope.element_types import ELEMENT_TYPES
from tilewise import UserError
from tilewise.nvidia.layout import is_column_major

#: The element types by those of the arrays. NumPy and CuPy have bfloat16 as the type of the package ml_dtypes.
DTYPES = {np.dtype(ELEMENT_TYPES[name].array_name): name for name in ("float", "double", "half", "bfloat16")}
#: cuBLAS's sizes, and our kernels', are ints.
_LARGEST_INT = 2**31 - 1


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
        if each.size and is_column_major(each) is None:
            raise UserError(
                f"matmul: {name} has strides of {' and '.join(map(str, each.strides))} B; rows or columns must be in "
                "one piece, as cuBLAS takes them; pass a copy of it"
            )


def _words(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {each.dtype}{list(each.shape)}" for name, each in given.items())
