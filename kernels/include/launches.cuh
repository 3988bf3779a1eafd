// Launches of one stream that overlap: with `dependent` in the registry, a launch may begin before the results of the one
// before can be read.
#pragma once

/// Waits until all launches before this one have ended and what they wrote can be read. A thread that reads or writes
/// global memory must have waited, or use data from a thread that has. Before Hopper launches do not overlap.
/// PTX ISA: griddepcontrol.wait.
__device__ __forceinline__ void wait_for_earlier_launches()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
