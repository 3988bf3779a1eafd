"""The accuracy gate lets through what is as accurate as SGEMM and nothing else; the model of the tensor cores makes the
products, so planted schemes are caught without a GPU."""

import dataclasses
import math

import numpy as np
import pytest
from builders import KERNELS, work_of
from reference import tensor_core
from reference.models import MODELS, RESIDUES, RESIDUES_BY_NEED
from reference.test_tensor_core import ERRORS

from tilewise import UserError
from tilewise.measure import accuracy
from tilewise.measure.accuracy import Errors, verdict
from tilewise.measure.methods import METHODS
from tilewise.measure.methods.accuracy import compare
from tilewise.measure.result_rows import failed_row
from tilewise.study import columns
from tilewise.study.accuracy import MEANING
from tilewise.study.points import point
from tilewise.study.precision import SCHEMES
from tilewise.study.schema import schema
from tilewise.study.status import Accuracy
from tilewise.study.sweeps import Target, expand

THREE = ((1, 0), (0, 1), (0, 0))
#: Wrong on purpose.
PLANTED = {
    "two BF16 parts, three products": tensor_core.Scheme("bfloat16", THREE, promoted=True),
    "three TF32 products, one accumulator": tensor_core.SCHEMES["three_tf32"],
    "half parts without low by high": tensor_core.Scheme("half", THREE[1:], promoted=True, scaled=True),
    "BF16 parts without low by high": tensor_core.Scheme(
        "bfloat16", ((2, 0), (0, 2), (1, 1), (0, 1), (0, 0)), promoted=True
    ),
    "half parts, one accumulator": tensor_core.Scheme("half", THREE),
    "plain TF32": tensor_core.SCHEMES["tf32"],
    "plain BF16": tensor_core.SCHEMES["bfloat16"],
}
CLAIMS = [(k.name, kind) for k in KERNELS.values() for kind in k.accuracy.get("claims", ())]


def judged(scheme, kind, p, seed=524, size=64):
    """The verdict on a scheme, or on the model of a kernel by its name."""
    A, B = accuracy.operands(np, kind, size, p, size, seed)
    sgemm = accuracy.errors(tensor_core.chain(A, B), A, B)
    made = MODELS[scheme](A, B) if isinstance(scheme, str) else tensor_core.product(A, B, scheme)
    return verdict(accuracy.errors(made, A, B), sgemm)


# ---- The gate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANTED)
def test_planted_schemes_fail(name):
    assert judged(PLANTED[name], "mixed", 1024, size=32) == Accuracy.FAILS


@pytest.mark.parametrize(("name", "kind"), CLAIMS)
def test_a_scheme_passes_where_its_kernel_claims_it(name, kind):
    kernel = KERNELS[name]
    assert judged(kernel.accuracy["scheme"], kind, kernel.accuracy["from_p"]) == Accuracy.PASSES


def test_the_h200_agrees_with_the_claims():
    """The gate on what was measured: the claims hold, and no kernel is held back that would always pass."""
    for row in ERRORS.itertuples():
        own = Errors(row.relative_error, row.worst_error, row.refused)
        found = verdict(own, Errors(row.cublas_relative_error, row.cublas_worst_error))
        if KERNELS[row.kernel].claims_accuracy(row.operands, row.p):
            assert found == Accuracy.PASSES, row
        assert found != Accuracy.PASSES or row.kernel != "three_tf32"
        assert (found == Accuracy.REFUSES) == (row.refused > 0)
    assert not KERNELS["float_from_half"].claims_accuracy("along_k", 4096)


def test_operands_out_of_range_are_refused_by_half_parts_and_not_by_bfloat16s():
    assert judged(tensor_core.SCHEMES["float_from_half"], "steep_along_k", 1024, size=8) == Accuracy.REFUSES
    assert judged(tensor_core.SCHEMES["float_from_bf16"], "steep_along_k", 1024, size=8) == Accuracy.PASSES
    A, B = (x * np.float32(2.0**-10) for x in accuracy.operands(np, "opposed_along_k", 8, 1024, 8, 1))
    unscaled = dataclasses.replace(tensor_core.SCHEMES["float_from_half"], scaled=False)
    assert accuracy.errors(tensor_core.product(A, B, unscaled), A, B).relative > 0.1, "halves do not reach so far"
    assert accuracy.errors(both(A, B, "float_from_half")[0], A, B).relative < 1e-6


