// C = alpha A B + beta C, sums by atomics, and floats rounded to bfloat16.
#include <cuda_bf16.h>

__global__ void update(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + (beta == 0 ? 0 : beta * C[row * N + col]);
}

__global__ void split_k(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = blockIdx.z; k < p; k += gridDim.z) sum += A[row * p + k] * B[k * m + col];
    atomicAdd(&C[row * m + col], sum);
}

__global__ void bfloat16_inside(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = 0; k < p; ++k)
        sum += __bfloat162float(__float2bfloat16(A[row * p + k])) * __bfloat162float(__float2bfloat16(B[k * m + col]));
    C[row * m + col] = sum;
}

__global__ void leading(const float* A, int lda, const float* B, int ldb, float* C, int ldc, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = C[row * ldc + col];
    for (int k = 0; k < p; ++k) sum += A[row * lda + k] * B[col * ldb + k];
    C[row * ldc + col] = sum;
}
