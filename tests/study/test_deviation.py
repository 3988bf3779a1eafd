"""The statistical bound: right sums of any order pass it at every p, shorter types do not, on models in NumPy."""

import math

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from reference import residues, tensor_core

from tilewise import RECORDED
from tilewise.study import registry, verify
from tilewise.study.precision import MOST_DEVIATION, OF_RESULT, PRECISIONS, SCHEMES
from tilewise.study.verify import Wanted

LENGTHS = (1, 2, 7, 32, 33, 128, 1000, 4096, 16384)
LONG = [p for p in LENGTHS if p >= 32]
SIDE = 12


def fused(A, B, dtype):
    """A sum in the order of k by fused multiply-adds of `dtype`, of the least error in longer numbers."""
    total = np.zeros((len(A), B.shape[1]), dtype)
    for k in range(A.shape[1]):
        total = (A[:, k, None].astype(np.float64) * B[None, k] + total).astype(dtype)
    return total


def unfused(A, B):
    total = np.zeros((len(A), B.shape[1]), A.dtype)
    for k in range(A.shape[1]):
        total += A[:, k, None] * B[None, k]
    return total


def split(A, B, parts=7):
    """Chains of every seventh product, which are added last, as atomics add them."""
    return sum((unfused(A[:, k::parts], B[k::parts]) for k in range(min(parts, len(B)))), np.float32(0))


def blocks(A, B, size=64):
    """Each block of k on its own, added to the others."""
    total = np.zeros((len(A), B.shape[1]), A.dtype)
    for k in range(0, len(B), size):
        total += unfused(A[:, k : k + size], B[k : k + size])
    return total


def paired(A, B):
    """A tree of sums."""
    terms = A[:, :, None] * B
    while terms.shape[1] > 1:
        half = terms.shape[1] // 2
        terms = np.concatenate([terms[:, :half] + terms[:, half : 2 * half], terms[:, 2 * half :]], axis=1)
    return terms[:, 0]


ORDERS = {
    "chain": lambda A, B: fused(A, B, np.float32),
    "backwards": lambda A, B: fused(A[:, ::-1], B[::-1], np.float32),
    "unfused": unfused,
    "split": split,
    "blocks": blocks,
    "pairs": paired,
    "BLAS": np.matmul,
}


def checked(C, A, B, dtype, scheme=""):
    return verify.check(C, *verify.reference(A, B, dtype), dtype, len(B), Wanted(scheme=scheme))


@pytest.mark.parametrize("p", LENGTHS)
@pytest.mark.parametrize("order", ORDERS)
def test_floats_summed_in_any_order_are_right(order, p):
    A, B = verify.operands(np, "float", SIDE, p, SIDE, 1)
    found = checked(ORDERS[order](A, B), A, B, "float")
    assert found.ok, found.message


def test_none_of_ten_thousand_single_results_is_called_wrong():
    """Their errors are no sample, so that the bound must be wide."""
    for p in (1, 2, 5, 33, 150):
        A, _ = verify.operands(np, "float", 2000, p, 1, p)
        other = np.random.default_rng(p).random((2000, p), np.float32) * 2 - 1
        total = np.zeros(2000, np.float32)
        for k in range(p):
            total += A[:, k] * other[:, k]
        for row in range(2000):
            found = checked(total[row].reshape(1, 1), A[row : row + 1], other[row].reshape(p, 1), "float")
            assert found.ok, (p, row, found.message)


@pytest.mark.parametrize("p", LONG)
@pytest.mark.parametrize("inside", ["half", "tf32", "bfloat16"])
def test_a_float_product_of_shorter_numbers_is_wrong(inside, p):
    A, B = verify.operands(np, "float", SIDE, p, SIDE, 2)
    rounded = [tensor_core.round_to(matrix, inside).astype(np.float64) for matrix in (A, B)]
    named = {"tf32": "half or TF32", "half": "half or TF32"}.get(inside, inside)
    for factors in (rounded, [rounded[0], B.astype(np.float64)]):
        found = checked((factors[0] @ factors[1]).astype(np.float32), A, B, "float")
        assert not found.ok and f"as accurate as {named}: is there a conversion?" in found.message, found
    found = checked(tensor_core.product(A, B, tensor_core.SCHEMES[inside]), A, B, "float")
    assert not found.ok and "is there a conversion?" in found.message


