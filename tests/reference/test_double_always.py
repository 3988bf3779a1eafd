"""`double_always` on the emulator: the tiles that its model makes of bytes are the residues' to the last bit, others
are DGEMM's; and the test lets through no result that is worse than a few of its units."""

import functools
from pathlib import Path

import numpy as np
import pytest
from builders import KERNELS, product
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.compile import build
from kernelscope.emulator import Emulator
from reference import residues
from reference.double_always import tiles_of_bytes
from tilewise.study import points

KERNEL = KERNELS["double_always"]
CHOICE = {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}
UNIT = 2.0**-53


@functools.cache
def library(folder, instances):
    return Emulator(build(KERNEL, instances, Path(folder, f"{abs(hash(instances))}.so")))


@pytest.fixture(scope="module")
def multiplied(tmp_path_factory):
    """A function of A and B: their product on the emulator, and how many results were made of bytes and in double."""
    folder = tmp_path_factory.mktemp("always")

    def multiply(A, B, **choice):
        n, p, m = *A.shape, B.shape[1]
        at = points.point("t", KERNEL.name, "double", n, p, m, **CHOICE | choice)
        C = np.full((n, m), 7.0)
        spaces = product(KERNEL, at, library(folder, tuple(KERNEL.plan(at).instances)), A, B, C)
        return C, spaces["shares"].view(np.uint64).ravel().tolist()

    return multiply


def errors(C, A, B):
    """Errors in units of 2^-53 |A| |B|, where that is finite and not 0."""
    exact, size = (x.astype(np.longdouble) @ y.astype(np.longdouble) for x, y in ((A, B), (np.abs(A), np.abs(B))))
    kept = np.isfinite(size) & (size > 0)
    return np.abs(C - exact)[kept] / size[kept] / UNIT


def check(multiplied, A, B, **choice):
    """Hold a product to the model, and return which of its results are made of bytes."""
    C, shares = multiplied(A, B, **choice)
    of_bytes = tiles_of_bytes(A, B, (CHOICE | choice)["tile_m"], (CHOICE | choice)["cluster_blocks"])
    assert shares == [of_bytes.sum(), (~of_bytes).sum()]
    with np.errstate(invalid="ignore", over="ignore"):
        native, wanted = A @ B, residues.product(A, B) if of_bytes.any() else np.zeros(C.shape)
    assert (C[of_bytes] == wanted[of_bytes]).all()
    assert (np.isnan(C) == np.isnan(native)).all() and (np.isinf(C) == np.isinf(native)).all()
    with np.errstate(invalid="ignore", over="ignore"):
        own = np.where(of_bytes, 0, C - native)
        bound = A.shape[1] * UNIT * (np.abs(np.nan_to_num(A)) @ np.abs(np.nan_to_num(B)))
    assert (np.abs(own)[np.isfinite(own)] <= bound[np.isfinite(own)]).all()
    return of_bytes


SHAPES = [(140, 300, 70), (37, 521, 135), (3, 257, 66)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ordinary_operands_are_made_of_bytes(multiplied, shape):
    n, p, m = shape
    rng = np.random.default_rng(p)
    A, B = rng.standard_normal((n, p)), rng.standard_normal((p, m))
    A *= 2.0 ** rng.integers(-300, 300, (n, 1))
    B *= 2.0 ** rng.integers(-300, 300, (1, m))
    A[1], B[:, 2] = 0, 0
    assert check(multiplied, A, B).all()
    assert check(multiplied, A, B, cluster_blocks=2, tile_m=128).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_short_sums_are_made_in_double(multiplied, shape):
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((shape[0], 255)), rng.standard_normal((255, shape[2]))
    assert not check(multiplied, A, B).any()
    assert not check(multiplied, A[:, :2].copy(), B[:2]).any()


def test_only_the_tiles_of_a_line_that_fails_are_made_in_double(multiplied):
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal((300, 280)), rng.standard_normal((280, 200))
    A[150, 7] = np.inf
    B[9, 130] = np.nan
    A[160] = 0
    A[160, 5] = 1  # what it meets may be small
    of_bytes = check(multiplied, A, B)
    wanted = np.ones((300, 200), bool)
    wanted[128:256] = wanted[:, 128:] = False
    assert (of_bytes == wanted).all()


@pytest.mark.parametrize("sides", [(1e-300, 1e300, 1), (2.0**512, 2.0**500, 0), (2.0**-1045, 1.0, 0)], ids=str)
def test_products_that_may_overflow_and_subnormal_operands_are_made_in_double(multiplied, sides):
    rng = np.random.default_rng(4)
    A, B = rng.standard_normal((130, 300)) * sides[0], rng.standard_normal((300, 65)) * sides[1]
    assert check(multiplied, A, B).all() == sides[2]


def test_sparse_operands_are_made_in_double_at_once(multiplied):
    rng = np.random.default_rng(5)
    A, B = rng.standard_normal((260, 400)) * (rng.random((260, 400)) < 0.02), rng.standard_normal((400, 130))
    assert not check(multiplied, A, B).any()
    rows = rng.permutation(260)[:3]
    B[:, 0] = 1e3 * (np.arange(400) == 7)
    mixed = np.where(np.isin(np.arange(260), rows)[:, None], A, rng.standard_normal((260, 400)))
    assert check(multiplied, mixed, B).mean() < 0.7


KINDS = ("normal", "positive", "wide", "scaled", "outliers", "steep", "integers", "sparse")


@pytest.mark.slow
@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.integers(0, 2**32), st.integers(257, 900), st.floats(0, 3))
@settings(max_examples=60, deadline=None)
def test_no_result_of_bytes_is_worse_than_a_few_units(of_a, of_b, seed, p, phi):
    rng = np.random.default_rng(seed)

    def made(kind, lines):
        x = rng.standard_normal((lines, p))
        factors = {
            "normal": 1,
            "positive": np.sign(x),
            "wide": np.exp(phi * rng.standard_normal(x.shape)),
            "scaled": 2.0 ** rng.integers(-40, 40, p),
            "outliers": np.where(rng.random(x.shape) < 0.01, 1e5, 1),
            "steep": 2.0 ** -np.arange(p),
            "sparse": rng.random(x.shape) < 0.2,
        }
        return np.round(9 * x) if kind == "integers" else x * factors[kind]

    A, B = made(of_a, 20), made(of_b, 17).T
    of_bytes = tiles_of_bytes(A, B, 64)
    if of_bytes.any():
        assert errors(residues.product(A, B), A, B).max() < 6
