// C = A B by wgmma with one warp group that fetches and two that multiply.
//
// The idea: in wgmma.cu all threads meet at a barrier in every step. Here warp group 0 does nothing but keep a ring of
// stages filled, and warp groups 1 and 2 nothing but multiply; they meet only at the barriers of the stages (full: the
// bytes are there; empty: both groups are done with them), each at its own pace. The fetching group gives its registers
// away, so a multiplying thread can hold 128 sums: tiles of 128 x 256, 1.33 times the multiply-adds per byte fetched of
// 128 x 128 tiles.
//
// What it brings on an H200: by itself nothing. At the same tile of 128 x 256 it runs at wgmma.cu's rate (664 to 703
// TFLOP/s against 645 to 717 at 8192^3, 688 against 692 at 4096), because one step's products cover the barrier there.
// It is what the later rungs stand on: groups that need no common barrier can write results, or promote sums, while the
// next tiles arrive.
// Machine code: 47 instructions per 64 of k, 4 HGMMA (64 x 256 x 16); 168 registers at the launch (151 in use), no
// spills.
// With SPLIT (`wgmma_split`), the blocks of a cluster share the sums of few tiles, as in split_sums.cu: on an H200, alone,
// 0.89 of cuBLAS's best at n = m = 512 and p = 8192 in clusters of 5, 1.0 at n = m = 256 (`clusters`: 0.58 and 0.44). An
// H200 takes 15 clusters of 7 or 8 such blocks at once, 17 of 6, 22 of 5. Of 16 clusters of 7 one waits for the others.
//
//              +----- TILE_M -----+      ring:  [A 128 x 64 | B 64 x TILE_M] x STAGES
//    64 rows   |   warp group 1   |      warp group 0: wait empty -> TMA -> full
//    64 rows   |   warp group 2   |      1 and 2:      wait full -> wgmma -> empty
//              +------------------+
//
// Elements are half or bfloat16, sums float, results rounded to the elements' type.
// A is n x p, B is p x m, C is n x m, all row-major; the maps of A and B may be of padded copies (pad_operands).
// Launch: block 384; grid (ceil(m / TILE_M), ceil(n / 128)), with SPLIT a cluster (1, 1, parts) for each tile;
//         dynamic shared memory 1024 + STAGES * (16384 + 128 * TILE_M + 16).
#include "barriers.cuh"
#include "cluster.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "short_results.cuh"
#include "split_sums.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

/// @tparam T       __half or __nv_bfloat16
/// @tparam TILE_M  columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES  of 64 of k in shared memory
/// @tparam SPLIT   whether the blocks of a cluster (1, 1, parts) share each sum; each has at least one step of k
template <typename T, int TILE_M, int STAGES, bool SPLIT = false>
__global__ void __launch_bounds__(384, 1)
warp_specialised(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, T* C, int n,
                 int p, int m)
{
    static_assert(TILE_M % 64 == 0 && TILE_M <= 256, "B comes in panels of 64 columns, wgmma takes at most 256");
    constexpr int TILE_K = 64;
    constexpr int A_BYTES = 128 * TILE_K * 2;
    constexpr int PANEL_BYTES = TILE_K * 128;
    constexpr int STAGE_BYTES = A_BYTES + TILE_M / 64 * PANEL_BYTES;
    static_assert(!SPLIT || STAGES * STAGE_BYTES >= 128 * TILE_M * 4, "the results of a part lie in the ring");

    extern __shared__ unsigned char raw[];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned full = base + STAGES * STAGE_BYTES;
    const unsigned empty = full + 8 * STAGES;
    const int row = blockIdx.y * 128;
    const int column = blockIdx.x * TILE_M;
    const int steps = ceil_div(p, TILE_K);
    const int first_step = SPLIT ? first_of_part(steps, blockIdx.z, gridDim.z) : 0;
    const int end_step = SPLIT ? first_of_part(steps, blockIdx.z + 1, gridDim.z) : steps;

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
            for (int step = first_step; step < end_step; ++step) {
                const unsigned to = base + place.stage * STAGE_BYTES;
                const unsigned barrier = full + 8 * place.stage;
                wait_for(empty + 8 * place.stage, place.parity ^ 1);
                arrive_and_expect(barrier, STAGE_BYTES);
                load_box(to, map_a, row, step * TILE_K, barrier);
                #pragma unroll
                for (int panel = 0; panel < TILE_M / 64; ++panel)
                    load_box(to + A_BYTES + panel * PANEL_BYTES, map_b, step * TILE_K, column + 64 * panel, barrier);
                place.next();
            }
        }
        if constexpr (SPLIT) {  // as the groups that multiply, in add_parts
            cluster_sync();
            cluster_sync();
        }
    } else {
        take_registers<232>();
        const int consumer = warp_group() - 1;
        float sums[TILE_M / 2] = {};
        unsigned previous = 0;
        for (int step = first_step; step < end_step; ++step) {
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
            if (step > first_step && threadIdx.x % 32 == 0) arrive(previous);
            previous = empty + 8 * place.stage;
            place.next();
        }
        wait_for_products<0>();
        pin(sums);
        if constexpr (SPLIT) {
            named_sync(1, 256);  // neither group needs the ring any more
            add_parts<float, TILE_M / 8, 256>(
                raw + (base - shared_address(raw)), threadIdx.x - 128, blockIdx.z, gridDim.z,
                [&](int v) {
                    return Vector<float>{sums[4 * v], sums[4 * v + 1], sums[4 * v + 2], sums[4 * v + 3]};
                },
                [&](int v, const Vector<float>& sum) {
                    store_rounded(sum.element, C, row + 64 * consumer, column + 8 * v, n, m);
                });
        } else {
            store_rounded(sums, C, row + 64 * consumer, column, n, m);
        }
    }
}
