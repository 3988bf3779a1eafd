"""Diagnose an incorrect product from its numbers: places, errors, and conventions under which it is correct.

A cause is reported only if it explains every wrong element to within its rounding bound.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.study import verify
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, result_of
from tilewise.traced.product import MOST_MULTIPLY_ADDS, Convention, check

#: Terms of a sum that are missing are looked for in this many wrong elements, and in sums of at most so many products.
SAMPLED, MOST_PRODUCTS = 8, 4096
#: How often each product is in a sum is solved for in sums of at most so many.
MOST_SOLVED = 512
#: A transposed or repeated tile is looked for in these sizes, and in those that the kernel's parameters have.
TILES = (2, 4, 8, 16, 32, 64)
#: Numbers beyond this stem from a C that began as the largest number.
HUGE = 1e30

Matrix = np.ndarray


@dataclass(frozen=True)
class Cause:
    """The words for what is wrong, and which of A, B and C a wrong index may be of; `direct`: it is
    the index of the array itself, not of a copy in shared memory."""

    text: str
    arrays: tuple[str, ...] = ()
    direct: bool = False


@dataclass(frozen=True)
class Wrong:
    """A wrong product as doubles: the factors, alpha times that of A, what C should hold and holds, the bound of each
    element's error, and which elements are wrong."""

    A: Matrix
    B: Matrix
    right: Matrix
    held: Matrix
    bound: Matrix
    where: Matrix

    def explained(self, product: Matrix) -> bool:
        """Whether the wrong elements hold what this product has there."""
        near = np.abs(self.held - product) <= self.bound
        return bool(near[self.where].all())

    def explained_by(self, A: Matrix, B: Matrix) -> bool:
        """Whether they hold the product of other factors, of which a few elements are tried first."""
        rows, columns = self.some()
        few = np.einsum("ik,ki->i", A[rows], B[:, columns])
        near = np.abs(self.held[rows, columns] - few) <= self.bound[rows, columns]
        return bool(near.all()) and self.explained(A @ B)

    def some(self) -> tuple[Matrix, Matrix]:
        """The rows and columns of a few wrong elements."""
        places = np.argwhere(self.where)
        chosen = places[np.linspace(0, len(places) - 1, min(SAMPLED, len(places))).astype(int)]
        return chosen[:, 0], chosen[:, 1]


def diagnosis(point: Point, own: Convention, operands: Sequence[np.ndarray], C: np.ndarray) -> Cause:
    """The cause of a wrong product, each part of its text after a semicolon; "" if there is nothing to say."""
    if point.multiply_adds > MOST_MULTIPLY_ADDS:
        return Cause("")
    if said := _convention(point, own, operands, C):
        return Cause(said)
    A, B = operands
    wanted, dtype = own.wanted, point.dtype
    product, magnitude = verify.reference(A, B, dtype, point.batch)
    if said := _scalars(point, own, operands, C, product):
        return Cause(said)
    product, magnitude = verify.with_scalars(product, magnitude, dtype, wanted)
    where = verify.ratios(C, product, magnitude, dtype, point.p, wanted) > 1
    if not where.any():  # no bound can be given, or the errors are spread over all elements
        return Cause("")
    unwritten = where & (C.view(f"i{C.itemsize}") == verify.marker(dtype, wanted))
    rest = where & ~unwritten
    said = _where(where) + _unwritten(C, unwritten, rest, wanted)
    if not rest.any():
        return Cause(said)
    held = result_of(dtype).wide(np, C).astype(np.float64)
    if not held[rest].any():
        return Cause(f"{said}; they are 0")
    if not (np.abs(held[rest]) < HUGE).all():
        return Cause(said + _of_beginning(wanted, held[rest], dtype, own.gaps))
    if point.batch > 1 or wanted.beta:
        return Cause(said)
    wide = [PRECISIONS[dtype].wide(np, matrix).astype(np.float64) for matrix in operands]
    bound = _bound(product, point, own)
    found = _pattern(Wrong(wanted.alpha * wide[0], wide[1], product, held, bound, rest), _tiles(point))
    return dataclasses.replace(found, text=said + found.text) if found else Cause(said)


# ---- Of the whole product --------------------------------------------------------------------------------------------


def _convention(point: Point, own: Convention, operands: Sequence[np.ndarray], C: np.ndarray) -> str:
    """The convention by which the product is the right one."""
    short = dataclasses.replace(own.wanted, scheme="short_sums")
    has_short_sums = PRECISIONS[point.dtype].by("short_sums") != PRECISIONS[point.dtype]
    for names in (own.columns, "", "B", "A", "C", "BC", "AB", "AC", "ABC"):
        for wanted in (own.wanted, short)[: 1 + has_short_sums]:
            other = Convention(tuple(names), wanted)
            if check(point, own, other, operands, C).ok:
                lies = "C is transposed; " if {*names} ^ {*own.columns} == {"C"} else ""
                return f"; {lies}it is right with {other} of `tilewise trace`"
    return ""


