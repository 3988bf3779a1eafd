// Complex numbers: the types and functions of CUDA's header of this name.
#pragma once

#include "cuda_emulator.h"

#define EMULATOR_COMPLEX(name, f, T, T2)                                                                      \
    using name = T2;                                                                                          \
    __forceinline__ T cuCreal##f(name a) { return a.x; }                                                      \
    __forceinline__ T cuCimag##f(name a) { return a.y; }                                                      \
    __forceinline__ name make_##name(T x, T y) { return {x, y}; }                                             \
    __forceinline__ name cuConj##f(name a) { return {a.x, -a.y}; }                                            \
    __forceinline__ name cuCadd##f(name a, name b) { return {a.x + b.x, a.y + b.y}; }                         \
    __forceinline__ name cuCsub##f(name a, name b) { return {a.x - b.x, a.y - b.y}; }                         \
    __forceinline__ name cuCmul##f(name a, name b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; } \
    __forceinline__ name cuCdiv##f(name a, name b)                                                            \
    {                                                                                                         \
        const T scale = 1 / (fabs##f(b.x) + fabs##f(b.y)); /* so that no square overflows */                  \
        const name c{a.x * scale, a.y * scale}, d{b.x * scale, b.y * scale};                                  \
        const T square = 1 / (d.x * d.x + d.y * d.y);                                                         \
        return {(c.x * d.x + c.y * d.y) * square, (c.y * d.x - c.x * d.y) * square};                          \
    }                                                                                                         \
    __forceinline__ T cuCabs##f(name a) { return hypot##f(a.x, a.y); }                                        \
    __forceinline__ name cuCfma##f(name a, name b, name c)                                                    \
    {                                                                                                         \
        return {a.x * b.x + c.x - a.y * b.y, a.x * b.y + c.y + a.y * b.x};                                    \
    }
EMULATOR_COMPLEX(cuFloatComplex, f, float, float2)
EMULATOR_COMPLEX(cuDoubleComplex, , double, double2)
#undef EMULATOR_COMPLEX
using cuComplex = cuFloatComplex;
__forceinline__ cuComplex make_cuComplex(float x, float y) { return {x, y}; }
__forceinline__ cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
__forceinline__ cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {float(a.x), float(a.y)}; }
