// Small kernels for tests/microscope/test_constructs.py, a clean and a faulty one for each construct of CUDA. Each runs as two
// blocks of 64 threads, or as one of 64; A, B and C have 128 elements at least. What a construct computes is asserted.
#include <cassert>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <device_launch_parameters.h>
#include <math_constants.h>

#define KERNEL(name) template <typename T> __global__ void name(const T* A, const T* B, T* C, int n, int p, int m)
#define ME (static_cast<int>(threadIdx.x))
#define ALL 0xffffffffu

__device__ inline unsigned number(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }

// ---- The warp ----------------------------------------------------------------------------------------------------------

KERNEL(clean_shuffles)
{
    const int lane = ME % 32;
    assert(__shfl_sync(ALL, ME, 5) == ME - lane + 5);
    assert(__shfl_sync(ALL, ME, 37) == ME - lane + 5);
    assert(__shfl_sync(ALL, ME, 3, 8) == ME - lane % 8 + 3);
    assert(__shfl_up_sync(ALL, lane, 2) == (lane < 2 ? lane : lane - 2));
    assert(__shfl_down_sync(ALL, lane, 30) == (lane < 2 ? lane + 30 : lane));
    assert(__shfl_xor_sync(ALL, lane, 16) == (lane ^ 16));
    assert(__shfl_xor_sync(ALL, 0.5 * lane, 1) == 0.5 * (lane ^ 1));
    int sum = lane;
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(ALL, sum, d);
    if (lane == 0) assert(sum == 496);
    if (lane < 8) assert(__shfl_sync(0xff, lane, 7) == 7);
    if (ME == 0) assert(__shfl_sync(1, 9, 0) == 9);
    C[ME] = 0;
}
KERNEL(faulty_shuffle_lane_elsewhere)
{
    if (ME % 32 < 16) C[ME] = __shfl_sync(ALL, ME, 0);  // FAULT
    __syncthreads();
}
KERNEL(faulty_shuffle_reads_lane_outside)
{
    if (ME % 32 < 16) C[ME] = __shfl_sync(0xffff, ME, 20);  // FAULT
}
KERNEL(faulty_mask_without_caller)
{
    C[ME] = __shfl_sync(0x7fffffff, ME, 0);  // FAULT
}
KERNEL(faulty_two_masks)
{
    const unsigned mask = ME % 32 < 16 ? ALL : 0xffff0000u;
    C[ME] = __ballot_sync(mask, 1);  // FAULT
}
KERNEL(clean_votes)
{
    const int lane = ME % 32;
    assert(__ballot_sync(ALL, lane % 2) == 0xaaaaaaaau);
    assert(__any_sync(ALL, lane == 3) && !__any_sync(ALL, 0));
    assert(__all_sync(ALL, 1) && !__all_sync(ALL, lane));
    if (lane % 2) assert(__ballot_sync(0xaaaaaaaau, lane < 4) == 0xau);
    if (lane >= 24) assert(__activemask() == 0xff000000u);
    assert(__match_any_sync(ALL, lane / 4) == 0xfu << lane / 4 * 4);
    int same;
    assert(__match_all_sync(ALL, 7, &same) == ALL && same);
    assert(__match_all_sync(ALL, lane, &same) == 0 && !same);
    assert(__reduce_add_sync(ALL, lane) == 496 && __reduce_max_sync(ALL, -lane) == 0 && __reduce_min_sync(ALL, -lane) == -31);
    assert(__reduce_or_sync(ALL, 1u << lane) == ALL && __reduce_and_sync(ALL, ~(1u << lane)) == 0);
    assert(__reduce_xor_sync(ALL, lane ? 0u : 5u) == 5);
    if (lane == 31) return;
    assert(__popc(__ballot_sync(ALL >> 1, 1)) == 31);  // lane 31 has ended
    C[ME] = 0;
}
KERNEL(faulty_vote_in_two_branches)
{
    if (ME % 2) C[ME] = __any_sync(ALL, 1);
    else C[ME] = __all_sync(ALL, 1);  // FAULT
}
KERNEL(clean_warp_barrier)
{
    __shared__ int values[64];
    values[ME] = ME;
    __syncwarp();
    assert(values[ME ^ 1] == (ME ^ 1));
    if (ME % 32 < 4) {
        __syncwarp(0xf);
        values[ME] = 1;
        __syncwarp(0xf);
        assert(values[ME ^ 3] == 1);
    }
    C[ME] = 0;
}
KERNEL(faulty_warp_barrier_of_others)
{
    __shared__ int values[64];
    values[ME] = ME;
    __syncwarp(ME % 2 ? 0xaaaaaaaau : 0x55555555u);
    C[ME] = values[ME ^ 1];  // FAULT
}
KERNEL(faulty_shuffle_is_no_fence)
{
    __shared__ int values[64];
    values[ME] = ME;
    __shfl_sync(ALL, ME, 0);
    C[ME] = values[ME ^ 1];  // FAULT
}

