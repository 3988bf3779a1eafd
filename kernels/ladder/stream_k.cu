// C = A B with equal work for every multiprocessor: the rings without a half-empty last wave.
//
// The idea: 2048 tiles on 132 multiprocessors are 15 full waves and one in which half of the chip is idle; at 1024^3
// there are 32 tiles for all of them. Here as many blocks run as there are multiprocessors. They take whole tiles while
// there are enough for all; what is left is laid end to end and cut into equal pieces, through the middle of tiles
// if need be. A tile's first piece goes to C, the others to a workspace, and a last launch adds them in a fixed
// order.
//
//      wave 0      | tile 0 | tile 1 | tile 2 | ... | tile 131 |
//       ...
//      wave 14     | ............................................|
//      the rest    | 0 0 0 0|0 0 1 1 |1 1 1 1 |2 2 2 2 2 2 ...     as many steps for each
//
// Only the rest is cut: with all tiles cut, concurrent blocks are at different k and no longer share data in L2, and
// 8192^3 falls from 56 to 53 TFLOP/s. The producer runs ahead into the next tile while the consumers store the last
// one. It transposes as in transposing_ring.cu if B is narrow, and takes A transposed beforehand, as in tma_ring.cu,
// if a row of A is used so often that the launch is cheaper (m >= 2048).
// What it costs: a workspace of one tile per multiprocessor, and a launch of a few microseconds; so the last wave is
// cut only if the chip would stand idle for longer (Schedule).
// What the machine code shows (128 x 256 x 16): the loop is that of tma_ring.cu, 2048 of 2165 instructions are
// multiply-adds, 94.6 %; no spills, since the producers, who keep the schedule, have 72 registers. (Adding the shares
// in this kernel, behind flags, made the compiler place the consumers' registers worse.)
// On an H200: 57.2 TFLOP/s at 8192^3, 1.12 of cuBLAS; 56.5, 1.10, at 4096^3 (in tiles of 256 x 128 x 8, which the
// tuner found); 37.5, 1.11, at 1024^3; 51.1, 1.12, for n = m = 1024 and p = 8192; 54.2, 1.06, for
// m = 1024. At 1100^3 tiles of 128 x 256 are 22 % larger than C: 31.7, 0.98; those of 128 x 192 10 %: 36.7, 1.10.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launches: transpose, only if BEFOREHAND: block (32, 8), grid (ceil(n / 64), ceil(p / 32)); pad, only if m % 4 != 0:
//           block (256); stream_k: block (384), grid (multiprocessors), dynamic shared memory
//           STAGES * (TILE_N + TILE_M) * TILE_K * 4 + 1024 + 16 * STAGES; add_shares: block (256), grid
//           (TILE_N * TILE_M / 2048 * (tiles % multiprocessors)), at least 1.
#include "barriers.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "ring_product.cuh"
#include "stream_k.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "transpose.cuh"
#include "transposed_copy.cuh"
#include "warp_groups.cuh"

/// @tparam TILE_N      rows of C per block
/// @tparam TILE_M      columns of C per block: see RingProduct
/// @tparam TILE_K      steps of k per stage
/// @tparam STAGES      stages of the ring
/// @tparam ORDER       of the multiply-adds: see Walk
/// @tparam BAND       rows of tiles that are walked together: see tile_in_bands
/// @tparam BEFOREHAND  whether A_transposed is to be read, not A
/// @tparam ALIGNED_A   whether rows of A begin at multiples of 16 bytes
/// @tparam ALIGNED_C   whether rows of C do
template <int TILE_N, int TILE_M, int TILE_K, int STAGES, int ORDER, int BAND, bool BEFOREHAND, bool ALIGNED_A,
          bool ALIGNED_C>
