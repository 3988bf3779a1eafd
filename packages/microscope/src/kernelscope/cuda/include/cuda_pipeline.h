// CUDA's primitives for asynchronous copies, as the instructions that they are.
#pragma once

#include "cuda_emulator.h"

__forceinline__ void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0)
{
    const unsigned number = static_cast<unsigned>(__cvta_generic_to_shared(to)),
                   read = static_cast<unsigned>(bytes - zeros);
    if (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(number), "l"(from), "r"(read) : "memory");
    else if (bytes == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" : : "r"(number), "l"(from), "r"(read) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(number), "l"(from), "r"(read) : "memory");
}
namespace cuda {

/// The part of a copy that the thread `rank` of `threads` makes, in the widest pieces that all allow: asynchronous
/// ones, except pieces under 4 bytes.
__forceinline__ void copy_async(void* to, const void* from, size_t bytes, unsigned rank, unsigned threads)
{
    const size_t any = reinterpret_cast<size_t>(to) | reinterpret_cast<size_t>(from) | bytes | 16;
    const size_t piece = any & -any;
    for (size_t at = rank * piece; at < bytes; at += threads * piece) {
        if (piece >= 4)
            __pipeline_memcpy_async(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, piece);
        else if (piece == 2)
            *reinterpret_cast<short*>(static_cast<char*>(to) + at) =
                *reinterpret_cast<const short*>(static_cast<const char*>(from) + at);
        else
            static_cast<char*>(to)[at] = static_cast<const char*>(from)[at];
    }
}

}  // namespace cuda

__forceinline__ void __pipeline_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__forceinline__ void __pipeline_wait_prior(int groups)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");
}
