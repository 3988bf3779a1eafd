// Products of bytes on the tensor cores, by mma.sync and by wgmma: sums in 32 bits, exact modulo 2^32.
#include "ptx.cuh"

#define ME (static_cast<int>(threadIdx.x))

template <typename T>
__device__ __forceinline__ unsigned four(const T* from) { return *reinterpret_cast<const unsigned*>(from); }

#define MMA(SHAPE, A, B, REGISTERS, ...)                                                                        \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.s32." A "." B ".s32 {%0,%1,%2,%3}, " REGISTERS             \
                 ", {%0,%1,%2,%3};" : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : __VA_ARGS__)
#define MMA_32(A, B) \
    MMA("m16n8k32", A, B, "{%4,%5,%6,%7}, {%8,%9}", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

// C (16 x 8) += A (16 x 32) B, whose columns lie one after the other.
template <typename A, typename B>
__device__ __forceinline__ void multiply_warp(const A* rows, const B* columns, int* C)
{
    const int g = ME % 32 / 4, t = ME % 4;
    unsigned a[4], b[2];
    int d[4];
    for (int r = 0; r < 4; ++r) a[r] = four(rows + (g + 8 * (r % 2)) * 32 + 4 * t + 16 * (r / 2));
    for (int r = 0; r < 2; ++r) b[r] = four(columns + g * 32 + 4 * t + 16 * r);
    for (int v = 0; v < 4; ++v) d[v] = C[(g + 8 * (v / 2)) * 8 + 2 * t + v % 2];
    constexpr bool SIGNED_A = A(-1) < A(0), SIGNED_B = B(-1) < B(0);
    if constexpr (SIGNED_A && SIGNED_B) MMA_32("s8", "s8");
    else if constexpr (SIGNED_A) MMA_32("s8", "u8");
    else if constexpr (SIGNED_B) MMA_32("u8", "s8");
    else MMA_32("u8", "u8");
    for (int v = 0; v < 4; ++v) C[(g + 8 * (v / 2)) * 8 + 2 * t + v % 2] = d[v];
}
template <typename A, typename B>
__global__ void mma(const A* rows, const B* columns, int* C) { multiply_warp(rows, columns, C); }

__global__ void mma_of_half_the_depth(const signed char* rows, const signed char* columns, int* C)
{
    const int g = ME / 4, t = ME % 4;
    const unsigned a[2] = {four(rows + g * 16 + 4 * t), four(rows + (g + 8) * 16 + 4 * t)};
    const unsigned b = four(columns + g * 16 + 4 * t);
    int d[4] = {};
    MMA("m16n8k16", "s8", "s8", "{%4,%5}, {%6}", "r"(a[0]), "r"(a[1]), "r"(b));
    for (int v = 0; v < 4; ++v) C[(g + 8 * (v / 2)) * 8 + 2 * t + v % 2] = d[v];
}
__global__ void mma_without_some_lanes(const signed char* rows, const signed char* columns, int* C)
{
    if (ME < 31) multiply_warp(rows, columns, C);
    __syncwarp();
}
template <bool WAIT>
__global__ void mma_of_what_others_copy(const signed char* rows, const signed char* columns, int* C)
{
    __shared__ alignas(16) signed char tile[16 * 32];
    for (int i = ME; i < 16 * 32; i += 64) tile[i] = rows[i];
    if (WAIT) __syncthreads();
    if (ME < 32) multiply_warp(tile, columns, C);
}

// ---- wgmma ----------------------------------------------------------------------------------------------------------

#define WGMMA(A, B)                                                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"                                                   \
                 "wgmma.mma_async.sync.aligned.m64n16k32.s32." A "." B                                          \
                 " {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p;\n}"                                                    \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]) \
                 : "l"(a), "l"(b), "r"(add))

// Rows of 32 bytes of k, as tiles of 8 rows x 16 bytes: 128 bytes to the next along k, 256 to the next 8 rows.
__device__ __forceinline__ int place(int row, int k) { return row / 8 * 256 + k / 16 * 128 + row % 8 * 16 + k % 16; }
__device__ __forceinline__ unsigned long long descriptor(const void* tile)
{
    return (number(tile) & 0x3ffff) >> 4 | 128ull / 16 << 16 | 256ull / 16 << 32;
}

enum Step { fence = 1, proxy = 2, wait = 4, all = 7 };

// C (64 x 16) = A (64 x 32) B, added to C if `add`; what STEPS lacks is a fault.
template <typename A, typename B, int STEPS>
__global__ void wgmma(const A* rows, const B* columns, int* C, int add)
{
    __shared__ alignas(16) A tile_a[64 * 32];
    __shared__ alignas(16) B tile_b[16 * 32];
    for (int i = ME; i < 64 * 32; i += 128) tile_a[place(i / 32, i % 32)] = rows[i];
    for (int i = ME; i < 16 * 32; i += 128) tile_b[place(i / 32, i % 32)] = columns[i];
    if (STEPS & proxy) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned long long a = descriptor(tile_a), b = descriptor(tile_b);
    const int row = ME / 32 * 16 + ME % 32 / 4, column = 2 * (ME % 4);
    int d[8];
    for (int v = 0; v < 8; ++v) d[v] = C[(row + 8 * (v / 2 % 2)) * 16 + column + v % 2 + 8 * (v / 4)];
    if (STEPS & fence) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    constexpr bool SIGNED_A = A(-1) < A(0), SIGNED_B = B(-1) < B(0);
    if constexpr (SIGNED_A && SIGNED_B) WGMMA("s8", "s8");
    else if constexpr (SIGNED_A) WGMMA("s8", "u8");
    else if constexpr (SIGNED_B) WGMMA("u8", "s8");
    else WGMMA("u8", "u8");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (STEPS & wait) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int v = 0; v < 8; ++v) C[(row + 8 * (v / 2 % 2)) * 16 + column + v % 2 + 8 * (v / 4)] = d[v];
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The same with A in registers.
__global__ void wgmma_of_registers(const signed char* rows, const signed char* columns, int* C)
{
    __shared__ alignas(16) signed char tile[16 * 32];
    for (int i = ME; i < 16 * 32; i += 128) tile[place(i / 32, i % 32)] = columns[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned long long b = descriptor(tile);
    const int row = ME / 32 * 16 + ME % 32 / 4, t = ME % 4;
    unsigned a[4];
    int d[8];
    for (int r = 0; r < 4; ++r) a[r] = four(rows + (row + 8 * (r % 2)) * 32 + 4 * t + 16 * (r / 2));
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, 0;"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]), "=r"(d[6]), "=r"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int v = 0; v < 8; ++v) C[(row + 8 * (v / 2 % 2)) * 16 + 2 * t + v % 2 + 8 * (v / 4)] = d[v];
}
