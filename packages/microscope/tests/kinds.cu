// Pairs of kernels: what is wrong in NAME_faulty, at the line that ends with FAULT or REMARK, is right in NAME.
// test_kinds.py launches each with two blocks of 64 threads.
#include <cuda.h>
#include <cuda/atomic>
#include <cuda_fp16.h>

// ---- Local variables without a value, and nothing is expected -------------------------------------------------------

__global__ void sum_of_floats(const float* in, float* out)
{
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += in[i];
    out[threadIdx.x] = sum;
}
__global__ void sum_of_floats_faulty(const float* in, float* out)
{
    float sum;  // FAULT
    for (int i = 0; i < 4; ++i) sum += in[i];
    out[threadIdx.x] = sum;
}
__global__ void count_of_ints(const float* in, int* found)
{
    int count = 0;
    for (int i = 0; i < 4; ++i) count += in[i] > 0;
    found[threadIdx.x] = count * 3;
}
__global__ void count_of_ints_faulty(const float* in, int* found)
{
    int count;  // FAULT
    for (int i = 0; i < 4; ++i) count += in[i] > 0;
    found[threadIdx.x] = count * 3;
}
__global__ void element_of_an_array(const float* in, double* wide)
{
    double parts[8];
    for (int i = 0; i < 8; ++i) parts[i] = in[i];
    wide[threadIdx.x] = parts[threadIdx.x % 8];
}
__global__ void element_of_an_array_faulty(const float* in, double* wide)
{
    double parts[8];  // FAULT
    for (int i = 0; i < 7; ++i) parts[i] = in[i];
    wide[threadIdx.x] = parts[threadIdx.x % 8];
}
__global__ void count_of_one_branch(const float* in, int* found)
{
    int count = -1;
    for (int i = 0; i < 4; ++i)
        if (in[threadIdx.x] == 3 * i + 1) count = i;
    found[threadIdx.x] = count;
}
__global__ void count_of_one_branch_faulty(const float* in, int* found)
{
    int count;  // FAULT
    for (int i = 0; i < 4; ++i)
        if (in[threadIdx.x] == 3 * i + 1) count = i;
    found[threadIdx.x] = count;
}
__global__ void element_of_which_a_flag_tells(const float* in, double* wide)
{
    bool is_large;
    is_large = in[threadIdx.x] > 40;
    wide[threadIdx.x] = is_large ? 7 : 9;
}
__global__ void element_of_which_a_flag_tells_faulty(const float* in, double* wide)
{
    bool is_large;  // FAULT
    if (in[threadIdx.x] > 40) is_large = true;
    wide[threadIdx.x] = is_large ? 7 : 9;
}
__global__ void count_of_a_switch(const float* in, int* found)
{
    long long worth;
    switch (int(in[threadIdx.x]) % 3) {
    case 0: worth = 1; break;
    case 1: worth = 10; break;
    default: worth = 100; break;
    }
    found[threadIdx.x] = worth;
}
__global__ void count_of_a_switch_faulty(const float* in, int* found)
{
    long long worth;  // FAULT
    switch (int(in[threadIdx.x]) % 3) {
    case 0: worth = 1; break;
    case 1: worth = 10; break;
    }
    found[threadIdx.x] = worth;
}
// ---- Updates by a load and a store ----------------------------------------------------------------------------------

__global__ void volatile_counter(int* count)
{
    atomicAdd(count, 1);
}
__global__ void volatile_counter_faulty(volatile int* count)
{
    *count = *count + 1;  // FAULT
}
__global__ void split_k(float* total, const float* in)
{
    if (threadIdx.x == 0) atomicAdd(total, in[blockIdx.x]);
}
__global__ void split_k_faulty(volatile float* total, const float* in)
{
    if (threadIdx.x == 0) total[0] += in[blockIdx.x];  // FAULT
}
__global__ void store_of_a_sum(int* count)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> all(*count);
    all.fetch_add(2, cuda::memory_order_relaxed);
}
__global__ void store_of_a_sum_faulty(int* count)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> all(*count);
    const int before = all.load(cuda::memory_order_relaxed);
    all.store(before + 2, cuda::memory_order_relaxed);  // FAULT
}
__global__ void exchange_of_a_sum(unsigned* flag)
{
    unsigned before = atomicAdd(flag, 0), assumed;
    do {
        assumed = before;
        before = atomicCAS(flag, assumed, assumed + 3);
    } while (before != assumed);
}
__global__ void exchange_of_a_sum_faulty(unsigned* flag)
{
    const unsigned before = atomicAdd(flag, 0);
    atomicExch(flag, before + 3);  // FAULT
}
__global__ void exchange_of_a_literal(unsigned* flag)
{
    atomicAdd(flag, 3);
    atomicExch(flag, 3);
    atomicOr(flag, 4);
}
__global__ void maximum_by_ptx(unsigned* flag)
{
    asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(flag), "r"(threadIdx.x) : "memory");
}
__global__ void maximum_by_ptx_faulty(unsigned* flag)
{
    unsigned before;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(flag) : "memory");
    if (threadIdx.x > before || blockIdx.x)
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(before + 1) : "memory");  // FAULT
}
// Right, though each loads and stores: a lock, turns, and a flag that all set alike.
__global__ void volatile_sum_in_a_lock(int* lock, volatile int* count)
{
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *count = *count + 1;
    __threadfence();
    atomicExch(lock, 0);
}
__global__ void in_turns(volatile int* count)
{
    if (threadIdx.x) return;
    while (*count != blockIdx.x) {}
    *count = *count + 1;
}
__global__ void found_by_all(volatile int* count)
{
    if (!*count) *count = 1;
}

