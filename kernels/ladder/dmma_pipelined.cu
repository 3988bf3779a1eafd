// C = A B for doubles on tensor cores, copies and products at the same time: to the rate of cuBLAS.
//
// The idea: dmma.cu waits for memory, then multiplies, then waits. Here the tiles lie in a ring of STAGES in shared
// memory. cp.async copies into the stages ahead, without registers and in the background, while the warps multiply from
// the present one; and the fragments of the next products come from shared memory while the present ones are
// multiplied. One barrier per tile, placed where a warp has all it needs of the old tile in registers.
//
// Three details decide whether the tensor cores see only DMMA:
//  - 16 bytes per shared load that arrive in the registers where mma wants them. mma's larger operand (16 x k) wants
//    two numbers of the same k side by side: columns of B, which are neighbours in a row of B. So the product is C^T =
//    B^T A^T, B is mma's first operand, A its second. The other way round costs moves (489 in the machine code of a
//    first version, 113 in this). Which k a thread takes is free as long as A and B agree: it takes 2 t and 2 t + 1,
//    neighbours in A; mma means t and t + 4.
//  - No bank conflicts, without padding: chunks of 16 bytes are XORed with bits of their row,
//    A's with 4 (row % 2), B's with 2 (k / 2 % 4). Eight threads that are served together (2 of g, 4 of t) meet 8
//    chunks.
//  - A's registers are loaded anew right after their last product, so that one set of them is enough.
//
//          C^T: 16 columns x 8 rows of C per product        the ring, STAGES = 4
//              rows of C, 2 t and 2 t + 1                    +------+------+------+------+
//          c   +--------+--------+--------+--------+         | read | here | copy | copy |   warps multiply from `read`
//          o g | sums   |        |        |        |         +------+------+------+------+   cp.async fills `copy`
//          l   +--------+--------+--------+--------+            ^ becomes the next `copy` at the barrier
//
// Measured on an H200 beside cuBLAS, L2 flushed, each run by itself (both throttle to 1650 to 1900 MHz; the
// rates of cuBLAS itself spread by 4 %):
//    8192^3   128 x 128 x 16, warps 64 x 32, k 8, 5 stages     56.5 TFLOP/s, cuBLAS 56.3: 1.00
//    4096^3   the same                                        57.8, cuBLAS 55.6: 1.04
//    1024^3   64 x 64 x 16, warps 32 x 16, k 8, 4 stages      50.9, cuBLAS 47.9: 1.06
//    p = 8192 128 x 64 x 32, warps 64 x 16, k 16, 4 stages    58.1, cuBLAS 56.2: 1.03, for n = m = 1024
//    1100^3   64 x 32 x 16, warps 32 x 16, k 8, 5 stages      39.6, cuBLAS 39.4: 1.01
// If the clock stays at 1980 MHz and no wave is half empty (1536 x 1408, p = 8192), the fourth gives 61.1, cuBLAS 59.2,
// and DMMA alone 66.2: the loop runs at 92 %. At 8192^3 power decides.
// What lost at that shape: 128 x 128 x 16 (56 to 59 with k 4, 8, 16); 4 warps of 32 x 64 twice per multiprocessor
// (55.6); 16 warps (59.1); mbarriers per stage instead of the barrier (-2 to +4 %, for one more file); A's fragments
// twice in registers, which holds a stage longer (-19 to 0 %); 8-byte copies (COPY = 8, 128 x 64 x 32: 53.3).
// What the machine code shows: the loop of 128 x 128 x 32 has 353 instructions, 64 of them DMMA.16x8x8 (32 cycles
// each), 48 LDS.128, 16 LDGSTS, 83 NOP that ptxas puts between DMMAs; 230 registers, no spills. That of 128 x 64 x 32
// has 175, 16 of them DMMA.16x8x16 (64 cycles each), 40 LDS.128, 12 LDGSTS, not a NOP; 252 registers.
// With SPLIT (`dmma_split`), the blocks of a cluster share the sums of few tiles, as in split_sums.cu: tiles of 32 x 32
// reach 1.0 to 1.1 of cuBLAS from 127^3 to 768^3, odd sizes included, where the ring alone has 0.5 to 0.95.
//
// A is n x p, B is p x m, C is n x m, all row-major. COPY = 16 needs even p and m; COPY = 8 takes any.
// Launch: block (32 per warp); grid (ceil(n / TILE_N) * ceil(m / TILE_M));
//         dynamic shared memory STAGES * (TILE_N + TILE_M) * TILE_K * 8.
#include "async_copy.cuh"
#include "mma.cuh"
#include "shared_memory.cuh"
#include "split_sums.cuh"
#include "tile_copy.cuh"
#include "tile_order.cuh"
#include "vectors.cuh"