@pytest.mark.parametrize("p", LENGTHS)
@pytest.mark.parametrize("scheme", [name for name in tensor_core.SCHEMES if name in SCHEMES])
def test_a_scheme_is_held_to_what_it_gives(scheme, p):
    A, B = verify.operands(np, "float", SIDE, p, SIDE, 3)
    own = tensor_core.product(A, B, tensor_core.SCHEMES[scheme])
    if p > 4:  # of few products, parts of 22 bits are not within float's worst case
        assert checked(own, A, B, "float", scheme).ok
    shorter = {"bfloat16": None, "half": "bfloat16", "tf32": "bfloat16"}.get(scheme, "tf32")
    if shorter and 32 <= p <= 4096:
        worse = tensor_core.product(A, B, tensor_core.SCHEMES[shorter])
        assert not checked(worse, A, B, "float", scheme).ok


def test_one_accumulator_of_a_tensor_core_is_no_sum_of_floats():
    A, B = verify.operands(np, "float", SIDE, 4096, SIDE, 4)
    C = tensor_core.product(A, B, tensor_core.SCHEMES["three_tf32"])
    assert not checked(C, A, B, "float").ok and checked(C, A, B, "float", "three_tf32").ok


def test_the_deviation_of_each_scheme_is_that_of_its_model():
    for p in (256, 4096):
        A, B = verify.operands(np, "float", 48, p, 48, 5)
        right, magnitude = verify.reference(A, B, "float")
        for scheme, least in (("three_tf32", 0.8), ("tf32", 0.8), ("bfloat16", 0.8), ("float_from_half", 0.1)):
            precision = PRECISIONS["float"].by(scheme)
            error = np.abs(tensor_core.product(A, B, tensor_core.SCHEMES[scheme]) - right)
            own = verify.deviation(error, right, magnitude, precision, p) / precision.deviation(p)
            assert least < own < 1.3, (scheme, p, own)


@pytest.mark.parametrize("p", [1, 7, 32, 1000, 4096])
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "tf32"])
def test_results_of_tensor_cores_are_right_and_those_of_shorter_numbers_wrong(dtype, p):
    precision = PRECISIONS[dtype]
    A, B = verify.operands(np, dtype, SIDE, p, SIDE, 6)
    wide = [precision.wide(np, matrix).astype(np.float32) for matrix in (A, B)]
    for C in (tensor_core.product(*wide, tensor_core.SCHEMES[dtype]), fused(*wide, np.float32)):
        assert checked(precision.narrow(np, C), A, B, dtype).ok
    kept = {"half": ml_dtypes.bfloat16, "bfloat16": ml_dtypes.float8_e4m3fn, "tf32": ml_dtypes.bfloat16}[dtype]
    short = [matrix.astype(kept).astype(np.float64) for matrix in wide]
    C = precision.narrow(np, (short[0] @ short[1]).astype(np.float32))
    if p >= 32:
        assert not checked(C, A, B, dtype).ok


@pytest.mark.parametrize("p", [32, 300, 1000])
def test_sums_of_half_are_right_only_where_they_are_declared(p):
    A, B = verify.operands(np, "half", SIDE, p, SIDE, 7)
    C = fused(A, B, np.float16)
    assert not checked(C, A, B, "half").ok and checked(C, A, B, "half", "short_sums").ok


@pytest.mark.parametrize("p", [1, 5, 32, 1000, 4096])
def test_a_double_kernel_that_computes_in_float_is_wrong(p):
    A, B = verify.operands(np, "double", SIDE, p, SIDE, 8)
    for C in (A @ B, unfused(A, B), blocks(A, B)):
        assert checked(C, A, B, "double").ok
    found = checked((A.astype(np.float32) @ B.astype(np.float32)).astype(np.float64), A, B, "double")
    assert not found.ok and "as accurate as float: is there a conversion?" in found.message
    if 32 <= p <= 300:
        assert checked(residues.product(A, B, 13), A, B, "double", "residues").ok


def test_a_cause_is_not_guessed_of_a_few_wrong_elements():
    A, B = verify.operands(np, "float", 40, 64, 40, 9)
    C = A @ B
    C[3, 5] += 0.02  # in the root mean square as much as TF32 in all
    found = checked(C, A, B, "float")
    assert not found.ok and "conversion" not in found.message


def test_no_row_that_was_recorded_as_right_is_wrong_by_it():
    kernels, seen = registry.load(), 0
    for path in RECORDED.glob("*/measurements.csv"):
        rows = pd.read_csv(path, low_memory=False)
        for row in rows[(rows.status == "ok") & rows.relative_error.notna()].itertuples():
            precision = PRECISIONS[row.dtype].by(kernels[row.kernel].wanted.scheme)
            most = math.hypot(OF_RESULT * precision.result_roundoff, MOST_DEVIATION * precision.deviation(row.p))
            assert row.relative_error <= most * 1.05, row
            seen += 1
    assert seen > 1000
