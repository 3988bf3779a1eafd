// As constructs.cu, for what CUDA's own C++ library offers: cuda::barrier, cuda::pipeline, cuda::ptx, and the copies of
// cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

#define KERNEL(name) template <typename T> __global__ void name(const T* A, const T* B, T* C, int n, int p, int m)
#define ME (static_cast<int>(threadIdx.x))

// ---- cuda::pipeline ----------------------------------------------------------------------------------------------------

KERNEL(clean_pipeline_of_a_thread)
{
    __shared__ T tile[2][64];
    cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
    for (int k = 0; k < 2; ++k) {
        pipe.producer_acquire();
        cuda::memcpy_async(&tile[k][ME], A + 64 * k + ME, sizeof(T), pipe);
        pipe.producer_commit();
    }
    for (int k = 0; k < 2; ++k) {
        pipe.consumer_wait();
        __syncthreads();
        assert(tile[k][63 - ME] == A[64 * k + 63 - ME]);
        pipe.consumer_release();
    }
    C[ME] = 0;
}
KERNEL(faulty_copy_not_waited_for_in_a_threads_pipeline)
{
    __shared__ T tile[2][64];
    auto pipe = cuda::make_pipeline();
    for (int k = 0; k < 2; ++k) {
        cuda::memcpy_async(&tile[k][ME], A + 64 * k + ME, sizeof(T), pipe);
        pipe.producer_commit();
    }
    pipe.consumer_wait();
    C[ME] = tile[0][ME]
        + tile[1][ME];  // FAULT
}
KERNEL(clean_wait_prior)
{
    __shared__ T tile[2][64];
    auto pipe = cuda::make_pipeline();
    for (int k = 0; k < 2; ++k) {
        pipe.producer_acquire();
        cuda::memcpy_async(&tile[k][ME], A + 64 * k + ME, cuda::aligned_size_t<4>(sizeof(T)), pipe);
        pipe.producer_commit();
    }
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    assert(tile[0][ME] == A[ME]);
    cuda::pipeline_consumer_wait_prior<0>(pipe);
    assert(tile[1][ME] == A[64 + ME]);
    C[ME] = 0;
}
#define RING(ACQUIRE, WAIT, RELEASE)                                                                      \
    __shared__ T tile[2][64];                                                                             \
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;                            \
    const auto block = cg::this_thread_block();                                                           \
    auto pipe = cuda::make_pipeline(block, &state);                                                       \
    T sum = 0;                                                                                            \
    for (int next = 0, k = 0; k < 5; ++k) {                                                               \
        for (; next < 5 && next < k + 2; ++next) {                                                        \
            ACQUIRE                                                                                       \
            cuda::memcpy_async(block, tile[next % 2], A + 16 * next, 64 * sizeof(T), pipe);                   \
            pipe.producer_commit();                                                                       \
        }                                                                                                 \
        WAIT                                                                                              \
        sum += tile[k % 2][63 - ME];                                                                      \
        RELEASE                                                                                           \
    }                                                                                                     \
    C[ME] = sum;
