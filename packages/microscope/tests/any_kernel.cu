// Kernels that are no products, each beside one with a fault, at the line that says so.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__constant__ float weights[3];
__device__ unsigned int arrived;

struct Scaling {
    int first;
    double by;
};

__global__ void saxpy(int n, float a, const float* x, float* y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void saxpy_race(int n, float a, const float* x, float* y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1) y[i] = a * x[i] + y[i + 1];  // FAULT
}

__global__ void saxpy_out_of_bounds(int n, float a, const float* x, float* y)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = a * x[i];  // FAULT
}

__global__ void sums(const float* data, float* partial, int n)
{
    extern __shared__ float s[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? data[i] : 0;
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = s[0];
}

__global__ void sums_race(const float* data, float* partial, int n)
{
    extern __shared__ float s[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? data[i] : 0;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2)
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];  // FAULT
    if (threadIdx.x == 0) partial[blockIdx.x] = s[0];
}

__global__ void histogram(const unsigned char* data, unsigned int* bins, int n)
{
    __shared__ unsigned int own[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) own[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[data[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], own[b]);
}

__global__ void histogram_race(const unsigned char* data, unsigned int* bins, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) bins[data[i]] += 1;  // FAULT
}

__global__ void histogram_uninitialised(const unsigned char* data, unsigned int* bins, int n)
{
    __shared__ unsigned int own[256];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&own[data[i]], 1);  // FAULT
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], own[b]);
}

__global__ void stencil(const float* in, float* out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0 || i >= n - 1) return;
    out[i] = weights[0] * in[i - 1] + weights[1] * in[i] + weights[2] * in[i + 1];
}

__global__ void stencil_out_of_bounds(const float* in, float* out, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = weights[0] * in[i - 1] + weights[1] * in[i] + weights[2] * in[i + 1];  // FAULT
}

template <typename T>
__global__ void scan(const T* in, T* out, int n)
{
    __shared__ T s[256];
    const int i = threadIdx.x;
    s[i] = i < n ? in[i] : T(0);
    for (int step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();
        const T left = i >= step ? s[i - step] : T(0);
        __syncthreads();
        s[i] += left;
    }
    if (i < n) out[i] = s[i];
}

template <typename T>
__global__ void scan_ended(const T* in, T* out, int n)
{
    __shared__ T s[256];
    const int i = threadIdx.x;
    if (i >= n) return;
    s[i] = in[i];
    for (int step = 1; step < blockDim.x; step *= 2) {
        __syncthreads();  // FAULT
        const T left = i >= step ? s[i - step] : T(0);
        __syncthreads();
        s[i] += left;
    }
    out[i] = s[i];
}

__global__ void transpose(const double* in, double* out, int rows, int columns)
{
    __shared__ double tile[16][17];
    const int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = in[row * columns + column];
    __syncthreads();
    const int to_row = blockIdx.x * 16 + threadIdx.y, to_column = blockIdx.y * 16 + threadIdx.x;
    if (to_row < columns && to_column < rows) out[to_row * rows + to_column] = tile[threadIdx.x][threadIdx.y];
}

__global__ void normalised(float* data, float* sum, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(sum, data[i]);
    cg::this_grid().sync();
    data[i] /= *sum;
}

__global__ void __cluster_dims__(2) exchanged(const int* in, int* out)
{
    __shared__ int own;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) own = in[blockIdx.x];
    cluster.sync();
    if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&own, 1 - cluster.block_rank());
    cluster.sync();
}

__global__ void scaled(double* data, Scaling scaling)
{
    if (threadIdx.x >= scaling.first) data[threadIdx.x] *= scaling.by;
}

__global__ void flags(const bool* on, short* numbers, long long big, float4 more, float4* out)
{
    if (on[threadIdx.x]) numbers[threadIdx.x] = big >> 40;
    out[threadIdx.x] = more;
}

enum Mode { STILL, MOVING };

__global__ void by_enum(int* out, Mode mode) { out[threadIdx.x] = mode == MOVING; }

__global__ void rows_of_four(const float (*in)[4], float* out, int) { out[threadIdx.x] = in[threadIdx.x][3]; }

__global__ void last(int* order)
{
    if (threadIdx.x == 0) order[atomicAdd(&arrived, 1)] = blockIdx.x;
}

__global__ void writes_its_input(float* data)
{
    data[threadIdx.x] += 1;
}

__global__ void nothing() { __syncthreads(); }
