"""Decide who multiplies three matrices, and which of them are copied first.

cuBLAS takes all matrices whose rows or columns are in one piece, but slowly if these begin or end between two multiples
of 16 bytes; of int8 it takes fewer (`cublas.multiply`). Our kernels take dense rows alone. Copies have rows, or
columns, of multiples of 16 bytes; those of A and B have zeros where they are larger than the matrix.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tilewise.multiply.arguments import ALIGNED, DTYPES, Layout
from tilewise.nvidia.layout import is_column_major
from tilewise.study.expressions import ceil_div


class Costs(NamedTuple):
    """Costs of an element type, in units of cuBLAS's time for rows at multiples of 16 bytes.

    `uneven` is its time for other rows; a copy of an element takes as long as `per_element` of its products, or, from
    columns to rows, `per_turned`.
    """

    uneven: float
    per_element: float
    per_turned: float


#: The least `uneven` and the largest of the others at n = 2048, 4096 and 8192 on an H200 (cuBLAS 13.1, 29 November
#: 2026). Of int8, cuBLAS refuses most uneven matrices, so all are copied.
COSTS = {
    "float": Costs(1.02, 135, 190),
    "double": Costs(1.4, 170, 300),
    "half": Costs(4.4, 960, 2400),
    "bfloat16": Costs(4.4, 960, 2400),
    "int8": Costs(math.inf, 960, 3900),
}
#: The least number of products, for each copy: with fewer, the host's calls take as long as what the copies save.
LEAST = 1.75e9


class Sizes(NamedTuple):
    """The sizes of a product."""

    n: int
    p: int
    m: int


class Way(NamedTuple):
    """How a product of these sizes is made: by a kernel of our `own` or by cuBLAS.

    `copies` has the layouts of the copies of A, B and C, None for those that are taken as they lie.
    """

    own: bool
    sizes: Sizes
    copies: tuple[Layout | None, ...] = (None, None, None)


def cheapest(matrices: Sequence[Layout], times_as_fast: Callable[[Sizes], float | None]) -> Way:
    """The way that takes the least time for A, B and C, where C lies in rows.

    `times_as_fast` says how many times as fast as cuBLAS our own kernel multiplies dense matrices of some sizes; None
    stands for a product that cuBLAS makes.
    """
    return min(_ways(matrices, times_as_fast), key=lambda way: way[0])[1]


def _ways(matrices: Sequence[Layout], times_as_fast: Callable[[Sizes], float | None]) -> Iterator[tuple[float, Way]]:
    """Each way with its cost, as a multiple of cuBLAS's time for even rows."""
    (n, p), m, dtype = matrices[0].shape, matrices[1].shape[1], DTYPES[matrices[0].dtype]
    costs, sizes = COSTS[dtype], Sizes(n, p, m)
    as_they_lie = 1.0 if all(_are_taken(matrices, own=False)) else costs.uneven
    if all(_are_taken(matrices, own=True)) and (times := times_as_fast(sizes)):
        yield (as_they_lie if as_they_lie < math.inf else 1.0) / times, Way(True, sizes)
    yield as_they_lie, Way(False, sizes)
    for own in (False, True):
        copied = _copies(matrices, own)
        (rows, inner), columns = copied[0].shape, copied[1].shape[1]
        padded = Sizes(rows, inner, columns)
        needed = [
            each.shape != copy.shape or not taken
            for each, copy, taken in zip(matrices, copied, _are_taken(matrices, own))
        ]
        if not any(needed) or (math.prod(sizes) < LEAST * sum(needed) and as_they_lie < math.inf):
            continue
        if times := (times_as_fast(padded) if own else 1.0):
            made = tuple(copy if is_needed else None for copy, is_needed in zip(copied, needed))
            elements = sum(
                copy.size * (costs.per_element if is_column_major(each) == is_column_major(copy) else costs.per_turned)
                for each, copy in zip(matrices, made)
                if copy
            )
            yield (math.prod(padded) / times + elements) / math.prod(sizes), Way(own, padded, made)


def _are_taken(matrices: Sequence[Layout], own: bool) -> list[bool]:
    """Whether our kernels, or cuBLAS at its full rate, take A, B and C as they lie."""
    if own:
        return [each.is_dense for each in matrices]
    A, B, _ = matrices
    taken = [each.is_even for each in matrices]
    if DTYPES[A.dtype] == "int8":  # both along k; B is turned if it is dense
        taken[0] &= not is_column_major(A)
        taken[1] = taken[1] if is_column_major(B) else B.is_dense
    return taken


def takes_all(matrices: Sequence[Layout]) -> bool:
    """Whether cuBLAS takes A, B and C as they lie, at any rate."""
    return DTYPES[matrices[0].dtype] != "int8" or all(_are_taken(matrices, own=False))


def _copies(matrices: Sequence[Layout], own: bool) -> list[Layout]:
    """Copies of A, B and C that our kernels, or cuBLAS at its full rate, take."""
    A, B, C = matrices
    units = [ALIGNED // A.itemsize] * 2 + [ALIGNED // (A if own else C).itemsize]
    n, p, m = (unit * ceil_div(size, unit) for unit, size in zip(units, (*A.shape, B.shape[1])))
    across_a = is_column_major(A) and not own and DTYPES[A.dtype] != "int8"
    n = n if across_a else A.shape[0]
    return [
        Layout.in_rows(A.dtype, p, n).T if across_a else Layout.in_rows(A.dtype, n, p),
        Layout.in_rows(B.dtype, m, p).T if is_column_major(B) and not own else Layout.in_rows(B.dtype, p, m),
        Layout.in_rows(C.dtype, n, m),
    ]
