"""What the config says about Slurm, and the guards of a job on a node: all that does not need Slurm itself."""

import dataclasses
import json
import multiprocessing
import os
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import Wildcards

from tilewise import UserError
from tilewise.files import hold_lock
from tilewise.measure import probe
from tilewise.resources import JobResources
from tilewise.rules import Study
from tilewise.study import columns, durations, slurm
from tilewise.study.points import point
from tilewise.study.schema import validate

#: As a shell gives it to sbatch unchanged.
EXTRA = "--nice '--exclude=n[1-3]'"


def asked(config, platform):
    """The resources of a GPU job of a platform."""
    resources = slurm.gpu_job(config, config["platforms"], seconds=60)
    del resources["runtime"]
    values = {name: value(SimpleNamespace(platform=platform)) for name, value in resources.items()}
    return {name: value for name, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ({"backend": "gpu"}, {"gpu": 1}),
        ({"backend": "gpu", "slurm": None}, {"gpu": 1}),
        ({"backend": "gpu", "slurm": {"gpu_model": "h200"}}, {"gpu": 1, "gpu_model": "h200"}),
        ({"backend": "gpu", "slurm": {"gres": "gpu:h200:1"}}, {"gpu": 0, "gres": "gpu:h200:1"}),
        # What the plugin would refuse.
        ({"backend": "gpu", "slurm": {"gpu_model": "a100-40gb"}}, {"gpu": 0, "sbatch_request": "--gpus=a100-40gb:1"}),
        ({"backend": "gpu", "slurm": {"gres": "gpu:1,fs:8G"}}, {"gpu": 0, "sbatch_request": "--gres=gpu:1,fs:8G"}),
        ({"backend": "gpu", "slurm": {"extra": "--nice  --exclude=n[1-3]\n"}}, {"gpu": 1, "slurm_extra": EXTRA}),
        ({"backend": "emulator"}, {"gpu": 0}),
    ],
)
def test_a_gpu_is_asked_for_as_the_platform_spells_it(config, platform, expected):
    assert asked(config | {"platforms": {"mine": platform}}, "mine") == expected


def test_a_platforms_settings_go_before_those_of_all_jobs(config):
    config = config | {
        "slurm": {"account": "us", "partition": "cpu"},
        "platforms": {"mine": {"backend": "gpu", "slurm": {"partition": "gpu"}}, "other": {"backend": "gpu"}},
    }
    loops = slurm.cpu_job(config, 60)
    assert loops.pop("runtime")(None, attempt=1) == 8
    assert loops == {"slurm_account": "us", "slurm_partition": "cpu"}
    assert asked(config, "mine") == {"slurm_account": "us", "slurm_partition": "gpu", "gpu": 1}
    assert asked(config, "other") == {"slurm_account": "us", "slurm_partition": "cpu", "gpu": 1}


def test_a_task_of_cpu_loops_asks_for_no_gpu_and_for_the_settings_of_all_jobs(config):
    mine = {"backend": "gpu", "slurm": {"partition": "gpu", "gpu_model": "h200", "exclusive": "node"}}
    settings = {"partition": "cpu", "max_minutes": 30, "extra": "-v"}
    study = Study(config | {"slurm": settings, "platforms": {"mine": mine}}, remote=True)

    def resources(task):
        wildcards = Wildcards(fromdict={"platform": "mine", "task": task})
        asked = JobResources(study).measuring_job(seconds=1e6)
        found = {"runtime": asked.pop("runtime")(wildcards, attempt=2), "cpus": JobResources(study).cpus_of(wildcards)}
        found |= {name: value(wildcards) for name, value in asked.items()}
        return {name: value for name, value in found.items() if value is not None}

    shared = {"runtime": 30}
    loops = shared | {"slurm_partition": "cpu", "gpu": 0, "slurm_extra": "-v", "cpus": slurm.LOOP_CORES}
    on_gpu = {"slurm_partition": "gpu", "gpu": 1, "gpu_model": "h200", "slurm_extra": "-v --exclusive"}
    on_gpu |= shared | {"cpus": slurm.GPU_CORES}
    assert resources("cpu") == resources("loop_orders") == loops
    # `integers` has a CPU loop beside its kernels; `bandwidth` has no points of its own.
    assert resources("task3") == resources("integers") == resources("bandwidth") == on_gpu


@pytest.mark.parametrize(
    ("seconds", "attempt", "most", "expected"),
    [(0, 1, None, 5), (1, 1, None, 6), (126, 1, None, 12), (126, 2, None, 24), (126, 2, 15, 15), (3600, 1, None, 185)],
)
def test_a_job_asks_for_three_times_what_was_recorded_and_no_more_than_the_setting(seconds, attempt, most, expected):
    assert slurm.minutes(seconds, attempt, most) == expected


def test_an_emulated_platform_asks_for_one_core_and_little_memory(config):
    study = Study(config | {"platforms": {"mine": {"backend": "emulator"}}}, remote=True)
    for wildcards in ({"platform": "mine"}, {"platform": "mine", "task": "task3"}):
        job = Wildcards(fromdict=wildcards)
        assert JobResources(study).cpus_of(job) == 1 and 1000 <= JobResources(study).memory_of(job) < 1100


