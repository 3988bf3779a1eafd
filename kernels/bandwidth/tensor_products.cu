// Products of the same two tiles on the tensor cores, again and again: how fast can they calculate?
//
// The idea: two warp groups of a block multiply 64 rows each with 256 columns by wgmma, the widest instruction there
// is, so that both operands stay in shared memory and only the tensor cores limit the speed. While the products of one
// step run, those of the next are already started. Nothing is fetched; the tiles hold the same number everywhere, so
// that their arrangement in shared memory does not matter.
//
// A warp group adds up 128 bytes of k per step: K = 64 half or bfloat16, or 32 TF32 numbers. All of A and B is 1, so
// each sum is K p, which is exact up to 2^24; C[i] is the mean of a thread's 128 sums divided by K p, which is 1.
// C is n x m, row-major; the kernel reads only the first element of A and of B. A thread's share is 128 * K p
// multiply-adds.
// Launch: block (256, 1); grid (ceil(m / 256), n).
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

/// An element as it lies in memory, and how a float becomes one.
template <typename T>
struct Stored {
    using Bits = unsigned short;
    static __device__ Bits of(float value) { return static_cast<Bits>(Short<T>::pack(value, 0.0f)); }
};
template <>
struct Stored<float> {
    using Bits = unsigned;
    static __device__ Bits of(float value) { return __float_as_uint(value); }
};

/// @tparam T  the element: __half, __nv_bfloat16, or float for TF32
template <typename T>
__global__ void __launch_bounds__(256, 1) tensor_products(const T* A, const T* B, T* C, int n, int p, int m)
{
    using Bits = typename Stored<T>::Bits;
    constexpr int K = 128 / sizeof(Bits), ROWS = 64, COLUMNS = 256, THREADS = 256;
    constexpr bool SHORT = sizeof(Bits) == 2;
    __shared__ __align__(1024) Bits tile_a[2 * ROWS * K];
    __shared__ __align__(1024) Bits tile_b[K * COLUMNS];
    for (int i = threadIdx.x; i < 2 * ROWS * K; i += THREADS) tile_a[i] = reinterpret_cast<const Bits*>(A)[0];
    for (int i = threadIdx.x; i < K * COLUMNS; i += THREADS) tile_b[i] = reinterpret_cast<const Bits*>(B)[0];
    show_to_async_proxy();
    __syncthreads();

    const Descriptor a = rows_along_k<128>(shared_address(tile_a) + warp_group() * ROWS * 128);
    const unsigned second = shared_address(tile_b);
    const Descriptor b = SHORT ? rows_across_k<K * 128>(second) : rows_along_k<128>(second);
    float sums[COLUMNS / 2] = {};
    for (int step = 0; step < p; ++step) {
        pin(sums);
        begin_products();
        #pragma unroll
        for (int k = 0; k < 4; ++k)  // 32 bytes of k each
            Wgmma<T>::multiply(sums, a + k * 32 / 16, b + k * (SHORT ? 2048 : 32) / 16, 1);
        commit_products();
        wait_for_products<1>();  // those of the step before are done
    }
    wait_for_products<0>();
    pin(sums);

    float total = 0;
    #pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) total += sums[i] / (128.0f * K * p);
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col < m) reinterpret_cast<Bits*>(C)[static_cast<long long>(blockIdx.y) * m + col] = Stored<T>::of(total);
}
