#define TILE 16
__global__ void tiled(const float *A, const float *B, float *C, int n, int p, int m)
{
    __shared__ float sA[TILE][TILE];
    __shared__ float sB[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum;
    for (int t = 0; t < (p + TILE - 1) / TILE; ++t) {
        sA[ty][tx] = row < n && t * TILE + tx < p ? A[row * p + t * TILE + tx] : 0;
        sB[ty][tx] = t * TILE + ty < p && col < m ? B[(t * TILE + ty) * m + col] : 0;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += sA[ty][k] * sB[k][tx];
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = sum;
}
