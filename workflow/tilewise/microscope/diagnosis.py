"""What is wrong about a wrong product, as far as the numbers show: where, how, and by which convention it is right.

A cause is said only if it explains every wrong element to within its rounding bound.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewise.microscope.product import MOST_MULTIPLY_ADDS, Convention, check
from tilewise.study import verify
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, result_of

#: Terms of a sum that are missing are looked for in this many wrong elements, and in sums of at most so many products.
SAMPLED, MOST_PRODUCTS = 8, 4096
#: A transposed or repeated tile is looked for in these sizes, and in those that the kernel's parameters have.
TILES = (2, 4, 8, 16, 32, 64)
#: What is this large came from a C that began as the largest number.
HUGE = 1e30

Matrix = np.ndarray


@dataclass(frozen=True)
class Cause:
    """The words for what is wrong, and which of A, B and C a wrong index reads or writes, if one does."""

    text: str
    array: str = ""


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
    scaled = _factor(point, own, operands, C, product)
    if scaled:
        return Cause(scaled)
    product, magnitude = verify.updated(product, magnitude, dtype, wanted)
    where = verify.ratios(C, product, magnitude, dtype, point.p, wanted) > 1
    if not where.any():  # no bound can be given, or the errors are spread over all elements
        return Cause("")
    unwritten = where & (C.view(f"i{C.itemsize}") == verify.marker(dtype, wanted))
    said = _where(where)
    if unwritten.any():
        shown = f" (they hold {C[unwritten][0]:g}, which marks that)" if wanted.reads_c else ""
        count = "" if (unwritten == where).all() else f"{int(unwritten.sum())} of "
        said += f"; nothing has written {count}them{shown}"
    rest = where & ~unwritten
    if not rest.any():
        return Cause(said)
    held = result_of(dtype).wide(np, C).astype(np.float64)
    if not held[rest].any():
        return Cause(f"{said}; they are 0")
    if not (np.abs(held[rest]) < HUGE).all():
        return Cause(said + _of_beginning(wanted, held[rest], dtype))
    if point.batch > 1 or wanted.beta:
        return Cause(said)
    wide = [PRECISIONS[dtype].wide(np, matrix).astype(np.float64) for matrix in operands]
    bound = _bound(product, magnitude, point, own)
    found = _pattern(Wrong(wanted.alpha * wide[0], wide[1], product, held, bound, rest), _tiles(point))
    return Cause(said + found.text, found.array) if found else Cause(said)


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


def _factor(point: Point, own: Convention, operands: Sequence[np.ndarray], C: np.ndarray, product: np.ndarray) -> str:
    """Words for a C that is another multiple of A B, by a number of few digits."""
    held = result_of(point.dtype).wide(np, C).astype(np.float64)
    if not np.isfinite(held).all() or own.wanted.beta or not product.any():
        return ""
    alpha = float(f"{np.vdot(product, held) / np.vdot(product, product):.3g}")
    other = Convention(own.columns, dataclasses.replace(own.wanted, alpha=alpha))
    if not alpha or not check(point, own, other, operands, C).ok:
        return ""
    return f"; it is {alpha:g} A B, right with {other} of `tilewise trace`"


def _of_beginning(wanted: verify.Wanted, held: np.ndarray, dtype: str) -> str:
    """Words for elements that the number at which C began has gone into."""
    largest = verify.marker(dtype, wanted)
    if not wanted.reads_c or result_of(dtype).exact or np.isnan(held).any():
        return ""
    number = np.array([largest], f"i{result_of(dtype).itemsize}").view(result_of(dtype).stored)
    shown = result_of(dtype).wide(np, number)[0]
    return (
        f"; C began as {shown:g}, which marks what was never written, and it is a part of them: --beta says that beta C "
        "is added, --initial zeros that C begins as zeros"
    )


def _bound(product: np.ndarray, magnitude: np.ndarray, point: Point, own: Convention) -> np.ndarray:
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
    if words := _range_of_k(wrong):
        return Cause(words)
    for words, rows, columns in _moved(wrong, tiles):
        if wrong.explained(wrong.right[np.ix_(rows, columns)] if rows.ndim == 1 else wrong.right[rows, columns]):
            return Cause(words, "C")
    for words, array, A, B in _factors(wrong, tiles):
        if wrong.explained_by(A, B):
            return Cause(words, array)
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
        parts = [f"{abs(by)} {name} {way}" for by, name, way in (
            (down, "rows", "down" if down > 0 else "up"), (right, "columns", "to the right" if right > 0 else "to the left")
        ) if by]  # fmt: skip
        words = f"; they hold the results of {' and '.join(parts)}: results are stored over each other, or elsewhere"
        yield words, np.clip(i + down, 0, n - 1), np.clip(j + right, 0, m - 1)
    for size in tiles:
        inside = f"; each tile of C of {size} x {size} is stored transposed"
        yield inside, *_inside(i - i % size + j % size, j - j % size + i % size, n, m)
        across = f"; tiles of C of {size} x {size} are stored at the place of others, rows and columns of tiles swapped"
        yield across, *_inside(j - j % size + i % size, i - i % size + j % size, n, m)
    for name, swapped in (("row", _nearest(wrong, 0)), ("column", _nearest(wrong, 1))):
        if swapped is None:
            continue
        first = int(np.flatnonzero(swapped != np.arange(len(swapped)))[0])
        array = "A" if name == "row" else "B"
        words = f"; {name}s of {array} are swapped or read again: {name} {first} of C is that of {name} {swapped[first]}"
        rows, columns = (swapped, np.arange(m)) if name == "row" else (np.arange(n), swapped)
        yield words, rows, columns


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


def _nearest(wrong: Wrong, axis: int) -> Matrix | None:
    """For each row (axis 0) or column of C that of the right result that it is like, if it is like one."""
    held, right, where = (x if axis == 0 else x.T for x in (wrong.held, wrong.right, wrong.where))
    if len(held) < 2 or held.shape[1] < 2 or not np.isfinite(held).all():
        return None
    apart = (right**2).sum(axis=1)[None] - 2 * held @ right.T
    like = apart.argmin(axis=1)
    like = np.where(where.any(axis=1), like, np.arange(len(held)))
    return like if (like != np.arange(len(held))).any() else None


def _factors(wrong: Wrong, tiles: Iterable[int]) -> Iterator[tuple[str, str, Matrix, Matrix]]:
    """Ways in which a kernel reads other elements of A or B than it should: the words, the array, and the factors."""
    A, B = wrong.A, wrong.B
    n, p, m = *A.shape, B.shape[1]
    for words, change in _reads(tiles):
        yield f"; {words.format('A')}", "A", *_fitting(change(A), B, p)
        yield f"; {words.format('B')}", "B", *_fitting(A, change(B.T).T, p)
    for name, matrix, others in (("A", A, {"n": n, "m": m}), ("B", B, {"n": n, "p": p})):
        for size, pitch in others.items():
            read = _with_pitch(matrix, pitch)
            if read is not None and pitch != matrix.shape[1]:
                words = f"; {name} is read as if its rows had {size} = {pitch} elements, not {matrix.shape[1]}"
                yield words, name, *((read, B) if name == "A" else (A, read))
    if n == p == m:
        yield "; it is B A: the factors are swapped", "", B, A
        yield "; it is A A: A is read for B", "B", A, A
        yield "; it is B B: B is read for A", "A", B, B


def _reads(tiles: Iterable[int]) -> Iterator[tuple[str, Callable[[Matrix], Matrix]]]:
    """Ways to read the rows of A, or the columns of B as rows, otherwise; along them is k."""
    for size in tiles:
        yield f"tiles of {{}} of {size} x {size} are read transposed", _tiled(size, lambda tile: tile.swapaxes(-1, -2))
        yield f"within tiles of {size}, {{}} is read backwards along k", _tiled(size, lambda tile: tile[..., ::-1])
        yield (
            f"each tile of {{}} along k is the first one, k = 0 to {size - 1}",
            lambda x, size=size: x[:, np.arange(x.shape[1]) % size] if size < x.shape[1] else x,
        )
    for by in (1, 2, 4, 8, 16):
        yield (
            f"along k, {{}} is read with k and k ^ {by} swapped",
            lambda x, by=by: x[:, np.minimum(np.arange(x.shape[1]) ^ by, x.shape[1] - 1)],
        )
    for by in (1, -1):
        yield f"{{}} is read {'ahead' if by > 0 else 'behind'} by one along k", lambda x, by=by: np.roll(x, -by, axis=1)


def _tiled(size: int, change: Callable[[Matrix], Matrix]) -> Callable[[Matrix], Matrix]:
    """A function that changes each tile of size x size of a matrix, filled up with zeros."""

    def changed(x: Matrix) -> Matrix:
        rows, columns = (-(-extent // size) for extent in x.shape)
        full = np.zeros((rows * size, columns * size))
        full[: x.shape[0], : x.shape[1]] = x
        cut = change(full.reshape(rows, size, columns, size).swapaxes(1, 2))
        return cut.swapaxes(1, 2).reshape(full.shape)[: x.shape[0]]

    return changed


def _fitting(A: Matrix, B: Matrix, p: int) -> tuple[Matrix, Matrix]:
    """Factors of one inner dimension, of which more than p is zeros in one of them."""
    most = min(A.shape[1], B.shape[0])
    return A[:, :most], B[:most]


def _with_pitch(matrix: Matrix, pitch: int) -> Matrix | None:
    """A matrix as it is read by rows that begin every `pitch` elements, if that stays within it."""
    rows, columns = matrix.shape
    if (rows - 1) * pitch + columns > matrix.size:
        return None
    return matrix.ravel()[np.arange(rows)[:, None] * pitch + np.arange(columns)]
