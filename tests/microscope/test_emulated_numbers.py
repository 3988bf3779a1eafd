"""Numbers of two bytes on the emulator: they round as NumPy's do, and a kernel multiplies them."""

import ctypes

import numpy as np
import pytest
from builders import a_kernel, product

from kernelscope.compile import build, own_objects
from kernelscope.cpp import compile_library
from kernelscope.emulator import Emulator
from kernelscope.sources import EMULATOR_HEADERS
from tilewise.study import points, verify
from tilewise.study.kernel import LaunchEntry
from tilewise.study.precision import PRECISIONS


@pytest.mark.parametrize("name, cpp", [("half", "__half"), ("bfloat16", "__nv_bfloat16")])
def test_numbers_of_two_bytes_round_as_those_of_numpy(tmp_path, name, cpp):
    precision = PRECISIONS[name]
    text = f"""#include <{precision.header}>
    extern "C" __attribute__((visibility("default"))) void narrow(const float* from, {cpp}* to, int n)
    {{ for (int i = 0; i < n; ++i) to[i] = {cpp}(from[i]); }}
    extern "C" __attribute__((visibility("default"))) void widen(const {cpp}* from, float* to, int n)
    {{ for (int i = 0; i < n; ++i) to[i] = float(from[i]); }}
    extern "C" __attribute__((visibility("default"))) void calculate(const {cpp}* from, {cpp}* to, int n)
    {{ for (int i = 0; i < n; ++i) {{ to[i] = from[i]; to[i] += from[n - 1 - i] * {cpp}(3); }} }}"""
    library = ctypes.CDLL(
        str(compile_library(text, tmp_path / "two.so", [f"-I{EMULATOR_HEADERS}", *own_objects(watched=False)]))
    )

    def call(function, values, to):
        found = np.empty(len(values), to)
        library[function](*(ctypes.c_void_p(array.ctypes.data) for array in (values, found)), len(values))
        return found

    every = np.arange(2**16, dtype=np.uint16)
    wide = precision.wide(np, every if name == "bfloat16" else every.view(np.float16)).astype(np.float32)
    assert np.array_equal(call("widen", every, np.float32), wide, equal_nan=True)
    finite = np.sort(wide[np.isfinite(wide)])
    with np.errstate(all="ignore"):
        between = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)  # ties
        random = np.random.default_rng(1).integers(0, 2**32, 500_000, dtype=np.uint32).view(np.float32)
        numbers = np.concatenate([wide, between, np.nextafter(between, np.float32(np.inf)), random])
        numbers = numbers[~np.isnan(numbers)]
        expected = precision.narrow(np, numbers)
        assert np.array_equal(call("narrow", numbers, np.uint16), expected.view(np.uint16))
        some = precision.narrow(np, np.random.default_rng(2).uniform(-4, 4, 10_000).astype(np.float32))
        values = precision.wide(np, some).astype(np.float32)
        tripled = precision.wide(np, precision.narrow(np, values[::-1] * 3)).astype(np.float32)
        assert np.array_equal(call("calculate", some, some.dtype), precision.narrow(np, values + tripled))
    assert np.isnan(precision.wide(np, call("narrow", np.full(1, np.nan, np.float32), precision.stored))).all()


BFLOAT16 = """
#include <cuda_bf16.h>
template <typename T, int TILE>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{
    __shared__ T tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int start = 0; start < p; start += TILE) {
        tile_a[ty][tx] = row < n && start + tx < p ? A[row * p + start + tx] : T(0);
        tile_b[ty][tx] = start + ty < p && col < m ? B[(start + ty) * m + col] : T(0);
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += __bfloat162float(tile_a[ty][k]) * __bfloat162float(tile_b[k][tx]);
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = __float2bfloat16(sum);
}
"""


def test_bfloat16(tmp_path):
    entry = LaunchEntry("mine", ("dtype", "tile"), ("tile", "tile"), ("tile", "tile"))
    kernel, at = a_kernel(tmp_path, BFLOAT16, entry), points.point("t", "mine", "bfloat16", 33, 35, 70, tile=8)
    assert kernel.plan(at).instances == ("mine<__nv_bfloat16, 8>",)
    emulator = Emulator(build(kernel, kernel.plan(at).instances, tmp_path / "mine.so"))
    assert emulator.static_shared_bytes == {"mine<__nv_bfloat16, 8>": 256}
    A, B = verify.operands(np, "bfloat16", 33, 35, 70, 1)
    C = np.empty((33, 70), np.uint16)
    verify.poison(C, "bfloat16")
    product(kernel, at, emulator, A, B, C)
    assert verify.check(C, *verify.reference(A, B, "bfloat16"), "bfloat16", 35).ok
    C[32, 69] += 3
    assert not verify.check(C, *verify.reference(A, B, "bfloat16"), "bfloat16", 35).ok
