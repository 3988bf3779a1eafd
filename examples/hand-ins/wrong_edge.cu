#define TILE 16
__global__ void tiled(const float *A, const float *B, float *C, int n, int p, int m)
{
    __shared__ float sA[TILE][TILE];
    __shared__ float sB[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int t = 0; t < (p + TILE - 1) / TILE; ++t) {
        sA[ty][tx] = A[row * p + t * TILE + tx];
        sB[ty][tx] = B[(t * TILE + ty) * m + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += sA[ty][k] * sB[k][tx];
        __syncthreads();
    }
    C[row * m + col] = sum;
}
