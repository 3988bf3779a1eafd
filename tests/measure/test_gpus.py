"""Which GPUs the study sees, takes and names its platform after, with a stand-in for nvidia-smi on the PATH."""

import os

import pytest
from cards import A100, L4, MIG, T4, smi
from clones import snakemake

from tilewise import UserError
from tilewise.measure import lease, probe
from tilewise.nvidia import gpus
from tilewise.rules import Study
from tilewise.study.device import Device


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that makes this a machine with some GPUs and a CUDA_VISIBLE_DEVICES, None for none."""

    def made(cards, shown=None):
        monkeypatch.setenv("PATH", str(smi(tmp_path / "bin", cards)), prepend=os.pathsep)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if shown is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)

    return made


@pytest.mark.parametrize(
    ("shown", "indexes"),
    [
        (None, [0, 1, 2]),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,0", [0]),
        ("GPU-bb22", [1]),
        ("GPU-bb2200,GPU-aa", [1, 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("3", []),
        ("1,-1,0", [1]),
        ("1,7,0", [1]),
        ("bb22", []),
    ],
)
def test_only_the_gpus_that_cuda_would_show_are_seen_and_in_its_order(machine, shown, indexes):
    machine([A100, T4, A100 | {"uuid": "GPU-cc3300"}], shown)
    assert [gpu.index for gpu in gpus.visible()] == indexes


@pytest.mark.parametrize("shown", ["", "-1", "NoDevFiles"])
def test_a_machine_whose_gpus_are_hidden_is_an_emulator_and_says_so(machine, config, shown):
    machine([A100, T4], shown)
    study = Study(config)
    assert study.platforms == {"emulator": {"backend": "emulator"}} and study.gpus == 1
    assert study.remark == (
        f"CUDA_VISIBLE_DEVICES is '{shown}' and hides GPU 0 (NVIDIA A100-SXM4-40GB), GPU 1 (Tesla T4): kernels run on "
        "the CPU emulator"
    )


def test_a_machine_without_a_driver_is_an_emulator_without_a_remark(monkeypatch, tmp_path, config):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.this_machine()[:4] == ("emulator", "emulator", 0, "")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert gpus.this_machine()[:4] == ("emulator", "emulator", 0, "")


@pytest.mark.parametrize(
    ("shown", "name", "capability", "count"),
    [
        (None, "nvidia-a100-sxm4-40gb", "8.0", 2),
        ("1", "tesla-t4", "7.5", 1),
        ("1,0", "tesla-t4", "7.5", 1),
        ("2", "nvidia-a100-sxm4-40gb", "8.0", 1),
    ],
)
def test_a_platform_is_named_after_the_gpu_that_measures(machine, config, shown, name, capability, count):
    machine([A100, T4, A100 | {"uuid": "GPU-cc3300"}], shown)
    study = Study(config)
    assert study.platforms == {name: {"backend": "gpu", "capability": capability}} and study.gpus == count


def test_a_gpu_with_little_shared_memory_takes_choices_that_fit(machine, config, kernels):
    """On this machine by nvidia-smi, on a cluster by the config; another one takes those of the first GPU."""
    machine([A100])
    here = Study(config)
    platforms = {"a": {"backend": "gpu", "capability": "8.9"}, "b": {"backend": "gpu"}}
    there = Study(config | {"platforms": platforms})

    def most_shared(study, platform):
        points = [point for point in study.timed_on(platform, "sweep") if point.kernel == "mma_sync"]
        return max(launch.dynamic_shared_bytes for p in points for launch in kernels["mma_sync"].plan(p).launches)

    assert most_shared(here, "nvidia-a100-sxm4-40gb") == most_shared(there, "a") == 98304
    assert most_shared(there, "b") == 196608


@pytest.mark.slow
def test_a_run_says_which_cards_it_leaves_out_and_how_to_measure_them(machine, clone):
    machine([A100, T4, A100 | {"uuid": "GPU-cc3300"}, L4, MIG])
    left_out = "this run measures NVIDIA A100-SXM4-40GB; a platform has GPUs of one model, so GPU 1 (Tesla T4), GPU 3 "
    left_out += "(NVIDIA L4), GPU 4 (NVIDIA A100-SXM4-40GB, divided by MIG) are left out; to measure those, set "
    left_out += "CUDA_VISIBLE_DEVICES=1 or CUDA_VISIBLE_DEVICES=3\n"
    assert left_out in snakemake(clone, "--dry-run", "task3", CUDA_VISIBLE_DEVICES="0,1,2,3,4").stderr
    machine([A100, T4], "0")
    assert gpus.this_machine().remark == "", "it was left out by hand"


@pytest.mark.parametrize(
    ("cards", "shown", "message"),
    [
        ([A100], "MIG-5d2a", "CUDA_VISIBLE_DEVICES: MIG-5d2a is a MIG instance, and the study measures whole GPUs"),
        ([MIG], None, "GPU 0 (NVIDIA A100-SXM4-40GB, divided by MIG): MIG divides every visible GPU"),
        ([T4, A100, MIG], "2", "GPU 2 (NVIDIA A100-SXM4-40GB, divided by MIG): MIG divides every visible GPU"),
        (
            [A100, A100 | {"uuid": "GPU-aa2200"}],
            "GPU-aa",
            "CUDA_VISIBLE_DEVICES: GPU-aa is the beginning of GPU-aa1100 and of GPU-aa2200; give more digits",
        ),
    ],
)
def test_what_the_study_cannot_measure_is_refused_with_the_remedy(machine, config, cards, shown, message):
    machine(cards, shown)
    with pytest.raises(UserError) as refused:
        Study(config)
    assert str(refused.value).startswith(message) and "\n" not in str(refused.value)
    assert "give more digits" in message or "turn MIG off" in str(refused.value)


@pytest.mark.slow
def test_a_refusal_is_one_line_of_the_run(machine, clone):
    machine([MIG])
    run = snakemake(clone, "--dry-run", "task3", CUDA_VISIBLE_DEVICES="0")
    assert run.returncode == 1 and "Traceback" not in run.stdout + run.stderr
    assert [line for line in run.stderr.splitlines() if "MIG divides every visible GPU" in line]


def described(name, platform="here"):
    return Device(platform, "gpu", gpu={"name": name, "driver": "580.1"}, cpu=probe.processor())


@pytest.mark.parametrize(("name", "uuid"), [("NVIDIA A100-SXM4-40GB", "GPU-aa1100"), ("Tesla T4", "GPU-bb2200")])
def test_a_lease_takes_only_cards_of_the_platforms_model(machine, tmp_path, name, uuid):
    machine([A100, T4, MIG])
    with lease.one_gpu(described(name), tmp_path) as taken:
        assert taken == uuid == os.environ["CUDA_VISIBLE_DEVICES"]
        second = lease.one_gpu(described(name), tmp_path, wait_s=0.1)
        with pytest.raises(UserError, match=f"other jobs use every {name} here"), second:
            pass
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_a_lease_takes_the_cards_in_the_order_of_the_environment(machine, tmp_path):
    machine([A100, T4, A100 | {"uuid": "GPU-cc3300"}], "2,1,0")
    with lease.one_gpu(described("NVIDIA A100-SXM4-40GB"), tmp_path) as taken:
        assert taken == "GPU-cc3300"


def test_a_platform_whose_card_is_hidden_is_not_measured_on_another(machine, tmp_path):
    machine([A100, T4], "1")
    device = described("NVIDIA A100-SXM4-40GB")
    with pytest.raises(UserError, match=r"NVIDIA A100.*, driver 580.1\) than .*\(.*Tesla T4, driver 580.1\)"):
        probe.check_here(device)
    refused = pytest.raises(UserError, match=r"no such GPU is visible here \(CUDA_VISIBLE_DEVICES is 1\); make one")
    with refused, lease.one_gpu(device, tmp_path):
        pass
    probe.check_here(described("Tesla T4"))


def test_two_models_are_two_platforms_if_the_config_names_them(machine):
    machine([A100, T4, A100 | {"uuid": "GPU-cc3300"}])
    assert [gpu.uuid for gpu in gpus.of_platform("tesla-t4")] == ["GPU-bb2200"]
    assert [gpu.uuid for gpu in gpus.of_platform("nvidia-a100-sxm4-40gb")] == ["GPU-aa1100", "GPU-cc3300"]
    assert [gpu.uuid for gpu in gpus.of_platform("gpu")] == ["GPU-aa1100", "GPU-cc3300"], "those of the first model"


def test_a_platform_of_a_gpu_where_none_is_visible_says_why(machine):
    machine([A100], "-1")
    with pytest.raises(UserError, match=r"no GPU is visible here \(CUDA_VISIBLE_DEVICES is '-1'\); is there"):
        gpus.of_platform("gpu")
    machine([])
    with pytest.raises(UserError, match=r"no GPU is visible here \(nvidia-smi finds none\)"):
        gpus.of_platform("gpu")


@pytest.mark.parametrize("before", [None, "1,0"])
def test_a_block_sees_one_gpu_and_the_environment_is_as_before(machine, monkeypatch, before):
    machine([A100, T4], before)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    with gpus.show_only("GPU-bb2200"):
        assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]) == ("GPU-bb2200", "PCI_BUS_ID")
        assert [gpu.name for gpu in gpus.visible()] == ["Tesla T4"]
    assert (os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["CUDA_DEVICE_ORDER"]) == (before, "FASTEST_FIRST")
