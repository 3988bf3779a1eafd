// As constructs.cu: mistakes that look right. Blocks of 64 threads; two of them where the name says "blocks".
#include <cuda_fp16.h>
#include <mma.h>
#include "ptx.cuh"

#define KERNEL(name) template <typename T> __global__ void name(const T* A, const T* B, T* C, int n, int p, int m)
#define ME (static_cast<int>(threadIdx.x))
#define OTHER (63 - ME)

__device__ __forceinline__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ __forceinline__ void make(unsigned long long* b, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(number(b)), "r"(count) : "memory");
}

// ---- The end of a block ----------------------------------------------------------------------------------------------------

KERNEL(faulty_copy_not_waited_for_at_all)
{
    __shared__ T tile[64];
    copy(&tile[ME], A + ME);  // FAULT
    commit();
    C[ME] = 0;
}
KERNEL(faulty_bulk_copy_not_waited_for_at_all)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    __syncthreads();
    if (ME == 0) {
        expect(&full, 64 * sizeof(T));
        bulk(tile, A, 64 * sizeof(T), &full);  // FAULT
    }
    C[ME] = 0;
}
KERNEL(faulty_bulk_store_without_wait_at_all)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = ME;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (ME == 0)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"  // FAULT
                     ::"l"(C), "r"(number(tile)), "r"(static_cast<int>(64 * sizeof(T))) : "memory");
}
KERNEL(clean_copy_of_nothing_from_nowhere)
{
    __shared__ T tile[64];
    copy(&tile[ME], ME < 32 ? A + ME : A + 1000000, ME < 32 ? 4 : 0);
    commit();
    wait_all();
    __syncthreads();
    assert(tile[OTHER] == (OTHER < 32 ? A[OTHER] : T(0)));
    C[ME] = 0;
}

// ---- Flags -----------------------------------------------------------------------------------------------------------------

