// Writes to where C was in its first run.
#include "product.cuh"

__device__ float* place[1 << 16];

__global__ void writes_to_the_first_c(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    const int at = row * m + col;
    if (place[at] == nullptr) place[at] = C;
    place[at][at] = element(A, B, row, col, p, m);
}
