// C = A B for many matrices of one shape in half or bfloat16: clusters.cu whose blocks walk the tiles of all products.
//
// The idea: blocks that stay take the tiles of one matrix after the other, so the last wave is half empty once, not once
// per product, and the next product's first stages are fetched while the last one's results are written.
//
//      block b:  tile b of matrix 0 | tile b + 132, of matrix 2 | tile b + 264 ...      at 64 tiles per matrix
//
// The tensor maps have three dimensions: what lies beyond a matrix's last row is zero and is not written, although the
// next matrix lies there. Clusters of two blocks, which gain nothing in clusters.cu, are left out.
// What it costs: as clusters.cu.
//
// Elements are half or bfloat16, sums float, results rounded to the elements' type.
// A is batch x n x p, B is batch x p x m, C is batch x n x m, all row-major; the maps of A and B may be of padded copies.
// Launches: pad_operands twice, only if p % 8 + m % 8 > 0, with a grid of one layer, for A and for B; batched_wgmma:
//           block (384), a grid of at most one block per multiprocessor, dynamic shared memory
//           1024 + STAGES * (16384 + 128 * TILE_M + 16) + 32768.
#include "barriers.cuh"
#include "batch_copy.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "short_numbers.cuh"
#include "short_results.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

/// Where the results of a block's turn lie.
struct Turn {
    int matrix, row, column;
};

/// Turn number `index` of all tiles of all matrices.
template <int TILE_M, int BAND>
__device__ __forceinline__ Turn turn_of(int index, int tile_rows, int tile_columns)
{
    const int tiles = tile_rows * tile_columns;
    const Tile tile = tile_in_bands(index % tiles, tile_rows, tile_columns, BAND);
    return {index / tiles, tile.row * 128, tile.column * TILE_M};
}

/// @tparam T          __half or __nv_bfloat16
/// @tparam TILE_M     columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES     of 64 of k in shared memory
/// @tparam BAND       rows of tiles per band
/// @tparam TMA_STORE  whether C's pitch is a multiple of 16 bytes and map_c is of C; otherwise map_c is not used
template <typename T, int TILE_M, int STAGES, int BAND, bool TMA_STORE>
__global__ void __launch_bounds__(384, 1)
batched_wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
              const __grid_constant__ TensorMap map_c, T* C, int batch, int n, int p, int m)
{
    static_assert(TILE_M % 64 == 0 && TILE_M <= 256, "B comes in panels of 64 columns, wgmma takes at most 256");
    constexpr int TILE_K = 64;
    constexpr int A_BYTES = 128 * TILE_K * 2;
    constexpr int PANELS = TILE_M / 64;
    constexpr int PANEL_BYTES = TILE_K * 128;
    constexpr int STAGE_BYTES = A_BYTES + PANELS * PANEL_BYTES;
    constexpr int OUTS = 2;              // buffers of results per multiplying group
    constexpr int OUT_BYTES = 64 * 128;  // 64 x 64 results
    // Panels take turns; where their number is odd, the first of a tile takes the buffer that the last one left.
    constexpr int PENDING_STORES = PANELS % OUTS == 0 ? OUTS - 1 : 0;

    extern __shared__ unsigned char raw[];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned out = base + STAGES * STAGE_BYTES;
    const unsigned full = out + 2 * OUTS * OUT_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const int steps = ceil_div(p, TILE_K);
    const int tile_rows = ceil_div(n, 128);
    const int tile_columns = ceil_div(m, TILE_M);
    const int turns = batch * tile_rows * tile_columns;

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
            prefetch_map(map_a);
            prefetch_map(map_b);
            for (int index = blockIdx.x; index < turns; index += gridDim.x) {
                const Turn turn = turn_of<TILE_M, BAND>(index, tile_rows, tile_columns);
                for (int step = 0; step < steps; ++step) {
                    const unsigned to = base + place.stage * STAGE_BYTES;
                    const unsigned barrier = full + 8 * place.stage;
                    wait_for(empty + 8 * place.stage, place.parity ^ 1);
                    arrive_and_expect(barrier, STAGE_BYTES);
                    load_box_of(turn.matrix, to, map_a, turn.row, step * TILE_K, barrier);
                    #pragma unroll
                    for (int panel = 0; panel < PANELS; ++panel)
                        load_box_of(turn.matrix, to + A_BYTES + panel * PANEL_BYTES, map_b, step * TILE_K,
                                    turn.column + 64 * panel, barrier);
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
        float sums[TILE_M / 2];
        for (int index = blockIdx.x; index < turns; index += gridDim.x) {
            #pragma unroll
            for (int i = 0; i < TILE_M / 2; ++i)
                sums[i] = 0;
            unsigned previous = 0;
            for (int step = 0; step < steps; ++step) {
                wait_for(full + 8 * place.stage, place.parity);
                const unsigned at = base + place.stage * STAGE_BYTES;
                const Descriptor a = rows_along_k<128>(at + consumer * 64 * TILE_K * 2);
                const Descriptor b = rows_across_k<PANEL_BYTES>(at + A_BYTES);
                pin(sums);
                begin_products();
                #pragma unroll
                for (int k = 0; k < TILE_K / 16; ++k)
                    Wgmma<T>::multiply(sums, a + k * 32 / 16, b + k * 2048 / 16, 1);
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

            const Turn turn = turn_of<TILE_M, BAND>(index, tile_rows, tile_columns);
            const int row = turn.row + consumer * 64;
            if constexpr (TMA_STORE) {
                #pragma unroll
                for (int panel = 0; panel < PANELS; ++panel) {
                    const int column = turn.column + 64 * panel;
                    const unsigned buffer = own_out + panel % OUTS * OUT_BYTES;
                    // The buffer's last store has read it.
                    if (threadIdx.x % 128 == 0) wait_for_store_reads<PENDING_STORES>();
                    named_sync(1 + consumer, 128);
                    write_panel<T>(buffer, sums + panel * 32, warp, lane);
                    show_to_async_proxy();
                    named_sync(1 + consumer, 128);
                    if (threadIdx.x % 128 == 0) {
                        if (row < n && column < m) store_box_of(turn.matrix, map_c, row, column, buffer);
                        close_store_group();
                    }
                }
            } else {
                // T is only declared here, so the pointer arithmetic is done in another type of 2 bytes.
                const auto own = reinterpret_cast<unsigned short*>(C) + static_cast<long long>(turn.matrix) * n * m;
                store_rounded(sums, reinterpret_cast<T*>(own), row, turn.column, n, m);
            }
        }
        if constexpr (TMA_STORE) {
            if (threadIdx.x % 128 == 0) wait_for_store_reads<0>();  // shared memory must outlive its readers
        }
    }
}
