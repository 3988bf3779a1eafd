// C = A B of bytes, exactly: int8 by int8 in 32-bit integers, twice the rate of half.
//
// The idea: the tensor cores multiply bytes twice as fast as halves, and add integers, which do not round. Up to p =
// 2^17 - 1 no sum of products of signed bytes leaves 32 bits, so every result is exact and the order of the sums does
// not matter. On its own that is for networks of bytes; double_from_int8.cu makes doubles of it.
//
// wgmma transposes halves on their way from shared memory, but not bytes: both operands must lie along k. A does, B
// does not, so a first launch turns B (turn_bytes), 2 p m bytes of traffic beside 2 n p m operations.
//
//      B (p x m)           turned (m x p)         then as clusters.cu: a block stays, TMA fills a ring, two warp groups
//      k |  b b b    -->     b b b b  k -->       multiply, two blocks of a cluster may share B
//        v  b b b            b b b b
//
// What it costs: a stage of 128 bytes of k is 128 multiply-adds long instead of 64, so a block has half as long for the
// same bytes: 48 KiB per 1024 cycles at TILE_M = 256, as for half. Results are 4 bytes instead of 2 and are written from
// registers, 8 bytes by each of 4 neighbouring threads: whole sectors of 32 bytes. Turning B at 8192^3 moves 134 MB,
// about 0.04 ms beside 0.6 to 0.8 ms.
// Expected: power limits it, as clusters.cu; 1,200 to 1,400 TOPS of 1,979.
//
// A is n x p, B is p x m, C is n x m, all row-major; p is at most 2^17 - 1. TMA wants rows of a multiple of 16 bytes: for
// other p, A is copied with a longer pitch first (pad_bytes).
// Launch: turn_bytes, pad_bytes: see turn_bytes.cuh. Product: see int8_product.cuh; one product.
#include "int8_product.cuh"
#include "turn_bytes.cuh"

/// Parameters as of multiply_bytes.
template <int TILE_M, int STAGES, int CLUSTER, int BAND>
__global__ void __launch_bounds__(384, 1)
wgmma_int8(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, int* C, int n, int p, int m)
{
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND>(
        map_a, map_b, 1, n, p, m, [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (at.row + 8 * half >= n) continue;
                int* const to = C + static_cast<long long>(at.row + 8 * half) * m + at.column;
                #pragma unroll
                for (int j = 0; j < TILE_M / 8; ++j) {
                    const int first = sums[4 * j + 2 * half], second = sums[4 * j + 2 * half + 1];
                    if (m % 2 == 0) {
                        if (at.column + 8 * j < m) *reinterpret_cast<int2*>(to + 8 * j) = make_int2(first, second);
                    } else {
                        if (at.column + 8 * j < m) to[8 * j] = first;
                        if (at.column + 8 * j + 1 < m) to[8 * j + 1] = second;
                    }
                }
            }
        });
}
