// C = A B by wgmma in clusters of two blocks that share B, on a grid that stays, with results stored by TMA.
//
// Three ideas on top of warp_specialised.cu, all against the same cost, bytes that move:
//  - two blocks, one below the other, need the same tile of B: each fetches half of its panels and TMA writes them into
//    both (multicast). A block fetches 32 KiB per 64 of k, not 48, at TILE_M = 256;
//  - blocks stay and walk the tiles in bands of BAND rows of clusters, so that tiles computed at the same time share
//    their operands in the L2 cache; the next tile's stages are fetched while the results of this one are written;
//  - results go through shared memory (stmatrix, swizzled) and out by TMA in rows of 128 bytes: written straight from
//    registers they would be pieces of 16 bytes, half a sector.
//
// Measured on an H200, bfloat16: 0.88 to 0.96 of cuBLAS (warp_specialised) becomes 0.96 to 1.01 at 4096^3 and 1.01 to
// 1.03 at 8192^3; 0.97 to 1.0 at 1024^3 with TILE_M = 64. The last two ideas bring it: CLUSTER = 1 is as fast as
// CLUSTER = 2 (within 2 %; 5 % faster at 1024^3), since the L2 cache serves both blocks well enough. Under load the
// chip lowers its clock (to about 1.4 GHz at 690 W), so the rate depends on how warm it is; compare only what was
// measured in turns.
// Machine code: 47 instructions per 64 of k, 4 HGMMA (64 x 256 x 16); 168 registers at the launch (151 in use), no
// spills.
//
//        block 0   A0 -> | C0 |     B left half  -> both blocks
//        block 1   A1 -> | C1 |     B right half -> both blocks
//
// With TURNS (`wgmma_turns`) each group has tiles of its own, and one multiplies while the other stores. While a tile
// of 128 x 256 that the groups share is stored, 64 KiB in all blocks at once, nothing multiplies. A group's own tile
// has at most 192 columns, so more bytes are fetched per product: at 128, 32 KiB per 512 cycles of the tensor cores,
// not 48 per 1024. The L2 cache delivers them.
//
//        group 1   | products of tile 0 | stores | waits |     products of tile 2 | ...
//        group 2        waits           | products of tile 1  | stores | waits | ...
//
// In turns with cuBLAS's best on H200s, alone and back to back, with TILE_M = 128: bfloat16, n = m = 8192 and p = 512,
// 0.99 to 1.02 and 1.00 to 1.03 (shared tiles 0.81 to 0.84, 0.80; 146,300 cycles and tensor cores busy in 88 % instead
// of 186,000 and 69 %), p = 128 1.08 and 1.10 (1.03, 1.05), 4096^3 1.00 to 1.02 and 1.06 (0.99 to 1.00, 1.00 to 1.02).
// With TILE_M = 192: bfloat16 at 8192^3 1.05 and 1.06 (1.01, 1.02), half 1.03 to 1.04 and 1.02 to 1.03 (0.99 to 1.00,
// 0.97 to 1.00). No spills.
//
// Elements are half or bfloat16, sums float, results rounded to the elements' type.
// A is n x p, B is p x m, C is n x m, all row-major; the maps of A and B may be of padded copies (pad_operands).
// Launch: block 384; clusters of CLUSTER; a grid of at most one block per multiprocessor, a multiple of CLUSTER;
//         dynamic shared memory 1024 + STAGES * (16384 + 128 * TILE_M + 16) + 32768, with TURNS 16 more.
#include "barriers.cuh"
#include "cluster.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "short_numbers.cuh"
#include "short_results.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

