"""cuBLAS through CuPy, whose functions are played here: they set the handle's stream to CuPy's current one, as CuPy's
own do before each call."""

import ctypes
import importlib
import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

NAME = "tilewise.measure.backends.cublas"


class Stream:
    """CuPy's, as far as it is used."""

    current: ClassVar = [0]

    @classmethod
    def from_external(cls, stream):
        made = cls()
        version, made.ptr = stream.__cuda_stream__()
        assert version == 0
        return made

    def __enter__(self):
        self.current.append(self.ptr)

    def __exit__(self, *error):
        self.current.pop()


@pytest.fixture
def played(monkeypatch):
    """The module under test, and the list of calls: (function, stream, math mode, m, n, k, alpha, beta)."""
    calls, state = [], {}

    def call(name, scalar):
        def gemm(handle, transa, transb, m, n, k, alpha, A, *rest):
            beta = rest[-3] if name != "gemmEx" else rest[-6]
            numbers = [scalar.from_address(place).value for place in (alpha, beta)]
            calls.append((name, Stream.current[-1], state["mode"], m, n, k, *numbers))

        return gemm

    cublas = SimpleNamespace(
        CUBLAS_OP_N=0,
        setMathMode=lambda handle, mode: state.update(mode=mode),
        sgemm=call("sgemm", ctypes.c_float),
        dgemm=call("dgemm", ctypes.c_double),
        gemmEx=call("gemmEx", ctypes.c_float),
    )
    cuda = SimpleNamespace(
        Stream=Stream,
        cublas=cublas,
        device=SimpleNamespace(get_cublas_handle=lambda: 1),
        runtime=SimpleNamespace(CUDA_R_32F=0, CUDA_R_16F=2, CUDA_R_16BF=14),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    yield importlib.import_module(NAME), calls
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize(
    "dtype, function, mode",
    [
        ("float", "sgemm", 0),
        ("double", "dgemm", 0),
        ("tf32", "gemmEx", 0),
        ("half", "gemmEx", 16),
        ("bfloat16", "gemmEx", 16),
    ],
)
def test_a_product_runs_on_the_stream_that_is_asked_for(played, dtype, function, mode):
    module, calls = played
    array = SimpleNamespace(data=SimpleNamespace(ptr=np.empty(1).ctypes.data))
    multiply = module.gemm(dtype, 3, 4, 5, array, array, array)
    for stream in (77, 77, 0, 78):
        multiply(stream)
    assert calls == [(function, stream, mode, 5, 3, 4, 1, 0) for stream in (77, 77, 0, 78)]
    assert Stream.current == [0], "CuPy's own stream is as before"
