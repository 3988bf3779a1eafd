// wgmma: a warp group (4 warps) multiplies a 64 x k tile of A with a k x N tile of B, both read from shared memory, and
// adds the product to float sums in its registers (PTX: "Asynchronous Warpgroup Level Matrix Instructions").
//
// Thread t holds, for each 8 columns j of N, sums[4 j + 0, 1] of row 16 (t / 32) + t % 32 / 4 and sums[4 j + 2, 3] of
// the row 8 below, columns 8 j + 2 (t % 4) and the next.
//
// The instructions run by themselves: between begin_products() and wait_for_products() nothing may touch the sums, or
// ptxas puts a wait after each of them (its warnings C7508 and C7510).
#pragma once
#include "short_numbers.cuh"

/// wgmma.fence: earlier accesses of the registers come before the products.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// wgmma.commit_group
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// wgmma.wait_group: until all but the last PENDING groups are done.
template <int PENDING>
__device__ __forceinline__ void wait_for_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/// A tile in shared memory ("Matrix Descriptor"): start address, two strides, all in units of 16 B, and the swizzle
/// that TMA wrote it with.
using Descriptor = unsigned long long;

/// Keeps the compiler from moving uses of the sums across this place: it does not know that wgmma is asynchronous.
template <int COUNT>
__device__ __forceinline__ void pin(float (&sums)[COUNT])
{
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        asm volatile("" : "+f"(sums[i])::"memory");
}

/// Rows of 64 or 128 bytes along k: 8 rows make a group, groups follow one another. A step along k adds its bytes / 16.
template <int ROW_BYTES>
__device__ __forceinline__ Descriptor rows_along_k(unsigned address)
{
    static_assert(ROW_BYTES == 128 || ROW_BYTES == 64, "a row is as long as the swizzle");
    constexpr Descriptor swizzle = ROW_BYTES == 128 ? 1 : 2;
    return (address & 0x3ffff) >> 4 | Descriptor(1) << 16 | Descriptor(8 * ROW_BYTES / 16) << 32 | swizzle << 62;
}

/// Rows of 128 bytes (64 columns) across k, as a row-major B comes; panels of 64 columns follow one another at a
/// distance of PANEL_BYTES. A step of 16 along k adds 16 * 128 / 16.
template <int PANEL_BYTES>
__device__ __forceinline__ Descriptor rows_across_k(unsigned address)
{
    constexpr Descriptor panel = PANEL_BYTES / 16, eight_rows = 1024 / 16, swizzle = 1;
    return (address & 0x3ffff) >> 4 | panel << 16 | eight_rows << 32 | swizzle << 62;
}

// The registers of the sums, by number in the text of the instruction and as operands of asm.
#define WGMMA_NAMES_0                                                                   \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"                             \
    ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_NAMES_1                                                                   \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"                  \
    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_NAMES_2                                                                   \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"                  \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WGMMA_NAMES_3                                                                   \
    ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"      \
    ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA_8(o) "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3]), \
                   "+f"(d[o + 4]), "+f"(d[o + 5]), "+f"(d[o + 6]), "+f"(d[o + 7])
#define WGMMA_32(o) WGMMA_8(o), WGMMA_8(o + 8), WGMMA_8(o + 16), WGMMA_8(o + 24)

// One overload per number of columns: the size of the array of sums chooses it. `accumulate` 0 overwrites the sums.
#define WGMMA(COUNT, SHAPE, TYPES, TAIL, NAMES, A, B, P, ...)                                                \
    static __device__ __forceinline__ void multiply(float (&d)[COUNT], Descriptor a, Descriptor b, int accumulate) \
    {                                                                                                        \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." SHAPE         \
                     ".f32." TYPES " {" NAMES "}, " A ", " B ", p, 1, 1" TAIL ";\n}"                          \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(accumulate));                                       \
    }
#define WGMMA_ALL(K, TYPES, TAIL)                                                                            \
    WGMMA(32, "m64n64" K, TYPES, TAIL, WGMMA_NAMES_0, "%32", "%33", "%34", WGMMA_32(0))                       \
    WGMMA(64, "m64n128" K, TYPES, TAIL, WGMMA_NAMES_0 WGMMA_NAMES_1, "%64", "%65", "%66", WGMMA_32(0),         \
          WGMMA_32(32))                                                                                      \
    WGMMA(96, "m64n192" K, TYPES, TAIL, WGMMA_NAMES_0 WGMMA_NAMES_1 WGMMA_NAMES_2, "%96", "%97", "%98",        \
          WGMMA_32(0), WGMMA_32(32), WGMMA_32(64))                                                           \
    WGMMA(128, "m64n256" K, TYPES, TAIL, WGMMA_NAMES_0 WGMMA_NAMES_1 WGMMA_NAMES_2 WGMMA_NAMES_3, "%128",      \
          "%129", "%130", WGMMA_32(0), WGMMA_32(32), WGMMA_32(64), WGMMA_32(96))

// A from registers: a[0] and a[1] are element t % 4 of k in row 16 (t / 32) + t % 32 / 4 and in the row 8 below; a[2] and
// a[3] are the same rows 4 further along k.
#define WGMMA_OF_REGISTERS(COUNT, SHAPE, TYPES, NAMES, A, B, P, ...)                                           \
    static __device__ __forceinline__ void multiply(float (&d)[COUNT], const unsigned (&a)[4], Descriptor b,    \
                                                    int accumulate)                                          \
    {                                                                                                        \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." SHAPE         \
                     ".f32." TYPES " {" NAMES "}, {" A "}, " B ", p, 1, 1;\n}"                                \
                     : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));   \
    }

/// Wgmma<T>::multiply(sums, a, b, accumulate): 16 of k with A along k and B across k; TF32 (T = float): 8 of k, both
/// along k.
template <typename T>
struct Wgmma;

template <>
struct Wgmma<__half> {
    WGMMA_ALL("k16", "f16.f16", ", 0, 1")
};
template <>
struct Wgmma<__nv_bfloat16> {
    WGMMA_ALL("k16", "bf16.bf16", ", 0, 1")
};
template <>
struct Wgmma<float> {
    WGMMA_ALL("k8", "tf32.tf32", "")
    WGMMA_OF_REGISTERS(32, "m64n64k8", "tf32.tf32", WGMMA_NAMES_0, "%32,%33,%34,%35", "%36", "%37", WGMMA_32(0))
    WGMMA_OF_REGISTERS(64, "m64n128k8", "tf32.tf32", WGMMA_NAMES_0 WGMMA_NAMES_1, "%64,%65,%66,%67", "%68", "%69",
                       WGMMA_32(0), WGMMA_32(32))
    WGMMA_OF_REGISTERS(128, "m64n256k8", "tf32.tf32", WGMMA_NAMES_0 WGMMA_NAMES_1 WGMMA_NAMES_2 WGMMA_NAMES_3,
                       "%128,%129,%130,%131", "%132", "%133", WGMMA_32(0), WGMMA_32(32), WGMMA_32(64), WGMMA_32(96))
};