KERNEL(clean_pipeline_of_a_block)
{
    RING(pipe.producer_acquire();, pipe.consumer_wait();, pipe.consumer_release();)
    T expected = 0;
    for (int k = 0; k < 5; ++k) expected += A[16 * k + 63 - ME];
    assert(sum == expected);
}
KERNEL(faulty_copy_not_waited_for_in_a_pipeline)
{
    RING(pipe.producer_acquire();, , pipe.consumer_release();)  // FAULT
}
KERNEL(faulty_copy_not_acquired_in_a_pipeline)
{
    RING(, pipe.consumer_wait();, pipe.consumer_release();)  // FAULT
}
KERNEL(faulty_mbarrier_count_not_released_in_a_pipeline)
{
    RING(pipe.producer_acquire();, pipe.consumer_wait();, )  // FAULT
}
KERNEL(clean_pipeline_of_producers_and_consumers)
{
    __shared__ T tile[2][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    const auto block = cg::this_thread_block();
    const bool produces = ME < 32;
    auto pipe = cuda::make_pipeline(block, &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    for (int k = 0; k < 4; ++k) {
        if (produces) {
            pipe.producer_acquire();
            cuda::memcpy_async(&tile[k % 2][ME], A + 32 * k + ME, sizeof(T), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            assert(tile[k % 2][63 - ME] == A[32 * k + 63 - ME]);
            pipe.consumer_release();
        }
    }
    C[ME] = 0;
}

// ---- cuda::barrier -------------------------------------------------------------------------------------------------------

KERNEL(clean_barrier_and_its_copies)
{
    __shared__ T tile[64];
    __shared__ Barrier barrier;
    if (ME == 0) init(&barrier, 64);
    __syncthreads();
    for (int k = 0; k < 2; ++k) {
        cuda::memcpy_async(&tile[ME], A + 64 * k + ME, sizeof(T), barrier);
        barrier.arrive_and_wait();
        assert(tile[63 - ME] == A[64 * k + 63 - ME]);
        barrier.wait(barrier.arrive());
    }
    C[ME] = 0;
}
KERNEL(faulty_copy_not_waited_for_at_its_barrier)
{
    __shared__ T tile[64];
    __shared__ Barrier barrier;
    if (ME == 0) init(&barrier, 64);
    __syncthreads();
    cuda::memcpy_async(&tile[ME], A + ME, sizeof(T), barrier);
    auto token = barrier.arrive();
    C[ME] = tile[ME];  // FAULT
    barrier.wait(std::move(token));
}
KERNEL(clean_copies_counted_in_bytes)
{
    __shared__ alignas(16) T tile[64];
    __shared__ Barrier barrier;
    if (ME == 0) {
        init(&barrier, 64);
        cuda::device::experimental::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    if (ME == 0) cuda::memcpy_async(tile, A, cuda::aligned_size_t<16>(sizeof tile), barrier);
    barrier.wait(barrier.arrive());
    assert(tile[63 - ME] == A[63 - ME]);
    C[ME] = 0;
}

// ---- The copies of cooperative groups --------------------------------------------------------------------------------------

KERNEL(clean_copies_of_a_group)
{
    __shared__ T tile[2][64];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile[0], A, 64 * sizeof(T));
    cg::memcpy_async(block, tile[1], A + 64, 64 * sizeof(T));
    cg::wait_prior<1>(block);
    assert(tile[0][63 - ME] == A[63 - ME]);
    cg::wait(block);
    assert(tile[1][63 - ME] == A[127 - ME]);
    C[ME] = 0;
}
KERNEL(faulty_copy_not_waited_for_by_a_group)
{
    __shared__ T tile[64];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, A, 64 * sizeof(T));
    block.sync();
    C[ME] = tile[ME];  // FAULT
}

KERNEL(clean_scans_and_parts)
{
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    const int rank = tile.thread_rank();
    assert(cg::inclusive_scan(tile, 2) == 2 * rank + 2 && cg::exclusive_scan(tile, 2, cg::plus<int>()) == 2 * rank);
    const auto half = cg::binary_partition(tile, rank % 2);
    assert(half.size() == 4 && half.thread_rank() == rank / 2 && cg::reduce(half, rank, cg::plus<int>()) == (rank % 2 ? 16 : 12));
    const auto third = cg::labeled_partition(tile, rank / 3);
    assert(third.size() == (rank < 6 ? 3 : 2) && third.ballot(rank % 3 == 1) == 2 && third.match_any(7) == (1u << third.size()) - 1);
    assert(cg::invoke_one_broadcast(tile, [] { return 7; }) == 7 && third.shfl_down(rank, 1) >= rank);
    C[ME] = 0;
}
__device__ inline int sum_of(const cg::thread_group& group, int* shared, int value)
{
    shared[ME] = value;
    group.sync();
    int sum = 0;
    for (unsigned k = 0; k < group.size(); ++k) sum += shared[ME - group.thread_rank() + k];
    group.sync();
    return sum;
}
KERNEL(clean_any_group)
{
    __shared__ int shared[64];
    const auto block = cg::this_thread_block();
    assert(sum_of(block, shared, 1) == 64 && sum_of(cg::tiled_partition(block, 4), shared, 2) == 8);
    const cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    assert(sum_of(tile, shared, 1) == 16);
    C[ME] = 0;
}
KERNEL(faulty_group_too_small)
{
    __shared__ int shared[64];
    const cg::thread_group tile = cg::tiled_partition(cg::this_thread_block(), 16);
    shared[ME] = ME;
    tile.sync();
    C[ME] = shared[ME ^ 16];  // FAULT
}
KERNEL(faulty_shuffle_lane_elsewhere_in_a_scan)
{
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    C[ME] = 0;
    if (tile.thread_rank() < 4) C[ME] = cg::inclusive_scan(tile, 1);  // FAULT
    __syncthreads();
}

// ---- cuda::ptx -------------------------------------------------------------------------------------------------------------

KERNEL(clean_functions_of_ptx)
{
    __shared__ alignas(128) T tile[64];
    __shared__ uint64_t full;
    if (ME == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (ME == 0) {
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, A, sizeof tile, &full);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof tile);
    }
    while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
    assert(tile[63 - ME] == A[63 - ME] && ptx::get_sreg_cluster_ctarank() == 0 && ptx::get_sreg_tid_x() == ME);
    __syncthreads();
    tile[ME] = ME;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (ME == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, C, tile, sizeof tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}
KERNEL(faulty_copy_not_waited_for_in_ptx)
{
    __shared__ alignas(128) T tile[64];
    __shared__ uint64_t full;
    if (ME == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, A, sizeof tile, &full);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof tile);
    }
    __syncthreads();
    C[ME] = tile[ME];  // FAULT
    while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
}

