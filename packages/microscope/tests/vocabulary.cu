// What CUDA has for few kernels: vectors of atomics, split barriers, functions at the end of a phase, carries, complex
// numbers, spans.
#include <cooperative_groups.h>
#include <cuComplex.h>
#include <cuda/barrier>
#include <cuda/std/array>
#include <cuda/std/atomic>
#include <cuda/std/span>
#include <cuda_device_runtime_api.h>

namespace cg = cooperative_groups;

__global__ void sums_of_vectors(const float4* in, float4* sums, float2* pairs)
{
    const float4 mine = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&sums[threadIdx.x % 2], mine);
    atomicAdd_system(&pairs[0], make_float2(mine.x, mine.y));
    atomicAdd(&pairs[0].y, 1.0f);  // an element by itself: no race
    float before;
    asm volatile("{.reg .f32 u; atom.global.add.v2.f32 {%0, u}, [%1], {%2, %3};}"
                 : "=f"(before) : "l"(pairs + 1), "f"(1.0f), "f"(2.0f) : "memory");
}
__global__ void sums_of_vectors_of_their_block(float2* pairs)
{
    atomicAdd_block(&pairs[0], make_float2(1, 2));  // FAULT
}
__global__ void vector_read_plainly(float4* sums, float* out)
{
    if (threadIdx.x < 32) atomicAdd(&sums[0], make_float4(1, 2, 3, 4));
    if (threadIdx.x == 32) out[0] = sums[0].w;  // FAULT
}
__global__ void vector_in_shared_memory(float* out)
{
    __shared__ float2 sum;
    if (threadIdx.x == 0) sum = make_float2(0, 0);
    __syncthreads();
    atomicAdd(&sum, make_float2(1, 2));  // FAULT
    out[0] = 0;
}

__device__ void between_arrival_and_wait(float* out, bool late)
{
    __shared__ float data[64];
    const cg::thread_block block = cg::this_thread_block();
    for (int round = 0; round < 3; ++round) {
        if (!late) data[threadIdx.x] = round + threadIdx.x;
        cg::thread_block::arrival_token token = block.barrier_arrive();
        if (late) data[threadIdx.x] = round + threadIdx.x;
        block.barrier_wait(static_cast<cg::thread_block::arrival_token&&>(token));
        out[threadIdx.x] = data[63 - threadIdx.x];  // FAULT
        block.sync();
    }
}
__global__ void arrived_and_waited(float* out) { between_arrival_and_wait(out, false); }
__global__ void written_after_arrival(float* out) { between_arrival_and_wait(out, true); }
__global__ void arrived_twice(float* out)
{
    const cg::thread_block block = cg::this_thread_block();
    block.barrier_arrive();
    block.barrier_wait(block.barrier_arrive());  // FAULT
    out[threadIdx.x] = 0;
}
__global__ void arrived_and_left(float* out)
{
    const cg::thread_block block = cg::this_thread_block();
    block.barrier_arrive();  // FAULT
    block.sync();
    out[threadIdx.x] = 0;
}
__global__ void arrived_in_grid_and_left(float* out)
{
    cg::this_grid().barrier_arrive();  // FAULT
    out[threadIdx.x] = 0;
}
__global__ void arrived_in_grid(float* data, float* out)
{
    const cg::grid_group grid = cg::this_grid();
    data[grid.thread_rank()] = grid.thread_rank();
    cg::grid_group::arrival_token token = grid.barrier_arrive();
    out[grid.thread_rank()] = 0;
    grid.barrier_wait(static_cast<cg::grid_group::arrival_token&&>(token));
    out[grid.thread_rank()] = data[127 - grid.thread_rank()];
}

__global__ void flag_in_shared_memory(float* out)
{
    __shared__ cuda::atomic<bool, cuda::thread_scope_block> flag;
    __shared__ float value;
    if (threadIdx.x == 0) flag.store(false);
    __syncthreads();
    if (threadIdx.x == 40) {
        value = 5;
        flag.store(true, cuda::std::memory_order_release);
    }
    while (!flag.load(cuda::std::memory_order_acquire)) {}
    out[threadIdx.x] = value;
}

