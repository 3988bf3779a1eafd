// Rounds its operands to bfloat16: a product of floats that is made of shorter numbers.
#include <cuda_bf16.h>

__global__ void bfloat16_inside(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += __bfloat162float(__float2bfloat16(A[row * p + k])) * __bfloat162float(__float2bfloat16(B[k * m + col]));
    C[row * m + col] = sum;
}
