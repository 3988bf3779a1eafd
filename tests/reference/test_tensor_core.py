"""The model of the tensor cores against an H200: single instructions bit for bit, and the errors of whole kernels.

h200/instructions.json holds the bits of D of single instructions (little-endian hex), h200/errors.csv what the kernels
of the ladder and cuBLAS's SGEMM were off by on the operands of the accuracy gate: both measured on one H200 by the
authors of these kernels, with mma.sync and with the kernels themselves.
"""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import tensor_core
from reference.tensor_core import DEPTH, SCHEMES, Scheme, mma, product, round_to, split
from tilewise.measure import accuracy

H200 = Path(__file__).parent / "h200"
INSTRUCTIONS = json.loads((H200 / "instructions.json").read_text())
ERRORS = pd.read_csv(H200 / "errors.csv")


# ---- Instructions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DEPTH)
def test_an_instruction_of_short_numbers_is_equal_to_the_h200s(dtype):
    rng, depth = np.random.default_rng(5), DEPTH[dtype]
    A = round_to(rng.standard_normal((16, depth)), dtype)
    B = round_to(rng.standard_normal((depth, 8)), dtype)
    C = rng.standard_normal((16, 8)).astype(np.float32)
    assert mma(dtype, A, B, C).tobytes().hex() == INSTRUCTIONS[dtype]


@pytest.mark.parametrize("shape", ["8,4", "16,4", "16,8", "16,16"])
def test_an_instruction_of_doubles_is_a_chain_of_fused_multiply_adds(shape):
    """As the emulator computes it. On the H200 no bit differed in 4,096 results."""
    depth, rng = int(shape.split(",")[1]), np.random.default_rng(9)
    A = rng.standard_normal((32, depth)) * np.exp2(rng.integers(-20, 20, (32, depth)))
    B, C = rng.standard_normal((depth, 32)), rng.standard_normal((32, 32))
    D = C[0, :8].copy()
    for j in range(8):
        for k in range(depth):
            D[j] = float(Fraction(A[0, k]) * Fraction(B[k, j]) + Fraction(D[j]))  # rounded once
    assert D.tobytes().hex() == INSTRUCTIONS[f"double {shape}"]


@pytest.mark.parametrize("dtype", DEPTH)
def test_infinities_nan_zeros_and_the_ends_of_the_range_are_the_h200s(dtype):
    depth = DEPTH[dtype]
    A, B, C = (np.zeros(shape, np.float32) for shape in ((16, depth), (depth, 8), (16, 8)))
    B[0] = 1
    A[0, 0], A[1, 0], C[2], C[3], A[4, 0], C[4] = np.inf, np.nan, np.inf, np.nan, -np.inf, np.inf
    A[5, 0], C[6], C[7], C[8], A[8, 0] = -0.0, -0.0, 1e-45, 3e38, 6e4 if dtype == "half" else 3e38
    h200 = [0x7F800000, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF, 0x7FFFFFFF, 0, 0, 1]
    h200.append(0x7F61B1E6 if dtype == "half" else 0x7F800000)
    assert mma(dtype, A, B, C)[:9, 0].view(np.uint32).tolist() == h200


@pytest.mark.parametrize("dtype", DEPTH)
def test_instructions_side_by_side_are_the_same_as_one_by_one(dtype):
    rng, depth = np.random.default_rng(1), DEPTH[dtype]
    A, B, C = (rng.standard_normal((5, *shape)).astype(np.float32) for shape in ((4, depth), (depth, 3), (4, 3)))
    A[2, 1, 0] = np.inf
    together = mma(dtype, A, B, C)
    for i in range(5):
        assert np.array_equal(together[i], mma(dtype, A[i], B[i], C[i]), equal_nan=True)
    with pytest.raises(ValueError, match=f"the instruction takes {depth} of k, not {depth - 1} and {depth}"):
        mma(dtype, A[..., 1:], B, C)


