// Exact products of matrices of bytes on the tensor cores: what `wgmma_int8` and `double_from_int8` share.
//
// As clusters.cu: a block of 3 warp groups stays and walks tiles of 128 x TILE_M results. One thread of group 0 keeps a
// ring of STAGES stages filled by TMA; groups 1 and 2 multiply 64 rows each, with TURNS 128 rows of a tile each, by
// turns. What is different: a stage holds 128 bytes of k, 128 elements, of 128 rows of A and of TILE_M rows of B turned,
// because wgmma reads bytes along k only; sums are integers; and a launch may have several products of one shape, of
// which A's rows, and B's, lie below one another.
//
//         k, 128 bytes                k, 128 bytes
//      +---------------+           +---------------+
//   A  | 64: group 1   |   B       | TILE_M rows   |   a block of a cluster of two fetches half of B's rows for both
//      | 64: group 2   |   turned  |               |
//      +---------------+           +---------------+
#pragma once
#include "barriers.cuh"
#include "cluster.cuh"
#include "launches.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma_bytes.cuh"

/// Tiles of a block: rows of A, and bytes of k per stage.
constexpr int BYTES_ROWS = 128, BYTES_K = 128;

/// Where a thread's sums lie: sums[4 j + 2 h + v] is row + 8 h, column + 8 j + v of product number `product`.
struct PlaceOfSums {
    int product, row, column;
};

/// Every tile is computed.
struct AllTiles {
    __device__ __forceinline__ bool operator()(int, int) const { return true; }
};

/// Computes `products` products C (n x m) = A (n x p) B and hands each thread's sums to `store`(sums, PlaceOfSums), also
/// those past C's edges. Tiles of which `wanted`(row, column), in tiles of a cluster, is false are left out.
/// map_a: products * n rows of p bytes, boxes of 128 x 128; map_b: products * m rows of p bytes, boxes of
/// (TILE_M / CLUSTER) x 128; both with a swizzle of 128.
/// Launch: block 384; clusters of CLUSTER; a grid of at most one block per multiprocessor, a multiple of CLUSTER;
///         dynamic shared memory 1024 + STAGES * (16384 + 128 * TILE_M + 16).
/// @tparam TILE_M   columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES   of 128 bytes of k in shared memory
/// @tparam CLUSTER  blocks that share B: 1 or 2
/// @tparam BAND     rows of clusters per band, for the L2 cache
/// @tparam TURNS    whether each group has tiles of its own and multiplies while the other stores, as in clusters.cu;
///                  TILE_M is then at most 128, and dynamic shared memory is 16 bytes more
template <int TILE_M, int STAGES, int CLUSTER, int BAND, bool TURNS = false, typename Wanted, typename Store>
__device__ __forceinline__ void multiply_bytes(const TensorMap& map_a, const TensorMap& map_b, int products, int n, int p,
                                               int m, Wanted&& wanted, Store&& store)
{
    static_assert(TILE_M % 64 == 0 && TILE_M <= 256, "wgmma takes at most 256 columns");
    static_assert(CLUSTER == 1 || CLUSTER == 2, "one block or two");
    static_assert(STAGES >= 2, "one stage is filled while another is used");
    constexpr int A_BYTES = BYTES_ROWS * BYTES_K;
    constexpr int OWN_ROWS = TILE_M / CLUSTER;  // of B
    static_assert(!TURNS || TILE_M <= 128, "larger tiles were not tried");
    constexpr int PARTS = TURNS ? 2 : 1;  // of 64 rows, per group
    constexpr int STAGE_BYTES = A_BYTES + TILE_M * BYTES_K;

    extern __shared__ unsigned char raw[];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned full = base + STAGES * STAGE_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const unsigned turns = empty + 8 * STAGES;
    const unsigned rank = CLUSTER == 1 ? 0 : rank_in_cluster();
    const int steps = ceil_div(p, BYTES_K);
    const int tile_rows = ceil_div(n, BYTES_ROWS * CLUSTER);
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
            for (int index = first_tile; index < products * tiles; index += stride) {
                const int product = index / tiles;
                const Tile tile = tile_in_bands(index % tiles, tile_rows, tile_columns, BAND);
                if (!wanted(tile.row, tile.column)) continue;
                const int row_a = product * n + (tile.row * CLUSTER + rank) * BYTES_ROWS;
                const int row_b = product * m + tile.column * TILE_M + rank * OWN_ROWS;
                for (int step = 0; step < steps; ++step) {
                    const unsigned to = base + place.stage * STAGE_BYTES;
                    const unsigned barrier = full + 8 * place.stage;
                    wait_for(empty + 8 * place.stage, place.parity ^ 1);
                    arrive_and_expect(barrier, STAGE_BYTES);
                    load_box(to, map_a, row_a, step * BYTES_K, barrier);
                    const unsigned to_b = to + A_BYTES + rank * OWN_ROWS * BYTES_K;
                    if constexpr (CLUSTER == 1) load_box(to_b, map_b, row_b, step * BYTES_K, barrier);
                    else load_box_for(3, to_b, map_b, row_b, step * BYTES_K, barrier);
                    place.next();
                }
            }
        }
    } else {
        take_registers<232>();
        const int consumer = warp_group() - 1;
        const int lane = threadIdx.x % 32;
        int sums[PARTS][TILE_M / 2];
        int tile_number = 0;  // of the block, of those that are wanted
        for (int index = first_tile; index < products * tiles; index += stride) {
            const Tile tile = tile_in_bands(index % tiles, tile_rows, tile_columns, BAND);
            if (!wanted(tile.row, tile.column)) continue;
            if (TURNS && tile_number % 2 != consumer) {
                ++tile_number;
                place.skip(steps);
                continue;
            }
            // The other group has started the last products of the tile before; the block's first tile has none before.
            // It has waited for all stages of that tile, too, so the parity of `full` stands for one round alone.
            if constexpr (TURNS) wait_for(turns + 8 * consumer, (tile_number / 2 + consumer + 1) % 2);
            unsigned previous = 0;
            for (int step = 0; step < steps; ++step) {
                wait_for(full + 8 * place.stage, place.parity);
                const unsigned at = base + place.stage * STAGE_BYTES;
                const Descriptor a = rows_along_k<128>(at + (TURNS ? 0 : consumer * 64 * BYTES_K));
                const Descriptor b = rows_along_k<128>(at + A_BYTES);
                #pragma unroll
                for (int part = 0; part < PARTS; ++part) pin(sums[part]);
                begin_products();
                #pragma unroll
                for (int k = 0; k < BYTES_K / 32; ++k)
                    #pragma unroll
                    for (int part = 0; part < PARTS; ++part)
                        multiply_bytes(sums[part], a + (part * 64 * BYTES_K + k * 32) / 16, b + k * 32 / 16,
                                       step > 0 || k > 0);
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
            for (int part = 0; part < PARTS; ++part)
                store(sums[part], PlaceOfSums{index / tiles,
                                              (tile.row * CLUSTER + static_cast<int>(rank)) * BYTES_ROWS +
                                                  (TURNS ? part : consumer) * 64 +
                                                  static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4,
                                              tile.column * TILE_M + 2 * (lane % 4)});
        }
    }
    if constexpr (CLUSTER > 1) cluster_sync();  // a block whose neighbour still arrives at its barriers must not end
}
