// C[i] = sum of what a thread loads from shared memory, again and again: how many wavefronts can it deliver?
//
// The idea: neighbouring threads read neighbouring places, so there are no bank conflicts, and a wavefront, one pass of
// shared memory, serves 128 bytes. A load of 4 bytes per thread takes one wavefront for a warp, one of 8 bytes two, one
// of 16 bytes four. There is an addition per float; that leaves the schedulers mostly idle. Where a step reads depends
// on a number from memory, B[0]: the compiler does not know that the rows repeat, so it cannot keep them in registers.
//
// All numbers are 1, so C[i] = 4 p WIDTH / 4 is known exactly, up to 2^24.
// C is n x m, row-major; the kernel reads only the first element of A and of B. A thread makes 4 p loads.
// Launch: block (256, 1); grid (ceil(m / 256), n).

/// What a thread loads at once: FLOATS floats.
template <int FLOATS>
struct alignas(4 * FLOATS) Floats {
    float element[FLOATS];
};

/// @tparam WIDTH  bytes that a thread loads at once: 4, 8 or 16
template <int WIDTH>
__global__ void __launch_bounds__(256) shared_loads(const float* A, const float* B, float* C, int n, int p, int m)
{
    constexpr int THREADS = 256, LOADS = 4, STARTS = 8, FLOATS = WIDTH / 4;
    __shared__ Floats<FLOATS> rows[STARTS + LOADS][THREADS];
    for (int row = 0; row < STARTS + LOADS; ++row)
        #pragma unroll
        for (int f = 0; f < FLOATS; ++f) rows[row][threadIdx.x].element[f] = A[0];
    __syncthreads();

    const int stride = static_cast<int>(B[0]);
    float sums[LOADS] = {};
    int first = 0;
    #pragma unroll 4  // fewer than STARTS, or the compiler would see that rows are read twice
    for (int step = 0; step < p; ++step) {
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const Floats<FLOATS> loaded = rows[first + i][threadIdx.x];
            #pragma unroll
            for (int f = 0; f < FLOATS; ++f) sums[i] += loaded.element[f];
        }
        first = (first + stride) & (STARTS - 1);
    }

    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col < m) C[static_cast<long long>(blockIdx.y) * m + col] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
