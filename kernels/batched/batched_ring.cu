// C = A B for many matrices of one shape in float: transposing_ring.cu with a block for each tile of each matrix.
//
// The idea: a product of 1024 x 1024 has 32 tiles for 132 multiprocessors, eight of them have 256. One launch makes all
// tiles of all products; the matrices lie one after the other, so a block finds its own from its number.
//
//      block   0 ... 31  | 32 ... 63 |  ...  | 224 ... 255
//      matrix      0     |     1     |  ...  |     7
//
// B's tensor map has three dimensions, so that a tile beyond B's last row has zeros, not rows of the next matrix: an
// infinite number there, times A's zeros, would not be a number. A comes through registers, where the edges are tested.
// The grid has one dimension: RingProduct relies on gridDim.z being 1.
// What it costs: as transposing_ring.cu. C smaller than a tile leaves a part of each block idle: half at m = 128 with
// tiles of 128 x 256.
//
// A is batch x n x p, B is batch x p x m, C is batch x n x m, all row-major.
// Launches: pad, only if m % 4 != 0: block (256); batched_ring: block (384), grid (batch * ceil(n / TILE_N) *
//           ceil(m / TILE_M)), dynamic shared memory STAGES * (TILE_N + TILE_M) * TILE_K * 4 + 1024 + 16 * STAGES.
#include "barriers.cuh"
#include "batch_copy.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "ring_product.cuh"
#include "tile_order.cuh"
#include "transposed_copy.cuh"
#include "warp_groups.cuh"

/// @tparam TILE_N     rows of C per block
/// @tparam TILE_M     columns of C per block; TILE_N * TILE_M is 256 * 8 * 16, or 256 * 8 * 12
/// @tparam TILE_K     steps of k per stage
/// @tparam STAGES     stages of the ring
/// @tparam ORDER      of the multiply-adds: see Walk
/// @tparam ALIGNED_A  whether rows of A begin at multiples of 16 bytes
/// @tparam ALIGNED_C  whether rows of C do
template <int TILE_N, int TILE_M, int TILE_K, int STAGES, int ORDER, bool ALIGNED_A, bool ALIGNED_C>
__global__ void __launch_bounds__(384, 1)
batched_ring(const float* A, const __grid_constant__ TensorMap B, float* C, int n, int p, int m)
{
    using Product = RingProduct<TILE_N, TILE_M, TILE_K, ORDER>;
    using Copy = TransposedCopy<TILE_N, TILE_K, ALIGNED_A>;
    extern __shared__ unsigned char shared_memory[];
    Ring<STAGES, Product::A_BYTES + Product::B_BYTES> ring(shared_memory);

    const int tile_columns = ceil_div(m, TILE_M);
    const int tiles = ceil_div(n, TILE_N) * tile_columns;
    const int matrix = blockIdx.x / tiles;
    const int tile = blockIdx.x % tiles;
    const int first_row = tile / tile_columns * TILE_N;
    const int first_col = tile % tile_columns * TILE_M;
    const int steps = ceil_div(p, TILE_K);
    if (threadIdx.x == 0) ring.make(Copy::THREADS, Product::THREADS);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x >= Product::THREADS) {
        give_registers<56>();
        const float* const own_a = A + static_cast<long long>(matrix) * n * p;
        Copy copy;
        copy.fetch(own_a, first_row, 0, n, p);
        for (int step = 0; step < steps; ++step) {
            wait_for_without_loop(ring.empty(), ring.parity ^ 1);
            if (threadIdx.x == Product::THREADS) {
                expect(ring.full(), Product::B_BYTES);
                load_box_of(matrix, ring.tile() + Product::A_BYTES, B, step * TILE_K, first_col, ring.full());
            }
            copy.put(ring.tile());
            arrive(ring.full());  // each thread for the rows that it stored
            ring.next();
            copy.fetch(own_a, first_row, (step + 1) * TILE_K, n, p);  // zeros after the last step
        }
        wait_for_without_loop(ring.empty(), ring.parity ^ 1);
        arrive(ring.full());  // the stage after the last
    } else {
        take_registers<224>();
        Product product(threadIdx.x);
        product.clear();
        product.begin(ring);
        for (int step = 0; step < steps; ++step) product.step(ring);
        product.template store<ALIGNED_C>(C + static_cast<long long>(matrix) * n * m, first_row, first_col, n, m);
    }
}
