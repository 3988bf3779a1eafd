#include <algorithm>
#include <iostream>
#include <memory>
#include <cuda.h>

#define RADIUS 3
#define BLOCK_SIZE 128
static const int NX = 4096;

__constant__ float c_coef[2 * RADIUS + 1];
static float h_ref[NX];
float g_time = 0.f;

__global__ void stencil_1d(const float* __restrict__ in, float* __restrict__ out, const int n) {
    __shared__ float temp[BLOCK_SIZE + 2 * RADIUS];
    int gindex = threadIdx.x + blockIdx.x * blockDim.x;
    int lindex = threadIdx.x + RADIUS;
    temp[lindex] = gindex < n ? in[gindex] : 0.f;
    if (threadIdx.x < RADIUS) {
        temp[lindex - RADIUS] = gindex >= RADIUS ? in[gindex - RADIUS] : 0.f;
        temp[lindex + BLOCK_SIZE] = gindex + BLOCK_SIZE < n ? in[gindex + BLOCK_SIZE] : 0.f;
    }
    __syncthreads();
    float result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++)
        result += c_coef[offset + RADIUS] * temp[lindex + offset];
    if (gindex < n) out[gindex] = result;
}

class Timer {
  public:
    Timer() { cudaEventCreate(&start_); cudaEventCreate(&stop_); }
    ~Timer() { cudaEventDestroy(start_); cudaEventDestroy(stop_); }
    void Start() { cudaEventRecord(start_, 0); }
    float Stop() { float t; cudaEventRecord(stop_, 0); cudaEventSynchronize(stop_); cudaEventElapsedTime(&t, start_, stop_); return t; }
  private:
    cudaEvent_t start_, stop_;
};

void launch(const float* in, float* out, int n) {
    dim3 block(BLOCK_SIZE);
    dim3 grid((n + block.x - 1) / block.x);
    stencil_1d<<<grid, block, 0>>>(in, out, n);
}

int main() {
    const size_t bytes = NX * sizeof(float);
    float coef[2 * RADIUS + 1] = {0.1f, 0.1f, 0.2f, 0.2f, 0.2f, 0.1f, 0.1f};
    cudaMemcpyToSymbol(c_coef, coef, sizeof(coef));
    std::unique_ptr<float[]> h(new float[NX]);
    float *d_in, *d_out;
    cudaMallocManaged(&d_in, bytes);
    cudaMallocManaged(&d_out, bytes);
    for (int i = 0; i < NX; ++i) d_in[i] = i;
    Timer timer;
    timer.Start();
    launch(d_in, d_out, NX);
    cudaDeviceSynchronize();
    std::cout << timer.Stop() << " ms" << std::endl;
    std::for_each(h.get(), h.get() + NX, [](float& x) { x = 0; });
    cudaFree(d_in); cudaFree(d_out);
    return 0;
}
