// Copies from global to shared memory that run beside the thread, without passing through its registers.
#pragma once
#include "shared_memory.cuh"
#include "vectors.cuh"

#ifdef __CUDACC__
/// Starts a copy of BYTES (4, 8 or 16, both addresses multiples of it); writes zeros and reads nothing if not `inside`.
/// The hardware does not offer BYTES = 2: that is an ordinary load and store.
/// PTX ISA: Data Movement and Conversion Instructions: cp.async.
template <int BYTES>
__device__ __forceinline__ void copy_async(unsigned to_shared, const void* from, bool inside)
{
    static_assert(BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16, "a copy is 2, 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(to_shared), "l"(from), "r"(inside ? 16 : 0) : "memory");
    } else if constexpr (BYTES == 2) {
        const unsigned short zero = 0, value = inside ? *static_cast<const unsigned short*>(from) : zero;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to_shared), "h"(value) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     ::"r"(to_shared), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
    }
}

/// Closes the group of the copies that this thread started since the last call. PTX ISA: cp.async.commit_group.
__device__ __forceinline__ void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most PENDING of this thread's groups are under way. PTX ISA: cp.async.wait_group.
template <int PENDING>
__device__ __forceinline__ void wait_for_copy_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

template <int BYTES>
__device__ __forceinline__ void copy_async(void* to_shared, const void* from, bool inside)
{
    copy_async<BYTES>(shared_address(to_shared), from, inside);
}

#else  // on the CPU emulator a copy is complete at once: a kernel that waits for it cannot tell
template <int BYTES>
inline void copy_async(void* to_shared, const void* from, bool inside)
{
    struct alignas(BYTES) Bytes { unsigned char byte[BYTES]; };
    *static_cast<Bytes*>(to_shared) = inside ? *static_cast<const Bytes*>(from) : Bytes{};
}
inline void close_copy_group() {}
template <int PENDING>
inline void wait_for_copy_groups() {}
#endif

/// Starts the copy of the vector at (row, col) of a row-major array, zeros beyond its edges.
/// `aligned`: rows_are_aligned(cols); otherwise the elements come one by one.
template <typename T>
__device__ __forceinline__ void copy_within_async(T* to_shared, const T* array, int row, int col, int rows, int cols,
                                                  bool aligned)
{
    const long long offset = static_cast<long long>(row) * cols + col;
    if (aligned) {
        const bool inside = row < rows && col < cols;
        copy_async<16>(to_shared, array + (inside ? offset : 0), inside);
    } else {
        #pragma unroll
        for (int e = 0; e < Vector<T>::size; ++e) {
            const bool inside = row < rows && col + e < cols;
            copy_async<sizeof(T)>(to_shared + e, array + (inside ? offset + e : 0), inside);
        }
    }
}
