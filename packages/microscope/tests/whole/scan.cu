#include "common.h"
#include <iostream>
#include <iomanip>
#include <cuda_profiler_api.h>
#include <nvToolsExt.h>
namespace ops {
template <typename T> struct Plus { __host__ __device__ T operator()(T a, T b) const { return a + b; } };
struct Config { int n = 5; std::string name; };
enum class Mode { fast, slow };
template <typename T, int BLOCK, typename Op>
__global__ void __launch_bounds__(256) scan(const T* __restrict__ x, T* y, int n, Op op) {
    __shared__ T tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : T(0);
    __syncthreads();
    for (int d = 1; d < BLOCK; d *= 2) {
        T t = threadIdx.x >= d ? tile[threadIdx.x - d] : T(0);
        __syncthreads();
        tile[threadIdx.x] = op(tile[threadIdx.x], t);
        __syncthreads();
    }
    if (i < n) y[i] = tile[threadIdx.x];
}
}
template <int BLOCK>
__global__ void addBase(float* y, const float* sums, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (blockIdx.x && i < n) y[i] += sq(sums[blockIdx.x - 1]);
}
inline int div_up(int a, int b) { return (a + b - 1) / b; }
template <typename T> void run(const T* in, T* out, T* sums, int n) {
    constexpr int kBlock = 128;
    const unsigned int blocks = div_up(n, kBlock);
    ops::scan<T, kBlock, ops::Plus<T>><<<blocks, kBlock>>>(in, out, n, ops::Plus<T>());
#ifdef DEBUG
    cudaDeviceSynchronize();
#endif
    addBase<kBlock><<<blocks, kBlock>>>(out, sums, n);
}
int main(int argc, char **argv) {
    int n = (argc > 1) ? atoi(argv[1]) : 1 << 14;
    float *in, *out, *sums;
    CHECK(cudaMalloc((void**)&in, n * sizeof *in));
    CHECK(cudaMalloc((void**)&out, sizeof(float) * n));
    CHECK(cudaMalloc((void**)&sums, sizeof(float) * div_up(n, 128)));
    double t = seconds();
    run<float>(in, out, sums, n);
    std::cout << std::setw(10) << seconds() - t << "\n";
    [&]() { cudaFree(in); }();
}
