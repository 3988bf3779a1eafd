"""The element types: how operands are stored, how sums are kept, how a result is rounded, and what that may change."""

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Precision:
    """How a product is calculated in one element type.

    `cpp` is the type of an element in C++, `stored` that of A, B and C in memory; bfloat16 is kept as its 16 bits,
    because CuPy has no such type. C may be of another type, `result` names its precision. Operands that are integers
    are random from `least` to `largest`. A kernel may round the operands (`input_roundoff`), it keeps its sums with
    `sum_roundoff`, and it rounds a sum when it stores it (`result_roundoff`, and at the smallest numbers
    `result_floor`). Roundoffs are relative: half the distance from 1 to the next number, or, for sums on tensor cores,
    the whole distance, because those truncate. `poison`, as an integer of that size, has the bits of what no product
    contains: NaN, or the smallest integer; `finite_poison`
    those of the largest finite number, for kernels that read C and multiply it by 0.
    """

    name: str
    cpp: str
    stored: np.dtype
    sum_roundoff: float
    poison: int
    finite_poison: int
    input_roundoff: float = 0.0
    result_roundoff: float = 0.0
    result_floor: float = 0.0
    header: str = ""
    result: str = ""
    least: int = -9
    largest: int = 9

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.stored.itemsize

    @property
    def exact(self) -> bool:
        """Whether a product must be equal to the reference: of integers."""
        return self.stored.kind == "i"

    def growth(self, p: int) -> float:
        """The largest error of a sum of p products, as a share of |A| |B|, before it is stored.

        Rounding of both operands, then gamma_p = p u / (1 - p u) for any order of the sum (N. J. Higham, Accuracy and
        Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 3.5). 0 for integers.
        """
        unit = self.sum_roundoff
        gamma = p * unit / (1 - p * unit) if p * unit < 1 else math.inf
        return (1 + self.input_roundoff) ** 2 * (1 + gamma) - 1 if self.input_roundoff else gamma

    @property
    def has_short_sums(self) -> bool:
        """Whether a kernel may as well keep its sums in the type itself, which is shorter than float."""
        return self.result_roundoff > 0

    def with_short_sums(self) -> "Precision":
        """The precision of kernels that keep their sums in the type itself: each product and each sum is rounded."""
        return replace(self, sum_roundoff=2 * self.result_roundoff) if self.has_short_sums else self

    def wide(self, xp: Any, array: Any) -> Any:
        """A stored array (of the array module xp) as numbers that float64 holds exactly."""
        if self.name == "bfloat16":
            return (array.astype(xp.uint32) << 16).view(xp.float32)
        return array

    def narrow(self, xp: Any, numbers: Any) -> Any:
        """Numbers, rounded to the nearest that can be stored, as they are stored."""
        if self.name != "bfloat16":
            return numbers.astype(self.stored, copy=False)
        on_host = numbers if xp is np else numbers.get()
        return xp.asarray(on_host.astype(ml_dtypes.bfloat16).view(np.uint16))


#: The element types by name. half and bfloat16 are multiplied exactly and summed in float, which is what C is rounded
#: from; tf32 operands are floats that the kernel rounds to 10 bits. Sums on tensor cores are truncated. int8 is
#: multiplied and summed exactly in int32, which C holds: up to p = 2^17 - 1 no sum leaves its range.
PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float", "float", np.dtype(np.float32), 2.0**-24, -1, 0x7F7FFFFF),
        Precision("double", "double", np.dtype(np.float64), 2.0**-53, -1, 0x7FEFFFFFFFFFFFFF),
        Precision("int32", "int", np.dtype(np.int32), 0.0, -(2**31), -(2**31)),
        Precision(
            "int8", "signed char", np.dtype(np.int8), 0.0, -(2**7), -(2**7), result="int32", least=-128, largest=127
        ),
        Precision(
            "half",
            "__half",
            np.dtype(np.float16),
            2.0**-23,
            -1,
            0x7BFF,
            result_roundoff=2.0**-11,
            result_floor=2.0**-25,
            header="cuda_fp16.h",
        ),
        Precision(
            "bfloat16",
            "__nv_bfloat16",
            np.dtype(np.uint16),
            2.0**-23,
            -1,
            0x7F7F,
            result_roundoff=2.0**-8,
            result_floor=2.0**-134,
            header="cuda_bf16.h",
        ),
        Precision("tf32", "float", np.dtype(np.float32), 2.0**-23, -1, 0x7F7FFFFF, input_roundoff=2.0**-11),
    )
}


def result_of(dtype: str) -> Precision:
    """The precision of C, if A and B are of the type `dtype`: int32 for int8, for others the type itself."""
    precision = PRECISIONS[dtype]
    return PRECISIONS[precision.result or dtype]


def bytes_of_product(dtype: str, n: int, p: int, m: int) -> int:
    """The bytes of A (n x p), B (p x m) and C (n x m)."""
    return PRECISIONS[dtype].itemsize * (n * p + p * m) + result_of(dtype).itemsize * n * m
