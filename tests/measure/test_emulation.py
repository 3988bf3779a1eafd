"""cuBLAS's emulation of doubles, with a library that is played."""

import ctypes
import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from builders import Array

NAME = "tilewise.nvidia.emulation"


class Failure(Exception):
    pass


@pytest.fixture
def played(monkeypatch):
    """The module, and what is played: `calls` so far, `bits` that were kept, `missing` and `failing` functions."""
    state = SimpleNamespace(calls=[], bits=55, missing="", failing="")

    class Library:
        def __getattr__(self, name):
            if name == state.missing:
                raise AttributeError(name)
            return lambda *arguments: called(name, *arguments)

    def called(name, *arguments):
        state.calls.append((name, *(each.value if hasattr(each, "value") else each for each in arguments)))
        if name.endswith("BitCountPointer"):
            state.kept = arguments[1].value
        if name == "cublasGemmEx" and state.bits is not None:
            ctypes.c_int32.from_address(state.kept).value = state.bits
        return 15 if name == state.failing else 0

    cublas = SimpleNamespace(getVersion=lambda handle: 130100, CUBLASError=Failure)
    cuda = SimpleNamespace(
        cublas=cublas,
        device=SimpleNamespace(get_cublas_handle=lambda: 1),
        runtime=SimpleNamespace(deviceSynchronize=lambda: None),
    )
    cupy = SimpleNamespace(cuda=cuda, empty=lambda *made: np.empty(*made).view(Array), uint8=np.uint8, int32=np.int32)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library() if name == "libcublas.so.13" else None)
    yield importlib.import_module(NAME), state
    sys.modules.pop(NAME, None)


def product(module):
    A, B, C = (np.empty(shape).view(Array) for shape in ((3, 4), (4, 5), (3, 5)))
    return module.gemm(3, 4, 5, A, B, C), [each.data.ptr for each in (A, B, C)]


def test_each_product_has_its_workspace_on_its_stream(played):
    module, state = played
    multiply, (a, b, c) = product(module)
    asked = "EmulationStrategy FixedPointEmulationMantissaControl FixedPointEmulationMaxMantissaBitCount"
    assert [name for name, *_ in state.calls[1:4]] == [f"cublasSet{name}" for name in asked.split()]
    assert [call[2:] for call in state.calls[1:4]] == [(2,), (1,), (55,)], "eager, a fixed number of bits: 55"
    for stream in (77, 0):
        state.calls.clear()
        multiply(stream)
        (first, _, on), (second, _, space, size), (third, *how) = state.calls
        assert (first, on or 0) == ("cublasSetStream_v2", stream)
        assert second == "cublasSetWorkspace_v2" and space and size == module.workspace_bytes(3, 4, 5)
        assert third == "cublasGemmEx" and how[1:6] == [0, 0, 5, 3, 4]
        assert how[7:13] == [b, 1, 5, a, 1, 4] and how[14:] == [c, 1, 5, 79, -1]


def test_the_workspace_is_that_of_the_manual(played):
    module, _ = played
    assert module.workspace_bytes(8192, 8192, 8192) == int(1.25 * (7 * 2 * 8192**2 + 4 * 2 * 8192)) + 2**27
    assert module.workspace_bytes(1, 1, 1) == module.workspace_bytes(1024, 128, 1024)


@pytest.mark.parametrize("bits, missing", [(None, ""), (55, "cublasSetEmulationStrategy")])
def test_what_cublas_cannot_emulate_is_unsupported(played, bits, missing):
    module, state = played
    state.bits, state.missing = bits, missing
    with pytest.raises(module.Unsupported, match=missing or "does not emulate doubles on this GPU"):
        product(module)


def test_a_failure_is_cublass(played):
    module, state = played
    state.failing = "cublasGemmEx"
    with pytest.raises(Failure, match="15"):
        product(module)
