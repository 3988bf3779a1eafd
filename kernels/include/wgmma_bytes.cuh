// wgmma on bytes: what wgmma.cuh has for halves, with sums in 32-bit integers, which are exact. 32 of k per instruction;
// both operands lie along k ("rows_along_k"): the instruction has no transposition for bytes.
#pragma once
#include "wgmma.cuh"

/// As the function for floats: the compiler must not move uses of the sums across this place.
template <int COUNT>
__device__ __forceinline__ void pin(int (&sums)[COUNT])
{
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        asm volatile("" : "+r"(sums[i])::"memory");
}

#define WGMMA_BYTES_8(o) "+r"(d[o]), "+r"(d[o + 1]), "+r"(d[o + 2]), "+r"(d[o + 3]), \
                         "+r"(d[o + 4]), "+r"(d[o + 5]), "+r"(d[o + 6]), "+r"(d[o + 7])
#define WGMMA_BYTES_32(o) WGMMA_BYTES_8(o), WGMMA_BYTES_8(o + 8), WGMMA_BYTES_8(o + 16), WGMMA_BYTES_8(o + 24)
#define WGMMA_BYTES(COUNT, COLUMNS, NAMES, A, B, P, ...)                                                             \
    __device__ __forceinline__ void multiply_bytes(int (&d)[COUNT], Descriptor a, Descriptor b, int accumulate)      \
    {                                                                                                                \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned.m64n" COLUMNS         \
                     "k32.s32.s8.s8 {" NAMES "}, " A ", " B ", p;\n}"                                                \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(accumulate));                                               \
    }

/// sums += a b for 32 of k, signed bytes; one overload per number of columns. `accumulate` 0 overwrites the sums.
/// PTX ISA: wgmma.mma_async, .s32.s8.s8.
WGMMA_BYTES(32, "64", WGMMA_NAMES_0, "%32", "%33", "%34", WGMMA_BYTES_32(0))
WGMMA_BYTES(64, "128", WGMMA_NAMES_0 WGMMA_NAMES_1, "%64", "%65", "%66", WGMMA_BYTES_32(0), WGMMA_BYTES_32(32))
WGMMA_BYTES(96, "192", WGMMA_NAMES_0 WGMMA_NAMES_1 WGMMA_NAMES_2, "%96", "%97", "%98", WGMMA_BYTES_32(0),
            WGMMA_BYTES_32(32), WGMMA_BYTES_32(64))
WGMMA_BYTES(128, "256", WGMMA_NAMES_0 WGMMA_NAMES_1 WGMMA_NAMES_2 WGMMA_NAMES_3, "%128", "%129", "%130",
            WGMMA_BYTES_32(0), WGMMA_BYTES_32(32), WGMMA_BYTES_32(64), WGMMA_BYTES_32(96))

// A from registers: byte i of a[0] is row g, k = 4 t + i; a[1] is the row 8 below, a[2] and a[3] are 16 further along k.
#define WGMMA_BYTES_OF_REGISTERS(COUNT, COLUMNS, NAMES, A, B, P, ...)                                                \
    __device__ __forceinline__ void multiply_bytes(int (&d)[COUNT], const unsigned (&a)[4], Descriptor b,            \
                                                   int accumulate)                                                   \
    {                                                                                                                \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned.m64n" COLUMNS         \
                     "k32.s32.s8.s8 {" NAMES "}, {" A "}, " B ", p;\n}"                                              \
                     : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));           \
    }
WGMMA_BYTES_OF_REGISTERS(32, "64", WGMMA_NAMES_0, "%32,%33,%34,%35", "%36", "%37", WGMMA_BYTES_32(0))
WGMMA_BYTES_OF_REGISTERS(64, "128", WGMMA_NAMES_0 WGMMA_NAMES_1, "%64,%65,%66,%67", "%68", "%69", WGMMA_BYTES_32(0),
                         WGMMA_BYTES_32(32))
WGMMA_BYTES_OF_REGISTERS(128, "256", WGMMA_NAMES_0 WGMMA_NAMES_1 WGMMA_NAMES_2 WGMMA_NAMES_3, "%128,%129,%130,%131",
                         "%132", "%133", WGMMA_BYTES_32(0), WGMMA_BYTES_32(32), WGMMA_BYTES_32(64), WGMMA_BYTES_32(96))
