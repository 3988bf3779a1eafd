// Rounds its operands to TF32: a product of floats that is made of shorter numbers.

__device__ inline float cut(float x)
{
    return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xFFFFE000);
}

__global__ void tf32_inside(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += cut(A[row * p + k]) * cut(B[k * m + col]);
    C[row * m + col] = sum;
}
