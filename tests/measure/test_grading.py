"""Grades: the models of kernels have those that the registry claims, and planted schemes lose theirs."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from builders import KERNELS, work_of
from reference import models, tensor_core
from reference.models import MODELS

from tilewise import UserError
from tilewise.compile.build import instances
from tilewise.explain.grades import grades, spread_of_exponents, summary
from tilewise.measure import grading
from tilewise.measure.grading import TESTS, Reference
from tilewise.measure.methods import METHODS
from tilewise.measure.methods import grading as method
from tilewise.rules import Study
from tilewise.study import columns, verify
from tilewise.study.accuracy import CURVE, SPECIAL, SPREAD, WIDE, Grade
from tilewise.study.points import point
from tilewise.study.sweeps import Target, expand

#: Products that a model makes in seconds.
SHAPE, CURVE_SIZES, SPREAD_SIZE = (40, 512, 40), tuple(2**e for e in range(4, 9)), 64
CLAIMS = {name: kernel.accuracy["grade"] for name, kernel in KERNELS.items() if "grade" in kernel.accuracy}


def quotients(C, A, B, dtype):
    return Reference(A, B, dtype).quotients(C)


def graded(multiply, dtype="float"):
    """The rows of all tests, of products that a model makes in seconds."""
    rows = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "CURVE_SIZES", CURVE_SIZES)
        patch.setattr(method, "SPREAD_SIZE", SPREAD_SIZE)
        cases = list(method.cases(SHAPE, dtype))
    for case in cases:
        if case.test == SPREAD:
            A, B = grading.spread(np, dtype, case.shape[0], case.number, 5)
        else:
            A, B = grading.operands(np, dtype, case.test, *case.shape, 5)
        with np.errstate(all="ignore"):
            found = quotients(multiply(A, B), A, B, dtype)
        terms = case.shape[1] * (10 if case.test == SPREAD else 1)
        row = {"test": case.test, "number": case.number, "p": case.shape[1], "grade": found.grade(terms)}
        rows.append(row | {"componentwise": found.componentwise, "rowwise": found.rowwise})
    return pd.DataFrame(rows)


def strassen(A, B):
    """One level of Strassen's algorithm in float."""
    n, p, m = (-(-x // 2) for x in (*A.shape, B.shape[1]))
    a = np.pad(A, ((0, 2 * n - len(A)), (0, 2 * p - A.shape[1]))).reshape(2, n, 2, p).swapaxes(1, 2)
    b = np.pad(B, ((0, 2 * p - len(B)), (0, 2 * m - B.shape[1]))).reshape(2, p, 2, m).swapaxes(1, 2)
    m1, m2 = (a[0, 0] + a[1, 1]) @ (b[0, 0] + b[1, 1]), (a[1, 0] + a[1, 1]) @ b[0, 0]
    m3, m4 = a[0, 0] @ (b[0, 1] - b[1, 1]), a[1, 1] @ (b[1, 0] - b[0, 0])
    m5, m6 = (a[0, 0] + a[0, 1]) @ b[1, 1], (a[1, 0] - a[0, 0]) @ (b[0, 0] + b[0, 1])
    m7 = (a[0, 1] - a[1, 1]) @ (b[1, 0] + b[1, 1])
    C = np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])
    return np.ascontiguousarray(C[: len(A), : B.shape[1]])


def test_what_the_tests_launch_is_built(config):
    """At some sizes of the tests a kernel has an instance that no point of the study launches."""
    study = Study(config | {"platforms": {"nvidia-h200": {"backend": "gpu"}}})
    wanted = study.instances_on("nvidia-h200", "grading")
    points = study.points_on("nvidia-h200", "grading")
    own = instances(points, KERNELS)
    for at in points:
        for case in method.cases((at.n, at.p, at.m), at.dtype):
            n, p, m = case.shape
            tested = replace(at, n=n, p=p, m=m)
            if KERNELS[at.kernel].unmet(tested) is None:
                assert set(KERNELS[at.kernel].plan(tested).instances) <= set(wanted.get(at.kernel, ())), tested.label()
    assert any(set(wanted[name]) - set(own[name]) for name in own), "further instances than those of the points"


