// Locks, flags and counters: with the fences and the scopes that they need, and with less. test_scopes.py launches each
// with two blocks of 64 threads; the line that is named ends with FAULT, or with REMARK.
#include <cuda/atomic>

__global__ void flag(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        __threadfence();
        atomicExch(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0) {}
        out[0] = value[0];
    }
}

__global__ void flag_unfenced(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        atomicExch(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0) {}
        out[0] = value[0];  // FAULT
    }
}

__global__ void flag_fenced_for_its_block(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        __threadfence_block();
        atomicExch(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0) {}
        out[0] = value[0];  // FAULT
    }
}

__global__ void flag_of_its_block(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        __threadfence();
        atomicExch_block(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0) {}
        out[0] = value[0];  // FAULT
    }
}

__global__ void flag_of_volatile(volatile int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        atomicExch(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0) {}
        out[0] = value[0];  // REMARK
    }
}

__global__ void flag_by_reference(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*flag).store(1, cuda::memory_order_release);
    } else {
        while (cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*flag).load(cuda::memory_order_acquire) == 0) {}
        out[0] = value[0];
    }
}

__global__ void flag_by_reference_relaxed(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*flag).store(1, cuda::memory_order_relaxed);
    } else {
        while (cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*flag).load(cuda::memory_order_acquire) == 0) {}
        out[0] = value[0];  // FAULT
    }
}

__global__ void flag_by_reference_of_its_block(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        cuda::atomic_ref<unsigned, cuda::thread_scope_block>(*flag).store(1, cuda::memory_order_release);
    } else {
        while (cuda::atomic_ref<unsigned, cuda::thread_scope_device>(*flag).load(cuda::memory_order_acquire) == 0) {}
        out[0] = value[0];  // FAULT
    }
}

__global__ void flag_by_ptx(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        asm volatile("st.release.gpu.u32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        unsigned set;
        do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
        while (set == 0);
        out[0] = value[0];
    }
}

__global__ void flag_by_ptx_of_its_block(int* value, unsigned* flag, int* out)
{
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        value[0] = 42;
        asm volatile("st.release.cta.u32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        unsigned set;
        do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
        while (set == 0);
        out[0] = value[0];  // FAULT
    }
}

__global__ void lock(int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        value[0] += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void lock_unfenced_when_taken(int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        value[0] += 1;  // FAULT
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void lock_fenced_for_its_block_when_taken(int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence_block();
        value[0] += 1;  // FAULT
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void lock_unfenced_when_given_back(int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        value[0] += 1;  // FAULT
        atomicExch(lock, 0);
    }
}

__global__ void lock_of_its_block(int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS_block(lock, 0, 1) != 0) {}  // FAULT
        __threadfence();
        value[0] += 1;
        __threadfence();
        atomicExch_block(lock, 0);
    }
}

__global__ void lock_between_warps(int* value, int* lock)
{
    if (blockIdx.x == 0 && threadIdx.x % 32 == 0) {
        while (atomicCAS_block(lock, 0, 1) != 0) {}
        __threadfence_block();
        value[0] += 1;
        __threadfence_block();
        atomicExch_block(lock, 0);
    }
}

__global__ void lock_between_warps_unfenced(int* value, int* lock)
{
    if (blockIdx.x == 0 && threadIdx.x % 32 == 0) {
        while (atomicCAS_block(lock, 0, 1) != 0) {}
        value[0] += 1;  // FAULT
        atomicExch_block(lock, 0);
    }
}

__global__ void lock_of_a_block(int* value, int* lock)  // its first thread takes it, all of them use it
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
    }
    __syncthreads();
    value[threadIdx.x] += 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void lock_of_a_block_unfenced(int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
    }
    __syncthreads();
    value[threadIdx.x] += 1;  // FAULT
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void in_turns(int* value, volatile unsigned* flag)  // the blocks wait for each other, and so run together
{
    for (unsigned round = 0; threadIdx.x == 0 && round < 3; ++round) {
        while (*flag != 2 * round + blockIdx.x) {}
        __threadfence();
        value[0] += 1;
        __threadfence();
        *flag = 2 * round + blockIdx.x + 1;
    }
}

__global__ void in_turns_unfenced(int* value, volatile unsigned* flag)  // the blocks wait for each other, and so run together
{
    for (unsigned round = 0; threadIdx.x == 0 && round < 3; ++round) {
        while (*flag != 2 * round + blockIdx.x) {}
        value[0] += 1;  // FAULT
        *flag = 2 * round + blockIdx.x + 1;
    }
}