// ---- The block -----------------------------------------------------------------------------------------------------------

KERNEL(clean_counting_barriers)
{
    assert(__syncthreads_count(ME % 4 == 0) == static_cast<int>(blockDim.x) / 4);
    assert(__syncthreads_or(ME == 63) && !__syncthreads_or(0));
    assert(__syncthreads_and(1) && !__syncthreads_and(ME != 63));
    C[ME] = 0;
}
KERNEL(faulty_counting_barrier)
{
    if (ME < 32) C[ME] = __syncthreads_count(1);
    else __syncthreads();  // FAULT
}
KERNEL(clean_atomics)
{
    __shared__ int count, most, flags;
    __shared__ unsigned long long wide;
    __shared__ float sum;
    if (ME == 0) count = most = flags = 0, wide = 0, sum = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    atomicMax(&most, ME);
    atomicOr(&flags, 1 << ME % 8);
    atomicAdd(&wide, 1ull << 33);
    atomicAdd(&sum, 0.5f);
    __syncthreads();
    assert(count == 64 && most == 63 && flags == 255 && wide == 64ull << 33 && sum == 32);
    __syncthreads();
    if (ME == 0) {
        assert(atomicCAS(&count, 64, 5) == 64 && atomicCAS(&count, 64, 6) == 5 && count == 5);
        assert(atomicExch(&count, 1) == 5 && atomicInc((unsigned*)&count, 1u) == 1 && count == 0);
        assert(atomicDec((unsigned*)&count, 7u) == 0 && count == 7 && atomicSub(&count, 2) == 7 && atomicMin(&count, 3) == 5);
        assert(atomicAnd(&count, 1) == 3 && atomicXor(&count, 3) == 1 && count == 2);
    }
    C[ME] = 0;
}
KERNEL(faulty_atomic_and_plain)
{
    __shared__ int count;
    if (ME == 0) count = 0;
    __syncthreads();
    if (ME < 32) atomicAdd(&count, 1);
    else count = 3;  // FAULT
    __syncthreads();
    C[ME] = count;
}
KERNEL(faulty_atomic_not_begun)
{
    __shared__ int count;
    atomicAdd(&count, 1);  // FAULT
    __syncthreads();
    C[ME] = count;
}
KERNEL(clean_last_block)  // each block writes, shows it, counts; the last one reads what all wrote
{
    static __device__ unsigned arrived = 0;
    __shared__ bool last;
    C[64 * blockIdx.x + ME] = T(ME);
    __threadfence();
    __syncthreads();
    if (ME == 0) last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last) assert(C[64 * (1 - blockIdx.x) + ME] == T(ME));
}
KERNEL(faulty_last_block_without_fence)
{
    static __device__ unsigned arrived = 0;
    __shared__ bool last;
    C[64 * blockIdx.x + ME] = T(ME);
    __syncthreads();
    if (ME == 0) last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last) C[64 * blockIdx.x + ME] += C[64 * (1 - blockIdx.x) + ME];  // FAULT
}

// ---- One thread -------------------------------------------------------------------------------------------------------------

__device__ __noinline__ int outside(int x) { return x + 1; }

