// C = A B from three TF32 products per tile and one accumulator: why that is not float's accuracy.
//
// The idea, often published: a float is the sum of two TF32 numbers (11 bits each), and a b = high high + high low +
// low high. The parts are exact enough. But the tensor core adds with about 25 bits and truncates, always toward zero,
// in each of the p / 8 steps: the error grows with p, not with its square root, and the product is less accurate than
// SGEMM's. Mixed signs, Frobenius norm: predicted 5.9e-5 at p = 8192, measured 5.7e-5 (SGEMM 1.6e-6); 2.9e-5 at 4096
// (1.1e-6), 7.1e-6 at 1024 (5.7e-7). This rung must fail the accuracy gate; parts.cuh shows the cure. It passes the
// study's rounding bound, which grows with p too, but for sums of fewer than 4 products, which 22 bits do not satisfy.
//
// wgmma takes TF32 only with k contiguous in both operands, so the split also transposes B. PRODUCTS = 1 keeps the high
// parts only: a plain TF32 product, rounded to nearest.
//
// Measured on an H200, splitting counted: 124 TFLOP/s at 8192^3 (2.4 times SGEMM), 130 at 4096; PRODUCTS = 1: 332 to
// 379 at 8192, 324 at 4096 (0.93 and 0.86 of cuBLAS's TF32, which has no split pass).
// Machine code, three products: 76 instructions per 32 of k, 12 HGMMA (64 x 128 x 8), no spills.
//
//   A row i   [ 32 high ][ 32 low ] ...     B column j (a row of b_parts)   [ 32 high ][ 32 low ] ...
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: split: block (32, 8); grid (ceil(p / 32), ceil(n / 32) + ceil(m / 32)).
//         product: block 384; a grid of at most one block per multiprocessor walks all tiles;
//         dynamic shared memory 1024 + STAGES * (PARTS * 128 * (128 + TILE_M) + 16), PARTS = 1 or 2.
#include "barriers.cuh"
#include "launches.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "short_numbers.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

constexpr int TF32_K = 32;  // 128 bytes

/// Rounds A, and B transposed, to PARTS TF32 numbers each; zeros past p.
/// a_parts: n rows, b_parts: m rows, of PARTS * 32 * ceil(p / 32).
template <int PARTS>
__global__ void __launch_bounds__(256)
three_tf32_split(const float* A, const float* B, float* a_parts, float* b_parts, int n, int p, int m)
{
    wait_for_earlier_launches();
    __shared__ float turned[TF32_K][33];
    const int blocks_a = ceil_div(n, 32);
    const int lane = threadIdx.x;
    const int k = blockIdx.x * TF32_K;
    const long long pitch = static_cast<long long>(PARTS) * TF32_K * gridDim.x;
    const bool is_a = blockIdx.y < blocks_a;
    const int first = (is_a ? blockIdx.y : blockIdx.y - blocks_a) * 32;

    float values[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int other = threadIdx.y + 8 * i;  // row of A, or of B
        if (is_a)
            values[i] = first + other < n && k + lane < p
                            ? A[static_cast<long long>(first + other) * p + k + lane] : 0.0f;
        else
            values[i] = k + other < p && first + lane < m
                            ? B[static_cast<long long>(k + other) * m + first + lane] : 0.0f;
    }
    if (!is_a) {
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            turned[threadIdx.y + 8 * i][lane] = values[i];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            values[i] = turned[lane][threadIdx.y + 8 * i];
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = first + threadIdx.y + 8 * i;
        if (row >= (is_a ? n : m)) continue;
        float* const to = (is_a ? a_parts : b_parts) + row * pitch + blockIdx.x * (PARTS * TF32_K) + lane;
        const float high = to_tf32(values[i]);
        to[0] = high;
        if constexpr (PARTS == 2) to[TF32_K] = to_tf32(values[i] - high);
    }
}

