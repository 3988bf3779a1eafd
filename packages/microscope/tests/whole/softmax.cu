#include <cuda_runtime.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <vector>
__inline__ __device__ float warpMax(float v) {
  for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_down_sync(0xffffffff, v, o));
  return v;
}
__inline__ __device__ float warpSum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
  return v;
}
template <int BLOCK_SIZE>
__global__ void softmax_kernel(const float* x, float* y, int cols) {
  __shared__ float red[BLOCK_SIZE / 32];
  __shared__ float m, s;
  const float* row = x + blockIdx.x * cols;
  float v = -FLT_MAX;
  for (int i = threadIdx.x; i < cols; i += BLOCK_SIZE) v = fmaxf(v, row[i]);
  v = warpMax(v);
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    float t = red[0];
    for (int i = 1; i < BLOCK_SIZE / 32; ++i) t = fmaxf(t, red[i]);
    m = t;
  }
  __syncthreads();
  float acc = 0;
  for (int i = threadIdx.x; i < cols; i += BLOCK_SIZE) acc += expf(row[i] - m);
  acc = warpSum(acc);
  if (threadIdx.x % 32 == 0) red[threadIdx.x / 32] = acc;
  __syncthreads();
  if (threadIdx.x == 0) {
    float t = 0;
    for (int i = 0; i < BLOCK_SIZE / 32; ++i) t += red[i];
    s = t;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < cols; i += BLOCK_SIZE) y[blockIdx.x * cols + i] = expf(row[i] - m) / s;
}
__global__ void scale(float* y, int n, float f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] *= f;
}
struct Config {
  int rows = 128;
  int cols = 512;
};
void run(const Config& cfg, float* d_x, float* d_y) {
  constexpr int BS = 128;
  softmax_kernel<BS><<<cfg.rows, BS>>>(d_x, d_y, cfg.cols);
  const int total = cfg.rows * cfg.cols;
  scale<<<(total + 255) / 256, 256>>>(d_y, total, 0.5f);
}
int main() {
  Config cfg;
  std::vector<float> h(cfg.rows * cfg.cols);
  std::generate(h.begin(), h.end(), [] { return rand() / (float)RAND_MAX; });
  float *d_x = nullptr, *d_y = nullptr;
  cudaMalloc(&d_x, h.size() * sizeof(float));
  cudaMalloc(&d_y, h.size() * sizeof(float));
  cudaMemcpy(d_x, h.data(), h.size() * sizeof(float), cudaMemcpyHostToDevice);
  run(cfg, d_x, d_y);
  cudaMemcpy(h.data(), d_y, h.size() * sizeof(float), cudaMemcpyDeviceToHost);
  printf("%f\n", h[0]);
  cudaFree(d_x);
  cudaFree(d_y);
}
