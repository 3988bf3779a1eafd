// CUDA C++ for g++: enough of its vocabulary to compile a matmul kernel unchanged and run it on one CPU core.
//
// A __shared__ array becomes thread_local: C++ then gives an array inside a function static storage without another
// word, allows `extern` before it, and asks for its address at run time, by a call that shared_window.cpp answers: the
// arrays of a kernel lie where a GPU has them. All threads of a block run on one CPU thread, so they do share it.
// `used` keeps an array that is only read or only written, which g++ would otherwise replace by nothing.
#pragma once

#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include <math.h>  // CUDA has the overloads of <cmath> and <cstdlib> in the global namespace
#include <stdlib.h>

// CUDA's are of one type where the C library's are of two.
inline float pow(float a, int b) { return powf(a, b); }
inline double pow(double a, int b) { return pow(a, static_cast<double>(b)); }

// Vector types, aligned as CUDA aligns them: the emulated load is as wide as the real one.
#define EMULATOR_VECTORS(T, name, bytes)                                  \
    struct name##1 { T x; };                                              \
    struct alignas(2 * bytes) name##2 { T x, y; };                        \
    struct name##3 { T x, y, z; };                                        \
    struct alignas(bytes < 4 ? 4 * bytes : 16) name##4 { T x, y, z, w; }; \
    inline name##1 make_##name##1(T x) { return {x}; }                    \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }            \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }    \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTORS(signed char, char, 1)
EMULATOR_VECTORS(unsigned char, uchar, 1)
EMULATOR_VECTORS(short, short, 2)
EMULATOR_VECTORS(unsigned short, ushort, 2)
EMULATOR_VECTORS(int, int, 4)
EMULATOR_VECTORS(unsigned, uint, 4)
EMULATOR_VECTORS(float, float, 4)
EMULATOR_VECTORS(long, long, 8)
EMULATOR_VECTORS(unsigned long, ulong, 8)
EMULATOR_VECTORS(long long, longlong, 8)
EMULATOR_VECTORS(unsigned long long, ulonglong, 8)
EMULATOR_VECTORS(double, double, 8)
#undef EMULATOR_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Set by the scheduler whenever another thread or block runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace emulator {

/// What cuda::std is made of.
namespace standard {
using namespace ::std;
}

// What headers of the emulator use that a kernel includes itself: there the standard library's names are hidden.
template <typename T>
using IfNumber = std::enable_if_t<std::is_arithmetic_v<T>>;
template <bool condition, typename T>
using If = std::enable_if_t<condition, T>;
template <typename A, typename B>
inline constexpr bool is_same = std::is_same_v<A, B>;

// Shifts and conversions with the results that a GPU has; arithmetic.py puts in the calls.
#define EMULATOR_PURE __attribute__((always_inline)) inline constexpr
template <typename A, typename B>
EMULATOR_PURE auto shifted_left(A a, B b)
{
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
        using T = decltype(+a);
        using U = std::make_unsigned_t<T>;
        const auto by = static_cast<unsigned>(b);
        return by < 8 * sizeof(T) ? static_cast<T>(static_cast<U>(a) << by) : T(0);
    } else {
        return a << b;
    }
}
template <typename A, typename B>
EMULATOR_PURE auto shifted_right(A a, B b)
{
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
        using T = decltype(+a);
        const auto by = static_cast<unsigned>(b);
        return by < 8 * sizeof(T) ? static_cast<T>(+a >> by) : static_cast<T>(a < A(0) ? -1 : 0);
    } else {
        return a >> b;
    }
}
template <typename A, typename B>
EMULATOR_PURE A& shift_left(A& a, B b)
{
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>)
        return a = static_cast<A>(shifted_left(a, b));
    else
        return a <<= b;
}
template <typename A, typename B>
EMULATOR_PURE A& shift_right(A& a, B b)
{
    if constexpr (std::is_integral_v<A> && std::is_integral_v<B>)
        return a = static_cast<A>(shifted_right(a, b));
    else
        return a >>= b;
}
/// Keeps g++ from assuming a value of a variable that has none.
template <typename T>
__attribute__((always_inline)) inline void unset(T& a)
{
#ifdef __x86_64__
    if constexpr (std::is_integral_v<T> || std::is_pointer_v<T> || std::is_enum_v<T>) __asm__("" : "+r"(a));
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) __asm__("" : "+x"(a));
    if constexpr (std::is_same_v<T, bool>) {
        unsigned char emulator_mark;  // the mark of a bool is false, as zeros are
        __asm__("" : "+r"(emulator_mark));
        a |= emulator_mark != 0;
    }
