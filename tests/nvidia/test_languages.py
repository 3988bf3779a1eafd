"""The languages besides CUDA C++: what compiles them, what their rows say, and their kernels in their interpreters."""

import dataclasses
import importlib.metadata
import itertools
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from builders import KERNELS, work_of

from kernelscope.launch import TensorMap
from tilewise import KERNELS as FOLDER
from tilewise import ROOT
from tilewise.compile.build import build, unsupported
from tilewise.measure.probe import PACKAGES
from tilewise.nvidia.gpus import VISIBLE
from tilewise.nvidia.languages import COMPILERS
from tilewise.study import verify
from tilewise.study.device import Device
from tilewise.study.kernel import LANGUAGES, Kind
from tilewise.study.points import Point, point
from tilewise.study.sweeps import expand

OURS = [kernel for kernel in KERNELS.values() if kernel.kind in LANGUAGES]
GPU = Device("h200", "gpu", gpu={"compute_capability": "9.0", "name": "H200", "driver": "580", "sms": 132})
#: Compilers that take minutes for one kernel; ours of Warp without tiles takes seconds.
SLOW = {"warp_tiled", "warp_tiled_tf32"}


def absent(name):
    raise importlib.metadata.PackageNotFoundError(name)


def test_every_other_kind_of_source_has_a_compiler():
    assert set(COMPILERS) == set(LANGUAGES) == set(Kind) - {Kind.CUDA, Kind.HOST, Kind.LIBRARY}


def test_a_device_has_the_versions_of_the_languages():
    assert {language.package for language in LANGUAGES.values()} <= set(PACKAGES)


def test_the_extra_has_every_package_of_the_languages():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {entry.partition("==")[0].partition("[")[0] for entry in (*extras["languages"], *extras["triton"])}
    assert {name for compiler in COMPILERS.values() for name in compiler.packages} <= names


def test_a_binary_is_of_one_version_of_its_compiler(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", {"triton": "3.9.0"}.__getitem__)
    assert COMPILERS[Kind.TRITON].version == "triton 3.9.0"


@pytest.mark.parametrize("kind", LANGUAGES)
def test_a_language_that_is_absent_costs_rows_with_the_line_that_installs_it(monkeypatch, kind):
    monkeypatch.setattr(importlib.metadata, "version", absent)
    kernel = next(kernel for kernel in OURS if kernel.kind == kind)
    said = unsupported(kernel, GPU)
    assert said.startswith(f"the Python package {LANGUAGES[kind].package} is missing: `pip install")
    assert "\n" not in said


@pytest.mark.parametrize("kind", LANGUAGES)
def test_a_compiler_that_cannot_be_imported_costs_rows_of_one_line(monkeypatch, config, tmp_path, kind):
    """A package of a version that does not fit is there, but its import fails."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1")
    monkeypatch.setitem(sys.modules, COMPILERS[kind].module, None)
    at = next(each for each in points(config) if KERNELS[each.kernel].kind == kind)
    [job] = work_of([at], KERNELS, GPU, config, tmp_path).jobs()
    assert job.row["status"] == "compile_error" and "\n" not in job.row["message"]
    assert f"{LANGUAGES[kind].name} cannot be imported" in job.row["message"]


def test_a_compiler_sees_no_gpu_and_runs_in_a_process_of_its_own(monkeypatch, tmp_path):
    """It could take memory of a GPU on which another job measures, and keep it."""

    def tell(*_):
        return f"{os.getpid()} {os.environ[VISIBLE]}".encode(), {"symbol": "told"}

    (tmp_path / "own.py").write_text("naive = None")
    kernel = dataclasses.replace(KERNELS["warp_naive"], folder=tmp_path, source="own.py")
    monkeypatch.setenv(VISIBLE, "0,1")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1")
    monkeypatch.setitem(COMPILERS, kernel.kind, dataclasses.replace(COMPILERS[kernel.kind], module="os", compile=tell))
    built = build({kernel.name: ["naive<float>"]}, {kernel.name: kernel}, GPU, tmp_path / "build")
    process, _, seen = Path(built[kernel.name]["instances"]["naive<float>"]["file"]).read_text().partition(" ")
    assert int(process) != os.getpid() and seen == ""
    assert os.environ[VISIBLE] == "0,1"


def points(config):
    return [each for each in expand(config, KERNELS, "languages") if KERNELS[each.kernel] in OURS]


def test_the_task_has_every_language_at_every_shape(config):
    shapes = {(each.kernel, each.n) for each in points(config)}
    at = {
        kind: {n for name, n in shapes if KERNELS[name].kind == kind and not name.startswith("gluon")}
        for kind in LANGUAGES
    }
    assert all(found == {1024, 1100, 4096, 8192} for kind, found in at.items() if kind != Kind.GLUON)
    assert {kernel.name for kernel in OURS} == {name for name, _ in shapes}


@pytest.mark.parametrize("kernel", OURS, ids=lambda kernel: kernel.name)
def test_every_kernel_of_the_task_really_compiles(kernel, config):
    if missing := COMPILERS[kernel.kind].missing():
        pytest.skip(missing)
    if kernel.name in SLOW:
        pytest.skip("Warp takes minutes to compile its tiles")
    chosen = {(each.dtype, each.parameters): each for each in points(config) if each.kernel == kernel.name}
    for at in chosen.values():
        for launch in kernel.plan(at).launches:
            cubin, entry = COMPILERS[kernel.kind].compile_cubin(kernel, launch.instance, "9.0")
            sizes = parameter_bytes(cubin, entry["symbol"])
            assert sizes == [size_of(argument) for argument in launch.arguments], launch.instance
            assert entry.get("dynamic_shared_bytes", 0) <= 232448 - 1024


def size_of(argument):
    """The bytes of an argument as the launcher passes it."""
    if isinstance(argument, TensorMap):
        return 128  # a CUtensorMap
    if hasattr(argument, "data"):
        return len(argument.data)
    return np.dtype(argument.packed()).itemsize if hasattr(argument, "packed") else 8


def parameter_bytes(cubin, symbol):
    """The sizes of a function's parameters, from the attributes of a cubin that say them."""
    import io
    import struct

    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(cubin))
    section = elf.get_section_by_name(f".nv.info.{symbol}") or elf.get_section_by_name(f".info.{symbol}")
    data, place, found = section.data(), 0, {}
    while place < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, place)
        place += 4
        if form == 4:  # which alone is followed by bytes
            if attribute == 0x17:  # of a kernel's parameter: number, offset, flags and size
                _, number, _, flags = struct.unpack_from("<IHHI", data, place)
                found[number] = flags >> 18
            if attribute == 0x45:  # the same, as cuTile's compiler has it
                _, _, number, wide = struct.unpack_from("<IHHI", data, place)
                found[number] = wide & 0xFFFF
            place += size
    return [found[number] for number in sorted(found)]


