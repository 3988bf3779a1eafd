// C = A B for doubles on tensor cores: one instruction of a warp multiplies 16 x 4 by 4 x 8.
//
// The idea: a tensor core has the 32 threads of a warp hold a small matrix between them. mma takes 16 x 4 doubles of A
// (two per thread), 4 x 8 of B (one per thread) and adds their product to 16 x 8 of C (four per thread): 512
// multiply-adds for one instruction and three reads of shared memory; on CUDA cores as many take 16 instructions of
// the warp. The double peak of the chip doubles, from 33.5 to 66.9 TFLOP/s at 1980 MHz.
//
// Who holds what is fixed by the instruction: with g = lane / 4 and t = lane % 4, A's row g and column t, B's row t and
// column g, C's row g and columns 2 t, 2 t + 1 (A and C again 8 rows below). Everything else is tiled.cu: two tiles,
// two barriers per step, zeros beyond the edges.
//
//           B  t\g 0 1 2 .. 7             block: C 64 x 64 = 2 x 2 warps of 32 x 32, 16 of k per step
//                0  . . .    .            warp:  2 x 4 products of 16 x 8
//    A  g\t 0123 ..3 . . .    .
//         0 . . . .    c0 c1 of t = 0 | t = 1 | t = 2 | t = 3        row g
//        .. . . . .
//         8 . . . .    c2 c3                                         row g + 8
//
// The shape of the instruction matters: nothing but 8 x 8 x 4 runs at 33.2 TFLOP/s on an H200, the rate of the CUDA
// cores; 16 x 8 x 4, x 8 and x 16 run at 65.9, 66.1 and 66.2. This kernel cannot feed them: 20.1 TFLOP/s with 8 x 8 x
// 4, 24.0, 19.0 and 19.6 with the others at 8192^3 (cuBLAS: 56). The larger k needs more registers (128, 138, 164 per
// thread), so fewer blocks share a multiprocessor, and that is all that hides the copies here: loads, barrier,
// products, barrier. The loop is 459 instructions, 32 of them DMMA and 32 8-byte shared loads; most of the others
// compute addresses and guards.
//
// A is n x p, B is p x m, C is n x m, all row-major; any sizes.
// Launch: block (128); grid (ceil(m / 64), ceil(n / 64)).
#include "mma.cuh"

/// @tparam MMA_ROWS  rows of one product: 8 or 16
/// @tparam MMA_K     its depth: 4, and with 16 rows also 8 or 16
template <int MMA_ROWS, int MMA_K>
__global__ void __launch_bounds__(128) dmma(const double* A, const double* B, double* C, int n, int p, int m)
{
    static_assert((MMA_ROWS == 8 && MMA_K == 4) || (MMA_ROWS == 16 && (MMA_K == 4 || MMA_K == 8 || MMA_K == 16)),
                  "the shapes of mma for double are 8x8x4, 16x8x4, 16x8x8 and 16x8x16");
    constexpr int TILE = 64, DEPTH = 16;           // C per block is 64 x 64; 16 of k per step
    __shared__ double tile_a[TILE][DEPTH + 4];     // + 4 doubles: no two threads of a half warp meet in a bank
    __shared__ double tile_b[DEPTH][TILE + 4];

    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int warp_row = threadIdx.x / 64 * 32, warp_col = threadIdx.x / 32 % 2 * 32;
    const long long first_row = static_cast<long long>(blockIdx.y) * TILE;
    const long long first_col = static_cast<long long>(blockIdx.x) * TILE;

    double sums[2][4][4] = {};                     // 2 x 4 products of 16 x 8 per warp, 4 numbers of each per thread
    for (int start = 0; start < p; start += DEPTH) {
        #pragma unroll
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
            const int r = i / DEPTH, k = i % DEPTH;
            tile_a[r][k] = first_row + r < n && start + k < p ? A[(first_row + r) * p + start + k] : 0.0;
        }
        #pragma unroll
        for (int i = threadIdx.x; i < DEPTH * TILE; i += 128) {
            const int k = i / TILE, c = i % TILE;
            const bool inside = start + k < p && first_col + c < m;
            tile_b[k][c] = inside ? B[static_cast<long long>(start + k) * m + first_col + c] : 0.0;
        }
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < DEPTH; k += MMA_K) {
            double a[2][MMA_K / 2], b[4][MMA_K / 4];
            #pragma unroll
            for (int i = 0; i < MMA_K / 4; ++i) {
                #pragma unroll
                for (int r = 0; r < 4; ++r) a[r / 2][2 * i + r % 2] = tile_a[warp_row + 8 * r + g][k + 4 * i + t];
                #pragma unroll
                for (int c = 0; c < 4; ++c) b[c][i] = tile_b[k + 4 * i + t][warp_col + 8 * c + g];
            }
            #pragma unroll
            for (int r = 0; r < 2; ++r)
                #pragma unroll
                for (int c = 0; c < 4; ++c) {
                    if constexpr (MMA_ROWS == 8) {
                        mma_8x8x4(sums[r][c][0], sums[r][c][1], a[r][0], b[c][0]);
                        mma_8x8x4(sums[r][c][2], sums[r][c][3], a[r][1], b[c][0]);
                    }
                    else if constexpr (MMA_K == 4) mma_16x8x4(sums[r][c], a[r], b[c]);
                    else if constexpr (MMA_K == 8) mma_16x8x8(sums[r][c], a[r], b[c]);
                    else mma_16x8x16(sums[r][c], a[r], b[c]);
                }
        }
        __syncthreads();  // every warp is done with them
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r)
        #pragma unroll
        for (int c = 0; c < 4; ++c)
            #pragma unroll
            for (int v = 0; v < 2; ++v) {
                const long long row = first_row + warp_row + 8 * r + g, col = first_col + warp_col + 8 * c + 2 * t + v;
                if (row < n && col < m) C[row * m + col] = sums[r / 2][c][2 * (r % 2) + v];
            }
}
