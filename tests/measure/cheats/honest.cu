// Counts its runs, which is no fault.
#include "product.cuh"

__device__ int runs;

__global__ void honest(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row == 0 && col == 0) ++runs;
    if (row < n && col < m) C[row * m + col] = element(A, B, row, col, p, m);
}
