// bfloat16 for the emulator: the types and conversions of CUDA's header of this name that matmul kernels use.
#pragma once

#include "small_float.h"

namespace emulator {

inline unsigned short bfloat16_of(float number)
{
    const auto bits = bits_of<unsigned>(number);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN, as the hardware writes it
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline float float_of_bfloat16(unsigned short bfloat16)
{
    return bits_of<float>(static_cast<unsigned>(bfloat16) << 16);
}

}  // namespace emulator

EMULATOR_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, emulator::bfloat16_of, emulator::float_of_bfloat16)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

__forceinline__ __nv_bfloat16 __float2bfloat16(float a) { return a; }
__forceinline__ __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
__forceinline__ __nv_bfloat16 __double2bfloat16(double a) { return a; }
__forceinline__ __nv_bfloat16 __int2bfloat16_rn(int a) { return a; }
__forceinline__ float __bfloat162float(__nv_bfloat16 a) { return a; }
__forceinline__ int __bfloat162int_rz(__nv_bfloat16 a) { return emulator::whole<int>(truncf(a)); }
__forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return emulator::bits_of<__nv_bfloat16>(a); }
__forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }

__forceinline__ __nv_bfloat16 __short_as_bfloat16(short a) { return emulator::bits_of<__nv_bfloat16>(a); }
__forceinline__ short __bfloat16_as_short(__nv_bfloat16 a) { return emulator::bits_of<short>(a); }
__forceinline__ int __bfloat162int_rn(__nv_bfloat16 a) { return emulator::whole<int>(rintf(a)); }
__forceinline__ __nv_bfloat16 __uint2bfloat16_rn(unsigned a) { return __nv_bfloat16(static_cast<double>(a)); }
/// The bits that bfloat16 has, and no more.
inline __nv_bfloat16 __float2bfloat16_rz(float a)
{
    const __nv_bfloat16 near = a;
    return fabsf(near) > fabsf(a) ? __ushort_as_bfloat16(near.bits - 1) : near;
}

__forceinline__ __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
__forceinline__ __nv_bfloat162 __float2bfloat162_rn(float a) { return {a, a}; }
__forceinline__ __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
__forceinline__ __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
__forceinline__ float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
__forceinline__ __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
__forceinline__ __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
__forceinline__ __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
__forceinline__ __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
__forceinline__ __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return {a.y, a.x}; }
__forceinline__ __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
__forceinline__ __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
