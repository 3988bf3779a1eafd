// C = A B in TF32 without a pass over the operands: B goes through registers, where turning it costs nothing.
//
// The idea: wgmma takes TF32 from shared memory only with k contiguous, and a row-major B has it across. three_tf32.cu
// turns and rounds the operands first: a fifth of its time at 4096^3. But wgmma's first operand may come from
// registers, which a thread loads from anywhere. So the product is C^T = B^T A^T: B^T is the first operand, in
// registers; A^T the second, whose columns are rows of A, along k. And TMA rounds while it copies, if the tensor map
// says TFLOAT32: to nearest, as cuBLAS does. No instruction is left for it.
//
//      shared memory                      registers               tensor cores
//      A  256 rows x 32 of k  ───────────────────────────────────► C^T += B^T A^T,  64 x 256 x 8
//      B  32 of k x 128 columns ──► 8 bytes per load, turned ─────►
//
// Which columns a thread has is free: rows of C^T can come in any order. Thread (g, t) of a warp takes two neighbours,
// of the chunk of 16 bytes 2 (warp % 2) + g / 4 + 4 (g / 2 % 2), at k = t and t + 4. TMA swizzles chunks by k % 8; so
// the 16 threads that are served together meet 8 chunks, and a warp stores whole sectors of C.
//
// Fragments of the next step are loaded while the products of this one run (transposed_product.cuh), so a sum has an
// even number of steps, the last one maybe of zeros.
// Machine code (256 rows): 107 instructions for 64 of k, 8 HGMMA (64 x 256 x 8), 16 LDS.64; 183 registers, no spills.
// Measured on an H200 in turns with cuBLAS, alone and under load: 1.00 and 0.99 at 8192^3 (416 TFLOP/s), 1.02 and 1.03
// at 4096^3 (407), 1.057 at 2048^3, 1.066 and 1.02 at 16384^3; three_tf32.cu 0.93, 0.86, 0.73. Lost: three stages
// instead of four (0.97), 128 rows (0.85; but at 1024^3 0.94 instead of 0.64).
//
// A is n x p, B is p x m, C is n x m, all row-major; the maps of A and B may be of padded copies (pad).
// Launches: pad, twice, only if p % 4 + m % 4 > 0: block (256); wgmma_tf32: block (384), a grid of at most one block
//           per multiprocessor walks all tiles; dynamic shared memory 1024 + STAGES * (128 * (TILE_N + 128) + 16).
#include "barriers.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "transposed_product.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

/// @tparam TILE_N  rows of C per block: 64, 128 or 256; a block has 128 columns of C
/// @tparam STAGES  of 32 of k in shared memory
/// @tparam BAND    rows of tiles per band
template <int TILE_N, int STAGES, int BAND>
__global__ void __launch_bounds__(384, 1)
wgmma_tf32(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float* C, int n, int p, int m)
{
    static_assert(STAGES >= 2, "a stage is free only when the next one is full");
    constexpr int TILE_M = 128, TILE_K = 32;
    constexpr int A_BYTES = TILE_N * 128, B_BOX = TILE_K * 128, B_BYTES = TILE_M / 32 * B_BOX;
    extern __shared__ unsigned char raw[];
    Ring<STAGES, A_BYTES + B_BYTES> ring(raw);
    const int steps = 2 * ceil_div(p, 2 * TILE_K);  // beyond p TMA brings zeros
    const int tile_rows = ceil_div(n, TILE_N), tile_columns = ceil_div(m, TILE_M);
    if (threadIdx.x == 0) ring.make(1, 256);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x > 0) return;
        for (int index = blockIdx.x; index < tile_rows * tile_columns; index += gridDim.x) {
            const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
            for (int step = 0; step < steps; ++step) {
                wait_for(ring.empty(), ring.parity ^ 1);
                arrive_and_expect(ring.full(), A_BYTES + B_BYTES);
                load_box(ring.tile(), A, tile.row * TILE_N, step * TILE_K, ring.full());
                #pragma unroll
                for (int c = 0; c < TILE_M / 32; ++c)
                    load_box(ring.tile() + A_BYTES + c * B_BOX, B, step * TILE_K, tile.column * TILE_M + 32 * c,
                             ring.full());
                ring.next();
            }
        }
        return;
    }
    take_registers<232>();
    const int group = warp_group() - 1, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int g = lane / 4, t = lane % 4;
    // The thread's two columns of B, of the group's 64, and where they lie in a stage at k = t and t + 4.
    const int box = warp / 2, chunk = warp % 2 * 2 + g / 4 + g / 2 % 2 * 4;
    const int column_of_group = box * 32 + chunk * 4 + g % 2 * 2;
    const unsigned lane_b = A_BYTES + (group * 2 + box) * B_BOX + t * 128 + (chunk ^ t) * 16 + g % 2 * 8;
    const unsigned lanes[2] = {lane_b, (lane_b ^ 64) + 512};

    float sums[TILE_N / 2];
    for (int index = blockIdx.x; index < tile_rows * tile_columns; index += gridDim.x) {
        const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
        multiply_from_registers<TILE_K * 4, TILE_K / 8>(
            ring, steps, sums,
            [&](unsigned (&b)[TILE_K / 8][4], unsigned stage) {
                #pragma unroll
                for (int k = 0; k < TILE_K / 8; ++k) {
                    load_8_bytes(b[k][0], b[k][1], stage + lanes[0] + k * 1024);
                    load_8_bytes(b[k][2], b[k][3], stage + lanes[1] + k * 1024);
                }
            },
            [&](const unsigned (&b)[TILE_K / 8][4], Descriptor a, int step) {
                #pragma unroll
                for (int k = 0; k < TILE_K / 8; ++k)
                    Wgmma<float>::multiply(sums, b[k], a + k * 2, step > 0 || k > 0);
            });
        store_column_pairs(sums, C, tile.row * TILE_N + 2 * t, tile.column * TILE_M + group * 64 + column_of_group, n, m);
    }
}
