"""The method `sizes`: many products, timed briefly, in a table of their own."""

import dataclasses

import pytest
from builders import work_of

from tilewise.measure import task
from tilewise.measure.methods import METHODS
from tilewise.rules import Study
from tilewise.study import columns, registry
from tilewise.study.points import point

GPU = {"name": "NVIDIA H200", "driver": "580.1", "compute_capability": "9.0", "sms": 132}
POINTS = [point("sizes", "cublas", dtype, n, n, n) for n in (4096, 16) for dtype in ("float", "double")]


@pytest.fixture
def run(monkeypatch, device, config, kernels, tmp_path):
    """A function that runs the method on a GPU whose worker answers with a time; returns the facts and what it ran."""
    ran = []

    def run_jobs(jobs, device, config, samples, how):
        assert how == "measure"
        ran.append([(job.point.n, job.point.dtype, config["timing"]["timeout_s"]) for job in jobs])
        for job in jobs:
            yield job.key, job.row | {"status": "ok", "time_ms": job.point.n / 1000, "gflops": 1.0, "gpu_uuid": "GPU-1"}

    monkeypatch.setattr(task, "run_jobs", run_jobs)
    here = dataclasses.replace(device, platform="nvidia-h200", backend="gpu", gpu=GPU)

    def made(points):
        measured, facts = METHODS["sizes"].run(work_of(points, kernels, here, config, tmp_path, builds={}))
        assert measured.empty, "they are no measurements of a sweep"
        return facts, ran

    return made


def test_each_point_is_a_row_timed_briefly_with_shared_operands_in_a_row(run, config):
    facts, [ran] = run(POINTS)
    assert ran == [(16, "double", 0.4), (16, "float", 0.4), (4096, "double", 0.4), (4096, "float", 0.4)]
    assert config["timing"]["timeout_s"] != 0.4
    assert list(facts.columns) == columns.column_names("sizes", registry.parameters(registry.load()))
    assert facts[["n", "dtype", "time_ms"]].to_numpy().tolist() == [
        [4096, "float", 4.096], [4096, "double", 4.096], [16, "float", 0.016], [16, "double", 0.016]
    ]  # fmt: skip


def test_a_stopped_run_goes_on_where_it_was(run):
    run(POINTS[:2])
    facts, ran = run(POINTS)
    assert [len(each) for each in ran] == [2, 2] and facts["time_ms"].notna().all()


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
