// Writes what the run before it has computed, and leaves its own product to the next.
#include "product.cuh"

__device__ float kept[1 << 16];
__device__ int ran[1 << 16];

__global__ void one_launch_late(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    const int at = row * m + col;
    const float before = kept[at];
    kept[at] = element(A, B, row, col, p, m);
    C[at] = ran[at]++ ? before : kept[at];
}
