// Rounds its operands to half: a product of floats that is made of shorter numbers.
#include <cuda_fp16.h>

__global__ void half_inside(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += __half2float(__float2half(A[row * p + k])) * __half2float(__float2half(B[k * m + col]));
    C[row * m + col] = sum;
}
