// The grid's x runs over the rows of C, and the factors are square.
__global__ void mm(int N, const int *X, const int *Y, int *Z)
{
    int i = blockIdx.x * blockDim.y + threadIdx.y;
    int j = blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= N || j >= N) return;
    int s = 0;
    for (int k = 0; k < N; ++k) s += X[i * N + k] * Y[k * N + j];
    Z[i * N + j] = s;
}
