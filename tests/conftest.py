"""What the tests share: the study's own config and registry, and a copy of the repository in which Snakemake runs."""

import gc
import os
import shutil

import filelock
import hypothesis
import pytest
import yaml
from builders import KERNELS, built
from clones import copy_repository
from xdist.scheduler import LoadFileScheduling

from kernelscope.limits import EMULATED_LIMITS
from tilewise import ROOT
from tilewise.nvidia import gpus
from tilewise.study.device import Device

# Garbage is collected seldom: to look for it takes a seventh of the time of tests with tables.
gc.set_threshold(50_000)
# A busy machine is slower than hypothesis expects.
hypothesis.settings.register_profile("study", deadline=None)
hypothesis.settings.register_profile("short", hypothesis.settings.get_profile("study"), max_examples=40)


def pytest_configure(config):
    """Try 100 random examples in the runs that take the exhaustive tests too, else 40."""
    hypothesis.settings.load_profile("short" if "not exhaustive" in config.option.markexpr else "study")


def pytest_collection_modifyitems(items):
    """If no GPU is visible, tests marked `gpu` are skipped and say so.

    Those with Slurm go first, then the files that run whole studies, render pages and record runs, so that at the end
    no worker of pytest-xdist waits for another; it hands out its work in this order.
    """
    order = {"slurm": 0, "tests": 1, "report": 2, "recorded": 2}
    items.sort(key=lambda item: order.get(item.path.parent.name, 3))
    if gpus.visible():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU is visible here"))


def pytest_collection_finish():
    """Look for no garbage among what is imported."""
    gc.freeze()


class Scheduling(LoadFileScheduling):
    """A file's tests are run by one worker. Those with Slurm wait more than they compute: two workers run them, one of
    them test_faults.py alone, which takes half of the time, so that two further workers have two cores nearly for
    themselves."""

    def _split_scope(self, nodeid: str) -> str:
        file, slurm = super()._split_scope(nodeid), "tests/slurm/"
        return slurm if file.startswith(slurm) and not file.endswith("test_faults.py") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """A worker per core, but four at least: many tests wait."""
    return max(4, len(os.sched_getaffinity(0)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let `Scheduling` distribute the tests."""
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def config():
    """The study that config/config.yaml describes."""
    return yaml.safe_load((ROOT / "config/config.yaml").read_text())


@pytest.fixture(scope="session")
def kernels():
    """The registry."""
    return KERNELS


@pytest.fixture(scope="session")
def device():
    """A machine without a GPU."""
    return Device("emulator", "emulator", limits=EMULATED_LIMITS, host_compiler="g++")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that the workers of pytest-xdist have in common."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def built_for_gpu(shared):
    """A function that builds the kernels of some points for a GPU, on all cores; all tests share what is built."""
    return lambda points, kernels, device: built(points, kernels, device, shared / "built_for_gpu", os.cpu_count())


@pytest.fixture(autouse=True)
def turn_on_the_gpu(request, shared):
    """Tests share the GPU, except with one that judges times, `gpu(alone=True)`."""
    marker = request.node.get_closest_marker("gpu")
    if marker is None:
        yield
        return
    lock = filelock.ReadWriteLock(shared / "gpu.db")
    with lock.write_lock() if marker.kwargs.get("alone") else lock.read_lock():
        yield


@pytest.fixture(scope="session")
def new_clone():
    """`copy_repository`, for the conftest.py files of subfolders."""
    return copy_repository


@pytest.fixture
def clone(tmp_path):
    """A fresh copy of the repository for one test."""
    return copy_repository(tmp_path / "clone")


@pytest.fixture(scope="session")
def rendered(shared):
    """The page of a machine without a GPU, with a recorded run; all data are invented. All workers share it."""
    import synthetic

    from tilewise.report import render  # its imports take a second; the other tests do not have to wait for them

    folder = shared / "report"
    with filelock.FileLock(shared / "report.lock"):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)  # another worker failed
            synthetic.write(folder / "recorded/nvidia-h200", with_traffic=True)
            synthetic.write(folder / "results/emulator", "emulator", with_traffic=True)
            found = render.render(folder / "report.html", [folder / "results/emulator"], recorded=folder / "recorded")
            assert found == []
            (folder / "whole").touch()
    return folder / "report.html"


def pytest_terminal_summary(terminalreporter):
    """Print what tests record as `note`, such as how long something took."""
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        for name, value in report.user_properties:
            if name == "note":
                terminalreporter.write_line(value)
