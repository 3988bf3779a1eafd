// Products of the same fragments on the tensor cores, in double: how fast can they calculate?
//
// The idea: the largest instruction for doubles multiplies 16 x 16 numbers with 16 x 8, from registers to registers. A
// warp adds eight products that do not depend on each other, so that the tensor cores need not wait for the one before.
// All of A and B is 1, so that each sum is 16 p.
//
// C is n x m, row-major; the kernel reads only the first element of A and of B. A thread's share of the eight products
// of a warp is 8 * 16 * 16 * 8 / 32 = 512 p multiply-adds; C[i] is the sum of its 32 sums, 512 p.
// Launch: block (256, 1); grid (ceil(m / 256), n).
#include "mma.cuh"

__global__ void __launch_bounds__(256) double_products(const double* A, const double* B, double* C, int n, int p, int m)
{
    constexpr int PRODUCTS = 8, THREADS = 256;
    double a[8], b[4], sums[PRODUCTS][4] = {};
    #pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = A[0];
    #pragma unroll
    for (int i = 0; i < 4; ++i) b[i] = B[0];
    for (int step = 0; step < p; ++step)
        #pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) mma_16x8x16(sums[i], a, b);

    double total = 0;
    #pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) total += (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]);
    const int col = blockIdx.x * THREADS + threadIdx.x;
    if (col < m) C[static_cast<long long>(blockIdx.y) * m + col] = total;
}