KERNEL(clean_flag_between_blocks)  // block 1 waits for block 0
{
    static __device__ unsigned ready = 0;
    if (blockIdx.x == 1) {
        if (ME == 0) while (atomicAdd(&ready, 0) == 0) {}
        __syncthreads();
        __threadfence();
        assert(C[OTHER] == T(ME));
    }
    C[64 * blockIdx.x + OTHER] = T(ME);
    __threadfence();
    __syncthreads();
    if (ME == 0) atomicExch(&ready, 1);
}
KERNEL(clean_flag_between_blocks_the_other_way)  // block 0 waits for block 1, as stream-K does
{
    static __device__ volatile unsigned ready = 0;
    if (blockIdx.x == 0) {
        if (ME == 0) while (ready == 0) {}
        __syncthreads();
        __threadfence();
        assert(C[64 + OTHER] == T(ME));
    }
    C[64 * blockIdx.x + OTHER] = T(ME);
    __threadfence();
    __syncthreads();
    if (ME == 0) ready = 1;
}
KERNEL(clean_flag_between_blocks_by_acquire_and_release)
{
    static __device__ unsigned ready = 0;
    if (blockIdx.x == 1) {
        unsigned seen = 0;
        if (ME == 0) while (seen == 0) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(&ready) : "memory");
        __syncthreads();
        assert(C[OTHER] == T(ME));
    }
    C[64 * blockIdx.x + OTHER] = T(ME);
    __syncthreads();
    if (ME == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&ready), "r"(1) : "memory");
}
KERNEL(faulty_flag_between_blocks_without_fence)
{
    static __device__ unsigned ready = 0;
    T before = 0;
    if (blockIdx.x == 1) {
        if (ME == 0) while (atomicAdd(&ready, 0) == 0) {}
        __syncthreads();
        before = C[OTHER];  // FAULT
    }
    C[64 * blockIdx.x + OTHER] = before;
    __syncthreads();
    if (ME == 0) atomicExch(&ready, 1);
}
KERNEL(faulty_flag_between_blocks_without_barrier)  // one thread has waited, the others have not
{
    static __device__ unsigned ready = 0;
    T before = 0;
    if (blockIdx.x == 1) {
        if (ME == 0) while (atomicAdd(&ready, 0) == 0) {}
        before = C[OTHER];  // FAULT
    }
    C[64 * blockIdx.x + OTHER] = before;
    __threadfence();
    __syncthreads();
    if (ME == 0) atomicExch(&ready, 1);
}
KERNEL(faulty_flag_between_blocks_of_another_tile)  // waits for a flag that says nothing of what it reads
{
    static __device__ unsigned ready[2] = {0, 0}, other = 1;
    T before = 0;
    if (blockIdx.x == 1) {
        if (ME == 0) while (atomicAdd(&other, 0) == 0) {}
        __syncthreads();
        __threadfence();
        before = C[OTHER];  // FAULT
    }
    C[64 * blockIdx.x + OTHER] = before;
    __threadfence();
    __syncthreads();
    if (ME == 0) atomicExch(&ready[blockIdx.x], 1);
}
KERNEL(clean_flag_between_warps)
{
    __shared__ unsigned ready;
    __shared__ T value;
    if (ME == 0) ready = 0;
    __syncthreads();
    if (ME == 32) {
        value = 7;
        __threadfence_block();
        atomicExch(&ready, 1);
    }
    if (ME == 0) {
        while (atomicAdd(&ready, 0) == 0) {}
        __threadfence_block();
        assert(value == 7);
    }
    C[ME] = 0;
}
KERNEL(faulty_flag_between_warps_without_fence)
{
    __shared__ unsigned ready;
    __shared__ T value;
    if (ME == 0) ready = 0;
    __syncthreads();
    T got = 0;
    if (ME == 32) {
        value = 7;
        atomicExch(&ready, 1);
    }
    if (ME == 0) {
        while (atomicAdd(&ready, 0) == 0) {}
        got = value;  // FAULT
    }
    C[ME] = got;
}
KERNEL(clean_lock)
{
    static __device__ int lock = 0;
    static __device__ int sum = 0;
    if (ME % 32 == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {}
        __threadfence();
        sum += 1;
        __threadfence();
        atomicExch(&lock, 0);
    }
    C[ME] = 0;
}
KERNEL(faulty_lock_given_back_too_early)
{
    static __device__ int lock = 0;
    static __device__ int sum = 0;
    if (ME % 32 == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {}
        __threadfence();
        atomicExch(&lock, 0);
        sum += 1;  // FAULT
    }
    C[ME] = 0;
}
KERNEL(faulty_fence_is_no_barrier)
{
    __shared__ T tile[64];
    tile[ME] = A[ME];
    __threadfence_block();
    C[ME] = tile[OTHER];  // FAULT
}

// ---- Shared memory ---------------------------------------------------------------------------------------------------------

KERNEL(faulty_parts_that_overlap)
{
    __shared__ T memory[128];
    T* const a = memory;
    T* const b = memory + 60;  // 64 were meant
    a[ME] = A[ME];
    b[ME] = B[ME];  // FAULT
    __syncthreads();
    C[ME] = a[OTHER] + b[OTHER];
}
KERNEL(faulty_halves_of_a_word)  // each thread means its own 16 bits, but writes all 32
{
    __shared__ unsigned words[32];
    if (ME < 32) words[ME] = 0;
    __syncthreads();
    words[ME / 2] |= ME << 16 * (ME % 2);  // FAULT
    __syncthreads();
    C[ME] = words[ME / 2] & 1;
}
KERNEL(faulty_byte_of_a_counter)
{
    __shared__ unsigned counter;
    if (ME == 0) counter = 0;
    __syncthreads();
    if (ME < 32) atomicAdd(&counter, 1);
    else reinterpret_cast<unsigned char*>(&counter)[1] = 0;  // FAULT
    __syncthreads();
    C[ME] = counter;
}
KERNEL(faulty_histogram_read_early)
{
    __shared__ int counts[8];
    if (ME < 8) counts[ME] = 0;
    __syncthreads();
    atomicAdd(&counts[ME % 8], 1);
    C[ME] = counts[ME / 8];  // FAULT
}
KERNEL(faulty_buffers_swapped_early)
{
    __shared__ T tile[2][64];
    T sum = 0;
    tile[0][ME] = A[ME];
    for (int k = 0; k < 4; ++k) {
        __syncthreads();
        tile[k & 1][ME] = A[ME];  // FAULT
        sum += tile[k & 1][OTHER];
    }
    C[ME] = sum;
}
KERNEL(faulty_sum_not_begun)
{
    __shared__ T sums[2];
    T mine = ME;
    for (int d = 16; d; d /= 2) mine += __shfl_xor_sync(~0u, mine, d);
    if (ME % 32 == 0) sums[ME / 32] += mine;  // FAULT
    __syncthreads();
    C[ME] = sums[0] + sums[1];
}
KERNEL(faulty_barrier_only_at_the_end_of_a_round)
{
    __shared__ T row[64];
    T sum = 0;
    for (int k = 0; k < 2; ++k) {
        row[ME] = A[64 * k + ME];
        sum += row[OTHER];  // FAULT
        __syncthreads();
    }
    C[ME] = sum;
}
KERNEL(faulty_scan_in_place)
{
    __shared__ T row[64];
    row[ME] = A[ME];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        if (ME >= d) row[ME] += row[ME - d];  // FAULT
        __syncthreads();
    }
    C[ME] = row[ME];
}

