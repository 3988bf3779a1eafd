"""On a real GPU: every kernel is right, also on ragged shapes and as it is tuned."""

import dataclasses
import json

import numpy as np
import pytest
from builders import work_of
from reference import models, residues
from reference.double_always import tiles_of_bytes

from tilewise.measure import accuracy, grading
from tilewise.measure import task as measure
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.methods import METHODS
from tilewise.study import columns, verify
from tilewise.study.accuracy import WIDE
from tilewise.study.points import Point, point
from tilewise.study.precision import result_of
from tilewise.study.sweeps import Reading, Target, expand

pytestmark = pytest.mark.gpu
BATCHED = Reading(batches=True)
LIBRARIES = [
    ("cublas", "float"),
    ("cublas", "double"),
    ("cublas_tf32", "tf32"),
    ("cublas_bf16", "bfloat16"),
    ("cublas_half", "half"),
]


@pytest.mark.gpu(alone=True)  # a batch is not timed while another process has its turns
def test_every_kernel_and_dtype_is_right_on_ragged_shapes(run, config, kernels):
    shapes = {"ragged": config["emulator"]["shapes"]}
    points = []
    for task in config["tasks"]:
        if config["tasks"][task].get("method", "sweep") == "sweep":
            expanded = expand(config | shapes, kernels, task, Target("emulator"))
            points += [p for p in expanded if kernels[p.kernel].kind == "cuda"]
    points = list({dataclasses.replace(p, task="t"): None for p in points})[::7]
    rows = run(points)
    assert set(rows.status) == {"ok"}, rows[rows.status != "ok"].message.tolist()
    assert (rows.time_ms > 0).all() and (rows.samples >= 3).all() and (rows.sm_clock_mhz > 100).all()
    assert (rows.batch_ms > 0).all() and (rows.registers > 0).all()
    assert (rows.time_min_ms <= rows.time_q1_ms).all() and (rows.time_q1_ms <= rows.time_ms).all()


#: No size is a multiple of any tile; rows of 4, 8, 16 B and of none of these; one row, one column, short and long sums.
RUNG_SHAPES = [
    (1, 1, 1),
    (1, 37, 1),
    (1, 1021, 259),
    (1031, 64, 1),
    (1021, 1, 1031),
    (263, 2, 521),
    (33, 35, 70),
    (127, 129, 131),
    (129, 65, 257),
    (257, 24, 1100),
    (1100, 36, 1100),
    (97, 1100, 103),
    (300, 200, 520),
    (4100, 20, 3076),
    (997, 1009, 1013),
]


def test_every_rung_is_right_on_ragged_shapes_as_it_is_tuned(work, config, kernels):
    """They are verified and run a few times, as the tuner screens them: a shape with all its kernels in a row."""
    tuned = {}
    for task, entry in config["tasks"].items():
        if entry.get("method", "sweep") == "sweep":
            for at in expand(config, kernels, task):
                if kernels[at.kernel].path.parent.name == "ladder":
                    tuned[at.kernel, at.dtype, at.parameters] = at
    assert {name for name, _, _ in tuned} == {
        name for name, kernel in kernels.items() if kernel.path.parent.name == "ladder"
    }
    points = [dataclasses.replace(at, task="t", n=n, p=p, m=m) for n, p, m in RUNG_SHAPES for at in tuned.values()]
    points.sort(key=lambda at: (at.n, at.p, at.m, at.dtype))  # neighbours share their operands
    asked = work(points)
    answers = dict(measure.run_jobs(asked.jobs(), asked.device, asked.config, asked.samples, "screen"))
    rows = columns.frame(list(answers.values()), "measurements", asked.parameters)
    assert len(rows) == len(points)
    wrong = rows[rows.status != "ok"]
    assert wrong.empty, wrong[["kernel", "dtype", "n", "p", "m", "status", "message"]].to_string()


