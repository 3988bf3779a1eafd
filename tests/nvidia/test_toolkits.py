"""The CUDA that fits a driver and a card, by stand-ins for nvidia-smi, and what each GPU has of what kernels need."""

import os
import subprocess
import sys

import pytest
from cards import A100, H200, MIG, T4, smi

from tilewise import ROOT, UserError
from tilewise.nvidia import card, gpus, nvrtc, toolkits
from tilewise.study import architectures


def gpu(name, capability, driver):
    return {"uuid": f"GPU-{name}", "name": name, "mig.mode.current": "[N/A]"} | {
        "driver_version": driver,
        "compute_cap": capability,
    }


V100 = gpu("Tesla V100-SXM2-16GB", "7.0", "580.65")
#: Cards and drivers -> the requirements, and words of the line.
CHOSEN = {
    "H200, newest": ([H200 | {"driver_version": "595.12"}], "gpu", "driver 595.12: CUDA 13 packages"),
    "H200, older": ([H200 | {"driver_version": "550.54.14"}], "gpu12", "driver 550.54.14: CUDA 12 packages"),
    "V100": (
        [V100],
        "gpu12",
        "driver 580.65, GPU 0 (Tesla V100-SXM2-16GB) of compute capability 7.0, for which CUDA 13 does not compile: "
        "CUDA 12 packages",
    ),
    "V100, older": ([V100 | {"driver_version": "535.104"}], "gpu12", "driver 535.104: CUDA 12 packages"),
    "T4": ([T4], "gpu", "driver 580.1: CUDA 13 packages"),
    "A100, oldest": ([A100 | {"driver_version": "525.60.13"}], "gpu12", "driver 525.60.13: CUDA 12 packages"),
    "4090": ([gpu("NVIDIA GeForce RTX 4090", "8.9", "575.64")], "gpu12", "driver 575.64: CUDA 12 packages"),
    "B200": ([gpu("NVIDIA B200", "10.0", "580.95")], "gpu", "driver 580.95: CUDA 13 packages"),
    "B300, older": ([gpu("NVIDIA B300", "10.3", "575.57")], "gpu12", "driver 575.57: CUDA 12 packages"),
    "5090": ([gpu("NVIDIA GeForce RTX 5090", "12.0", "610.1")], "gpu", "driver 610.1: CUDA 13 packages"),
    "of tomorrow": (
        [gpu("NVIDIA R100", "13.0", "640.1")],
        "gpu",
        "driver 640.1: CUDA 13 packages; compute capability 13.0 is newer than they are, and gets the code of 12.1",
    ),
    "a second family": (
        [H200, V100],
        "gpu",
        "driver 580.1: CUDA 13 packages; GPU 1 (Tesla V100-SXM2-16GB) needs "
        "`CUDA_VISIBLE_DEVICES=1 make quick CUDA=12`",
    ),
    "a part of MIG first": ([MIG, T4], "gpu", "driver 580.1: CUDA 13 packages"),
    "no GPU": ([], "run", "no GPU with a driver here: packages without CUDA"),
}
#: Drivers and cards that are refused, with the message.
REFUSED = {
    "a driver too old for both": (
        [{"uuid": "GPU-1", "name": "Tesla T4", "mig.mode.current": "[N/A]", "driver_version": "470.82.01"}],
        "",
        "driver 470.82.01 is too old: CUDA 12 needs 525 or newer, CUDA 13 580; install a newer driver",
    ),
    "a card too old": ([gpu("GeForce GTX 1080", "6.1", "580.1")], "", "it is older than Volta (7.0); use another GPU"),
    "a card newer than the driver's CUDA": (
        [gpu("NVIDIA Thor", "11.0", "570.1")],
        "",
        "CUDA 13 needs driver 580 or newer, and this is 570.1, the oldest CUDA for GPU 0 (NVIDIA Thor); install",
    ),
    "forced beyond the card": (
        [V100],
        "13",
        "CUDA 13 does not compile for GPU 0 (Tesla V100-SXM2-16GB), compute capability 7.0; use CUDA=12",
    ),
    "forced beyond the driver": (
        [A100 | {"driver_version": "550.54"}],
        "13",
        "CUDA 13 needs driver 580 or newer, and this is 550.54; use CUDA=12",
    ),
    "no such CUDA": ([H200], "11", "CUDA=11: write CUDA=12 or CUDA=13"),
    "MIG alone": ([MIG], "", "MIG divides every visible GPU"),
}


def choose(folder, cards, *forced, **environment):
    """What make runs, on a machine with these cards and no package: its exit status and what it prints."""
    path = f"{smi(folder / 'bin', cards)}:/usr/bin:/bin"
    command = [sys.executable, "-S", "-m", "tilewise.nvidia.toolkits", *filter(None, forced)]
    run = {"cwd": ROOT, "env": {"PATH": path, "PYTHONPATH": "workflow"} | environment, "capture_output": True}
    return subprocess.run(command, **run, text=True)


