// Numbers shorter than float: how floats are rounded to them. PTX ISA: Data Movement and Conversion Instructions: cvt.
#pragma once

struct __half;         // as cuda_fp16.h and cuda_bf16.h name them; only their bits pass through these kernels
struct __nv_bfloat16;

/// Two numbers of 2 bytes in one word.
template <typename T>
struct Short;

template <>
struct Short<__half> {
    /// Two floats rounded to nearest even, the first in the low half of the word.
    static __device__ __forceinline__ unsigned pack(float first, float second)
    {
        unsigned word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
        return word;
    }
    static __device__ __forceinline__ float low(unsigned word)
    {
        float value;
        asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(value) : "r"(word));
        return value;
    }
    static __device__ __forceinline__ float high(unsigned word)
    {
        float value;
        asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(value) : "r"(word));
        return value;
    }
};

template <>
struct Short<__nv_bfloat16> {
    static __device__ __forceinline__ unsigned pack(float first, float second)
    {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
        return word;
    }
    static __device__ __forceinline__ float low(unsigned word) { return __uint_as_float(word << 16); }
    static __device__ __forceinline__ float high(unsigned word) { return __uint_as_float(word & 0xffff0000u); }
};

/// The TF32 number (10 bits of mantissa) nearest to the float with these bits, ties away from zero. In place: a
/// separate result costs a move, since Hopper has no such instruction and ptxas adds 0x1000 to what is finite.
__device__ __forceinline__ void round_to_tf32(unsigned& bits)
{
    asm("{ .reg .f32 f; mov.b32 f, %0; cvt.rna.tf32.f32 %0, f; }" : "+r"(bits));
}
__device__ __forceinline__ float to_tf32(float value)
{
    unsigned bits = __float_as_uint(value);
    round_to_tf32(bits);
    return __uint_as_float(bits);
}
