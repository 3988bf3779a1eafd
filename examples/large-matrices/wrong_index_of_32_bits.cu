// row * p + k is an int, which overflows in a matrix of 2^31 elements or more.
__global__ void matrixMultiply(const float *A, const float *B, float *C, int n, int p, int m)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && col < m) {
        float sum = 0.0f;
        for (int k = 0; k < p; k++) sum += A[row * p + k] * B[k * m + col];
        C[row * m + col] = sum;
    }
}
