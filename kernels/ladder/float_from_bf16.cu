// C = A B with float's accuracy from six bfloat16 products: the full range of float's exponents.
//
// The idea: a float of 24 bits is the sum of three bfloat16 of 8 bits each, and a bfloat16 has float's exponents:
// nothing is scaled and nothing runs out of range. Of the nine products of parts the six largest are needed; the other
// three lie below float's last bit. Twice the products of float_from_half, so about half its rate: the price of the
// range.
//
//   a  =  part 0      + part 1       + part 2          products, smallest first: 2 0, 0 2, 1 1, 1 0, 0 1, 0 0
//         8 bits        8 bits         8 bits
//
// Limits: below 2^-110 the last part is subnormal and loses bits (seen: 3e-6 of |A||B| for a row of A near 2^-120). An
// infinite element makes results of its row or column NaN although IEEE would say infinity (infinity times a part of 0
// or of the other sign). Tile, ring, and promotion as in include/parts.cuh.
//
// Measured on an H200, splitting counted: 127 TFLOP/s at 8192^3 (2.5 times cuBLAS's SGEMM), 119 at 4096 (2.3 times),
// 71 at 1024 (2.1 times); error in the Frobenius norm 0.14, 0.15 and 0.19 of SGEMM's (mixed signs). More accurate than
// float_from_half, probably because a product of two bfloat16 has 16 bits only, which leaves a tensor core room to add.
// A single product (p = 1) may be off by 1.4 times float's rounding bound.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: split: block 256; grid (ceil(p / 64), ceil(n / 128) + ceil(m / 128)).
//         product: block 384; clusters of CLUSTER; a grid of at most one block per multiprocessor walks all tiles;
//         dynamic shared memory as PartsLayout says, and 1024 + 16 * STAGES for alignment and barriers.
#include "launches.cuh"
#include "parts.cuh"
#include "short_numbers.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"

namespace {

constexpr int SPLIT_K = PROMOTION;
constexpr int SPLIT_COUNT = 128;  // rows of A, or columns of B, per block of the split

/// Two bfloat16, to nearest; toward zero if the nearest is infinite and the float is not; nothing is left of an
/// infinity.
__device__ __forceinline__ unsigned next_part(float& first, float& second)
{
    using Bf16 = Short<__nv_bfloat16>;
    unsigned word = Bf16::pack(first, second);
    if ((word & 0x7fffu) == 0x7f80u) word = (word & 0xffff0000u) | __float_as_uint(first) >> 16;
    if ((word & 0x7fff0000u) == 0x7f800000u) word = (word & 0xffffu) | (__float_as_uint(second) & 0xffff0000u);
    first = (word & 0x7f80u) == 0x7f80u ? 0.0f : first - Bf16::low(word);
    second = (word & 0x7f800000u) == 0x7f800000u ? 0.0f : second - Bf16::high(word);
    return word;
}

__device__ __forceinline__ void write_parts(float4 value, unsigned short* to, long long next_after)
{
    #pragma unroll
    for (int part = 0; part < 3; ++part) {
        const unsigned low = next_part(value.x, value.y);
        const unsigned high = next_part(value.z, value.w);
        *reinterpret_cast<uint2*>(to + part * next_after) = make_uint2(low, high);
    }
}

}  // namespace

/// Splits 64 of k of 128 rows of A, or of 128 columns of B.
/// a_parts: n rows of 192 * ceil(p / 64); b_parts: 192 * ceil(p / 64) rows of m rounded up to a multiple of 8.
__global__ void __launch_bounds__(256) float_from_bf16_split(const float* A, const float* B, unsigned short* a_parts,
                                                             unsigned short* b_parts, int n, int p, int m)
{
    wait_for_earlier_launches();
    constexpr int ROUNDS = 8;
    const int k_block = blockIdx.x;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int blocks_a = ceil_div(n, SPLIT_COUNT);
    float4 values[ROUNDS];

    if (blockIdx.y < blocks_a) {
        const int first = blockIdx.y * SPLIT_COUNT + warp * 16 + lane / 16;
        const int k = k_block * SPLIT_K + 4 * (lane % 16);
        const long long pitch = 3LL * SPLIT_K * ceil_div(p, SPLIT_K);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            if (first + 2 * i < n)
                values[i] = read_four(A + static_cast<long long>(first + 2 * i) * p, k, p, p % 4 == 0);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            if (first + 2 * i < n)
                write_parts(values[i], a_parts + (first + 2 * i) * pitch + k_block * (3 * SPLIT_K) + 4 * (lane % 16),
                            SPLIT_K);
    } else {
        const int column = (blockIdx.y - blocks_a) * SPLIT_COUNT + 4 * lane;
        const int first_k = k_block * SPLIT_K + warp * ROUNDS;
        const int pitch = 8 * ceil_div(m, 8);
        if (column >= pitch) return;
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            values[i] = first_k + i < p ? read_four(B + static_cast<long long>(first_k + i) * m, column, m, m % 4 == 0)
                                        : make_float4(0, 0, 0, 0);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            const long long row = static_cast<long long>(k_block) * (3 * SPLIT_K) + warp * ROUNDS + i;
            write_parts(values[i], b_parts + row * pitch + column, static_cast<long long>(SPLIT_K) * pitch);
        }
    }
}

/// @tparam TILE_M   columns of C per block: 64, 128 or 192
/// @tparam STAGES   of the ring that TMA fills
/// @tparam CLUSTER  blocks that share B: 1 or 2
/// @tparam BAND     rows of tiles (of clusters) per band, for the L2 cache
template <int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
float_from_bf16(const __grid_constant__ TensorMap a_parts, const __grid_constant__ TensorMap b_parts, float* C,
                int n, int p, int m)
{
    multiply_parts<__nv_bfloat16, 3, TILE_M, STAGES, CLUSTER, false>(a_parts, b_parts, nullptr, nullptr, C, n,
                                                                                     p, m, BAND);
}
