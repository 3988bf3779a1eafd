"""What the tensor cores of Hopper compute, bit for bit, and how floats are computed from their short numbers, in NumPy.

An instruction of short numbers (half, bfloat16, TF32) is one fused sum: the products are exact, each is cut towards
zero to 25 fractional bits below the largest exponent among the products and C, what is left is added exactly, and the
result is cut to a float towards zero. Only the operands are rounded to nearest, where they are converted. After MMA-Sim
(github.com/microsoft/MMA-Sim, MIT).

On an H200 the model was compared with mma.sync: no bit differed in 983,040 results of single instructions (mixed signs,
positive, graded, subnormal, and TF32 operands that were not rounded). A part of these results is kept in
h200/.
"""

from dataclasses import dataclass

import numpy as np

#: How much of k an instruction takes: mma.m16n8k16 and wgmma.k16, or m16n8k8 and wgmma.k8.
DEPTH = {"half": 16, "bfloat16": 16, "tf32": 8}
#: Kept of each product while a tensor core adds: 23 on Volta, 24 on Ampere, 25 on Hopper.
FRACTION_BITS = 25
#: The least exponent of a normal number; below it a significand is less than 1.
_LEAST_EXPONENT = {"half": -14, "bfloat16": -126, "tf32": -126, "float": -126}
#: The only one that comes out, whatever went in.
_NAN = np.uint32(0x7FFFFFFF).view(np.float32)


# ---- The operands ----------------------------------------------------------------------------------------------------


def round_to(x: np.ndarray, dtype: str) -> np.ndarray:
    """Floats to the nearest number of `dtype`, as float32: half and bfloat16 ties to even, tf32 ties away from zero."""
    x = np.asarray(x, np.float32)
    if dtype == "half":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    if dtype == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    else:
        bits = (bits + 0x1000) & np.uint64(0xFFFFE000)
    return np.where(np.isfinite(x), bits.astype(np.uint32).view(np.float32), x)