def test_the_verdict():
    sgemm = Errors(1e-6, 1e-7)
    assert verdict(sgemm, sgemm) == Accuracy.PASSES
    assert verdict(Errors(1.01e-6, 0), sgemm) == verdict(Errors(0, 1.01e-7), sgemm) == Accuracy.FAILS
    assert (
        verdict(Errors(0, 0, refused=64), sgemm) == verdict(Errors(math.nan, math.nan, 64), sgemm) == Accuracy.REFUSES
    )
    assert verdict(Errors(0, 0, 1, scattered=True), sgemm) == verdict(Errors(1, 0, 64), sgemm) == Accuracy.FAILS
    assert verdict(Errors(math.inf, math.inf), sgemm) == Accuracy.FAILS


def test_errors_against_float64(monkeypatch):
    A, B = accuracy.operands(np, "mixed", 9, 70, 11, 1)
    C = (A.astype(np.float64) @ B).astype(np.float32)
    magnitude = np.abs(A).astype(np.float64) @ np.abs(B)
    C[4, 5] += np.float32(1e-3) * magnitude[4, 5]
    found = accuracy.errors(C, A, B)
    assert found.worst == pytest.approx(1e-3, rel=1e-3) and not found.refused
    assert found.relative == pytest.approx(1e-3 * magnitude[4, 5] / np.linalg.norm(A.astype(np.float64) @ B), rel=1e-3)
    monkeypatch.setattr(accuracy, "ROWS", 4)
    in_pieces = accuracy.errors(C, A, B)
    assert in_pieces.worst == found.worst and in_pieces.relative == pytest.approx(found.relative)
    C[2], C[:, 3] = np.nan, np.nan
    assert accuracy.errors(C, A, B).refused == 9 + 11 - 1 and not accuracy.errors(C, A, B).scattered
    C[7, 7] = np.nan
    assert accuracy.errors(C, A, B).scattered
    C[8, 8] = np.inf
    assert accuracy.errors(C, A, B).worst == math.inf
    assert math.isnan(accuracy.errors(np.full_like(C, np.nan), A, B).relative)


@pytest.mark.parametrize("kind", accuracy.OPERANDS)
def test_operands_are_what_they_are_called(kind):
    A, B = accuracy.operands(np, kind, 40, 256, 30, 1)
    assert A.shape == (40, 256) and B.shape == (256, 30) and A.dtype == B.dtype == np.float32
    assert np.isfinite(A).all() and np.isfinite(B).all() and (A[0] != A[1]).any()
    again = accuracy.operands(np, kind, 40, 256, 30, 1)
    assert np.array_equal(A, again[0]) and np.array_equal(B, again[1])
    assert (kind == "positive") == bool((A >= 0).all() and (B >= 0).all())
    decades = np.log10(np.abs(A).mean(axis=0).max() / np.abs(A).mean(axis=0).min())
    assert (decades > 11) == (kind in ("along_k", "opposed_along_k", "steep_along_k"))
    across = np.log10(np.abs(A).mean(axis=1).max() / np.abs(A).mean(axis=1).min())
    assert (across > 11) == (kind == "along_rows_and_columns")


def test_schemas_and_modules_name_the_same_kinds_and_schemes():
    found = schema("registry")
    entry = found["additionalProperties"]["properties"]["accuracy"]["properties"]
    assert entry["claims"]["items"]["enum"] == list(accuracy.OPERANDS) == list(MEANING)
    assert set(found["$defs"]["scheme"]["enum"]) == {*SCHEMES} == {*MODELS, RESIDUES, RESIDUES_BY_NEED, "short_sums"}


# ---- Adversarial operands --------------------------------------------------------------------------------------------


FLOATS = ["float_from_half", "float_from_bf16"]


def both(A, B, name):
    A, B = np.asarray(A, np.float32), np.asarray(B, np.float32)
    return tensor_core.product(A, B, tensor_core.SCHEMES[name]), A, B