def _scalars(point: Point, own: Convention, operands: Sequence[np.ndarray], C: np.ndarray, product: np.ndarray) -> str:
    """Words for a C that is another sum of A B and of what C held, by numbers of few digits."""
    dtype, wanted = point.dtype, own.wanted
    held = result_of(dtype).wide(np, C).astype(np.float64)
    if not np.isfinite(held).all() or np.abs(held).max() > HUGE or not product.any():
        return ""
    given = wanted.beta and not wanted.initial
    before = verify.given(np, np.arange(len(C)), C.shape[1], dtype) if given else np.zeros_like(C)
    terms = [product, result_of(dtype).wide(np, before).astype(np.float64)]
    solved, *_ = np.linalg.lstsq(np.stack([term.ravel() for term in terms], axis=1), held.ravel(), rcond=None)
    alpha, beta = (float(f"{number:.3g}") if abs(number) > 1e-3 else 0.0 for number in solved)
    other = Convention(own.columns, dataclasses.replace(wanted, alpha=alpha, beta=beta if given else wanted.beta))
    if not alpha or not check(point, own, other, operands, C).ok:
        return ""
    return f"; it is {alpha:g} A B{f' + {beta:g} C' if given and beta else ''}, right with {other} of `tilewise trace`"


def _of_beginning(wanted: verify.Wanted, held: np.ndarray, dtype: str, gaps: bool) -> str:
    """Words for elements that a gap, or the number at which C began, has gone into."""
    if np.isnan(held).any() and gaps:
        return "; the NaN between the rows or columns of A or B is a part of them: is there another leading dimension?"
    largest = verify.marker(dtype, wanted)
    if not wanted.reads_c or result_of(dtype).exact or np.isnan(held).any():
        return ""
    number = np.array([largest], f"i{result_of(dtype).itemsize}").view(result_of(dtype).stored)
    shown = result_of(dtype).wide(np, number)[0]
    return (
        f"; C began as {shown:g}, which marks what was never written, and it is a part of them: --beta says that beta "
        "C is added, --initial zeros that C begins as zeros"
    )


def _unwritten(C: np.ndarray, unwritten: np.ndarray, rest: np.ndarray, wanted: verify.Wanted) -> str:
    """Words for the wrong elements that hold the marker of what was never written."""
    if not unwritten.any():
        return ""
    which = f"{int(unwritten.sum())} of them, and the others are wrong" if rest.any() else "them"
    if not wanted.reads_c:
        return f"; nothing has written {which}"
    marker = f"{C[unwritten][0]:g}, which marks what was never written"
    return f"; nothing has written {which}, or it has only added to them: they hold {marker} (--initial zeros)"


def _bound(product: np.ndarray, point: Point, own: Convention) -> np.ndarray:
    """How far a right element may be off: as far as no random sum of rounding errors goes, which is less than the worst
    case, so that one element is not taken for another."""
    precision = PRECISIONS[point.dtype].by(own.wanted.scheme)
    size = np.sqrt((product**2).mean())
    usual = 20 * precision.deviation(point.p) * size
    stored = 2 * precision.result_roundoff * size * 5 + precision.result_floor
    return np.full(product.shape, usual + stored + 1e-12 * size)


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


# ---- One index pattern ----------------------------------------------------------------------------------------------


def _tiles(point: Point) -> list[int]:
    """The sizes of tiles that are tried, those of the kernel's parameters first."""
    sizes = {*TILES, *(value for _, value in point.parameters if isinstance(value, int))}
    own = [value for _, value in point.parameters]
    return sorted((size for size in sizes if 2 <= size <= 256), key=lambda size: (size not in own, size))


def _pattern(wrong: Wrong, tiles: Iterable[int]) -> Cause | None:
    """The one pattern of indices that explains all wrong elements."""
    if words := _range_of_k(wrong) or _ranges_of_k(wrong):
        return Cause(words)
    for words, rows, columns in _moved(wrong, tiles):
        if wrong.explained(wrong.right[rows, columns]):
            return Cause(words, ("C",))
    for cause, A, B in itertools.chain(_like(wrong), _factors(wrong, tiles)):
        if wrong.explained_by(A, B):
            return cause
    return None


