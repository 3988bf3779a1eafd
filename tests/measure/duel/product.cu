// The product of the textbook: in copies, with a part of its sums made twice, and with a fault.
template <int copy, int more_percent>
__global__ void product(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0, again = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    for (int k = 0; k < p * more_percent / 100; ++k) again += A[row * p + k] * B[k * m + col];
    C[row * m + col] = again > 3e38f ? again : sum;
}

__global__ void beyond(const float* A, const float* B, float* C, int n, int p, int m)
{
    if (threadIdx.x == 0) C[static_cast<size_t>(n) << 40] = A[0] + B[0] + p + m;
}

__global__ void kept(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m || C[row * m + col] == C[row * m + col]) return;  // what is there is right already
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    C[row * m + col] = sum;
}
