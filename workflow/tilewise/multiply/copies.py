"""Decide who multiplies three matrices, and which of them are copied first.

cuBLAS takes all matrices whose rows or columns are in one piece, but slowly if these begin or end between two multiples
of 16 bytes; of bytes it takes dense rows alone, as our kernels do of all types. Copies have rows, or columns, of a
multiple of 16 bytes, with zeros where they are larger than the matrix.
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


#: The least of n = 2048, 4096 and 8192 on an H200 (cuBLAS 13.1, 29 November 2026). cuBLAS refuses uneven rows of bytes.
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
    dense, even = (all(getattr(each, name) for each in matrices) for name in ("is_dense", "is_even"))
    if dense and (times := times_as_fast(sizes)):
        yield 1 / times, Way(True, sizes)
    as_they_lie = 1.0 if even and (dense or dtype != "int8") else costs.uneven
    yield as_they_lie, Way(False, sizes)
    for own in (False, True):
        in_rows = own or dtype == "int8"
        copied = _copies(matrices, in_rows)
        (n, p), m = copied[0].shape, copied[1].shape[1]
        made = tuple(
            copy if each.shape != copy.shape or not (each.is_dense if in_rows else each.is_even) else None
            for each, copy in zip(matrices, copied)
        )
        number = sum(copy is not None for copy in made)
        if not number or (math.prod(sizes) < LEAST * number and as_they_lie < math.inf):
            continue
        if times := times_as_fast(Sizes(n, p, m)) if own else 1.0:
            elements = sum(
                copy.size * (costs.per_turned if in_rows and is_column_major(each) else costs.per_element)
                for each, copy in zip(matrices, made)
                if copy
            )
            yield (n * p * m / times + elements) / math.prod(sizes), Way(own, Sizes(n, p, m), made)


def _copies(matrices: Sequence[Layout], in_rows: bool) -> list[Layout]:
    """The least layouts of copies of A, B and C whose rows, or columns, are multiples of 16 bytes; `in_rows`: all have
    rows."""
    A, B, C = matrices
    unit = ALIGNED // A.itemsize
    n, p, m = (unit * ceil_div(size, unit) for size in (*A.shape, B.shape[1]))
    across_a, across_b = (is_column_major(each) and not in_rows for each in (A, B))
    n = n if across_a else A.shape[0]
    in_columns = (Layout.in_rows(A.dtype, p, n).T, Layout.in_rows(B.dtype, m, p).T)
    return [
        in_columns[0] if across_a else Layout.in_rows(A.dtype, n, p),
        in_columns[1] if across_b else Layout.in_rows(B.dtype, p, m),
        Layout.in_rows(C.dtype, n, m),
    ]
