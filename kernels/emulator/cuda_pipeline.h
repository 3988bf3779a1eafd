// CUDA's primitives for asynchronous copies, as the instructions that they are.
#pragma once

#include "cuda_emulator.h"


__forceinline__ void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0)
{
    const unsigned number = static_cast<unsigned>(__cvta_generic_to_shared(to)), read = static_cast<unsigned>(bytes - zeros);
    if (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(number), "l"(from), "r"(read) : "memory");
    else if (bytes == 8) asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(number), "l"(from), "r"(read) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(number), "l"(from), "r"(read) : "memory");
}
__forceinline__ void __pipeline_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__forceinline__ void __pipeline_wait_prior(int groups)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
