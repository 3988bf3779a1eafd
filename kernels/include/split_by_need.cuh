// What `float_always` looks at while it splits floats, and how it writes their parts. Its head says why.
//
// A block of 256 threads has 64 of k of 128 rows of A, or of 128 columns of B. Parts lie as in include/parts.cuh.
#pragma once
#include "parts.cuh"
#include "short_numbers.cuh"

constexpr int SPLIT_K = PROMOTION;
constexpr int SPLIT_COUNT = 128;      // rows of A, or columns of B, per block of the split
constexpr int ROUNDS = 8;             // four neighbours per thread and round
constexpr int GROUP = 64;             // columns of B of which one word is known; 128 rows of A
constexpr unsigned LARGE_WITHIN = 4;  // exponents below the largest
constexpr unsigned LEAST = 17;        // exponent field from which on three bfloat16 hold all 24 bits: 2^-110
constexpr unsigned MOST = 127 + 99;   // up to which halves can be scaled
constexpr unsigned PRODUCT = 2 * 127 + 124;  // of two exponent fields: from here on a product may overflow

// What is known of a group: the exponent field of its largest element (255: not finite), and
constexpr unsigned UNEVEN = 256;  // 64 of k of a row or column are not even
constexpr unsigned TINY = 512;    // bfloat16 would lose bits

constexpr unsigned INFINITE = 0x7f800000u;
__device__ __forceinline__ unsigned magnitude(float value) { return __float_as_uint(value) & 0x7fffffffu; }
__device__ __forceinline__ unsigned exponent_of(float value) { return magnitude(value) >> 23; }

/// The power of two that brings the largest element, of this exponent field, to [2^14, 2^15), and its inverse.
__device__ __forceinline__ float factor(unsigned exponent)
{
    return __uint_as_float((127u + 141u - min(max(exponent, 16u), MOST)) << 23);
}
__device__ __forceinline__ float inverse_factor(unsigned exponent)
{
    return __uint_as_float((127u - 141u + min(max(exponent, 16u), MOST)) << 23);
}

__device__ __forceinline__ bool is_large(float value, unsigned largest)
{
    return exponent_of(value) + LARGE_WITHIN >= largest;
}
__device__ __forceinline__ bool is_tiny(float value) { return magnitude(value) != 0 && exponent_of(value) < LEAST; }
__device__ __forceinline__ bool is_even(unsigned largest_bits, int large, int count)
{
    const unsigned exponent = largest_bits >> 23;
    return largest_bits == 0 || (exponent >= LEAST && exponent <= MOST && 2 * large > count);
}

/// Four neighbours, each with its factor, as halves: the high parts to `to`, the low ones `next_after` elements on.
__device__ __forceinline__ void write_halves(float4 value, float4 scale, unsigned short* to, long long next_after)
{
    using Half = Short<__half>;
    const float x = value.x * scale.x, y = value.y * scale.y, z = value.z * scale.z, w = value.w * scale.w;
    const unsigned high0 = Half::pack(x, y);
    const unsigned high1 = Half::pack(z, w);
    const unsigned low0 = Half::pack(x - Half::low(high0), y - Half::high(high0));
    const unsigned low1 = Half::pack(z - Half::low(high1), w - Half::high(high1));
    *reinterpret_cast<uint2*>(to) = make_uint2(high0, high1);
    *reinterpret_cast<uint2*>(to + next_after) = make_uint2(low0, low1);
}

/// Two bfloat16, to nearest, toward zero if the nearest is infinite; what is left stays.
__device__ __forceinline__ unsigned next_part(float& first, float& second)
{
    using Bf16 = Short<__nv_bfloat16>;
    unsigned word = Bf16::pack(first, second);
    if ((word & 0x7fffu) == 0x7f80u) word = (word & 0xffff0000u) | __float_as_uint(first) >> 16;
    if ((word & 0x7fff0000u) == 0x7f800000u) word = (word & 0xffffu) | (__float_as_uint(second) & 0xffff0000u);
    first -= Bf16::low(word);
    second -= Bf16::high(word);
    return word;
}

__device__ __forceinline__ void write_bfloat16s(float4 value, unsigned short* to, long long next_after)
{
    #pragma unroll
    for (int part = 0; part < 3; ++part) {
        const unsigned low = next_part(value.x, value.y);
        const unsigned high = next_part(value.z, value.w);
        *reinterpret_cast<uint2*>(to + part * next_after) = make_uint2(low, high);
    }
}

/// What a thread of the split has of 128 rows of A, or of 128 columns of B, in 64 of k: of A, a warp has 2 rows at a
/// time, 16 lanes per row; of B, it has 8 rows of k, a lane 4 columns.
struct Share {
    int k_block, warp, lane, first, start;  // first: row of A, or column of B; start: of k
    bool of_a;

    __device__ __forceinline__ explicit Share(int n)
        : k_block(blockIdx.x), warp(threadIdx.x / 32), lane(threadIdx.x % 32)
    {
        const int groups_a = ceil_div(n, SPLIT_COUNT);
        of_a = blockIdx.y < groups_a;
        first = of_a ? blockIdx.y * SPLIT_COUNT + warp * 16 + lane / 16
                     : (blockIdx.y - groups_a) * SPLIT_COUNT + 4 * lane;
        start = k_block * SPLIT_K + (of_a ? 4 * (lane % 16) : warp * ROUNDS);
    }
    __device__ __forceinline__ float4 read(const float* A, const float* B, int i, int n, int p, int m) const
    {
        if (of_a)
            return first + 2 * i < n ? read_four(A + static_cast<long long>(first + 2 * i) * p, start, p, p % 4 == 0)
                                     : make_float4(0, 0, 0, 0);
        return start + i < p ? read_four(B + static_cast<long long>(start + i) * m, first, m, m % 4 == 0)
                             : make_float4(0, 0, 0, 0);
    }
    /// Where round i's four neighbours go among `parts` parts of A, or of B; null if there is no such place.
    __device__ __forceinline__ unsigned short* place(unsigned short* a_parts, unsigned short* b_parts, int i, int parts,
                                                     int n, int p, int m) const
    {
        if (of_a)
            return first + 2 * i < n ? a_parts + static_cast<long long>(first + 2 * i) * parts * SPLIT_K *
                                                     ceil_div(p, SPLIT_K) + k_block * parts * SPLIT_K + 4 * (lane % 16)
                                     : nullptr;
        const int pitch = 8 * ceil_div(m, 8);
        const long long row = static_cast<long long>(k_block) * parts * SPLIT_K + warp * ROUNDS + i;
        return first < pitch ? b_parts + row * pitch + first : nullptr;
    }
    __device__ __forceinline__ long long next_after(int m) const
    {
        return of_a ? SPLIT_K : static_cast<long long>(SPLIT_K) * 8 * ceil_div(m, 8);
    }
};