// ---- Addresses -------------------------------------------------------------------------------------------------------------

KERNEL(faulty_address_of_an_atomic)
{
    atomicAdd(reinterpret_cast<unsigned*>(&C[n * m + ME / 32]), 1u);  // FAULT
    C[ME] = 0;
}
KERNEL(faulty_load_of_four_at_the_end)
{
    T sum = 0;
    for (int k = 4 * ME; k < n * p + 4; k += 256) {
        const float4 four = *reinterpret_cast<const float4*>(A + k);  // FAULT
        sum += four.x + four.w;
    }
    C[ME] = sum;
}
KERNEL(faulty_address_past_registers)
{
    T sums[4] = {};
    T* at = sums;
    for (int k = 0; k <= n * 2; ++k) at[k] = A[k];  // FAULT
    C[ME] = sums[0] + sums[3];
}
KERNEL(faulty_load_by_a_signed_char)  // 200 is -56
{
    const signed char column = static_cast<signed char>(ME + 137);
    C[ME] = A[column];  // FAULT
}
KERNEL(faulty_misaligned_half_of_a_pair)
{
    __shared__ half row[130];
    row[ME] = __float2half(1);
    row[64 + ME] = __float2half(1);
    __syncthreads();
    const half2 two = *reinterpret_cast<const half2*>(&row[ME + 1]);  // FAULT
    C[ME] = __low2float(two);
}

// ---- Copies and barriers in shared memory ----------------------------------------------------------------------------------

KERNEL(faulty_two_copies_to_one_place)
{
    __shared__ T tile[64];
    copy(&tile[ME], A + ME);
    copy(&tile[ME], B + ME);  // FAULT
    commit();
    wait_all();
    __syncthreads();
    C[ME] = tile[OTHER];
}
KERNEL(faulty_mbarrier_bytes_too_few)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    __syncthreads();
    if (ME == 0) {
        expect(&full, 32 * sizeof(T));
        bulk(tile, A, 64 * sizeof(T), &full);
    }
    wait_for(&full, 0);  // FAULT
    C[ME] = tile[OTHER];
}
KERNEL(faulty_barrier_over_a_tile)  // the tile's last element is the barrier
{
    __shared__ alignas(16) unsigned long long memory[33];
    unsigned long long* const full = memory + 31;
    T* const tile = reinterpret_cast<T*>(memory);
    if (ME == 0) make(full, 64);
    __syncthreads();
    tile[ME] = A[ME];  // FAULT
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(number(full)) : "memory");
    wait_for(full, 0);
    C[ME] = tile[OTHER];
}
KERNEL(faulty_copy_not_waited_for_by_the_other_warp)
{
    __shared__ T tile[64];
    copy(&tile[OTHER], A + ME);
    commit();
    if (ME < 32) wait_all();
    __syncthreads();
    C[ME] = tile[ME];  // FAULT
    wait_all();
}

