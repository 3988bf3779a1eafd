"""What is wrong about a wrong product, as far as the numbers show: where, how, and by which convention it is right."""

from collections.abc import Sequence

import numpy as np

from tilewise.microscope.product import MOST_MULTIPLY_ADDS, Convention, check
from tilewise.study import verify
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, result_of

#: Terms of a sum that are missing are looked for in this many wrong elements, and in sums of at most so many products.
SAMPLED, MOST_PRODUCTS = 8, 4096


def diagnosis(point: Point, own: Convention, operands: Sequence[np.ndarray], C: np.ndarray) -> str:
    """The words for what is wrong, each part after a semicolon; "" if there is nothing to say."""
    if point.multiply_adds > MOST_MULTIPLY_ADDS:
        return ""
    if said := _convention(point, own, operands, C):
        return said
    A, B = operands
    product, magnitude = verify.reference(A, B, point.dtype, point.batch)
    wrong = verify.ratios(C, product, magnitude, point.dtype, point.p, own.short_sums) > 1
    if not wrong.any():  # no bound can be given
        return ""
    return _where(wrong) + _what(point, own, C, wrong, (A, B, product, magnitude))


def _convention(point: Point, own: Convention, operands: Sequence[np.ndarray], C: np.ndarray) -> str:
    """The convention by which the product is the right one."""
    has_short_sums = PRECISIONS[point.dtype].has_short_sums
    for names in (own.columns, "", "B", "A", "C", "BC", "AB", "AC", "ABC"):
        for short_sums in {own.short_sums, has_short_sums}:
            other = Convention(tuple(names), short_sums)
            if check(point, own, other, operands, C).ok:
                lies = "C is transposed; " if {*names} ^ {*own.columns} == {"C"} else ""
                return f"; {lies}it is right with {other} of `tilewise trace`"
    return ""


def _where(wrong: np.ndarray) -> str:
    """The rows and columns that are wrong, if these are a part of C, and all wrong there."""
    rows, columns = (np.flatnonzero(wrong.any(axis=axis)) for axis in (1, 0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    if wrong.all() or not wrong[box].all():
        return ""
    parts = [
        _range(name, part, whole)
        for name, part, whole in zip(("rows", "columns"), box, wrong.shape)
        if part.stop - part.start < whole
    ]
    return f"; wrong are all elements of {' and '.join(parts)}"


def _range(name: str, part: slice, whole: int) -> str:
    one = name.removesuffix("s")
    if part.stop - part.start == 1:
        return f"{one} {part.start}"
    if part.stop == whole:
        return f"{name} {part.start} on"
    return f"{name} {part.start} to {part.stop - 1}"


def _what(point: Point, own: Convention, C: np.ndarray, wrong: np.ndarray, right: tuple[np.ndarray, ...]) -> str:
    """What the wrong elements hold: nothing, zeros, or a sum of other products than the right ones; `right` are A, B,
    their product and its magnitude."""
    if (C.view(f"i{C.itemsize}")[wrong] == result_of(point.dtype).poison).all():
        return "; nothing has written them"
    *operands, product, magnitude = right
    A, B = (PRECISIONS[point.dtype].wide(np, matrix).astype(np.float64) for matrix in operands)
    held = result_of(point.dtype).wide(np, C).astype(np.float64)
    if not held[wrong].any():
        return "; they are 0"
    if point.batch > 1 or point.p > MOST_PRODUCTS or not np.isfinite(held[wrong]).all():
        return ""
    for sign, words in ((1, "missing"), (-1, "added twice")):
        found = _terms(A, B, sign * (product - held), wrong)
        if not found:
            continue
        first, end = found
        other = product - sign * A[:, first:end] @ B[first:end]
        if (verify.ratios(C, other, magnitude, point.dtype, point.p, own.short_sums)[wrong] <= 1).all():
            return f"; of the sums over k the products {_of_k(first, end, point.p)} are {words}"
    return ""


def _of_k(first: int, end: int, p: int) -> str:
    if end - first == 1:
        return f"of k = {first}"
    return f"from k = {first} on" if end == p else f"of k = {first} to {end - 1}"


def _terms(A: np.ndarray, B: np.ndarray, difference: np.ndarray, wrong: np.ndarray) -> tuple[int, int] | None:
    """The k, from a first to before an end, whose products add up to a difference in some of the wrong elements."""
    places = np.argwhere(wrong)
    places = places[np.linspace(0, len(places) - 1, min(SAMPLED, len(places))).astype(int)]
    terms = A[places[:, 0]] * B[:, places[:, 1]].T
    sums = np.concatenate([np.zeros((len(places), 1)), np.cumsum(terms, axis=1)], axis=1)
    wanted = difference[places[:, 0], places[:, 1]]
    allowed = 1e-3 * np.abs(terms).max(axis=1) + 1e-12
    for first in range(A.shape[1]):
        near = np.abs(sums[:, first + 1 :] - sums[:, [first]] - wanted[:, None]) <= allowed[:, None]
        if (ends := np.flatnonzero(near.all(axis=0))).size:
            return first, first + 1 + int(ends[-1])
    return None
