// Double, C first, and a whole program around the kernel.
#include <chrono>
#include <cuda.h>
#include <iostream>
#include <vector>
#define TILE_WIDTH 16
#define CHECK(call) { cudaError_t e = call; if (e != cudaSuccess) { printf("%s\n", cudaGetErrorString(e)); exit(1); } }
using namespace std;

__global__ void MatMulKernel(double *out, double *left, double *right, int M, int N, int K)
{
    __shared__ double ls[TILE_WIDTH][TILE_WIDTH];
    __shared__ double rs[TILE_WIDTH][TILE_WIDTH];
    int tx = threadIdx.x, ty = threadIdx.y;
    int r = blockIdx.y * TILE_WIDTH + ty, c = blockIdx.x * TILE_WIDTH + tx;
    double acc = 0;
    for (int t = 0; t < (K - 1) / TILE_WIDTH + 1; ++t) {
        if (r < M && t * TILE_WIDTH + tx < K) ls[ty][tx] = left[r * K + t * TILE_WIDTH + tx];
        else ls[ty][tx] = 0;
        if (c < N && t * TILE_WIDTH + ty < K) rs[ty][tx] = right[(t * TILE_WIDTH + ty) * N + c];
        else rs[ty][tx] = 0;
        __syncthreads();
        for (int k = 0; k < TILE_WIDTH; ++k) acc += ls[ty][k] * rs[k][tx];
        __syncthreads();
    }
    if (r < M && c < N) out[r * N + c] = acc;
}

static void fill(vector<double> &v) { for (auto &x : v) x = rand() / (double)RAND_MAX; }

int main(int argc, char **argv)
{
    int M = 500, N = 300, K = 700;
    vector<double> a(M * K), b(K * N), c(M * N);
    fill(a); fill(b);
    double *da, *db, *dc;
    CHECK(cudaMalloc(&da, a.size() * 8)); CHECK(cudaMalloc(&db, b.size() * 8)); CHECK(cudaMalloc(&dc, c.size() * 8));
    dim3 block(TILE_WIDTH, TILE_WIDTH);
    dim3 grid((N + TILE_WIDTH - 1) / TILE_WIDTH, (M + TILE_WIDTH - 1) / TILE_WIDTH);
    MatMulKernel<<<grid, block>>>(dc, da, db, M, N, K);
    cudaDeviceSynchronize();
    cout << c[0] << endl;
}
