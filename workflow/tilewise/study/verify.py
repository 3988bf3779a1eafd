"""Verify that C is the product of A and B, with the same code for NumPy arrays and, on a GPU, for CuPy's.

Two bounds decide. The first holds for any operands and any order of the sum (N. J. Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., section 3.5): |C - C_ref| <= gamma_p |A| |B| elementwise, with gamma_p = p u / (1 - p u)
and u the unit roundoff of the sums. To it come the rounding of the operands, if the kernel rounds them, and of the
result, if it is stored in fewer digits. Unlike a fixed tolerance it is tight for small p, still holds for large p, and
NaN never passes it.

But the worst case grows with p, and errors of random operands do not: from p = 700 on, floats multiplied in TF32 keep
within it. So the second bound is statistical. The root mean square over C of |C - C_ref| / (sqrt(p) |A| |B|), without
what storing the result explains, must be that of the declared type or scheme, up to a factor that covers every order
of the sum and small samples. `tilewise.study.precision` has the numbers of both.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.study.precision import FEW, MOST_DEVIATION, OF_CHAIN, OF_OPERAND, PRECISIONS, Precision, result_of

#: Types to whose lower accuracy a result may fall, the nearest first, by the declared type.
COARSER = {
    "float": ("half or TF32", "bfloat16"),
    "double": ("float", "half or TF32", "bfloat16"),
    "half": ("bfloat16",),
    "tf32": ("bfloat16",),
}
#: The unit roundoffs of these, and how far the root mean square is below and above theirs if a kernel rounds the
#: operands, one of them, or both by cutting them.
ROUNDOFFS = {"float": 2.0**-24, "half or TF32": 2.0**-11, "bfloat16": 2.0**-8}
BELOW, ABOVE = 0.6, 3.5
#: Elements of a matrix that `product_of_lines` takes at a time, and the columns that they are of.
PIECE, PIECE_WIDTH = 1 << 22, 1 << 13
#: Values of `given`: so many different ones, which every type holds exactly.
GIVEN, GIVEN_UNIT = 251, 128


@dataclass(frozen=True)
class Wanted:
    """The product to compute: C = alpha A B + beta C, rounded by a `scheme` of SCHEMES. Before, C holds zeros if
    `initial` is "zeros"; else the numbers of `given` if beta is not 0, or else poison, which is finite if the kernel
    `reads_c`."""

    alpha: float = 1.0
    beta: float = 0.0
    initial: str = ""
    reads_c: bool = False
    scheme: str = ""

    @property
    def begins(self) -> bool:
        """Whether the product depends on what C holds at first."""
        return bool(self.initial or self.beta)

    @property
    def plain(self) -> bool:
        """Whether it is A B."""
        return self.alpha == 1 and (self.beta == 0 or self.initial == "zeros")


@dataclass(frozen=True)
class Check:
    """Outcome of a verification: `relative_error` is in the Frobenius norm, `bound_ratio` is the largest error divided
    by its bound, `message` says what is wrong (if the product fails) or how much was checked (if it passes)."""

    ok: bool
    relative_error: float
    bound_ratio: float
    message: str = ""


#: A B, rounded as the type says.
PLAIN = Wanted()


@dataclass(frozen=True)
class Lying:
    """How a matrix lies in memory: row after row, or column after column, each beginning `ld` elements after the one
    before; 0: without a gap."""

    by_columns: bool = False
    ld: int = 0

    def whole(self, rows: int, columns: int) -> tuple[int, int]:
        """The extents of the memory that a matrix takes, the inner one last, with the gaps."""
        return (columns, self.ld or rows) if self.by_columns else (rows, self.ld or columns)

    def strides(self, matrix: Any) -> tuple[int, int]:
        """The bytes between rows and between columns of such a matrix, if it lies so."""
        outer = matrix.itemsize * self.whole(*matrix.shape)[1]
        return (matrix.itemsize, outer) if self.by_columns else (outer, matrix.itemsize)

    def view(self, whole: Any, rows: int, columns: int) -> Any:
        """The matrix in that memory."""
        return whole[:, :rows].T if self.by_columns else whole[:, :columns]


#: The bits, as an integer, of what is between the rows of a matrix: NaN, but not that of `poison`.
GAP = -2
#: How a matrix lies of which nothing else is said.
ROWS = Lying()


def laid(matrix: Any, lying: Lying) -> Any:
    """A copy of a matrix in this layout, with GAP in between; the matrix itself if the layout is ROWS."""
    if lying == ROWS:
        return matrix
    whole = module(matrix).empty(lying.whole(*matrix.shape), matrix.dtype)
    whole.view(f"i{matrix.dtype.itemsize}").fill(GAP)
    view = lying.view(whole, *matrix.shape)
    view[...] = matrix
    return view


def module(array: Any) -> Any:
    """The array module, NumPy or CuPy, that an array belongs to."""
    if isinstance(array, np.ndarray):
        return np
    return sys.modules[type(array).__module__.partition(".")[0]]


def operands(xp: Any, dtype: str, n: int, p: int, m: int, seed: int, batch: int = 1) -> list[Any]:
    """Seeded random A (n x p) and B (p x m), as stored, in the array module `xp`: reals in [-1, 1), integers in [-9,
    9], of int8 all that there are. Those of a batch lie one below the other: batch n x p and batch p x m.

    Both signs occur, because sums of positive numbers hide errors: they grow with p and dwarf a wrong term.
    """
    precision = PRECISIONS[dtype]
    key = int(np.random.SeedSequence([seed, n, p, m]).generate_state(1)[0])  # CuPy's generators take one number
    generator = xp.random.default_rng(key)
    matrices = []
    for shape in ((batch * n, p), (batch * p, m)):
        if precision.exact:
            matrices.append(
                generator.integers(precision.least, precision.largest + 1, size=shape).astype(precision.stored)
            )
        else:
            matrix = generator.random(shape, dtype=np.float64 if dtype == "double" else np.float32)
            matrix *= 2
            matrix -= 1
            matrices.append(precision.narrow(xp, matrix))
    return matrices


def poison(C: Any, dtype: str, finite: bool = False) -> None:
    """Fill C with what no product contains, so that an element that is never written cannot pass: NaN, or a finite
    number for a kernel that reads C and multiplies it by 0."""
    C.view(f"i{C.dtype.itemsize}").fill(marker(dtype, Wanted(reads_c=finite)))


def marker(dtype: str, wanted: Wanted) -> int:
    """The bits, as an integer, of an element of C that nothing has written."""
    return result_of(dtype).finite_poison if wanted.reads_c else result_of(dtype).poison


def given(xp: Any, rows: Any, columns: int, dtype: str) -> Any:
    """The elements of some rows, an array of their numbers, of a C that is given: in [-1, 1), of integers whole."""
    places = (31 * rows[:, None] + 17 * xp.arange(columns)) % GIVEN - GIVEN // 2
    precision = result_of(dtype)
    return precision.narrow(xp, places if precision.exact else (places / GIVEN_UNIT).astype(np.float32))


def begin(C: Any, dtype: str, wanted: Wanted) -> None:
    """Make C what it is before a kernel runs."""
    xp = module(C)
    if wanted.initial:
        C.fill(0)
    elif wanted.beta:
        C[...] = given(xp, xp.arange(len(C)), C.shape[1], dtype)
    else:
        poison(C, dtype, wanted.reads_c)


def is_untouched(C: Any, dtype: str) -> bool:
    """Whether C still is as `poison` left it."""
    return bool((C.view(f"i{C.dtype.itemsize}") == result_of(dtype).poison).all())


def as_doubles(numbers: Any, order: str = "K") -> Any:
    """Numbers that float64 holds, as float64. CuPy flushes denormal floats to zero, so these are made of their bits."""
    xp = module(numbers)
    wide = numbers.astype(xp.float64, order=order)
    if xp is np or numbers.dtype != np.float32:
        return wide
    bits = numbers.view(xp.uint32)
    denormals = xp.copysign((bits & 0x7FFFFF).astype(xp.float64) * 2.0**-149, wide)
    return xp.where((bits & 0x7F800000) == 0, denormals, wide)


def reference(A: Any, B: Any, dtype: str, batch: int = 1) -> tuple[Any, Any]:
    """The product in float64 and the elementwise |A| |B|, both (n x m), of a batch (batch n x m). Integers are exact:
    their sums stay below 2^53.

    The sums run over k backwards. cuBLAS and every kernel here add in the order of k. A reference in the same order
    would agree with a double kernel to the last bit and so hide its rounding errors.
    """
    xp, precision = module(A), PRECISIONS[dtype]
    shape = A.shape[0], B.shape[1]
    A, B = (matrix if batch == 1 else matrix.reshape(batch, -1, matrix.shape[1]) for matrix in (A, B))
    A, B = (as_doubles(precision.wide(xp, matrix), "C") for matrix in (A[..., ::-1], B[..., ::-1, :]))
    product = A @ B
    xp.absolute(A, out=A)
    xp.absolute(B, out=B)
    return product.reshape(shape), (A @ B).reshape(shape)


def check(C: Any, product: Any, magnitude: Any, dtype: str, p: int, wanted: Wanted = PLAIN, rows: Any = None) -> Check:
    """Compare C with `reference(A, B, dtype)` of random operands. Elements that are not finite fail. `rows` are the
    numbers of the rows of C, if these are not all."""
    xp, precision = module(C), PRECISIONS[dtype].by(wanted.scheme)
    if precision.growth(p) == math.inf:
        return Check(False, math.inf, math.inf, f"a sum of {p} products kept in {dtype} may be wrong by any amount")
    product, magnitude = with_scalars(product, magnitude, dtype, wanted, rows)
    ratio = ratios(C, product, magnitude, dtype, p, wanted)
    stored, C = C, result_of(dtype).wide(xp, C)
    worst = float(ratio.max())
    norm = float(xp.linalg.norm(product))
    error = as_doubles(C) - product
    difference = float(xp.linalg.norm(error))
    relative = difference / norm if norm else difference
    own = deviation(error, product, magnitude, precision, p)
    most = MOST_DEVIATION * (1 + FEW / math.sqrt(C.size)) * precision.deviation(p)
    if worst <= 1 and own <= most:
        return Check(True, relative, worst)
    like = "" if wanted.beta else _as_accurate_as(error, magnitude, own, dtype, p)  # what beta C lacks is random too
    if worst <= 1:
        return Check(
            False,
            relative,
            worst,
            f"the errors are {own / precision.deviation(p):,.0f} times as large as sums in {wanted.scheme or dtype} "
            f"make them{like}",
        )
    wrong = int((ratio > 1).sum())
    row, column = (int(i) for i in np.unravel_index(int(ratio.argmax()), stored.shape))
    held, right = C[row, column].item(), product[row, column].item()
    digits = "g" if f"{held:g}" != f"{right:g}" else ""
    message = (
        f"{wrong} of {C.size} elements exceed the rounding bound; C[{row}, {column}] is {held:{digits}}, "
        f"should be {right:{digits}}{like}"
    )
    return Check(False, relative, worst, message)


def with_scalars(product: Any, magnitude: Any, dtype: str, wanted: Wanted, rows: Any = None) -> tuple[Any, Any]:
    """alpha A B + beta C and its magnitude, from those of A B; `rows` as of `check`."""
    if wanted.plain:
        return product, magnitude
    xp = module(product)
    product, magnitude = wanted.alpha * product, abs(wanted.alpha) * magnitude
    if wanted.beta and not wanted.initial:
        rows = xp.arange(len(product)) if rows is None else xp.asarray(rows)
        before = as_doubles(result_of(dtype).wide(xp, given(xp, rows, product.shape[1], dtype)))
        product, magnitude = product + wanted.beta * before, magnitude + abs(wanted.beta) * xp.absolute(before)
    return product, magnitude


def ratios(C: Any, product: Any, magnitude: Any, dtype: str, p: int, wanted: Wanted = PLAIN) -> Any:
    """The error of each element of C divided by its bound, infinite if it is not finite; arguments as of `check`,
    product and magnitude as of `updated`."""
    xp, precision = module(C), PRECISIONS[dtype].by(wanted.scheme)
    error = xp.absolute(as_doubles(result_of(dtype).wide(xp, C)) - product)
    bound = precision.growth(p if wanted.plain else p + 3) * magnitude  # alpha, beta and the last sum round too
    if precision.result_roundoff:
        bound = (1 + precision.result_roundoff) * bound + precision.result_roundoff * xp.absolute(product)
        bound += precision.result_floor
    ratio = xp.where(bound > 0, error / xp.where(bound > 0, bound, 1), xp.where(error == 0, 0, xp.inf))
    return xp.where(xp.isnan(ratio), xp.inf, ratio)


def deviation(error: Any, product: Any, magnitude: Any, precision: Precision, p: int) -> float:
    """The root mean square of the errors of random operands, relative to that of the sums, without what storing each
    result explains: an element's sum is as large as 4 / 3 |A| |B| / sqrt(p) in the root mean square."""
    xp = module(error)
    error = xp.absolute(error)
    if precision.result_roundoff:
        error = error - precision.result_roundoff * xp.absolute(product) - precision.result_floor
        error = xp.maximum(error, 0) / (1 + precision.result_roundoff)
    share = xp.where(magnitude > 0, error / xp.where(magnitude > 0, magnitude, 1), 0)
    with np.errstate(over="ignore"):
        return 0.75 * math.sqrt(p) * math.sqrt(float((share**2).mean()))