/// @tparam PRODUCTS  3, or 1 for a plain TF32 product
/// @tparam TILE_M    columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES    of 32 of k in shared memory
/// @tparam BAND      rows of tiles per band
template <int PRODUCTS, int TILE_M, int STAGES, int BAND>
__global__ void __launch_bounds__(384, 1)
three_tf32(const __grid_constant__ TensorMap a_parts, const __grid_constant__ TensorMap b_parts, float* C, int n,
           int p, int m)
{
    static_assert(PRODUCTS == 1 || PRODUCTS == 3, "high high, or all but low low");
    static_assert(TILE_M % 64 == 0 && TILE_M <= 256, "wgmma takes at most 256 columns, a box at most 256 rows");
    constexpr int PARTS = PRODUCTS == 1 ? 1 : 2;
    constexpr int A_BYTES = 128 * 128;     // one part
    constexpr int B_BYTES = TILE_M * 128;  // one part
    constexpr int STAGE_BYTES = PARTS * (A_BYTES + B_BYTES);

    extern __shared__ unsigned char raw[];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned full = base + STAGES * STAGE_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const int steps = ceil_div(p, TF32_K);
    const int tile_rows = ceil_div(n, 128);
    const int tile_columns = ceil_div(m, TILE_M);

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            make_barrier(full + 8 * s, 1);
            make_barrier(empty + 8 * s, 8);  // warps that multiply
        }
        publish_barriers();
    }
    __syncthreads();
    wait_for_earlier_launches();

    Place<STAGES> place;
    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            for (int index = blockIdx.x; index < tile_rows * tile_columns; index += gridDim.x) {
                const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
                for (int step = 0; step < steps; ++step) {
                    const unsigned to = base + place.stage * STAGE_BYTES;
                    const unsigned barrier = full + 8 * place.stage;
                    wait_for(empty + 8 * place.stage, place.parity ^ 1);
                    arrive_and_expect(barrier, STAGE_BYTES);
                    #pragma unroll
                    for (int part = 0; part < PARTS; ++part) {
                        const int along_k = (step * PARTS + part) * TF32_K;
                        load_box(to + part * A_BYTES, a_parts, tile.row * 128, along_k, barrier);
                        load_box(to + PARTS * A_BYTES + part * B_BYTES, b_parts, tile.column * TILE_M, along_k,
                                 barrier);
                    }
                    place.next();
                }
            }
        }
    } else {
        take_registers<232>();
        const int consumer = warp_group() - 1;
        const int lane = threadIdx.x % 32;
        float sums[TILE_M / 2];
        for (int index = blockIdx.x; index < tile_rows * tile_columns; index += gridDim.x) {
            const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
            #pragma unroll
            for (int i = 0; i < TILE_M / 2; ++i)
                sums[i] = 0;
            unsigned previous = 0;
            for (int step = 0; step < steps; ++step) {
                wait_for(full + 8 * place.stage, place.parity);
                const unsigned at = base + place.stage * STAGE_BYTES;
                const Descriptor a = rows_along_k<128>(at + consumer * 64 * 128);
                const Descriptor b = rows_along_k<128>(at + PARTS * A_BYTES);
                pin(sums);
                begin_products();
                #pragma unroll
                for (int i = 0; i < PRODUCTS; ++i) {  // low high, high low, high high
                    const int a_part = PRODUCTS == 3 && i == 0 ? A_BYTES : 0;
                    const int b_part = PRODUCTS == 3 && i == 1 ? B_BYTES : 0;
                    #pragma unroll
                    for (int k = 0; k < TF32_K / 8; ++k)
                        Wgmma<float>::multiply(sums, a + (a_part + k * 32) / 16, b + (b_part + k * 32) / 16, 1);
                }
                commit_products();
                wait_for_products<1>();  // those of the step before are done: its stage is free
                pin(sums);
                if (step > 0 && lane == 0) arrive(previous);
                previous = empty + 8 * place.stage;
                place.next();
            }
            wait_for_products<0>();
            pin(sums);
            if (lane == 0) arrive(previous);

            const int row = tile.row * 128 + consumer * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
            const int column = tile.column * TILE_M + 2 * (lane % 4);
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (row + 8 * half >= n) continue;
                float* const to = C + static_cast<long long>(row + 8 * half) * m + column;
                #pragma unroll
                for (int j = 0; j < TILE_M / 8; ++j) {
                    const float first = sums[4 * j + 2 * half], second = sums[4 * j + 2 * half + 1];
                    if (m % 2 == 0) {
                        if (column + 8 * j < m) *reinterpret_cast<float2*>(to + 8 * j) = make_float2(first, second);
                    } else {
                        if (column + 8 * j < m) to[8 * j] = first;
                        if (column + 8 * j + 1 < m) to[8 * j + 1] = second;
                    }
                }
            }
        }
    }
}
