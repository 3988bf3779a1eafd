// C = A B in TF32, bfloat16 or half on tensor cores, the warps' way: ldmatrix and mma.sync.
//
// The idea: dmma_pipelined.cu with shorter numbers. One mma multiplies 16 x 16 by 16 x 8 short numbers (or 16 x 8 by 8
// x 8 floats, of which the tensor core reads 19 bits) and adds into floats: 2048 (or 1024) multiply-adds per
// instruction. Now shared memory is the narrow place, so a warp keeps 64 x 64 of C (128 sums per thread) and reads its
// fragments by ldmatrix: each group of 8 threads names 8 rows of 16 bytes, and the hardware deals them out as mma wants
// them; with .trans it also turns B, which lies with k down the rows, on its side. ldmatrix transposes 2-byte elements
// only: floats of B are read 4 bytes per thread.
//
//      A, 16 rows of k bytes 0..31            B, 16 rows of k             C 64 x 64 per warp = 4 x 8 products
//      +---------+---------+                  +--------+--------+         +--+--+--+--+--+--+--+--+
//      | rows 0-7|   a2    |  4 matrices      | k 0-7  |        |         |  ->-->-->-->-->-->-->  |  there
//      |   a0    |         |  8 x 16 bytes:   |  b0    |  b0'   |         |  <--<--<--<--<--<--<-  |  and back, so that
//      +---------+---------+  one ldmatrix    +--------+--------+         |  ->-->--                |  neighbours share
//      | rows 8.. a1 | a3  |                  | k 8-15 b1 | b1' |         +--+--+--+--+--+--+--+--+  a fragment
//
// Chunks of 16 bytes are XORed with bits of their row (row % 8; for floats of B, k % 4 * 2): no bank conflicts, no
// padding. Copies by cp.async into a ring, fragments double-buffered, one barrier per tile, as in dmma_pipelined.cu.
// Floats are rounded to TF32 (cvt.rna) as they leave shared memory: the tensor core would cut them. Hopper has no
// instruction for it: ptxas makes a test for infinity and an addition, 256 of the 583 instructions of the loop.
//
// Measured on an H200, TFLOP/s and share of cuBLAS; 128 x 256 per block, 8 warps, 128 bytes of k per stage, 4 stages,
// one block per multiprocessor:
//                 8192^3       4096^3       1024^3 (see below)
//    bfloat16     448, 0.64    455, 0.60    192, 0.77
//    half         485, 0.64    452, 0.64
//    TF32         189, 0.52    189, 0.50    103, 0.75
// At 1024^3: bfloat16 with tiles of 64 x 64, warps of 32 x 32, 4 stages, 3 blocks per multiprocessor; TF32 with 64 x
// 128, 32 x 64, 4 and 2. mma.sync itself limits it: alone it runs at 592 TFLOP/s in bfloat16 and half, 309 in TF32;
// the datasheet, with wgmma, has 989 and 494. This kernel is at 0.76 and 0.61 of that (3 % go in the last wave). TF32
// without the rounding: 216 instead of 199 at 4096^3, but 9e-4 of the largest element away from cuBLAS's product
// instead of 3e-5. What lost: all blocks reading the same tile, so all from L2 (no faster); mbarriers instead of the
// barrier (4 to 9 % slower); B's floats by 16 bytes per thread (64 moves more per tile). What the machine code shows:
// the loop for bfloat16 has 246 instructions, 128 HMMA, 32 LDSM, 12 LDGSTS, 230 registers; that for TF32 583, 128 HMMA,
// 64 LDS, 16 LDSM, 254 registers; no spills.
// With SPLIT (`mma_split`), the blocks of a cluster share the sums of few tiles, as in split_sums.cu: in bfloat16 1.07 and
// 1.2 of cuBLAS at 257^3 and 509^3, and 1.14 for n = m = 128, p = 2048; 1.02 for p = 8192 (0.87 in 8 parts).
//
// A is n x p, B is p x m, C is n x m, all row-major, C rounded to the type of A and B. COPY = 16, 8 or 4 needs rows of
// A and B that are multiples of it; COPY = 2 (short numbers only) takes any, through registers, slowly (111 TFLOP/s).
// Launch: block (32 per warp); grid (ceil(n / TILE_N) * ceil(m / TILE_M));
//         dynamic shared memory STAGES * (TILE_N + TILE_M) * TILE_K * sizeof(T).
#include "async_copy.cuh"
#include "mma.cuh"
#include "shared_memory.cuh"
#include "short_numbers.cuh"
#include "split_sums.cuh"
#include "tile_copy.cuh"
#include "tile_order.cuh"

