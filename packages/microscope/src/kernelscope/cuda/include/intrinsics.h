// The functions of CUDA C++ that one thread calls alone: atomics, hinted accesses, arithmetic, clocks and traps.
//
// What reads or writes memory is inlined, so that the tracer sees the access in the kernel.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace emulator {

struct Atomic {
    bool reads = true, writes = true, of_block = false;
    bool takes = false;  // a compare-and-swap
    bool swaps = false;  // stores a value that does not depend on the one before
};
void atomic_access(const void* address, unsigned size, Atomic kind);
void trap(const char* text, const char* file, int line);
std::uint32_t number_of_shared(const void* address);
void* shared_at(std::uint64_t number);
bool is_shared(const void* address, bool own);  // own: of the running block

template <typename To, typename From>
__forceinline__ To bits_of(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

/// The value before; afterwards it is what `change` makes of it. Not watched: atomic_access has told the tracer.
template <typename T, typename F>
__attribute__((noinline, no_sanitize("thread"), no_sanitize("bounds"))) T exchange(T* address, F change)
{
    T before;
    __builtin_memcpy(&before, address, sizeof before);
    const T after = change(before);
    __builtin_memcpy(address, &after, sizeof after);
    return before;
}

template <typename T, typename F>
__forceinline__ T atomically(T* address, F change, Atomic kind = {})
{
    atomic_access(address, sizeof(T), kind);
    return exchange(address, change);
}

template <typename T>
__forceinline__ T compare_and_swap(T* address, T expected, T value, Atomic kind)
{
    return atomically(
        address, [=](T old) -> T { return __builtin_memcmp(&old, &expected, sizeof old) == 0 ? value : old; }, kind);
}

int print(const char* format, ...) __attribute__((format(printf, 1, 2)));
void reads_only(const void* address, unsigned size);
/// Tells the tracer that a copy reads or writes these bytes, `piece` by `piece`; false if it is no place to touch.
bool touches(const void* address, std::size_t bytes, std::size_t piece, bool write);
void move_bytes(void* to, const void* from, std::size_t bytes);
void fill_bytes(void* to, int value, std::size_t bytes);

// In the widest pieces that the addresses and the size allow. g++ would show the tracer copies of some sizes alone.
__forceinline__ void* copied(void* to, const void* from, std::size_t bytes)
{
    const std::size_t all = reinterpret_cast<std::size_t>(to) | reinterpret_cast<std::size_t>(from) | bytes | 16;
    const bool reads = touches(from, bytes, all & -all, false), writes = touches(to, bytes, all & -all, true);
    if (reads && writes) move_bytes(to, from, bytes);
    return to;
}
__forceinline__ void* filled(void* to, int value, std::size_t bytes)
{
    const std::size_t all = reinterpret_cast<std::size_t>(to) | bytes | 16;
    if (touches(to, bytes, all & -all, true)) fill_bytes(to, value, bytes);
    return to;
}

template <typename T>
using Same = typename std::common_type<T>::type;  // no deduction from this argument

}  // namespace emulator

// ---- Least and largest, as CUDA overloads them ----------------------------------------------------------------------

// No others: where two would do, NVRTC finds the call ambiguous.
#define EMULATOR_LEAST(T, A, B)                                     \
    constexpr T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; } \
    constexpr T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
#define EMULATOR_LEAST_OF(T)                           \
    EMULATOR_LEAST(T, T, T)                            \
    EMULATOR_LEAST(unsigned T, unsigned T, unsigned T) \
    EMULATOR_LEAST(unsigned T, T, unsigned T)          \
    EMULATOR_LEAST(unsigned T, unsigned T, T)
EMULATOR_LEAST_OF(int)
EMULATOR_LEAST_OF(long)
EMULATOR_LEAST_OF(long long)
EMULATOR_LEAST(float, float, float)
EMULATOR_LEAST(double, double, double)
EMULATOR_LEAST(double, float, double)
EMULATOR_LEAST(double, double, float)
#undef EMULATOR_LEAST_OF
#undef EMULATOR_LEAST
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// ---- Atomics --------------------------------------------------------------------------------------------------------

#define EMULATOR_ATOMIC(name, expression, ...)                                              \
    template <typename T>                                                                   \
    __forceinline__ T name(T* address, emulator::Same<T> value)                             \
    {                                                                                       \
        constexpr emulator::Atomic kind{true, true, false, ##__VA_ARGS__};                  \
        return emulator::atomically(address, [=](T old) -> T { return expression; }, kind); \
    }                                                                                       \
    template <typename T>                                                                   \
    __forceinline__ T name##_block(T* address, emulator::Same<T> value)                     \
    {                                                                                       \
        constexpr emulator::Atomic kind{true, true, true, ##__VA_ARGS__};                   \
        return emulator::atomically(address, [=](T old) -> T { return expression; }, kind); \
    }                                                                                       \
    template <typename T>                                                                   \
    __forceinline__ T name##_system(T* address, emulator::Same<T> value)                    \
    {                                                                                       \
        return name(address, value);                                                        \
    }
EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicSub, old - value)
EMULATOR_ATOMIC(atomicExch, (static_cast<void>(old), value), false, true)
EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, old& value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicXor, old ^ value)
EMULATOR_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
EMULATOR_ATOMIC(atomicDec, old == 0 || old > value ? value : T(old - 1))
#undef EMULATOR_ATOMIC

