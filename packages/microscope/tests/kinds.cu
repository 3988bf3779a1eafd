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
