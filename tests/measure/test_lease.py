"""Each measuring job has a GPU of its own, and a job that dies gives it back."""

import os
import signal
import subprocess
import sys

import pytest

from tilewise import UserError
from tilewise.measure import lease

DEVICE = {"platform": "two-gpus", "backend": "gpu"}
HOLDER = """
import sys, time
from tilewise.measure import lease
lease.visible = lambda: ["GPU-a", "GPU-b"]
with lease.one_gpu({"platform": "p", "backend": "gpu"}, sys.argv[1]) as uuid:
    import os
    print(uuid, os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
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


def test_two_jobs_have_different_gpus_and_a_third_waits(holder, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "visible", lambda: ["GPU-a", "GPU-b"])
    first, one = holder()
    _, other = holder()
    assert sorted([one, other]) == [["GPU-a", "GPU-a"], ["GPU-b", "GPU-b"]]
    with pytest.raises(UserError, match="GPU-a, GPU-b"), lease.one_gpu(DEVICE, tmp_path, wait_s=0.3):
        pass
    first.send_signal(signal.SIGKILL)
    first.wait()
    with lease.one_gpu(DEVICE, tmp_path, wait_s=10) as mine:
        assert [mine] * 2 == one, "what the killed job had"


def test_the_environment_is_as_before(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "visible", lambda: ["GPU-a"])
    for before in ("0", None):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        if before is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        with lease.one_gpu(DEVICE, tmp_path) as uuid:
            assert os.environ["CUDA_VISIBLE_DEVICES"] == uuid == "GPU-a"
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_no_gpu_is_taken_where_there_is_none(tmp_path):
    with lease.one_gpu({"platform": "emulator", "backend": "emulator"}, tmp_path) as uuid:
        assert uuid is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, ["GPU-aa", "GPU-bb", "GPU-cc"]),
        ("1", ["GPU-bb"]),
        ("2,0", ["GPU-cc", "GPU-aa"]),
        ("GPU-b", ["GPU-bb"]),
        ("", []),
    ],
)
def test_only_the_gpus_that_the_environment_shows(monkeypatch, asked, found):
    uuids = ["GPU-aa", "GPU-bb", "GPU-cc"]
    nvml = type(sys)("pynvml")
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetCount = lambda: len(uuids)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetUUID = lambda index: uuids[index].encode()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if asked is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", asked)
    assert lease.visible() == found
