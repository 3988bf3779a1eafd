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
// What it costs: a stage of 128 bytes of k has 128 multiply-adds per result instead of 64, at twice the rate, so a
// block fetches as fast as for half: 48 KiB per 1024 cycles at TILE_M = 256. Results are 4 bytes instead of 2. Each warp
// lays 16 rows of 32 columns into one of its two buffers, swizzled as TMA expects, and TMA stores them while the warp
// fills the other; written from registers, sectors of 32 bytes at 8 places per instruction, a tile took 4.5 of 26 us
// at 4096^3. Turning B at 8192^3 moves 134 MB, about 0.04 ms beside 0.6 to 0.8 ms.
// Measured on an H200 in turns with the best of cuBLAS and cublasLt: 1.02 at 8192^3 (1,528 TOPS), 0.98 at 4096^3
// (1,221), 1.06 at 2048^3, 1.10 at 1024^3, 1.27 at 1100^3; with results from registers 0.99, 0.955, 1.00 at the first
// three. Power limits 8192^3: the clock falls to 1.7 GHz even in single launches.
// With TURNS (`wgmma_int8_turns`, see clusters.cu) one group multiplies while the other stores its 64 KiB: 148,000
// cycles at 4096^3 and tensor cores busy in 87 %, not 165,000 and 78 %. In turns with cuBLAS on other cards, alone and
// back to back: 1.02 to 1.08 and 1.04 to 1.08 at 4096^3 (shared tiles 0.94 to 0.96), 1.00 to 1.07 and 1.00 to 1.03 at
// 8192^3 (0.94 to 1.01), 1.05 to 1.09 and 1.10 to 1.12 at 3072^3 (0.84, 0.86). Lost: tiles of 64 x 256, 0.95 at 4096^3;
// clusters of two, 1.5 % slower.
//
// A is n x p, B is p x m, C is n x m, all row-major; p is at most 2^17 - 1. TMA wants rows of a multiple of 16 bytes:
// for other p, and for other m, whose results are written from registers, A is copied with a longer pitch first
// (pad_bytes).
// Launch: turn_bytes, pad_bytes: see turn_bytes.cuh. Product: see int8_product.cuh; one product.
#include "int8_product.cuh"
#include "turn_bytes.cuh"

/// Two buffers of 16 rows of 128 bytes for each of 8 warps.
constexpr int OUT_BYTES = 16 * 128, OUTS = 2;

/// Stores the sums of a warp, 16 rows, through its buffers and TMA; those past C's edges are not written.
template <int COUNT>
__device__ __forceinline__ void store_by_tma(const int (&sums)[COUNT], const TensorMap& map_c, unsigned buffers,
                                             PlaceOfSums at, int n, int m)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = at.row - g, column = at.column - 2 * t;
    #pragma unroll
    for (int panel = 0; panel < COUNT / 16; ++panel) {  // of 32 columns
        const unsigned buffer = buffers + panel % OUTS * OUT_BYTES;
        if (lane == 0) wait_for_store_reads<OUTS - 1>();  // the buffer's last store has read it
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < 4; ++j)
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int* const pair = sums + panel * 16 + j * 4 + half * 2;
                store_8_bytes(buffer + (g + 8 * half) * 128 + ((2 * j + t / 2) ^ g) * 16 + t % 2 * 8, pair[0], pair[1]);
            }
        show_to_async_proxy();
        __syncwarp();
        if (lane == 0) {
            if (row < n && column + 32 * panel < m) store_box(map_c, row, column + 32 * panel, buffer);
            close_store_group();
        }
    }
}

/// Parameters as of multiply_bytes.
/// @tparam TMA_STORE  whether TMA stores the results, which takes rows of C of a multiple of 16 bytes; dynamic shared
///                    memory is then 33 KiB more, for the barriers and the buffers
template <int TILE_M, int STAGES, int CLUSTER, int BAND, bool TMA_STORE, bool TURNS = false>
__global__ void __launch_bounds__(384, 1)
wgmma_int8(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c, int* C, int n, int p, int m)
{
    extern __shared__ unsigned char raw[];
    const unsigned outs = ((shared_address(raw) + 1023) & ~1023u) + STAGES * (BYTES_ROWS + TILE_M) * BYTES_K + 1024;
    multiply_bytes<TILE_M, STAGES, CLUSTER, BAND, TURNS>(
        map_a, map_b, 1, n, p, m, AllTiles(), [&](const int (&sums)[TILE_M / 2], PlaceOfSums at) {
            if constexpr (TMA_STORE) {
                store_by_tma(sums, map_c, outs + (threadIdx.x / 32 - 4) * (OUTS * OUT_BYTES), at, n, m);
                return;
            }
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (at.row + 8 * half >= n) continue;
                int* const to = C + static_cast<long long>(at.row + 8 * half) * m + at.column;
                #pragma unroll
                for (int j = 0; j < TILE_M / 8; ++j) {
                    if (at.column + 8 * j < m) to[8 * j] = sums[4 * j + 2 * half];
                    if (at.column + 8 * j + 1 < m) to[8 * j + 1] = sums[4 * j + 2 * half + 1];
                }
            }
        });
    if constexpr (TMA_STORE) wait_for_store_reads<0>();  // shared memory must outlive its readers
}
