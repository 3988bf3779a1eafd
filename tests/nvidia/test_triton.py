"""Triton's kernels: compiled ahead of time if the wheel is there, rows that say so if it is not."""

import importlib.metadata
import sys
import types

import pytest
from builders import KERNELS, work_of

from tilewise import UserError
from tilewise.compile import build
from tilewise.nvidia.languages import COMPILERS
from tilewise.study.device import Device
from tilewise.study.kernel import Kind
from tilewise.study.points import point

OURS = [kernel for kernel in KERNELS.values() if kernel.source == "languages/triton/matmul.py"]
TRITON = COMPILERS[Kind.TRITON]
GPU = Device(
    "h200",
    "gpu",
    gpu={"compute_capability": "9.0", "name": "H200", "driver": "580", "sms": 132},
    versions={"triton": "3.9.0"},
    limits={"warp_size": 32},
)
CHOICE = {"tile_n": 64, "tile_m": 128, "tile_k": 32, "band": 8, "num_warps": 4, "num_stages": 3}


def at(name="triton", dtype="float", n=256, p=128, m=512):
    return point("t", name, dtype, n, p, m, **CHOICE)


def test_an_instance_says_what_triton_needs_to_know():
    assert KERNELS["triton"].plan(at()).instances == ("matmul<float, 64, 128, 32, 8, ieee, 4, 3, true>",)
    assert KERNELS["triton"].plan(at(m=510)).instances == ("matmul<float, 64, 128, 32, 8, ieee, 4, 3, false>",)
    assert KERNELS["triton_tf32x3"].plan(at("triton_tf32x3")).instances[0].split(", ")[5] == "tf32x3"
    [launch] = KERNELS["triton"].plan(at()).launches
    assert launch.block == (128, 1, 1) and launch.grid == (16, 1, 1)
    assert [argument.value for argument in launch.arguments[3:]] == [256, 128, 512, 0, 0]


def test_without_the_wheel_the_rows_say_so(monkeypatch, config, tmp_path):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    [job] = work_of([at()], KERNELS, GPU, config, tmp_path).jobs()
    assert job.row["status"] == "unsupported"
    assert "triton is missing: `pip install -r requirements/triton.txt`" in job.row["message"]


def test_on_the_emulator_the_rows_say_so(device, config, tmp_path):
    [job] = work_of([at()], KERNELS, device, config, tmp_path).jobs()
    assert job.row["status"] == "unsupported" and job.row["message"] == "not emulated: the emulator runs CUDA C++"


@pytest.fixture
def played(monkeypatch):
    """A package `triton` that is played: what its compiler is asked comes back as a list."""
    asked = []

    class Function:
        def is_gluon(self):
            return False

        def __init__(self, arg_names, fixed):
            self.__name__, self.arg_names = "matmul", arg_names
            self.params = [types.SimpleNamespace(name=n, is_constexpr=n in fixed) for n in arg_names]

    def jit(function):
        names = list(function.__annotations__)
        every = list(function.__code__.co_varnames[: function.__code__.co_argcount])
        return Function(every, names)

    def compiled(source, target, options):
        asked.append((source, target, options))
        if options["num_stages"] > 9:
            raise RuntimeError("first\nout of resource: shared memory")
        facts = {"name": "matmul", "shared": 98304, "global_scratch_size": 0, "profile_scratch_size": 0, "num_ctas": 1}
        return types.SimpleNamespace(metadata=types.SimpleNamespace(**facts), asm={"cubin": b"\x7fELF"})

    language = types.ModuleType("triton.language")
    language.constexpr = "constexpr"
    modules = {name: types.ModuleType(name) for name in ("triton", "triton.backends", "triton.backends.compiler")}
    modules |= {name: types.ModuleType(name) for name in ("triton.experimental", "triton.experimental.gluon")}
    modules |= {"triton.compiler": types.ModuleType("triton.compiler"), "triton.language": language}
    modules["triton"].jit, modules["triton"].compile, modules["triton"].language = jit, compiled, language
    modules["triton"].knobs = types.SimpleNamespace(cache=types.SimpleNamespace(dir="before"))
    modules["triton.backends.compiler"].GPUTarget = lambda *given: types.SimpleNamespace(arch=given[1], given=given)
    modules["triton.compiler"].ASTSource = lambda *given: given
    modules["triton.experimental.gluon"].GluonASTSource = None
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.9.0")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return asked


@pytest.mark.parametrize("aligned", [True, False])
def test_what_triton_is_asked(played, config, tmp_path, aligned):
    where = at(m=512 if aligned else 510)
    [instance] = KERNELS["triton"].plan(where).instances
    TRITON.compile_cubin(KERNELS["triton"], instance, "9.0")
    [((function, signature, constants, attributes), target, options)] = played
    assert list(signature) == function.arg_names and signature["A"] == "*fp32" and signature["p"] == "i32"
    named = {function.arg_names[place]: value for (place,), value in constants.items()}
    assert named == {"tile_n": 64, "tile_m": 128, "tile_k": 32, "band": 8, "precision": "ieee"}
    divisible = [function.arg_names[place] for (place,) in attributes]
    assert divisible == (["A", "B", "C", "n", "p", "m"] if aligned else ["A", "B", "C"])
    assert target.given == ("cuda", 90, 32) and options["num_warps"] == 4 and options["num_stages"] == 3
    assert sys.modules["triton"].knobs.cache.dir == "before", "its cache is left alone"
    [job] = work_of([where], KERNELS, GPU, config, tmp_path).jobs()
    [launch] = job.launches
    assert launch.dynamic_shared_bytes == 98304, "which only the compiler knows"
    assert list(job.files.values()) == [
        (str(next((tmp_path / "build/triton").glob(f"{build.symbol_of(launch.instance)}-*.cubin"))), "matmul")
    ]


def test_what_does_not_compile_says_why(played):
    instance = "matmul<float, 64, 128, 32, 8, ieee, 4, 10, true>"
    with pytest.raises(UserError, match=r"matmul.py: .* does not compile for sm_90: out of resource: shared memory"):
        TRITON.compile_cubin(KERNELS["triton"], instance, "9.0")
    with pytest.raises(UserError, match=r"takes 6 arguments and 5 constants .*; the entry gives 6 and 4, with 2 times"):
        TRITON.compile_cubin(KERNELS["triton"], "matmul<float, 64, 128, 32, 8, 4, 3, true>", "9.0")


@pytest.mark.parametrize("kernel", OURS, ids=lambda kernel: kernel.name)
def test_every_type_really_compiles(kernel):
    pytest.importorskip("triton")
    for dtype in kernel.dtypes:
        for m in (512, 510):
            cubin, entry = TRITON.compile_cubin(kernel, kernel.plan(at(kernel.name, dtype, m=m)).instances[0], "9.0")
            assert cubin[:4] == b"\x7fELF" and entry["symbol"] == "matmul" and entry["dynamic_shared_bytes"] > 0


def test_the_tuned_space_fits_a_multiprocessor(config):
    """Registers and shared memory are the compiler's affair; threads and the order of tiles are ours."""
    from tilewise.study.sweeps import expand

    points = expand(config, KERNELS, "languages")
    ours = [p for p in points if KERNELS[p.kernel] in OURS]
    assert len({(p.kernel, p.dtype) for p in ours}) == 4 and len(ours) == 16
    assert all(launch.threads <= 1024 for p in ours for launch in KERNELS[p.kernel].plan(p).launches)