@pytest.mark.parametrize("name", FLOATS)
def test_cancellation_costs_no_more_than_the_magnitudes_allow(name):
    """Sums whose terms cancel to 1e-6 of their magnitude: the error is small against the magnitudes."""
    A, B = accuracy.operands(np, "mixed", 16, 1024, 16, 5)
    A[:, 512:], B[512:] = -A[:, :512], B[:512] * np.float32(1 + 2**-20)
    C, A, B = both(A, B, name)
    found = accuracy.errors(C, A, B)
    assert found.worst < 2.0**-23
    assert np.linalg.norm(A.astype(np.float64) @ B) < 2e-6 * np.linalg.norm(np.abs(A) @ np.abs(B))
    B[512:] = B[:512]
    assert (both(A, B, name)[0] == 0).mean() < 1, "sums in another order do not cancel to the last bit"
    assert accuracy.errors(*both(A, B, name)).worst < 2.0**-23


@pytest.mark.parametrize("name", FLOATS)
def test_one_huge_row_does_not_spoil_the_others(name):
    A, B = accuracy.operands(np, "mixed", 16, 1024, 16, 6)
    plain = both(A, B, name)[0]
    A[3] *= np.float32(2.0**60)
    C = both(A, B, name)[0]
    assert np.array_equal(np.delete(C, 3, 0), np.delete(plain, 3, 0))
    assert np.array_equal(C[3], plain[3] * np.float32(2.0**60)), "a power of two changes exponents only"


def test_one_huge_element_is_refused_by_half_parts():
    A, B = accuracy.operands(np, "mixed", 16, 1024, 16, 7)
    A[3, 5] = 2.0**40
    C = both(A, B, "float_from_half")[0]
    assert np.isnan(C[3]).all() and not np.isnan(np.delete(C, 3, 0)).any()
    C, A, B = both(A, B, "float_from_bf16")
    assert accuracy.errors(C, A, B).worst < 2.0**-23


def test_what_the_h200_refused_is_refused():
    """The operands with which the kernel's authors tried its split: the same rows and columns of C became NaN."""
    A, B = accuracy.operands(np, "mixed", 30, 500, 26, 8)
    A[5, 70], A[6, 71], A[7] = np.nan, np.inf, 0
    A[8], A[9], A[10], A[11] = A[8] * 2.0**90, A[9] * 2.0**-90, A[10] * 2.0**-120, 2.0**-140
    A[12, 64:128], A[13, 3], A[14, 200] = np.exp2(-np.arange(64)), 2.0**40, 2.0**110
    B[:, 5], B[:, 6], B[33, 7], B[:, 8] = B[:, 5] * 2.0**60, B[:, 6] * 2.0**-80, np.nan, 0
    B[64:128, 9], B[:, 10] = np.exp2(-np.arange(64)), B[:, 10] * 2.0**-30
    with np.errstate(invalid="ignore"):
        C = both(A, B, "float_from_half")[0]
    assert np.flatnonzero(np.isnan(C).all(axis=1)).tolist() == [5, 6, 12, 13, 14]
    assert np.flatnonzero(np.isnan(C).all(axis=0)).tolist() == [7, 9]
    rows, columns = (np.setdiff1d(range(n), out) for n, out in ((30, [5, 6, 12, 13, 14]), (26, [7, 9])))
    inside = np.ix_(rows, columns)
    exact = A[rows].astype(np.float64) @ B[:, columns]
    magnitude = np.abs(A[rows]).astype(np.float64) @ np.abs(B[:, columns])
    normal = (magnitude > 1e-30) & (magnitude < 1e38)
    assert (np.abs(C[inside] - exact)[normal] / magnitude[normal]).max() < 2.0**-23
    assert not np.isnan(C[inside]).any()


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_becomes_a_number(name, value):
    """The limit that the headers state: an infinity makes NaN, of three bfloat16 parts not always."""
    A, B = accuracy.operands(np, "positive", 4, 128, 6, 9)
    A[2, 100] = value
    with np.errstate(invalid="ignore"):
        C = both(A, B, name)[0]
    assert np.isnan(C[2]).all() if name == "float_from_half" else not np.isfinite(C[2]).any()
    assert np.isfinite(np.delete(C, 2, 0)).all()


