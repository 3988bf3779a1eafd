"""How doubles are multiplied by products of bytes, bit for bit as kernels/ladder/double_from_int8.cu does it, in
Python's integers.

Ozaki's scheme II (K. Ozaki, Y. Uchino, T. Imamura, arXiv 2504.08009; arXiv 2508.03984): rows of A and columns of B
are multiplied by powers of two and rounded to whole numbers, whose product, less than half of the product of all moduli
in size, follows from its residues. The constants here follow from the moduli in another way than those of
kernels/include/residues.cuh, so that each checks the other.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

#: The largest numbers up to 256 that are pairwise coprime.
MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193)
#: How many steps of k are measured together for a norm; bits of an element where it is taken.
CHUNK, SIZE_BITS = 256, 16
#: The bits that are cut of a chunk's sum of magnitudes.
SUM_CUT = 15
#: The least exponent of a line.
LEAST_EXPONENT = -1000
#: What each element of a row or a column must keep; what all but an eighth must keep, in sums of p products log2 p
#: less; how many may keep less.
LEAST_BITS, FEW_BITS, FEW = 8, 48, 4
#: The longest sums that fit 32 bits.
LONGEST_SUM = 2**17


@dataclass(frozen=True)
class Lines:
    """Rows of A or columns of B, one per row of `numbers`: the exponents by which they are multiplied, the whole
    numbers that result (as Python's), and which of them are refused."""

    exponents: np.ndarray
    numbers: np.ndarray
    refused: np.ndarray


def bits(count: int) -> int:
    """The size in bits that a number of `count` moduli may have before it is split into bytes."""
    return 53 if count <= 14 else 62


def product(A: np.ndarray, B: np.ndarray, count: int = 14) -> np.ndarray:
    """A (n x p) B (p x m) in float64 by the first `count` moduli; NaN where a row or a column is refused.

    Raises ValueError for sums that are too long.
    """
    A, B = np.asarray(A, np.float64), np.asarray(B, np.float64)
    if A.shape[1] > LONGEST_SUM:
        raise ValueError(f"sums of {A.shape[1]} products do not fit 32 bits; at most {LONGEST_SUM} do")
    rows, columns = operands(A, B, count)
    stored = np.int64 if bits(count) < 63 else object
    left, right = rows.numbers.astype(stored), columns.numbers.astype(stored)
    sums = [residues(left, p).astype(np.int64) @ residues(right, p).astype(np.int64).T for p in MODULI[:count]]
    joined = join([total % p for total, p in zip(sums, MODULI)])
    with np.errstate(over="ignore", under="ignore"):
        C = np.ldexp(joined, -(rows.exponents[:, None] + columns.exponents))
    C[rows.refused[:, None] | columns.refused] = np.nan
    return C


def operands(A: np.ndarray, B: np.ndarray, count: int) -> tuple[Lines, Lines]:
    """The rows of A and the columns of B as whole numbers."""
    found = []
    for x in (A, B.T):
        finite = np.isfinite(x).all(axis=1)
        x = np.where(finite[:, None], x, 0.0)
        exponents = np.where((x != 0).any(axis=1), scaling(*sizes(x)[:2], count), 0)
        numbers = whole(x, exponents)
        found.append(Lines(exponents, numbers, ~finite | out_of_range(x, numbers)))
    return found[0], found[1]


def largest_exponents(x: np.ndarray) -> np.ndarray:
    """For each row the least e with |x| < 2^e, at least LEAST_EXPONENT; that for a row of zeros."""
    exponents = np.where(x != 0, np.frexp(x)[1], LEAST_EXPONENT).max(axis=1, initial=LEAST_EXPONENT)
    return exponents.astype(np.int64)


def rounded_up(x: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """|x| 2^e, rounded up, where it is less than 2^63."""
    with np.errstate(under="ignore"):
        scaled = np.ceil(np.ldexp(np.abs(x), exponents))
    return np.where(x != 0, np.maximum(scaled, 1), 0).astype(np.int64)


def sizes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The exponents e of the largest elements of rows, bounds of their sums of squares, in units of 4^(e - SIZE_BITS),
    and their sums of magnitudes, in units of 2^(e - SIZE_BITS), cut. Chunks are added in units of the larger."""
    own = np.full(len(x), LEAST_EXPONENT, np.int64)
    squares, magnitudes = np.zeros((2, len(x)), np.int64)
    for first in range(0, x.shape[1], CHUNK):
        part = x[:, first : first + CHUNK]
        exponents = largest_exponents(part)
        whole_numbers = rounded_up(part, SIZE_BITS - exponents[:, None])
        exponents = np.where((part != 0).any(axis=1), exponents, own)
        common = np.maximum(own, exponents)
        cut = whole_numbers.sum(axis=1) >> SUM_CUT << SUM_CUT
        magnitudes = (magnitudes >> np.minimum(common - own, 63)) + (cut >> np.minimum(common - exponents, 63))
        new = (whole_numbers**2).sum(axis=1)
        squares = _shifted(squares, 2 * (common - own)) + _shifted(new, 2 * (common - exponents))
        own = common
    return own, squares, magnitudes


def _shifted(sums: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Sums over 2^by, rounded up."""
    low = np.clip(by, 0, 62)
    return np.where(by > 62, np.minimum(sums, 1), (sums + (1 << low) - 1) >> low)


def scaling(own: np.ndarray, size: np.ndarray, count: int) -> np.ndarray:
    """The exponents by which rows are multiplied whose largest elements have the exponents `own`: so that the squares,
    at most `size` in units of 4^(own - SIZE_BITS), fill what the product of the moduli allows for one factor."""
    total = math.prod(MODULI[:count])
    length = total.bit_length()
    first, second = total >> length - 40 << length - 40, total % (1 << length - 40) >> length - 80 << length - 80
    most = (float(first) + float(second)) * 0.5 * (1 - 2.0**-20)
    power = np.frexp(most / np.maximum(size, 1))[1] - 1
    return (np.minimum(power // 2 + SIZE_BITS, bits(count)) - own).astype(np.int64)


def whole(x: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """x 2^e, a row's own e, rounded to the nearest whole number, halves to even, as Python's integers."""
    found = np.zeros(x.shape, object)
    for place, value in np.ndenumerate(x):
        found[place] = round(Fraction(float(value)) * Fraction(2) ** int(exponents[place[0]]))
    return found


def out_of_range(x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The rows of which an element keeps too few bits, or too many keep few."""
    size, nonzero = np.abs(numbers), x != 0
    lost = nonzero & (size < 1 << LEAST_BITS - 1).astype(bool)
    enough = 1 << FEW_BITS - 1 - (x.shape[1] - 1).bit_length()
    few = (nonzero & (size < enough).astype(bool)).sum(axis=1)
    return lost.any(axis=1) | ((few >= FEW) & (8 * few >= nonzero.sum(axis=1)))


def residues(numbers: np.ndarray, p: int) -> np.ndarray:
    """Signed residues modulo p of whole numbers, as bytes."""
    shift = p // 2
    return ((numbers + shift) % p - shift).astype(np.int8)


def join(residues: list[np.ndarray]) -> np.ndarray:
    """The doubles nearest to the whole numbers that have these residues modulo the first of MODULI, and are less than
    half of their product in size."""
    moduli = MODULI[: len(residues)]
    total = math.prod(moduli)
    number = np.zeros(residues[0].shape, object)
    for rest, p in zip(residues, moduli):
        number += rest.astype(object) * (total // p * pow(total // p, -1, p))
    number = (number + total // 2) % total - total // 2
    return number.astype(np.float64)