def test_a_kernel_claims_a_grade():
    assert CLAIMS == {"double_always": "A", "float_always": "A"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_a_model_has_the_grade_that_its_kernel_claims_special_numbers_too(name):
    kernel = KERNELS[name]
    choice = {"tile_m": 64, "cluster_blocks": 1}
    rows = graded(lambda A, B: models.multiply(kernel, choice, A, B), kernel.dtypes[0])
    found = summary(rows)
    assert (found["grade"], found["special"], found["fails"]) == (CLAIMS[name], "", ""), rows.to_string()
    # The sizes of the curve are too short for doubles of bytes: theirs is NumPy's.
    slope, spread = {"float": (0.5, 56), "double": (0.8, 504)}[kernel.dtypes[0]]
    assert found["slope"] < slope and found["holds_to"] == spread


def test_a_chain_has_grade_a():
    found = summary(graded(MODELS["chain"]))
    assert (found["grade"], found["special"], found["fails"]) == ("A", "", "") and 0.3 < found["slope"] < 0.8


def test_the_rungs_with_limits_have_their_true_grades():
    half, bf16 = (summary(graded(MODELS[name])) for name in ("float_from_half", "float_from_bf16"))
    assert half["grade"] == "none" and half["fails"] == (
        "log-normal 3, large column, large element, random exponents, spread"
    )
    assert half["special"] == "infinite" and half["holds_to"] == 8
    assert (bf16["grade"], bf16["fails"], bf16["special"]) == ("A", "", "denormals, infinite")


def test_schemes_that_lose_more_lose_their_grade():
    assert summary(graded(lambda A, B: MODELS["tf32"](A, B)))["grade"] == "none"
    rows = graded(strassen).set_index("test")
    assert rows.loc["zeros", "grade"] == "B" and rows.loc["zeros", "componentwise"] == np.inf
    assert set(rows.loc[SPREAD, "grade"]) == {"A", "B"}
    unscaled = tensor_core.Scheme("half", tensor_core.SCHEMES["float_from_half"].products, promoted=True)
    assert summary(graded(lambda A, B: tensor_core.product(A, B, unscaled)))["grade"] == "none"
    wrong = summary(graded(lambda A, B: np.where(np.arange(len(A))[:, None] == 0, np.nan, A @ B)))
    assert wrong["grade"] == "none" and wrong["holds_to"] is None


def test_the_grade_of_quotients():
    assert grading.Quotients(8, 1, 1).grade(8) == Grade.A and grading.Quotients(8.1, 1, 1).grade(8) == Grade.B
    assert grading.Quotients(9, 9, 8).grade(8) == Grade.C and grading.Quotients(9, 9, 9).grade(8) == Grade.NONE
    assert grading.Quotients(0, 0, 0, lost=1).grade(8) == Grade.NONE
    A, B = (np.ones(shape, np.float32) for shape in ((2, 4), (4, 3)))
    C = A @ B
    assert quotients(C, A, B, "float") == grading.Quotients(0, 0, 0)
    C[1, 2] += np.float32(2.0**-20)
    found = quotients(C, A, B, "float")
    assert found.componentwise == found.rowwise == pytest.approx(2.0**-20 / (4 * 2.0**-23), rel=1e-6)
    assert found.normwise == pytest.approx(2.0**-20 / (np.sqrt(8 * 12) * 2.0**-23), rel=1e-6)
    C[0, 0] = np.inf
    assert quotients(C, A, B, "float").lost == 1
    A[0, 0] = np.inf
    assert quotients(C, A, B, "float").lost == 2, "the rest of the row should be infinite"


@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("test", [CURVE, *TESTS])
def test_operands_are_what_they_are_called(test, dtype):
    A, B = grading.operands(np, dtype, test, 60, 90, 50, 1)
    assert A.shape == (60, 90) and B.shape == (90, 50)
    assert A.dtype == B.dtype == {"float": np.float32, "double": np.float64}[dtype]
    again = grading.operands(np, dtype, test, 60, 90, 50, 1)
    assert np.array_equal(A, again[0], equal_nan=True) and np.array_equal(B, again[1])
    assert (np.isinf(A).sum(), np.isnan(A).sum()) == {"infinite": (1, 0), "not a number": (0, 1)}.get(test, (0, 0))
    product = np.abs(A) @ np.abs(B)
    assert ((product[::2, ::2] == 0).all() and (product != 0).mean() > 0.7) == (test == "zeros")
    tiny = np.finfo(A.dtype).tiny
    assert ((np.abs(A) < tiny) & (A != 0)).any() == (test == "denormals")
    assert ((A != 0).sum(axis=1) == 1).all() == (test in ("identity", "permutation"))


@pytest.mark.parametrize("test", ["normal", "zeros", "random exponents", "large element", WIDE])
def test_the_reference_of_doubles_has_a_hundred_bits(test):
    A, B = grading.operands(np, "double", test, 5, 120, 4, 1, 3)
    high, low = grading.doubled_product(A, B)
    for (i, j), upper in np.ndenumerate(high):
        terms = [Fraction(a) * Fraction(b) for a, b in zip(A[i], B[:, j])]
        off = abs(Fraction(upper) + Fraction(low[i, j]) - sum(terms))
        assert off <= Fraction(2) ** -100 * sum(map(abs, terms))


def test_some_rows_of_doubles_are_compared_among_them_those_with_single_elements():
    A, B = grading.operands(np, "double", "not a number", 300, 40, 20, 1)
    C = A @ B
    assert quotients(C, A, B, "double").lost == 0
    C[4] = 1
    assert quotients(C, A, B, "double").lost == 20, "the row with the NaN"
    C = A @ B
    C[::2] *= 1 + 2.0**-40
    assert quotients(C, A, B, "double").componentwise > 2000 and quotients(C, A, B, "double").lost == 0


def test_wide_operands_are_the_wider_the_larger_phi():
    spread = [np.abs(grading.operands(np, "double", WIDE, 50, 200, 50, 3, phi)[0]) for phi in (0, 2, 4)]
    assert spread[0].max() <= 0.5
    assert [np.log(x).std() for x in spread] == pytest.approx([1, 5**0.5, 17**0.5], rel=0.1)


def test_more_moduli_suffice_for_wider_exponents(kernels):
    """As the authors of GEMMul8 found: the wider, the more; what is too wide is refused."""
    found = {}
    for moduli, phi in ((14, 0), (14, 1), (15, 1), (14, 2), (16, 2), (16, 4)):
        A, B = grading.operands(np, "double", WIDE, 8, 512, 8, 7, phi)
        C = models.multiply(kernels["double_from_int8"], {"moduli": moduli}, A, B)
        found[moduli, phi], native = quotients(C, A, B, "double"), quotients(A @ B, A, B, "double")
        assert found[moduli, phi].lost or found[moduli, phi].componentwise < 10 * native.componentwise
    assert [case for case, each in found.items() if each.lost] == [(14, 2), (16, 4)]
    assert found[15, 1].componentwise < found[14, 1].componentwise / 3


def test_the_fourth_test_has_ones_on_its_diagonal_and_a_spread():
    A, B = grading.spread(np, "float", 64, 20, 3)
    assert np.abs(np.diag(A.astype("f8") @ B) / np.square(A.astype("f8") * B.T).sum(axis=1) ** 0.5).min() > 1
    assert A.max() / A.min() > 2.0**38 and grading.widest("float", 1024) == 52 and grading.widest("double", 1024) == 500
    assert np.isfinite(A.astype("f8") @ B).all()


# ---- The method ------------------------------------------------------------------------------------------------------


class Modelled:
    """A GPU that is played by the models of its kernels."""

    xp = np

    def multiply(self, job, A, B):
        with np.errstate(all="ignore"):
            C = models.multiply(job.kernel, dict(job.point.parameters), A, B)
        return C, job.row | {"status": "ok", "message": ""}


def no_ladder():
    """The table of the ladders of a run that has none."""
    timed = ["moduli", "status", "time_ms", "gflops", "percent_of_anchor"]
    return columns.set_types(pd.DataFrame(columns=["platform", "kernel", "dtype", *columns.SHAPE, *timed]))


@pytest.mark.slow
def test_every_test_is_graded(kernels, device, config, tmp_path, monkeypatch):
    monkeypatch.setattr(method, "CURVE_SIZES", CURVE_SIZES)
    monkeypatch.setattr(method, "SPREAD_SIZE", SPREAD_SIZE)
    chosen = {"tile_m": 128, "stages": 6, "band": 16}
    points = [
        point("t", "float_always", "float", *SHAPE, **chosen, exact_m=128),
        point("t", "float_from_half", "float", *SHAPE, **chosen, cluster_blocks=1),
        point("t", "double_from_int8", "double", 8, 512, 8, **chosen, cluster_blocks=1, moduli=15),
        point("t", "double_always", "double", 8, 512, 8, **chosen, cluster_blocks=1),
    ]
    work = work_of(points, kernels, device, config, tmp_path)
    rows = columns.frame(method.grade_points(work, points, Modelled()), "grading", work.parameters)
    assert set(rows.kernel) == {at.kernel for at in points} and set(rows.status) == {"ok"}
    assert set(rows.test) == {CURVE, SPREAD, WIDE, *TESTS} and set(SPECIAL) <= set(rows.test)
    assert set(rows[rows.test == WIDE].dtype) == {"double"}
    claimed = rows[rows.kernel.isin(CLAIMS)]
    assert set(claimed.grade) == set(claimed.claimed_grade) == {"A"}
    refused = rows[(rows.kernel == "float_from_half") & (rows.test == "infinite")]
    assert "results are finite or not" in refused.message.item()

    class Evidence:
        facts = {"grading": rows.assign(platform="h")}  # noqa: RUF012
        libraries = frozenset({"cublas"})

    table = grades(Evidence, no_ladder()).set_index("kernel")
    assert table.grade.to_dict() == CLAIMS | {"float_from_half": "none", "double_from_int8": "none"}
    assert table.gflops.isna().all() and table.moduli.dropna().to_dict() == {"double_from_int8": 15}
    shown = spread_of_exponents(Evidence)
    assert set(shown.variant) == {"15 moduli", "double_always"}
    shown = shown[shown.kernel == "double_from_int8"]
    assert shown.componentwise.notna().tolist() == [True, True, True, False, False], "phi of 3 and 4 is refused"


def test_the_points_of_the_grades(kernels, device, config, tmp_path):
    grading_of = METHODS["grading"]
    points = expand(config, kernels, "grading", Target("emulator"), grading_of.reading)
    grading_of.check(points, kernels, "tasks.grading")
    assert {at.dtype for at in points} == {"float", "double"} and "stream_k" in {at.kernel for at in points}
    assert "cublas" in {at.kernel for at in expand(config, kernels, "grading", reading=grading_of.reading)}
    measurements, rows = grading_of.run(work_of(points[:1], kernels, device, config, tmp_path))
    assert measurements.empty and rows.empty, "nothing is graded on the emulator"
    with pytest.raises(UserError, match=r"tasks.t: grades are for floats and doubles of a GPU, not for naive"):
        grading_of.check([point("t", "naive", "int32", 8, 8, 8, block_x=8, block_y=8)], kernels, "tasks.t")


def test_the_slowest_test_is_known_by_its_share_of_the_librarys_rate():
    times = {("cublas", "normal"): 2, ("cublas", "sparse"): 2, ("cublas", "infinite"): 2}
    times |= {("float_always", "normal"): 0.5, ("float_always", "sparse"): 0.8, ("float_always", "infinite"): 4}
    about = {"platform": "h", "dtype": "float", "n": 8, "p": 8, "m": 8, "number": None, "claimed_grade": "A"}
    about |= {"grade": "A", "componentwise": 0.5}
    rows = [about | {"kernel": kernel, "test": test, "test_ms": ms} for (kernel, test), ms in times.items()]

    class Evidence:
        facts = {"grading": pd.DataFrame(rows)}  # noqa: RUF012
        libraries = frozenset({"cublas"})

    table = grades(Evidence, no_ladder()).set_index("kernel")
    assert table.slowest_test.to_dict() == {"cublas": 100, "float_always": pytest.approx(250)}, "of finite operands"


@pytest.mark.gpu
def test_claims_hold_on_a_gpu_and_special_numbers_are_sgemms(gpu, config, kernels, tmp_path, built_for_gpu):
    wanted = [at for at in expand(config, kernels, "grading") if at.kernel in (*CLAIMS, "cublas", "double_from_int8")]
    wanted = [at for at in wanted if dict(at.parameters).get("moduli", 14) == 14]
    work = work_of(wanted, kernels, gpu, config, tmp_path, built_for_gpu(wanted, kernels, gpu))
    _, rows = METHODS["grading"].run(work)
    assert set(rows.status) == {"ok"}, rows[rows.status != "ok"].message.tolist()
    for name, dtype in (("float_always", "float"), ("double_always", "double"), ("cublas", "float")):
        own = rows[(rows.kernel == name) & (rows.dtype == dtype)]
        found = summary(own)
        assert (found["grade"], found["fails"], found["special"]) == ("A", "", ""), own.to_string()


@pytest.mark.gpu
def test_denormals_are_denormals_on_a_gpu():
    import cupy

    A, _ = grading.operands(cupy, "float", "denormals", 64, 64, 64, 1)
    on_host = A.get()
    assert (np.abs(on_host[on_host != 0]) < 2.0**-126).mean() > 0.9 and (on_host != 0).mean() > 0.9
    assert np.array_equal(verify.as_doubles(A[:, ::-1]).get(), on_host[:, ::-1].astype(np.float64))


@pytest.mark.gpu
def test_500_random_operands_on_a_gpu(gpu, config, kernels, tmp_path, built_for_gpu):
    """Never NaN where SGEMM is finite, never above float's rounding bound; a failure prints the kinds and the seed."""
    import cupy
    from reference.test_float_always import KINDS
    from reference.test_float_always import operands as of_kinds

    from tilewise.measure.backends import Setting, open_backend

    rng = np.random.default_rng()
    shapes = [(263, 2, 521), (1021, 33, 259), (300, 200, 520), (512, 1024, 384), (997, 1009, 1013)]
    chosen = {"tile_m": 192, "stages": 4, "band": 16, "exact_m": 256}
    wanted = [point("t", "float_always", "float", *shape, **chosen) for shape in shapes]
    work = work_of(wanted, kernels, gpu, config, tmp_path, built_for_gpu(wanted, kernels, gpu))
    backend = open_backend("cuda", Setting(gpu, config, tmp_path))
    jobs = work.jobs()
    for number in range(500):
        job = jobs[number % len(jobs)]
        kinds, seed = rng.choice(sorted(KINDS), 2), int(rng.integers(2**32))
        A, B = (cupy.asarray(x) for x in of_kinds(tuple(job.point.shape.values()), *kinds, seed))
        C, row = backend.multiply(job, A, B)
        case = (job.point.shape, kinds.tolist(), seed)
        assert row["status"] == "ok", (case, row["message"])
        sgemm, p = backend.sgemm(A, B), job.point.p
        wide_a, wide_b = verify.as_doubles(A), verify.as_doubles(B)
        exact, magnitude = wide_a @ wide_b, cupy.abs(wide_a) @ cupy.abs(wide_b)
        bound = p * 2.0**-24 / (1 - p * 2.0**-24) * magnitude + p * 2.0**-149
        # Where partial sums may overflow, it depends on their order whether they do, and cuBLAS's is its own.
        finite = cupy.isfinite(sgemm) & (magnitude < float(np.finfo(np.float32).max))
        assert bool(cupy.isfinite(C[finite]).all()), case
        assert bool((cupy.abs(verify.as_doubles(C) - exact)[finite] <= bound[finite]).all()), case
