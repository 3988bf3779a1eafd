"""The overhead of an isolated time: an empty kernel of one thread, timed as sweeps are."""

import copy
import dataclasses
from pathlib import Path

import pytest
import yaml
from builders import work_of
from snakemake.utils import update_config

from tilewise import ROOT
from tilewise.measure.methods import METHODS, overhead
from tilewise.rules import Study
from tilewise.study import columns

GPU = {"name": "NVIDIA H200", "driver": "580.1", "compute_capability": "9.0", "sms": 132}


@pytest.fixture
def timed(monkeypatch, device, config, kernels, tmp_path):
    """A function that runs the method on a GPU whose worker answers with some columns; returns the facts."""

    def made(answer):
        def run_jobs(jobs, device, config, samples, how):
            assert how == "overhead"
            [job] = jobs
            [launch] = job.launches
            assert (launch.block, launch.grid, job.point.n * job.point.p * job.point.m) == ((1, 1, 1), (1, 1, 1), 1)
            [(file, _)] = job.files.values()
            assert Path(file).read_bytes()[:4] == b"\x7fELF", "it is there to be run"
            yield job.key, job.row | answer

        monkeypatch.setattr(overhead, "run_jobs", run_jobs)
        here = dataclasses.replace(device, platform="nvidia-h200", backend="gpu", gpu=GPU)
        measured, facts = METHODS["overhead"].run(work_of([], kernels, here, config, tmp_path))
        assert measured.empty
        return facts

    return made


def test_the_overhead_is_one_row_in_microseconds(timed):
    facts = timed(
        {"status": "ok", "time_ms": 0.0035, "samples": 900, "noise": 0.02, "gflops": 5e-4, "gpu_uuid": "GPU-1"}
    )
    assert list(facts.columns) == columns.column_names("overhead", [])
    [row] = facts.to_dict("records")
    assert (row["platform"], row["overhead_us"], row["samples"]) == ("nvidia-h200", 3.5, 900)
    assert (row["noise"], row["status"], row["gpu_uuid"]) == (0.02, "ok", "GPU-1")


def test_an_overhead_that_cannot_be_measured_is_a_row_with_the_cause(timed):
    facts = timed({"status": "error", "message": "the worker ended"})
    assert facts.overhead_us.isna().all()
    assert facts[["status", "message"]].to_numpy().tolist() == [["error", "the worker ended"]]


def test_an_emulator_has_no_overhead(tmp_path, device, config, kernels):
    measured, facts = METHODS["overhead"].run(work_of([], kernels, device, config, tmp_path))
    assert measured.empty and facts.empty and list(facts.columns) == columns.column_names("overhead", [])


@pytest.mark.parametrize("name", ["config", "quick", "cluster"])
def test_every_config_of_the_repository_measures_it(config, name):
    merged = copy.deepcopy(config)
    update_config(merged, yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()))
    assert Study(merged | {"platforms": {"here": {"backend": "gpu"}}}).with_method("overhead") == ["overhead"]


@pytest.mark.gpu(alone=True)
def test_the_overhead_of_this_gpu_is_some_microseconds(tmp_path, gpu, config, kernels):
    short = config | {"timing": config["timing"] | {"min_time_s": 0.05, "timeout_s": 2}}
    work = work_of([], kernels, gpu, short, tmp_path)
    first, second = (METHODS["overhead"].run(work)[1].iloc[0] for _ in range(2))
    for row in (first, second):
        assert row.status == "ok", row.message
        assert 1 < row.overhead_us < 50 and row.samples >= short["timing"]["min_samples"] and row.gpu_uuid[:4] == "GPU-"
    assert first.overhead_us == pytest.approx(second.overhead_us, rel=0.3)
