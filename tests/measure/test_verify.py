"""The verification passes right products and nothing else: on arrays, and on planted mutants of the kernels."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.measure import verify
from tilewise.measure.backends import emulator
from tilewise.study.points import Point
from tilewise.study.registry import DTYPES

SHAPE = (33, 70, 37)  # n, p, m: not multiples of a tile


def product(dtype, shape=SHAPE):
    """A, B and a C computed in the element type."""
    A, B = verify.operands(np, dtype, *shape, seed=1)
    return A, B, A @ B


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), p=st.integers(1, 300), m=st.integers(1, 40))
def test_a_right_product_passes_at_any_shape(dtype, n, p, m):
    A, B, C = product(dtype, (n, p, m))
    found = verify.check(C, *verify.reference(A, B), dtype, p)
    assert found.ok and found.bound_ratio <= 1
    assert verify.check_rows(A, B, C, dtype, rows=5, seed=0).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_leaves_its_operands_alone(dtype):
    for shape in (SHAPE, (5, 1, 7)):
        A, B, _ = product(dtype, shape)
        before = A.copy(), B.copy()
        verify.reference(A, B)
        assert np.array_equal(A, before[0]) and np.array_equal(B, before[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spoil", ["poison", "one element", "transposed operand", "last k", "last row", "zeros"])
def test_a_wrong_product_fails(dtype, spoil):
    A, B, C = product(dtype)
    if spoil == "poison":
        verify.poison(C[-1:, -1:])
    elif spoil == "one element":
        C[3, 5] += 1 if dtype == "int32" else 100 * verify.gamma(dtype, A.shape[1]) * (np.abs(A) @ np.abs(B))[3, 5]
    elif spoil == "transposed operand":
        C = A @ np.ascontiguousarray(B.T).reshape(B.shape)
    elif spoil == "last k":
        C = A[:, :-1] @ B[:-1]
    elif spoil == "last row":
        C[-1] = C[-2]
    else:
        C[:] = 0
    found = verify.check(C, *verify.reference(A, B), dtype, A.shape[1])
    assert not found.ok
    assert found.bound_ratio > 1
    assert "should be" in found.message
    rows = verify.check_rows(A, B, C, dtype, rows=A.shape[0], seed=0)
    assert not rows.ok


def test_a_nan_fails_even_where_nothing_is_added():
    A, B = np.zeros((2, 3)), np.zeros((3, 2))
    C = np.array([[0, np.nan], [0, 0]])
    assert not verify.check(C, *verify.reference(A, B), "double", 3).ok
    assert verify.check(np.zeros((2, 2)), *verify.reference(A, B), "double", 3).ok


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


def test_rows_are_the_same_however_b_is_cut():
    A, B, C = product("float")
    whole = verify.check_rows(A, B, C, "float", 33, 0)
    pieces = verify.check_rows(A, B, C, "float", 33, 0, chunk_bytes=8 * 37 * 4)
    assert whole.bound_ratio == pytest.approx(pieces.bound_ratio)


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
    (tmp_path / kernel.source).write_text(text.replace(old, new))
    mutant = dataclasses.replace(kernel, folder=tmp_path)
    point = Point("t", kernel_name, "float", *SHAPE, 16, 16, None if kernel_name == "naive" else 16, 3)
    assert run(kernel, tmp_path / "right.so", point).ok
    assert not run(mutant, tmp_path / "mutant.so", point).ok


def run(kernel, library, point):
    """Run a kernel on the emulator and verify its product as the measurements do."""
    emulator.build(kernel, [kernel.instance(point)], library)
    A, B, C = product(point.dtype, (point.n, point.p, point.m))
    verify.poison(C)
    sizes = point.n, point.p, point.m
    emulator.Emulator(library).launch(kernel.instance(point), kernel.geometry(point), A, B, C, *sizes)
    return verify.check(C, *verify.reference(A, B), point.dtype, point.p)
