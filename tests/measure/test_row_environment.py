"""Where a point is measured and who else is there, with NVML and Slurm's commands replaced."""

import os
import sys
from types import SimpleNamespace

import pytest

from tilewise.measure import environment
from tilewise.nvidia.nvml import other_users


class NVMLError(Exception):
    """As pynvml has it."""


def nvml(pids=(), names=None, percent=0):
    """What of pynvml is used."""
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids],
        nvmlSystemGetProcessName=lambda pid: (names or {}).get(pid, "python"),
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=percent),
    )


@pytest.fixture
def no_mps(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))


OURS = os.getpid()


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (nvml([OURS]), []),
        (nvml([77]), []),  # in a container: our own process by the host's number
        (nvml([OURS, 77, 78]), ["2 other processes on it"]),
        (nvml([77, 78]), ["1 other process on it"]),
        (nvml([OURS], percent=83), ["83 % of the last second in use"]),
        (
            nvml([OURS, 77], names={77: b"/usr/bin/nvidia-cuda-mps-server"}),
            ["MPS shares it between processes", "1 other process on it"],
        ),
    ],
)
def test_a_busy_card_is_noticed_by_the_probe(monkeypatch, no_mps, card, expected):
    monkeypatch.setitem(sys.modules, "pynvml", card)
    assert other_users("GPU-1") == expected


def test_a_control_daemon_of_mps_is_noticed_before_its_first_client(monkeypatch, tmp_path):
    card = nvml([OURS])
    monkeypatch.setitem(sys.modules, "pynvml", card)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    (tmp_path / "control").touch()
    assert other_users("GPU-1") == ["MPS shares it between processes"]


@pytest.fixture
def slurm(monkeypatch):
    """A function that sets what Slurm says of the job's cores and of those given away on the node."""

    def says(mine, given):
        monkeypatch.setenv("SLURM_JOB_ID", "4711")
        monkeypatch.setenv("SLURMD_NODENAME", "node7")
        answers = {"squeue": f"{mine}\n", "scontrol": f"NodeName=node7 CPUAlloc={given} CPUEfctv=64 CPUTot=64"}
        monkeypatch.setattr(environment, "_ask", lambda command, *options: answers[command])
        environment._alone_on_node.cache_clear()

    yield says
    environment._alone_on_node.cache_clear()


def test_a_row_without_slurm_or_a_gpu_does_not_say_whether_it_was_alone(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    found = environment.columns()
    assert found["alone"] is None
    assert found["slurm_job"] is None
    assert found["node"]
    assert found["processor"]


@pytest.mark.parametrize(
    ("mine", "given", "pids", "expected"),
    [(4, 4, [77], True), (4, 8, [77], False), (4, 4, [77, 78], False), (4, 4, [], True)],
)
def test_a_point_is_alone_without_other_jobs_on_its_node_and_other_processes_on_its_gpu(
    monkeypatch, slurm, mine, given, pids, expected
):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(pids))
    slurm(mine, given)
    assert environment.columns("GPU-1")["alone"] is expected
    assert (environment.columns("GPU-1")["node"], environment.columns("GPU-1")["slurm_job"]) == ("node7", "4711")


def test_slurm_is_asked_once_in_a_while(monkeypatch, slurm):
    slurm(4, 4)
    environment.columns()
    asked = []
    monkeypatch.setattr(environment, "_ask", lambda *command: asked.append(command))
    environment.columns()
    assert len(asked) <= 2, "at most the two questions of a moment that has just begun"