// The number that is XORed with the numbers of the 16-byte chunks of a row.
template <int TILE_K>
struct SwizzleA {
    static __device__ __forceinline__ int chunk(int row) { return TILE_K >= 16 ? row % 2 * 4 : 0; }
};
struct SwizzleB {
    static __device__ __forceinline__ int chunk(int k) { return k / 2 % 4 * 2; }
};

/// @tparam TILE_N, TILE_M  rows and columns of C per block
/// @tparam TILE_K          of k per stage
/// @tparam WARP_N, WARP_M  rows and columns of C per warp
/// @tparam MMA_K           depth of one mma: 4, 8 or 16
/// @tparam STAGES          of the ring
/// @tparam BLOCKS          per multiprocessor, which the compiler keeps registers for
/// @tparam COPY            bytes per copy: 16, or 8 if p or m is odd
/// @tparam SPLIT           whether the blocks of a cluster (1, 1, parts) share each sum, as in split_sums.cu
template <int TILE_N, int TILE_M, int TILE_K, int WARP_N, int WARP_M, int MMA_K, int STAGES, int BLOCKS, int COPY,
          bool SPLIT = false>
__global__ void __launch_bounds__(TILE_N / WARP_N * (TILE_M / WARP_M) * 32, BLOCKS)
dmma_pipelined(const double* A, const double* B, double* C, int n, int p, int m)
{
    constexpr int THREADS = TILE_N / WARP_N * (TILE_M / WARP_M) * 32;
    constexpr int DEPTH = MMA_K == 16 ? 16 : 8;             // of k per set of fragments
    constexpr int SETS = TILE_K / DEPTH;
    constexpr int ROWS = WARP_N / 8, COLS = WARP_M / 16;    // products per warp, each 16 columns x 8 rows of C
    constexpr int STEPS = SETS * COLS;                      // per tile: the products of one column of products
    constexpr int ROW_A = TILE_K * 8, ROW_B = TILE_M * 8;   // bytes
    constexpr int TILE_A = TILE_N * ROW_A, STAGE = TILE_A + TILE_K * ROW_B;
    static_assert(TILE_N % WARP_N == 0 && TILE_M % WARP_M == 0, "whole warps");
    static_assert(WARP_N % 8 == 0 && WARP_M % 16 == 0, "whole products");
    static_assert(TILE_K % DEPTH == 0 && STEPS % 2 == 0, "the fragments of B alternate between two sets of registers");
    static_assert(STAGES >= 2, "one stage is read while another arrives");
    static_assert(COPY == 8 || COPY == 16, "bytes per copy");

    extern __shared__ __align__(128) unsigned char ring[];
    const unsigned base = shared_address(ring);
    const int thread = threadIdx.x, g = thread % 32 / 4, t = thread % 4;
    const int warp_row = thread / 32 / (TILE_M / WARP_M) * WARP_N, warp_col = thread / 32 % (TILE_M / WARP_M) * WARP_M;
    const Tile place = tile_in_bands(blockIdx.x, (n + TILE_N - 1) / TILE_N, (m + TILE_M - 1) / TILE_M, 8);
    const int first_row = place.row * TILE_N, first_col = place.column * TILE_M;
    const int all_tiles = ceil_div(p, TILE_K);
    const int first_tile = SPLIT ? first_of_part(all_tiles, blockIdx.z, gridDim.z) : 0;
    const int end_tile = SPLIT ? first_of_part(all_tiles, blockIdx.z + 1, gridDim.z) : all_tiles;

    const TileCopy<TILE_N, ROW_A, COPY, THREADS, SwizzleA<TILE_K>> copy_a(thread);
    const TileCopy<TILE_K, ROW_B, COPY, THREADS, SwizzleB> copy_b(thread);
    const long long pitch_a = 8ll * p, pitch_b = 8ll * m;
    const char* from_a = reinterpret_cast<const char*>(A) + (first_row + copy_a.row) * pitch_a + copy_a.byte;
    const char* from_b = reinterpret_cast<const char*>(B) + copy_b.row * pitch_b + 8ll * first_col + copy_b.byte;
    const int rows_left = n - first_row - copy_a.row;
    const bool column_inside = first_col + copy_b.byte / 8 < m;

    // The share of step `step` in fetching tile `tile`; the last step of a tile has none.
    constexpr int COPIES = copy_a.COUNT + copy_b.COUNT;
    auto fetch = [&](int tile, unsigned stage, int step) {
        const bool k_inside = tile * TILE_K + copy_a.byte / 8 < p;
        const int k_left = p - tile * TILE_K - copy_b.row;
        #pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (step >= 0 && i * (STEPS - 1) / COPIES != step) continue;
            const int j = i - copy_a.COUNT;
            if (j < 0) {
                const char* from = from_a + static_cast<long long>(tile) * ROW_A;
                copy_a.copy(i, stage, from, pitch_a, i * copy_a.STEP < rows_left && k_inside);
            } else {
                const char* from = from_b + tile * (TILE_K * pitch_b);
                copy_b.copy(j, stage + TILE_A, from, pitch_b, j * copy_b.STEP < k_left && column_inside);
            }
        }
    };

    double sums[COLS][ROWS][4] = {};
    double a[ROWS][DEPTH / 4], b[2][DEPTH / 2];
    const unsigned lane_a = (warp_row + g) * ROW_A + t * 16;
    const unsigned lane_b = TILE_A + 2 * t * ROW_B + warp_col * 8 + (g ^ (2 * t)) * 16;

    // Rows 8 r to 8 r + 7 of A: thread (g, t) takes row g and, of every 8 of k, 2 t and 2 t + 1.
    auto load_a = [&](unsigned stage, int set, int r) {
        #pragma unroll
        for (int q = 0; q < DEPTH / 8; ++q) {
            const int eight = set * (DEPTH / 8) + q;
            const int swizzled = TILE_K >= 16 ? eight ^ (g % 2) : eight;
            load_16_bytes(a[r] + 2 * q, stage + lane_a + r * 8 * ROW_A + swizzled * 64);
        }
    };
    // Columns 16 c to 16 c + 15 of B: thread (g, t) takes columns 2 g and 2 g + 1 at the same k.
    auto load_b = [&](double (&to)[DEPTH / 2], unsigned stage, int set, int c) {
        #pragma unroll
        for (int i = 0; i < DEPTH / 4; ++i)
            load_16_bytes(to + 2 * i, stage + lane_b + (set * DEPTH + i / 2 * 8 + i % 2) * ROW_B + c * 128);
    };

    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (first_tile + s < end_tile) fetch(first_tile + s, base + s * STAGE, -1);
        close_copy_group();
    }
    wait_for_copy_groups<STAGES - 2>();
    __syncthreads();  // the first tiles are complete
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) load_a(base, 0, r);
    load_b(b[0], base, 0, 0);

    unsigned stage = base, free_stage = base + (STAGES - 1) * STAGE;
    for (int tile = first_tile; tile < end_tile; ++tile) {
        const unsigned next_stage = stage + STAGE == base + STAGES * STAGE ? base : stage + STAGE;
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int set = step / COLS, c = step % COLS, now = step % 2;
            if (step == STEPS - 1) {    // all of this stage is in registers
                close_copy_group();
                wait_for_copy_groups<STAGES - 2>();
                __syncthreads();        // tile + 1 is complete; no warp needs this stage any more
            }
            const unsigned then_stage = step < STEPS - 1 ? stage : next_stage;
            load_b(b[1 - now], c < COLS - 1 ? stage : then_stage, (step + 1) % STEPS / COLS, (c + 1) % COLS);
            if (step < STEPS - 1 && tile + STAGES - 1 < end_tile) fetch(tile + STAGES - 1, free_stage, step);
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                double (&sum)[4] = sums[c][r];
                if constexpr (MMA_K == 4) { mma_16x8x4(sum, b[now], a[r]); mma_16x8x4(sum, b[now] + 2, a[r] + 1); }
                else if constexpr (MMA_K == 8) mma_16x8x8(sum, b[now], a[r]);
                else mma_16x8x16(sum, b[now], a[r]);
                if (c == COLS - 1) load_a(then_stage, (set + 1) % SETS, r);  // its last use: the next set may come
            }
        }
        free_stage = stage;
        stage = next_stage;
    }
    wait_for_copy_groups<0>();

    // Thread (g, t) holds rows 2 t and 2 t + 1 of every 8, columns 2 g and 2 g + 1 of every 16.
    auto store = [&](int c, int r, int v, const Vector<double>& sum) {
        store_within(C, first_row + warp_row + 8 * r + 2 * t + v, first_col + warp_col + 16 * c + 2 * g, n, m, COPY == 16,
                     sum);
    };
    if constexpr (SPLIT) {
        __syncthreads();  // no warp needs the ring any more
        add_parts<double, 2 * COLS * ROWS, THREADS>(
            ring, threadIdx.x, blockIdx.z, gridDim.z,
            [&](int i) {
                const double (&sum)[4] = sums[i / 2 / ROWS][i / 2 % ROWS];
                return Vector<double>{sum[i % 2], sum[2 + i % 2]};
            },
            [&](int i, const Vector<double>& sum) { store(i / 2 / ROWS, i / 2 % ROWS, i % 2, sum); });
    } else {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            #pragma unroll
            for (int v = 0; v < 2; ++v)
                #pragma unroll
                for (int c = 0; c < COLS; ++c) store(c, r, v, {sums[c][r][v], sums[c][r][2 + v]});
    }
}
