#include <stdio.h>
#include <stdlib.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <chrono>
#include <random>
#include <string>

#define TILE_WIDTH 16
#define checkCudaErrors(x) do { if ((x) != cudaSuccess) { printf("error %d\n", __LINE__); exit(1); } } while (0)

struct Matrix { int rows, cols; std::vector<float> data; };

__global__ void MatrixMulShared(float* A, float* B, float* C, int M, int N, int K) {
    __shared__ float As[TILE_WIDTH][TILE_WIDTH];
    __shared__ float Bs[TILE_WIDTH][TILE_WIDTH];
    int row = blockIdx.y * TILE_WIDTH + threadIdx.y;
    int col = blockIdx.x * TILE_WIDTH + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE_WIDTH - 1) / TILE_WIDTH; ++t) {
        As[threadIdx.y][threadIdx.x] = row < M && t * TILE_WIDTH + threadIdx.x < K ? A[row * K + t * TILE_WIDTH + threadIdx.x] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = col < N && t * TILE_WIDTH + threadIdx.y < K ? B[(t * TILE_WIDTH + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE_WIDTH; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

__global__ void MatrixMulNaive(float* A, float* B, float* C, int M, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = sum;
    }
}

void randomize(float* p, int n) {
    std::mt19937 gen(42);
    std::uniform_real_distribution<float> dist(-1, 1);
    for (int i = 0; i < n; i++) p[i] = dist(gen);
}

int main(int argc, char* argv[]) {
    int M = 1024, N = 512, K = 256;
    if (argc > 1) M = atoi(argv[1]);
    float *h_A = (float*)malloc(sizeof(float) * M * K);
    float *h_B = (float*)malloc(sizeof(float) * K * N);
    float *h_C = (float*)malloc(sizeof(float) * M * N);
    randomize(h_A, M * K); randomize(h_B, K * N);
    float *d_A, *d_B, *d_C;
    checkCudaErrors(cudaMalloc(reinterpret_cast<void**>(&d_A), sizeof(float) * M * K));
    checkCudaErrors(cudaMalloc(reinterpret_cast<void**>(&d_B), sizeof(float) * K * N));
    checkCudaErrors(cudaMalloc(reinterpret_cast<void**>(&d_C), sizeof(float) * M * N));
    cudaMemcpy(d_A, h_A, sizeof(float) * M * K, cudaMemcpyHostToDevice);
    cudaMemcpy(d_B, h_B, sizeof(float) * K * N, cudaMemcpyHostToDevice);
    dim3 dimBlock(TILE_WIDTH, TILE_WIDTH);
    dim3 dimGrid((N + dimBlock.x - 1) / dimBlock.x, (M + dimBlock.y - 1) / dimBlock.y);
    cudaEvent_t start, stop;
    cudaEventCreate(&start); cudaEventCreate(&stop);
    cudaEventRecord(start);
    MatrixMulShared<<<dimGrid, dimBlock>>>(d_A, d_B, d_C, M, N, K);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    printf("%.2f GFLOP/s\n", 2.0 * M * N * K / ms / 1e6);
    MatrixMulNaive<<<dimGrid, dimBlock>>>(d_A, d_B, d_C, M, N, K);
    cublasHandle_t handle;
    cublasCreate(&handle);
    float alpha = 1, beta = 0;
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &alpha, d_B, N, d_A, K, &beta, d_C, N);
    cudaMemcpy(h_C, d_C, sizeof(float) * M * N, cudaMemcpyDeviceToHost);
    free(h_A); free(h_B); free(h_C);
    return 0;
}