KERNEL(clean_intrinsics)
{
    assert(__popc(0xf0f0) == 8 && __popcll(~0ull) == 64 && __clz(1) == 31 && __clz(0) == 32 && __clzll(1) == 63);
    assert(__ffs(8) == 4 && __ffs(0) == 0 && __brev(1) == 0x80000000u && __brevll(1) == 1ull << 63);
    assert(__mulhi(1 << 30, 8) == 2 && __umulhi(~0u, 2) == 1 && __umul64hi(~0ull, 2) == 1 && __mul24(3, -4) == -12);
    assert(__byte_perm(0x03020100, 0x07060504, 0x7610) == 0x07060100);
    assert(__funnelshift_l(0x80000000u, 1, 1) == 3 && __funnelshift_r(2, 1, 1) == 0x80000001u);
    assert(__dp4a(0x01020304, 0x01010101, 5) == 15 && __sad(3, 7, 1u) == 5);
    assert(__float_as_uint(1.0f) == 0x3f800000 && __int_as_float(0x40000000) == 2 && __longlong_as_double(__double_as_longlong(3.0)) == 3);
    assert(__double2hiint(1.0) == 0x3ff00000 && __hiloint2double(0x40000000, 0) == 2);
    assert(__float2int_rn(2.5f) == 2 && __float2int_rz(-2.7f) == -2 && __float2int_ru(2.1f) == 3 && __float2int_rd(-2.1f) == -3);
    assert(__fmaf_rn(2, 3, 4) == 10 && __fadd_rn(1, 2) == 3 && __fdividef(6, 3) == 2 && __saturatef(3) == 1 && rsqrtf(4) == 0.5f);
    assert(min(3, 5u) == 3u && max(2.0f, 1.0) == 2.0);
    const float4 four = make_float4(1, 2, 3, 4);
    const longlong2 two = make_longlong2(5, 6);
    const uchar4 bytes = make_uchar4(1, 2, 3, 4);
    assert(four.w == 4 && two.y == 6 && bytes.z == 3 && sizeof(double2) == 16 && alignof(short4) == 8);
    float copy[4];
    memcpy(copy, &four, sizeof four);
    assert(copy[2] == 3);
    const long long then = clock64();
    assert(clock64() > then && outside(ME) == ME + 1);
    __builtin_assume(m > 0);
    __stcs(C + ME, __ldcg(A) - __ldg(A) + __ldcs(A) - __ldca(A));
    const __half2 h = __floats2half2_rn(1, 2);
    assert(__half2float(__hadd(__low2half(h), __high2half(h))) == 3);
    if (ME == 0 && blockIdx.x == 0) printf("%s %d\n", "printed", 42);
}
KERNEL(faulty_load_hinted) { C[ME] = __ldcg(A + 100000); }  // FAULT
KERNEL(faulty_assertion)
{
    C[ME] = 0;
    assert(ME < 63);  // FAULT
}
KERNEL(faulty_trap)
{
    C[ME] = 0;
    if (ME == 7) __trap();  // FAULT
}
KERNEL(clean_shared_addresses)
{
    __shared__ float values[64];
    const unsigned at = number(values + ME);
    assert(at < 1u << 18 && at % 4 == 0);
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(1.0f * ME) : "memory");
    __syncthreads();
    float other;
    asm volatile("ld.shared.f32 %0, [%1 + 4];" : "=f"(other) : "r"(number(values + ME % 63)) : "memory");
    assert(other == ME % 63 + 1);
    assert(*static_cast<float*>(__cvta_shared_to_generic(at)) == ME);
    C[ME] = 0;
}
KERNEL(faulty_shared_address)
{
    __shared__ float values[64];
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(number(values + ME) + 4), "f"(1.0f) : "memory");  // FAULT
    C[ME] = 0;
}

// ---- Inline PTX -----------------------------------------------------------------------------------------------------------------

