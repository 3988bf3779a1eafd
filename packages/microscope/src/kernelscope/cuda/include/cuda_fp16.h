// Half precision for the emulator: the types and conversions of CUDA's header of this name that matmul kernels use.
#pragma once

#include "small_float.h"

namespace emulator {

inline unsigned short half_of(float number)
{
    const auto bits = bits_of<unsigned>(number);
    const unsigned sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7fff;   // NaN, as the hardware writes it
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and more: infinity
    if (magnitude < 0x33000001) return sign;            // 2^-25 and less: zero
    unsigned mantissa = (magnitude & 0x7fffff) | 0x800000, exponent = magnitude >> 23;
    const unsigned lost = exponent < 113 ? 126 - exponent : 13;  // bits; below 2^-14 they are more
    const unsigned kept = mantissa >> lost, half = 1u << (lost - 1), rest = mantissa & (2 * half - 1);
    const unsigned rounded = kept + (rest > half || (rest == half && kept & 1));
    return sign | (exponent < 113 ? rounded : rounded + ((exponent - 113) << 10));
}

inline float float_of_half(unsigned short half)
{
    const unsigned sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude < 0x0400) {  // below 2^-14
        const float tiny = magnitude * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    const unsigned exponent = magnitude >= 0x7c00 ? 0x70000000u : 0x38000000u;
    return bits_of<float>(sign | ((magnitude << 13) + exponent));
}

}  // namespace emulator

EMULATOR_SMALL_FLOAT(__half, __half2, emulator::half_of, emulator::float_of_half)
using half = __half;
using half2 = __half2;

__forceinline__ __half __float2half(float a) { return a; }
__forceinline__ __half __float2half_rn(float a) { return a; }
__forceinline__ __half __double2half(double a) { return a; }
__forceinline__ __half __int2half_rn(int a) { return a; }
__forceinline__ float __half2float(__half a) { return a; }
__forceinline__ int __half2int_rz(__half a) { return emulator::whole<int>(truncf(a)); }
__forceinline__ __half __ushort_as_half(unsigned short a) { return emulator::bits_of<__half>(a); }
__forceinline__ unsigned short __half_as_ushort(__half a) { return a.bits; }

__forceinline__ __half __short_as_half(short a) { return emulator::bits_of<__half>(a); }
__forceinline__ short __half_as_short(__half a) { return emulator::bits_of<short>(a); }
#define EMULATOR_HALF_TO(name, T)                                                             \
    __forceinline__ __half __##name##2half_rn(T a) { return __half(static_cast<double>(a)); } \
    __forceinline__ T __half2##name##_rn(__half a) { return emulator::whole<T>(rintf(a)); }   \
    __forceinline__ T __half2##name##_rd(__half a) { return emulator::whole<T>(floorf(a)); }  \
    __forceinline__ T __half2##name##_ru(__half a) { return emulator::whole<T>(ceilf(a)); }
EMULATOR_HALF_TO(uint, unsigned)
EMULATOR_HALF_TO(short, short)
EMULATOR_HALF_TO(ushort, unsigned short)
EMULATOR_HALF_TO(ll, long long)
EMULATOR_HALF_TO(ull, unsigned long long)
#undef EMULATOR_HALF_TO
__forceinline__ unsigned __half2uint_rz(__half a) { return emulator::whole<unsigned>(truncf(a)); }
__forceinline__ short __half2short_rz(__half a) { return emulator::whole<short>(truncf(a)); }
__forceinline__ unsigned short __half2ushort_rz(__half a) { return emulator::whole<unsigned short>(truncf(a)); }
__forceinline__ int __half2int_rn(__half a) { return emulator::whole<int>(rintf(a)); }
__forceinline__ int __half2int_rd(__half a) { return emulator::whole<int>(floorf(a)); }
__forceinline__ int __half2int_ru(__half a) { return emulator::whole<int>(ceilf(a)); }
/// The nearest half that is no further from zero than `a`, no greater, or no less.
inline __half __float2half_rz(float a)
{
    const __half near = a;
    return fabsf(near) > fabsf(a) ? __ushort_as_half(near.bits - 1) : near;
}
inline __half __float2half_rd(float a)
{
    const __half near = __float2half_rz(a);
    return float(near) > a ? __ushort_as_half(near.bits + 1) : near;
}
inline __half __float2half_ru(float a) { return -__float2half_rd(-a); }

__forceinline__ __half2 make_half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __halves2half2(__half x, __half y) { return {x, y}; }
__forceinline__ __half2 __half2half2(__half a) { return {a, a}; }
__forceinline__ __half2 __float2half2_rn(float a) { return {a, a}; }
__forceinline__ __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
__forceinline__ __half2 __float22half2_rn(float2 a) { return {a.x, a.y}; }
__forceinline__ float2 __half22float2(__half2 a) { return {a.x, a.y}; }
__forceinline__ __half __low2half(__half2 a) { return a.x; }
__forceinline__ __half __high2half(__half2 a) { return a.y; }
__forceinline__ __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
__forceinline__ __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
__forceinline__ __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }
__forceinline__ __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
__forceinline__ __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
