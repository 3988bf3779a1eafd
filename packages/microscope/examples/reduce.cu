// The sum of each block's share of `data`. A barrier is missing: the loop reads what other threads still write.
__global__ void reduce(const float* data, float* sums, int n)
{
    extern __shared__ float part[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? data[i] : 0;
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
