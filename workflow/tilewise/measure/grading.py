"""Grade the accuracy of products on their worst operands, in NumPy and, on a GPU, in CuPy.

After J. Demmel and others, as NVIDIA's CUDALibrarySamples state the tests (cuBLAS/Emulation/gemm_grading). A product of
p terms has the grade A if every error is at most p epsilon |A||B|, element by element; B, if it is at most p epsilon
times the norms of its row of A and its column of B; C, if the norm of all errors is at most p epsilon times the norms
of A and B. A result that is not finite where it should be, or finite where it should not, has none. The reference of
floats is float64; that of doubles has twice the digits, and is made for some of the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.study import verify
from tilewise.study.accuracy import CURVE, WIDE, Grade
from tilewise.study.precision import PRECISIONS

#: Operands of a test: a function of (xp, generator, A, B) on normally distributed A and B, which it may change.
Change = Callable[[Any, Any, Any, Any], tuple[Any, Any]]


def _thinned(xp: Any, generator: Any, x: Any, share: float) -> Any:
    return x * (generator.random(x.shape, dtype=np.float32) < share)


def _lognormal(sigma: float) -> Change:
    return lambda xp, generator, A, B: (xp.exp(sigma * A), xp.exp(sigma * B))


def _with(row: int, column: int, value: float) -> Change:
    def changed(xp: Any, generator: Any, A: Any, B: Any) -> tuple[Any, Any]:
        A[row % A.shape[0], column % A.shape[1]] = value
        return A, B

    return changed


def _large_column(xp: Any, generator: Any, A: Any, B: Any) -> tuple[Any, Any]:
    A[:, A.shape[1] // 3] *= 1e6
    return A, B


def _zeros(xp: Any, generator: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """Test 2: half of the rows of A and of the columns of B have nothing in common, so their products are 0."""
    some = generator.random(A.shape[1]) < 0.5
    A[::2] *= some
    B[:, ::2] *= ~some[:, None]
    return A, B


def _denormals(xp: Any, generator: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """Made on the host, because CuPy flushes denormal floats to zero."""
    on_host = A if xp is np else A.get()
    return xp.asarray(np.ldexp(on_host, int(np.finfo(A.dtype).minexp) - 14)), xp.ldexp(B, 20)


def _powers(xp: Any, generator: Any, A: Any, B: Any) -> tuple[Any, Any]:
    return tuple(xp.ldexp(x, generator.integers(-24, 25, size=x.shape).astype(np.int32)) for x in (A, B))


def _wide(xp: Any, dtype: str, generator: Any, shape: tuple[int, int], phi: int) -> Any:
    """Uniform numbers of both signs times exp(phi x), x normal: how GEMMul8's authors spread exponents.

    The last bits of a double's exp depend on the machine, the bits of a float hardly ever do.
    """
    stored = PRECISIONS[dtype].stored
    spread = xp.exp(phi * generator.standard_normal(shape, dtype=stored)).astype(np.float32)
    return (generator.random(shape, dtype=stored) - 0.5).astype(stored) * spread


def _permutation(xp: Any, generator: Any, A: Any, B: Any) -> tuple[Any, Any]:
    n, p = A.shape
    return (xp.arange(p)[None] == (7 * xp.arange(n)[:, None] + 3) % p).astype(A.dtype), B


#: The tests by name; `zeros` is the second of the field, `spread` the fourth, which has a number and its own function.
TESTS: dict[str, Change] = {
    "normal": lambda xp, generator, A, B: (A, B),
    "positive": lambda xp, generator, A, B: (xp.abs(A), xp.abs(B)),
    "sparse": lambda xp, generator, A, B: (_thinned(xp, generator, A, 0.03), _thinned(xp, generator, B, 0.03)),
    "identity": lambda xp, generator, A, B: (xp.eye(*A.shape, dtype=A.dtype), B),
    "permutation": _permutation,
    "log-normal 1": _lognormal(1),
    "log-normal 3": _lognormal(3),
    "large column": _large_column,
    "large element": _with(5, 77, 1e30),
    "random exponents": _powers,
    "zeros": _zeros,
    "denormals": _denormals,
    "infinite": _with(3, 11, np.inf),
    "not a number": _with(4, 12, np.nan),
}
#: The rows of a product of doubles that are compared: the first, which have the tests' single elements, and others.
FIRST_ROWS, RANDOM_ROWS = 8, 56
#: Terms of its sums that are in memory at a time, in some ten arrays.
TERMS_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Quotients:
    """The largest errors divided by epsilon and by what the grades A, B and C compare them with, and how many results
    are not finite, or finite, where they should not be."""

    componentwise: float
    rowwise: float
    normwise: float
    lost: int = 0

    def grade(self, p: int) -> Grade:
        """The grade of a product of p terms."""
        if self.lost:
            return Grade.NONE
        for grade, quotient in zip(Grade, (self.componentwise, self.rowwise, self.normwise)):
            if quotient <= p:
                return grade
        return Grade.NONE


def operands(
    xp: Any, dtype: str, test: str, n: int, p: int, m: int, seed: int, number: int | None = None
) -> tuple[Any, Any]:
    """Seeded random A (n x p) and B (p x m) of a test in float or double, of CURVE and, with phi as `number`, WIDE."""
    key = np.random.SeedSequence([seed, n, p, m, [CURVE, *TESTS, WIDE].index(test)]).generate_state(1)
    generator, stored = xp.random.default_rng(int(key[0])), PRECISIONS[dtype].stored
    if test == CURVE:
        return tuple(generator.random(shape, dtype=stored) for shape in ((n, p), (p, m)))
    if test == WIDE:
        return tuple(_wide(xp, dtype, generator, shape, number or 0) for shape in ((n, p), (p, m)))
    A, B = (generator.standard_normal(shape, dtype=stored) for shape in ((n, p), (p, m)))
    with np.errstate(under="ignore"):
        A, B = TESTS[test](xp, generator, A, B)
    return xp.ascontiguousarray(A.astype(stored)), xp.ascontiguousarray(B.astype(stored))


def spread(xp: Any, dtype: str, n: int, exponent: int, seed: int) -> tuple[Any, Any]:
    """Test 4, n x n: diagonals from 2^exponent to 2^-exponent, of A in one way and of B in the other."""
    x = 1 + np.random.default_rng(seed).random(n)
    d = np.exp2(np.round(np.linspace(exponent, -exponent, n)))
    place = (np.arange(n)[:, None] + np.arange(n)) % n
    stored = PRECISIONS[dtype].stored
    return xp.asarray((x * d)[place].astype(stored)), xp.asarray((x / d)[place].astype(stored))


def widest(dtype: str, n: int) -> int:
    """The largest exponent of test 4."""
    return {"float": 64, "double": 512}[dtype] - int(np.log2(n)) - 2


class Reference:
    """The reference of products of A (n x p) and B (p x m) in float or double.

    Of doubles these are FIRST_ROWS and RANDOM_ROWS, if there are more; `seed` chooses the latter.
    """

    def __init__(self, A: Any, B: Any, dtype: str, seed: int = 0):
        self.xp, self.p, self.info = verify.module(A), len(B), np.finfo(PRECISIONS[dtype].stored)
        self.rows: Any = slice(None)
        if dtype == "double" and len(A) > FIRST_ROWS + RANDOM_ROWS:
            others = FIRST_ROWS + np.random.default_rng(seed).choice(len(A) - FIRST_ROWS, RANDOM_ROWS, replace=False)
            self.rows = self.xp.asarray(np.sort([*range(FIRST_ROWS), *others]))
            A = A[self.rows]
        with np.errstate(all="ignore"):
            product, self.magnitude = verify.reference(A, B, dtype)
            self.stored = product.astype(A.dtype)
            self.right: tuple[Any, Any] = doubled_product(A, B) if dtype == "double" else (product, 0.0)
            # Norms as products, because CuPy compiles a sum along an axis again for most shapes.
            of_rows = self.xp.sqrt(verify.as_doubles(A) ** 2 @ self.xp.ones(A.shape[1]))
            of_columns = self.xp.sqrt(self.xp.ones(len(B)) @ verify.as_doubles(B) ** 2)
            self.by_row = of_rows[:, None] * of_columns
            self.whole = float(self.xp.linalg.norm(of_rows) * self.xp.linalg.norm(of_columns))

    def quotients(self, C: Any) -> Quotients:
        """The errors of a product C (n x m) as quotients."""
        C, xp, epsilon = C[self.rows], self.xp, float(self.info.eps)
        with np.errstate(all="ignore"):
            finite = xp.isfinite(self.stored)
            alike = (self.stored == C) | (xp.isnan(C) & xp.isnan(self.stored))
            same = xp.where(finite, xp.isfinite(C), alike)
            error = xp.where(finite & same, xp.abs(verify.as_doubles(C) - self.right[0] - self.right[1]), 0)
            # Every product may underflow, and lose up to the least number.
            error = xp.maximum(error - self.p * float(self.info.smallest_subnormal), 0)
            found = [_largest(xp, error, bound, epsilon, finite) for bound in (self.magnitude, self.by_row)]
            norm, whole = float(xp.linalg.norm(error)), self.whole
            lost = int((~same).astype(float).sum())  # CuPy adds floats without compiling
        normwise = norm / (epsilon * whole) if 0 < whole < np.inf else 0.0 if norm == 0 or whole != 0 else np.inf
        return Quotients(found[0], found[1], normwise, lost)


def doubled_product(A: Any, B: Any) -> tuple[Any, Any]:
    """A B of doubles as a sum of two doubles, off by about 2^-104 |A||B| (T. Ogita, S. Rump, S. Oishi, Accurate sum and
    dot product, 2005; here the terms are added in pairs)."""
    xp = verify.module(A)
    (n, p), m = A.shape, B.shape[1]
    high, low = xp.empty((n, m)), xp.empty((n, m))
    (a, c), (b, d) = (_halves(x) for x in (A[:, :, None], B))
    step = max(1, TERMS_AT_ONCE // (p * m))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        terms = A[rows, :, None] * B
        cut_off = ((a[rows] * b - terms) + a[rows] * d + c[rows] * b) + c[rows] * d
        upper, lower = _summed(terms, cut_off)
        high[rows] = upper + lower
        low[rows] = lower - (high[rows] - upper)
    return high, low


def _halves(x: Any) -> tuple[Any, Any]:
    """The sign, the exponent and 26 bits of doubles, and the other 27."""
    xp = verify.module(x)
    upper = (xp.ascontiguousarray(x).view(xp.int64) & xp.int64(-1 << 27)).view(xp.float64)
    return upper, x - upper


def _summed(high: Any, low: Any) -> tuple[Any, Any]:
    """The sums along the second of three axes. Rounding errors of `high` are added to `low`, whose own are lost."""
    xp = verify.module(high)
    while (p := high.shape[1]) > 1:
        halves, odd = (slice(p // 2), slice(p // 2, p // 2 * 2)), slice(p // 2 * 2, p)
        first, second = (high[:, half] for half in halves)
        total = first + second
        back = total - first
        rest = low[:, halves[0]] + low[:, halves[1]] + ((first - (total - back)) + (second - back))
        high, low = xp.concatenate([total, high[:, odd]], 1), xp.concatenate([rest, low[:, odd]], 1)
    return high[:, 0], low[:, 0]


def _largest(xp: Any, error: Any, bound: Any, epsilon: float, finite: Any) -> float:
    usual = finite & (bound > 0) & xp.isfinite(bound)
    quotient = xp.where(usual, error / xp.where(usual, epsilon * bound, 1), xp.where(error > 0, xp.inf, 0))
    return float(quotient.max())
