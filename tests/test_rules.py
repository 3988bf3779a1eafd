"""What the rules are told: cores and GPUs of a job, what a row depends on, and which names are taken."""

import copy
import dataclasses
import re
from pathlib import Path

import pytest
from cards import H200, smi
from clones import snakemake

from tilewise import UserError, rules
from tilewise.conditions import Conditions
from tilewise.resources import JobResources
from tilewise.rules import Study
from tilewise.study import slurm


class Wildcards(dict):
    __getattr__ = dict.__getitem__


def at(task, platform="nvidia-h200"):
    return Wildcards(task=task, platform=platform)


@pytest.fixture
def four_gpus(tmp_path, monkeypatch):
    """A machine whose nvidia-smi lists four GPUs."""
    cards = [H200 | {"uuid": f"GPU-{number}"} for number in range(4)]
    monkeypatch.setenv("PATH", str(smi(tmp_path / "bin", cards)), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_each_gpu_has_two_jobs_and_the_cpu_has_the_machine_for_itself(four_gpus, config):
    study = Study(config, cores=64)
    assert study.platforms == {"nvidia-h200": {"backend": "gpu", "capability": "9.0"}} and study.gpus == 4
    cores = JobResources(study).cores_of
    assert cores(at("task1a")) == cores(at("bandwidth")) == 7
    assert cores(at("cpu")) == cores(at("loop_orders")) == 64
    assert cores(at("integers")) == cores(at("cold_start")) == 64, "they read the host's clock too"
    assert JobResources(Study(config, cores=2)).cores_of(at("task1a")) == 1


def test_the_longest_task_goes_first(config):
    study = Study(config | {"platforms": {"nvidia-h200": {"backend": "gpu"}}})
    order = sorted(study.tasks, key=lambda task: -JobResources(study).length_of(at(task)))
    assert order[:4] == ["languages", "task3", "sizes", "cpu"]
    assert set(order[-3:]) == {"bandwidth", "overhead", "calls"}


def test_only_the_gpus_that_are_shown_count(four_gpus, config, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert Study(config).gpus == 2


def test_a_job_that_times_nothing_takes_one_core(config):
    study = Study(config | {"platforms": {"emulator": {"backend": "emulator"}}}, cores=8)
    cores = JobResources(study).cores_of
    assert cores(at("task1a", "emulator")) == 1 and cores(at("cpu", "emulator")) == 8


@pytest.mark.slow
def test_the_counters_ask_for_a_gpu_and_for_time_by_what_they_profile(clone, config):
    run = snakemake(clone, "--dry-run", "--configfile", "config/cluster.yaml", "--", "results/gpu/counters.csv")
    [said] = re.findall(r"^rule counters:.*?resources: (.*?)$", run.stdout + run.stderr, re.MULTILINE | re.DOTALL)
    resources = dict(each.split("=") for each in said.split(", "))
    profiled = Study(config | {"platforms": {"gpu": {"backend": "gpu"}}}).profiled
    assert resources["gpu"] == "1" and resources["cpus_per_task"] == "4" and resources["mem_mb"] == "8000"
    assert int(resources["runtime"]) == slurm.minutes(2 * profiled) > 20


def test_every_rule_has_its_name_for_itself(config):
    assert {
        "all",
        "draw",
        "overview",
        "measure",
        "collect",
        "occupancy",
        "trace",
        "counters",
        "instructions",
        "page",
    } <= rules.rule_names()
    for name in rules.rule_names():
        tasks = {name: config["tasks"]["task1a"]}
        with pytest.raises(UserError, match=f"tasks.{name}: the study has a rule, a table or a folder of that name"):
            Study(config | {"tasks": tasks})


def test_machine_code_belongs_to_all_on_a_gpu_and_elsewhere_only_if_asked_for(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    platforms = {"here": {"backend": "gpu"}, "emulator": {"backend": "emulator"}}
    study = Study(config | {"platforms": platforms})
    assert study.instructions_of({}) == study.instructions_of({"platform": "here"}) == ["results/here/instructions.csv"]
    assert study.instructions_of({"platform": "emulator"}) == []
    asked = tmp_path / "results/emulator/instructions.csv"
    asked.parent.mkdir(parents=True)
    asked.touch()
    assert study.instructions_of({"platform": "emulator"}) == ["results/emulator/instructions.csv"]
    sources = [Path(path).name for path in study.cuda_sources_of(Wildcards(platform="here"))]
    assert "naive.cu" in sources and "kij.cpp" not in sources


@pytest.mark.slow
def test_what_a_task_depends_on(config):
    def conditions(change):
        edited = copy.deepcopy(config)
        change(edited)
        study = Study(edited | {"platforms": {"here": {"backend": "gpu"}}})
        return {task: Conditions(study).of_task(at(task, "here")) for task in study.tasks}

    before = conditions(lambda c: None)

    def changed(change):
        return {task for task, digest in conditions(change).items() if digest != before[task]}

    assert changed(lambda c: c["tasks"]["task3"].update(title="another")) == set()
    assert changed(lambda c: c["maximum_size"].update(budget_s=7)) == {"task1c"}
    on_cpu_or_own = {"cpu", "loop_orders", "bandwidth", "calls"}
    assert changed(lambda c: c["timing"].update(min_samples=9)) == set(before) - on_cpu_or_own
    assert changed(lambda c: c["tasks"]["task2a"]["sweeps"][0].update(tile=[16])) == {"task2a"}


def test_every_kernel_is_traced_at_a_shape_that_it_takes(config, monkeypatch):
    """Those that none of the config's shapes suits get one of their own, with two blocks each way if they can have it;
    one that takes no shape is in the table all the same."""
    study = Study(config)
    before = study.traced_points(config["trace"]["shapes"])  # the tasks' own shapes are those of before
    for name, requires in {"tiled": ("n % (3 * tile) == 0", "m % 128 == 0"), "naive": ("n > 100000",)}.items():
        monkeypatch.setitem(study.kernels, name, dataclasses.replace(study.kernels[name], requires=requires))
    traced = study.traced_points(config["trace"]["shapes"])
    shapes = {(p.kernel, dict(p.parameters).get("tile")): (p.n, p.p, p.m) for p in traced}
    assert shapes["tiled", 32] == (192, 32, 256), "3 * tile and 128, twice"
    assert shapes["naive", None] == (33, 35, 70) and study.kernels["naive"].unmet(next(iter(traced)))
    asked = {(point.kernel, point.dtype, point.parameters) for point in before}
    assert {(point.kernel, point.dtype, point.parameters) for point in traced} == asked


def test_a_task_that_is_null_is_left_out(config):
    study = Study(config | {"tasks": config["tasks"] | {"task3": None}})
    assert "task3" not in study.tasks and "task3" not in study.config["tasks"] and "task2a" in study.tasks