/// @tparam T          __half or __nv_bfloat16
/// @tparam TILE_M     columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES     of 64 of k in shared memory
/// @tparam CLUSTER    blocks that share B: 1 or 2
/// @tparam BAND       rows of clusters per band
/// @tparam TMA_STORE  whether C's pitch is a multiple of 16 bytes and map_c is of C; otherwise map_c is not used
/// @tparam TURNS      whether each group has tiles of its own; TILE_M is then at most 192
template <typename T, int TILE_M, int STAGES, int CLUSTER, int BAND, bool TMA_STORE, bool TURNS = false>
__global__ void __launch_bounds__(384, 1)
clusters(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_c, T* C, int n, int p, int m)
{
    static_assert(TILE_M % 64 == 0 && TILE_M <= 256, "B comes in panels of 64 columns, wgmma takes at most 256");
    static_assert(CLUSTER == 1 || CLUSTER == 2, "one block or two");
    static_assert(!TURNS || TILE_M <= 192, "the sums of 128 rows fit a group's registers");
    constexpr int PARTS = TURNS ? 2 : 1;  // of 64 rows, per group
    constexpr int TILE_K = 64;
    constexpr int A_BYTES = 128 * TILE_K * 2;
    constexpr int PANELS = TILE_M / 64;
    constexpr int PANEL_BYTES = TILE_K * 128;
    constexpr int STAGE_BYTES = A_BYTES + PANELS * PANEL_BYTES;
    constexpr int OUTS = 2;              // buffers of results per multiplying group
    constexpr int OUT_BYTES = 64 * 128;  // 64 x 64 results
    // Panels take turns; where their number is odd, the first of a tile takes the buffer that the last one left.
    constexpr int PENDING_STORES = PARTS * PANELS % OUTS == 0 ? OUTS - 1 : 0;

    extern __shared__ unsigned char raw[];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned out = base + STAGES * STAGE_BYTES;
    const unsigned full = out + 2 * OUTS * OUT_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const unsigned turns = empty + 8 * STAGES;
    const unsigned rank = CLUSTER == 1 ? 0 : rank_in_cluster();
    const int steps = ceil_div(p, TILE_K);
    const int tile_rows = ceil_div(n, 128 * CLUSTER);
    const int tile_columns = ceil_div(m, TILE_M);
    const int tiles = tile_rows * tile_columns;
    const int first_tile = blockIdx.x / CLUSTER;
    const int stride = gridDim.x / CLUSTER;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            make_barrier(full + 8 * s, 1);
            // Warps that multiply, in all blocks that this one writes to.
            make_barrier(empty + 8 * s, (TURNS ? 4 : 8) * CLUSTER);
        }
        if constexpr (TURNS)
            for (int group = 0; group < 2; ++group) make_barrier(turns + 8 * group, 4);
        publish_barriers();
    }
    if constexpr (CLUSTER == 1) __syncthreads();
    else cluster_sync();
    wait_for_earlier_launches();

    Place<STAGES> place;
    if (threadIdx.x < 128) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            prefetch_map(map_a);
            prefetch_map(map_b);
            for (int index = first_tile; index < tiles; index += stride) {
                const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
                const int row = (tile.row * CLUSTER + rank) * 128;
                const int column = tile.column * TILE_M;
                for (int step = 0; step < steps; ++step) {
                    const unsigned to = base + place.stage * STAGE_BYTES;
                    const unsigned barrier = full + 8 * place.stage;
                    wait_for(empty + 8 * place.stage, place.parity ^ 1);
                    arrive_and_expect(barrier, STAGE_BYTES);
                    load_box(to, map_a, row, step * TILE_K, barrier);
                    #pragma unroll
                    for (int panel = 0; panel < PANELS; ++panel) {
                        const unsigned panel_to = to + A_BYTES + panel * PANEL_BYTES;
                        if constexpr (CLUSTER == 1)
                            load_box(panel_to, map_b, step * TILE_K, column + 64 * panel, barrier);
                        else if (panel * CLUSTER / PANELS == rank || (PANELS == 1 && rank == 0))
                            load_box_for(3, panel_to, map_b, step * TILE_K, column + 64 * panel, barrier);
                    }
                    place.next();
                }
            }
        }
    } else {
        take_registers<232>();
        const int consumer = warp_group() - 1;
        const int warp = threadIdx.x % 128 / 32;
        const int lane = threadIdx.x % 32;
        const unsigned own_out = out + consumer * OUTS * OUT_BYTES;
        float sums[PARTS][TILE_M / 2];
        int tile_number = 0;  // of the block
        for (int index = first_tile; index < tiles; index += stride) {
            const Tile tile = tile_in_bands(index, tile_rows, tile_columns, BAND);
            if (TURNS && tile_number % 2 != consumer) {
                ++tile_number;
                place.skip(steps);
                continue;
            }
            #pragma unroll
            for (int part = 0; part < PARTS; ++part)
                #pragma unroll
                for (int i = 0; i < TILE_M / 2; ++i)
                    sums[part][i] = 0;
            // The other group has started the last products of the tile before; the block's first tile has none before.
            // It has waited for all stages of that tile, too, so the parity of `full` stands for one round alone.
            if constexpr (TURNS) wait_for(turns + 8 * consumer, (tile_number / 2 + consumer + 1) % 2);
            unsigned previous = 0;
            for (int step = 0; step < steps; ++step) {
                wait_for(full + 8 * place.stage, place.parity);
                const unsigned at = base + place.stage * STAGE_BYTES;
                const Descriptor a = rows_along_k<128>(at + (TURNS ? 0 : consumer * 64 * TILE_K * 2));
                const Descriptor b = rows_across_k<PANEL_BYTES>(at + A_BYTES);
                #pragma unroll
                for (int part = 0; part < PARTS; ++part) pin(sums[part]);
                begin_products();
                #pragma unroll
                for (int k = 0; k < TILE_K / 16; ++k)
                    #pragma unroll
                    for (int part = 0; part < PARTS; ++part)
                        Wgmma<T>::multiply(sums[part], a + (part * 64 * TILE_K * 2 + k * 32) / 16, b + k * 2048 / 16,
                                           1);
                commit_products();
                wait_for_products<1>();  // those of the step before are done: its stage is free
                #pragma unroll
                for (int part = 0; part < PARTS; ++part) pin(sums[part]);
                if (step > 0 && lane < CLUSTER) {
                    if constexpr (CLUSTER == 1) arrive(previous);
                    else arrive_in_block(previous, lane);
                }
                previous = empty + 8 * place.stage;
                place.next();
            }
            if constexpr (TURNS) {
                ++tile_number;
                if (lane == 0) arrive(turns + 8 * (1 - consumer));
            }
            wait_for_products<0>();
            #pragma unroll
            for (int part = 0; part < PARTS; ++part) pin(sums[part]);
            if (lane < CLUSTER) {
                if constexpr (CLUSTER == 1) arrive(previous);
                else arrive_in_block(previous, lane);
            }

            #pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int row = (tile.row * CLUSTER + rank) * 128 + (TURNS ? part : consumer) * 64;
                const int column = tile.column * TILE_M;
                if constexpr (TMA_STORE) {
                    #pragma unroll
                    for (int panel = 0; panel < PANELS; ++panel) {
                        const unsigned buffer = own_out + (part * PANELS + panel) % OUTS * OUT_BYTES;
                        // The buffer's last store has read it.
                        if (threadIdx.x % 128 == 0) wait_for_store_reads<PENDING_STORES>();
                        named_sync(1 + consumer, 128);
                        write_panel<T>(buffer, sums[part] + panel * 32, warp, lane);
                        show_to_async_proxy();
                        named_sync(1 + consumer, 128);
                        if (threadIdx.x % 128 == 0) {
                            if (row < n && column + 64 * panel < m) store_box(map_c, row, column + 64 * panel, buffer);
                            close_store_group();
                        }
                    }
                } else {
                    store_rounded(sums[part], C, row, column, n, m);
                }
            }
        }
        if constexpr (TMA_STORE) {
            if (threadIdx.x % 128 == 0) wait_for_store_reads<0>();  // shared memory must outlive its readers
        }
    }
    if constexpr (CLUSTER > 1) cluster_sync();  // a block whose neighbour still arrives at its barriers must not end
}
