// C = A B with float's accuracy from three half products: past the float peak of the chip.
//
// The idea: a float is the sum of two halves, high = half(a) and low = half(a - high), but for about 2 of its 24 bits.
// Then a b = high high + high low + low high, and the product low low is below the last bit kept. Tensor cores multiply
// halves 16 times as fast as CUDA cores multiply floats, so three products still leave a factor of five.
//
// Halves reach from 2^-24 to 2^16 only. So 64 of k of each row of A, and of each column of B, are first multiplied by a
// power of two (exact) that brings their largest element to [2^14, 2^15); the product of the two factors is taken out
// again when the tensor core's sums are added to the totals, which is every 64 of k anyway (see include/parts.cuh). An
// element that is at least 2^-17 of the largest of its 64 keeps 22 bits; below that it keeps fewer; its error is up to 2^-39
// of the largest.
//
//      64 of k                          parts of the row            factors
//   A  [ a a a ... a ] -- x 2^s --->    [ 64 high ][ 64 low ]       2^-s
//
// Out of range: if 1/8 of the nonzeros among 64 elements (and at least 4) are less than about 2^-20 of the largest, or
// if one is infinite, not a number, or 2^100 or more, the factor is NaN, and so is the whole row or column of C. Fewer
// small elements (up to 7 of 64) pass, since random operands have some: each is off by at most 2^-39 of the largest of
// its 64, which shows only where the other operand is zero, or as small, at all of that block's larger elements (a
// product with the identity, say). Rows, columns, and blocks of k of very different size are all in range: 12 orders of
// magnitude along p = 1024 are, 12 within 64 are not, and give NaN.
//
// What it costs: the split reads 4 bytes per element and writes 4: 0.27 ms at 8192^3, 92 % of copy speed, where the
// product takes 4.6 ms. Measured on an H200, everything counted: 227 TFLOP/s at 8192^3 (4.4 times cuBLAS's SGEMM), 204
// at 4096 (4.0 times), 81 at 1024 (2.4 times), with 0.15, 0.17 and 0.27 of SGEMM's error in the Frobenius norm (mixed
// signs). Short sums are its weak side: at p = 256 and on positive operands, or on operands graded along k at p = 1024,
// SGEMM is more accurate, probably because a tensor core truncates sums of the 22-bit products of two halves. Sums of
// fewer than 4 products are not even within float's rounding bound: the parts have only 22 bits.
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

/// Exponent fields: of the largest element of 64 (0 for subnormals), to the power of two that brings it to [2^14,
/// 2^15).
__device__ __forceinline__ float factor(unsigned exponent)
{
    return __uint_as_float((127u + 141u - max(exponent, 16u)) << 23);
}

__device__ __forceinline__ float inverse_factor(unsigned exponent)
{
    return __uint_as_float((127u - 141u + max(exponent, 16u)) << 23);
}

__device__ __forceinline__ unsigned magnitude(float value) { return __float_as_uint(value) & 0x7fffffffu; }

/// Not zero, and so much smaller than the largest that more than a few of its bits are lost.
__device__ __forceinline__ bool is_tiny(float value, unsigned largest_exponent)
{
    return magnitude(value) != 0 && (magnitude(value) >> 23) + 20 < largest_exponent;
}

__device__ __forceinline__ bool out_of_range(int tiny, int nonzero) { return tiny >= 4 && 8 * tiny >= nonzero; }

constexpr unsigned TOO_LARGE = 127 + 100;  // exponent field of 2^100; infinities and NaN have 255

/// Four neighbours: high parts to `to`, low parts LOW_AFTER elements on; 8 bytes each.
__device__ __forceinline__ void write_parts(float4 value, float scale, unsigned short* to, long long low_after)
{
    using Half = Short<__half>;
    const float x = value.x * scale, y = value.y * scale, z = value.z * scale, w = value.w * scale;
    const unsigned high0 = Half::pack(x, y);
    const unsigned high1 = Half::pack(z, w);
    const unsigned low0 = Half::pack(x - Half::low(high0), y - Half::high(high0));
    const unsigned low1 = Half::pack(z - Half::low(high1), w - Half::high(high1));
    *reinterpret_cast<uint2*>(to) = make_uint2(high0, high1);
    *reinterpret_cast<uint2*>(to + low_after) = make_uint2(low0, low1);
}

}  // namespace

