// C = A B of bytes, exactly: B goes through registers, where transposing it costs nothing. One launch is enough if rows
// are multiples of 16 bytes.
//
// The idea: wgmma takes bytes from shared memory only with k contiguous, and a row-major B has it across. wgmma_int8.cu
// turns B in a launch of its own, 10 of 110 us at 4096^3. As in wgmma_tf32.cu the product is C^T = B^T A^T: B^T is the
// first operand, which may come from registers; A^T the second, whose columns are rows of A, along k.
//
//      shared memory                      registers                       tensor cores
//      A  256 rows x 64 of k  ───────────────────────────────────────────► C^T += B^T A^T,  64 x 256 x 32
//      B  64 of k x 128 columns ──► ldmatrix.trans ──► permuted bytes ───►
//
// A register of the first operand is four k of one column. ldmatrix.trans takes two neighbouring columns for an element
// of two bytes, and gives a thread two k of both; two such matrices, and one permutation of bytes per register, make
// four k of each. So per 32 of k a warp executes one ldmatrix for its 16 columns and four permutations. Which k are in
// which matrix is free: with 0, 1, 4, 5, 10, 11, 14, 15 in the first, all of its rows are in different banks, and the
// threads with t >= 2 permute the other way round.
//
// Sums of a thread are of two neighbouring columns, so a warp stores 64 bytes of each row straight from registers.
// Fragments of the next step are loaded while the products of this one run (transposed_product.cuh), so a sum has an
// even number of steps, the last one maybe of zeros.
//
// Measured on H200s in turns with the better of cuBLAS's calls, alone and back to back: 1.04 to 1.07 and 1.05 to 1.07
// at 4096^3, 0.96 to 1.06 and 0.98 to 1.02 at 8192^3, 0.93 to 0.96 and 0.98 at 3072^3, whose tiles are 2.2 waves, 1.35
// to 1.42 at 2048^3 alone. In us, alone, beside wgmma_int8.cu: 8.5 and 11.1 at 1024^3, 5.6 and 8.6 at 128^3, 17.7 and
// 17.0 at 1100^3, where A and B are copied first.
// Lost at 4096^3, where it takes 164,000 cycles with tensor cores busy in 78 %:
//  - groups that take turns, each with tiles of 128 x 128: 193,000 cycles, which are 85 per wgmma of 128 columns, not
//    64, as if the loads of its registers were exposed when no other group multiplies;
//  - two blocks per multiprocessor, with tiles of 128 x 128 and no producer: 272,000;
//  - results through shared memory and TMA, with buffers for a quarter to all of a tile: 163,000 to 177,000.
// Machine code: 168 registers at the launch, no spills.
//
// A is n x p, B is p x m, C is n x m, all row-major; p is at most 2^17 - 1. The maps of A and B may be of padded
// copies.
// Launches: pad_bytes, twice, only if p % 16 + m % 16 > 0: see turn_bytes.cuh; transposing_int8: block (384), a grid of
//           at most one block per multiprocessor; dynamic shared memory 1024 + STAGES * (64 * (TILE_N + 128) + 16).
#include "barriers.cuh"
#include "launches.cuh"
#include "mma.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "transposed_product.cuh"
#include "turn_bytes.cuh"
#include "warp_groups.cuh"
#include "wgmma_bytes.cuh"

/// @tparam TILE_N  rows of C per block: 64, 128 or 256; a block has 128 columns of C
/// @tparam STAGES  of 64 of k in shared memory
/// @tparam BAND    rows of tiles per band
template <int TILE_N, int STAGES, int BAND>
__global__ void __launch_bounds__(384, 1)
transposing_int8(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, int* C, int n, int p, int m)
{
    static_assert(STAGES >= 2, "a stage is free only when the next one is full");
    constexpr int TILE_M = 128, TILE_K = 64;
    constexpr int A_BYTES = TILE_N * TILE_K, B_BYTES = TILE_K * TILE_M;
    extern __shared__ unsigned char raw[];
    Ring<STAGES, A_BYTES + B_BYTES> ring(raw);
    const int steps = 2 * ceil_div(p, 2 * TILE_K);  // beyond p TMA brings zeros
    const int tile_rows = ceil_div(n, TILE_N), tile_columns = ceil_div(m, TILE_M), tiles = tile_rows * tile_columns;
    if (threadIdx.x == 0) ring.make(1, 256);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x > 0) return;
        prefetch_map(A);
        prefetch_map(B);
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
            for (int step = 0; step < steps; ++step) {
                wait_for(ring.empty(), ring.parity ^ 1);
                arrive_and_expect(ring.full(), A_BYTES + B_BYTES);
                load_box(ring.tile(), A, tile.row * TILE_N, step * TILE_K, ring.full());
                load_box(ring.tile() + A_BYTES, B, step * TILE_K, tile.column * TILE_M, ring.full());
                ring.next();
            }
        }
        return;
    }
    take_registers<232>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, g = lane / 4, t = lane % 4;
    // The row of B's 32 whose address the lane gives, of matrix lane / 8; the permutations that make columns 2 g and
    // 2 g + 1.
    const int matrix = lane / 8, quad = lane % 8 / 2;
    const int own_k = matrix / 2 * 16 + quad * 4 + (matrix % 2 ^ quad / 2) * 2 + lane % 2;
    const unsigned lane_b = A_BYTES + own_k * 128 + (warp ^ own_k % 8) * 16;
    const unsigned even = t < 2 ? 0x6420 : 0x2064, odd = t < 2 ? 0x7531 : 0x3175;

    int sums[TILE_N / 2];
    for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
        multiply_from_registers<TILE_K, TILE_K / 32>(
            ring, steps, sums,
            [&](unsigned (&b)[TILE_K / 32][4], unsigned stage) {
                #pragma unroll
                for (int k = 0; k < TILE_K / 32; ++k) {
                    unsigned words[4];
                    load_matrices_transposed(words, stage + lane_b + k * 32 * 128);
                    b[k][0] = __byte_perm(words[0], words[1], even);
                    b[k][1] = __byte_perm(words[0], words[1], odd);
                    b[k][2] = __byte_perm(words[2], words[3], even);
                    b[k][3] = __byte_perm(words[2], words[3], odd);
                }
            },
            [&](const unsigned (&b)[TILE_K / 32][4], Descriptor a, int step) {
                #pragma unroll
                for (int k = 0; k < TILE_K / 32; ++k)
                    multiply_bytes(sums, b[k], a + k * 2, step > 0 || k > 0);
            });
        store_column_pairs(sums, C, tile.row * TILE_N + 2 * t, tile.column * TILE_M + warp * 16 + 2 * g, n, m);
    }
}
