// A floating-point number of two bytes, as cuda_fp16.h and cuda_bf16.h need it: stored in 16 bits, calculated in float,
// and rounded to the nearest number that 16 bits hold, to the even one of two.
//
// Conversions are implicit, as CUDA's are. So `half * float`, which CUDA's compiler finds ambiguous, is ambiguous here.
// What reads or writes memory is inlined: the tracer then sees the access in the kernel.
#pragma once

#include "cuda_emulator.h"

/// Defines a type `name` and, as `name2`, a pair of it; `pack` takes a float to its 16 bits, `unpack` takes them back.
#define EMULATOR_SMALL_FLOAT(name, name2, pack, unpack)                                                          \
    struct name {                                                                                                \
        unsigned short bits;                                                                                     \
        name() = default;                                                                                        \
        template <typename Number, typename = emulator::IfNumber<Number>>                                        \
        __forceinline__ name(Number number) : bits(pack(static_cast<float>(number)))                             \
        {}                                                                                                       \
        __forceinline__ operator float() const { return unpack(bits); }                                          \
        __forceinline__ name& operator+=(name b) { return *this = name(float(*this) + float(b)); }               \
        __forceinline__ name& operator-=(name b) { return *this = name(float(*this) - float(b)); }               \
        __forceinline__ name& operator*=(name b) { return *this = name(float(*this) * float(b)); }               \
        __forceinline__ name& operator/=(name b) { return *this = name(float(*this) / float(b)); }               \
    };                                                                                                           \
    struct alignas(4) name2 {                                                                                    \
        name x, y;                                                                                               \
        name2() = default;                                                                                       \
        __forceinline__ name2(name x, name y) : x(x), y(y) {}                                                    \
    };                                                                                                           \
    EMULATOR_SMALL_FLOAT_OPERATOR(name, name2, +, __hadd, __hadd2)                                               \
    EMULATOR_SMALL_FLOAT_OPERATOR(name, name2, -, __hsub, __hsub2)                                               \
    EMULATOR_SMALL_FLOAT_OPERATOR(name, name2, *, __hmul, __hmul2)                                               \
    EMULATOR_SMALL_FLOAT_OPERATOR(name, name2, /, __hdiv, __h2div)                                               \
    EMULATOR_SMALL_FLOAT_COMPARISON(name, ==, __heq)                                                             \
    EMULATOR_SMALL_FLOAT_COMPARISON(name, !=, __hne)                                                             \
    EMULATOR_SMALL_FLOAT_COMPARISON(name, <, __hlt)                                                              \
    EMULATOR_SMALL_FLOAT_COMPARISON(name, <=, __hle)                                                             \
    EMULATOR_SMALL_FLOAT_COMPARISON(name, >, __hgt)                                                              \
    EMULATOR_SMALL_FLOAT_COMPARISON(name, >=, __hge)                                                             \
    __forceinline__ name operator-(name a)                                                                       \
    {                                                                                                            \
        return emulator::bits_of<name>(static_cast<unsigned short>(a.bits ^ 0x8000));                            \
    }                                                                                                            \
    __forceinline__ name __hneg(name a) { return -a; }                                                           \
    __forceinline__ name __habs(name a)                                                                          \
    {                                                                                                            \
        return emulator::bits_of<name>(static_cast<unsigned short>(a.bits & 0x7fff));                            \
    }                                                                                                            \
    __forceinline__ name __hmax(name a, name b) { return name(fmaxf(a, b)); }                                    \
    __forceinline__ name __hmin(name a, name b) { return name(fminf(a, b)); }                                    \
    __forceinline__ bool __hisnan(name a) { return (a.bits & 0x7fff) > (name(__builtin_inff()).bits & 0x7fff); } \
    __forceinline__ name __hfma(name a, name b, name c) { return name(fmaf(a, b, c)); }                          \
    __forceinline__ name2 __hfma2(name2 a, name2 b, name2 c)                                                     \
    {                                                                                                            \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                                   \
    }                                                                                                            \
    __forceinline__ name2& operator+=(name2& a, name2 b) { return a = a + b; }                                   \
    __forceinline__ name2& operator-=(name2& a, name2 b) { return a = a - b; }                                   \
    __forceinline__ name2& operator*=(name2& a, name2 b) { return a = a * b; }                                   \
    __forceinline__ name2& operator/=(name2& a, name2 b) { return a = a / b; }                                   \
    __forceinline__ bool operator==(name2 a, name2 b) { return a.x == b.x && a.y == b.y; }                       \
    __forceinline__ bool operator!=(name2 a, name2 b) { return !(a == b); }                                      \
    __forceinline__ float __low2float(name2 a) { return a.x; }                                                   \
    __forceinline__ float __high2float(name2 a) { return a.y; }                                                  \
    __forceinline__ name2 operator-(name2 a) { return {-a.x, -a.y}; }                                            \
    __forceinline__ name operator+(name a) { return a; }                                                         \
    __forceinline__ name& operator++(name& a) { return a += name(1); }                                           \
    __forceinline__ name& operator--(name& a) { return a -= name(1); }                                           \
    __forceinline__ name operator++(name& a, int)                                                                \
    {                                                                                                            \
        const name before = a;                                                                                   \
        ++a;                                                                                                     \
        return before;                                                                                           \
    }                                                                                                            \
    __forceinline__ name operator--(name& a, int)                                                                \
    {                                                                                                            \
        const name before = a;                                                                                   \
        --a;                                                                                                     \
        return before;                                                                                           \
    }                                                                                                            \
    __forceinline__ name2 __hneg2(name2 a) { return -a; }                                                        \
    __forceinline__ name2 __habs2(name2 a) { return {__habs(a.x), __habs(a.y)}; }                                \
    __forceinline__ name2 __hmax2(name2 a, name2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }             \
    __forceinline__ name2 __hmin2(name2 a, name2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }             \
    __forceinline__ name __hmax_nan(name a, name b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b); } \
    __forceinline__ name __hmin_nan(name a, name b) { return __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b); } \
    __forceinline__ int __hisinf(name a)                                                                         \
    {                                                                                                            \
        return __habs(a).bits == name(__builtin_inff()).bits ? a.bits & 0x8000 ? -1 : 1 : 0;                     \
    }                                                                                                            \
    __forceinline__ name __hfma_relu(name a, name b, name c) { return __hmax(__hfma(a, b, c), name(0)); }        \
    __forceinline__ name2 __hfma2_relu(name2 a, name2 b, name2 c)                                                \
    {                                                                                                            \
        return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};                                         \
    }                                                                                                            \
    EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, ==, eq)                                                    \
    EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, !=, ne)                                                    \
    EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, <, lt)                                                     \
    EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, <=, le)                                                    \
    EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, >, gt)                                                     \
    EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, >=, ge)                                                    \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, exp, expf(a))                                                     \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, exp2, exp2f(a))                                                   \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, exp10, exp10f(a))                                                 \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, log, logf(a))                                                     \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, log2, log2f(a))                                                   \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, log10, log10f(a))                                                 \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, sin, sinf(a))                                                     \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, cos, cosf(a))                                                     \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, tanh, tanhf(a))                                                   \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, sqrt, sqrtf(a))                                                   \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, rsqrt, 1 / sqrtf(a))                                              \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, rcp, 1 / float(a))                                                \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, floor, floorf(a))                                                 \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, ceil, ceilf(a))                                                   \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, trunc, truncf(a))                                                 \
    EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, rint, rintf(a))

