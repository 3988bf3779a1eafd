// As constructs.cu, for what works beside the threads: copies, barriers in shared memory, tensor cores.
#include <cuda_fp16.h>
#include "ptx.cuh"

#define KERNEL(name) template <typename T> __global__ void name(const T* A, const T* B, T* C, int n, int p, int m)
#define ME (static_cast<int>(threadIdx.x))

template <int N>
__device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ __forceinline__ void make(unsigned long long* b, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(number(b)), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive(unsigned long long* b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(number(b)) : "memory");
}
__device__ __forceinline__ void show() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void show_to_units() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

KERNEL(clean_copies)
{
    __shared__ T tile[2][64];
    copy(&tile[0][ME], A + ME);
    commit();
    copy(&tile[1][ME], A + ME, 0);
    commit();
    wait<1>();
    assert(tile[0][ME] == A[ME]);
    wait<0>();
    __syncthreads();
    assert(tile[1][ME ^ 1] == T(0) && tile[0][63 - ME] == A[63 - ME]);
    C[ME] = 0;
}
KERNEL(clean_copy_counted_by_an_mbarrier_and_waited_for)
{
    __shared__ T tile[32];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 32), show();
    __syncthreads();
    if (ME < 32) {
        copy(&tile[ME], A + ME);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(number(&full)) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        assert(tile[ME] == A[ME]);
    } else {
        wait_for(&full, 0);
        assert(tile[63 - ME] == A[63 - ME]);
    }
}
KERNEL(faulty_write_after_arrival_with_copies)
{
    __shared__ T tile[32], late[32];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 32), show();
    __syncthreads();
    if (ME < 32) {
        copy(&tile[ME], A + ME);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(number(&full)) : "memory");
        late[ME] = 3;
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        wait_for(&full, 0);
        C[ME] = tile[63 - ME] + late[63 - ME];  // FAULT
    }
}
KERNEL(faulty_copy_not_waited_for)
{
    __shared__ T tile[64];
    copy(&tile[ME], A + ME);
    commit();
    wait<1>();
    C[ME] = tile[ME];  // FAULT
}
KERNEL(faulty_copy_without_barrier)
{
    __shared__ T tile[64];
    copy(&tile[ME], A + ME);
    commit();
    wait<0>();
    C[ME] = tile[63 - ME];  // FAULT
}
KERNEL(faulty_copy_overwrites)
{
    __shared__ T tile[64];
    tile[ME] = ME;
    __syncthreads();
    const T mine = tile[63 - ME];
    copy(&tile[ME], A + ME);  // FAULT
    wait<0>();
    asm volatile("cp.async.wait_all;" ::: "memory");
    C[ME] = mine;
}
KERNEL(clean_mbarrier)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full, empty;
    if (ME == 0) make(&full, 1), make(&empty, 2), show();
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (ME == 0) {
            if (round) wait_for(&empty, round - 1 & 1);
            expect(&full, 64 * sizeof(T));
            bulk(tile, A, 64 * sizeof(T), &full);
        }
        wait_for(&full, round & 1);
        assert(tile[63 - ME] == A[63 - ME]);
        show_to_units();
        __syncwarp();
        if (ME % 32 == 0) arrive(&empty);
    }
    C[ME] = 0;
}
KERNEL(faulty_mbarrier_tile_not_fenced)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full, empty;
    if (ME == 0) make(&full, 1), make(&empty, 64), show();
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (ME == 0) {
            if (round) wait_for(&empty, round - 1 & 1);
            expect(&full, 64 * sizeof(T));
            bulk(tile, A, 64 * sizeof(T), &full);  // FAULT
        }
        wait_for(&full, round & 1);
        assert(tile[63 - ME] == A[63 - ME]);
        arrive(&empty);
    }
    C[ME] = 0;
}
KERNEL(faulty_mbarrier_not_waited_for)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1), show();
    __syncthreads();
    if (ME == 0) expect(&full, 64 * sizeof(T)), bulk(tile, A, 64 * sizeof(T), &full);
    if (ME < 32) wait_for(&full, 0);
    C[ME] = tile[ME];  // FAULT
}
KERNEL(faulty_mbarrier_count)
{
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 65), show();
    __syncthreads();
    arrive(&full);
    wait_for(&full, 0);  // FAULT
    C[ME] = 0;
}
KERNEL(faulty_mbarrier_too_many)
{
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 3), show();
    __syncthreads();
    if (ME == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 4;" ::"r"(number(&full)) : "memory");  // FAULT
    C[ME] = 0;
}
KERNEL(faulty_mbarrier_bytes)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1), show();
    __syncthreads();
    if (ME == 0) expect(&full, 32 * sizeof(T)), bulk(tile, A, 64 * sizeof(T), &full);
    wait_for(&full, 0);  // FAULT
    C[ME] = tile[ME];
}
KERNEL(faulty_mbarrier_not_shown)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    if (ME == 0) make(&full, 1);
    __syncthreads();
    if (ME == 0) expect(&full, 64 * sizeof(T)), bulk(tile, A, 64 * sizeof(T), &full);  // FAULT
    wait_for(&full, 0);
    C[ME] = tile[ME];
}
KERNEL(faulty_mbarrier_not_made)
{
    __shared__ unsigned long long full;
    arrive(&full);  // FAULT
    C[ME] = 0;
}
KERNEL(faulty_stage_overwritten)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full, empty;
    if (ME == 0) make(&full, 1), make(&empty, 1), show();  // of two warps
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (ME == 0) {
            if (round) wait_for(&empty, round - 1 & 1);
            expect(&full, 64 * sizeof(T));
            bulk(tile, A, 64 * sizeof(T), &full);  // FAULT
        }
        wait_for(&full, round & 1);
        C[ME] = tile[63 - ME];
        __syncwarp();
        if (ME == 0) arrive(&empty);
    }
}
KERNEL(faulty_stage_given_back_by_half)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full, empty;
    if (ME == 0) make(&full, 1), make(&empty, 32), show();
    __syncthreads();
    if (ME == 0) expect(&full, 64 * sizeof(T)), bulk(tile, A, 64 * sizeof(T), &full);
    wait_for(&full, 0);
    const T first = tile[ME];
    if (ME < 32) arrive(&empty);
    if (ME == 0) {
        wait_for(&empty, 0);
        expect(&full, 64 * sizeof(T));
        bulk(tile, A, 64 * sizeof(T), &full);  // FAULT
    }
    wait_for(&full, 1);
    C[ME] = first + tile[ME];
}
__device__ __forceinline__ void store_run(void* to, const void* from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"
                 ::"l"(to), "r"(number(from)), "r"(bytes) : "memory");
}
KERNEL(clean_bulk_store)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        store_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
    tile[ME] = 0;
}
KERNEL(faulty_bulk_store_without_fence)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    __syncthreads();
    if (ME == 0) {
        store_run(C, tile, 64 * sizeof(T));  // FAULT
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
KERNEL(faulty_bulk_store_not_waited_for)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) store_run(C, tile, 64 * sizeof(T));
    __syncthreads();
    tile[ME] = 0;  // FAULT
}

