// C = A B for doubles on tensor cores, as a ring that TMA fills, with equal shares of the last wave.
//
// The idea: dmma_pipelined.cu loses its last 7 % at four places. Its warps meet at a barrier for every tile, and all
// wait for the slowest. They also copy: 40 % of the loop's instructions are addresses and conditions. A fragment is
// loaded right after the product that was the last to read its registers, and a load into them waits some 20 cycles,
// until the tensor core has read them. And 1024 tiles on 132 multiprocessors leave the last of 8 waves three quarters
// full. Here one thread lets TMA copy; the 8 warps that multiply share only the barriers of the ring, and so drift
// apart until their waits no longer coincide; loads lag LAG products behind the last use of their registers; and the
// last wave is cut into equal shares, as in stream_k.cu.
//
//      4 warps: one thread starts the copies          8 warps multiply
//      wait empty ── TMA, TMA, ... ───► full          wait full ── 16 bytes per load ── DMMA ── arrive ► empty
//
// TMA's swizzle of 128 bytes (chunk of 16 bytes, XOR row % 8) fits without a conflict, once rows are renamed. Eight
// threads that are served together have g = 2 i and 2 i + 1, t = 0 to 3. In B they read rows of k 0, 2, 4, 6: eight
// chunks. In A, whose rows are free to choose, thread g takes row (g % 2) * 4 + g / 2 of each eight: rows i and i + 4,
// whose swizzles differ in the bit that t leaves alone. As in dmma_pipelined.cu the product is C^T = B^T A^T.
//
// What it costs: a workspace of one tile per multiprocessor, and a launch that adds the shares if tiles are cut. Rows
// of an odd number of elements are copied first, because TMA needs a pitch of a multiple of 16 bytes.
// What the machine code shows (128 x 128, warps 64 x 32): the loop has 128 instructions for 16 of k, 32 of them
// DMMA.16x8x8, 24 LDS.128 and 47 NOP that ptxas puts behind DMMAs; 208 registers, no spills. Waits for operands are
// still there, since ptxas moves loads towards their registers' last use.
// Measured in turns with cuBLAS, alone and under load, an H200 and an H100:
//    8192^3   1.040 and 1.059, 1.032 and 1.079          4096^3   1.048 and 1.061, 1.051 and 1.036
//    2048^3   1.026 and 1.05, 1.021 and 1.014
// 64.3 TFLOP/s at 4096^3 are 96 % of the peak. At 1024^3 dmma_pipelined.cu is faster (1.06): 64 tiles in halves need as
// long for the shares as for the products (0.84), tiles of 128 x 64 fill the chip once (1.00).
// What lost, at 4096^3: tiles of 128 x 64 (1.009) and 64 x 64 (0.89); dmma_pipelined.cu with lagging loads alone
// (1.00), and with equal shares (1.02); two blocks of 4 warps per multiprocessor, as cuBLAS has them (0.95). A last
// wave of 124 tiles for 132 blocks is not cut: 0.297 ms at 2048^3 with shares, 0.290 without.
//
// A is n x p, B is p x m, C is n x m, all row-major; the maps of A and B may be of padded copies (pad).
// Launches: pad, twice, only if p or m is odd: block (256); dmma_ring: block (384), grid (multiprocessors), dynamic
//           shared memory STAGES * (TILE_N + TILE_M) * 128 + 1024 + 16 * STAGES; add_shares: block (256), grid
//           (TILE_N * TILE_M / 2048 * (tiles % multiprocessors)), at least 1.
#include "dmma_tiles.cuh"

/// Parameters as of multiply_doubles.
template <int TILE_N, int TILE_M, int WARP_N, int WARP_M, int STAGES, int BAND, bool ALIGNED_C>
__global__ void __launch_bounds__(384, 1)
dmma_ring(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, double* C, double* shares, int n,
          int p, int m)
{
    const int tiles = ceil_div(n, TILE_N) * ceil_div(m, TILE_M), steps = ceil_div(p, DOUBLES_K);
    if (blockIdx.x >= Schedule(tiles, steps, gridDim.x).workers) return;
    multiply_doubles<TILE_N, TILE_M, WARP_N, WARP_M, STAGES, BAND, ALIGNED_C>(
        A, B, C, shares, n, p, m, [&] { return Work(tiles, steps, gridDim.x, blockIdx.x); });
}