__global__ void __launch_bounds__(384, 1)
stream_k(const float* A, const __grid_constant__ TensorMap A_transposed, const __grid_constant__ TensorMap B, float* C,
         float* shares, int n, int p, int m)
{
    using Product = RingProduct<TILE_N, TILE_M, TILE_K, ORDER>;
    using Copy = TransposedCopy<TILE_N, TILE_K, ALIGNED_A>;
    // What the producer tells the consumers about a segment. It is at most STAGES segments ahead of them.
    constexpr int NOTES = STAGES + 1;
    __shared__ Note notes[NOTES];
    extern __shared__ unsigned char shared_memory[];
    const int tiles_n = ceil_div(n, TILE_N), tiles_m = ceil_div(m, TILE_M), steps = ceil_div(p, TILE_K);
    if (blockIdx.x >= Schedule(tiles_n * tiles_m, steps, gridDim.x).workers) return;
    Ring<STAGES, Product::A_BYTES + Product::B_BYTES> ring(shared_memory);
    if (threadIdx.x == 0) ring.make(BEFOREHAND ? 1 : Copy::THREADS, Product::THREADS);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x >= Product::THREADS) {
        give_registers<72>();
        Work work(tiles_n * tiles_m, steps, gridDim.x, blockIdx.x);
        Note note;
        int start = 0, left = 0, number = -1;
        const auto next_segment = [&]() {
            const Segment segment = work.next();
            const Tile tile = tile_in_bands(segment.tile, tiles_n, tiles_m, BAND);
            note.first_row = tile.row * TILE_N;
            note.first_col = tile.column * TILE_M;
            note.steps = left = segment.last - segment.first;
            note.owner = segment.first == 0;
            note.last = work.done();
            start = segment.first * TILE_K;
            ++number;
        };
        next_segment();
        if constexpr (BEFOREHAND) {
            if (threadIdx.x > Product::THREADS) return;  // one thread starts all copies
            while (left > 0) {
                wait_for_without_loop(ring.empty(), ring.parity ^ 1);
                if (left == note.steps) notes[number % NOTES] = note;
                arrive_and_expect(ring.full(), Product::A_BYTES + Product::B_BYTES);
                load_box(ring.tile(), A_transposed, start, note.first_row, ring.full());
                load_box(ring.tile() + Product::A_BYTES, B, start, note.first_col, ring.full());
                ring.next();
                start += TILE_K;
                if (--left == 0 && !note.last) next_segment();
            }
        } else {
            Copy copy;
            copy.fetch(A, note.first_row, start, n, p);
            while (left > 0) {
                wait_for_without_loop(ring.empty(), ring.parity ^ 1);
                if (threadIdx.x == Product::THREADS) {
                    if (left == note.steps) notes[number % NOTES] = note;
                    expect(ring.full(), Product::B_BYTES);
                    load_box(ring.tile() + Product::A_BYTES, B, start, note.first_col, ring.full());
                }
                copy.put(ring.tile());
                arrive(ring.full());  // each thread for the rows that it stored
                ring.next();
                start += TILE_K;
                if (--left == 0 && !note.last) next_segment();
                if (left > 0) copy.fetch(A, note.first_row, start, n, p);
            }
        }
        wait_for_without_loop(ring.empty(), ring.parity ^ 1);
        arrive(ring.full());  // the stage after the last
    } else {
        take_registers<216>();
        Product product(threadIdx.x);
        product.begin(ring);
        for (const Note* note = notes;; note = note + 1 == notes + NOTES ? notes : note + 1) {
            product.clear();
            for (int left = note->steps; left > 0; --left) product.step(ring);

            // The owner's sums go to C, where the shares of others will be added.
            float* share = shares + static_cast<long long>(blockIdx.x) * (TILE_N * TILE_M);
            const bool owner = note->owner;
            product.template store<ALIGNED_C>(owner ? C : share, owner ? note->first_row : 0,
                                              owner ? note->first_col : 0, owner ? n : TILE_N, owner ? m : TILE_M);
            if (note->last) break;
        }
    }
}
