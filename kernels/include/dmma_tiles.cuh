// Products of doubles on the tensor cores, tile by tile through a ring that TMA fills: what `dmma_ring` and `double_always`
// share. The head of dmma_ring.cu explains it.
#pragma once
#include "barriers.cuh"
#include "launches.cuh"
#include "mma.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "stream_k.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"

constexpr int DOUBLES_K = 16;  // of k per stage: a row of A's tile is 128 bytes, what TMA swizzles

/// Computes a block's segments, at least one; the thread that starts copies takes them from `work_of_block()`, a Work
/// or a similar type. Segments that do not begin with their tile's first step go to `shares`, a tile per block.
/// Launch: block 384; dynamic shared memory STAGES * (TILE_N + TILE_M) * 128 + 1024 + 16 * STAGES.
/// @tparam TILE_N, TILE_M  rows and columns of C per block
/// @tparam WARP_N, WARP_M  rows and columns of C per warp
/// @tparam STAGES          of 16 of k in the ring
/// @tparam BAND            rows of tiles that are walked together: see tile_in_bands
/// @tparam ALIGNED_C       whether rows of C begin at multiples of 16 bytes
template <int TILE_N, int TILE_M, int WARP_N, int WARP_M, int STAGES, int BAND, bool ALIGNED_C, typename MakeWork>
__device__ __forceinline__ void multiply_doubles(const TensorMap& A, const TensorMap& B, double* C, double* shares,
                                                 int n, int p, int m, MakeWork&& work_of_block)
{
    constexpr int TILE_K = DOUBLES_K, THREADS = 256;
    constexpr int LAG = 2;                                  // products between the last use of a register and a load
    constexpr int SETS = TILE_K / 8;                        // of fragments, 8 of k each
    constexpr int ROWS = WARP_N / 8, COLS = WARP_M / 16;    // products per warp, each 16 columns x 8 rows of C
    constexpr int STEPS = SETS * COLS;                      // per stage: the products of one column of products
    constexpr int A_BYTES = TILE_N * TILE_K * 8, B_BYTES = TILE_M * TILE_K * 8, B_BOX = 16 * TILE_K * 8;
    static_assert(TILE_N / WARP_N * (TILE_M / WARP_M) * 32 == THREADS, "8 warps");
    static_assert(WARP_N % 8 == 0 && WARP_M % 16 == 0 && ROWS > LAG, "whole products, and enough of them");

    // What the producer tells the consumers about a segment. It is at most STAGES segments ahead of them.
    constexpr int NOTES = STAGES + 1;
    __shared__ Note notes[NOTES];
    extern __shared__ unsigned char shared_memory[];
    const int tiles_n = ceil_div(n, TILE_N), tiles_m = ceil_div(m, TILE_M);
    Ring<STAGES, A_BYTES + B_BYTES> ring(shared_memory);
    if (threadIdx.x == 0) ring.make(1, THREADS);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x >= THREADS) {
        give_registers<24>();
        if (threadIdx.x > THREADS) return;  // one thread starts all copies
        auto work = work_of_block();
        for (int number = 0;; ++number) {
            const Segment segment = work.next();
            const Tile tile = tile_in_bands(segment.tile, tiles_n, tiles_m, BAND);
            const int row = tile.row * TILE_N, column = tile.column * TILE_M;
            for (int step = segment.first; step < segment.last; ++step) {
                wait_for_without_loop(ring.empty(), ring.parity ^ 1);
                if (step == segment.first)
                    notes[number % NOTES] = {row, column, segment.last - step, segment.first == 0, work.done()};
                arrive_and_expect(ring.full(), A_BYTES + B_BYTES);
                load_box(ring.tile(), A, row, step * TILE_K, ring.full());
                #pragma unroll
                for (int c = 0; c < TILE_M / 16; ++c)
                    load_box(ring.tile() + A_BYTES + c * B_BOX, B, step * TILE_K, column + 16 * c, ring.full());
                ring.next();
            }
            if (work.done()) break;
        }
        wait_for_without_loop(ring.empty(), ring.parity ^ 1);
        arrive(ring.full());  // the stage after the last
        return;
    }
    take_registers<240>();
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x / 32;
    const int warp_row = warp / (TILE_M / WARP_M) * WARP_N, warp_col = warp % (TILE_M / WARP_M) * WARP_M;
    const int row_of_eight = g % 2 * 4 + g / 2;
    // Where the thread's first fragments lie in a stage: A's at the first and second 8 of k, B's at k = 2 t and
    // 2 t + 1.
    const unsigned lane_a = (warp_row + row_of_eight) * 128 + (t ^ row_of_eight) * 16;
    const unsigned lane_b = A_BYTES + warp_col / 16 * B_BOX + 2 * t * 128 + (g ^ (2 * t)) * 16;
    const unsigned lanes_a[2] = {lane_a, lane_a ^ 64}, lanes_b[2] = {lane_b, (lane_b ^ 16) + 128};

    double sums[COLS][ROWS][4];
    double a[ROWS][2], b[2][4];  // fragments of A of one set; of B of this column of products and of the next
    // Rows 8 r to 8 r + 7 of A: of every 8 of k, 2 t and 2 t + 1.
    auto load_a = [&](unsigned stage, int set, int r) { load_16_bytes(a[r], stage + lanes_a[set % 2] + r * 1024); };
    // Columns 16 c to 16 c + 15 of B: columns 2 g and 2 g + 1 at k = 2 t, then at 2 t + 1.
    auto load_b = [&](double (&to)[4], unsigned stage, int set, int c) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) load_16_bytes(to + 2 * i, stage + lanes_b[i] + set * 1024 + c * B_BOX);
    };
    wait_for_without_loop(ring.full(), ring.parity);
    #pragma unroll
    for (int r = 0; r < ROWS - LAG; ++r) load_a(ring.tile(), 0, r);
    load_b(b[0], ring.tile(), 0, 0);
    for (const Note* note = notes;; note = note + 1 == notes + NOTES ? notes : note + 1) {
        #pragma unroll
        for (int c = 0; c < COLS; ++c)
            #pragma unroll
            for (int r = 0; r < ROWS; ++r)
                #pragma unroll
                for (int e = 0; e < 4; ++e) sums[c][r][e] = 0;
        for (int left = note->steps; left > 0; --left) {
            const unsigned stage = ring.tile(), empty = ring.empty();
            ring.next();
            const unsigned next_stage = ring.tile();
            #pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const int set = step / COLS, c = step % COLS, now = step % 2;
                const bool last = step == STEPS - 1;
                #pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    mma_16x8x8(sums[c][r], b[now], a[r]);
                    if (r < LAG && c == 0) load_a(stage, set, ROWS - LAG + r);  // the rest of this set
                    if (r == LAG - 1) {
                        if (last) {                 // all of this stage is in registers
                            show_to_async_proxy();
                            arrive(empty);
                            wait_for_without_loop(ring.full(), ring.parity);
                        }
                        load_b(b[1 - now], last ? next_stage : stage, (step + 1) % STEPS / COLS, (c + 1) % COLS);
                    }
                    if (r >= LAG && c == COLS - 1) load_a(last ? next_stage : stage, (set + 1) % SETS, r - LAG);
                }
            }
        }

        // Thread (g, t) holds rows t and t + 4 of every 8, columns 2 g and 2 g + 1 of every 16. The owner's sums go to
        // C, where the shares of others will be added.
        const bool owner = note->owner;
        double* const to = owner ? C : shares + static_cast<long long>(blockIdx.x) * (TILE_N * TILE_M);
        const int rows = owner ? n : TILE_N, columns = owner ? m : TILE_M;
        const int first_row = (owner ? note->first_row : 0) + warp_row + t;
        const int first_col = (owner ? note->first_col : 0) + warp_col + 2 * g;
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            #pragma unroll
            for (int v = 0; v < 2; ++v) {
                const int row = first_row + 8 * r + 4 * v;
                #pragma unroll
                for (int c = 0; c < COLS; ++c) {
                    const int column = first_col + 16 * c;
                    store_within(to, row, column, rows, columns, ALIGNED_C,
                                 Vector<double>{sums[c][r][v], sums[c][r][2 + v]});
                }
            }
        if (note->last) break;
    }
}