using Sums = float (&)[4];
using FragmentA = const unsigned (&)[4];
using FragmentB = const unsigned (&)[2];

// What depends on the element: its bits, and the mma that takes it.
template <typename T> struct Element;
template <> struct Element<float> {
    using Bits = float;
    static __device__ __forceinline__ void multiply_add(Sums c, FragmentA a, FragmentB b) { mma_tf32(c, a, b); }
};
template <> struct Element<__half> {
    using Bits = unsigned short;
    static __device__ __forceinline__ void multiply_add(Sums c, FragmentA a, FragmentB b) { mma_half(c, a, b); }
};
template <> struct Element<__nv_bfloat16> {
    using Bits = unsigned short;
    static __device__ __forceinline__ void multiply_add(Sums c, FragmentA a, FragmentB b) { mma_bfloat16(c, a, b); }
};

// What is XORed to the numbers of the 16-byte chunks of a row.
template <int ROW_BYTES>
struct SwizzleA {
    static __device__ __forceinline__ int chunk(int row) { return ROW_BYTES == 128 ? row % 8 : row / 2 % 4; }
};
template <int SIZE>
struct SwizzleB {
    static __device__ __forceinline__ int chunk(int k) { return SIZE == 4 ? k % 4 * 2 : k % 8; }
};

/// @tparam T               float (its TF32 part), __half or __nv_bfloat16
/// @tparam TILE_N, TILE_M  rows and columns of C per block
/// @tparam TILE_K          of k per stage: 64 or 128 bytes
/// @tparam WARP_N, WARP_M  rows and columns of C per warp
/// @tparam STAGES          of the ring
/// @tparam BLOCKS          per multiprocessor, which the compiler keeps registers for
/// @tparam COPY            bytes per copy
/// @tparam SPLIT           whether the blocks of a cluster (1, 1, parts) share each sum, as in split_sums.cu
template <typename T, int TILE_N, int TILE_M, int TILE_K, int WARP_N, int WARP_M, int STAGES, int BLOCKS, int COPY,
          bool SPLIT = false>
