"""Every kernel compiles for every architecture without a GPU; the error of one that does not says where and why."""

import dataclasses
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelscope import cpp
from tilewise import MachineError, UserError
from tilewise.compile import build
from tilewise.measure.journal import Journal
from tilewise.nvidia import nvrtc
from tilewise.study import registry
from tilewise.study.device import Device
from tilewise.study.points import point
from tilewise.study.precision import PRECISIONS
from tilewise.study.sweeps import Reading, expand
from tilewise.traced import traffic

CUDA = [kernel for kernel in registry.load().values() if kernel.kind == "cuda"]
GPU = Device.from_capability("9.0")
EMULATOR = Device("emulator", "emulator", host_compiler="g++")


#: The textbook's are for every GPU; the ladder's have parameters that only the config knows.
ALL_GPUS = [kernel for kernel in CUDA if kernel.path.parent.name == "textbook"]
RUNGS = [kernel for kernel in CUDA if kernel.path.parent.name in ("ladder", "batched")]


def built(kernel, instances, device, folder):
    """What is built of one kernel."""
    return build.build({kernel.name: instances}, {kernel.name: kernel}, device, folder)[kernel.name]


def some_instance(kernel, dtype):
    values = {"block": {"block_x": 16, "block_y": 16}, "tile": {"tile": 16}, "ntb": {"ntb": 3}}
    chosen = {name: value for parameter in kernel.parameters for name, value in values[parameter].items()}
    [instance] = kernel.plan(point("t", kernel.name, dtype, 64, 64, 64, **chosen)).instances
    return instance


@pytest.mark.parametrize("capability", ["7.5", "8.0", "9.0", "12.0"])
@pytest.mark.parametrize("kernel", ALL_GPUS, ids=lambda kernel: kernel.name)
def test_every_kernel_compiles(kernel, capability):
    for dtype in kernel.dtypes:
        cubin, entry = nvrtc.compile_cubin(kernel, some_instance(kernel, dtype), capability)
        assert cubin[:4] == b"\x7fELF"
        assert kernel.name in entry["symbol"]
        assert 0 < entry["registers"] <= 255
        assert entry["spill_bytes"] == 0


@pytest.fixture(scope="module")
def first_points(config, kernels):
    """The first point in the config of each kernel."""
    sweeps = [task for task, entry in config["tasks"].items() if entry.get("method", "sweep") in ("sweep", "batches")]
    points = [at for task in sweeps for at in expand(config, kernels, task, reading=Reading(batches=True))]
    return {at.kernel: at for at in reversed(points)}


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["8.0", "9.0"])
@pytest.mark.parametrize("kernel", RUNGS, ids=lambda kernel: kernel.name)
def test_every_rung_compiles_as_it_is_tuned(kernel, capability, first_points, tmp_path):
    """All launches of its first point in the config, without spills, and of a ragged shape; or not at all if the GPU
    cannot run it.

    The choices are the H200's: where they fill the registers, ptxas may spill a word or two for another GPU.
    """
    at = first_points[kernel.name]
    ragged = dataclasses.replace(at, n=33, p=35, m=70)
    device = Device.from_capability(capability)
    tuned = kernel.plan(at).instances
    made = built(kernel, sorted({*tuned, *kernel.plan(ragged).instances}), device, tmp_path)
    if kernel.cannot_run(capability):
        assert capability == "8.0" and made["unsupported"].startswith("this GPU, of compute capability 8.0, lacks")
        return
    for name, entry in made["instances"].items():
        assert "error" not in entry and 0 < entry["registers"] <= 255, (name, entry)
        assert name not in tuned or entry["spill_bytes"] <= (8 if capability == "8.0" else 0), name


def test_static_shared_memory_is_what_the_tiles_need(kernels):
    for dtype in kernels["tiled"].dtypes:
        _, entry = nvrtc.compile_cubin(kernels["tiled"], some_instance(kernels["tiled"], dtype), "9.0")
        assert entry["shared_bytes"] == 2 * 16 * 16 * PRECISIONS[dtype].itemsize


def test_the_hash_follows_source_instance_and_target(kernels, tmp_path):
    tiled = kernels["tiled"]

    def sha(kernel, instance="tiled<float, 16>", capability="9.0"):
        device = Device.from_capability(capability)
        [entry] = built(kernel, [instance], device, tmp_path / "built")["instances"].values()
        return entry["sha256"]

    def edited(name, old, new):
        assert old in tiled.path.read_text()
        (tmp_path / name).write_text(tiled.path.read_text().replace(old, new, 1))
        return dataclasses.replace(tiled, folder=tmp_path, source=name)

    comment = tiled.path.read_text().splitlines()[0]
    assert comment.startswith("//")
    assert sha(tiled) == sha(tiled) == sha(edited("words.cu", comment, "// In other words."))
    others = {sha(edited("code.cu", "T sum = 0;", "T sum = 1;")), sha(edited("lines.cu", comment, "//\n//"))}
    others |= {sha(tiled, instance="tiled<float, 8>"), sha(tiled, capability="8.0")}
    assert len(others | {sha(tiled)}) == 5


