"""Doubles by residues: the model against Python's integers, and the kernel on the emulator against the model, to the
last bit."""

import functools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from builders import KERNELS, product
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelscope
from kernelscope.compile import build
from kernelscope.emulator import Emulator
from reference import residues
from reference.residues import MODULI
from tilewise.study import points
from tilewise.study.sources import INCLUDE

KERNEL = KERNELS["double_from_int8"]
FILE = Path(__file__).with_name("residues.cu")
COUNTS = (13, 14, 15, 16)
CHOICE = {"tile_m": 64, "stages": 3, "cluster_blocks": 1, "band": 4}
counts = st.sampled_from(COUNTS)


# ---- The model -------------------------------------------------------------------------------------------------------


def test_the_moduli_are_the_largest_that_are_coprime():
    assert all(math.gcd(a, b) == 1 for i, a in enumerate(MODULI) for b in MODULI[:i])
    for below, above in zip(MODULI[1:], MODULI):
        skipped = range(below + 1, above)
        assert all(any(math.gcd(p, other) > 1 for other in MODULI[: MODULI.index(above) + 1]) for p in skipped)


@st.composite
def numbers(draw, share=1 - 2.0**-20):
    """How many moduli, and whole numbers below half of their product: of any size, small ones, and the largest."""
    count = draw(counts)
    most = int(Fraction(share) * ((math.prod(MODULI[:count]) - 1) // 2))
    size = st.one_of(st.integers(0, most), st.integers(0, 2**60), st.integers(most - 5, most))
    near = st.integers(1, most.bit_length() - 2).map(lambda e: 2**e)  # and halves between two doubles
    size = st.one_of(size, st.builds(lambda a, b, by: min(most, a + b + by), near, near, st.integers(-2, 2)))
    return count, draw(st.lists(st.builds(lambda s, sign: sign * s, size, st.sampled_from([1, -1])), min_size=1))


@given(numbers(share=1))
def test_a_number_is_told_by_its_residues(given_):
    count, found = given_
    signed = [residues.residues(np.array(found, object), p) for p in MODULI[:count]]
    for rest, p in zip(signed, MODULI):
        assert rest.dtype == np.int8 and (rest.astype(object) % p == np.array(found, object) % p).all()
        assert -(p // 2) <= rest.min() and rest.max() <= p - 1 - p // 2
    unsigned = [rest.astype(np.int64) % p for rest, p in zip(signed, MODULI)]
    assert residues.join(unsigned).tolist() == [float(number) for number in found]


@given(counts, st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 40), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_sums_stay_below_half_of_the_product_of_the_moduli(count, seed, n, p, m):
    rng = np.random.default_rng(seed)
    A, B = (rng.standard_normal(shape) * np.exp2(rng.integers(-90, 90, shape)) for shape in ((n, p), (p, m)))
    A, B = (np.where(rng.random(x.shape) < 0.3, 0, x) for x in (A, B))
    rows, columns = residues.operands(A, B, count)
    total = np.abs(rows.numbers) @ np.abs(columns.numbers).T
    half = math.prod(MODULI[:count]) // 2
    assert (total < half).all()
    assert all(number.bit_length() <= residues.bits(count) + 1 for number in np.abs(rows.numbers).ravel())


@given(counts, st.integers(0, 2**32), st.integers(1, 70))
@settings(max_examples=40, deadline=None)
def test_the_result_is_as_near_as_the_rounded_operands_allow(count, seed, p):
    """Each element is off by half a unit at most, and the result is rounded once."""
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((3, p)), rng.standard_normal((p, 4)) * 2.0 ** rng.integers(-400, 400, 4)
    C = residues.product(A, B, count)
    rows, columns = residues.operands(A, B, count)
    for i in range(3):
        for j in range(4):
            exact = sum(Fraction(a) * Fraction(b) for a, b in zip(A[i], B[:, j]))
            unit_a, unit_b = (Fraction(2) ** -int(e) for e in (rows.exponents[i], columns.exponents[j]))
            bound = sum(abs(Fraction(a)) * unit_b + abs(Fraction(b)) * unit_a for a, b in zip(A[i], B[:, j])) / 2
            bound += p * unit_a * unit_b / 4 + abs(exact) * Fraction(2) ** -52
            assert abs(Fraction(C[i, j]) - exact) <= bound


def test_whole_numbers_of_few_bits_are_multiplied_exactly():
    rng = np.random.default_rng(3)
    A, B = rng.integers(-(2**20), 2**20, (9, 50)), rng.integers(-(2**20), 2**20, (50, 7))
    C = residues.product(A * 2.0**-700, B * 2.0**300)
    assert (C == (A @ B) * 2.0**-400).all()


def test_sums_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="sums of 131073 products do not fit 32 bits; at most 131072 do"):
        residues.product(np.ones((1, 131073)), np.ones((131073, 1)))
    at = functools.partial(points.point, "t", KERNEL.name, "double", 1)
    choice = CHOICE | {"moduli": 14}
    assert KERNEL.unmet(at(131072, 1, **choice)) is None
    assert "p <= 131072" in KERNEL.unmet(at(131073, 1, **choice))
    assert "moduli <= 16" in KERNEL.unmet(at(64, 1, **choice | {"moduli": 17}))


# ---- The functions of the kernel -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def functions():
    names = (f"{name}<{count}>" for name in ("split", "join") for count in COUNTS)
    return kernelscope.build(FILE, "of_sums", *names, includes=[INCLUDE])


def expect(functions, name, result, wanted, **arrays):
    """Run a kernel over arrays; every element of its result must be as it should, to the last bit."""
    count = np.asarray(next(iter(arrays.values()))).shape[-1]
    grid = -(-count // 64)
    arguments = arrays | {result: np.zeros_like(wanted), "count": count}
    report = kernelscope.trace(functions, kernelscope.Call(name, grid, 64), arguments, expect={result: wanted})
    assert report.ok, report.faults


@given(counts, st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_the_kernel_splits_as_pythons_integers_do(functions, count, seed):
    rng, size = np.random.default_rng(seed), 200
    most = residues.bits(count)
    fractions = rng.choice([-1, 1], size) * rng.uniform(0.5, 1, size)
    x = np.ldexp(fractions, rng.integers(-1070, 1024, size))
    x[:8] = 0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7976931348623157e308, 1
    e = np.where(x != 0, rng.integers(-70, most + 1, size) - np.frexp(x)[1], 99).astype(np.int32)
    x[8:12], e[8:12] = [0.5, -0.5, 1.5, 2.0**53 - 0.5], 0  # halves
    found = residues.whole(x[:, None], e)[:, 0]
    assert max(abs(number) for number in found) <= 2**most
    arrays = {"x": x, "e": e, "r": np.zeros((count, size), np.int8), "count": size}
    report = kernelscope.trace(functions, kernelscope.Call(f"split<{count}>", -(-size // 64), 64), arrays)
    assert report.ok, report.faults
    for rest, p in zip(report.arrays["r"].astype(int), MODULI):
        wanted = residues.residues(found, p).astype(int)
        # 1 / p is rounded, so a residue next to half of p may be the number beyond it: 106 for -105, modulo 211.
        beyond = (np.abs(wanted) == p // 2) & (rest == wanted - np.sign(wanted) * p)
        assert ((rest == wanted) | beyond).all()


@pytest.mark.parametrize("count", COUNTS)
def test_every_residue_is_found_and_the_largest_numbers_too(functions, count):
    top = 2 ** residues.bits(count)
    found = [*range(-600, 600), *(sign * (top - by * 2**18) for sign in (1, -1) for by in range(9))]
    x = np.array(found, np.float64)
    wanted = np.stack([residues.residues(np.array([int(each) for each in x], object), p) for p in MODULI[:count]])
    for rest, p in zip(wanted, MODULI):
        assert len(set(rest.tolist())) == p
    expect(functions, f"split<{count}>", "r", wanted, x=x, e=np.zeros(len(x), np.int32))


def test_residues_of_sums_are_right_to_the_ends_of_their_range(functions):
    longest = [2**17 * (p // 2) ** 2 for p in MODULI]
    assert longest[0] == 2**31 and max(longest[1:]) < 2**31, "modulo 256 the longest sum passes 32 bits"
    ends = [sign * (size - by) for size in longest[1:] for sign in (1, -1) for by in range(600)]
    any_bytes = np.random.default_rng(4).integers(-(2**31), 2**31, 20000)
    sums = np.array([*ends, *range(-600, 600), *any_bytes, -(2**31), 2**31 - 1], np.int64)
    wanted = np.stack([sums % p for p in MODULI]).astype(np.uint8)
    expect(functions, "of_sums", "r", wanted, sums=sums.astype(np.int32))


@given(numbers())
@settings(max_examples=40, deadline=None)
def test_the_kernel_joins_to_the_nearest_double(functions, given_):
    count, found = given_
    r = np.stack([residues.residues(np.array(found, object), p) for p in MODULI[:count]])
    e = np.zeros(len(found), np.int32)
    expect(functions, f"join<{count}>", "x", np.array([float(number) for number in found]), r=r, e=e)


@given(numbers(), st.integers(-2300, 2300))
@settings(max_examples=15, deadline=None)
def test_the_kernel_scales_to_subnormal_numbers_and_infinities(functions, given_, exponent):
    count, found = given_
    r = np.stack([residues.residues(np.array(found, object), p) for p in MODULI[:count]])
    e = np.full(len(found), exponent, np.int32)
    with np.errstate(over="ignore", under="ignore"):
        wanted = np.ldexp(np.array([float(number) for number in found]), exponent)
    expect(functions, f"join<{count}>", "x", wanted, r=r, e=e)


# ---- The whole kernel ------------------------------------------------------------------------------------------------


@functools.cache
def library(folder, count, cluster):
    at = points.point("t", KERNEL.name, "double", 9, 9, 9, **CHOICE | chosen(count, cluster))
    return Emulator(build(KERNEL, KERNEL.plan(at).instances, Path(folder, f"{count}-{cluster}.so")))


def chosen(count, cluster=1):
    return {"moduli": count, "cluster_blocks": cluster}


@pytest.fixture(scope="module")
def multiplied(tmp_path_factory):
    """A function of A, B and the number of moduli: their product by the kernel, on the emulator."""
    folder = tmp_path_factory.mktemp("double")

    def multiply(A, B, count=14, cluster=1):
        n, p, m = *A.shape, B.shape[1]
        at = points.point("t", KERNEL.name, "double", n, p, m, **CHOICE | chosen(count, cluster))
        C = np.full((n, m), 7.0)
        product(KERNEL, at, library(folder, count, cluster), A, B, C)
        return C

    return multiply


def spread(rng, n, p, m):
    """Rows and columns of every size that doubles have, some with a few zeros, one of zeros, some out of range."""
    A, B = rng.standard_normal((n, p)), rng.standard_normal((p, m))
    A *= 2.0 ** rng.integers(-1000, 1000, (n, 1))
    B *= 2.0 ** rng.integers(-1000, 1000, (1, m))
    A[:, ::5] = 0
    special = [np.inf, -np.inf, np.nan]
    for i, value in enumerate(special):
        if n > 9:
            A[i, i % p] = value
        if m > 9:
            B[i % p, m - 1 - i] = value
    if n > 9:
        A[3], A[4], A[5] = 0, 5e-324, 1e-310 * rng.random(p)
        A[6] = np.exp(3 * rng.standard_normal(p))
        A[7, 0] = 2.0**1000
        A[8] = rng.integers(-9, 10, p)
    return A, B


@pytest.mark.parametrize("shape", [(37, 300, 35), (130, 33, 67), (1, 1, 1), (3, 700, 2), (11, 16, 64)], ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_the_kernel_is_the_model_to_the_last_bit(multiplied, shape, count):
    A, B = spread(np.random.default_rng(sum(shape)), *shape)
    C, wanted = multiplied(A, B, count), residues.product(A, B, count)
    assert (np.isnan(C) == np.isnan(wanted)).all()
    assert (np.where(np.isnan(C), 0, C).view(np.int64) == np.where(np.isnan(C), 0, wanted).view(np.int64)).all()


def test_clusters_of_two_compute_the_same(multiplied):
    A, B = spread(np.random.default_rng(5), 140, 150, 70)
    assert np.array_equal(multiplied(A, B, cluster=2), residues.product(A, B), equal_nan=True)


def test_what_is_out_of_range_is_refused(multiplied):
    rng = np.random.default_rng(8)
    A, B = rng.standard_normal((12, 80)), rng.standard_normal((80, 9))
    A[0, 3], A[1, 4], B[5, 2] = np.inf, np.nan, -np.inf
    A[2, 7] = 2.0**-900  # one element that would be lost
    A[3, :11] *= 2.0**-40  # as many as an eighth that keep few bits
    A[4, :9] *= 2.0**-35  # fewer
    A[5], A[6, 1:] = 0, 0
    A[7] *= 2.0**1020
    C = multiplied(A, B)
    assert np.isnan(C[[0, 1, 2, 3]]).all() and np.isnan(C[:, 2]).all()
    kept = np.delete(np.delete(C, 2, axis=1), [0, 1, 2, 3], axis=0)
    assert not np.isnan(kept).any()
    exact = np.delete(A[4:] @ B, 2, axis=1)
    magnitude = np.delete(np.abs(A[4:]) @ np.abs(B), 2, axis=1)
    assert (np.abs(kept - exact) <= 2.0**-45 * magnitude).all()
    assert (kept[1] == 0).all(), "a row of zeros"


def test_results_past_the_range_are_infinite_and_those_below_it_zero(multiplied):
    A, B = np.full((10, 20), 1.0), np.full((20, 10), 1.0)
    A[0] *= 2.0**1000
    A[1] *= 2.0**-1000
    B[:, 0] *= 2.0**1000
    B[:, 1] *= 2.0**-1000
    C = multiplied(A, B)
    assert C[0, 0] == np.inf and C[1, 1] == 0 and C[0, 1] == C[1, 0] == C[5, 5] == 20
    assert C[0, 5] == 20 * 2.0**1000 and C[5, 1] == 20 * 2.0**-1000


def test_zeros_that_never_meet_a_nonzero_give_exact_zeros(multiplied):
    """Grading's second test (J. Demmel and others): not an algorithm like Strassen's."""
    rng = np.random.default_rng(2)
    A, B = rng.random((8, 40)), rng.random((40, 8))
    A[::2, ::2], B[1::2, ::2] = 0, 0
    C = multiplied(A, B)
    assert (C[::2, ::2] == 0).all() and (C[1::2] > 0).all()
