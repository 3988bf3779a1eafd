#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <cstdio>
namespace cg = cooperative_groups;
template <typename T>
__global__ void reduceAll(const T* in, T* out, size_t n) {
  auto grid = cg::this_grid();
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<64>(block);
  T v = 0;
  for (size_t i = grid.thread_rank(); i < n; i += grid.num_threads()) v += in[i];
  v = cg::reduce(tile, v, cg::plus<T>());
  if (tile.thread_rank() == 0) atomicAdd(&out[blockIdx.x], v);
  grid.sync();
  if (grid.thread_rank() == 0)
    for (int b = 1; b < gridDim.x; ++b) out[0] += out[b];
}
int main(int argc, char** argv) {
  size_t n = 1'000'000;
  if (argc > 1) n = strtoul(argv[1], nullptr, 10);
  int* in;
  int* out;
  int block = 0, grid = 0;
  cudaMalloc(&in, n * sizeof(int));
  cudaMemset(in, 1, n * sizeof(int));
  cudaOccupancyMaxPotentialBlockSize(&grid, &block, reduceAll<int>, 0, 0);
  cudaMalloc(&out, grid * sizeof(int));
  cudaMemset(out, 0, grid * sizeof(int));
  void* args[] = {&in, &out, &n};
  cudaLaunchCooperativeKernel((void*)reduceAll<int>, dim3(grid), dim3(block), args, 0, 0);
  cudaDeviceSynchronize();
}
