"""What the config says about Slurm, and the guards of a job on a node: all that does not need Slurm itself."""

import multiprocessing
import os
from types import SimpleNamespace

import pytest

from tilewise import UserError
from tilewise.files import alone
from tilewise.measure import probe
from tilewise.study import slurm
from tilewise.study.schema import validate
from tilewise.workflow import Study


def asked(config, platform):
    """The resources of a GPU job of a platform."""
    resources = slurm.gpu_job(config, config["platforms"])
    values = {name: value(SimpleNamespace(platform=platform)) for name, value in resources.items()}
    return {name: value for name, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ({"backend": "gpu"}, {"gpu": 1}),
        ({"backend": "gpu", "slurm": None}, {"gpu": 1}),
        ({"backend": "gpu", "slurm": {"gpu_model": "h200"}}, {"gpu": 1, "gpu_model": "h200"}),
        ({"backend": "gpu", "slurm": {"gres": "gpu:h200:1"}}, {"gpu": 0, "gres": "gpu:h200:1"}),
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
    assert slurm.cpu_job(config) == {"slurm_account": "us", "slurm_partition": "cpu"}
    assert asked(config, "mine") == {"slurm_account": "us", "slurm_partition": "gpu", "gpu": 1}
    assert asked(config, "other") == {"slurm_account": "us", "slurm_partition": "cpu", "gpu": 1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acount": "us"}, "did you mean 'account'"),
        ({"gres": "gpu:1", "gpu_model": "h200"}, "not both"),
        ({"gres": "--gres=gpu:1"}, "gpu:h200:1"),
        ({"account": 4711}, "quotes"),
    ],
)
def test_a_mistake_in_the_settings_names_the_remedy(config, settings, message):
    with pytest.raises(UserError, match=message):
        validate(config | {"slurm": settings}, "config", "config/cluster.yaml")


def test_this_machine_is_no_platform_of_a_cluster(config):
    with pytest.raises(UserError, match=r"config/cluster\.yaml"):
        Study(config, remote=True)


def hold(path, held, release):
    os.environ["SLURM_JOB_ID"] = "4711"
    with alone(path):
        held.set()
        release.wait(30)


def test_the_second_of_two_processes_is_told_of_the_first_and_runs_when_it_has_ended(tmp_path):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path / "task.lock", held, release))
    holder.start()
    assert held.wait(30)
    with pytest.raises(UserError, match=r"Slurm job 4711 on .* works on this task"), alone(tmp_path / "task.lock", 0.1):
        pass
    holder.kill()  # which also frees the lock
    with alone(tmp_path / "task.lock", 10):
        pass


def test_another_kind_of_node_than_the_probes_is_refused(device):
    here = device | {"cpu": probe.processor()}
    probe.check_here(here)
    with pytest.raises(UserError, match="another machine"):
        probe.check_here(here | {"cpu": {"name": "another processor"}})