#endif
}
template <typename To, typename From>
EMULATOR_PURE To converted(From a)
{
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 4) {
        if constexpr (std::is_same_v<To, bool>)
            return a != 0;
        else
            return (To)converted<std::conditional_t<std::is_signed_v<To>, int, unsigned>>(a);  // as nvcc does
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        using Limits = std::numeric_limits<To>;
        constexpr bool is_zero = sizeof(From) == 4 && sizeof(To) == 4;  // what NaN becomes
        if (a != a) return is_zero ? To(0) : static_cast<To>(1ull << (8 * sizeof(To) - 1));
        constexpr From beyond = static_cast<From>(Limits::max() / 2 + 1) * 2;
        if (a >= beyond) return Limits::max();
        if (a <= static_cast<From>(Limits::min())) return Limits::min();
    }
    return (To)a;
}
#undef EMULATOR_PURE

/// What `alignas` takes: a number of bytes, or a type.
template <std::size_t bytes>
constexpr std::size_t alignment()
{
    return bytes;
}
template <typename T>
constexpr std::size_t alignment()
{
    return alignof(T);
}

/// One thread of the grid: calls the kernel with the values at these addresses, one for each of its parameters, as
/// CUDA's kernelParams are.
using Thread = void (*)(void* const*);

/// A parameter of a kernel: its size in bytes, and what it is: (p)ointer, (i)nteger, (f)loating, or (o)ther; and the
/// same of what it points to.
struct Parameter {
    std::uint32_t size;
    char kind;
    std::uint32_t element_size;
    char element;
};

/// A kernel that can be launched.
struct Instance {
    Thread thread;
    const Parameter* parameters;
    std::uint32_t parameter_count;
};

template <typename P>
constexpr char kind_of()
{
    return std::is_pointer_v<P>                         ? 'p'
           : std::is_integral_v<P> || std::is_enum_v<P> ? 'i'
           : std::is_floating_point_v<P>                ? 'f'
                                                        : 'o';
}

template <typename P>
constexpr Parameter parameter()
{
    static_assert(std::is_trivially_copyable_v<P>, "a parameter of a kernel is copied byte by byte");
    using Element = std::remove_pointer_t<P>;
    std::uint32_t element_size = 0;
    if constexpr (std::is_floating_point_v<Element>) element_size = sizeof(Element);
    return {sizeof(P), kind_of<P>(), element_size, kind_of<Element>()};
}

// What calls a kernel is not watched: a call of the tracer would leave its own words on the stack that mark_stack has
// marked for the kernel.
#define EMULATOR_UNWATCHED __attribute__((no_sanitize_thread))

template <auto kernel, typename... P, std::size_t... I>
EMULATOR_UNWATCHED inline void call(void (*)(P...), void* const* arguments, std::index_sequence<I...>)
{
    kernel(*static_cast<P*>(arguments[I])...);
}

template <auto kernel, typename... P>
EMULATOR_UNWATCHED inline void call(void (*pointer)(P...), void* const* arguments)
{
    call<kernel>(pointer, arguments, std::index_sequence_for<P...>());
}

/// A kernel as a Thread, whatever its parameters.
template <auto kernel>
EMULATOR_UNWATCHED void thread(void* const* arguments)
{
    call<kernel>(kernel, arguments);
}

template <typename... P>
inline constexpr Parameter parameters[] = {parameter<P>()..., Parameter{}};

template <typename... P>
constexpr Instance instance(Thread thread, void (*)(P...))
{
    return {thread, parameters<P...>, sizeof...(P)};
}

}  // namespace emulator

#define __global__
#define __device__
#define __host__
// The host may set it before a launch: g++ must not take its value for known.
#define __constant__ __attribute__((used))
#define __managed__
#define __grid_constant__
#define __shared__ __attribute__((tls_model("global-dynamic"), used)) thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __inline_hint__
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict

// Code for a GPU asks by these whether it is compiled for one, and for which.
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1

#include "warp.h"
#include "intrinsics.h"
#include "ptx.h"