// ---- Barriers, and the proxy of wgmma -------------------------------------------------------------------------------

__global__ void barrier_0_of_a_warp(float* out)
{
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 32;" ::: "memory");
    __syncthreads();
    if (blockIdx.x == 0) out[threadIdx.x] = 1;
}
__global__ void barrier_0_of_a_warp_faulty(float* out)
{
    if (threadIdx.x < 32) asm volatile("bar.sync 0, 32;" ::: "memory");  // FAULT
    __syncthreads();
    if (blockIdx.x == 0) out[threadIdx.x] = 1;
}
__global__ void barrier_0_arrives(float* out)
{
    if (threadIdx.x >= 32) asm volatile("bar.arrive 2, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 64;" ::: "memory");
    __syncthreads();
    if (blockIdx.x == 0) out[threadIdx.x] = 1;
}
__global__ void barrier_0_arrives_faulty(float* out)
{
    if (threadIdx.x >= 32) asm volatile("barrier.sync 0, 32;" ::: "memory");  // FAULT
    if (__syncthreads_or(threadIdx.x == 1) && blockIdx.x == 0) out[threadIdx.x] = 1;
}
__global__ void exit_before_a_barrier(float* out)
{
    if (threadIdx.x < 40 && blockIdx.x == 0) out[threadIdx.x] = 1;
    __syncthreads();
}
__global__ void exit_before_a_barrier_faulty(float* out)
{
    if (threadIdx.x >= 40) return;
    if (blockIdx.x == 0) out[threadIdx.x] = 1;
    __syncthreads();  // REMARK
}

#define TILES(fence)                                                                                       \
    __shared__ alignas(1024) half tile[64 * 64];                                                                       \
    const unsigned to = (unsigned)__cvta_generic_to_shared(tile);                                                      \
    for (int k = threadIdx.x; k < 64 * 64 / 8; k += blockDim.x)                                                        \
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 16 * k), "l"(tiles + 8 * k) : "memory");    \
    asm volatile("cp.async.wait_all;" ::: "memory");                                                                   \
    fence;                                                                                                             \
    __syncthreads();                                                                                                   \
    const unsigned long long d = (to & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
#define WGMMA(fence, start, wait)                                                                                       \
    TILES(fence)                                                                                                       \
    float c[4] = {0, 0, 0, 0};                                                                                         \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                            \
    start asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"     \
                       : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(d), "l"(d));  \
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                                                     \
    wait;                                                                                                              \
    if (blockIdx.x == 0) sums[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
#define PROXY asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define THROUGH                                                                                                        \
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])::"memory")

__global__ void wgmma_of_copies(const half* tiles, float* sums)
{
    WGMMA(PROXY, , THROUGH)
}
__global__ void wgmma_of_copies_faulty(const half* tiles, float* sums)
{
    WGMMA(, , THROUGH)  // FAULT
}
__global__ void wgmma_waited_for(const half* tiles, float* sums)
{
    WGMMA(PROXY, , asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"))
}
__global__ void wgmma_waited_for_faulty(const half* tiles, float* sums)
{
    WGMMA(PROXY, , )  // FAULT
}
__global__ void wgmma_of_all_warps(const half* tiles, float* sums)
{
    WGMMA(PROXY, if (threadIdx.x < 256), THROUGH)
}
__global__ void wgmma_of_all_warps_faulty(const half* tiles, float* sums)
{
    WGMMA(PROXY, if (threadIdx.x >= 32), THROUGH)  // FAULT
}

// Registers of products: between what a thread does with them and the next product there is a wgmma.fence.
#define PTX(text) asm volatile(text ";" ::: "memory")
#define FENCE PTX("wgmma.fence.sync.aligned")
#define WAIT PTX("wgmma.commit_group.sync.aligned"); PTX("wgmma.wait_group.sync.aligned 0")
#define MULTIPLY(shape, kind, a, A, b, more)                                                                         \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8" shape " {%0, %1, %2, %3}, " a ", " b ", 1" more ";"               \
                 : kind(c[0]), kind(c[1]), kind(c[2]), kind(c[3]) : A, "l"(d))