def split(x: np.ndarray, dtype: str, parts: int) -> list[np.ndarray]:
    """`x` as a sum of `parts` numbers of `dtype`, the largest first; what is left out is an error of the scheme.

    As the kernels split: a bfloat16 whose nearest is infinite is rounded towards zero, and nothing is left of an
    infinity.
    """
    rest, found = np.asarray(x, np.float32), []
    for _ in range(parts):
        part = round_to(rest, dtype)
        if dtype == "bfloat16":
            cut = (rest.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
            part = np.where(np.isinf(part), cut, part)
        found.append(part)
        with np.errstate(invalid="ignore"):
            rest = rest - part  # exact
        if dtype == "bfloat16":
            rest = np.where(np.isfinite(part), rest, np.float32(0))
    return found


# ---- The instructions ------------------------------------------------------------------------------------------------


def mma(dtype: str, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> np.ndarray:
    """One instruction: D = A B + C as float32, with A (..., rows, DEPTH[dtype]) and B (..., DEPTH[dtype], columns).

    Any number of rows and columns will do, because no result depends on another. A tensor core ignores the last 13 bits
    of an operand of tf32; it does not round. Leading dimensions are of instructions side by side.
    """
    A, B, C = (np.asarray(x, np.float32) for x in (A, B, C))
    if A.shape[-1] != DEPTH[dtype] or B.shape[-2] != DEPTH[dtype]:
        raise ValueError(f"the instruction takes {DEPTH[dtype]} of k, not {A.shape[-1]} and {B.shape[-2]}")
    if dtype == "tf32":
        A, B = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (A, B))
    if all(np.isfinite(x).all() for x in (A, B, C)):
        return _fused(dtype, A, B, C)
    with np.errstate(invalid="ignore"):
        plain = A.astype(np.float64) @ B.astype(np.float64) + C  # no sum of finite products is infinite
    found = _fused(dtype, *(np.where(np.isfinite(x), x, np.float32(0)) for x in (A, B, C)))
    special = np.where(np.isnan(plain), _NAN, np.where(plain > 0, np.inf, -np.inf).astype(np.float32))
    return np.where(np.isfinite(plain), found, special)


def _fused(dtype: str, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> np.ndarray:
    """`mma` of finite numbers."""
    A, B = np.swapaxes(A, -1, -2)[..., None], B[..., None, :]  # (..., k, rows, 1) and (..., k, 1, columns)
    largest = np.maximum((_exponents(A, dtype) + _exponents(B, dtype)).max(axis=-3), _exponents(C, "float"))
    grid = _power_of_two(FRACTION_BITS - largest)  # 1 / the last bit that is kept
    terms = A.astype(np.float64) * B.astype(np.float64)
    terms *= grid[..., None, :, :]
    total = np.trunc(terms, out=terms).sum(axis=-3)  # exact in any order
    total += np.trunc(C * grid)
    total += 0.0  # a sum of nothing is +0
    return _cut(total / grid)


def _exponents(x: np.ndarray, dtype: str) -> np.ndarray:
    """e of x = s 2^e with 1 <= |s| < 2, or less where e would be below that of the least normal number."""
    bits = x.view(np.int32) & 0x7FFFFFFF
    exponents = np.where(bits == 0, -126, np.maximum((bits >> 23) - 127, _LEAST_EXPONENT[dtype]))
    return exponents.astype(np.int16)  # as short as they can be: there is one for each product


def _power_of_two(exponent: np.ndarray) -> np.ndarray:
    """2^exponent as doubles, which are normal; np.ldexp takes four times as long."""
    return ((exponent.astype(np.int64) + 1023) << 52).view(np.float64)


def _cut(x: np.ndarray) -> np.ndarray:
    """Doubles to floats, towards zero; infinite from 2^128 on."""
    kept = (x.view(np.int64) & -(1 << 29)).view(np.float64)  # the 24 bits of a normal float
    small = np.abs(x) < 2.0**-126
    if small.any():
        kept = np.where(small, np.trunc(x * 2.0**149) * 2.0**-149, kept)
    with np.errstate(over="ignore"):
        return kept.astype(np.float32)


# ---- The schemes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scheme:
    """How a product of floats is computed from products of short numbers.

    products: which part of A by which part of B (0 is the largest), in the order of the instructions in each `block`
    of k; promoted: after each block the tensor core's sums are added to a total in float, and begin again at 0; scaled:
    each block of a row of A and of a column of B is multiplied by a power of two first; if it `refuses`, what is out of
    range then is NaN.
    """

    dtype: str
    products: tuple[tuple[int, int], ...] = ((0, 0),)
    block: int = 64
    promoted: bool = False
    scaled: bool = False
    refuses: bool = True

    @property
    def parts(self) -> int:
        """Short numbers for each float."""
        return 1 + max(max(pair) for pair in self.products)


_THREE = ((1, 0), (0, 1), (0, 0))
_SIX = ((2, 0), (0, 2), (1, 1), *_THREE)
#: What the kernels of the registry do, by the name that the registry gives it, and the short types alone.
SCHEMES = {
    "bfloat16": Scheme("bfloat16"),
    "half": Scheme("half"),
    "tf32": Scheme("tf32"),
    "three_tf32": Scheme("tf32", _THREE, block=32),
    "float_from_bf16": Scheme("bfloat16", _SIX, promoted=True),
    "float_from_half": Scheme("half", _THREE, promoted=True, scaled=True),
    "float_always": Scheme("half", _THREE, promoted=True, scaled=True, refuses=False),  # if all operands are even
}


def product(A: np.ndarray, B: np.ndarray, scheme: Scheme, total: np.ndarray | None = None) -> np.ndarray:
    """A (n x p) B (p x m) as a scheme computes it, in float32. A sample of rows and columns shows the error of all.

    A promoted scheme goes on with `total`, which is of earlier k.
    """
    A, B = np.asarray(A, np.float32), np.asarray(B, np.float32)
    missing = -A.shape[1] % scheme.block
    blocks = (A.shape[1] + missing) // scheme.block
    # (block, row, k) and (block, k, column); zeros past the end, as TMA fills them.
    A = np.pad(A, ((0, 0), (0, missing))).reshape(len(A), blocks, scheme.block).transpose(1, 0, 2)
    B = np.pad(B, ((0, missing), (0, 0))).reshape(blocks, scheme.block, B.shape[1])
    if scheme.promoted:  # blocks side by side are next to each other in memory
        A, B = np.asfortranarray(A), np.asfortranarray(B)
    if scheme.scaled:
        A, rows = _scaled(A, 2, scheme.refuses)
        B, columns = _scaled(B, 1, scheme.refuses)
    parts_a, parts_b = (split(x, scheme.dtype, scheme.parts) for x in (A, B))
    if not scheme.promoted:
        sums = np.zeros((A.shape[1], B.shape[2]), np.float32)
        for block in range(blocks):
            sums = _block(scheme, [a[block] for a in parts_a], [b[block] for b in parts_b], sums)
        return sums
    sums = _block(scheme, parts_a, parts_b, np.zeros((blocks, A.shape[1], B.shape[2]), np.float32, order="F"))
    total = np.zeros(sums.shape[1:], np.float32) if total is None else total
    with np.errstate(invalid="ignore", over="ignore"):
        for block in range(blocks):
            total = _add(total, sums[block] * columns[block], rows[block]) if scheme.scaled else total + sums[block]
    return total


def _block(scheme: Scheme, parts_a: list[np.ndarray], parts_b: list[np.ndarray], sums: np.ndarray) -> np.ndarray:
    """The instructions of one block of k, or of many side by side."""
    depth = DEPTH[scheme.dtype]
    for a, b in scheme.products:
        for k in range(0, scheme.block, depth):
            sums = mma(scheme.dtype, parts_a[a][..., k : k + depth], parts_b[b][..., k : k + depth, :], sums)
    return sums


def _scaled(x: np.ndarray, axis: int, refuses: bool) -> tuple[np.ndarray, np.ndarray]:
    """Blocks times the power of two that brings their largest element to [2^14, 2^15), and the inverses of the powers.

    As kernels/ladder/float_from_half.cu: the inverse is NaN where the block is out of range for two halves, if this is
    refused.
    """
    bits = np.abs(x).view(np.uint32)
    largest = (bits.max(axis=axis, keepdims=True) >> np.uint32(23)).astype(np.int64)
    nonzero = (bits != 0).sum(axis=axis, keepdims=True)
    tiny = ((bits != 0) & ((bits >> np.uint32(23)) + 20 < largest)).sum(axis=axis, keepdims=True)
    refused = refuses & ((largest >= 227) | ((tiny >= 4) & (8 * tiny >= nonzero)))
    power = np.clip(largest, 16, 227) - 141
    with np.errstate(invalid="ignore", over="ignore"):
        return x * np.ldexp(np.float32(1), -power), np.where(refused, _NAN, np.ldexp(np.float32(1), power))


def _add(total: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b + total of floats, as a fused multiply-add: the sum of an exact product is rounded to double before float,
    which differs in one of 2^29 cases."""
    return (a.astype(np.float64) * b + total).astype(np.float32)


def chain(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B as SGEMM sums it on CUDA cores: fused multiply-adds in the order of k, in float32."""
    A, B = np.asarray(A, np.float32), np.asarray(B, np.float32)
    total = np.zeros((A.shape[0], B.shape[1]), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for k in range(A.shape[1]):
            total = _add(total, A[:, k, None], B[None, k])
    return total