KERNEL(clean_bulk_store_read_back)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        store_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    assert(C[63 - ME] == T(63 - ME));
}
KERNEL(faulty_bulk_store_read_back_too_early)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        store_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
    tile[ME] = C[63 - ME];  // FAULT
}

KERNEL(faulty_bulk_store_read_back_beside_another)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        store_run(C, tile, 64 * sizeof(T));
        store_run(C + 4, tile + 4, 4 * sizeof(T));
        C[40] = T(1);  // FAULT
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
KERNEL(faulty_bulk_store_twice)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        store_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        store_run(C, tile + 32, 32 * sizeof(T));  // FAULT
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
__device__ unsigned told;  // set by the first block when it has stored
KERNEL(clean_bulk_store_told_between_blocks)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0 && blockIdx.x == 0) {
        store_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        __threadfence();
        atomicExch(&told, 1u);
    }
    if (blockIdx.x == 0) return;
    if (ME == 0) while (atomicExch(&told, 0u) == 0) {}
    __syncthreads();
    assert(C[63 - ME] == T(63 - ME));
}
KERNEL(faulty_bulk_store_told_too_early_between_blocks)
{
    __shared__ alignas(16) T tile[64];
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0 && blockIdx.x == 0) {
        store_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __threadfence();
        atomicExch(&told, 1u);
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    if (blockIdx.x == 0) return;
    if (ME == 0) while (atomicExch(&told, 0u) == 0) {}
    __syncthreads();
    C[64 + ME] = C[63 - ME];  // FAULT
}
__device__ __forceinline__ void add_run(void* to, const void* from, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to), "r"(number(from)), "r"(bytes) : "memory");
}
KERNEL(clean_bulk_sum_twice)
{
    __shared__ alignas(16) T tile[64];
    C[ME] = tile[ME] = T(ME);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (ME == 0) {
        add_run(C, tile, 64 * sizeof(T));
        add_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    assert(C[63 - ME] == T(3 * (63 - ME)));
}
__device__ unsigned tickets;
KERNEL(faulty_bulk_sum_told_too_early_to_the_last_block)
{
    __shared__ alignas(16) T tile[64];
    __shared__ bool last;
    tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        add_run(C, tile, 64 * sizeof(T));
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __threadfence();
        last = atomicInc(&tickets, 1) == 1;
        __threadfence();
    }
    __syncthreads();
    if (last) C[64 + ME] = C[63 - ME];  // FAULT
    if (ME == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
KERNEL(faulty_bulk_sum_onto_what_was_not_shown)
{
    __shared__ alignas(16) T tile[64];
    C[ME] = tile[ME] = T(ME);
    show_to_units();
    __syncthreads();
    if (ME == 0) {
        add_run(C, tile, 64 * sizeof(T));  // FAULT
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
// ---- Copies of what the kernel has written ------------------------------------------------------------------------------------

KERNEL(faulty_source_of_a_copy_overwritten)
{
    __shared__ T tile[64];
    C[ME] = T(ME);
    copy(&tile[ME], C + ME);  // FAULT
    commit();
    C[ME] = T(2 * ME + 1);
    asm volatile("cp.async.wait_all;" ::: "memory");
}
KERNEL(clean_copy_of_what_was_written)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    C[ME] = T(ME);
    if (ME == 0) make(&full, 1), show();
    asm volatile("fence.proxy.async.global;" ::: "memory");
    __syncthreads();
    if (ME == 0) {
        expect(&full, 64 * sizeof(T));
        bulk(tile, C, 64 * sizeof(T), &full);
    }
    wait_for(&full, 0);
    C[ME] = tile[63 - ME] + 1;
}
KERNEL(faulty_bulk_copy_of_what_was_not_shown)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    C[ME] = T(ME);
    if (ME == 0) make(&full, 1), show();
    __syncthreads();
    if (ME == 0) {
        expect(&full, 64 * sizeof(T));
        bulk(tile, C, 64 * sizeof(T), &full);  // FAULT
    }
    wait_for(&full, 0);
    C[ME] = tile[63 - ME] + 1;
}
KERNEL(faulty_source_of_a_bulk_copy_overwritten)
{
    __shared__ alignas(16) T tile[64];
    __shared__ unsigned long long full;
    C[ME] = T(ME);
    if (ME == 0) make(&full, 1), show();
    asm volatile("fence.proxy.async.global;" ::: "memory");
    __syncthreads();
    if (ME == 0) {
        expect(&full, 64 * sizeof(T));
        bulk(tile, C, 64 * sizeof(T), &full);  // FAULT
        C[3] = T(70);
    }
    wait_for(&full, 0);
    C[ME] = tile[63 - ME] + 1;
}

// ---- ldmatrix and mma.sync --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(number(row)) : "memory");
}
KERNEL(clean_mma)  // 16 x 16 times 16 x 8 of half: A[i][k] = i, B[k][j] = (k == j)
{
    __shared__ alignas(16) __half a[16][16];
    for (int i = ME; i < 256; i += 64) a[i / 16][i % 16] = __float2half(i / 16 + 16 * (i % 16));
    __syncthreads();
    const int lane = ME % 32, g = lane / 4, t = lane % 4;
    unsigned r[4];
    load_matrices(r, &a[lane % 16][lane / 16 * 8]);
    unsigned b[2] = {0, 0};
    const __half one = __float2half(1);
    for (int e = 0; e < 2; ++e) if (2 * t + e == g) b[0] = static_cast<unsigned>(__half_as_ushort(one)) << 16 * e;
    float c[4] = {1, 1, 1, 1};
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(b[0]), "r"(b[1]));
    for (int v = 0; v < 4; ++v) assert(c[v] == g + 8 * (v / 2) + 16 * (2 * t + v % 2) + 1);
    C[ME] = 0;
}
KERNEL(faulty_mma_without_some_lanes)
{
    float c[4] = {};
    if (ME % 32 < 31)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"  // FAULT
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(0));
    C[ME] = c[0];
    __syncwarp();
}
KERNEL(faulty_ldmatrix_misaligned)
{
    __shared__ alignas(16) __half a[512];
    for (int i = ME; i < 512; i += 64) a[i] = __float2half(1);
    __syncthreads();
    unsigned r[4];
    load_matrices(r, a + ME % 32 * 8 + 4);  // FAULT
    C[ME] = r[0];
}
