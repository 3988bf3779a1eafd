#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <cuda_runtime.h>
#include <helper_cuda.h>

#define NUM_BINS 256
#define SIZE (100 * 1024)

__global__ void histo_kernel(unsigned char *buffer, long size, unsigned int *histo) {
    __shared__ unsigned int temp[NUM_BINS];
    temp[threadIdx.x] = 0;
    __syncthreads();
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    int offset = blockDim.x * gridDim.x;
    while (i < size) {
        atomicAdd(&temp[buffer[i]], 1);
        i += offset;
    }
    __syncthreads();
    atomicAdd(&(histo[threadIdx.x]), temp[threadIdx.x]);
}

int main(void) {
    unsigned char *buffer = (unsigned char*) malloc(SIZE);
    for (int i = 0; i < SIZE; i++) buffer[i] = rand();
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    cudaEventRecord(start, 0);
    unsigned char *dev_buffer;
    unsigned int *dev_histo;
    cudaMalloc((void**) &dev_buffer, SIZE);
    cudaMemcpy(dev_buffer, buffer, SIZE, cudaMemcpyHostToDevice);
    cudaMalloc((void**) &dev_histo, NUM_BINS * sizeof(int));
    cudaMemset(dev_histo, 0, NUM_BINS * sizeof(int));
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    int blocks = prop.multiProcessorCount;
    histo_kernel<<<blocks * 2, 256>>>(dev_buffer, SIZE, dev_histo);
    unsigned int histo[256];
    cudaMemcpy(histo, dev_histo, 256 * sizeof(int), cudaMemcpyDeviceToHost);
    std::map<int, int> seen;
    for (int i = 0; i < 256; i++) seen[i] = histo[i];
    cudaFree(dev_histo); cudaFree(dev_buffer);
    free(buffer);
}
