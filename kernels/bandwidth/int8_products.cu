// Products of the same two tiles of bytes on the tensor cores, again and again: how fast can they calculate exactly?
//
// As tensor_products.cu: two warp groups of a block multiply 64 rows each with 256 columns by the widest wgmma, both
// operands stay in shared memory, and while the products of one step run, those of the next are already started. A step
// is 128 of k. All of A and B is the same number; with 1, each sum is 128 p, and C[i] is the total of a thread's 128
// sums divided by 128 * 128 p, which is 1.
// C is n x m, of 32-bit integers, row-major; the kernel reads only the first element of A and of B. A thread's share is
// 128 * 128 p multiply-adds.
// Launch: block (256, 1); grid (ceil(m / 256), n).
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "warp_groups.cuh"
#include "wgmma_bytes.cuh"

__global__ void __launch_bounds__(256, 1)
int8_products(const signed char* A, const signed char* B, int* C, int n, int p, int m)
{
    constexpr int K = 128, ROWS = 64, COLUMNS = 256, THREADS = 256;
    __shared__ __align__(1024) signed char tile_a[2 * ROWS * K];
    __shared__ __align__(1024) signed char tile_b[COLUMNS * K];
    for (int i = threadIdx.x; i < 2 * ROWS * K; i += THREADS) tile_a[i] = A[0];
    for (int i = threadIdx.x; i < COLUMNS * K; i += THREADS) tile_b[i] = B[0];
    show_to_async_proxy();
    __syncthreads();

    const Descriptor a = rows_along_k<128>(shared_address(tile_a) + warp_group() * ROWS * K);
    const Descriptor b = rows_along_k<128>(shared_address(tile_b));
    int sums[COLUMNS / 2] = {};
    for (int step = 0; step < p; ++step) {
        pin(sums);
        begin_products();
        #pragma unroll
        for (int k = 0; k < K / 32; ++k)
            multiply_bytes(sums, a + k * 32 / 16, b + k * 32 / 16, 1);
        commit_products();
        wait_for_products<1>();  // those of the step before are done
    }
    wait_for_products<0>();
    pin(sums);

    long long total = 0;
    #pragma unroll
    for (int i = 0; i < COLUMNS / 2; ++i) total += sums[i];
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col < m)
        C[static_cast<long long>(blockIdx.y) * m + col] = static_cast<int>(total / (128LL * K * p));
}
