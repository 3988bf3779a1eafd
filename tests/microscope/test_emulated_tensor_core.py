"""The emulator's tensor cores compute what the NumPy model computes, which was checked against an H200: bit for bit."""

import ctypes

import numpy as np
import pytest
from builders import product
from reference import tensor_core

from kernelscope.compile import build
from kernelscope.cpp import compile_library
from kernelscope.emulator import Emulator
from kernelscope.sources import EMULATOR
from tilewise.study.points import point

ROWS, COLUMNS = 32, 72
SHORT = ["half", "bfloat16", "tf32"]  # in the order of `enum class Short`
TEXT = """
#include "tensor_core.h"
using namespace emulator;
extern "C" __attribute__((visibility("default"))) void all(int kind, int rows, int columns, int depth,
                                                           const unsigned* a, const unsigned* b, float* c)
{
    static Columns all;
    all.count = columns, all.depth = depth, all.kind = all.kind_of_rows = static_cast<Short>(kind);
    all.special = false;
    for (int k = 0; k < depth; ++k)
        for (int j = 0; j < columns; ++j) all.set(k, j, b[k * columns + j]);
    for (int i = 0; i < rows; ++i) {
        Row row;
        row.zero = true, row.special = false;
        for (int k = 0; k < depth; ++k) set(row, k, all.kind, a[i * depth + k]);
        multiply(row, all, c + i * columns);
    }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return ctypes.CDLL(
        str(compile_library(TEXT, tmp_path_factory.mktemp("core") / "core.so", ["-O3", f"-I{EMULATOR}/ptx"]))
    )


def stored(x, dtype):
    """The bits of floats that are numbers of `dtype`, as unsigned integers of 4 bytes."""
    if dtype == "half":
        return x.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return bits >> 16 if dtype == "bfloat16" else bits


def operands(kind, dtype, rng):
    depth = tensor_core.DEPTH[dtype]
    A, B = rng.standard_normal((ROWS, depth)), rng.standard_normal((depth, COLUMNS))
    C = rng.standard_normal((ROWS, COLUMNS)) * 3
    if kind == "positive":
        A, B, C = abs(A), abs(B), abs(C)
    if kind == "graded":
        A, C = A * 2.0 ** rng.integers(-12, 12, A.shape), C * 2.0 ** rng.integers(-30, 20, C.shape)
    if kind == "subnormal":
        A, C = A * 2.0 ** (-18 if dtype == "half" else -128), C * 2.0**-135
    if kind == "zeros":
        A, B, C = (np.where(rng.random(x.shape) < 0.5, 0, x) for x in (A, B, C))
    if kind == "special":
        A[0, 0], A[1, 1], B[2, 3], C[4, 5] = np.inf, np.nan, -np.inf, np.inf
    A, B = (tensor_core.round_to(x.astype(np.float32), dtype) for x in (A, B))
    return A, B, C.astype(np.float32)


@pytest.mark.parametrize("kind", ["mixed", "positive", "graded", "subnormal", "zeros", "special"])
@pytest.mark.parametrize("dtype", SHORT)
def test_bits(library, dtype, kind):
    A, B, C = operands(kind, dtype, np.random.default_rng(524))
    with np.errstate(all="ignore"):
        wanted = tensor_core.mma(dtype, A, B, C)
    a, b, c = stored(A, dtype), stored(B, dtype), C.copy()
    arrays = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, c)]
    library.all(SHORT.index(dtype), ROWS, COLUMNS, tensor_core.DEPTH[dtype], *arrays)
    finite = np.isfinite(wanted)
    assert (wanted[finite] == c[finite]).all()
    assert (np.isnan(wanted) == np.isnan(c)).all()
    infinite = np.isinf(wanted)
    assert (wanted[infinite] == c[infinite]).all()


#: Floats, and what TMA made of them on an H100, whose tensor map was of TFLOAT32: the nearest, of two the even one.
ROUNDED = {
    1 + 2**-11: 1,
    1 + 3 * 2**-11: 1 + 2**-9,
    -(1 + 2**-11): -1,
    1 + 2**-11 - 2**-20: 1,
    1 + 2**-11 + 2**-20: 1 + 2**-10,
    3.3e38: 3.2998084995360537e38,
}


def test_a_tensor_map_of_tf32_rounds(kernels, tmp_path):
    """A times the identity, and the identity times B: what the product does not round itself."""
    kernel, n = kernels["wgmma_tf32"], 32
    at = point("t", kernel.name, "tf32", n, n, n, tile_n=64, stages=3, band=4)
    emulator = Emulator(build(kernel, sorted(kernel.plan(at).instances), tmp_path / "kernel.so"))
    diagonal = np.resize(np.array(list(ROUNDED), np.float32), n)
    one, other = np.eye(n, dtype=np.float32), np.diag(diagonal)
    for operands in ((one, other), (other, one)):
        C = np.full((n, n), np.nan, np.float32)
        product(kernel, at, emulator, *operands, C)
        assert np.array_equal(C, np.diag(np.resize(np.array(list(ROUNDED.values()), np.float32), n)))
