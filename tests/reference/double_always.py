"""Which tiles kernels/ladder/double_always.cu makes of bytes, and what those hold, bit for bit."""

import numpy as np

from reference import residues

#: How many products of bytes there are; bits of an element in the test; the shortest sums that are tried.
MODULI, CHECK_BITS, SHORTEST = 14, 7, 257
#: The sum of two exponents up to which products cannot overflow.
MOST_EXPONENTS = 1023 - 17
ROWS, COLUMNS = 128, 128  # of a tile that is made in double


def tiles_of_bytes(A: np.ndarray, B: np.ndarray, tile_m: int, cluster: int = 1) -> np.ndarray:
    """Which results are made of bytes, n x m: those of tiles that pass the test, unless a neighbour among 128 columns
    does not; or none."""
    shape = len(A), B.shape[1]
    if A.shape[1] < SHORTEST:
        return np.zeros(shape, bool)
    rows, columns = _line(A), _line(B.T)
    lengths = ROWS * cluster, tile_m
    good = [1 - _any(line["doubtful"], length).mean() for line, length in zip((rows, columns), lengths)]
    if 4 * good[0] * good[1] < 1:
        return np.zeros(shape, bool)
    least = (rows["bytes"] @ columns["bytes"].T / 4**CHECK_BITS).astype(np.float32) ** 2
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.outer(rows["unit"], columns["norm"]) + np.outer(rows["norm"], columns["unit"])
    passes = (least >= error) & (rows["exponent"][:, None] + columns["exponent"] <= MOST_EXPONENTS)
    fails = _any(_any(~passes, lengths[0]).T, lengths[1]).T
    failed = np.kron(fails, np.ones(lengths, bool))[: shape[0], : shape[1]]
    return ~np.repeat(_any(failed.T, COLUMNS), COLUMNS, axis=0)[: shape[1]].T


def multiply(A: np.ndarray, B: np.ndarray, tile_m: int, cluster: int = 1) -> np.ndarray:
    """A (n x p) B (p x m) as the kernel computes it. In tiles made in double, only the order of the sums differs."""
    of_bytes = tiles_of_bytes(A, B, tile_m, cluster)
    return np.where(of_bytes, residues.product(A, B, MODULI), A @ B) if of_bytes.any() else A @ B


def _any(found: np.ndarray, length: int) -> np.ndarray:
    """Whether any of `length` neighbours along the first axis is set."""
    return np.array([found[first : first + length].any(axis=0) for first in range(0, len(found), length)])


def _line(x: np.ndarray) -> dict[str, np.ndarray]:
    """What the kernel finds of each row of A, or column of B."""
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, 0.0)
    some = (x != 0).any(axis=1)
    own, squares, magnitudes = residues.sizes(x)
    kept = np.where(some, residues.scaling(own, squares, MODULI) + own, 0)
    numbers = residues.whole(x, np.where(some, kept - own, 0)).astype(np.float64)
    unit, norm = 4.0 ** (53 - kept) / 12, squares * 4.0**-residues.SIZE_BITS
    met = (magnitudes * 2.0**-residues.SIZE_BITS) ** 2 / x.shape[1]
    with np.errstate(invalid="ignore"):
        checked = {"unit": np.where(finite, unit * some, np.inf), "norm": np.where(finite, norm * some, np.inf)}
    return {name: each.astype(np.float32) for name, each in checked.items()} | {
        "exponent": np.where(some, own, 0),
        "bytes": np.minimum(np.floor(np.abs(numbers) * 2.0 ** (CHECK_BITS - kept)[:, None]), 2**CHECK_BITS - 1),
        "doubtful": ~finite | (some & (met**2 < unit * norm)),
    }
