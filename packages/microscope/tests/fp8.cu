// Numbers of 8 bits: conversions, and products of tensor cores.
#include <cuda_fp8.h>

__global__ void narrowed(const float* x, __nv_fp8_e4m3* short_, __nv_fp8_e5m2* wide, unsigned char* open, int n)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    short_[k] = __nv_fp8_e4m3(x[k]);
    wide[k] = __nv_fp8_e5m2(x[k]);
    open[k] = __nv_cvt_float_to_fp8(x[k], __NV_NOSAT, __NV_E4M3);
    open[n + k] = __nv_cvt_double_to_fp8(x[k], __NV_NOSAT, __NV_E5M2);
}
__global__ void widened(const __nv_fp8_e4m3* short_, const __nv_fp8x4_e5m2* wide, float* out, float4* fours)
{
    out[threadIdx.x] = float(short_[threadIdx.x]);
    if (threadIdx.x < 64) fours[threadIdx.x] = static_cast<float4>(wide[threadIdx.x]);
}
// Pairs by PTX and by the header are the same.
__global__ void pairs(const float2* x, unsigned short* out, __half2* back)
{
    const float2 mine = x[threadIdx.x];
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(mine.y), "f"(mine.x));
    unsigned halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
    out[2 * threadIdx.x] = two;
    out[2 * threadIdx.x + 1] = __nv_fp8x2_e4m3(mine).__x;
    back[2 * threadIdx.x] = *reinterpret_cast<__half2*>(&halves);
    back[2 * threadIdx.x + 1] = static_cast<__half2>(__nv_fp8x2_e4m3(mine));
}
__global__ void narrowed_faulty(const float* x, __nv_fp8_e4m3* short_)
{
    short_[threadIdx.x / 2] = __nv_fp8_e4m3(x[threadIdx.x]);  // FAULT: race
}

__device__ unsigned four(const unsigned char* from) { return *reinterpret_cast<const unsigned*>(from); }

// C (16 x 8) += A (16 x 32) B; `columns` are the rows of B's transpose.
#define MMA(A, B)                                                                                                \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." A "." B ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, " \
                 "{%0,%1,%2,%3};"                                                                                \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <int KINDS>
__global__ void mma(const unsigned char* rows, const unsigned char* columns, float* C)
{
    const int row = threadIdx.x / 4, t = threadIdx.x % 4;
    unsigned a[4], b[2];
    float c[4];
    for (int r = 0; r < 4; ++r) a[r] = four(rows + (row + 8 * (r % 2)) * 32 + 4 * t + 16 * (r / 2));
    for (int r = 0; r < 2; ++r) b[r] = four(columns + row * 32 + 4 * t + 16 * r);
    for (int v = 0; v < 4; ++v) c[v] = C[(row + 8 * (v / 2)) * 8 + 2 * t + v % 2];
    if (KINDS == 0) MMA("e4m3", "e4m3");
    if (KINDS == 1) MMA("e4m3", "e5m2");
    if (KINDS == 2) MMA("e5m2", "e4m3");
    if (KINDS == 3) MMA("e5m2", "e5m2");
    for (int v = 0; v < 4; ++v) C[(row + 8 * (v / 2)) * 8 + 2 * t + v % 2] = c[v];
}

// C (64 x 8) += A (64 x 32) B, with A in shared memory, or in registers.
#define WGMMA(A, B, list, operands)                                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32." A "." B " {%0,%1,%2,%3}, " list ", 1, 1, 1;" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : operands, "l"(descriptor(tile_b)))
#define _ ,
#define REGISTERS "r"(a[0]) _ "r"(a[1]) _ "r"(a[2]) _ "r"(a[3])
__device__ __forceinline__ int place(int row, int k) { return row / 8 * 256 + k / 16 * 128 + row % 8 * 16 + k % 16; }
__device__ __forceinline__ unsigned long long descriptor(const void* tile)
{
    return (__cvta_generic_to_shared(tile) & 0x3ffff) >> 4 | 128ull / 16 << 16 | 256ull / 16 << 32;
}
template <int KINDS, bool WAITS>
__global__ void wgmma(const unsigned char* rows, const unsigned char* columns, float* C)
{
    __shared__ alignas(16) unsigned char tile_a[64 * 32], tile_b[8 * 32];
    const int me = threadIdx.x, row = me / 32 * 16 + me % 32 / 4, t = me % 4;
    for (int i = me; i < 64 * 32; i += 128) tile_a[place(i / 32, i % 32)] = rows[i];
    for (int i = me; i < 8 * 32; i += 128) tile_b[place(i / 32, i % 32)] = columns[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    unsigned a[4];
    float c[4];
    for (int r = 0; r < 4; ++r) a[r] = four(rows + (row + 8 * (r % 2)) * 32 + 4 * t + 16 * (r / 2));
    for (int v = 0; v < 4; ++v) c[v] = C[(row + 8 * (v / 2)) * 8 + 2 * t + v % 2];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if (KINDS == 0) WGMMA("e4m3", "e4m3", "%4, %5", "l"(descriptor(tile_a)));
    if (KINDS == 1) WGMMA("e4m3", "e5m2", "%4, %5", "l"(descriptor(tile_a)));
    if (KINDS == 2) WGMMA("e5m2", "e4m3", "{%4,%5,%6,%7}, %8", REGISTERS);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (WAITS) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int v = 0; v < 4; ++v) C[(row + 8 * (v / 2)) * 8 + 2 * t + v % 2] = c[v];  // FAULT: no wait
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
