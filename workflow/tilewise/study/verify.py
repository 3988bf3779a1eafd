"""Is C the product of A and B? The same code for NumPy arrays and, on a GPU, for CuPy's.

The test is the rounding-error bound of any summation order (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.5): |C - C_ref| <= gamma_p |A| |B| elementwise, with gamma_p = p u / (1 - p u) and u the
unit roundoff of the sums. To it come the rounding of the operands, if the kernel rounds them, and of the result, if it
is stored in fewer digits; `tilewise.study.precision` has both. Unlike a fixed tolerance the bound is tight for small
p, still holds for large p, and NaN never passes it.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.study.precision import PRECISIONS, result_of


@dataclass(frozen=True)
class Check:
    """Outcome of a verification: `relative_error` is in the Frobenius norm, `bound_ratio` is the largest error divided
    by its bound, `message` says what is wrong (if the product fails) or how much was checked (if it passes)."""

    ok: bool
    relative_error: float
    bound_ratio: float
    message: str = ""


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
    precision = result_of(dtype)
    C.view(f"i{C.dtype.itemsize}").fill(precision.finite_poison if finite else precision.poison)


def untouched(C: Any, dtype: str) -> bool:
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


def check(C: Any, product: Any, magnitude: Any, dtype: str, p: int, short_sums: bool = False) -> Check:
    """Compare C with `reference(A, B, dtype)`. Elements that are not finite fail. `short_sums`: allow for sums that are
    kept in the type of the elements, not in float."""
    xp = module(C)
    if short_sums and PRECISIONS[dtype].with_short_sums().growth(p) == math.inf:
        return Check(False, math.inf, math.inf, f"a sum of {p} products kept in {dtype} may be wrong by any amount")
    ratio = ratios(C, product, magnitude, dtype, p, short_sums)
    stored, C = C, result_of(dtype).wide(xp, C)
    worst = float(ratio.max())
    norm = float(xp.linalg.norm(product))
    difference = float(xp.linalg.norm(xp.absolute(as_doubles(C) - product)))
    relative = difference / norm if norm else difference
    if worst <= 1:
        return Check(True, relative, worst)
    wrong = int((ratio > 1).sum())
    row, column = (int(i) for i in np.unravel_index(int(ratio.argmax()), stored.shape))
    held, right = C[row, column].item(), product[row, column].item()
    digits = "g" if f"{held:g}" != f"{right:g}" else ""
    message = (
        f"{wrong} of {C.size} elements exceed the rounding bound; C[{row}, {column}] is {held:{digits}}, "
        f"should be {right:{digits}}"
    )
    return Check(False, relative, worst, message)


def ratios(C: Any, product: Any, magnitude: Any, dtype: str, p: int, short_sums: bool = False) -> Any:
    """The error of each element of C divided by its bound, infinite if it is not finite; arguments as of `check`."""
    xp, precision = module(C), PRECISIONS[dtype]
    if short_sums:
        precision = precision.with_short_sums()
    error = xp.absolute(as_doubles(result_of(dtype).wide(xp, C)) - product)
    bound = precision.growth(p) * magnitude
    if precision.result_roundoff:
        bound = (1 + precision.result_roundoff) * bound + precision.result_roundoff * xp.absolute(product)
        bound += precision.result_floor
    ratio = xp.where(bound > 0, error / xp.where(bound > 0, bound, 1), xp.where(error == 0, 0, xp.inf))
    return xp.where(xp.isnan(ratio), xp.inf, ratio)


def check_rows(A: Any, B: Any, C: Any, dtype: str, rows: int, seed: int, chunk_bytes: int = 1 << 28) -> Check:
    """Compare `rows` whole random rows of C, the first and the last always among them, with float64 on the host.

    For products whose whole reference is too expensive: B is fetched and used a few rows at a time, so that the check
    needs no memory on the device. Returns a Check whose message says how many rows were checked.
    """
    n, p = A.shape
    wide = PRECISIONS[dtype].wide
    chosen = np.arange(n)
    if rows < n:
        ends = [0, n - 1][:rows]
        between = 1 + np.random.default_rng(seed).choice(n - 2, size=rows - len(ends), replace=False)
        chosen = np.sort([*ends, *between]).astype(int)
    fetch = np.asarray if module(A) is np else (lambda array: array.get())
    some = wide(np, np.stack([fetch(A[int(row)]) for row in chosen])).astype(np.float64)
    product = np.zeros((len(chosen), B.shape[1]))
    magnitude = np.zeros_like(product)
    step = max(1, chunk_bytes // (8 * B.shape[1]))
    for start in range(0, p, step):
        part = wide(np, fetch(B[start : start + step])).astype(np.float64)
        product += some[:, start : start + step] @ part
        magnitude += np.abs(some[:, start : start + step]) @ np.abs(part)
    computed = np.stack([fetch(C[int(row)]) for row in chosen])
    found = check(computed, product, magnitude, dtype, p)
    checked = f"{len(chosen)} of {n} rows checked"
    message = f"{checked}: {found.message}" if found.message else checked
    return Check(found.ok, found.relative_error, found.bound_ratio, message)