def _range_of_k(wrong: Wrong) -> str:
    """Words for products that the sums lack, or hold twice: those of one range of k."""
    p = wrong.A.shape[1]
    if p > MOST_PRODUCTS:
        return ""
    for sign, words in ((1, "missing"), (-1, "added twice")):
        found = _terms(wrong, sign)
        if found and found != (0, p):
            first, end = found
            if wrong.explained(wrong.right - sign * wrong.A[:, first:end] @ wrong.B[first:end]):
                return f"; of the sums over k the products {_of_k(first, end, p)} are {words}"
    return ""


def _of_k(first: int, end: int, p: int) -> str:
    if end - first == 1:
        return f"of k = {first}"
    return f"from k = {first} on" if end == p else f"of k = {first} to {end - 1}"


def _ranges_of_k(wrong: Wrong) -> str:
    """The same of several ranges of k: how often each product is in the sums, by least squares over wrong elements."""
    p, places = wrong.A.shape[1], np.argwhere(wrong.where)
    if p > MOST_SOLVED or len(places) < 2 * p:
        return ""
    rows, columns = places[np.linspace(0, len(places) - 1, 3 * p if len(places) >= 3 * p else 2 * p).astype(int)].T
    solved = np.asarray(
        np.linalg.lstsq(wrong.A[rows] * wrong.B[:, columns].T, wrong.held[rows, columns], rcond=None)[0], np.float64
    )
    times: Matrix = np.round(solved)
    if (np.abs(times) > 8).any() or not wrong.explained(wrong.A * times @ wrong.B):
        return ""
    if (times == times[0]).all():
        return f"; they are {times[0]:g} times what they should be"
    edges = [0, *(np.flatnonzero(np.diff(times)) + 1), p]
    said = {
        number: " and ".join(_of_k(int(a), int(b), p) for a, b in itertools.pairwise(edges) if times[a] == number)
        for number in sorted({*times} - {1.0})
    }
    words = {0: "missing", 2: "added twice"}
    return "".join(
        f"; of the sums over k the products {where} are {words.get(int(number), f'added {number:g} times')}"
        for number, where in said.items()
    )


def _terms(wrong: Wrong, sign: int) -> tuple[int, int] | None:
    """The k, from a first to before an end, whose products add up to what some of the wrong elements are off by."""
    rows, columns = wrong.some()
    terms = wrong.A[rows] * wrong.B[:, columns].T
    sums = np.concatenate([np.zeros((len(rows), 1)), np.cumsum(terms, axis=1)], axis=1)
    wanted = sign * (wrong.right - wrong.held)[rows, columns]
    allowed = 1e-3 * np.abs(terms).max(axis=1) + 1e-12
    for first in range(wrong.A.shape[1]):
        near = np.abs(sums[:, first + 1 :] - sums[:, [first]] - wanted[:, None]) <= allowed[:, None]
        if (ends := np.flatnonzero(near.all(axis=0))).size:
            return first, first + 1 + int(ends[-1])
    return None


def _moved(wrong: Wrong, tiles: Iterable[int]) -> Iterator[tuple[str, Matrix, Matrix]]:
    """Ways in which elements of C hold the right result of others: the words, and the rows and columns of those."""
    n, m = wrong.right.shape
    i, j = np.indices((n, m))
    for down, right in _offsets(wrong):
        ways = (down, "rows", "down" if down > 0 else "up"), (right, "columns", "right" if right > 0 else "left")
        parts = [f"{abs(by)} {name} {way}" for by, name, way in ways if by]
        words = f"; they hold the results of {' and '.join(parts)}: results are stored over each other, or elsewhere"
        yield words, np.clip(i + down, 0, n - 1), np.clip(j + right, 0, m - 1)
    for size in tiles:
        inside = f"; each tile of C of {size} x {size} is stored transposed"
        yield inside, *_inside(i - i % size + j % size, j - j % size + i % size, n, m)
        across = f"; tiles of C of {size} x {size} are stored at the place of others, rows and columns of tiles swapped"
        yield across, *_inside(j - j % size + i % size, i - i % size + j % size, n, m)


def _inside(rows: Matrix, columns: Matrix, n: int, m: int) -> tuple[Matrix, Matrix]:
    return np.clip(rows, 0, n - 1), np.clip(columns, 0, m - 1)


def _offsets(wrong: Wrong) -> list[tuple[int, int]]:
    """How far away the right elements are that a wrong one holds, the same for all of a few wrong elements."""
    found: set[tuple[int, int]] | None = None
    for row, column in zip(*wrong.some()):
        near = np.argwhere(np.abs(wrong.right - wrong.held[row, column]) <= wrong.bound[row, column])
        here = {(int(a) - int(row), int(b) - int(column)) for a, b in near}
        found = here if found is None else found & here
    return sorted(found or (), key=lambda offset: abs(offset[0]) + abs(offset[1]))[:4]


