// One factor of each product is 64 bits wide, and so is the index.
__global__ void matrixMultiply(const float *A, const float *B, float *C, int n, int p, int m)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && col < m) {
        float sum = 0.0f;
        for (int k = 0; k < p; k++) sum += A[(size_t)row * p + k] * B[(size_t)k * m + col];
        C[(size_t)row * m + col] = sum;
    }
}
