// C = A B for products with few tiles: the blocks of a cluster share a tile's sums.
//
// The idea: 512 x 512 results are 32 tiles of 64 x 128, work for a quarter of the chip, and 128 x 128 are two. But the
// sums can be cut. Here the blocks of a cluster compute one tile of C, each over its part of k, and add what they have
// through each other's shared memory, where no workspace and no second launch are needed:
//
//      k            0 ......... p/4 ......... p/2 ........ 3p/4 ........ p
//      computed      |  block 0  |   block 1   |   block 2   |  block 3  |
//      added up by   block 0: vectors 0, 4, 8 ... of each thread's results;  block 1: vectors 1, 5, 9 ...;  and so on
//
// In a small product every microsecond counts. So there is one launch: rows at odd addresses are copied float by float
// instead of being padded first, and A, which must be transposed, is copied so in any case. Rows and columns beyond the
// edges repeat the last one, and their results are not stored. The copies run STAGES - 1 steps ahead, since a short sum
// is mostly the wait for its first tiles.
// What it costs: two barriers of the cluster, 1 to 2 us, and tiles that read shared memory more often per multiply-add
// than the rings do; from 1536^3 on, stream_k.cu is faster.
// On an H200, in turns with the better of cuBLAS's calls: 1.54 times its rate at 128^3, 1.34 at 256^3, 1.25 at 384^3,
// 1.05 at 512^3 (tiles of 32 x 64), 1.06 at 768^3 and 1.02 at 1024^3 (128 x 128); 0.98 at 509^3 and 0.95 at 1021^3; 0.90
// to 0.97 if C has 64 rows or columns. It loses at 1025^3, 0.47, where 16 to 27 % of the computed results lie beyond the
// edges, and with 0.80 for n = m = 128, p = 8192 (16 tiles of 32 x 32 in 16 parts): a scheduler has one warp, which
// issues in half of the cycles. With 8 parts it has 0.64.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE_N / ROWS * TILE_M / COLS); grid (ceil(m / TILE_M), ceil(n / TILE_N), parts); cluster (1, 1, parts);
//         dynamic shared memory 4 * max(TILE_K * STAGES * (TILE_N + 4 + TILE_M), TILE_N * TILE_M).
#include "async_copy.cuh"
#include "shared_memory.cuh"
#include "split_sums.cuh"
#include "tile_order.cuh"
#include "vectors.cuh"
#include "walk.cuh"
#include "warp_layout.cuh"

/// The two tiles of one step. A warp stores down the columns of a, whose rows are 4 floats longer to use more banks.
template <int TILE_N, int TILE_M, int TILE_K>
struct Tiles {
    float a[TILE_K][TILE_N + 4];  // transposed
    float b[TILE_K][TILE_M];
};