#: What runs a kernel's file in a separate process, because an interpreter is chosen before its package is imported;
#: it reads A and B and writes C.
RUN = """
import importlib.util, sys
import numpy as np
file, folder, *words = sys.argv[1:]
spec = importlib.util.spec_from_file_location("kernel", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
A, B = (np.load(f"{folder}/{name}.npy") for name in "AB")
(n, p), m = A.shape, B.shape[1]
C = np.full((n, m), np.nan, A.dtype)
"""
NUMBA = """
import numba
from numba import cuda
name, *numbers = words
kernel = cuda.jit(getattr(module, name)(getattr(numba, str(A.dtype)), *map(int, numbers)))
side = int(numbers[0]) if numbers else 8
kernel[(-(-m // side), -(-n // side)), (side, side)](A, B, C)
"""
WARP = """
import warp
name, *numbers = words
type = getattr(warp, str(A.dtype))
kernel = getattr(module, name)(type, type, *map(int, numbers))
given = [warp.array(each, dtype=type, device="cpu") for each in (A, B, C)]
if numbers:
    dim = [-(-n // int(numbers[0])), -(-m // int(numbers[1]))]
    warp.launch_tiled(kernel, dim=dim, inputs=given, block_dim=1, device="cpu")
else:
    warp.launch(kernel, dim=(n, m), inputs=given, device="cpu")
C = given[2].numpy()
"""
TRITON = """
class Array:
    # NumPy's array with what Triton's interpreter asks of a tensor, whose memory it reads and writes.
    device = "cpu"

    def __init__(self, held):
        self.held, self.dtype = held, {"float32": "fp32", "float64": "fp64"}[str(held.dtype)]

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return self.held.ctypes.data

    def cpu(self):
        return self

    def new_empty(self, *given, **named):
        return Array(self.held)

    def set_(self, *given):
        return self

    def copy_(self, other):
        return self

    def storage_offset(self):
        return 0

    def size(self):
        return self.held.shape

    def stride(self):
        return [step // self.held.itemsize for step in self.held.strides]

turned = np.full((m, p), np.nan, A.dtype)
if "turned" in words:
    module.turn[(-(-p // 16), -(-m // 16))](Array(B), Array(turned), p, m, 16)
right = turned if "turned" in words else B
given = [Array(A), Array(right), Array(C), n, p, m, 16, 16, 16, 2]
if words[0] == "matmul":
    module.matmul[(-(-n // 16) * -(-m // 16),)](*given, "ieee")
else:
    module.persistent[(3,)](*given, int("turned" in words))
"""
SAVE = """
np.save(f"{folder}/C.npy", C)
"""


