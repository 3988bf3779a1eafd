"""The verification passes right products and nothing else: on arrays, and on planted mutants of the kernels."""

import dataclasses

import builders
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope import compile
from kernelscope.emulator import Emulator
from tilewise.study import verify
from tilewise.study.points import point
from tilewise.study.precision import PRECISIONS, bytes_of_product, result_of

SHAPE = (33, 70, 37)  # n, p, m: not multiples of a tile


def product(dtype, shape=SHAPE):
    """A, B and a C computed in the element type."""
    precision = PRECISIONS[dtype]
    A, B = verify.operands(np, dtype, *shape, seed=1)
    if precision.exact:
        return A, B, np.matmul(A, B, dtype=result_of(dtype).stored)
    if precision.result_roundoff:  # the sums of half and bfloat16 are floats
        wide = (precision.wide(np, matrix).astype(np.float32) for matrix in (A, B))
        return A, B, precision.narrow(np, np.matmul(*wide))
    return A, B, A @ B


@pytest.mark.parametrize("dtype", PRECISIONS)
@settings(max_examples=25)
@given(n=st.integers(1, 40), p=st.integers(1, 300), m=st.integers(1, 40))
def test_a_right_product_passes_at_any_shape(dtype, n, p, m):
    A, B, C = product(dtype, (n, p, m))
    found = verify.check(C, *verify.reference(A, B, dtype), dtype, p)
    assert found.ok and found.bound_ratio <= 1
    assert verify.check_rows(A, B, C, dtype, rows=5, seed=0).ok


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_reference_leaves_its_operands_alone(dtype):
    for shape in (SHAPE, (5, 1, 7)):
        A, B, _ = product(dtype, shape)
        before = A.copy(), B.copy()
        verify.reference(A, B, dtype)
        assert np.array_equal(A, before[0]) and np.array_equal(B, before[1])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("spoil", ["poison", "one element", "transposed operand", "last k", "last row", "zeros"])
def test_a_wrong_product_fails(dtype, spoil):
    precision = PRECISIONS[dtype]
    A, B, stored = product(dtype)
    wide_a, wide_b, C = (np.array(precision.wide(np, matrix), np.float64) for matrix in (A, B, stored))
    if spoil == "one element":
        C[3, 5] += 1 if precision.exact else 100 * precision.growth(A.shape[1]) * (abs(wide_a) @ abs(wide_b))[3, 5]
        C[3, 5] *= 1 + 3 * precision.result_roundoff
    elif spoil == "transposed operand":
        C = wide_a @ np.ascontiguousarray(wide_b.T).reshape(B.shape)
    elif spoil == "last k":
        C = wide_a[:, :-1] @ wide_b[:-1]
    elif spoil == "last row":
        C[-1] = C[-2]
    elif spoil == "zeros":
        C[:] = 0
    C = result_of(dtype).narrow(np, C)
    if spoil == "poison":
        verify.poison(C[-1:, -1:], dtype)
    found = verify.check(C, *verify.reference(A, B, dtype), dtype, A.shape[1])
    assert not found.ok
    assert found.bound_ratio > 1
    assert "should be" in found.message
    rows = verify.check_rows(A, B, C, dtype, rows=A.shape[0], seed=0)
    assert not rows.ok


def test_bytes_are_summed_exactly_in_int32():
    A, B = verify.operands(np, "int8", 60, 200, 50, seed=3)
    assert A.dtype == B.dtype == np.int8 and {A.min(), A.max()} == {-128, 127}, "all that there are"
    C = np.full((60, 50), 7, np.int32)
    verify.poison(C, "int8")
    assert (C == -(2**31)).all() and verify.is_untouched(C, "int8")
    assert result_of("int8").stored == np.int32 and result_of("half").name == "half"
    assert bytes_of_product("int8", 3, 5, 7) == 15 + 35 + 4 * 21


@pytest.mark.parametrize("p, fits", [(2**17 - 1, True), (2**17, False)])
def test_the_largest_sum_of_bytes_fits_int32(p, fits):
    A, B = np.full((1, p), -128, np.int8), np.full((p, 1), -128, np.int8)
    product, _ = verify.reference(A, B, "int8")
    C = np.matmul(A, B, dtype=np.int32)
    assert verify.check(C, *verify.reference(A, B, "int8"), "int8", p).ok == fits
    assert (product.item() == C.item()) == fits


