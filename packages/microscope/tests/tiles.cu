// Tiles of more than one warp: what they compute, and what is wrong with how kernels use them.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

// ---- Results; the block has 1,024 threads ---------------------------------------------------------------------------

template <unsigned SIZE>
__global__ void collectives(const int* in, int* out, double* sums)
{
    __shared__ cg::block_tile_memory<1024> memory;
    const auto block = cg::this_thread_block(memory);
    const auto tile = cg::tiled_partition<SIZE>(block);
    const int x = in[block.thread_rank()];
    int* const mine = out + block.thread_rank() * 8;
    mine[0] = cg::reduce(tile, x, cg::plus<int>());
    mine[1] = cg::inclusive_scan(tile, x, cg::greater<int>());
    mine[2] = cg::exclusive_scan(tile, x);
    mine[3] = tile.shfl(x, 45);
    mine[4] = tile.any(x > 97) + 2 * tile.all(x >= 2);
    mine[5] = tile.meta_group_rank() * 1000 + tile.thread_rank();
    mine[6] = cg::invoke_one_broadcast(tile, [&] { return x; });
    const cg::thread_block_tile<16> small = cg::tiled_partition<16>(tile);
    mine[7] = small.meta_group_rank() + 100 * small.meta_group_size();
    sums[block.thread_rank()] = cg::reduce(tile, x * 0.5, cg::plus<double>());
}

// ---- Right, and faulty in one place; blocks of 256 threads ----------------------------------------------------------

__global__ void tree_right(const float* in, float* out)
{
    __shared__ float shared[256];
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    shared[threadIdx.x] = in[threadIdx.x];
    for (unsigned half = 32; half; half /= 2) {
        tile.sync();
        if (tile.thread_rank() < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = shared[threadIdx.x];
}
__global__ void tree_of_halves(const float* in, float* out)
{
    __shared__ float shared[256];
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    shared[threadIdx.x] = in[threadIdx.x];
    for (unsigned half = 32; half; half /= 2) {
        cg::tiled_partition<32>(tile).sync();
        if (tile.thread_rank() < half) shared[threadIdx.x] += shared[threadIdx.x + half];  // FAULT: race: shared
    }
    if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = shared[threadIdx.x];
}

__global__ void neighbours_right(const float* in, float* out)
{
    __shared__ float shared[256];
    const auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    shared[threadIdx.x] = in[threadIdx.x];
    tile.sync();
    out[threadIdx.x] = shared[threadIdx.x ^ 127];
}
__global__ void neighbours_unsynced(const float* in, float* out)
{
    __shared__ float shared[256];
    const auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    shared[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = shared[threadIdx.x ^ 127];  // FAULT: race: with no __syncthreads() between
}
__global__ void neighbours_of_another_tile(const float* in, float* out)
{
    __shared__ float shared[256];
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    shared[threadIdx.x] = in[threadIdx.x];
    cg::sync(tile);
    out[threadIdx.x] = shared[255 - threadIdx.x];  // FAULT: race: with no __syncthreads() between
}
__global__ void neighbours_after_a_vote(const double* in, double* out)
{
    __shared__ double shared[256];
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    shared[threadIdx.x] = in[threadIdx.x];
    const bool any = tile.any(in[threadIdx.x] > 0);
    out[threadIdx.x] = any ? shared[threadIdx.x ^ 32] : 0;  // FAULT: race: with no __syncthreads() between
}

// A whole tile may go its way.
__global__ void some_tiles_right(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    int sum = 0;
    if (tile.meta_group_rank() % 2) sum = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
    out[threadIdx.x] = sum;
}
__global__ void some_warps(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    int sum = 0;
    if (threadIdx.x < 96) sum = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());  // FAULT: deadlock: reduce() of a tile of 64 threads, to which 32 have come
    out[threadIdx.x] = sum;
}
__global__ void some_warps_end(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    out[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x >= 224) return;
    tile.sync();  // FAULT: deadlock: sync() of a tile of 128 threads, to which 96 have come
    out[threadIdx.x] += 1;
}
__global__ void some_lanes(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<256>(cg::this_thread_block());
    out[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x % 4 == 1) tile.sync();  // FAULT: deadlock: sync() of a tile of 256 threads, to which 64 have come
}
__global__ void half_of_each_warp(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    int found = in[threadIdx.x];
    if (threadIdx.x & 16)
        found = tile.any(found);  // FAULT: divergence: waits here for lane
    else
        __syncthreads();
    out[threadIdx.x] = found;
}
__global__ void two_calls(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    int found = in[threadIdx.x];
    if (tile.thread_rank() < 32)
        found = tile.any(found);
    else
        found = tile.all(found);  // FAULT: divergence: another warp of the tile at
    out[threadIdx.x] = found;
}
__global__ void two_sources(const long long* in, long long* out)
{
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    out[threadIdx.x] = tile.shfl(in[threadIdx.x], threadIdx.x / 32);  // FAULT: divergence: for the value of thread
}
__global__ void two_sources_of_a_warp(const long long* in, long long* out)
{
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    out[threadIdx.x] = tile.shfl(in[threadIdx.x], threadIdx.x / 2 % 64);  // FAULT: divergence: for the value of thread
}
__global__ void no_source(const int* in, int* out)
{
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    out[threadIdx.x] = tile.shfl(in[threadIdx.x], 64);  // FAULT: trap: a thread that the tile does not have
}
__global__ void made_by_half(const int* in, int* out)
{
    out[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x >= 128) return __syncthreads();
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());  // FAULT: divergence: waits here
    out[threadIdx.x] = tile.any(in[threadIdx.x]);
}

__global__ void copied_right(const int* in, int* out)
{
    __shared__ alignas(16) int shared[256];
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    int* const own = shared + 64 * tile.meta_group_rank();
    cg::memcpy_async(tile, own, in + 64 * tile.meta_group_rank(), 64 * sizeof(int));
    cg::wait(tile);
    out[threadIdx.x] = own[63 - tile.thread_rank()];
}
__global__ void copied_for_another(const int* in, int* out)
{
    __shared__ alignas(16) int shared[256];
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    cg::memcpy_async(tile, shared + 64 * tile.meta_group_rank(), in + 64 * tile.meta_group_rank(), 64 * sizeof(int));
    cg::wait(tile);
    out[threadIdx.x] = shared[255 - threadIdx.x];  // FAULT: race: with no __syncthreads() between
}
