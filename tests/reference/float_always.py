"""What kernels/ladder/float_always.cu computes, bit for bit, in NumPy: each 64 of k of a tile by the scheme that its
operands need. The constants are the kernel's."""

import itertools

import numpy as np

from reference.tensor_core import SCHEMES, chain, product

#: The way of a tile, or of 64 of k of it.
THREE_PRODUCTS, SIX_PRODUCTS, EXACT = 0, 1, 2
#: How much of k, and how many rows and columns, are judged together.
BLOCK, GROUP_ROWS, GROUP_COLUMNS = 64, 128, 64
#: Up to how many products a sum is made in float.
SHORT_SUM = 32
#: Exponent fields: of large elements below the largest, of the least that three bfloat16 hold and of the largest that
#: halves can hold, and of two factors whose product may overflow.
_LARGE_WITHIN, _LEAST, _MOST, _PRODUCT = 4, 17, 226, 378
_NOT_FINITE = 255


def known(x: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is known of blocks of k, by group of rows (of A, or columns of B, along the first axis): the largest
    exponent field, whether some row is not even, whether there are elements of which bfloat16 would lose bits."""
    count, p = x.shape
    blocks, groups = -(-p // BLOCK), -(-count // group)
    bits = np.abs(np.pad(x, ((0, groups * group - count), (0, blocks * BLOCK - p)))).view(np.uint32)
    exponents = (bits >> np.uint32(23)).astype(np.int64).reshape(groups, group, blocks, BLOCK)
    nonzero = (bits != 0).reshape(exponents.shape)
    largest = exponents.max(axis=3)
    large = (exponents + _LARGE_WITHIN >= largest[..., None]) & (np.arange(blocks * BLOCK) < p).reshape(blocks, BLOCK)
    valid = np.minimum(BLOCK, p - BLOCK * np.arange(blocks))
    even = (largest >= _LEAST) & (largest <= _MOST) & (2 * large.sum(axis=3) > valid) | ~nonzero.any(axis=3)
    tiny = (nonzero & (exponents < _LEAST)).any(axis=(1, 3))
    return largest.max(axis=1), ~even.all(axis=1), tiny


def ways(A: np.ndarray, B: np.ndarray, tile_m: int) -> np.ndarray:
    """The way of each 64 of k (last axis) of each tile of C (rows, columns) that `float_always` plans."""
    a_most, a_uneven, a_tiny = (x[:, None] for x in known(A, GROUP_ROWS))
    # What is tiny is known of 128 columns together.
    panels, (b_most, b_uneven, _) = tile_m // GROUP_COLUMNS, known(B.T, GROUP_COLUMNS)
    b_tiny = np.repeat(known(B.T, 2 * GROUP_COLUMNS)[2], 2, axis=0)[: len(b_most)]
    missing = -len(b_most) % panels
    b_most, b_uneven, b_tiny = (
        np.pad(x, ((0, missing), (0, 0))).reshape(-1, panels, x.shape[1]).max(axis=1)[None]
        for x in (b_most, b_uneven, b_tiny)
    )
    uneven = a_uneven | b_uneven
    exact = (a_most == _NOT_FINITE) | (b_most == _NOT_FINITE) | (a_most + b_most >= _PRODUCT)
    exact |= uneven & (a_tiny | b_tiny)
    found = np.where(uneven, SIX_PRODUCTS, THREE_PRODUCTS)
    found[exact.any(axis=2) | (A.shape[1] <= SHORT_SUM)] = EXACT
    return found


def multiply(A: np.ndarray, B: np.ndarray, tile_m: int = 192) -> tuple[np.ndarray, np.ndarray]:
    """A B (n x p, p x m) in float32, and its ways, in which a tile that overflowed is exact."""
    A, B = np.asarray(A, np.float32), np.asarray(B, np.float32)
    found = ways(A, B, tile_m)
    C = np.empty((len(A), B.shape[1]), np.float32)
    for tile in np.ndindex(found.shape[:2]):
        rows = slice(tile[0] * GROUP_ROWS, (tile[0] + 1) * GROUP_ROWS)
        columns = slice(tile[1] * tile_m, (tile[1] + 1) * tile_m)
        a, b, way = A[rows], B[:, columns], found[tile]
        made = np.full((len(a), b.shape[1]), np.nan, np.float32)
        if (way < EXACT).all():
            made = _on_tensor_cores(a, b, way)
        if not np.isfinite(made).all():
            found[tile], made = EXACT, chain(a, b)
        C[rows, columns] = made
    return C, found


def _on_tensor_cores(A: np.ndarray, B: np.ndarray, way: np.ndarray) -> np.ndarray:
    """A tile by schemes that take turns along k: runs of one scheme go on with the total of those before."""
    total = np.zeros((len(A), B.shape[1]), np.float32)
    ends = [0, *(1 + np.flatnonzero(np.diff(way))), len(way)]
    for first, last in itertools.pairwise(ends):
        of_k = slice(first * BLOCK, last * BLOCK)
        scheme = SCHEMES["float_from_bf16" if way[first] == SIX_PRODUCTS else "float_always"]
        total = product(A[:, of_k], B[of_k], scheme, total)
    return total