/// @tparam TILE_N   rows of C per cluster, a multiple of 8 * ROWS
/// @tparam TILE_M   columns of C per cluster, a multiple of 4 * COLS
/// @tparam TILE_K   steps of k per stage
/// @tparam ROWS     rows of results per thread
/// @tparam COLS     columns of results per thread
/// @tparam STAGES   stages of the ring
/// @tparam ORDER    of the multiply-adds: see Walk
/// @tparam ALIGNED  whether rows of B and C begin at multiples of 16 bytes
template <int TILE_N, int TILE_M, int TILE_K, int ROWS, int COLS, int STAGES, int ORDER, bool ALIGNED>
__global__ void __launch_bounds__(TILE_N / ROWS * (TILE_M / COLS))
split_sums(const float* A, const float* B, float* C, int n, int p, int m)
{
    constexpr int THREADS = TILE_N / ROWS * (TILE_M / COLS);
    constexpr int WIDTH = ALIGNED ? 4 : 1;                            // floats per copy of B
    constexpr int COPIES_A = TILE_N * TILE_K / THREADS;               // per thread
    constexpr int COPIES_B = TILE_K * TILE_M / WIDTH / THREADS;
    constexpr int STEP_A = THREADS / TILE_K;                          // rows between two of them
    using Layout = WarpLayout<TILE_M, ROWS, COLS, 4>;
    static_assert(TILE_N % Layout::WARP_N == 0, "warps cover the tile's rows");
    static_assert(COPIES_A * STEP_A == TILE_N && COPIES_B * THREADS * WIDTH == TILE_K * TILE_M,
                  "every thread copies equally many");
    static_assert(TILE_K % 2 == 0, "two sets of fragments take turns");
    extern __shared__ __align__(16) unsigned char shared_memory[];
    auto* tiles = reinterpret_cast<Tiles<TILE_N, TILE_M, TILE_K>*>(shared_memory);  // STAGES of them

    const int thread = threadIdx.x;
    const int first_row = blockIdx.y * TILE_N, first_col = blockIdx.x * TILE_M;
    const int part = blockIdx.z, parts = gridDim.z;
    const int all_steps = ceil_div(p, TILE_K);
    const int first_step = first_of_part(all_steps, part, parts);
    const int steps = first_of_part(all_steps, part + 1, parts) - first_step;
    const Layout mine(thread);

    const int row_a = thread / TILE_K, k_a = thread % TILE_K;
    const auto copy = [&](int step, int stage) {
        if (step < steps) {
            const int start = (first_step + step) * TILE_K;
            const bool inside_a = start + k_a < p;
            #pragma unroll
            for (int v = 0; v < COPIES_A; ++v) {
                const int row = row_a + v * STEP_A;
                const float* from = A + static_cast<long long>(min(first_row + row, n - 1)) * p + start + k_a;
                copy_async<4>(&tiles[stage].a[k_a][row], inside_a ? from : A, inside_a);
            }
            #pragma unroll
            for (int v = 0; v < COPIES_B; ++v) {
                const int k = (v * THREADS + thread) * WIDTH / TILE_M, col = (v * THREADS + thread) * WIDTH % TILE_M;
                const bool inside = start + k < p;
                const float* from = B + static_cast<long long>(start + k) * m + min(first_col + col, m - WIDTH);
                copy_async<4 * WIDTH>(&tiles[stage].b[k][col], inside ? from : B, inside);
            }
        }
        close_copy_group();
    };

    float a[2][ROWS / 4][4], b[2][COLS / 4][4];  // fragments of this k and of the next
    const auto load_fragments = [&](int stage, int k) {
        #pragma unroll
        for (int v = 0; v < ROWS / 4; ++v) load_16_bytes(a[k % 2][v], &tiles[stage].a[k][mine.row(v * 4)]);
        #pragma unroll
        for (int v = 0; v < COLS / 4; ++v) load_16_bytes(b[k % 2][v], &tiles[stage].b[k][mine.col(v * 4)]);
    };

    #pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) copy(step, step);
    wait_for_copy_groups<STAGES - 2>();
    __syncthreads();  // the first tiles are complete
    load_fragments(0, 0);

    float sums[ROWS][COLS] = {};
    int stage = 0;
    for (int step = 0; step < steps; ++step) {
        copy(step + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);  // into the stage that was read last
        const int next = stage + 1 == STAGES ? 0 : stage + 1;
        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            if (k < TILE_K - 1) {
                load_fragments(stage, k + 1);
            } else {
                wait_for_copy_groups<STAGES - 2>();
                __syncthreads();  // the next tiles are complete, and every thread is done with these
                load_fragments(next, 0);
            }
            #pragma unroll
            for (int t = 0; t < ROWS * COLS; ++t) {
                const int i = Walk<ROWS, COLS, ORDER>::row(k, t), j = Walk<ROWS, COLS, ORDER>::col(k, t);
                sums[i][j] += a[k % 2][i / 4][i % 4] * b[k % 2][j / 4][j % 4];
            }
        }
        stage = next;
    }

    __syncthreads();  // every thread is done with the stages, which hold the results from here on
    add_parts<float, ROWS * COLS / 4, THREADS>(
        shared_memory, threadIdx.x, part, parts,
        [&](int v) {
            const int i = v / (COLS / 4), j = v % (COLS / 4) * 4;
            return Vector<float>{sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
        },
        [&](int v, const Vector<float>& sum) {
            store_within(C, first_row + mine.row(v / (COLS / 4)), first_col + mine.col(v % (COLS / 4) * 4), n, m, ALIGNED,
                         sum);
        });
}
