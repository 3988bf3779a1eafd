"""The method `sizes`: many products, each a brief duel, in a table of their own."""

import dataclasses

import pytest
from builders import work_of

from tilewise.measure import task
from tilewise.measure.methods import METHODS
from tilewise.rules import Study
from tilewise.study import columns, registry
from tilewise.study.points import point

GPU = {"name": "NVIDIA H200", "driver": "580.1", "compute_capability": "9.0", "sms": 132}
POINTS = [
    point("sizes", kernel, dtype, n, n, n)
    for n in (4096, 16)
    for dtype in ("float", "double")
    for kernel in ("cublas", "cublas_best")
]


@pytest.fixture
def run(monkeypatch, device, config, kernels, tmp_path):
    """A function that runs the method on a GPU whose worker answers with a time; returns the facts and what it ran."""
    ran = []

    def run_jobs(jobs, device, config, samples, how):
        assert how == "duel"
        ran.append([(job.point.n, job.point.dtype, config["duel"]) for job in jobs])
        for job in jobs:
            found = {"status": "ok", "time_ms": job.point.n / 1000, "gflops": 1.0, "gpu_uuid": "GPU-1"}
            yield job.key, job.row | found | {"turns": 5, "vs_best": 1.0}

    monkeypatch.setattr(task, "run_jobs", lambda jobs, *rest: run_jobs(jobs, *rest) if jobs else [])
    here = dataclasses.replace(device, platform="nvidia-h200", backend="gpu", gpu=GPU)

    def made(points):
        measured, facts = METHODS["sizes"].run(work_of(points, kernels, here, config, tmp_path, builds={}))
        assert measured.empty, "they are no measurements of a sweep"
        return facts, ran

    return made


def test_each_point_is_a_row_of_a_brief_duel_and_a_product_comes_once(run, config):
    facts, [ran] = run(POINTS)
    products = [(n, dtype) for n, dtype, _ in ran]
    assert products == [each for n in (16, 4096) for dtype in ("double", "float") for each in [(n, dtype)] * 2]
    brief = ran[0][2]
    assert brief["load_turns"] == 0 and brief["most_turns"] < config["duel"]["most_turns"]
    assert brief["ratio_percent"] == config["duel"]["ratio_percent"], "the rest is the config's"
    assert list(facts.columns) == columns.column_names("sizes", registry.parameters(registry.load()))
    assert facts[["n", "dtype", "kernel", "time_ms", "turns"]].to_numpy().tolist() == [
        [each.n, each.dtype, each.kernel, each.n / 1000, 5] for each in POINTS
    ]


def test_a_stopped_run_goes_on_where_it_was(run):
    run(POINTS[:4])
    facts, ran = run(POINTS)
    assert [len(each) for each in ran] == [4, 4] and facts["time_ms"].notna().all()


def test_the_task_has_many_sizes_on_a_gpu_and_no_point_on_an_emulator(config):
    study = Study(config | {"platforms": {"gpu": {"backend": "gpu"}, "cpu": {"backend": "emulator"}}})
    points = study.points_on("gpu", "sizes")
    cubes = {each.n for each in points if each.n == each.p == each.m and each.kernel == "cublas"}
    assert min(cubes) == 16 and max(cubes) == 16384 and {2047, 2048, 2049, 2039} <= cubes and len(cubes) > 25
    both = {(each.dtype, each.n, each.p, each.m) for each in points if study.kernels[each.kernel].kind == "library"}
    own = {(each.dtype, each.n, each.p, each.m) for each in points if study.kernels[each.kernel].kind != "library"}
    assert own == both, "every product has a library beside it"
    assert study.points_on("cpu", "sizes") == [] and not set(study.used("cpu", "sizes"))
    traced = {(each.kernel, each.parameters) for each in study.traced_points([{"n": 64, "p": 64, "m": 64}])}
    alone = Study({**study.config, "tasks": {name: its for name, its in config["tasks"].items() if name != "sizes"}})
    assert traced == {(each.kernel, each.parameters) for each in alone.traced_points([{"n": 64, "p": 64, "m": 64}])}
