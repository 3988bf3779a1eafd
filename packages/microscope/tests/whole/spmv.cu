#include <cassert>
#include <cstdint>
#include <random>
#include <vector>
struct CSR {
  int rows, cols, nnz;
  const int* rowPtr;
  const int* colInd;
  const double* val;
};
__global__ void spmv_vector(CSR m, const double* x, double* y) {
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x & 31;
  if (warp >= m.rows) return;
  double sum = 0;
  for (int i = m.rowPtr[warp] + lane; i < m.rowPtr[warp + 1]; i += 32) sum += m.val[i] * x[m.colInd[i]];
  for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (lane == 0) y[warp] = sum;
}
int main(int argc, char** argv) {
  const int rows = 256, per = 8;
  std::vector<int> rp(rows + 1), ci;
  std::vector<double> va, x(rows, 1.0);
  std::mt19937 gen(42);
  std::uniform_int_distribution<int> pick(0, rows - 1);
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < per; ++k) {
      ci.push_back(pick(gen));
      va.push_back(1.0);
    }
    rp[r + 1] = ci.size();
  }
  CSR m;
  m.rows = rows;
  m.cols = rows;
  m.nnz = ci.size();
  int *d_rp, *d_ci;
  double *d_va, *d_x, *d_y;
  cudaMalloc(&d_rp, rp.size() * sizeof(int));
  cudaMalloc(&d_ci, ci.size() * sizeof(int));
  cudaMalloc(&d_va, va.size() * sizeof(double));
  cudaMalloc(&d_x, x.size() * sizeof(double));
  cudaMalloc(&d_y, rows * sizeof(double));
  cudaMemcpy(d_rp, rp.data(), rp.size() * sizeof(int), cudaMemcpyHostToDevice);
  m.rowPtr = d_rp;
  m.colInd = d_ci;
  m.val = d_va;
  spmv_vector<<<rows * 32 / 128, 128>>>(m, d_x, d_y);
  cudaDeviceSynchronize();
}
