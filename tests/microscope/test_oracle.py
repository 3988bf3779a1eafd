"""What a GPU does where a rule or the CPU could differ. On a GPU,
`pytest -n0 -s tests/microscope/test_oracle.py` prints the answers for the table in docs/microscope.md."""

import pytest

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
    import numpy as np

    module = cupy.RawModule(code=SOURCE, options=("-std=c++17",))

    def answers(name, threads, dtype, size, *arguments):
        out = cupy.full(size, -7, dtype)
        module.get_function(name)((1,), (threads,), (out, *arguments))
        cupy.cuda.Device().synchronize()
        found = out.get().tolist()
        print(f"{name}: {found}")
        return found

    assert answers("exits", 64, "i4", 64)[0] == 2, "threads that have exited are not waited for"
    answers("shifts", 1, "i4", 5, np.int32(32))
    numbers = [np.float32(1e10), np.float32(-1e10), np.float32("nan"), np.float64(1e10), np.float64("nan")]
    answers("casts", 1, "i8", 11, *numbers)
    assert answers("divisions", 1, "i4", 2, np.int32(LEAST), np.int32(-1)) == [LEAST, 0]
    answers("barriers", 64, "i4", 64)
