// Addresses of shared memory as numbers, and loads and stores that stay where the source puts them.
//
// The asm is volatile: the front end keeps the order of these loads and moves plain ones; ptxas may move both.
// PTX ISA: Data Movement and Conversion Instructions: ld, st, cvta.
#pragma once

#ifdef __CUDACC__
/// The address of shared memory as PTX instructions take it, 32 bits.
__device__ __forceinline__ unsigned shared_address(const void* shared)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// 16 bytes, at a multiple of 16.
__device__ __forceinline__ void load_16_bytes(float* to, unsigned address)
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_16_bytes(double* to, unsigned address)
{
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(to[0]), "=d"(to[1]) : "r"(address) : "memory");
}
template <typename T>
__device__ __forceinline__ void load_16_bytes(T* to, const T* from_shared)
{
    load_16_bytes(to, shared_address(from_shared));
}

/// Two times 4 bytes, at a multiple of 8.
__device__ __forceinline__ void load_8_bytes(unsigned& first, unsigned& second, unsigned address)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}

__device__ __forceinline__ void store_8_bytes(unsigned address, int first, int second)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}

/// 4 bytes, at a multiple of 4.
__device__ __forceinline__ void load_4_bytes(unsigned& to, unsigned address)
{
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(address) : "memory");
}
__device__ __forceinline__ void store_4_bytes(unsigned address, float value)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

#else  // on the CPU emulator, whose addresses are pointers
template <typename T>
inline void load_16_bytes(T* to, const T* from_shared)
{
    struct alignas(16) Bytes { T element[16 / sizeof(T)]; };
    *reinterpret_cast<Bytes*>(to) = *reinterpret_cast<const Bytes*>(from_shared);
}
#endif