// ---- Blocks that wait for each other ---------------------------------------------------------------------------------------

__device__ unsigned here;
__device__ inline void meet_by_counting(bool shows)
{
    __syncthreads();
    if (ME == 0) {
        if (shows) __threadfence();
        const unsigned wanted = (atomicAdd(&here, 1) / gridDim.x + 1) * gridDim.x;
        while (atomicAdd(&here, 0) < wanted) {}
        if (shows) __threadfence();
    }
    __syncthreads();
}
__device__ float left_there[128];
KERNEL(clean_counting_barrier_between_blocks)
{
    for (int round = 0; round < 3; ++round) {
        left_there[64 * blockIdx.x + ME] = 10 * round + ME;
        meet_by_counting(true);
        assert(left_there[64 * (1 - blockIdx.x) + 63 - ME] == 10 * round + 63 - ME);
        meet_by_counting(true);
    }
    C[64 * blockIdx.x + ME] = 0;
}
KERNEL(faulty_no_fence_between_blocks)
{
    left_there[64 * blockIdx.x + ME] = ME;
    meet_by_counting(false);
    C[64 * blockIdx.x + ME] = left_there[64 * (1 - blockIdx.x) + 63 - ME];  // FAULT
}
KERNEL(clean_grid_between_blocks)
{
    const auto grid = cg::this_grid();
    assert(grid.size() == 128 && grid.thread_rank() == 64 * blockIdx.x + ME && grid.num_blocks() == 2);
    for (int round = 0; round < 3; ++round) {
        left_there[64 * blockIdx.x + ME] = 10 * round + ME;
        grid.sync();
        assert(left_there[64 * (1 - blockIdx.x) + 63 - ME] == 10 * round + 63 - ME);
        cg::sync(grid);
    }
    C[64 * blockIdx.x + ME] = 0;
}
KERNEL(faulty_grid_written_again_between_blocks)
{
    const auto grid = cg::this_grid();
    left_there[64 * blockIdx.x + ME] = ME;
    grid.sync();
    C[64 * blockIdx.x + ME] = left_there[64 * (1 - blockIdx.x) + ME];
    left_there[64 * blockIdx.x + ME] = 7;  // FAULT
    grid.sync();
}
KERNEL(clean_grid_and_block_between_blocks)
{
    __shared__ float own[64];
    own[ME] = 100 * blockIdx.x + ME;
    left_there[64 * blockIdx.x + ME] = ME;
    cg::this_grid().sync();
    assert(own[63 - ME] == 100 * blockIdx.x + 63 - ME && cg::this_cluster().block_rank() == 0 && cg::this_cluster().num_blocks() == 1);
    cg::this_cluster().sync();
    own[ME] = left_there[64 * (1 - blockIdx.x) + ME];
    __syncthreads();
    assert(own[63 - ME] == 63 - ME);
    C[64 * blockIdx.x + ME] = 0;
}