def _as_accurate_as(error: Any, magnitude: Any, own: float, dtype: str, p: int) -> str:
    """The words for a shorter type whose errors these are: of its size in most elements, and of both signs."""
    xp = module(error)
    share = xp.where(magnitude > 0, error / xp.where(magnitude > 0, magnitude, 1), 0)
    size = own / (0.75 * math.sqrt(p))
    if not math.isfinite(own) or float(xp.median(xp.absolute(share))) < size / 4 or abs(float(share.mean())) > size / 2:
        return ""
    for name in COARSER.get(dtype, ()):
        unit = ROUNDOFFS[name]
        most = math.hypot(1, OF_CHAIN * math.sqrt(p)) if name == "float" else 1
        if BELOW <= own / (math.sqrt(2) * OF_OPERAND * unit) <= ABOVE * most:
            return f"; as accurate as {name}: is there a conversion?"
    return ""


def check_rows(A: Any, B: Any, C: Any, dtype: str, rows: int, seed: int, wanted: Wanted = PLAIN) -> Check:
    """Compare `rows` whole random rows of C, the first and the last always among them, with `product_of_lines`.

    For products whose whole reference is too expensive. Returns a Check whose message says how many rows were checked.
    """
    n, p = A.shape
    chosen = np.arange(n)
    if rows < n:
        ends = [0, n - 1][:rows]
        between = 1 + np.random.default_rng(seed).choice(n - 2, size=rows - len(ends), replace=False)
        chosen = np.sort([*ends, *between]).astype(int)
    xp = module(A)
    some, computed = (xp.stack([matrix[int(row)] for row in chosen]) for matrix in (A, C))
    found = check(fetched(computed), *product_of_lines(some, B, dtype), dtype, p, wanted, chosen)
    checked = f"{len(chosen)} of {n} rows checked"
    message = f"{checked}: {found.message}" if found.message else checked
    return Check(found.ok, found.relative_error, found.bound_ratio, message)