// Each element of a vector is added by itself, but the vector is one request.
#define EMULATOR_ATOMIC_VECTOR(name, T, sum, of_block)                                                              \
    __forceinline__ T name(T* address, T value, EMULATOR_PLACE)                                                     \
    {                                                                                                               \
        if (emulator::is_shared(address, false))                                                                    \
            emulator::trap(" calls atomicAdd of a vector in shared memory, where a GPU traps; add each element by " \
                           "itself",                                                                                \
                           file, line);                                                                             \
        return emulator::atomically(address, [=](T old) -> T { return sum; }, {true, true, of_block});              \
    }
#define EMULATOR_ATOMIC_VECTORS(name, of_block)                                                                        \
    EMULATOR_ATOMIC_VECTOR(name, float2, (float2{old.x + value.x, old.y + value.y}), of_block)                         \
    EMULATOR_ATOMIC_VECTOR(name, float4, (float4{old.x + value.x, old.y + value.y, old.z + value.z, old.w + value.w}), \
                           of_block)
EMULATOR_ATOMIC_VECTORS(atomicAdd, false)
EMULATOR_ATOMIC_VECTORS(atomicAdd_block, true)
EMULATOR_ATOMIC_VECTORS(atomicAdd_system, false)
#undef EMULATOR_ATOMIC_VECTORS
#undef EMULATOR_ATOMIC_VECTOR

template <typename T>
__forceinline__ T atomicCAS(T* address, emulator::Same<T> expected, emulator::Same<T> value)
{
    return emulator::compare_and_swap(address, expected, value, {true, true, false, true});
}
template <typename T>
__forceinline__ T atomicCAS_block(T* address, emulator::Same<T> expected, emulator::Same<T> value)
{
    return emulator::compare_and_swap(address, expected, value, {true, true, true, true});
}
template <typename T>
__forceinline__ T atomicCAS_system(T* address, emulator::Same<T> expected, emulator::Same<T> value)
{
    return atomicCAS(address, expected, value);
}

// ---- Hinted loads and stores ----------------------------------------------------------------------------------------

#define EMULATOR_LOAD(name)                  \
    template <typename T>                    \
    __forceinline__ T name(const T* address) \
    {                                        \
        return *address;                     \
    }
template <typename T>
__forceinline__ T __ldg(const T* address)
{
    emulator::reads_only(address, sizeof(T));
    return *address;
}
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldlu)
EMULATOR_LOAD(__ldcv)
#undef EMULATOR_LOAD
#define EMULATOR_STORE(name)                                       \
    template <typename T>                                          \
    __forceinline__ void name(T* address, emulator::Same<T> value) \
    {                                                              \
        *address = value;                                          \
    }
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

__forceinline__ std::size_t __cvta_generic_to_shared(const void* address)
{
    return emulator::number_of_shared(address);
}
__forceinline__ void* __cvta_shared_to_generic(std::size_t number) { return emulator::shared_at(number); }
__forceinline__ std::size_t __cvta_generic_to_global(const void* address)
{
    return reinterpret_cast<std::size_t>(address);
}
__forceinline__ void* __cvta_global_to_generic(std::size_t address) { return reinterpret_cast<void*>(address); }

#include "integers.h"
#include "reals.h"

// ---- Clocks, traps, hints -------------------------------------------------------------------------------------------

namespace emulator {
long long tick();  // time passes with every question
}
inline long long clock64() { return emulator::tick(); }
#define clock() static_cast<int>(clock64())
inline unsigned long long globaltimer() { return emulator::tick(); }
inline void __nanosleep(unsigned) {}
inline void __trap(EMULATOR_PLACE) { emulator::trap(" calls __trap()", file, line); }
inline void __brkpt() {}
#define __builtin_assume(condition) static_cast<void>(0)
#define __builtin_assume_aligned(pointer, bytes) (pointer)
#undef assert
#define assert(condition) \
    ((condition) ? static_cast<void>(0) : emulator::trap(" fails the assertion `" #condition "`", __FILE__, __LINE__))

template <typename T>
__forceinline__ bool __isGlobal(const T* address)
{
    return !emulator::is_shared(address, false);
}
template <typename T>
__forceinline__ bool __isShared(const T* address)
{
    return emulator::is_shared(address, true);
}
template <typename T>
__forceinline__ bool __isCtaShared(const T* address)
{
    return __isShared(address);
}
template <typename T>
__forceinline__ bool __isClusterShared(const T* address)
{
    return emulator::is_shared(address, false);
}
inline void __prefetch_global_l1(const void*) {}
inline void __prefetch_global_l2(const void*) {}
