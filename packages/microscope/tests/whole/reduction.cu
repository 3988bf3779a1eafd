#include <iostream>
#include <numeric>
#include <vector>
#include <chrono>
#include "cuda_runtime.h"
#include "device_launch_parameters.h"
using namespace std;

const int N = 1 << 20;
constexpr int BLOCK = 256;

inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort = true) {
    if (code != cudaSuccess) {
        fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
        if (abort) exit(code);
    }
}
#define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }

template <typename T>
__global__ void reduce_sum(const T* in, T* out, int n) {
    extern __shared__ float sdata[];
    unsigned tid = threadIdx.x;
    unsigned i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    T mine = 0;
    if (i < n) mine += in[i];
    if (i + blockDim.x < n) mine += in[i + blockDim.x];
    sdata[tid] = mine;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}

float cpu_sum(const vector<float>& v) { return accumulate(v.begin(), v.end(), 0.0f); }

int main(int argc, char** argv) {
    vector<float> h(N, 1.0f);
    float *d_in, *d_out;
    const int blocks = (N + BLOCK * 2 - 1) / (BLOCK * 2);
    gpuErrchk(cudaMalloc(&d_in, N * sizeof(float)));
    gpuErrchk(cudaMalloc(&d_out, blocks * sizeof(float)));
    gpuErrchk(cudaMemcpy(d_in, h.data(), N * sizeof(float), cudaMemcpyHostToDevice));
    auto t0 = chrono::high_resolution_clock::now();
    reduce_sum<float><<<blocks, BLOCK, BLOCK * sizeof(float)>>>(d_in, d_out, N);
    gpuErrchk(cudaPeekAtLastError());
    gpuErrchk(cudaDeviceSynchronize());
    auto t1 = chrono::high_resolution_clock::now();
    vector<float> partial(blocks);
    gpuErrchk(cudaMemcpy(partial.data(), d_out, blocks * sizeof(float), cudaMemcpyDeviceToHost));
    cout << cpu_sum(partial) << " in " << chrono::duration<double>(t1 - t0).count() << endl;
    cudaFree(d_in); cudaFree(d_out);
}