def product_of_lines(lines: Any, matrix: Any, dtype: str, piece: int = PIECE) -> tuple[np.ndarray, np.ndarray]:
    """The product of a few rows with a matrix in float64, and that of their absolute values.

    They are summed where the matrix is, `piece` of its elements at a time, because it may leave hardly any memory.
    """
    xp, wide = module(matrix), PRECISIONS[dtype].wide
    found = np.empty((2, len(lines), matrix.shape[1]))
    lines = wide(xp, lines).astype(xp.float64)
    width = min(matrix.shape[1], PIECE_WIDTH)
    step = max(1, piece // width)
    for left in range(0, matrix.shape[1], width):
        columns = slice(left, left + width)
        sums = xp.zeros(found[..., columns].shape)
        for start in range(0, len(matrix), step):
            terms = slice(start, start + step)
            some, part = lines[:, terms], wide(xp, matrix[terms, columns]).astype(xp.float64)
            sums[0] += some @ part
            sums[1] += xp.absolute(some) @ xp.absolute(part, out=part)  # without a third copy of the piece
        found[..., columns] = fetched(sums)
    return found[0], found[1]


def fetched(array: Any) -> np.ndarray:
    """An array of a GPU or of the host, on the host."""
    return array if isinstance(array, np.ndarray) else array.get()
