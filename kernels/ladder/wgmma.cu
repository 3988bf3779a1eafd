// C = A B on the tensor cores by wgmma: the operands stay in shared memory.
//
// The idea: with mma.sync a warp first loads fragments of A and B into registers. A warp group (4 warps) multiplies a
// 64 x 16 tile of A with a 16 x TILE_M tile of B by a single wgmma instruction that reads both from shared memory and
// runs by itself; registers hold only the sums. TMA writes the tiles in the swizzled order that wgmma reads without
// bank conflicts: one thread asks for a box, and a barrier counts its bytes.
//
//          +-- TILE_M --+
//    64    |  group 0   |    per stage: A 128 x 64, B 64 x TILE_M
//    64    |  group 1   |    thread 0 fetches STAGES - 1 stages ahead
//          +------------+
//
// What it costs: all threads meet at a barrier in each step of 64 of k, so that thread 0 may overwrite the oldest
// stage. One step's products still run meanwhile (wait_for_products<1>), so the tensor cores hardly notice. Each 64
// rows read all of B's tile again: the wider the tile, the fewer bytes per product.
// Measured on an H200 at 8192^3, bfloat16: 604 to 626 TFLOP/s with tiles of 128 x 128, 645 to 717 with 128 x 256
// (cuBLAS 685 to 800, as the chip warms up).
// Machine code, 128 x 128: 87 instructions per step, 4 HGMMA, 90 registers, no spills; nothing waits between the HGMMA.
//
// Elements are half or bfloat16, sums float, results rounded to the elements' type.
// A is n x p, B is p x m, C is n x m, all row-major; the maps of A and B may be of padded copies (pad_operands).
// Launch: block 256; grid (ceil(m / TILE_M), ceil(n / 128));
//         dynamic shared memory 1024 + STAGES * (16384 + 128 * TILE_M + 8).
#include "barriers.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "shared_memory.cuh"
#include "short_results.cuh"
#include "tensor_copy.cuh"
#include "tile_order.cuh"
#include "warp_groups.cuh"
#include "wgmma.cuh"

/// @tparam T       __half or __nv_bfloat16
/// @tparam TILE_M  columns of C per block: 64, 128, 192 or 256
/// @tparam STAGES  of 64 of k in shared memory
template <typename T, int TILE_M, int STAGES>
__global__ void __launch_bounds__(256)
wgmma(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, T* C, int n, int p, int m)
{
    static_assert(TILE_M % 64 == 0 && TILE_M <= 256, "B comes in panels of 64 columns, wgmma takes at most 256");
    static_assert(STAGES >= 2, "one stage is filled while another is used");
    constexpr int TILE_K = 64;
    constexpr int A_BYTES = 128 * TILE_K * 2;
    constexpr int PANEL_BYTES = TILE_K * 128;
    constexpr int STAGE_BYTES = A_BYTES + TILE_M / 64 * PANEL_BYTES;

    extern __shared__ unsigned char raw[];
    const unsigned base = (shared_address(raw) + 1023) & ~1023u;
    const unsigned full = base + STAGES * STAGE_BYTES;
    const int row = blockIdx.y * 128;
    const int column = blockIdx.x * TILE_M;
    const int steps = ceil_div(p, TILE_K);

    const auto fetch = [&](int step) {
        const unsigned to = base + step % STAGES * STAGE_BYTES;
        const unsigned barrier = full + 8 * (step % STAGES);
        arrive_and_expect(barrier, STAGE_BYTES);
        load_box(to, map_a, row, step * TILE_K, barrier);
        #pragma unroll
        for (int panel = 0; panel < TILE_M / 64; ++panel)
            load_box(to + A_BYTES + panel * PANEL_BYTES, map_b, step * TILE_K, column + 64 * panel, barrier);
    };

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s)
            make_barrier(full + 8 * s, 1);
        publish_barriers();
        for (int step = 0; step < min(STAGES - 1, steps); ++step)
            fetch(step);
    }
    __syncthreads();

    const int group = warp_group();
    float sums[TILE_M / 2] = {};
    Place<STAGES> place;
    for (int step = 0; step < steps; ++step) {
        wait_for(full + 8 * place.stage, place.parity);
        const unsigned at = base + place.stage * STAGE_BYTES;
        const Descriptor a = rows_along_k<128>(at + group * 64 * TILE_K * 2);
        const Descriptor b = rows_across_k<PANEL_BYTES>(at + A_BYTES);
        pin(sums);
        begin_products();
        #pragma unroll
        for (int k = 0; k < TILE_K / 16; ++k)
            Wgmma<T>::multiply(sums, a + k * 32 / 16, b + k * 2048 / 16, 1);
        commit_products();
        wait_for_products<1>();  // those of the step before are done
        pin(sums);
        __syncthreads();  // in both groups: their stage is free
        if (threadIdx.x == 0 && step + STAGES - 1 < steps) fetch(step + STAGES - 1);
        place.next();
    }
    wait_for_products<0>();
    pin(sums);
    store_rounded(sums, C, row + 64 * group, column, n, m);
}