// ---- Warps -----------------------------------------------------------------------------------------------------------------

KERNEL(faulty_mask_of_all_in_a_branch)
{
    T mine = ME;
    if (ME % 32 < 16) mine += __shfl_xor_sync(~0u, mine, 1);  // FAULT
    __syncthreads();
    C[ME] = mine;
}
KERNEL(faulty_shuffle_reads_lane_outside_the_living)
{
    if (ME % 32 >= 28) return;
    C[ME] = __shfl_down_sync(~0u, T(ME), 4);  // FAULT
}
KERNEL(faulty_mma_without_some_lanes_of_wmma)
{
    __shared__ alignas(32) half tile[256];
    for (int k = ME; k < 256; k += 64) tile[k] = __float2half(1);
    __syncthreads();
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major> b;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
    nvcuda::wmma::fill_fragment(c, 0.0f);
    if (ME % 32 != 5) {
        nvcuda::wmma::load_matrix_sync(a, tile, 16);  // FAULT
        nvcuda::wmma::load_matrix_sync(b, tile, 16);
        nvcuda::wmma::mma_sync(c, a, b, c);
    }
    C[ME] = c.x[0];
}
KERNEL(clean_registers_with_one_percent)  // as nvcc takes them
{
    unsigned lane;
    asm volatile("mov.u32 %0, %laneid;" : "=r"(lane));
    assert(lane == ME % 32);
    C[ME] = 0;
}
KERNEL(clean_wmma_of_doubles)
{
    __shared__ double a[32], b[32], c[64];
    if (ME < 32) a[ME] = ME, b[ME] = 100 + ME;
    __syncthreads();
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 8, 8, 4, double, nvcuda::wmma::row_major> left;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 8, 8, 4, double, nvcuda::wmma::col_major> right;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 8, 8, 4, double> sum;
    nvcuda::wmma::fill_fragment(sum, 1.0);
    nvcuda::wmma::load_matrix_sync(left, a, 4);
    nvcuda::wmma::load_matrix_sync(right, b, 4);
    nvcuda::wmma::mma_sync(sum, left, right, sum);
    if (ME < 32) nvcuda::wmma::store_matrix_sync(c, sum, 8, nvcuda::wmma::mem_row_major);
    __syncthreads();
    double wanted = 1;
    for (int k = 0; k < 4; ++k) wanted += a[ME / 8 * 4 + k] * b[ME % 8 * 4 + k];
    assert(c[ME] == wanted);
    C[ME] = 0;
}
KERNEL(clean_wmma_of_bytes)
{
    namespace wmma = nvcuda::wmma;
    __shared__ alignas(32) signed char left[32 * 16], right[16 * 16];
    __shared__ alignas(32) int sums[32 * 8];
    for (int e = ME; e < 32 * 16; e += 64) left[e] = e % 16 - 8;
    for (int e = ME; e < 16 * 16; e += 64) right[e] = e % 16 ? 127 : -128;
    __syncthreads();
    if (ME < 32) {
        wmma::fragment<wmma::matrix_a, 32, 8, 16, signed char, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 32, 8, 16, signed char, wmma::row_major> b;
        wmma::fragment<wmma::accumulator, 32, 8, 16, int> c;
        wmma::fill_fragment(c, 1 << 30);
        wmma::load_matrix_sync(a, left, 16);
        wmma::load_matrix_sync(b, right, 16);
        wmma::mma_sync(c, a, b, c);
        wmma::store_matrix_sync(sums, c, 8, wmma::mem_row_major);
    }
    __syncthreads();
    assert(sums[8] == (1 << 30) + 1024 && sums[9] == (1 << 30) - 1016);
    C[ME] = 0;
}
KERNEL(faulty_misaligned_fragment)
{
    namespace wmma = nvcuda::wmma;
    __shared__ alignas(32) half tile[512];
    for (int e = ME; e < 512; e += 64) tile[e] = half(1);
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::load_matrix_sync(a, tile + 8, 16);  // FAULT
    C[ME] = float(a.x[0]);
}