KERNEL(clean_ptx)
{
    unsigned r, lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    assert(lane == ME % 32);
    asm("add.u32 %0, %1, 5;" : "=r"(r) : "r"(lane));
    assert(r == lane + 5);
    asm("{\n.reg .pred p; // a comment\n.reg .b32 t<2>;\nsetp.lt.u32 p, %1, 16;\nmov.b32 t0, 1;\n@p mov.b32 t0, 2;\n"
        "selp.b32 t1, 10, 20, p;\nadd.u32 %0, t0, t1;\n}" : "=r"(r) : "r"(lane));
    assert(r == (lane < 16 ? 12 : 21));
    unsigned long long wide;
    asm("mad.wide.u32 %0, %1, %2, 1;" : "=l"(wide) : "r"(1u << 31), "n"(4));
    assert(wide == (1ull << 33) + 1);
    unsigned low = 0, high = 0;
    asm volatile("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(0x100000002ull));
    assert(low == 2 && high == 1);
    float f = 3;
    asm("fma.rn.f32 %0, %0, %1, 0f3F800000;" : "+f"(f) : "f"(2.0f));
    assert(f == 7);
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(2.0f), "f"(1.0f));
    assert(both == 0x40003c00u);
    asm("{ .reg .f32 x; mov.b32 x, %0; cvt.rna.tf32.f32 %0, x; }" : "+r"(both));
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r) : "r"(1u), "r"(2u), "r"(7u));
    assert(r == 4);
    asm("bfe.u32 %0, %1, 4, 8;" : "=r"(r) : "r"(0xabcdu));
    assert(r == 0xbc);
    asm("{\nagain:\nadd.u32 %0, %0, 1;\n.reg .pred p;\nsetp.lt.u32 p, %0, 200;\n@p bra again;\n}" : "+r"(r));
    assert(r == 200);
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(r) : "r"(lane));
    assert(r == (lane ^ 1));
    asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffffff; }" : "=r"(r));
    assert(r == 0);
    asm volatile("" ::: "memory");
    if (ME == 70) asm volatile("trap;");
    C[ME] = 0;
}
KERNEL(faulty_ptx_load)
{
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(reinterpret_cast<const char*>(A) - 4096));  // FAULT
    C[ME] = x;
}
KERNEL(clean_named_barriers)  // warp 1 waits for warp 0
{
    __shared__ int values[32];
    if (ME < 32) {
        values[ME] = ME;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync %0, %1;" ::"r"(1), "r"(64) : "memory");
        assert(values[ME - 32] == ME - 32);
    }
    C[ME] = 0;
}
KERNEL(faulty_named_barrier_count)
{
    if (ME < 32) asm volatile("bar.sync 1, 96;" ::: "memory");  // FAULT
    C[ME] = 0;
}
KERNEL(faulty_named_barrier_other)
{
    __shared__ int values[32];
    if (ME < 32) {
        values[ME] = ME;
        asm volatile("bar.sync 2, 32;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 32;" ::: "memory");
        C[ME] = values[ME - 32];  // FAULT
    }
}

// ---- Numbers -------------------------------------------------------------------------------------------------------------