def interpreted(kernel, run, folder, dtype, shape, *words, **environment):
    """What verification says of the product of a kernel's file in its interpreter."""
    if missing := COMPILERS[kernel.kind].missing():
        pytest.skip(missing)
    A, B = verify.operands(np, dtype, *shape, 524)
    np.save(folder / "A.npy", A)
    np.save(folder / "B.npy", B)
    given = [str(kernel.path), str(folder), *words]
    done = subprocess.run(
        [sys.executable, "-c", RUN + run + SAVE, *given], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return verify.check(np.load(folder / "C.npy"), *verify.reference(A, B, dtype), dtype, shape[1])


SHAPES = [(17, 9, 21), (16, 16, 32), (1, 5, 1)]


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "words"),
    [
        (name, dtype, shape, words)
        for (name, words), dtype, shape in itertools.product(
            [("numba_naive", ["naive"]), ("numba_tiled", ["tiled", "8"])], ("float", "double"), SHAPES
        )
    ],
)
def test_numbas_kernels_are_right_in_its_simulator(tmp_path, name, dtype, shape, words):
    assert interpreted(KERNELS[name], NUMBA, tmp_path, dtype, shape, *words, NUMBA_ENABLE_CUDASIM="1").ok


@pytest.mark.parametrize(
    ("name", "dtype", "words"),
    [
        ("triton", "float", ["matmul"]),
        ("triton_persistent", "double", ["persistent"]),
        ("triton_persistent", "double", ["persistent", "turned"]),
        ("triton_persistent_tf32", "float", ["persistent", "turned"]),
    ],
)
@pytest.mark.parametrize("shape", [(37, 20, 44), (1, 4, 4)])
def test_tritons_kernels_are_right_in_its_interpreter(tmp_path, name, dtype, words, shape):
    assert interpreted(KERNELS[name], TRITON, tmp_path, dtype, shape, *words, TRITON_INTERPRET="1").ok


@pytest.mark.parametrize(
    ("name", "dtype", "words"),
    [
        ("warp_naive", "float", ["naive"]),
        ("warp_naive", "double", ["naive"]),
        ("warp_tiled", "float", ["tiled", "8", "8", "4", "0"]),
    ],
)
def test_warps_kernels_are_right_on_the_cpu(tmp_path, name, dtype, words):
    assert interpreted(KERNELS[name], WARP, tmp_path, dtype, (17, 9, 21), *words).ok


def test_a_kernel_in_another_language_says_which_document_it_follows():
    for kernel in OURS:
        head = kernel.path.read_text().split('"""')[1]
        assert "After" in head and kernel.path.is_relative_to(FOLDER / "languages"), kernel.path


def test_what_numba_warp_and_cute_are_called_with():
    at = point("t", "numba_naive", "double", 33, 35, 70, block_x=8, block_y=4)
    [launch] = KERNELS["numba_naive"].plan(at).launches
    values = [getattr(argument, "value", argument) for argument in launch.arguments[:9]]
    assert values[:4] == [0, 0, 33 * 35, 8] and values[4].name == "A" and values[5:] == [33, 35, 280, 8]
    [launch] = KERNELS["warp_naive"].plan(Point("t", "warp_naive", "float", 33, 35, 70)).launches
    bounds, a, *_ = launch.arguments
    assert np.frombuffer(bounds.data, np.uint64).tolist() == [33 + (70 << 32), 33 * 70, 1]
    assert len(a.data) == 56 and a.pointers == ((0, "A"),)
    assert np.frombuffer(a.data, np.int32)[4:].tolist() == [33, 35, 0, 0, 140, 4, 0, 0, 2, 0]
    at = point("t", "cute_naive", "float", 33, 35, 70, block_x=32, block_y=8)
    [launch] = KERNELS["cute_naive"].plan(at).launches
    assert np.frombuffer(launch.arguments[1].data, np.int32)[2:].tolist() == [35, 70, 70, 0]