__global__ void two_flags(int* value, unsigned* flag, int* out)  // a loop looks at both
{
    if (threadIdx.x) return;
    value[blockIdx.x] = 42;
    __threadfence();
    atomicExch(&flag[blockIdx.x], 1u);
    while (atomicAdd(&flag[0], 0u) + atomicAdd(&flag[1], 0u) < 2) {}
    __threadfence();
    out[blockIdx.x] = value[1 - blockIdx.x];
}

__global__ void flag_of_a_thread_without_a_fence(int* value, unsigned* flag, int* out)  // whoever wrote has one
{
    if (blockIdx.x == 0) {
        if (threadIdx.x == 32) {
            value[0] = 42;
            __threadfence();
        }
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flag, 1u);
    } else if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0) {}
        __threadfence();
        out[0] = value[0];
    }
}

__global__ void flag_of_a_warp(int* value, unsigned* flag, int* out)  // its lanes have met
{
    if (threadIdx.x >= 32) return;
    if (blockIdx.x == 0) {
        value[threadIdx.x] = 42;
        __threadfence();
        __syncwarp();
        if (threadIdx.x == 0) atomicExch(flag, 1u);
    } else {
        if (threadIdx.x == 0) while (atomicAdd(flag, 0u) == 0) {}
        __threadfence();
        __syncwarp();
        out[threadIdx.x] = value[31 - threadIdx.x];
    }
}

__global__ void flag_passed_on_in_the_block(int* value, unsigned* flag, int* out)
{
    __shared__ cuda::atomic<int, cuda::thread_scope_block> seen;
    if (threadIdx.x == 0) seen.store(0, cuda::memory_order_relaxed);
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        value[0] = 42;
        __threadfence();
        atomicExch(flag, 1u);
    }
    if (blockIdx.x == 0 || threadIdx.x > 1) return;
    if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0) {}
        __threadfence();
        seen.store(1, cuda::memory_order_release);
    } else {
        while (seen.load(cuda::memory_order_acquire) == 0) {}
        out[threadIdx.x] = value[0];
    }
}

__global__ void in_turns_of_blocks(float* sums, unsigned* flag)  // as blocks that add one after the other
{
    if (threadIdx.x == 0) while (atomicAdd(flag, 0u) != blockIdx.x) {}
    __threadfence();
    __syncthreads();
    sums[63 - threadIdx.x] += 1;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(flag, 1u);
}

__global__ void in_turns_of_blocks_fenced_too_early(float* sums, unsigned* flag)
{
    if (threadIdx.x == 0) while (atomicAdd(flag, 0u) != blockIdx.x) {}
    __threadfence();
    __syncthreads();
    sums[63 - threadIdx.x] += 1;  // FAULT
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(flag, 1u);
}

__global__ void lock_by_reference(int* value, int* lock)
{
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> state(*lock);
    int expected = 0;
    while (!state.compare_exchange_weak(expected, 1, cuda::memory_order_acquire)) expected = 0;
    value[0] += 1;
    state.store(0, cuda::memory_order_release);
}

__global__ void lock_by_reference_relaxed(int* value, int* lock)
{
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> state(*lock);
    int expected = 0;
    while (!state.compare_exchange_weak(expected, 1, cuda::memory_order_relaxed)) expected = 0;
    value[0] += 1;  // FAULT
    state.store(0, cuda::memory_order_release);
}

__global__ void counter(int* count)
{
    atomicAdd(count, 1);
}

__global__ void counter_of_its_block(int* count)
{
    atomicAdd_block(count, 1);  // FAULT
}

__global__ void counter_of_each_block(int* count)
{
    atomicAdd_block(count + blockIdx.x, 1);
}

__global__ void counter_by_reference(int* count)
{
    cuda::atomic_ref<int, cuda::thread_scope_device>(*count)++;
}

__global__ void counter_by_reference_of_its_block(int* count)
{
    cuda::atomic_ref<int, cuda::thread_scope_block>(*count)++;  // FAULT
}

__global__ void last_block(float* sums, unsigned* count, float* sum)  // the last one adds what all have written
{
    __shared__ bool last;
    sums[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last) sum[threadIdx.x] = sums[threadIdx.x] + sums[blockDim.x + threadIdx.x];
}