def _like(wrong: Wrong) -> Iterator[tuple[Cause, Matrix, Matrix]]:
    """Each row of C as that of the right result that it is like, or as zeros; and each column."""
    for name, factor, held, right, where in (
        ("row", wrong.A, wrong.held, wrong.right, wrong.where),
        ("column", wrong.B.T, wrong.held.T, wrong.right.T, wrong.where.T),
    ):
        if len(held) < 2 or held.shape[1] < 2 or not np.isfinite(held).all():
            continue
        right = np.vstack([right, np.zeros_like(right[:1])])
        like = ((right**2).sum(axis=1)[None] - 2 * held @ right.T).argmin(axis=1)
        like = np.where(where.any(axis=1), like, np.arange(len(held)))
        other = np.flatnonzero(like != np.arange(len(held)))
        if not other.size:
            continue
        first, array = int(other[0]), "A" if name == "row" else "B"
        of = f"that of {name} {like[first]}" if like[first] < len(held) else "zeros"
        words = f"; {name}s of {array}, or of C, are swapped or read again: {name} {first} of C is {of}"
        read = np.vstack([factor, np.zeros_like(factor[:1])])[like]
        yield Cause(words, (array, "C")), *((read, wrong.B) if name == "row" else (wrong.A, read.T))


def _factors(wrong: Wrong, tiles: Iterable[int]) -> Iterator[tuple[Cause, Matrix, Matrix]]:
    """Ways in which a kernel reads other elements of A or B than it should: the cause and the factors."""
    A, B = wrong.A, wrong.B
    n, p, m = *A.shape, B.shape[1]
    for size in tiles:
        change = _tiled(size, lambda tile: tile.swapaxes(-1, -2))
        words = f"of {size} x {size} are read, or stored, transposed"
        yield Cause(f"; tiles of A {words}", ("A",)), *_fitting(change(A), B)
        yield Cause(f"; tiles of B {words}", ("B",)), *_fitting(A, change(B.T).T)
        if size < p:
            first, words = np.arange(p) % size, f"along k is the first one, k = 0 to {size - 1}"
            yield Cause(f"; each tile of A {words}", ("A",), direct=True), A[:, first], B
            yield Cause(f"; each tile of B {words}", ("B",), direct=True), A, B[first]
    for words, order in _orders(tiles):
        change = _tiled(len(order), lambda tile, order=order: tile[..., order])  # type: ignore[misc]
        yield Cause(f"; A or B is read {words}", ("A", "B")), *_fitting(change(A), B)
    for name, matrix, others in (("A", A, {"n": n, "m": m}), ("B", B, {"n": n, "p": p})):
        for extent, pitch in others.items():
            read = _with_pitch(matrix, pitch)
            if read is not None and pitch != matrix.shape[1]:
                words = f"; {name} is read as if its rows had {extent} = {pitch} elements, not {matrix.shape[1]}"
                yield Cause(words, (name,), direct=True), *((read, B) if name == "A" else (A, read))
    if n == p == m:
        yield Cause("; it is B A: the factors are swapped"), B, A
        yield Cause("; it is A A: A is read for B"), A, A
        yield Cause("; it is B B: B is read for A"), B, B


def _orders(tiles: Iterable[int]) -> Iterator[tuple[str, Matrix]]:
    """Other orders within tiles along k, which is along the rows of A: the same of B has the same product."""
    for by in (1, 2, 4, 8, 16):
        yield f"at k ^ {by} for k", np.arange(2 * by) ^ by
    for size in tiles:
        yield f"backwards along k, within tiles of {size}", np.arange(size)[::-1]


def _tiled(size: int, change: Callable[[Matrix], Matrix]) -> Callable[[Matrix], Matrix]:
    """A function that changes each tile of size x size of a matrix, filled up with zeros."""

    def changed(x: Matrix) -> Matrix:
        rows, columns = (-(-extent // size) for extent in x.shape)
        full = np.zeros((rows * size, columns * size))
        full[: x.shape[0], : x.shape[1]] = x
        cut = change(full.reshape(rows, size, columns, size).swapaxes(1, 2))
        return cut.swapaxes(1, 2).reshape(full.shape)[: x.shape[0]]

    return changed


def _fitting(A: Matrix, B: Matrix) -> tuple[Matrix, Matrix]:
    """Factors of one inner dimension, of which more than p is zeros in one of them."""
    most = min(A.shape[1], B.shape[0])
    return A[:, :most], B[:most]


def _with_pitch(matrix: Matrix, pitch: int) -> Matrix | None:
    """A matrix as it is read by rows that begin every `pitch` elements, if that stays within it."""
    rows, columns = matrix.shape
    if (rows - 1) * pitch + columns > matrix.size:
        return None
    return matrix.ravel()[np.arange(rows)[:, None] * pitch + np.arange(columns)]
