// What warp groups (4 warps) of one block need if each does work of its own.
#pragma once

/// The number of the thread's warp group. The shuffle shows the compiler that it is uniform in a warp.
__device__ __forceinline__ int warp_group() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }

/// A barrier for some warps: `threads` of them, under a number from 1 to 15 (0 is __syncthreads' own). PTX ISA:
/// bar.sync.
__device__ __forceinline__ void named_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// Arrives at a named barrier without waiting. PTX ISA: bar.arrive.
__device__ __forceinline__ void named_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// A warp group takes registers that another has given. PTX ISA: Miscellaneous Instructions: setmaxnreg (sm_90a).
template <int REGISTERS>
__device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