@given(
    st.sampled_from(sorted(DEPTH)),
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=16, max_size=16),
    st.floats(-1e6, 1e6, width=32),
)
def test_an_instruction_is_off_by_less_than_one_last_place_per_term(dtype, row, c):
    a = round_to(np.array([row[: DEPTH[dtype]]]), dtype)
    b = round_to(np.array([row[::-1][: DEPTH[dtype]]]).T, dtype)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).item() + c
    largest = max(float(np.abs(a.astype(np.float64) * b.T.astype(np.float64)).max()), abs(c), 2.0**-126)
    [[found]] = mma(dtype, a, b, np.array([[c]]))
    assert abs(found - exact) <= 18 * largest * 2.0**-tensor_core.FRACTION_BITS + abs(exact) * 2.0**-23


def test_numbers_are_rounded_to_nearest():
    x = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 2**-12, 65520, -(1 + 2**-11), np.inf])
    assert round_to(x, "bfloat16").tolist() == [1, 1 + 2**-6, 1, 1, 65536, -1, np.inf], "ties to even"
    assert round_to(x, "tf32").tolist()[2:4] == [1 + 2**-10, 1], "ties away from zero"
    assert round_to(x, "half").tolist() == [1 + 2**-8, 1 + 3 * 2**-8, 1, 1, np.inf, -1, np.inf]


@given(st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda x: x == 0 or abs(x) > 2**-100))
def test_three_bfloat16_hold_a_float_and_two_tf32_hold_22_bits_of_it(x):
    x = np.float32([x])
    assert sum(part.astype(np.float64) for part in split(x, "bfloat16", 3)) == x
    assert abs(sum(part.astype(np.float64) for part in split(x, "tf32", 2)) - x) <= abs(x) * 2.0**-22


# ---- Kernels ---------------------------------------------------------------------------------------------------------


def sample(row):
    """Operands for a few rows and columns of C; for more if the largest few decide the norm."""
    size = 64 if row.operands == "along_rows_and_columns" else 32
    return accuracy.operands(np, row.operands, size, row.p, size, seed=3)


@pytest.mark.parametrize("row", list(ERRORS.itertuples()), ids=lambda row: f"{row.kernel}-{row.p}-{row.operands}")
def test_the_model_predicts_the_h200s_error_within_a_factor_of_two(row):
    A, B = sample(row)
    C = product(A, B, SCHEMES[row.kernel])
    if row.refused:
        assert np.isnan(C).all() and row.refused == row.n * row.m
        return
    found = accuracy.errors(C, A, B)
    assert row.relative_error / 2 < found.relative < 2 * row.relative_error
    # The worst of all elements of the H200's product is larger than the worst of a sample.
    assert row.worst_error / 4 < found.worst < 2 * row.worst_error
    if row.kernel == "float_from_half" and row.p >= 1024:  # shorter sums cuBLAS cuts into several chains
        sgemm = accuracy.errors(tensor_core.chain(A, B), A, B)
        assert row.cublas_relative_error / 2 < sgemm.relative < 2 * row.cublas_relative_error


def test_the_model_covers_every_kind_of_operands_that_was_measured():
    assert set(ERRORS.operands) == set(accuracy.OPERANDS) - {"steep_along_k"}
    assert set(ERRORS.kernel) == {"float_from_half", "float_from_bf16", "three_tf32"}
    assert (ERRORS.refused > 0).sum() == 2


def test_a_scheme_is_right_at_any_p():
    for p in (1, 2, 15, 65, 200):
        for name, scheme in SCHEMES.items():
            A, B = accuracy.operands(np, "mixed", 3, p, 5, seed=p)
            tolerance = 2.0 ** -(7 if name == "bfloat16" else 10 if scheme.parts == 1 else 20)
            assert np.abs(product(A, B, scheme) - A @ B).max() <= tolerance * (np.abs(A) @ np.abs(B)).max(), name


def test_a_hand_made_sum_shows_where_a_tensor_core_cuts():
    A, B = np.zeros((1, 64), np.float32), np.ones((64, 1), np.float32)
    A[0, :3] = 1, 2.0**-26, 2.0**-26
    assert product(A, B, SCHEMES["tf32"]).item() == 1, "both lie below the last bit that is kept"
    assert product(A, B, Scheme("tf32")).item() == 1 < float(A.sum(dtype=np.float64))
    A[0, 1] = -(2.0**-26)
    assert product(A, B, SCHEMES["tf32"]).item() == 1
    A[0, :3] = 1, -(2.0**-25), 0
    assert product(A, B, SCHEMES["tf32"]).item() == np.nextafter(np.float32(1), np.float32(0)), "cut, not rounded"
