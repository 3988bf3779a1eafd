// C = A B with a producer that feeds a ring of stages: pipelined.cu with the copies taken out of the way.
//
// The idea: what does not multiply should not be in the loop. One thread of a separate warp group starts the copies
// of whole tiles (TMA: one instruction per tile, edges filled with zeros), and two barriers per stage synchronise
// the producer with the consumers. The eight consumer warps have no copy, no address, no test of the edges left, and no
// barrier that holds all of them at once. TMA cannot transpose either, so a first launch transposes A.
//
//      launch 1          A -> A transposed, at the speed of memory
//      producer          |fill 0|fill 1|fill 2|fill 3|wait|fill 0| ...     1 thread, 40 registers
//      stages            0: A 16 x 128, B 16 x 256     1: ...    2: ...    3: ...
//      8 consumer warps  |use 0 |use 1 |use 2 | ...                        64 x 64 results each, 232 registers
//
// What it costs: sm_90a for the exchange of registers (setmaxnreg: 384 threads start with 168 each); 8 n p bytes of
// traffic for the transposition, 0.13 ms of 19.4 ms at 8192^3, but 5 % at m = 1024; rows of B must begin at multiples
// of 16 bytes, or a launch pads them; and a fence per stage and consumer, up to 1 %.
// What the machine code shows (128 x 256 x 16, ORDER 7): 2048 of 2165 instructions are multiply-adds, 94.6 %; 96
// loads of 16 bytes; 21 for the ring. 2.01 register reads per multiply-add, and the two banks deliver two. How well
// the compiler lays the registers depends on the order: 32 orders made 52 to 56 TFLOP/s at 4096^3. No spills.
// Measured on an H200, all launches: 56.9 TFLOP/s at 8192^3, 1.11 of cuBLAS; 55.9, 1.09, at 4096^3; but 12.9 at
// 1024^3, where 32 tiles meet 132 multiprocessors.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launches: transpose: block (32, 8), grid (ceil(n / 64), ceil(p / 32)); pad, only if m % 4 != 0: block (256);
//           tma_ring: block (384), grid (ceil(m / TILE_M), ceil(n / TILE_N)),
//           dynamic shared memory STAGES * (TILE_N + TILE_M) * TILE_K * 4 + 1024 + 16 * STAGES.
#include "barriers.cuh"
#include "launches.cuh"
#include "padded_operands.cuh"
#include "ring.cuh"
#include "ring_product.cuh"
#include "tensor_copy.cuh"
#include "transpose.cuh"
#include "warp_groups.cuh"

/// @tparam TILE_N   rows of C per block
/// @tparam TILE_M   columns of C per block; TILE_N * TILE_M is 256 * 8 * 16
/// @tparam TILE_K   steps of k per stage
/// @tparam STAGES   stages of the ring
/// @tparam ORDER    of the multiply-adds: see Walk
/// @tparam ALIGNED  whether rows of C begin at multiples of 16 bytes
template <int TILE_N, int TILE_M, int TILE_K, int STAGES, int ORDER, bool ALIGNED>
__global__ void __launch_bounds__(384, 1)
tma_ring(const __grid_constant__ TensorMap A_transposed, const __grid_constant__ TensorMap B, float* C, int n, int p,
         int m)
{
    using Product = RingProduct<TILE_N, TILE_M, TILE_K, ORDER>;
    extern __shared__ unsigned char shared_memory[];
    Ring<STAGES, Product::A_BYTES + Product::B_BYTES> ring(shared_memory);

    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const int steps = (p + TILE_K - 1) / TILE_K;
    if (threadIdx.x == 0) ring.make(1, Product::THREADS);
    __syncthreads();  // the barriers exist
    wait_for_earlier_launches();

    if (threadIdx.x >= Product::THREADS) {
        give_registers<40>();
        if (threadIdx.x == Product::THREADS) {
            for (int step = 0; step < steps; ++step) {
                wait_for_without_loop(ring.empty(), ring.parity ^ 1);
                arrive_and_expect(ring.full(), Product::A_BYTES + Product::B_BYTES);
                load_box(ring.tile(), A_transposed, step * TILE_K, first_row, ring.full());
                load_box(ring.tile() + Product::A_BYTES, B, step * TILE_K, first_col, ring.full());
                ring.next();
            }
            wait_for_without_loop(ring.empty(), ring.parity ^ 1);
            arrive(ring.full());  // the stage after the last
        }
    } else {
        take_registers<232>();
        Product product(threadIdx.x);
        product.clear();
        product.begin(ring);
        for (int step = 0; step < steps; ++step) product.step(ring);
        product.template store<ALIGNED>(C, first_row, first_col, n, m);
    }
}