__global__ void last_block_fenced_for_its_block(float* sums, unsigned* count, float* sum)
{
    __shared__ bool last;
    sums[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
    __threadfence_block();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last) sum[threadIdx.x] = sums[threadIdx.x] + sums[blockDim.x + threadIdx.x];  // FAULT
}

__global__ void last_block_of_sums_unfenced(float* sums, unsigned* count, float* sum)  // its own sums hide the others'
{
    __shared__ bool last;
    atomicAdd(&sums[threadIdx.x], 1.f);
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last) sum[threadIdx.x] = sums[blockDim.x - 1 - threadIdx.x];  // FAULT
}

__global__ void last_block_of_sums(float* sums, unsigned* count, float* sum)
{
    __shared__ bool last;
    atomicAdd(&sums[threadIdx.x], 1.f);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last) sum[threadIdx.x] = sums[blockDim.x - 1 - threadIdx.x];
}

__global__ void last_block_resets(float* sums, unsigned* count, float* sum)  // whoever took the last ticket has seen all
{
    __shared__ bool last;
    sums[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(count, gridDim.x) == gridDim.x - 1;
    __syncthreads();
    if (last) sum[threadIdx.x] = sums[threadIdx.x] + sums[blockDim.x + threadIdx.x];
    if (last && threadIdx.x == 0) *count = 0;
}

__global__ void one_value(int* found)  // many threads write it, and all the same, but other data could make it differ
{
    if (threadIdx.x % 2) found[0] = blockDim.x;  // FAULT
}

__global__ void one_constant(int* found)
{
    if (threadIdx.x % 2) found[0] = 1;  // REMARK
}

__global__ void two_values(int* found)
{
    if (threadIdx.x % 2) found[0] = threadIdx.x % 4;  // FAULT
}

__global__ void in_step(int* out)  // right on GPUs before Volta, whose lanes run in step
{
    __shared__ int sums[64];
    sums[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 32 < 16) sums[threadIdx.x] += sums[threadIdx.x + 16];  // FAULT
    out[blockIdx.x * 64 + threadIdx.x] = 0;
}

__global__ void by_shared_warp_syncs(int* out)
{
    __shared__ int sums[64];
    sums[threadIdx.x] = threadIdx.x;
    __syncwarp();
    if (threadIdx.x % 32 < 16) sums[threadIdx.x] += sums[threadIdx.x + 16];
    out[blockIdx.x * 64 + threadIdx.x] = 0;
}

__global__ void volatile_value_in_a_lock(volatile int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        value[0] = 10 * value[0] + blockIdx.x;
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void volatile_value_in_a_lock_unfenced_when_taken(volatile int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        value[0] = 10 * value[0] + blockIdx.x;  // FAULT
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void volatile_value_in_a_lock_unfenced_when_given_back(volatile int* value, int* lock)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        value[0] = 10 * value[0] + blockIdx.x;  // FAULT
        atomicExch(lock, 0);
    }
}

__global__ void flag_of_volatile_fenced_for_its_block(volatile int* value, unsigned* flag, int* out)
{
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        value[0] = 1;
        __threadfence_block();
        atomicExch(flag, 1u);
    } else if (threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0) {}
        out[0] = value[0];  // FAULT
    }
}

__global__ void guess_and_compare(unsigned* count)  // as in the CUDA Programming Guide
{
    unsigned old = *count, assumed;
    do {
        assumed = old;
        old = atomicCAS(count, assumed, assumed + threadIdx.x);
    } while (assumed != old);
}

__global__ void guess_and_compare_by_some(unsigned* count)
{
    unsigned old = *count, assumed;
    do {
        assumed = old;
        if (assumed >= threadIdx.x) break;
        old = atomicCAS(count, assumed, threadIdx.x);
    } while (assumed != old);
}

__global__ void guess_and_read_again(unsigned* count, int* out)
{
    unsigned old = *count, assumed;
    do {
        assumed = old;
        old = atomicCAS(count, assumed, assumed + 1);  // FAULT
    } while (assumed != old);
    out[blockIdx.x * 64 + threadIdx.x] = *count;
}

__global__ void guess_and_read_the_sum(unsigned* count, int* out)
{
    unsigned old = *count, assumed;
    do {
        assumed = old;
        old = atomicCAS(count, assumed, assumed + 1);  // FAULT
    } while (assumed != old);
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = *count;
}

__global__ void one_value_of_two_sizes(int* found)
{
    if (threadIdx.x % 2)
        found[0] = 0;
    else
        reinterpret_cast<short*>(found)[0] = 0;  // FAULT
}