#define EMULATOR_SMALL_FLOAT_FUNCTION(name, name2, function, expression) \
    inline name h##function(name a) { return name(expression); }         \
    inline name2 h2##function(name2 a) { return {h##function(a.x), h##function(a.y)}; }

// A comparison of pairs gives 1 or 0 for each, as numbers; whether both hold; or a mask of 16 bits for each.
#define EMULATOR_SMALL_FLOAT_PAIR_COMPARISON(name, name2, sign, function)                                         \
    __forceinline__ name2 __h##function##2(name2 a, name2 b) { return {name(a.x sign b.x), name(a.y sign b.y)}; } \
    __forceinline__ bool __hb##function##2(name2 a, name2 b) { return a.x sign b.x && a.y sign b.y; }             \
    __forceinline__ unsigned __h##function##2_mask(name2 a, name2 b)                                              \
    {                                                                                                             \
        return (a.x sign b.x ? 0xffffu : 0) | (a.y sign b.y ? 0xffff0000u : 0);                                   \
    }

#define EMULATOR_SMALL_FLOAT_OPERATOR(name, name2, sign, function, function2)                      \
    __forceinline__ name operator sign(name a, name b) { return name(float(a) sign float(b)); }    \
    __forceinline__ name2 operator sign(name2 a, name2 b) { return {a.x sign b.x, a.y sign b.y}; } \
    __forceinline__ name function(name a, name b) { return a sign b; }                             \
    __forceinline__ name2 function2(name2 a, name2 b) { return a sign b; }

#define EMULATOR_SMALL_FLOAT_COMPARISON(name, sign, function)                             \
    __forceinline__ bool operator sign(name a, name b) { return float(a) sign float(b); } \
    __forceinline__ bool function(name a, name b) { return a sign b; }
