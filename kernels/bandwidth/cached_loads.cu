// C[i] = sum of what a thread loads from a part of A that a cache holds: how fast do the L1 and the L2 cache deliver?
//
// The idea: all blocks read the same REGION of A over and over, 16 bytes per thread and load, neighbours side by side.
// A region of some kilobytes stays in every multiprocessor's L1 cache. For the L2 cache the region is larger than an L1
// and the loads pass it by (ld.global.cg); each block begins elsewhere and goes in strides of its own, so that not all
// ask for the same lines at the same time. The strides come from memory, B[0]: the compiler does not know what repeats.
//
// All numbers are 1, so C[i] = 16 p is known exactly, up to 2^24.
// A has REGION elements; C is n x m, row-major; of B only the first element is read. A thread loads 64 p bytes.
// Launch: block (256, 1); grid (ceil(m / 256), n).

/// @tparam LEVEL   1: the loads may be served by the L1 cache; 2: they pass it by
/// @tparam REGION  elements of A that are read, a power of two, at least 8192
template <int LEVEL, int REGION>
__global__ void __launch_bounds__(256) cached_loads(const float* A, const float* B, float* C, int n, int p, int m)
{
    constexpr int THREADS = 256, LOADS = 4, VECTORS = REGION / 4;
    static_assert(VECTORS >= 2 * THREADS * LOADS && (VECTORS & (VECTORS - 1)) == 0, "a power of two, not too small");
    const float4* vectors = reinterpret_cast<const float4*>(A);
    const int stride = static_cast<int>(B[0]) * 37 * THREADS;  // an odd number of rows of the block

    float sums[LOADS] = {};
    int at = (blockIdx.y * gridDim.x + blockIdx.x) * (LOADS * THREADS) + threadIdx.x;
    #pragma unroll 4  // not 8, or the compiler could see that a small region is read twice
    for (int step = 0; step < p; ++step) {
        float4 loaded[LOADS];
        #pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const float4* from = vectors + ((at + i * THREADS) & (VECTORS - 1));
            loaded[i] = LEVEL == 1 ? __ldca(from) : __ldcg(from);
        }
        #pragma unroll
        for (int i = 0; i < LOADS; ++i)
            sums[i] += (loaded[i].x + loaded[i].y) + (loaded[i].z + loaded[i].w);
        at += stride;
    }

    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col < m) C[static_cast<long long>(blockIdx.y) * m + col] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
