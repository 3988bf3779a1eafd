// C = A B with a rectangle of C per warp: vector_loads.cu with other neighbours.
//
// The idea: who computes what within a warp decides how much shared memory must deliver. In vector_loads.cu a warp is
// two rows of 16 threads whose 8 columns begin 32 bytes apart, so that of eight threads that are served at once four
// pairs meet in the same banks. Here 32 lanes stand 8 x 4, each lane takes squares of 4 x 4 from every quarter of the
// warp's rectangle, neighbours read neighbouring 16 bytes, and lanes of one row or column read the same ones.
//
//      block 128 x 128, 8 warps          warp 64 x 32               lane: four squares of 4 x 4
//      +----+----+----+----+             +-------+-------+
//      | w0 | w1 | w2 | w3 |             | lanes | again |            square   square
//      +----+----+----+----+             +-------+-------+
//      | w4 | w5 | w6 | w7 |             | again | again |            square   square
//      +----+----+----+----+             +-------+-------+
//
// What it costs: nothing at run time. What the machine code shows: nearly the same instructions as before
// (1024 of 1364 are multiply-adds, 125 registers); the gain is in the banks, not in the code. Measured on an H200 at
// 8192^3: 40.0 TFLOP/s, 0.78 of cuBLAS. With 8 x 16 results per thread it falls to 28: one block per multiprocessor,
// and nothing hides the wait for the next tile. That is the next rung's business.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE_N / ROWS * TILE_M / COLS); grid (ceil(m / TILE_M), ceil(n / TILE_N)).
#include "vectors.cuh"
#include "warp_layout.cuh"

/// @tparam T       the element: float or double
/// @tparam TILE_N  rows of C per block, a multiple of 8 * ROWS
/// @tparam TILE_M  columns of C per block, a multiple of 4 * COLS
/// @tparam TILE_K  steps of k per tile, whole vectors
/// @tparam ROWS    rows of results per thread
/// @tparam COLS    columns of results per thread
template <typename T, int TILE_N, int TILE_M, int TILE_K, int ROWS, int COLS>
__global__ void __launch_bounds__(TILE_N / ROWS * (TILE_M / COLS))
warp_tile(const T* A, const T* B, T* C, int n, int p, int m)
{
    constexpr int WIDTH = Vector<T>::size;    // elements per load
    constexpr int THREADS = TILE_N / ROWS * (TILE_M / COLS);
    constexpr int PITCH_A = TILE_N + WIDTH;   // the padding spreads the scattered stores over the banks
    using Layout = WarpLayout<TILE_M, ROWS, COLS, WIDTH>;
    static_assert(TILE_N % Layout::WARP_N == 0, "warps cover the tile's rows");
    static_assert(TILE_K % WIDTH == 0, "a row of A's tile is made of whole vectors");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");
    static_assert(TILE_N * TILE_K / WIDTH % THREADS == 0 && TILE_K * TILE_M / WIDTH % THREADS == 0,
                  "every thread copies equally many vectors");
    static_assert((PITCH_A + TILE_M) * TILE_K * sizeof(T) <= 48 * 1024, "both tiles fit into static shared memory");
    __shared__ __align__(16) T tile_a[TILE_K][PITCH_A];  // transposed
    __shared__ __align__(16) T tile_b[TILE_K][TILE_M];

    const int thread = threadIdx.x;
    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const Layout mine(thread);
    const bool aligned_a = rows_are_aligned<T>(p);
    const bool aligned_b = rows_are_aligned<T>(m);

    T sums[ROWS][COLS] = {};
    for (int start = 0; start < p; start += TILE_K) {
        #pragma unroll
        for (int v = 0; v < TILE_N * TILE_K / WIDTH / THREADS; ++v) {
            const int first = (v * THREADS + thread) * WIDTH;  // of the tile's elements
            const int row = first / TILE_K, k = first % TILE_K;
            const Vector<T> a = load_within(A, first_row + row, start + k, n, p, aligned_a);
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) tile_a[k + e][row] = a.element[e];
        }
        #pragma unroll
        for (int v = 0; v < TILE_K * TILE_M / WIDTH / THREADS; ++v) {
            const int first = (v * THREADS + thread) * WIDTH;
            const int k = first / TILE_M, col = first % TILE_M;
            store_vector(&tile_b[k][col], load_within(B, start + k, first_col + col, p, m, aligned_b));
        }
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            Vector<T> a[ROWS / WIDTH], b[COLS / WIDTH];
            #pragma unroll
            for (int v = 0; v < ROWS / WIDTH; ++v) a[v] = load_vector(&tile_a[k][mine.row(v * WIDTH)]);
            #pragma unroll
            for (int v = 0; v < COLS / WIDTH; ++v) b[v] = load_vector(&tile_b[k][mine.col(v * WIDTH)]);
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                #pragma unroll
                for (int j = 0; j < COLS; ++j)
                    sums[i][j] += a[i / WIDTH].element[i % WIDTH] * b[j / WIDTH].element[j % WIDTH];
        }
        __syncthreads();  // every thread is done with them
    }
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        #pragma unroll
        for (int v = 0; v < COLS / WIDTH; ++v) {
            Vector<T> c;
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) c.element[e] = sums[i][v * WIDTH + e];
            store_within(C, first_row + mine.row(i), first_col + mine.col(v * WIDTH), n, m, aligned_b, c);
        }
}