def test_overlapping_launches_read_what_earlier_ones_wrote(gpu, config, kernels, tmp_path, built_for_gpu):
    """Operands are copied, multiplied and the results copied without a pause; each is that of launches one by one."""
    import cupy

    sweeps = [task for task, entry in config["tasks"].items() if entry.get("method", "sweep") == "sweep"]
    tuned = {at.kernel: at for task in sweeps for at in expand(config, kernels, task) if kernels[at.kernel].dependent}
    assert {*tuned} == {name for name, kernel in kernels.items() if kernel.dependent and not kernel.batched}
    shapes = [(512, 384, 640), (517, 401, 391)]
    points = [dataclasses.replace(at, task="t", n=n, p=p, m=m) for at in tuned.values() for n, p, m in shapes]
    pause = cupy.empty(1 << 30, np.uint8)
    for job in work_of(points, kernels, gpu, config, tmp_path, built_for_gpu(points, kernels, gpu)).jobs():
        at, order = job.point, np.random.default_rng().integers(2, size=30)
        sets = [verify.operands(cupy, at.dtype, at.n, at.p, at.m, seed) for seed in range(2)]
        launches = tuple(dataclasses.replace(launch, dependent=False) for launch in job.launches)
        expected = results_of(dataclasses.replace(job, launches=launches), sets, range(2))
        pause.fill(0)  # meanwhile all are launched
        found = results_of(job, sets, order)
        assert found == [expected[number] for number in order] and expected[0] != expected[1], at.label()


def results_of(job, sets, order):
    """The bytes of the products of those sets of operands; each is made twice."""
    import cupy

    from tilewise.measure.backends import operands

    A, B = map(cupy.empty_like, sets[0])
    C = cupy.empty((len(A), B.shape[1]), result_of(job.point.dtype).stored)
    launch, _, spaces = operands.bound(job, A, B, C)
    found = []
    for number in order:
        for matrix, values in zip((A, B), sets[number]):
            cupy.copyto(matrix, values)
        launch(0)
        launch(0)
        found.append(C.copy())
    del spaces  # which are needed until here
    return [each.get().tobytes() for each in found]


#: A batch and its ragged shape; rows of 16 B and of others, tiles that end in the middle of a matrix.
BATCHES = [
    (1, 33, 35, 70),
    (3, 33, 35, 70),
    (7, 130, 40, 200),
    (5, 129, 65, 257),
    (300, 1, 16, 8),
    (8, 1024, 1024, 1024),
]


def test_every_product_of_a_batch_is_right_on_ragged_shapes(work, config, kernels):
    asked = {(at.kernel, at.dtype, at.parameters): at for at in expand(config, kernels, "batches", reading=BATCHED)}
    short = [("batched_wgmma", "half", at.parameters) for at in asked.values() if at.kernel == "batched_wgmma"]
    every = [*asked, *short, ("cublas", "double", ()), ("cublas_half", "half", ())]
    points = [
        Point("t", kernel, dtype, n, p, m, parameters, batch)
        for batch, n, p, m in BATCHES
        for kernel, dtype, parameters in every
    ]
    points.sort(key=lambda at: (at.batch, at.n, at.p, at.m, at.dtype))
    work = work(points)
    rows = [row for _, row in measure.run_jobs(work.jobs(), work.device, work.config, work.samples, "screen")]
    assert len(rows) == len(points)
    wrong = [(row["kernel"], row["dtype"], row["message"]) for row in rows if row["status"] != "ok"]
    assert not wrong, wrong