#define OF_TILES(shape, kind, more) MULTIPLY(shape, kind, "%4", "l"(d), "%5", more)
#define _ ,
#define FRAGMENT "r"(a[0]) _ "r"(a[1]) _ "r"(a[2]) _ "r"(a[3])
#define OF_FRAGMENT(shape, more) MULTIPLY(shape, "+f", "{%4, %5, %6, %7}", FRAGMENT, "%8", more)
#define RESULT if (blockIdx.x == 0) sums[threadIdx.x] = c[0] + c[1] + c[2] + c[3]

__global__ void wgmma_scaled(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    for (int k = 0; k < 2; ++k) {
        for (float& each : c) each *= 0.5f;
        FENCE;
        OF_TILES("k16.f32.f16.f16", "+f", ", 1, 1, 0, 0");
        WAIT;
    }
    RESULT;
}
__global__ void wgmma_scaled_faulty(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    FENCE;
    for (int k = 0; k < 2; ++k) {
        for (float& each : c) each *= 0.5f;  // FAULT
        OF_TILES("k16.f32.f16.f16", "+f", ", 1, 1, 0, 0");
        WAIT;
    }
    RESULT;
}
__global__ void wgmma_cleared(const half* tiles, float* sums)
{
    TILES(PROXY)
    int c[4];
    for (int& each : c) each = 0;
    FENCE;
    OF_TILES("k32.s32.s8.u8", "+r", "");
    OF_TILES("k32.s32.s8.u8", "+r", "");
    WAIT;
    RESULT;
}
__global__ void wgmma_cleared_faulty(const half* tiles, float* sums)
{
    TILES(PROXY)
    int c[4];
    FENCE;
    for (int& each : c) each = 0;  // FAULT
    OF_TILES("k32.s32.s8.u8", "+r", "");
    OF_TILES("k32.s32.s8.u8", "+r", "");
    WAIT;
    RESULT;
}
__global__ void wgmma_fragment_loaded(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    unsigned a[4];
    memcpy(a, tiles + 8 * threadIdx.x, 16);
    FENCE;
    OF_FRAGMENT("k16.f32.bf16.bf16", ", 1, 1, 0");
    WAIT;
    RESULT;
}
__global__ void wgmma_fragment_loaded_faulty(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    unsigned a[4];
    FENCE;
    memcpy(a, tiles + 8 * threadIdx.x, 16);  // FAULT
    OF_FRAGMENT("k16.f32.bf16.bf16", ", 1, 1, 0");
    WAIT;
    RESULT;
}
// Two fragments in turns: a product reads one while the other is loaded.
__global__ void wgmma_fragment_overwritten(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    unsigned fragments[2][4];
    for (int k = 0; k < 4; ++k) {
        unsigned(&a)[4] = fragments[k % 2];
        for (int e = 0; e < 4; ++e) a[e] = 1065353216 + k;
        FENCE;
        OF_FRAGMENT("k8.f32.tf32.tf32", ", 1, 1");
        PTX("wgmma.commit_group.sync.aligned");
        PTX("wgmma.wait_group.sync.aligned 1");
    }
    WAIT;
    RESULT;
}
__global__ void wgmma_fragment_overwritten_faulty(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    unsigned a[4];
    for (int k = 0; k < 4; ++k) {
        for (int e = 0; e < 4; ++e) a[e] = 1065353216 + k;  // FAULT
        FENCE;
        OF_FRAGMENT("k8.f32.tf32.tf32", ", 1, 1");
        PTX("wgmma.commit_group.sync.aligned");
        PTX("wgmma.wait_group.sync.aligned 1");
    }
    WAIT;
    RESULT;
}
// By name, and by a function that is given copies.
__device__ void multiplied(float (&c)[4], unsigned x, unsigned y, unsigned long long d)
{
    MULTIPLY("k16.f32.f16.f16", "+f", "{%4, %5, %6, %7}", "r"(x) _ "r"(y) _ "r"(x) _ "r"(y), "%8", ", 1, 1, 0");
}
__global__ void wgmma_fragment_of_names_overwritten(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    for (unsigned k = 0; k < 3; ++k) {
        FENCE;
        multiplied(c, k, k + 1, d);
    }
    WAIT;
    RESULT;
}
__global__ void wgmma_fragment_of_names_overwritten_faulty(const half* tiles, float* sums)
{
    TILES(PROXY)
    float c[4] = {};
    unsigned low = 15360, high = 15360 << 16;
    FENCE;
    MULTIPLY("k16.f32.f16.f16", "+f", "{%4, %5, %6, %7}", "r"(low) _ "r"(high) _ "r"(low) _ "r"(high), "%8",
             ", 1, 1, 0");
    PTX("wgmma.commit_group.sync.aligned");
    high = threadIdx.x;  // FAULT
    PTX("wgmma.wait_group.sync.aligned 0");
    if (high < 1000) RESULT;
}