__global__ void __launch_bounds__(TILE_N / WARP_N * (TILE_M / WARP_M) * 32, BLOCKS)
mma_sync(const T* A, const T* B, T* C, int n, int p, int m)
{
    using Bits = typename Element<T>::Bits;
    constexpr int SIZE = sizeof(Bits);
    constexpr int THREADS = TILE_N / WARP_N * (TILE_M / WARP_M) * 32;
    constexpr int ROW_A = TILE_K * SIZE, ROW_B = TILE_M * SIZE;  // bytes of a row of the tiles
    constexpr int TILE_A = TILE_N * ROW_A, STAGE = TILE_A + TILE_K * ROW_B;
    constexpr int SETS = ROW_A / 32;                      // one mma takes 32 bytes of k: 8 floats or 16 short numbers
    constexpr int DEPTH = 32 / SIZE;
    constexpr int ROWS = WARP_N / 16, COLS = WARP_M / 8;  // products 16 x 8 per warp
    static_assert(TILE_N % WARP_N == 0 && TILE_M % WARP_M == 0 && WARP_N % 16 == 0, "whole warps and products");
    static_assert(WARP_M % (SIZE == 4 ? 32 : 16) == 0, "a read of B serves 4 (float) or 2 products side by side");
    static_assert(ROW_A == 64 || ROW_A == 128, "the swizzle of A knows rows of 64 and 128 bytes");
    static_assert(ROW_B % 128 == 0, "the swizzle of B needs whole 128-byte lines");
    static_assert(STAGES >= 2, "one stage is read while another arrives");
    static_assert(COPY % SIZE == 0 && COPY <= 16, "bytes per copy");

    extern __shared__ __align__(128) unsigned char ring[];
    const unsigned base = shared_address(ring);
    const int thread = threadIdx.x, lane = thread % 32, g = lane / 4, t = lane % 4;
    const int warp_row = thread / 32 / (TILE_M / WARP_M) * WARP_N, warp_col = thread / 32 % (TILE_M / WARP_M) * WARP_M;
    const Tile place = tile_in_bands(blockIdx.x, (n + TILE_N - 1) / TILE_N, (m + TILE_M - 1) / TILE_M, 8);
    const int first_row = place.row * TILE_N, first_col = place.column * TILE_M;
    const int all_tiles = ceil_div(p, TILE_K);
    const int first_tile = SPLIT ? first_of_part(all_tiles, blockIdx.z, gridDim.z) : 0;
    const int end_tile = SPLIT ? first_of_part(all_tiles, blockIdx.z + 1, gridDim.z) : all_tiles;

    const TileCopy<TILE_N, ROW_A, COPY, THREADS, SwizzleA<ROW_A>> copy_a(thread);
    const TileCopy<TILE_K, ROW_B, COPY, THREADS, SwizzleB<SIZE>> copy_b(thread);
    const long long pitch_a = static_cast<long long>(p) * SIZE, pitch_b = static_cast<long long>(m) * SIZE;
    const char* from_a = reinterpret_cast<const char*>(A) + (first_row + copy_a.row) * pitch_a + copy_a.byte;
    const char* from_b = reinterpret_cast<const char*>(B) + copy_b.row * pitch_b
                         + static_cast<long long>(first_col) * SIZE + copy_b.byte;
    const int rows_left = n - first_row - copy_a.row;
    const bool column_inside = first_col + copy_b.byte / SIZE < m;

    // The share of set `set` in fetching tile `tile`; the last set of a tile has none.
    constexpr int COPIES = copy_a.COUNT + copy_b.COUNT;
    auto fetch = [&](int tile, unsigned stage, int set) {
        const bool k_inside = tile * TILE_K + copy_a.byte / SIZE < p;
        const int k_left = p - tile * TILE_K - copy_b.row;
        #pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (set >= 0 && i * (SETS - 1) / COPIES != set) continue;
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

    float sums[ROWS][COLS][4] = {};
    unsigned a[2][ROWS][4], b[2][COLS][2];

    // Where this thread reads. The swizzle sees bits of the row that are the thread's own, so the addresses of all rows
    // of fragments differ by constants; those of the sets differ by an XOR.
    const unsigned lane_a = (warp_row + lane % 16) * ROW_A + (SwizzleA<ROW_A>::chunk(lane % 16) ^ (lane / 16)) * 16;
    const unsigned lane_b = SIZE == 4
        ? t * ROW_B + (((warp_col + g) / 4) ^ SwizzleB<4>::chunk(t)) * 16 + g % 4 * 4
        : lane % 16 * ROW_B + ((warp_col / 8 + lane / 16) ^ SwizzleB<2>::chunk(lane % 8)) * 16;

    // All fragments of set `set` of the stage at `stage`.
    auto load = [&](unsigned (&to_a)[ROWS][4], unsigned (&to_b)[COLS][2], unsigned stage, int set) {
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            load_matrices(to_a[r], stage + (lane_a ^ (set * 32)) + r * 16 * ROW_A);
            if constexpr (SIZE == 4) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) round_to_tf32(to_a[r][i]);
            }
        }
        if constexpr (SIZE == 4) {
            // ldmatrix transposes 2-byte elements only. So 4 bytes per thread: row t (then t + 4) of k, column g.
            #pragma unroll
            for (int c = 0; c < COLS; ++c)
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const unsigned k_row = (set * DEPTH + 4 * i) * ROW_B;
                    load_4_bytes(to_b[c][i], stage + TILE_A + (lane_b ^ (c % 4 * 32)) + k_row + c / 4 * 128);
                    round_to_tf32(to_b[c][i]);
                }
        } else {
            // 16 rows of k, 8 columns of each of two products.
            #pragma unroll
            for (int c = 0; c < COLS; c += 2) {
                unsigned four[4];
                const unsigned k_row = set * DEPTH * ROW_B;
                load_matrices_transposed(four, stage + TILE_A + (lane_b ^ (c % 8 * 16)) + k_row + c / 8 * 128);
                to_b[c][0] = four[0], to_b[c][1] = four[1], to_b[c + 1][0] = four[2], to_b[c + 1][1] = four[3];
            }
        }
    };

    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (first_tile + s < end_tile) fetch(first_tile + s, base + s * STAGE, -1);
        close_copy_group();
    }
    wait_for_copy_groups<STAGES - 2>();
    __syncthreads();  // the first tiles are complete
    load(a[0], b[0], base, 0);

    unsigned stage = base, free_stage = base + (STAGES - 1) * STAGE;
    for (int tile = first_tile; tile < end_tile; ++tile) {
        const unsigned next_stage = stage + STAGE == base + STAGES * STAGE ? base : stage + STAGE;
        #pragma unroll
        for (int set = 0; set < SETS; ++set) {
            if (set == SETS - 1) {  // all of this stage is in registers
                close_copy_group();
                wait_for_copy_groups<STAGES - 2>();
                __syncthreads();    // tile + 1 is complete; no warp needs this stage any more
            }
            load(a[1 - set % 2], b[1 - set % 2], set < SETS - 1 ? stage : next_stage, (set + 1) % SETS);
            if (set < SETS - 1 && tile + STAGES - 1 < end_tile) fetch(tile + STAGES - 1, free_stage, set);
            #pragma unroll
            for (int r = 0; r < ROWS; ++r)
                #pragma unroll
                for (int i = 0; i < COLS; ++i) {
                    const int c = r % 2 ? COLS - 1 - i : i;  // there and back: neighbours share a fragment
                    Element<T>::multiply_add(sums[r][c], a[set % 2][r], b[set % 2][c]);
                }
        }
        free_stage = stage;
        stage = next_stage;
    }
    wait_for_copy_groups<0>();

    // Two results side by side in C.
    auto store = [&](int row, int col, float x, float y) {
        if (row >= n) return;
        Bits* const to = reinterpret_cast<Bits*>(C) + static_cast<long long>(row) * m + col;
        if constexpr (COPY == SIZE) {      // m may be odd
            if constexpr (SIZE == 4) {
                if (col < m) to[0] = x;
                if (col + 1 < m) to[1] = y;
            } else {
                const unsigned two = Short<T>::pack(x, y);
                if (col < m) to[0] = static_cast<Bits>(two);
                if (col + 1 < m) to[1] = static_cast<Bits>(two >> 16);
            }
        } else if (col < m) {               // m is even, and so is col
            if constexpr (SIZE == 4) *reinterpret_cast<float2*>(to) = make_float2(x, y);
            else *reinterpret_cast<unsigned*>(to) = Short<T>::pack(x, y);
        }
    };
    const int row_of_thread = first_row + warp_row + g, col_of_thread = first_col + warp_col + 2 * t;
    if constexpr (SPLIT) {
        __syncthreads();  // no warp needs the ring any more
        add_parts<float, ROWS * COLS, THREADS>(
            ring, threadIdx.x, blockIdx.z, gridDim.z,
            [&](int v) {
                const float (&sum)[4] = sums[v / COLS][v % COLS];
                return Vector<float>{sum[0], sum[1], sum[2], sum[3]};
            },
            [&](int v, const Vector<float>& sum) {
                const int row = row_of_thread + v / COLS * 16, col = col_of_thread + v % COLS * 8;
                store(row, col, sum.element[0], sum.element[1]);
                store(row + 8, col, sum.element[2], sum.element[3]);
            });
    } else {
        #pragma unroll
        for (int r = 0; r < 2 * ROWS; ++r)
            #pragma unroll
            for (int c = 0; c < COLS; ++c)
                store(row_of_thread + 8 * r, col_of_thread + 8 * c, sums[r / 2][c][r % 2 * 2], sums[r / 2][c][r % 2 * 2 + 1]);
    }
}