def test_doubles_of_bytes_are_right_at_200_random_shapes(work):
    rng = np.random.default_rng()
    chosen = {"tile_m": 128, "stages": 6, "cluster_blocks": 1, "band": 16}
    sides = [(int(n), int(p), int(m)) for n, p, m in rng.integers([1, 24, 1], [700, 1500, 700], size=(200, 3))]
    points = [
        point("t", "double_always", "double", *shape, **chosen)
        if number % 2
        else point("t", "double_from_int8", "double", *shape, moduli=13 + number // 2 % 4, **chosen)
        for number, shape in enumerate(sides)
    ]
    asked = work(points)
    rows = [row for _, row in measure.run_jobs(asked.jobs(), asked.device, asked.config, asked.samples, "screen")]
    wrong = [(row["n"], row["p"], row["m"], row["message"]) for row in rows if row["status"] != "ok"]
    assert len(rows) == 200 and not wrong, wrong


def test_doubles_of_bytes_are_the_models_to_the_last_bit(work, gpu, config, tmp_path):
    """Of operands whose exponents are spread by exp(phi x), which few moduli refuse in part."""
    rng = np.random.default_rng()
    points = [
        point(
            "t", "double_from_int8", "double", n, p, m, moduli=moduli, tile_m=128, stages=6, cluster_blocks=1, band=16
        )
        for n, p, m in ((1, 40, 3), (24, 130, 17), (70, 64, 9), (200, 300, 40))
        for moduli in range(13, 17)
    ] + [point("t", "double_always", "double", 300, 270, 200, tile_m=64, stages=6, cluster_blocks=1, band=16)] * 8
    backend = open_backend("cuda", Setting(gpu, config, tmp_path))
    for job in work(points).jobs():
        at, (phi, seed) = job.point, rng.integers([0, 0], [5, 2**32])
        shape, chosen = (at.n, at.p, at.m), dict(at.parameters)
        A, B = grading.operands(np, "double", WIDE, *shape, int(seed), int(phi))
        C, row = backend.multiply(job, backend.xp.asarray(A), backend.xp.asarray(B))
        of_bytes = tiles_of_bytes(A, B, 64) if at.kernel == "double_always" else np.ones((at.n, at.m), bool)
        wanted = residues.product(A, B, chosen.get("moduli", 14))
        assert row["status"] == "ok", row["message"]
        assert np.array_equal(C.get()[of_bytes], wanted[of_bytes], equal_nan=True), (at.label(), phi, seed)


def test_the_accuracy_gate_on_the_gpu(gpu, config, kernels, tmp_path, built_for_gpu):
    """What the registry claims holds, one accumulator fails, and the errors are those of the models within a factor of
    2."""
    method = METHODS["accuracy"]
    points = [at for at in expand(config, kernels, "accuracy_gate") if at.p == 1024]
    _, rows = method.run(work_of(points, kernels, gpu, config, tmp_path, built_for_gpu(points, kernels, gpu)))
    assert set(rows.status) == {"ok"}, rows.message.tolist()
    assert set(rows.verdict[rows.claimed]) == {"passes"}
    assert set(rows.verdict[rows.kernel == "three_tf32"]) == {"fails"}
    refused = rows[(rows.kernel == "float_from_half") & (rows.operands == "steep_along_k")]
    assert set(refused.verdict) == {"refuses"}
    made = rows[rows.relative_error.notna() & rows.kernel.map(lambda name: "scheme" in kernels[name].accuracy)]
    factor = made.relative_error / [modelled(kernels[row.kernel], row.operands) for row in made.itertuples()]
    asked = made.groupby("kernel").size()
    assert len(asked) == 4 and asked.min() >= 6 and factor.between(0.5, 2).all(), made.assign(factor=factor).to_string()


def modelled(kernel, operands):
    """The error of a kernel of floats by its model, of a product of few rows and columns, which do not change it."""
    A, B = accuracy.operands(np, operands, 64, 1024, 64, 1)
    return accuracy.errors(models.multiply(kernel, {}, A, B), A, B).relative


def test_cublas_is_verified_and_timed(run, tmp_path):
    rows = run(
        [point("t", name, dtype, n, 101, m) for name, dtype in LIBRARIES for n, m in ((100, 103), (1, 1), (1, 64))]
    )
    assert set(rows.status) == {"ok"}, rows.message.tolist()
    assert (rows.bound_ratio < 1).all() and (rows.time_ms > 0).all()
    [benchmark] = json.loads((tmp_path / "samples/nvbench-0.json").read_text())["benchmarks"]
    assert len(benchmark["states"]) == len(rows) == 15


def test_whole_rows_are_checked_where_the_reference_is_too_dear(run, config):
    limits = {"verification": {"rows": 5, "full_limit_gflop": {"gpu": 1e-9, "cpu": 1}}}
    rows = run([point("t", "tiled", "float", 200, 100, 300, tile=16)], **limits)
    assert rows.status[0] == "ok" and rows.message[0] == "5 of 200 rows checked"
