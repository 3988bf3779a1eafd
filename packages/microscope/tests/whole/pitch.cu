#include <stdio.h>

#include "cuda_runtime.h"
#include "device_launch_parameters.h"
#define RADIUS 1
#define CHECK(x) x
__global__ void blur(const unsigned char* src, unsigned char* dst, size_t pitch, int w, int h) {
  extern __shared__ unsigned char tile[];
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const int sw = blockDim.x + 2 * RADIUS;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < sw * (blockDim.y + 2 * RADIUS);
       i += blockDim.x * blockDim.y) {
    int gx = (int)(blockIdx.x * blockDim.x) + i % sw - RADIUS,
        gy = (int)(blockIdx.y * blockDim.y) + i / sw - RADIUS;
    gx = min(max(gx, 0), w - 1);
    gy = min(max(gy, 0), h - 1);
    tile[i] = src[gy * pitch + gx];
  }
  __syncthreads();
  if (x >= w || y >= h) return;
  int sum = 0;
  for (int j = 0; j <= 2 * RADIUS; ++j)
    for (int i = 0; i <= 2 * RADIUS; ++i) sum += tile[(threadIdx.y + j) * sw + threadIdx.x + i];
  dst[y * pitch + x] = sum / 9;
}
cudaError_t blurWithCuda(const unsigned char* h_src, unsigned char* h_dst, int w, int h) {
  unsigned char *src = 0, *dst = 0;
  size_t pitch;
  cudaError_t status = cudaMallocPitch((void**)&src, &pitch, w, h);
  if (status != cudaSuccess) goto Error;
  cudaMallocPitch((void**)&dst, &pitch, w, h);
  cudaMemcpy2D(src, pitch, h_src, w, w, h, cudaMemcpyHostToDevice);
  {
    dim3 threads(16, 16), blocks((w + 15) / 16, (h + 15) / 16);
    size_t shared = (threads.x + 2 * RADIUS) * (threads.y + 2 * RADIUS);
    blur<<<blocks, threads, shared>>>(src, dst, pitch, w, h);
  }
  status = cudaDeviceSynchronize();
Error:
  cudaFree(src);
  cudaFree(dst);
  return status;
}
int main() {
  const int w = 100, h = 60;
  unsigned char a[w * h], b[w * h];
  blurWithCuda(a, b, w, h);
  return 0;
}
