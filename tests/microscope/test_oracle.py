"""What a GPU does where a rule or the CPU could differ. On a GPU,
`pytest -n0 -s tests/microscope/test_oracle.py` prints the answers for the table in docs/microscope.md."""

import ml_dtypes
import numpy as np
import pytest

from kernelscope import Call, build, trace
from tilewise import ROOT

SOURCE = r"""
extern "C" __global__ void exits(int* out)
{
    if (threadIdx.x >= 40) return;
    out[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = out[39] + 1;
}
extern "C" __global__ void shifts(int* out, int by)
{
    out[0] = 1u << by;
    out[1] = 0x80000000u >> by;
    out[2] = -8 >> by;
    out[3] = (1ull << (by + 32)) != 0;
    out[4] = 1u << (by - 33);
    out[5] = 5;
    out[5] <<= by;
    unsigned last = 0x80000000u;
    out[6] = last >>= by;
}
extern "C" __global__ void casts(long long* out, float large, float small, float nan, double wide, double wide_nan)
{
    out[0] = (int)large;
    out[1] = (int)small;
    out[2] = (int)nan;
    out[3] = (unsigned)small;
    out[4] = (unsigned)large;
    out[5] = (long long)nan;
    out[6] = (int)wide;
    out[7] = (int)wide_nan;
    out[8] = (short)large;
    out[9] = (unsigned char)large;
    out[10] = (unsigned char)small;
    const int beyond = large;
    out[11] = beyond;
    const unsigned short of_double = wide;
    out[12] = of_double;
}
extern "C" __global__ void divisions(int* out, int least, int by)
{
    out[0] = least / by;
    out[1] = least % by;
}
extern "C" __global__ void barriers(int* out)
{
    __shared__ int shared[64];
    shared[threadIdx.x] = 0;
    if (threadIdx.x < 32) asm volatile("bar.sync 0, 32;" ::: "memory");
    else __nanosleep(100000);
    shared[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = shared[63 - threadIdx.x];
}
"""
LEAST = -(2**31)


@pytest.mark.gpu
def test_what_a_gpu_answers():
    import cupy

    module = cupy.RawModule(code=SOURCE, options=("-std=c++17",))

    def answers(name, threads, dtype, size, *arguments):
        out = cupy.full(size, -7, dtype)
        module.get_function(name)((1,), (threads,), (out, *arguments))
        cupy.cuda.Device().synchronize()
        found = out.get().tolist()
        print(f"{name}: {found}")
        return found

    assert answers("exits", 64, "i4", 64)[0] == 2, "threads that have exited are not waited for"
    answers("shifts", 1, "i4", 7, np.int32(32))
    numbers = [np.float32(1e10), np.float32(-1e10), np.float32("nan"), np.float64(1e10), np.float64("nan")]
    answers("casts", 1, "i8", 13, *numbers)
    assert answers("divisions", 1, "i4", 2, np.int32(LEAST), np.int32(-1)) == [LEAST, 0]
    answers("barriers", 64, "i4", 64)


FP8, TILES = ROOT / "packages/microscope/tests/fp8.cu", ROOT / "packages/microscope/tests/tiles.cu"
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
KINDS = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)]
PRODUCTS = [f"mma<{kind}>" for kind in range(4)] + [f"wgmma<{kind}, true>" for kind in range(3)]


def operands(how, rows, kinds, rng):
    """A (rows, 32), B (8, 32) and C (rows, 8) of ordinary numbers, of any finite codes, or with infinities and NaN."""
    shapes = [(rows, 32), (8, 32)]
    if how == "mixed":
        A, B = (rng.standard_normal(shape).astype(kind) for shape, kind in zip(shapes, kinds))
    else:
        A, B = (rng.integers(0, 256, shape, np.uint8).view(kind) for shape, kind in zip(shapes, kinds))
        A[~np.isfinite(A.astype("f4"))] = B[~np.isfinite(B.astype("f4"))] = 0
    C = (rng.standard_normal((rows, 8)) * 2.0 ** rng.integers(-20, 12, (rows, 8))).astype("f4")
    if how == "special":
        A.view("u1")[0, 0], B.view("u1")[2, 3] = 0x7F, 0xFC  # NaN; -448 of e4m3, -infinity of e5m2
        C[1, 1], C[4, 5], C[6, 7] = np.nan, np.inf, -0.0
    return A, B, C


def on_gpu(file, name, block, folder):
    """A function that launches a kernel of a file in one block, and returns what its arrays hold then."""
    import cupy

    from tilewise.nvidia.nvrtc import cubin_of

    code, entry = cubin_of(file, file.name, name, "sm_90a")
    path = folder / f"{entry['symbol']}.cubin"  # CuPy loads a path once a process
    path.write_bytes(code)
    function = cupy.RawModule(path=str(path)).get_function(entry["symbol"])

    def launched(*arrays):
        there = [cupy.asarray(array) for array in arrays]
        function((1,), (block,), tuple(there))
        return [array.get() for array in there]

    return launched


@pytest.mark.gpu
@pytest.mark.parametrize("size", [64, 128, 256, 512])
def test_tiles_of_several_warps(size, tmp_path):
    name, x = f"collectives<{size}>", np.random.default_rng(size).integers(0, 100, 1024, np.int32)
    _, out, sums = on_gpu(TILES, name, 1024, tmp_path)(x, np.zeros(8192, np.int32), np.zeros(1024))
    given = {"in": x, "out": "int[8192]", "sums": "double[1024]"}
    report = trace(build(TILES, name), Call(name, 1, 1024), given, expect={"out": out, "sums": sums})
    assert report.ok, str(report)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:invalid", "ignore:overflow")
@pytest.mark.parametrize("how", ["mixed", "codes", "special"])
def test_sums_of_fp8(how, tmp_path):
    """Equal to the bit."""
    rng, library = np.random.default_rng(58), build(FP8, *PRODUCTS)
    for name in PRODUCTS:
        kinds, rows = KINDS[int(name.split("<")[1][0])], 16 if name.startswith("mma") else 64
        launched = on_gpu(FP8, name, 2 * rows, tmp_path)
        for _ in range(20):
            A, B, C = operands(how, rows, kinds, rng)
            given = {"rows": A.view("u1").ravel(), "columns": B.view("u1").ravel(), "C": C.ravel()}
            report = trace(library, Call(name, 1, 2 * rows), given)
            assert report.ok, str(report)
            found = launched(*given.values())[2].reshape(C.shape)
            emulated = report.arrays["C"].reshape(C.shape)
            assert np.array_equal(found, emulated, equal_nan=True), name
