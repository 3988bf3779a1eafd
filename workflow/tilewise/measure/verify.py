"""Is C the product of A and B? The same code for NumPy arrays and, on a GPU, for CuPy's.

The test is the rounding-error bound of any summation order (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.5): |C - C_ref| <= gamma_p |A| |B| elementwise, with gamma_p = p u / (1 - p u) and u the
unit roundoff. Unlike a fixed tolerance, this bound is tight for small p and still holds for large p; NaN never passes.
"""

from dataclasses import dataclass

import numpy as np

from tilewise.study.registry import DTYPES

#: Poison for int32, which has no NaN. No product here is near it, because operands are at most 9 in magnitude.
INTEGER_POISON = np.iinfo(np.int32).min


@dataclass(frozen=True)
class Check:
    """Outcome of a verification: `relative_error` is in the Frobenius norm, `bound_ratio` is the largest error divided
    by its bound, `message` says what is wrong (if the product fails) or how much was checked (if it passes)."""

    ok: bool
    relative_error: float
    bound_ratio: float
    message: str = ""


def module(array):
    """The array module, NumPy or CuPy, that an array belongs to."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def operands(xp, dtype, n, p, m, seed):
    """Seeded random A (n x p) and B (p x m) in the array module `xp`: reals in [-1, 1), integers in [-9, 9].

    Both signs occur, because sums of positive numbers hide errors: they grow with p and dwarf a wrong term.
    """
    kind = DTYPES[dtype][1]
    key = int(np.random.SeedSequence([seed, n, p, m]).generate_state(1)[0])  # CuPy's generators take one number
    generator = xp.random.default_rng(key)
    matrices = []
    for shape in ((n, p), (p, m)):
        if kind.kind == "i":
            matrices.append(generator.integers(-9, 10, size=shape).astype(kind))
        else:
            matrix = generator.random(shape, dtype=kind)
            matrix *= 2
            matrix -= 1
            matrices.append(matrix)
    return matrices


def poison(C):
    """Fill C with a value that no product contains, so that an element that is never written cannot pass."""
    C.fill(np.nan if C.dtype.kind == "f" else INTEGER_POISON)


def reference(A, B):
    """The product in float64 and the elementwise |A| |B|, both (n x m). Integers are exact: their sums stay below 2^53.

    The sums run over k backwards. cuBLAS and every kernel here add in the order of k. A reference in the same order
    would agree with a double kernel to the last bit and so hide its rounding errors.
    """
    xp = module(A)
    A, B = (operand.astype(xp.float64, order="C") for operand in (A[:, ::-1], B[::-1]))
    product = A @ B
    xp.absolute(A, out=A)
    xp.absolute(B, out=B)
    return product, A @ B


def gamma(dtype, p):
    """gamma_p of an element type; 0 for integers, whose product must be exact."""
    kind = DTYPES[dtype][1]
    if kind.kind == "i":
        return 0.0
    unit = float(np.finfo(kind).eps) / 2
    return p * unit / (1 - p * unit)


def check(C, product, magnitude, dtype, p):
    """Compare C with `reference(A, B)`; returns a Check. Elements that are not finite fail."""
    xp = module(C)
    error = xp.absolute(C.astype(xp.float64) - product)
    bound = gamma(dtype, p) * magnitude
    ratio = xp.where(bound > 0, error / xp.where(bound > 0, bound, 1), xp.where(error == 0, 0, xp.inf))
    ratio = xp.where(xp.isnan(ratio), xp.inf, ratio)
    worst = float(ratio.max())
    norm = float(xp.linalg.norm(product))
    difference = float(xp.linalg.norm(error))
    relative = difference / norm if norm else difference
    if worst <= 1:
        return Check(True, relative, worst)
    wrong = int((ratio > 1).sum())
    row, column = (int(i) for i in np.unravel_index(int(ratio.argmax()), C.shape))
    message = (
        f"{wrong} of {C.size} elements exceed the rounding bound; C[{row}, {column}] is {C[row, column].item():g}, "
        f"should be {product[row, column].item():g}"
    )
    return Check(False, relative, worst, message)


def check_rows(A, B, C, dtype, rows, seed, chunk_bytes=1 << 28):
    """Compare `rows` whole random rows of C, the first and the last always among them, with float64 on the host.

    This is for products whose whole reference is too expensive. B is fetched and used a few rows at a time, so the
    check does not need memory on the device. Returns a Check whose message says how many rows were checked.
    """
    n, p = A.shape
    chosen = np.arange(n)
    if rows < n:
        ends = [0, n - 1][:rows]
        between = 1 + np.random.default_rng(seed).choice(n - 2, size=rows - len(ends), replace=False)
        chosen = np.sort([*ends, *between]).astype(int)
    fetch = np.asarray if module(A) is np else (lambda array: array.get())
    some = np.stack([fetch(A[int(row)]) for row in chosen]).astype(np.float64)
    product = np.zeros((len(chosen), B.shape[1]))
    magnitude = np.zeros_like(product)
    step = max(1, chunk_bytes // (8 * B.shape[1]))
    for start in range(0, p, step):
        part = fetch(B[start : start + step]).astype(np.float64)
        product += some[:, start : start + step] @ part
        magnitude += np.abs(some[:, start : start + step]) @ np.abs(part)
    computed = np.stack([fetch(C[int(row)]) for row in chosen])
    found = check(computed, product, magnitude, dtype, p)
    checked = f"{len(chosen)} of {n} rows checked"
    return Check(
        found.ok, found.relative_error, found.bound_ratio, f"{checked}: {found.message}" if found.message else checked
    )
