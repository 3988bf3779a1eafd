// FP8 for the emulator: the types and conversions of CUDA's header of this name. e4m3 has no infinity, and one NaN.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace emulator {

/// The nearest number of 8 bits, the even one of two. What is too large becomes the largest, or NaN or infinity.
inline unsigned char fp8_of(double number, bool is_e4m3, bool saturates = true)
{
    const int fraction = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15;
    const unsigned sign = __builtin_signbit(number) ? 0x80 : 0, largest = is_e4m3 ? 0x7e : 0x7b;
    if (number != number) return is_e4m3 || saturates ? 0x7f : 0x7e;
    const double magnitude = __builtin_fabs(number);
    unsigned bits = largest + 1;
    if (magnitude < 0x1p17) {
        int exponent = 1 - bias;  // of subnormal numbers and the least others
        while (magnitude >= __builtin_ldexp(2, exponent)) ++exponent;
        const double whole = __builtin_rint(__builtin_ldexp(magnitude, fraction - exponent));
        bits = static_cast<unsigned>(whole) + ((exponent + bias - 1) << fraction);
    }
    return sign | (bits <= largest ? bits : largest + !saturates);
}
inline float float_of_fp8(unsigned char bits, bool is_e4m3)
{
    if (!is_e4m3) return float_of_half(static_cast<unsigned short>(bits << 8));
    const int magnitude = bits & 0x7f, exponent = magnitude >> 3, mantissa = magnitude & 7;
    const float number = magnitude == 0x7f ? __builtin_nanf("")
                         : exponent        ? __builtin_ldexpf(8 + mantissa, exponent - 10)
                                           : __builtin_ldexpf(mantissa, -9);
    return bits & 0x80 ? -number : number;
}

}  // namespace emulator

#define EMULATOR_TO_FP8(name, T)                                                          \
    inline __nv_fp8_storage_t __nv_cvt_##name##_to_fp8(T a, __nv_saturation_t saturation, \
                                                       __nv_fp8_interpretation_t kind)    \
    {                                                                                     \
        return emulator::fp8_of(a, kind == __NV_E4M3, saturation == __NV_SATFINITE);      \
    }
#define EMULATOR_TO_FP8X2(name, T)                                                                         \
    inline __nv_fp8x2_storage_t __nv_cvt_##name##_to_fp8x2(T a, __nv_saturation_t saturation,              \
                                                           __nv_fp8_interpretation_t kind)                 \
    {                                                                                                      \
        const bool is_e4m3 = kind == __NV_E4M3, saturates = saturation == __NV_SATFINITE;                  \
        return emulator::fp8_of(a.x, is_e4m3, saturates) | emulator::fp8_of(a.y, is_e4m3, saturates) << 8; \
    }
EMULATOR_TO_FP8(float, float)
EMULATOR_TO_FP8(double, double)
EMULATOR_TO_FP8(halfraw, __half)
EMULATOR_TO_FP8(bfloat16raw, __nv_bfloat16)
EMULATOR_TO_FP8X2(float2, float2)
EMULATOR_TO_FP8X2(double2, double2)
EMULATOR_TO_FP8X2(halfraw2, __half2)
EMULATOR_TO_FP8X2(bfloat16raw2, __nv_bfloat162)
#undef EMULATOR_TO_FP8
#undef EMULATOR_TO_FP8X2
inline __half __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t a, __nv_fp8_interpretation_t kind)
{
    return emulator::float_of_fp8(a, kind == __NV_E4M3);
}
inline __half2 __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t a, __nv_fp8_interpretation_t kind)
{
    return {__nv_cvt_fp8_to_halfraw(a & 0xff, kind), __nv_cvt_fp8_to_halfraw(a >> 8, kind)};
}