KERNEL(clean_atomics_of_half)
{
    __shared__ __half2 pair;
    __shared__ __nv_bfloat162 bpair;
    if (ME == 0) pair = __floats2half2_rn(0, 0), bpair = __floats2bfloat162_rn(0, 0);
    __syncthreads();
    atomicAdd(&pair.x, __float2half(1));
    atomicAdd(&pair, __floats2half2_rn(0, 2));
    atomicAdd(&bpair, __floats2bfloat162_rn(1, 0));
    __syncthreads();
    assert(__low2float(pair) == 64 && __high2float(pair) == 128 && __low2float(bpair) == 64);
    C[ME] = 0;
}
KERNEL(faulty_atomic_of_half_and_plain)
{
    __shared__ __half sum;
    if (ME == 0) sum = __half(0);
    __syncthreads();
    atomicAdd(&sum, __half(1));  // FAULT
    if (ME == 1) sum = __half(2);
    __syncthreads();
    C[ME] = float(sum);
}
KERNEL(clean_functions_of_half)
{
    const __half2 a = __float2half2_rn(2), b = __floats2half2_rn(3, -1);
    assert(__low2float(__hmax2(a, b)) == 3 && __high2float(__habs2(b)) == 1 && __hbgt2(a, __hneg2(a)) && !__hbeq2(a, b));
    assert(__hgt2_mask(a, b) == 0xffff0000u && float(hexp(__half(0))) == 1 && __low2float(h2rcp(a)) == 0.5f);
    assert(__half2int_rn(__half(2.5f)) == 2 && __half2uint_rz(__half(2.5f)) == 2 && __half2float(__ushort2half_rn(7)) == 7);
    assert(__half2float(__float2half_rz(1.0009f)) < 1.0009f && __half2float(__float2half_ru(1.0001f)) > 1);
    assert(__bfloat162float(__float2bfloat16_rz(1.99999f)) < 1.99999f && __bfloat162float(hsqrt(__nv_bfloat16(4))) == 2);
    const __half infinite = __half(1e9f);
    assert(__half2int_rz(infinite) == 2147483647 && __half2short_rn(__hneg(infinite)) == -32768);
    assert(__half2uint_rz(__half(-1)) == 0 && __half2int_rn(__hsub(infinite, infinite)) == 0);
    __half counted = 3;
    counted++;
    assert(float(-counted) == -4 && __hisinf(__half(1e9f)) == 1 && __low2float(__lowhigh2highlow(b)) == -1);
    C[ME] = 0;
}
KERNEL(faulty_assertion_of_half)
{
    C[ME] = 0;
    assert(__half2float(__float2half(2049)) == 2049);  // FAULT
}
KERNEL(clean_rounding)
{
    const float a = 1, b = 3, tiny = 1e-10f;
    assert(__fdiv_rd(a, b) < __fdiv_ru(a, b) && __fdiv_rz(-a, b) == -__fdiv_rd(a, b) && __frcp_ru(b) == __fdiv_ru(a, b));
    assert(__fadd_ru(a, tiny) > 1 && __fadd_rd(a, tiny) == 1 && __fsub_rz(a, tiny) < 1 && __fmaf_ru(tiny, tiny, a) > 1);
    assert(__int2float_rz(16777217) == 16777216 && __int2float_ru(16777217) == 16777218 && __double2float_rd(0.1) < 0.1);
    assert(__dsqrt_ru(2) > __dsqrt_rd(2) && __dadd_rz(1, -1e-20) < 1 && __ull2double_rn(1ull << 60) == 0x1p60);
    assert(fabsf(CUDART_PI_F - 3.1415927f) < 1e-6f && isinf(CUDART_INF_F) && isnan(CUDART_NAN));
    C[ME] = 0;
}
KERNEL(clean_parts_of_words)
{
    assert(__vadd4(0x01ff7f80, 0x01010101) == 0x02008081 && __vsub2(0x00010000, 0x00020001) == 0xffffffff);
    assert(__vmaxs4(0x80010203, 0x7f000304) == 0x7f010304 && __vmaxu4(0x80010203, 0x7f000304) == 0x80010304);
    assert(__vminu2(0x00010002, 0x00020001) == 0x00010001 && __vabsdiffu4(0x05000000, 0x0a000000) == 0x05000000);
    assert(__vcmpgtu4(0x02000000, 0x01000000) == 0xff000000 && __vsetles2(0xffff0001, 0x00000000) == 0x00010000);
    assert(__funnelshift_lc(1, 2, 40) == 1 && __funnelshift_rc(1, 2, 40) == 2 && __hadd(3, 4) == 3 && __rhadd(3, 4) == 4);
    assert(__uhadd(~0u, ~0u) == ~0u && __usad(3, 5, 1) == 3 && __dp2a_lo(0x00020003, 0x00000405, 1) == 24);
    assert(__fns(0xff, 0, 3) == 2 && __fns(0xf0, 0, 1) == 4 && __fns(1, 5, 1) == ~0u && __fns(0x0f, 7, -1) == 3);
    C[ME] = 0;
}
KERNEL(clean_functions_that_c_lacks)
{
    float s, c;
    sincospif(0.5f, &s, &c);
    assert(s == 1 && fabsf(c) < 1e-6f && sinpi(1.5) == -1 && fabsf(rhypotf(3, 4) - 0.2f) < 1e-6f && norm3df(1, 2, 2) == 3);
    assert(fabs(erf(erfinv(0.3)) - 0.3) < 1e-12 && fabs(normcdf(0.0) - 0.5) < 1e-15 && rcbrtf(8) == 0.5f && exp10f(2) == 100);
    assert(isnan(s / 0 - s / 0) && !isfinite(1 / (c - c)) && signbit(-1.0f) && abs(-2.5f) == 2.5f && fmax(1.0f, 2.0f) == 2);
    static_assert(sizeof(pow(1.0f, 2)) == 4 && sizeof(sqrt(1.0f)) == 4 && sizeof(pow(1.0, 2)) == 8, "");
    C[ME] = 0;
}
__constant__ float table_of_constants[4] = {1, 2, 3, 4};
KERNEL(clean_constant_memory)
{
    assert(table_of_constants[ME % 4] == ME % 4 + 1);
    C[ME] = make_float1(0).x + make_long2(0, 0).y;
}
KERNEL(faulty_address_of_constant_memory)
{
    C[ME] = 0;
    if (ME == 3) table_of_constants[1] = 5;  // FAULT
}
KERNEL(clean_masks_at_two_lines)
{
    unsigned same = 0;
    if (ME % 2) same = __match_any_sync(0xaaaaaaaau, ME % 4);
    const unsigned all = __match_any_sync(ALL, ME / 4);
    assert(all == 0xfu << ME % 32 / 4 * 4 && (ME % 2 == 0 || same == (ME % 4 == 1 ? 0x22222222u : 0x88888888u)));
    C[ME] = 0;
}