def test_subnormal_operands():
    """Half parts are scaled, so they do not lose bits; the last bfloat16 part of numbers below 2^-110 does."""
    A, B = accuracy.operands(np, "mixed", 8, 256, 8, 10)
    A, B = A * np.float32(2.0**-128), B * np.float32(2.0**60)
    assert (np.abs(A)[A != 0] < 2.0**-126).mean() > 0.9
    errors = {name: accuracy.errors(*both(A, B, name)).worst for name in FLOATS}
    assert errors["float_from_half"] < 2.0**-23 < 1e-3 < errors["float_from_bf16"]
    C, A, B = both(A * np.float32(2.0**18), B, "float_from_bf16")
    assert accuracy.errors(C, A, B).worst < 2.0**-23, "at 2^-110 nothing is lost"


# ---- The method ------------------------------------------------------------------------------------------------------


class Ours:
    """A GPU that is played by NumPy: `made` is what its kernels make of A and B."""

    xp = np

    def __init__(self, made):
        self.made = made

    def sgemm(self, A, B):
        return A @ B

    def multiply(self, job, A, B):
        if job.point.n == 5:
            return None, failed_row(job, "out_of_memory", "too large")
        return self.made(A, B), job.row | {"status": "ok"}


def jobs(kernels, device, config, folder, **changes):
    chosen = {"tile_m": 128, "stages": 6, "cluster_blocks": 1, "band": 16}
    points = [point("t", "float_from_half", "float", n, 1024, 7, **chosen) for n in (6, 5)]
    return work_of(points, kernels, device, config, folder).jobs()


def test_a_row_for_every_kind_of_operands(kernels, device, config, tmp_path):
    given = [
        dataclasses.replace(job, row=job.row | {"status": "error"}) for job in jobs(kernels, device, config, tmp_path)
    ]
    rows = columns.frame(compare(given, Ours(lambda A, B: (A.astype(np.float64) @ B).astype("f4")), 1), "accuracy")
    right, wrong = rows[rows.n == 6], rows[rows.n == 5]
    assert list(right.operands) == list(wrong.operands) == list(accuracy.OPERANDS)
    assert set(right.verdict) == {Accuracy.PASSES} and set(right.status) == {"ok"}
    assert (right.relative_error <= right.sgemm_relative_error).all() and (right.p == 1024).all()
    assert set(wrong.status) == {"out_of_memory"} and wrong.relative_error.isna().all() and set(wrong.verdict) == {""}
    claimed = set(right.operands[right.claimed])
    assert claimed == set(KERNELS["float_from_half"].accuracy["claims"])
    rows = columns.frame(compare(given, Ours(lambda A, B: (A @ B) * np.float32(1 + 2**-18)), 1), "accuracy")
    assert set(rows.verdict[rows.n == 6]) == {Accuracy.FAILS}
    refused = columns.frame(
        compare(given, Ours(lambda A, B: np.full((len(A), B.shape[1]), np.nan, "f4")), 1), "accuracy"
    )
    assert set(refused.verdict[refused.n == 6]) == {Accuracy.REFUSES}
    assert set(refused.message[refused.n == 6]) == {"42 of 42 elements are NaN"}


def test_what_did_not_compile_is_not_run(kernels, device, config, tmp_path):
    given = [
        dataclasses.replace(job, row=job.row | {"status": "compile_error", "message": "a brace is missing"})
        for job in jobs(kernels, device, config, tmp_path)
    ]
    rows = columns.frame(compare(given, Ours(None), 1), "accuracy")
    assert set(rows.status) == {"compile_error"} and set(rows.message) == {"a brace is missing"}


def test_the_points_of_the_gate(kernels, device, config, tmp_path):
    tasks = {"t": {"method": "accuracy", "sweeps": config["tasks"]["accuracy_gate"]["sweeps"]}}
    method = METHODS["accuracy"]
    points = expand(config | {"tasks": tasks}, kernels, "t", Target("emulator"), method.reading)
    method.check(points, kernels, "tasks.t")
    assert {at.kernel for at in points} >= {"float_from_half", "float_from_bf16", "float_always", "three_tf32"}
    measurements, rows = method.run(work_of(points[:1], kernels, device, config, tmp_path))
    assert measurements.empty and rows.empty, "nothing is compared on the emulator"
    with pytest.raises(UserError, match=r"tasks.t: accuracy compares with SGEMM, so it is for float, not for tf32"):
        chosen = {"products": 1, "tile_m": 128, "stages": 3, "band": 16}
        method.check([point("t", "three_tf32", "tf32", 64, 64, 64, **chosen)], kernels, "tasks.t")
