"""Each measuring job has a GPU of its own, and a job that dies gives it back."""

import os
import signal
import subprocess
import sys

import pytest
from cards import H200, smi

from tilewise import UserError
from tilewise.measure import lease
from tilewise.study.device import Device

DEVICE = Device("two-gpus", "gpu", gpu={"name": "NVIDIA H200"})
CARDS = [H200 | {"uuid": "GPU-a"}, H200 | {"uuid": "GPU-b"}]
HOLDER = """
import sys, time
from tilewise.measure import lease
from tilewise.study.device import Device
device = Device("p", "gpu", gpu={"name": "NVIDIA H200"})
with lease.one_gpu(device, sys.argv[1]) as uuid:
    import os
    print(uuid, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    time.sleep(60)
"""


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    """A machine with two GPUs."""
    monkeypatch.setenv("PATH", str(smi(tmp_path / "bin", CARDS)), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def holder(tmp_path, two_gpus):
    """A function that starts a process which takes a GPU and keeps it; returns the process and what it printed."""
    started = []

    def start():
        command = [sys.executable, "-c", HOLDER, str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process, process.stdout.readline().split()

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_two_jobs_have_different_gpus_and_a_third_waits(holder, tmp_path):
    first, one = holder()
    _, other = holder()
    assert sorted([one, other]) == [["GPU-a", "GPU-a"], ["GPU-b", "GPU-b"]]
    with pytest.raises(UserError, match="GPU-a, GPU-b"), lease.one_gpu(DEVICE, tmp_path, wait_s=0.3):
        pass
    first.send_signal(signal.SIGKILL)
    first.wait()
    with lease.one_gpu(DEVICE, tmp_path, wait_s=10) as mine:
        assert [mine] * 2 == one, "what the killed job had"


def test_no_gpu_is_taken_where_there_is_none(tmp_path):
    with lease.one_gpu(Device("emulator", "emulator"), tmp_path) as uuid:
        assert uuid is None
    assert not list(tmp_path.iterdir())