struct Summing {
    float *parts, *sum;
    __device__ void operator()() const noexcept
    {
        for (int k = 0; k < 64; ++k) *sum += parts[k];  // FAULT
    }
};
template <bool WAITS>
__global__ void completed(float* out)
{
    using Barrier = cuda::barrier<cuda::thread_scope_block, Summing>;
    __shared__ alignas(Barrier) char place[sizeof(Barrier)];
    __shared__ float parts[64], sum;
    Barrier& barrier = *reinterpret_cast<Barrier*>(place);
    if (threadIdx.x == 0) {
        sum = 0;
        new (place) Barrier(64, Summing{parts, &sum});
    }
    __syncthreads();
    for (int round = 0; round < 2; ++round) {
        parts[threadIdx.x] = threadIdx.x;
        auto token = barrier.arrive();
        if (WAITS) barrier.wait(static_cast<Barrier::arrival_token&&>(token));
        out[64 * round + threadIdx.x] = sum;
        __syncthreads();
    }
}
__device__ cuda::barrier<cuda::thread_scope_device> of_all;
__global__ void met_in_device(float* data, float* out)
{
    const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    if (me == 0) init(&of_all, 128);
    cg::this_grid().sync();
    data[me] = me;
    of_all.arrive_and_wait();
    out[me] = data[127 - me];
}

__global__ void tiles(float* out, int size)
{
    out[threadIdx.x] = cg::tiled_partition(cg::this_thread_block(), size).size();  // FAULT
}

struct Point {
    float x, y;
    __device__ Point(float x, float y) : x(x), y(y) {}
};
__global__ void placed(Point* points, float* out)
{
    new (points + threadIdx.x) Point(threadIdx.x, 2);
    out[threadIdx.x] = points[threadIdx.x].x;
}
__global__ void placed_outside(Point* points)
{
    new (points + threadIdx.x + 1) Point(1, 2);  // FAULT
}

using Word = unsigned long long;
// Sums, differences and products of numbers of 128 bits. A statement leaves its carry to the next.
__global__ void carries(const Word* a, const Word* b, Word* sums, Word* differences, Word* products)
{
    const int at = 2 * threadIdx.x;
    const unsigned low = a[at], high = a[at] >> 32, by_low = b[at], by_high = b[at] >> 32;
    asm volatile("add.cc.u64 %0, %1, %2;" : "=l"(sums[at]) : "l"(a[at]), "l"(b[at]));
    asm volatile("addc.u64 %0, %1, %2;" : "=l"(sums[at + 1]) : "l"(a[at + 1]), "l"(b[at + 1]));
    asm volatile("sub.cc.s64 %0, %2, %4;\n\tsubc.s64 %1, %3, %5;"
                 : "=l"(differences[at]), "=l"(differences[at + 1])
                 : "l"(a[at]), "l"(a[at + 1]), "l"(b[at]), "l"(b[at + 1]));
    unsigned words[4];
    asm volatile("mul.lo.u32 %0, %4, %6;\n\tmul.hi.u32 %1, %4, %6;\n\tmul.lo.u32 %2, %5, %7;\n\tmul.hi.u32 %3, %5, %7;\n\t"
                 "mad.lo.cc.u32 %1, %4, %7, %1;\n\tmadc.hi.cc.u32 %2, %4, %7, %2;\n\taddc.u32 %3, %3, 0;\n\t"
                 "mad.lo.cc.u32 %1, %5, %6, %1;\n\tmadc.hi.cc.u32 %2, %5, %6, %2;\n\taddc.u32 %3, %3, 0;"
                 : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
                 : "r"(low), "r"(high), "r"(by_low), "r"(by_high));
    products[at] = words[0] | Word(words[1]) << 32;
    products[at + 1] = words[2] | Word(words[3]) << 32;
}

__global__ void approximated(const float* x, float* out, int n)
{
    const int i = threadIdx.x;
    asm("tanh.approx.f32 %0, %1;" : "=f"(out[i]) : "f"(x[i]));
    asm("sin.approx.f32 %0, %1;" : "=f"(out[n + i]) : "f"(x[i]));
    asm("cos.approx.ftz.f32 %0, %1;" : "=f"(out[2 * n + i]) : "f"(x[i]));
    unsigned pair = 0x3c00c000;  // 1 and -2 as half
    asm("{.reg .b32 t; neg.f16x2 t, %0; abs.f16x2 %0, t;}" : "+r"(pair));
    out[3 * n + i] = pair == 0x3c004000;
}