def test_a_nan_fails_even_where_nothing_is_added():
    A, B = np.zeros((2, 3)), np.zeros((3, 2))
    C = np.array([[0, np.nan], [0, 0]])
    assert not verify.check(C, *verify.reference(A, B, "double"), "double", 3).ok
    assert verify.check(np.zeros((2, 2)), *verify.reference(A, B, "double"), "double", 3).ok


def test_random_rows_always_hold_the_first_and_the_last():
    A, B, C = product("float", (50, 20, 30))
    for row in (0, -1):
        spoiled = C.copy()
        spoiled[row, 7] += 1
        assert not verify.check_rows(A, B, spoiled, "float", rows=3, seed=0).ok
    assert verify.check_rows(A, B, C, "float", rows=3, seed=0).message == "3 of 50 rows checked"


@pytest.mark.parametrize(
    ("n", "rows", "checked"), [(9, 8, 8), (65, 64, 64), (64, 64, 64), (3, 64, 3), (7, 1, 1), (2, 1, 1)]
)
def test_as_many_rows_are_checked_as_were_asked_for(n, rows, checked):
    A, B = verify.operands(np, "float", n, 5, 6, 1)
    found = verify.check_rows(A, B, A @ B, "float", rows, 1)
    assert found.message == f"{checked} of {n} rows checked"


@pytest.mark.parametrize("piece, width", [(1, 1), (37 * 4, 37), (37 * 4, 10), (1 << 22, 1 << 13)])
def test_rows_are_the_same_however_b_is_cut(piece, width, monkeypatch):
    monkeypatch.setattr(verify, "PIECE", piece)
    monkeypatch.setattr(verify, "PIECE_WIDTH", width)
    A, B, _ = product("float")
    found = verify.product_of_lines(A[3:7], B, "float")
    for sums, whole in zip(found, verify.reference(A, B, "float")):
        np.testing.assert_allclose(sums, whole[3:7], rtol=1e-12, atol=1e-12)