def test_a_kernel_that_does_not_compile_names_file_and_line(kernels, tmp_path):
    text = kernels["naive"].path.read_text().replace("T sum = 0;", "T sum = nothing;")
    (tmp_path / "naive.cu").write_text(text)
    line = next(i for i, words in enumerate(text.splitlines(), 1) if "nothing" in words)
    broken = dataclasses.replace(kernels["naive"], folder=tmp_path, source="naive.cu")
    for device, words in ((GPU, rf"naive\.cu.*{line}.*nothing"), (EMULATOR, rf"naive\.cu:{line}: .*nothing")):
        made = built(broken, ["naive<float>", "naive<double>"], device, tmp_path / device.backend)
        for entry in made["instances"].values():
            assert re.search(words, entry["error"])


REFUSALS = {
    "a full disk": (
        "echo 'fatal error: x.o: No space left on device' >&2; exit 1",
        "No space left on",
    ),
    "a full memory": ("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", "Killed signal"),
    "a kill": ("kill -9 $$", "was ended by SIGKILL, perhaps for want of memory"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("name", ["naive", "ijk"])
def test_an_error_of_the_machine_is_none_of_the_kernel(kernels, tmp_path, monkeypatch, name, refusal):
    """It ends the task with its remedy; as a compile error it would stay when there is room again."""
    command, says = REFUSALS[refusal]
    compiler = tmp_path / "g++"
    refuses = f'#!/bin/sh\ncase "$*" in *--version*) echo g++ 14;; *) {command};; esac\n'
    compiler.write_text(refuses)
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cpp.cache_folder.cache_clear()
    try:
        with monkeypatch.context() as full:
            full.setenv("CXX", str(compiler))
            with pytest.raises(MachineError, match=says):
                built(kernels[name], [f"{name}<float>", f"{name}<double>"], EMULATOR, tmp_path)
            if name == "naive":
                at = point("trace", "naive", "float", 5, 6, 7, block_x=8, block_y=8)
                with ThreadPoolExecutor(1) as pool, Journal(tmp_path / "t.jsonl") as journal:
                    with pytest.raises(MachineError, match=says):
                        traffic.trace_points([at], [], kernels, tmp_path, 60, pool, journal)
                    assert not journal.rows
        if (name, refusal) == ("ijk", "a full disk"):
            assert "file" in built(kernels[name], [f"{name}<float>"], EMULATOR, tmp_path)["instances"][f"{name}<float>"]
    finally:
        cpp.cache_folder.cache_clear()


@pytest.mark.parametrize("device", [GPU, EMULATOR], ids=["gpu", "emulator"])
def test_an_instance_that_does_not_compile_leaves_the_others(kernels, tmp_path, device):
    instances = ["tiled<float, 16>", "tiled<float, 128>", "tiled<float, 8>"]
    made = built(kernels["tiled"], instances, device, tmp_path)
    assert [("error" in made["instances"][name]) for name in instances] == [False, True, False]
    for name in instances[::2]:
        assert Path(made["instances"][name]["file"]).is_file()


def test_what_is_built_is_not_built_again(kernels, tmp_path):
    instances = ["tiled<float, 16>", "tiled<float, 8>"]
    first = built(kernels["tiled"], instances[:1], GPU, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")}
    second = built(kernels["tiled"], instances, GPU, tmp_path)
    assert second["instances"][instances[0]] == first["instances"][instances[0]]
    assert {path: path.stat().st_mtime_ns for path in times} == times and len(list(tmp_path.rglob("*.cubin"))) == 2


def test_a_build_that_was_cut_short_is_made_good(kernels, tmp_path):
    first = built(kernels["tiled"], ["tiled<float, 16>"], GPU, tmp_path)
    [record] = tmp_path.rglob("tiled_float_16-*.json")
    record.write_text(record.read_text()[:20])
    again = built(kernels["tiled"], ["tiled<float, 16>"], GPU, tmp_path)
    for each in (first, again):
        assert each["instances"]["tiled<float, 16>"].pop("compile_s") > 0
    assert again == first


def test_a_missing_compiler_is_named_with_the_remedy(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match=r"no-such-compiler.*install"):
        built(kernels["kij"], ["kij<float>"], GPU, tmp_path)


def test_points_have_instances_that_the_build_knows(config, kernels):
    [instance] = kernels["tiled"].plan(point("t", "tiled", "double", 1, 1, 1, tile=8)).instances
    assert build.symbol_of(instance) == "tiled_double_8"