// One row of `out` for each function, by float; and by double behind all of them.
template <typename T>
__device__ void functions_of(const T* x, double* out, int n)
{
    const int i = threadIdx.x;
    const T a = x[i];
    int row = 0;
    const auto next = [&](T value) { out[n * row++ + i] = value; };
    next(erfcx(a)), next(erfcinv(a / 40)), next(normcdf(-a)), next(normcdfinv(a / 80)), next(cyl_bessel_i0(a));
    next(cyl_bessel_i1(a)), next(rsqrt(a)), next(exp10(a)), next(j0(a));
    T sine, cosine;
    sincos(a, &sine, &cosine);
    next(sine), next(cosine);
}
__global__ void functions(const float* x, const double* y, double* out, int n)
{
    functions_of(x, out, n);
    functions_of(y, out + 11 * n, n);
}
__global__ void lengths(const float* x, const double* y, double* out)
{
    out[0] = normf(3, x), out[1] = norm(3, y), out[2] = rnormf(3, x), out[3] = rnorm(3, y);
    out[4] = norm3d(y[0], y[1], y[2]), out[5] = norm4df(x[0], x[1], x[2], 0), out[6] = llmin(-1, 2) + ullmax(1, 2);
    out[7] = norm3df(3e30f, 4e30f, 0) / 1e30f;  // whose squares overflow
}
__global__ void length_of_what_is_not_there(const float* x, float* out)
{
    out[0] = normf(4, x);  // FAULT
}
__global__ void sums_of_copies(float* sums)
{
    __shared__ alignas(16) float one[64];
    one[threadIdx.x] = 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;\n"
                     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::"l"(sums),
                     "r"(static_cast<unsigned>(__cvta_generic_to_shared(one))) : "memory");
}
__global__ void carry_at_the_start(unsigned* out)
{
    unsigned rest;
    asm volatile("addc.u32 %0, 0, 0;" : "=r"(out[blockIdx.x * 64 + threadIdx.x]));
    asm volatile("add.cc.u32 %0, 0xffffffff, 1;" : "=r"(rest));
}
__global__ void completed_by_a_lambda(int* out)
{
    __shared__ int phases;
    auto count = [at = &phases] { ++*at; };
    using Barrier = cuda::barrier<cuda::thread_scope_block, decltype(count)>;
    __shared__ alignas(Barrier) char storage[sizeof(Barrier)];  // a lambda with a capture has no default
    Barrier* const bar = reinterpret_cast<Barrier*>(storage);
    if (threadIdx.x == 0) {
        phases = 0;
        init(bar, blockDim.x, count);
    }
    __syncthreads();
    bar->arrive_and_wait();
    bar->arrive_and_wait();
    out[threadIdx.x] = phases;
}
// As CUTLASS's semaphore waits: one lane looks, and all meet before they look again.
template <bool barrier>
__global__ void in_turn(int* turn, int* out)
{
    int now;
    do {
        now = threadIdx.x == 0 ? atomicAdd(turn, 0) : 0;
        now = barrier ? __syncthreads_or(now) : __shfl_sync(~0u, now, 0);
    } while (now != static_cast<int>(blockIdx.x));
    if (threadIdx.x == 0) {
        __threadfence();
        *out = 2 * *out + 1;
        __threadfence();
        atomicExch(turn, blockIdx.x + 1);
    }
}

// The programming interface of dependent launches, and complex numbers of both precisions.
__global__ void complex_numbers(const cuComplex* a, const cuComplex* b, cuComplex* out, double* lengths)
{
    cudaGridDependencySynchronize();
    const cuComplex x = a[threadIdx.x], y = b[threadIdx.x];
    out[threadIdx.x] = cuCsubf(cuCaddf(cuCmulf(x, y), cuCdivf(x, y)), cuConjf(cuCfmaf(x, y, x)));
    const cuDoubleComplex wide = cuCmul(cuComplexFloatToDouble(x), make_cuDoubleComplex(0, 1));
    lengths[threadIdx.x] = cuCabs(wide) + cuCimag(wide) - cuCrealf(x);
    cudaTriggerProgrammaticLaunchCompletion();
}
__device__ float sum_of(cuda::std::span<const float> numbers)
{
    float sum = 0;
    for (const float each : numbers) sum += each;  // FAULT
    return sum;
}
template <bool RIGHT>
__global__ void spans(const float* in, float* out, int n)
{
    const cuda::std::span<const float> all(in, n);
    const auto mine = all.subspan(2 * threadIdx.x, RIGHT ? 2 : 4);
    float own[3] = {1, 2, 3};
    const cuda::std::array<float, 2> two = {mine.front(), mine[1]};
    out[threadIdx.x] = sum_of(mine) + sum_of(own) + sum_of(two) + cuda::std::span(own).size() + mine.size_bytes();
}
// Two blocks: the one that is last adds what the other has written.
template <bool RELEASES>
__global__ void told_by_a_flag(float* data, cuda::std::atomic<unsigned>* tickets, float* out)
{
    data[blockIdx.x] = 1 + blockIdx.x;
    const auto order = RELEASES ? cuda::std::memory_order_acq_rel : cuda::std::memory_order_relaxed;
    if (tickets->fetch_add(1, order) == 1) out[0] = data[0] + data[1];  // FAULT
}
