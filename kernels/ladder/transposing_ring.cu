// C = A B with the transposition inside the ring: tma_ring.cu without its first launch.
//
// The idea: the producer's other 127 threads are idle, so let them transpose. Each brings one row of A's tile, 16
// bytes at a time, one stage ahead in its registers, and stores it down the columns of the stage; B still comes by
// TMA. A is read once from global memory and never written back.
//
//      producer thread r:  A[first_row + r][k .. k+15]  ── 4 loads of 16 bytes ──►  stage: column r, 16 stores
//      a warp's 32 threads store side by side: no bank conflicts
//
// What it costs: 20 memory instructions per thread and stage on the same four schedulers, about 0.7 % of the issue
// slots, and stores that compete for shared memory; 16 registers more for a producer. Measured on an H200: 55.7
// TFLOP/s at 8192^3 (tma_ring.cu 56.9) and 55.3 at 4096^3 (55.9), so for square operands the separate launch is
// cheaper; but 55.4, 1.08 of cuBLAS, at m = 1024, where that launch has little product to hide behind (3 % slower in
// an earlier version of both), and no workspace. A's pitch does not matter: rows that begin anywhere are read element
// by element.
// What the machine code shows: the consumers' loop is the same, instruction by instruction (2048 of 2165, 94.6 %).
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launches: pad, only if m % 4 != 0: block (256); transposing_ring: block (384), grid (ceil(m / TILE_M),
//           ceil(n / TILE_N)), dynamic shared memory STAGES * (TILE_N + TILE_M) * TILE_K * 4 + 1024 + 16 * STAGES.
#include "barriers.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "ring_product.cuh"
#include "tensor_copy.cuh"
#include "transposed_copy.cuh"
#include "warp_groups.cuh"

/// @tparam TILE_N     rows of C per block
/// @tparam TILE_M     columns of C per block; TILE_N * TILE_M is 256 * 8 * 16
/// @tparam TILE_K     steps of k per stage
/// @tparam STAGES     stages of the ring
/// @tparam ORDER      of the multiply-adds: see Walk
/// @tparam ALIGNED_A  whether rows of A begin at multiples of 16 bytes
/// @tparam ALIGNED_C  whether rows of C do
template <int TILE_N, int TILE_M, int TILE_K, int STAGES, int ORDER, bool ALIGNED_A, bool ALIGNED_C>
__global__ void __launch_bounds__(384, 1)
transposing_ring(const float* A, const __grid_constant__ TensorMap B, float* C, int n, int p, int m)
{
    using Product = RingProduct<TILE_N, TILE_M, TILE_K, ORDER>;
    using Copy = TransposedCopy<TILE_N, TILE_K, ALIGNED_A>;
    extern __shared__ unsigned char shared_memory[];
    Ring<STAGES, Product::A_BYTES + Product::B_BYTES> ring(shared_memory);

    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const int steps = (p + TILE_K - 1) / TILE_K;
    if (threadIdx.x == 0) ring.make(Copy::THREADS, Product::THREADS);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x >= Product::THREADS) {
        give_registers<56>();
        Copy copy;
        copy.fetch(A, first_row, 0, n, p);
        for (int step = 0; step < steps; ++step) {
            wait_for_without_loop(ring.empty(), ring.parity ^ 1);
            if (threadIdx.x == Product::THREADS) {
                expect(ring.full(), Product::B_BYTES);
                load_box(ring.tile() + Product::A_BYTES, B, step * TILE_K, first_col, ring.full());
            }
            copy.put(ring.tile());
            arrive(ring.full());  // each thread for the rows that it stored
            ring.next();
            copy.fetch(A, first_row, (step + 1) * TILE_K, n, p);  // zeros after the last step
        }
        wait_for_without_loop(ring.empty(), ring.parity ^ 1);
        arrive(ring.full());  // the stage after the last
    } else {
        take_registers<224>();
        Product product(threadIdx.x);
        product.clear();
        product.begin(ring);
        for (int step = 0; step < steps; ++step) product.step(ring);
        product.template store<ALIGNED_C>(C, first_row, first_col, n, m);
    }
}
