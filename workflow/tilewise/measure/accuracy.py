"""Compare a product's accuracy with SGEMM's: test operands, errors against float64, and the verdict.

The rounding bound of `tilewise.study.verify` finds wrong products, but it grows with p, and at p = 1024 it lets plain
TF32 pass. So a kernel that claims the accuracy of float is compared with what cuBLAS's SGEMM makes of the same
operands. The same code for NumPy arrays and, on a GPU, for CuPy's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.study import verify
from tilewise.study.accuracy import DECADES
from tilewise.study.status import Accuracy

#: Rows of C that are compared at a time, so that the float64 copies stay small.
ROWS = 2048


def _ramp(xp: Any, count: int, period: int | None = None) -> Any:
    """Magnitudes from 10^-6 to 10^6 along `count` places, or again and again along each `period`."""
    place = xp.arange(count) % (period or count) / max(1, (period or count) - 1)
    return xp.exp2((place - 0.5) * (DECADES * np.log2(10))).astype(xp.float32)


def _scatter(xp: Any, generator: Any, matrix: Any) -> Any:
    return matrix * xp.exp2(generator.integers(-8, 3, size=matrix.shape).astype(xp.float32))


#: The kinds of operands by name, made from normally distributed A and B: functions of (xp, generator, A, B).
OPERANDS: dict[str, Callable[[Any, Any, Any, Any], tuple[Any, Any]]] = {
    "mixed": lambda xp, generator, A, B: (A, B),
    "positive": lambda xp, generator, A, B: (xp.abs(A), xp.abs(B)),
    "scattered": lambda xp, generator, A, B: (_scatter(xp, generator, A), _scatter(xp, generator, B)),
    "along_rows_and_columns": lambda xp, generator, A, B: (
        A * _ramp(xp, A.shape[0])[:, None],
        B * _ramp(xp, B.shape[1]),
    ),
    "along_k": lambda xp, generator, A, B: (A * _ramp(xp, len(B)), B * _ramp(xp, len(B))[:, None]),
    "opposed_along_k": lambda xp, generator, A, B: (A * _ramp(xp, len(B)), B / _ramp(xp, len(B))[:, None]),
    "steep_along_k": lambda xp, generator, A, B: (A * _ramp(xp, len(B), 64), B / _ramp(xp, len(B), 64)[:, None]),
}


def operands(xp: Any, kind: str, n: int, p: int, m: int, seed: int) -> tuple[Any, Any]:
    """Seeded random A (n x p) and B (p x m) of a kind of OPERANDS, in float32, in the array module `xp`."""
    key = np.random.SeedSequence([seed, n, p, m, list(OPERANDS).index(kind)]).generate_state(1)
    generator = xp.random.default_rng(int(key[0]))
    A, B = (generator.standard_normal(shape, dtype=xp.float32) for shape in ((n, p), (p, m)))
    return OPERANDS[kind](xp, generator, A, B)


@dataclass(frozen=True)
class Errors:
    """Errors of a C against float64: `relative` in the Frobenius norm, `worst` of the worst element relative to |A||B|.

    Both are of the elements that are numbers, and NaN if there is none. `refused` counts the NaN, with which a kernel
    marks operands out of its range. `scattered`: they are not whole rows and columns, so they mark nothing.
    """

    relative: float
    worst: float
    refused: int = 0
    scattered: bool = False


def errors(C: Any, A: Any, B: Any) -> Errors:
    """The errors of C, a product of the finite float32 matrices A and B."""
    xp = verify.module(C)
    refused = xp.isnan(C)
    whole = refused.all(axis=1)[:, None] | refused.all(axis=0)
    norm = difference = worst = 0.0
    for start in range(0, len(C), ROWS):
        rows = slice(start, start + ROWS)
        product, magnitude = verify.reference(A[rows], B, "float")
        error = xp.where(refused[rows], 0, xp.abs(C[rows] - product))
        norm += float((xp.where(refused[rows], 0, product) ** 2).sum())
        difference += float((error**2).sum())
        quotient = xp.where(
            magnitude > 0, error / xp.where(magnitude > 0, magnitude, 1), xp.where(error > 0, xp.inf, 0)
        )
        worst = max(worst, float(quotient.max()))
    count = int(refused.sum())
    if count == C.size:
        return Errors(math.nan, math.nan, count)
    relative = math.sqrt(difference / norm) if norm else math.sqrt(difference)
    return Errors(relative, worst, count, bool((refused & ~whole).any()))


def difference(C: np.ndarray, other: np.ndarray) -> float:
    """The distance of C from another product of the same operands, relative to that, in the Frobenius norm."""
    apart = np.linalg.norm(C.astype(np.float64) - other)
    norm = np.linalg.norm(other.astype(np.float64))
    return float(apart / norm) if norm else float(apart)


def verdict(own: Errors, sgemm: Errors) -> str:
    """PASSES if both errors are no larger than SGEMM's on the same operands, REFUSES if so except for whole rows and
    columns of NaN, else FAILS."""
    nothing = math.isnan(own.relative)
    if own.scattered or not (nothing or (own.relative <= sgemm.relative and own.worst <= sgemm.worst)):
        return Accuracy.FAILS
    return Accuracy.REFUSES if own.refused else Accuracy.PASSES