/// Scales and splits 64 of k of 128 rows of A, or of 128 columns of B.
/// a_parts: n rows of 128 * ceil(p / 64); b_parts: 128 * ceil(p / 64) rows of m rounded up to a multiple of 8.
__global__ void __launch_bounds__(256) float_from_half_split(const float* A, const float* B, unsigned short* a_parts,
                                                             unsigned short* b_parts, float* a_scales, float* b_scales,
                                                             int n, int p, int m)
{
    wait_for_earlier_launches();
    __shared__ uint4 largest_of[8][SPLIT_COUNT / 4];
    __shared__ int tiny_of[SPLIT_COUNT], nonzero_of[SPLIT_COUNT];
    constexpr int ROUNDS = 8;
    const int k_block = blockIdx.x;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int blocks_a = ceil_div(n, SPLIT_COUNT);
    float4 values[ROUNDS];

    if (blockIdx.y < blocks_a) {
        // A warp takes 2 rows at a time, 16 lanes per row.
        const int first = blockIdx.y * SPLIT_COUNT + warp * 16 + lane / 16;
        const int k = k_block * SPLIT_K + 4 * (lane % 16);
        const bool whole = p % 4 == 0;
        const long long pitch = 2LL * SPLIT_K * ceil_div(p, SPLIT_K);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            values[i] = first + 2 * i < n ? read_four(A + static_cast<long long>(first + 2 * i) * p, k, p, whole)
                                          : make_float4(0, 0, 0, 0);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            const float4 v = values[i];
            unsigned largest = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
            #pragma unroll
            for (int distance = 1; distance < 16; distance *= 2)
                largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
            const unsigned exponent = largest >> 23;
            bool bad = exponent >= TOO_LARGE;
            int tiny = is_tiny(v.x, exponent) + is_tiny(v.y, exponent) +
                       is_tiny(v.z, exponent) + is_tiny(v.w, exponent);
            if (__any_sync(0xffffffffu, tiny > 0)) {  // rare for most operands: count
                int nonzero = (v.x != 0) + (v.y != 0) + (v.z != 0) + (v.w != 0);
                #pragma unroll
                for (int distance = 1; distance < 16; distance *= 2) {
                    tiny += __shfl_xor_sync(0xffffffffu, tiny, distance);
                    nonzero += __shfl_xor_sync(0xffffffffu, nonzero, distance);
                }
                bad = bad || out_of_range(tiny, nonzero);
            }
            const int row = first + 2 * i;
            if (row < n) {
                write_parts(v, factor(min(exponent, TOO_LARGE)),
                            a_parts + row * pitch + k_block * (2 * SPLIT_K) + 4 * (lane % 16), SPLIT_K);
                if (lane % 16 == 0)
                    a_scales[static_cast<long long>(k_block) * scale_pitch(n) + place_of_row(row)] =
                        bad ? __uint_as_float(0x7fffffffu) : inverse_factor(exponent);
            }
        }
    } else {
        // A warp takes 8 rows of k, a lane 4 columns.
        const int block = blockIdx.y - blocks_a;
        const int column = block * SPLIT_COUNT + 4 * lane;
        const int first_k = k_block * SPLIT_K + warp * ROUNDS;
        const bool whole = m % 4 == 0;
        const int pitch = 8 * ceil_div(m, 8);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            values[i] = first_k + i < p ? read_four(B + static_cast<long long>(first_k + i) * m, column, m, whole)
                                        : make_float4(0, 0, 0, 0);
        uint4 largest = make_uint4(0, 0, 0, 0);
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i) {
            largest.x = max(largest.x, magnitude(values[i].x));
            largest.y = max(largest.y, magnitude(values[i].y));
            largest.z = max(largest.z, magnitude(values[i].z));
            largest.w = max(largest.w, magnitude(values[i].w));
        }
        largest_of[warp][lane] = largest;
        if (threadIdx.x < SPLIT_COUNT) tiny_of[threadIdx.x] = nonzero_of[threadIdx.x] = 0;
        __syncthreads();
        #pragma unroll
        for (int w = 0; w < 8; ++w) {
            const uint4 other = largest_of[w][lane];
            largest.x = max(largest.x, other.x);
            largest.y = max(largest.y, other.y);
            largest.z = max(largest.z, other.z);
            largest.w = max(largest.w, other.w);
        }
        const uint4 exponent = make_uint4(largest.x >> 23, largest.y >> 23, largest.z >> 23, largest.w >> 23);
        bool some_tiny = false;
        #pragma unroll
        for (int i = 0; i < ROUNDS; ++i)
            some_tiny = some_tiny || is_tiny(values[i].x, exponent.x) || is_tiny(values[i].y, exponent.y) ||
                        is_tiny(values[i].z, exponent.z) || is_tiny(values[i].w, exponent.w);
        if (__syncthreads_or(some_tiny)) {  // rare for most operands: count
            int tiny[4] = {}, nonzero[4] = {};
            #pragma unroll
            for (int i = 0; i < ROUNDS; ++i) {
                tiny[0] += is_tiny(values[i].x, exponent.x), nonzero[0] += values[i].x != 0;
                tiny[1] += is_tiny(values[i].y, exponent.y), nonzero[1] += values[i].y != 0;
                tiny[2] += is_tiny(values[i].z, exponent.z), nonzero[2] += values[i].z != 0;
                tiny[3] += is_tiny(values[i].w, exponent.w), nonzero[3] += values[i].w != 0;
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (tiny[j]) atomicAdd(&tiny_of[4 * lane + j], tiny[j]);
                if (nonzero[j]) atomicAdd(&nonzero_of[4 * lane + j], nonzero[j]);
            }
            __syncthreads();
        }
        const unsigned exponents[4] = {exponent.x, exponent.y, exponent.z, exponent.w};
        if (column < pitch) {
            // Four columns have four factors.
            const float4 scale = make_float4(factor(min(exponent.x, TOO_LARGE)), factor(min(exponent.y, TOO_LARGE)),
                                             factor(min(exponent.z, TOO_LARGE)), factor(min(exponent.w, TOO_LARGE)));
            #pragma unroll
            for (int i = 0; i < ROUNDS; ++i) {
                const float4 scaled = make_float4(values[i].x * scale.x, values[i].y * scale.y, values[i].z * scale.z,
                                                  values[i].w * scale.w);
                const long long row = static_cast<long long>(k_block) * (2 * SPLIT_K) + warp * ROUNDS + i;
                write_parts(scaled, 1.0f, b_parts + row * pitch + column, static_cast<long long>(SPLIT_K) * pitch);
            }
        }
        if (warp == 0) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const bool bad = exponents[j] >= TOO_LARGE ||
                                 out_of_range(tiny_of[4 * lane + j], nonzero_of[4 * lane + j]);
                if (column + j < m)
                    b_scales[static_cast<long long>(k_block) * scale_pitch(m) + place_of_column(column + j)] =
                        bad ? __uint_as_float(0x7fffffffu) : inverse_factor(exponents[j]);
            }
        }
    }
}

/// @tparam TILE_M   columns of C per block: 64, 128 or 192
/// @tparam STAGES   of the ring that TMA fills
/// @tparam CLUSTER  blocks that share B: 1 or 2
/// @tparam BAND     rows of tiles (of clusters) per band, for the L2 cache
template <int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
float_from_half(const __grid_constant__ TensorMap a_parts, const __grid_constant__ TensorMap b_parts,
                const float* a_scales, const float* b_scales, float* C, int n, int p, int m)
{
    multiply_parts<__half, 2, TILE_M, STAGES, CLUSTER, true>(a_parts, b_parts, a_scales, b_scales, C, n, p, m,
                                                                           BAND);
}