/// One, two and four numbers. Conversions are explicit, as CUDA's are.
#define EMULATOR_FP8(format, kind)                                                                                 \
    struct __nv_fp8_##format {                                                                                     \
        __nv_fp8_storage_t __x;                                                                                    \
        __nv_fp8_##format() = default;                                                                             \
        template <typename Number, typename = emulator::IfNumber<Number>>                                          \
        __forceinline__ explicit __nv_fp8_##format(Number a) : __x(emulator::fp8_of(a, kind == __NV_E4M3))         \
        {}                                                                                                         \
        __forceinline__ explicit __nv_fp8_##format(__half a) : __nv_fp8_##format(float(a)) {}                      \
        __forceinline__ explicit __nv_fp8_##format(__nv_bfloat16 a) : __nv_fp8_##format(float(a)) {}               \
        __forceinline__ explicit operator float() const { return emulator::float_of_fp8(__x, kind == __NV_E4M3); } \
        __forceinline__ explicit operator double() const { return float(*this); }                                  \
        __forceinline__ explicit operator __half() const { return float(*this); }                                  \
        __forceinline__ explicit operator __nv_bfloat16() const { return float(*this); }                           \
        __forceinline__ explicit operator bool() const { return __x & 0x7f; }                                      \
        __forceinline__ explicit operator int() const { return emulator::whole<int>(truncf(float(*this))); }       \
    };                                                                                                             \
    struct alignas(2) __nv_fp8x2_##format {                                                                        \
        __nv_fp8x2_storage_t __x;                                                                                  \
        __nv_fp8x2_##format() = default;                                                                           \
        __forceinline__ explicit __nv_fp8x2_##format(float2 a)                                                     \
            : __x(__nv_cvt_float2_to_fp8x2(a, __NV_SATFINITE, kind))                                               \
        {}                                                                                                         \
        __forceinline__ explicit __nv_fp8x2_##format(double2 a)                                                    \
            : __x(__nv_cvt_double2_to_fp8x2(a, __NV_SATFINITE, kind))                                              \
        {}                                                                                                         \
        __forceinline__ explicit __nv_fp8x2_##format(__half2 a)                                                    \
            : __x(__nv_cvt_halfraw2_to_fp8x2(a, __NV_SATFINITE, kind))                                             \
        {}                                                                                                         \
        __forceinline__ explicit __nv_fp8x2_##format(__nv_bfloat162 a)                                             \
            : __x(__nv_cvt_bfloat16raw2_to_fp8x2(a, __NV_SATFINITE, kind))                                         \
        {}                                                                                                         \
        __forceinline__ explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, kind); }        \
        __forceinline__ explicit operator float2() const                                                           \
        {                                                                                                          \
            const __half2 two(*this);                                                                              \
            return {two.x, two.y};                                                                                 \
        }                                                                                                          \
    };                                                                                                             \
    struct alignas(4) __nv_fp8x4_##format {                                                                        \
        __nv_fp8x4_storage_t __x;                                                                                  \
        __nv_fp8x4_##format() = default;                                                                           \
        template <typename Two>                                                                                    \
        __forceinline__ explicit __nv_fp8x4_##format(Two low, Two high)                                            \
            : __x(__nv_fp8x2_##format(low).__x | __nv_fp8x2_##format(high).__x << 16)                              \
        {}                                                                                                         \
        __forceinline__ explicit __nv_fp8x4_##format(float4 a)                                                     \
            : __nv_fp8x4_##format(float2{a.x, a.y}, float2{a.z, a.w})                                              \
        {}                                                                                                         \
        __forceinline__ explicit operator float4() const                                                           \
        {                                                                                                          \
            const __half2 low = __nv_cvt_fp8x2_to_halfraw2(__x & 0xffff, kind);                                    \
            const __half2 high = __nv_cvt_fp8x2_to_halfraw2(__x >> 16, kind);                                      \
            return {low.x, low.y, high.x, high.y};                                                                 \
        }                                                                                                          \
    };
EMULATOR_FP8(e4m3, __NV_E4M3)
EMULATOR_FP8(e5m2, __NV_E5M2)
#undef EMULATOR_FP8