// The registers of a block are those that its threads have at its start.
#define REGISTERS(fewer, more)                                                                                         \
    if (threadIdx.x < 128) PTX("setmaxnreg.dec.sync.aligned.u32 " #fewer);                                             \
    else PTX("setmaxnreg.inc.sync.aligned.u32 " #more);                                                                \
    if (blockIdx.x == 0 && threadIdx.x < 64) out[threadIdx.x] = 1;

__launch_bounds__(384, 1)
__global__ void setmaxnreg_of_bounds(float* out)
{
    REGISTERS(24, 240)
}
__launch_bounds__(384, 1)
__global__ void setmaxnreg_of_bounds_faulty(float* out)
{
    REGISTERS(32, 240)  // FAULT
}
__launch_bounds__(384, 2)
__global__ void setmaxnreg_of_two_blocks(float* out)
{
    REGISTERS(24, 104)
}
__launch_bounds__(384, 2)
__global__ void setmaxnreg_of_two_blocks_faulty(float* out)
{
    REGISTERS(24, 112)  // FAULT
}
__maxnreg__(128)
__global__ void setmaxnreg_of_maxnreg(float* out)
{
    REGISTERS(40, 168)
}
__maxnreg__(128)
__global__ void setmaxnreg_of_maxnreg_faulty(float* out)
{
    REGISTERS(40, 176)  // FAULT
}

// Each thread waits for its ticket; one of them does not hand it on.
#define TICKETS(HANDED_ON)                                                                                             \
    const int mine = atomicAdd(count, 1);                                                                              \
    while (atomicAdd(lock, 0) != mine)                                                                                 \
        ;                                                                                                              \
    __threadfence();                                                                                                   \
    found[threadIdx.x] = 1;                                                                                            \
    __threadfence();                                                                                                   \
    if (HANDED_ON) atomicAdd(lock, 1);
__global__ void spin_for_ticket(int* count, int* lock, int* found)
{
    TICKETS(true)
}
__global__ void spin_for_ticket_faulty(int* count, int* lock, int* found)
{
    TICKETS(mine != 5)  // FAULT
}

// ---- What a CPU computes otherwise ----------------------------------------------------------------------------------

__global__ void least_by_minus_one(int* least, const long long* others, long long* results)
{
    const int divisor = others[1];
    const long long wide = others[1];
    least[0] = least[0] / divisor;
    least[1] = least[1] % divisor;
    results[0] = others[0] / others[1];
    results[1] = others[0] % wide;
}

__global__ void shifts(int* shifted, int by)
{
    shifted[0] = 1u << by;
    shifted[1] = 0x80000000u >> by;
    shifted[2] = -8 >> by;
    shifted[3] = (1ull << by) >> 32;
    shifted[4] = 1 << (by - 33);
    shifted[5] = 3 << (by & 31) | 1u << (by - 30) << 1;
    shifted[6] = 5;
    shifted[6] <<= by;
    unsigned last = 0x80000000u;
    last >>= by;
    shifted[7] = last;
}
__global__ void conversions(long long* converted, float large, float nan, double wide)
{
    converted[0] = (int)large;
    converted[1] = static_cast<int>(-large);
    converted[2] = (int)nan;
    converted[3] = (unsigned)-large;
    converted[4] = (unsigned int)wide;
    converted[5] = (long long)nan;
    converted[6] = (int)(large / 10000) + (int)2.75f;
    converted[7] = (short)large;
    converted[8] = (unsigned char)large;
    converted[9] = static_cast<unsigned char>(-large);
}
__global__ void implicit_conversions(int* converted, float large, double small)
{
    converted[0] = small;
    const int beyond = large;
    converted[1] = beyond;
}