MUTANTS = {  # kernel, text, replacement: each must make the product wrong
    "swapped index": ("naive", "A + static_cast<long long>(row) * p", "A + static_cast<long long>(col) * p"),
    "edge of k": ("naive", "k < p", "k < p - 1"),
    "edge of C": ("naive", "col >= m", "col >= m - 1"),
    "edge of A": ("tiled", "row < n && start + tx < p ?", "row < n && start + tx < p - 1 ?"),
    "rows and columns": ("tiled", "tile_b[k][tx]", "tile_b[tx][k]"),
    "no first barrier": ("tiled", "__syncthreads();  // both tiles", "// both tiles"),
    "no second barrier": ("tiled", "__syncthreads();  // every thread", "// every thread"),
    "one tile too few": (
        "multi_tile",
        "t < NTB; ++t)\n                sums",
        "t < NTB - 1; ++t)\n  sums",
    ),
    "wrong tile": ("multi_tile", "first_col + t * TILE;\n        if", "first_col + t;\n        if"),
    "no barrier": ("multi_tile", "__syncthreads();  // all tiles", "// all tiles"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_a_kernel_fails(kernels, tmp_path, name):
    kernel_name, old, new = MUTANTS[name]
    kernel = kernels[kernel_name]
    text = kernel.path.read_text()
    assert text.count(old) == 1, f"{kernel.source} no longer contains {old!r} exactly once"
    (tmp_path / "mutant.cu").write_text(text.replace(old, new))
    mutant = dataclasses.replace(kernel, folder=tmp_path, source="mutant.cu")
    values = {"block": {"block_x": 16, "block_y": 16}, "tile": {"tile": 16}, "ntb": {"ntb": 3}}
    choice = {name: value for parameter in kernel.parameters for name, value in values[parameter].items()}
    at = point("t", kernel_name, "float", *SHAPE, **choice)
    assert run(kernel, tmp_path / "right.so", at).ok
    assert not run(mutant, tmp_path / "mutant.so", at).ok


def run(kernel, library, at):
    """Run a kernel on the emulator and verify its product as the measurements do."""
    compile.build(kernel, kernel.plan(at).instances, library)
    A, B, C = product(at.dtype, (at.n, at.p, at.m))
    verify.poison(C, at.dtype)
    builders.product(kernel, at, Emulator(library), A, B, C)
    return verify.check(C, *verify.reference(A, B, at.dtype), at.dtype, at.p)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_what_is_stored_in_two_bytes_is_rounded_to_nearest(dtype):
    precision = PRECISIONS[dtype]
    numbers = np.array([1.0, -1 / 3, 3e-8, 65504.0, 0.0], np.float32)
    back = precision.wide(np, precision.narrow(np, numbers)).astype(np.float64)
    error = np.abs(back - numbers)
    assert (error <= precision.result_roundoff * np.abs(numbers) + precision.result_floor).all()
    assert back[0] == 1 and back[4] == 0


def test_a_kernel_may_round_operands_only_in_the_type_that_says_so():
    A, B, _ = product("tf32", (8, 64, 8))
    rounded = [(matrix.view(np.int32) & -(1 << 13)).view(np.float32) for matrix in (A, B)]  # ten bits, truncated
    C = rounded[0] @ rounded[1]
    assert verify.check(C, *verify.reference(A, B, "tf32"), "tf32", 64).ok
    assert not verify.check(C, *verify.reference(A, B, "float"), "float", 64).ok


def test_a_batch_is_verified_matrix_by_matrix():
    A, B = verify.operands(np, "float", 3, 4, 5, seed=1, batch=2)
    assert A.shape == (6, 4) and B.shape == (8, 5) and not np.array_equal(A[:3], A[3:])
    product, magnitude = verify.reference(A, B, "float", batch=2)
    for number in range(2):
        rows, inner = slice(3 * number, 3 * number + 3), slice(4 * number, 4 * number + 4)
        alone = verify.reference(A[rows], B[inner], "float")
        np.testing.assert_allclose(product[rows], alone[0], rtol=1e-15)
        np.testing.assert_allclose(magnitude[rows], alone[1], rtol=1e-15)
    right = product.astype(np.float32)
    assert verify.check(right, product, magnitude, "float", 4).ok
    right[4, 2] += 1
    assert "C[4, 2]" in verify.check(right, product, magnitude, "float", 4).message


WANTED = {
    "alpha": verify.Wanted(alpha=2.5),
    "beta": verify.Wanted(beta=3),
    "both": verify.Wanted(alpha=-2, beta=0.5),
    "zeros": verify.Wanted(alpha=2, beta=3, initial="zeros"),
}


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_alpha_a_b_plus_beta_c_is_verified_and_nothing_else(dtype, name):
    wanted, precision = WANTED[name], result_of(dtype)
    if precision.exact:
        wanted = dataclasses.replace(wanted, alpha=round(wanted.alpha), beta=round(2 * wanted.beta))
    A, B, _ = product(dtype)
    C = np.empty((SHAPE[0], SHAPE[2]), precision.stored)
    verify.begin(C, dtype, wanted)
    before = precision.wide(np, C).astype(np.float64) if wanted.begins else np.zeros(C.shape)
    assert before.any() == (name in ("beta", "both"))
    right, magnitude = verify.reference(A, B, dtype)
    made = wanted.alpha * right + wanted.beta * before
    stored = precision.narrow(
        np, made if dtype == "double" else made.astype(np.float32 if not precision.exact else int)
    )
    assert verify.check(stored, right, magnitude, dtype, SHAPE[1], wanted).ok
    assert verify.check_rows(A, B, stored, dtype, 5, 0, wanted).ok
    plain = precision.narrow(
        np, right if dtype == "double" else right.astype(np.float32 if not precision.exact else int)
    )
    assert not verify.check(plain, right, magnitude, dtype, SHAPE[1], wanted).ok
    assert not verify.check(stored, right, magnitude, dtype, SHAPE[1]).ok


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_given_c_is_the_same_in_every_part_and_held_exactly(dtype):
    precision = result_of(dtype)
    whole = verify.given(np, np.arange(300), 40, dtype)
    assert np.array_equal(whole[[7, 299]], verify.given(np, np.array([7, 299]), 40, dtype))
    numbers = precision.wide(np, whole).astype(np.float64)
    unit = 1 if precision.exact else verify.GIVEN_UNIT
    assert np.array_equal(numbers * unit, np.round(numbers * unit)) and len(np.unique(numbers)) == verify.GIVEN