def test_nodes_by_name_and_by_number_become_platforms_that_keep_to_their_node(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    platforms = slurm.spread(
        {
            "a": {"backend": "gpu", "nodes": ["Node7", "n8"]},
            "b": {"backend": "gpu", "nodes": 2},
            "c": {"backend": "gpu"},
        }
    )
    assert list(platforms) == ["a-node7", "a-n8", "b-1", "b-2", "c"]
    probe, measure = (slurm.gpu_job({}, platforms, 1, measures=flag)["slurm_extra"] for flag in (False, True))

    def asked(name):
        return [extra(SimpleNamespace(platform=name)) for extra in (probe, measure)]

    assert asked("a-node7") == ["--nodelist=Node7"] * 2
    assert asked("c") == [None, None]
    before = JobResources(SimpleNamespace(platforms=platforms)).probed_before(SimpleNamespace(platform="b-2"))
    assert before == ["results/b-1/device.json"]
    with pytest.raises(FileNotFoundError):
        asked("b-2")
    for name, node in (("b-1", "n4"), ("b-2", "n5")):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "device.json").write_text(json.dumps({"node": node}))
    assert asked("b-1") == [None, "--nodelist=n4"]
    assert asked("b-2") == ["--exclude=n4", "--nodelist=n5"]


#: Kernel, ms, samples and runs of recorded points.
TIMED = (("a", 1, 5, 3), ("a", 2, 5, 3), ("a", 1, 5, 3), ("loop", 500, 4, None), ("c", None, 0, None))


def test_times_come_from_the_samples_of_the_recorded_run(tmp_path):
    folder = tmp_path / "card"
    folder.mkdir()
    named = {"task": "t", "dtype": "float", "n": 1, "p": 2, "m": 3, "platform": "card", "status": "ok"}
    rows = [
        named | {"task": f"t{number}", "kernel": kernel, "time_ms": ms, "samples": count, "runs": runs}
        for number, (kernel, ms, count, runs) in enumerate(TIMED)
    ]
    duel = {"task": "turns", "p": 5, "time_ms": 1, "samples": 10, "duel_s": 24.0}
    rows += [named | duel | {"kernel": kernel} for kernel in ("a", "b", "library")]
    columns.frame(rows, "measurements").to_csv(folder / "measurements.csv", index=False)

    def seconds(*kernels, p=2, per_point=1, backend="gpu"):
        points = [point("t", kernel, "float", 1, p, 3) for kernel in kernels]
        return durations.estimate_seconds(points, per_point, backend, tmp_path)

    gpu, emulator = durations.POINT_S["gpu"], durations.POINT_S["emulator"]
    assert seconds("a") == gpu + 0.03, "the slowest of those alike, in three runs"
    assert seconds("a", "loop", "c", "new") == pytest.approx(4 * gpu + 0.03 + 2)
    assert seconds("a", p=4) == gpu, "another shape"
    assert seconds("a", "b", "library", p=5) == 3 * gpu + 24, "turns and load of all kernels of a product"
    assert seconds("a", per_point=0.25) == pytest.approx(0.25 * (gpu + 0.03))
    assert seconds("a", "a", backend="emulator") == 2 * emulator


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acount": "us"}, "did you mean 'account'"),
        ({"gres": "gpu:1", "gpu_model": "h200"}, "not both"),
        ({"gres": "--gres=gpu:1"}, "gpu:h200:1"),
        ({"account": 4711}, "quotes"),
        ({"gres": "gpu:1 --exclusive"}, "gpu:h200:1"),
        ({"gpu_model": "h200;id"}, "sinfo"),
        ({"extra": "--nice; touch me #"}, "a shell acts on"),
        ({"extra": "--nice=$(id)"}, "a shell acts on"),
        ({"extra": "nice"}, "options of sbatch"),
    ],
)
def test_a_mistake_in_the_settings_names_the_remedy(config, settings, message):
    with pytest.raises(UserError, match=message):
        validate(config | {"slurm": settings}, "config", "config/cluster.yaml")


@pytest.mark.parametrize("gres", ["gpu", "gpu:nvidia_a100-sxm4-80gb:1", "gpu:1g.10gb:1,lscratch:100G", "shard:8"])
def test_resources_as_clusters_name_them_are_taken(config, gres):
    validate(config | {"slurm": {"gres": gres}}, "config", "config/cluster.yaml")
    asked = slurm.cpu_job({"slurm": {"gres": gres}}, seconds=1)
    assert asked.get("gres", asked.get(slurm.REQUEST)) in (gres, f"--gres={gres}")


def test_this_machine_is_no_platform_of_a_cluster(config):
    with pytest.raises(UserError, match=r"config/cluster\.yaml"):
        Study(config, remote=True)


def hold(path, held, release):
    os.environ["SLURM_JOB_ID"] = "4711"
    with hold_lock(path):
        held.set()
        release.wait(30)


def test_the_second_of_two_processes_is_told_of_the_first_and_runs_when_it_has_ended(tmp_path):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "task.lock", held, release))
    holder.start()
    assert held.wait(30)
    with (
        pytest.raises(UserError, match=r"Slurm job 4711 on .* works on this task"),
        hold_lock(tmp_path / "task.lock", 0.1),
    ):
        pass
    holder.kill()  # which also frees the lock
    with hold_lock(tmp_path / "task.lock", 10):
        pass


def test_another_kind_of_node_than_the_probes_is_refused(device):
    here = dataclasses.replace(device, cpu=probe.processor())
    probe.check_here(here)
    with pytest.raises(UserError, match="another machine"):
        probe.check_here(dataclasses.replace(here, cpu={"name": "another processor"}))
