// CUDA C++ for g++: enough of its vocabulary to compile a matmul kernel unchanged and run it on one CPU core.
//
// A __shared__ array becomes thread_local: C++ then gives an array inside a function static storage without another
// word, allows `extern` before it, and puts every such array into one segment of memory (the TLS segment), by which
// the tracer knows shared memory. All threads of a block run on one CPU thread, so they do share it.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Set by the scheduler in cuda_emulator.cpp whenever another thread or block runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulator {

/// What a kernel is called with: C (n x m) = A (n x p) B (p x m).
struct Arguments {
    void *A, *B, *C;
    int n, p, m;
};

/// One thread of the grid: calls the kernel.
using Thread = void (*)(const Arguments&);

template <typename A, typename B, typename C, typename... Sizes>
inline void call(void (*kernel)(A*, B*, C*, Sizes...), const Arguments& a)
{
    kernel(static_cast<A*>(a.A), static_cast<B*>(a.B), static_cast<C*>(a.C), a.n, a.p, a.m);
}

/// A kernel as a Thread, whatever its element type.
template <auto kernel>
void thread(const Arguments& a)
{
    call(kernel, a);
}

enum class Barrier { block, warp };

/// Suspends the calling thread until the others have come to the barrier; `file` and `line` say where it stands.
void wait(Barrier, const char* file, int line);

}  // namespace emulator

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE())
{
    emulator::wait(emulator::Barrier::block, file, line);
}

inline void __syncwarp(unsigned = 0xffffffff, const char* file = __builtin_FILE(), int line = __builtin_LINE())
{
    emulator::wait(emulator::Barrier::warp, file, line);
}

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b)
{
    return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b)
{
    return a < b ? b : a;
}
template <typename T>
inline T __ldg(const T* address)
{
    return *address;
}
inline int __mul24(int a, int b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

// Vector types, aligned as CUDA aligns them: the emulated load is as wide as the real one.
#define EMULATOR_VECTORS(T, name, bytes)                                                 \
    struct alignas(2 * bytes) name##2 { T x, y; };                                       \
    struct name##3 { T x, y, z; };                                                       \
    struct alignas(bytes < 4 ? 4 * bytes : 16) name##4 { T x, y, z, w; };                \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                           \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                   \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTORS(float, float, 4)
EMULATOR_VECTORS(double, double, 8)
EMULATOR_VECTORS(int, int, 4)
#undef EMULATOR_VECTORS
