// As constructs.cu, for blocks of 64 threads in clusters of two along x, which reach each other's shared memory.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define KERNEL(name) template <typename T> __global__ void name(const T* A, const T* B, T* C, int n, int p, int m)
#define ME (static_cast<int>(threadIdx.x))
#define RANK (static_cast<int>(blockIdx.x % 2))
#define OUT C[64 * RANK + ME]

__device__ __forceinline__ unsigned number(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }
__device__ __forceinline__ unsigned in_block(unsigned own, unsigned rank)
{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there;
}
__device__ __forceinline__ void meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void meet_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void make(unsigned long long* b, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(number(b)), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned long long* b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(number(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive_at(unsigned long long* b, int rank)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(in_block(number(b), rank)) : "memory");
}
__device__ __forceinline__ void wait_for(unsigned long long* b, int parity)
{
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@!p bra L;\n}"
                 ::"r"(number(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void spread(void* to, const void* from, int bytes, unsigned long long* b, int blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 ::"r"(number(to)), "l"(from), "r"(bytes), "r"(number(b)), "h"(static_cast<unsigned short>(blocks)) : "memory");
}

KERNEL(clean_registers)
{
    unsigned rank, blocks, x, clusters, first;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(first));
    assert(rank == RANK && x == RANK && blocks == 2 && clusters == gridDim.x / 2 && first == blockIdx.x / 2);
    const cg::cluster_group cluster = cg::this_cluster();
    assert(cluster.block_rank() == rank && cluster.num_blocks() == 2 && cluster.dim_blocks().x == 2);
    assert(cluster.thread_rank() == 64 * rank + ME && cluster.num_threads() == 128 && cluster.block_index().x == rank);
    __shared__ int own;
    unsigned asked;
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(asked) : "r"(in_block(number(&own), 1)));
    assert(asked == 1 && cluster.query_shared_rank(&own) == rank && __isShared(&own));
    const int* const theirs = cluster.map_shared_rank(&own, 1 - rank);
    assert(!__isShared(theirs) && __isClusterShared(theirs));
    assert(in_block(in_block(number(&own), 1), rank) == number(&own));
    if (ME == 0) own = 0;
    OUT = 0;
}
KERNEL(clean_exchange)
{
    __shared__ int values[64];
    const cg::cluster_group cluster = cg::this_cluster();
    values[ME] = 100 * RANK + ME;
    cluster.sync();
    const int* const theirs = cluster.map_shared_rank(values, 1 - RANK);
    assert(theirs[63 - ME] == 100 * (1 - RANK) + 63 - ME);
    assert(values[ME ^ 1] == 100 * RANK + (ME ^ 1));
    cluster.sync();
    OUT = 0;
}
KERNEL(faulty_exchange_without_barrier)
{
    __shared__ int values[64];
    meet();
    values[ME] = ME;
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME];  // FAULT
    meet();
}
KERNEL(faulty_exchange_with_barriers_of_blocks)
{
    __shared__ int values[64];
    meet();
    values[ME] = ME;
    __syncthreads();
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME];  // FAULT
    meet();
}
KERNEL(faulty_exchange_by_relaxed_barrier)
{
    __shared__ int values[64];
    values[ME] = ME;
    meet_relaxed();
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME];  // FAULT
    meet();
}
KERNEL(faulty_write_after_read)
{
    __shared__ int values[64];
    values[ME] = ME;
    meet();
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME];
    __syncthreads();
    values[ME] = 7;  // FAULT
    meet();
}
KERNEL(faulty_neighbour_may_have_ended)
{
    __shared__ int values[64];
    values[ME] = ME;
    meet();
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME];  // FAULT
}
KERNEL(clean_end_by_relaxed_barrier)
{
    __shared__ int values[64];
    values[ME] = ME;
    meet();
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME];
    meet_relaxed();
}
KERNEL(faulty_neighbour_may_not_have_started)
{
    __shared__ int values[64];
    if (RANK == 0) cg::this_cluster().map_shared_rank(values, 1)[ME] = 5;  // FAULT
    meet();
    OUT = RANK ? values[ME] : 0;
}
KERNEL(faulty_address_in_neighbour)
{
    __shared__ int values[64];
    values[ME] = ME;
    meet();
    OUT = cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME + p / 2];  // FAULT
    meet();
}
KERNEL(faulty_trap_no_such_block)
{
    __shared__ int values[64];
    values[ME] = ME;
    meet();
    OUT = cg::this_cluster().map_shared_rank(values, RANK + 1)[ME];  // FAULT
    meet();
}
KERNEL(faulty_barrier_count_one_block)
{
    if (RANK == 0) meet();  // FAULT
    else if (ME < 64) for (;;) { __shared__ unsigned long long b; if (ME == 0) make(&b, 65); __syncthreads(); wait_for(&b, 0); }
    OUT = 0;
}
KERNEL(faulty_vote_arrives_twice)
{
    __cluster_barrier_arrive();
    __cluster_barrier_arrive();  // FAULT
    __cluster_barrier_wait();
    OUT = 0;
}
KERNEL(faulty_vote_never_arrives)
{
    __cluster_barrier_wait();  // FAULT
    OUT = 0;
}
KERNEL(clean_split_barrier)
{
    __shared__ int values[64];
    values[ME] = ME;
    __cluster_barrier_arrive();
    const int own = ME * 2;
    __cluster_barrier_wait();
    assert(static_cast<int*>(__cluster_map_shared_rank(values, 1 - RANK))[ME ^ 3] == (ME ^ 3) && own == 2 * ME);
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    OUT = 0;
}
KERNEL(clean_atomics_in_neighbour)
{
    __shared__ int sum;
    if (ME == 0) sum = 0;
    meet();
    atomicAdd(cg::this_cluster().map_shared_rank(&sum, 0), 1);
    meet();
    if (RANK == 0) assert(sum == 128);
    OUT = 0;
}
KERNEL(clean_numbers_of_neighbour)
{
    __shared__ int values[64];
    const unsigned there = in_block(number(values + ME), 1 - RANK);
    meet();
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(RANK * 64 + ME) : "memory");
    meet();
    int own, theirs;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(own) : "r"(number(values + ME)) : "memory");
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(theirs) : "r"(there) : "memory");
    assert(own == (1 - RANK) * 64 + ME && theirs == RANK * 64 + ME);
    meet();
    OUT = 0;
}
KERNEL(clean_mbarrier_of_neighbour)
{
    __shared__ int values[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 64);
    meet();
    cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME] = ME;
    arrive_at(&full, 1 - RANK);
    wait_for(&full, 0);
    assert(values[63 - ME] == 63 - ME);
    meet();
    OUT = 0;
}
KERNEL(faulty_signal_before_data)
{
    __shared__ int values[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 64);
    meet();
    arrive_at(&full, 1 - RANK);
    cg::this_cluster().map_shared_rank(values, 1 - RANK)[ME] = ME;
    wait_for(&full, 0);
    OUT = values[63 - ME];  // FAULT
    meet();
}
KERNEL(clean_multicast)
{
    __shared__ alignas(16) T halves[2][64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    meet();
    if (ME == 0) {
        expect(&full, 2 * 64 * sizeof(T));
        spread(halves[RANK], A + 64 * RANK, 64 * sizeof(T), &full, 3);
    }
    wait_for(&full, 0);
    assert(halves[0][ME] == A[ME] && halves[1][ME] == A[64 + ME]);
    meet();
    OUT = 0;
}
KERNEL(faulty_mbarrier_bytes_of_one_block)
{
    __shared__ alignas(16) T halves[2][64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    meet();
    if (ME == 0) {
        expect(&full, 2 * 64 * sizeof(T));
        spread(halves[RANK], A + 64 * RANK, 64 * sizeof(T), &full, 1 << RANK);
    }
    wait_for(&full, 0);  // FAULT
    OUT = halves[0][ME] + halves[1][ME];
    meet();
}
KERNEL(faulty_multicast_overwrites)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    meet();
    T sum = 0;
    for (int k = 0; k < 2; ++k) {
        if (ME == 0) {
            expect(&full, 64 * sizeof(T));
            if (RANK == 0) spread(tile, A + 64 * k, 64 * sizeof(T), &full, 3);  // FAULT
        }
        wait_for(&full, k);
        sum += tile[63 - ME];
        __syncthreads();
    }
    OUT = sum;
    meet();
}
KERNEL(faulty_copy_not_waited_for_in_neighbour)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    meet();
    if (ME == 0) expect(&full, 64 * sizeof(T));
    if (ME == 0 && RANK == 0) spread(tile, A, 64 * sizeof(T), &full, 3);
    if (RANK == 0) wait_for(&full, 0);
    meet();
    OUT = tile[ME];  // FAULT
    meet();
}
KERNEL(clean_copy_between_blocks)
{
    __shared__ alignas(16) int from[64], to[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    from[ME] = 64 * RANK + ME;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    meet();
    if (ME == 0) {
        expect(&full, sizeof from);
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(in_block(number(to), 1 - RANK)), "r"(number(from)), "r"(static_cast<int>(sizeof from)),
                     "r"(in_block(number(&full), 1 - RANK)) : "memory");
    }
    wait_for(&full, 0);
    assert(to[ME] == 64 * (1 - RANK) + ME);
    meet();
    OUT = 0;
}
KERNEL(clean_asynchronous_stores)
{
    __shared__ int values[64];
    __shared__ unsigned long long full;
    if (ME == 0) {
        make(&full, 1);
        expect(&full, sizeof values);
    }
    meet();
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 ::"r"(in_block(number(values + ME), 1 - RANK)), "r"(RANK + ME), "r"(in_block(number(&full), 1 - RANK)) : "memory");
    wait_for(&full, 0);
    assert(values[63 - ME] == 1 - RANK + 63 - ME);
    meet();
    OUT = 0;
}
KERNEL(faulty_mbarrier_of_another_block)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    meet();
    if (ME == 0 && RANK == 0) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"  // FAULT
                     ::"r"(in_block(number(tile), 1)), "l"(A), "r"(number(&full)) : "memory");
    }
    meet();
    OUT = 0;
}
