// C = A B with both operands copied by cp.async: pipelined.cu with A left as it lies. A rung that loses.
//
// The idea: cp.async carries 16 bytes to shared memory beside the thread. If A came that way as well as B, no
// register and no store would be spent on it, and several stages could be under way. But cp.async cannot transpose: A
// lies row-major in shared memory, and a thread's 8 rows are a pitch apart.
//
//      A's tile   row r:    k k+1 k+2 k+3 ...       a thread reads four k of one row at once,
//                 row r+8:  k k+1 k+2 k+3 ...       so the fragments of one k lie in every fourth register
//
// What it costs, and why it loses: the compiler reads four k of a row with one load, so the number of loads is the
// same (96 of 16 bytes per 2048 multiply-adds). But such a load fills four registers in a row, and the elements of
// one k land in registers whose numbers are all even or all odd: one bank of the register file.
// What the machine code shows: with TILE_K 16, 468 of 2048 multiply-adds need three registers anew (pipelined.cu: 178),
// 2.28 reads per multiply-add although only two are free, and 255 registers.
// Measured on an H200 at 8192^3: 43.6 TFLOP/s, 0.85 of cuBLAS; 46.3, 0.90, with TILE_K 32 (2.15 reads), where
// pipelined.cu has 0.988.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE_N / ROWS * TILE_M / COLS); grid (ceil(m / TILE_M), ceil(n / TILE_N));
//         dynamic shared memory STAGES * (TILE_N * (TILE_K + 16 / sizeof(T)) + TILE_K * TILE_M) * sizeof(T).
#include "async_copy.cuh"
#include "vectors.cuh"
#include "warp_layout.cuh"

/// The two tiles of one stage.
template <typename T, int TILE_N, int TILE_M, int TILE_K>
struct Tiles {
    static constexpr int PITCH_A = TILE_K + Vector<T>::size;  // the padding spreads a column over the banks
    T a[TILE_N][PITCH_A];                                     // as it lies in memory
    T b[TILE_K][TILE_M];
};

/// @tparam T        the element: float or double
/// @tparam TILE_N   rows of C per block, a multiple of 8 * ROWS
/// @tparam TILE_M   columns of C per block, a multiple of 4 * COLS
/// @tparam TILE_K   steps of k per tile, whole vectors
/// @tparam STAGES   tiles in shared memory: one in use, the others coming
/// @tparam ROWS     rows of results per thread
/// @tparam COLS     columns of results per thread
/// @tparam ALIGNED  whether rows of A, B and C begin at multiples of 16 bytes
template <typename T, int TILE_N, int TILE_M, int TILE_K, int STAGES, int ROWS, int COLS, bool ALIGNED>
__global__ void __launch_bounds__(TILE_N / ROWS * (TILE_M / COLS), 1)
async_copies(const T* A, const T* B, T* C, int n, int p, int m)
{
    constexpr int WIDTH = Vector<T>::size;  // elements per load
    constexpr int THREADS = TILE_N / ROWS * (TILE_M / COLS);
    constexpr int VECTORS_A = TILE_N * TILE_K / WIDTH / THREADS;  // per thread
    constexpr int VECTORS_B = TILE_K * TILE_M / WIDTH / THREADS;
    constexpr int STEP_A = THREADS * WIDTH / TILE_K, STEP_B = THREADS * WIDTH / TILE_M;  // rows between two of them
    using Layout = WarpLayout<TILE_M, ROWS, COLS, WIDTH, 1>;  // neighbouring lanes read neighbouring rows of A
    static_assert(TILE_N % Layout::WARP_N == 0, "warps cover the tile's rows");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");
    static_assert(VECTORS_A * STEP_A == TILE_N && VECTORS_B * STEP_B == TILE_K,
                  "every thread copies equally many vectors");
    static_assert(STAGES >= 2, "one stage is used while others come");
    static_assert(TILE_K % 2 == 0, "two sets of fragments take turns");
    extern __shared__ __align__(16) unsigned char shared_memory[];
    auto* tiles = reinterpret_cast<Tiles<T, TILE_N, TILE_M, TILE_K>*>(shared_memory);  // STAGES of them

    const int thread = threadIdx.x;
    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const Layout mine(thread);

    const int row_a = thread * WIDTH / TILE_K, k_a = thread * WIDTH % TILE_K;
    const int k_b = thread * WIDTH / TILE_M, col_b = thread * WIDTH % TILE_M;
    // After the last step: zeros, and nothing is read.
    const auto fetch = [&](int start, int stage) {
        #pragma unroll
        for (int v = 0; v < VECTORS_A; ++v)
            copy_within_async(&tiles[stage].a[row_a + v * STEP_A][k_a], A, first_row + row_a + v * STEP_A, start + k_a,
                              n, p, ALIGNED);
        #pragma unroll
        for (int v = 0; v < VECTORS_B; ++v)
            copy_within_async(&tiles[stage].b[k_b + v * STEP_B][col_b], B, start + k_b + v * STEP_B, first_col + col_b,
                              p, m, ALIGNED);
        close_copy_group();
    };

    T a[2][ROWS];
    Vector<T> b[2][COLS / WIDTH];  // fragments of this k and of the next
    const auto load_fragments = [&](int stage, int k) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) a[k % 2][i] = tiles[stage].a[mine.row(i)][k];
        #pragma unroll
        for (int v = 0; v < COLS / WIDTH; ++v) b[k % 2][v] = load_vector(&tiles[stage].b[k][mine.col(v * WIDTH)]);
    };

    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(s * TILE_K, s);
    wait_for_copy_groups<STAGES - 2>();
    __syncthreads();  // the first stage is complete
    load_fragments(0, 0);

    T sums[ROWS][COLS] = {};
    int stage = 0, coming = STAGES - 1;
    for (int start = 0; start < p; start += TILE_K) {
        fetch(start + (STAGES - 1) * TILE_K, coming);
        const int next = stage + 1 == STAGES ? 0 : stage + 1;
        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            if (k < TILE_K - 1) {
                load_fragments(stage, k + 1);
            } else {
                wait_for_copy_groups<STAGES - 2>();
                __syncthreads();  // the next stage is complete, and every thread is done with this one
                load_fragments(next, 0);
            }
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                #pragma unroll
                for (int turn = 0; turn < COLS; ++turn) {
                    const int j = i % 2 ? COLS - 1 - turn : turn;
                    sums[i][j] += a[k % 2][i] * b[k % 2][j / WIDTH].element[j % WIDTH];
                }
        }
        coming = stage;
        stage = next;
    }
    wait_for_copy_groups<0>();
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        #pragma unroll
        for (int v = 0; v < COLS / WIDTH; ++v) {
            Vector<T> c;
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) c.element[e] = sums[i][v * WIDTH + e];
            store_within(C, first_row + mine.row(i), first_col + mine.col(v * WIDTH), n, m, ALIGNED, c);
        }
}
