"""cuBLAS through CuPy, whose functions are played here: they set the handle's stream to CuPy's current one, as CuPy's
own do before each call."""

import ctypes
import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from builders import Array

NAME = "tilewise.nvidia.cublas"


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


def _array(numbers):
    return numbers.view(Array)


@pytest.fixture
def played(monkeypatch):
    """The module under test, and the list of calls: (function, stream, math mode, m, n, k, alpha, beta); or, of a
    kernel that is turned, (function, stream, grid, block, its arguments)."""
    calls, state = [], {}

    def call(name, scalar):
        def gemm(handle, transa, transb, m, n, k, alpha, A, *rest):
            beta = rest[-3] if name != "gemmEx" else rest[-6]
            if rest[-2] == 72:
                calls.append(("int8", transa, transb, *rest))
            numbers = [(ctypes.c_int32 if rest[-2] == 72 else scalar).from_address(at).value for at in (alpha, beta)]
            calls.append((name, Stream.current[-1], state["mode"], m, n, k, *numbers))

        return gemm

    cublas = SimpleNamespace(
        CUBLAS_OP_N=0,
        CUBLAS_OP_T=1,
        setMathMode=lambda handle, mode: state.update(mode=mode),
        sgemm=call("sgemm", ctypes.c_float),
        dgemm=call("dgemm", ctypes.c_double),
        gemmEx=call("gemmEx", ctypes.c_float),
        gemmStridedBatchedEx=lambda *given: calls.append((Stream.current[-1], *given)),
    )
    cuda = SimpleNamespace(
        Stream=Stream,
        cublas=cublas,
        device=SimpleNamespace(get_cublas_handle=lambda: 1),
        runtime=SimpleNamespace(CUDA_R_32F=0, CUDA_R_16F=2, CUDA_R_16BF=14),
    )

    def module(code, options, name_expressions):
        [folder] = [Path(option[2:]) for option in options if option.startswith("-I")]
        assert all((folder / header).is_file() for header in re.findall('^#include "(.*)"', code, re.MULTILINE))
        [name] = name_expressions

        def launch(grid, block, arguments):
            calls.append((name, Stream.current[-1], grid, block, arguments[2:]))

        return SimpleNamespace(get_function=lambda asked: launch if asked == name else None)

    cupy = SimpleNamespace(cuda=cuda, RawModule=module, empty=lambda *made: _array(np.empty(*made)), int8=np.int8)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
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
    multiply = module.gemm(dtype, 3, 4, 5, *(_array(np.empty(shape)) for shape in ((3, 4), (4, 5), (3, 5))))
    for stream in (77, 77, 0, 78):
        multiply(stream)
    assert calls == [(function, stream, mode, 5, 3, 4, 1, 0) for stream in (77, 77, 0, 78)]
    assert Stream.current == [0], "CuPy's own stream is as before"


@pytest.mark.parametrize(
    "dtype, scalar, kind, compute",
    [("float", ctypes.c_float, 0, 68), ("bfloat16", ctypes.c_float, 14, 68), ("double", ctypes.c_double, 1, 70)],
)
def test_a_batch_is_one_call_whose_matrices_lie_one_below_the_other(played, dtype, scalar, kind, compute):
    module, calls = played
    n, p, m, batch = 3, 4, 5, 7
    A, B, C = (_array(np.empty((batch * rows, columns))) for rows, columns in ((n, p), (p, m), (n, m)))
    multiply = module.gemm(dtype, n, p, m, A, B, C, batch)
    multiply(77)
    [(stream, _, op_a, op_b, *given)] = calls
    alpha, beta = (scalar.from_address(given.pop(place)).value for place in (3, 11))
    assert (stream, op_a, op_b, alpha, beta) == (77, 0, 0, 1, 0)
    b, a, c = (array.data.ptr for array in (B, A, C))
    matrices = [b, kind, m, p * m, a, kind, p, n * p, c, kind, m, n * m]
    assert given == [m, n, p, *matrices, batch, compute, -1]


def test_bytes_are_multiplied_along_k_after_b_was_turned(played):
    module, calls = played
    n, p, m = 3, 20, 140
    A, B, C = (_array(np.empty(shape)) for shape in ((n, p), (p, m), (n, m)))
    multiply = module.gemm("int8", n, p, m, A, B, C)
    for stream in (77, 78):
        calls.clear()
        multiply(stream)
        turned, product, summary = calls
        assert turned == ("turn_bytes", stream, (1, 2), (256,), (p, m, 32))
        assert summary == ("gemmEx", stream, 0, m, n, p, 1, 0)
        # The turned B is C's first operand, transposed, with a pitch of a multiple of 16; A lies along k as it is.
        kind, transa, transb, type_a, pitch_a, b, type_b, pitch_b, _, c, type_c, pitch_c, *how = product
        assert (kind, transa, transb, type_a, type_b, type_c) == ("int8", 1, 0, 3, 3, 10)
        assert (pitch_a, pitch_b, pitch_c) == (32, p, m) and (b, c) == (A.data.ptr, C.data.ptr)
        assert how == [72, -1]


def test_without_its_package_the_best_algorithm_is_unsupported(played, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    for name in ("emulation", "cublaslt"):
        monkeypatch.delitem(sys.modules, f"tilewise.nvidia.{name}", raising=False)
    with pytest.raises(Exception, match="need the package nvmath-python of the GPU's requirements") as raised:
        importlib.import_module("tilewise.nvidia.cublaslt")
    assert type(raised.value).__name__ == "Unsupported", "a row that says so, not a worker that ends"
    sys.modules.pop("tilewise.nvidia.emulation", None)