@pytest.mark.parametrize("case", CHOSEN)
def test_the_packages_follow_the_driver_and_the_card(tmp_path, case):
    cards, requirements, line = CHOSEN[case]
    done = choose(tmp_path, cards)
    assert (done.stdout, done.stderr) == (f"{requirements}\n", f"{line}\n")
    assert (ROOT / f"requirements/{requirements}.txt").is_file()


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_packages_is_refused_in_a_line_with_the_remedy(tmp_path, case):
    cards, forced, line = REFUSED[case]
    done = choose(tmp_path, cards, forced)
    assert done.returncode == 1 and not done.stdout
    assert line in done.stderr and done.stderr.count("\n") == 1


def test_a_toolkit_is_forced(tmp_path):
    """On a login node without a GPU, on a driver that takes both, and beside cuda-compat, which stands for a newer
    driver."""
    assert choose(tmp_path, [], "12").stdout == "gpu12\n"
    assert choose(tmp_path, [H200], "12").stdout == "gpu12\n"
    (tmp_path / "compat").mkdir()
    (tmp_path / "compat/libcuda.so.1").touch()
    old = [A100 | {"driver_version": "535.1"}]
    done = choose(tmp_path, old, "13", LD_LIBRARY_PATH=f"/usr/lib:{tmp_path}/compat")
    assert (done.stdout, done.stderr) == ("gpu\n", "driver 535.1 with cuda-compat: CUDA 13 packages\n")
    assert choose(tmp_path, old, "13").returncode == 1


@pytest.fixture
def cuda(monkeypatch):
    """A function that makes one toolkit the installed one."""

    def install(major):
        [toolkit] = [each for each in architectures.TOOLKITS if each.major == major]
        monkeypatch.setattr(toolkits, "installed", lambda: toolkit)

    return install


def test_a_card_that_the_installed_packages_cannot_serve_is_refused_before_anything_runs(tmp_path, monkeypatch, cuda):
    monkeypatch.setenv("PATH", str(smi(tmp_path / "bin", [V100])), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cuda(13)
    with pytest.raises(
        UserError, match=r"CUDA 13 does not compile .* 7\.0; `make quick CUDA=12` installs .*/gpu12\.txt"
    ):
        card.describe("tesla-v100-sxm2-16gb")
    cuda(12)
    toolkits.check(gpus.visible()[0])


def test_a_gpu_in_the_config_without_a_driver_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"no GPU is visible here \(nvidia-smi finds none\); is there a GPU, and"):
        card.describe("gpu")


def test_what_the_compiler_cannot_compile_for_has_its_reason(cuda):
    cuda(13)
    assert nvrtc.cannot_compile("7.0").startswith("CUDA 13 does not compile for compute capability 7.0; CUDA 12 does: ")
    cuda(12)
    assert nvrtc.cannot_compile("11.0").startswith("CUDA 12 does not compile for compute capability 11.0; CUDA 13 does")
    assert not nvrtc.cannot_compile("7.0") and not nvrtc.cannot_compile("9.0a")


@pytest.mark.parametrize(
    ("capability", "ring", "wgmma"),
    [
        ("7.5", "lacks TMA (9.0 or later) and setmaxnreg (9.0 or later)", "and wgmma (9.0 alone)"),
        ("9.0", "sm_90a", "sm_90a"),
        ("10.0", "sm_100a", "lacks wgmma (9.0 alone); tcgen05 takes the place of wgmma"),
        ("10.3", "sm_103a", "tcgen05 takes"),
        ("12.0", "sm_120a", "mma.sync takes"),
        ("12.9", "sm_121f", "mma.sync takes"),
        ("13.0", "no toolkit of the study has specific code, as setmaxnreg needs", "lacks wgmma (9.0 alone)"),
    ],
)
def test_a_ring_runs_where_its_instructions_are_and_wgmma_on_hopper_alone(kernels, capability, ring, wgmma):
    for name, words in (("tma_ring", ring), ("warp_specialised", wgmma)):
        why = kernels[name].cannot_run(capability)
        assert words in (why or kernels[name].target(capability))
        assert bool(why) == (not words.startswith("sm_"))


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ("7.0", "sm_70"),
        ("8.9", "sm_89"),
        ("9.0a", "sm_90a"),
        ("10.9", "sm_103"),
        ("12.9", "sm_121"),
        ("13.0", "compute_121"),
    ],
)
def test_an_unknown_capability_gets_the_code_of_the_nearest_older_one(kernels, capability, target):
    assert kernels["tiled"].target(capability) == target
    assert not kernels["tiled"].cannot_run(capability)
