// C = A B with 8 x 8 results per thread and copies of 16 bytes: register_tile.cu with wider loads.
//
// The idea: one instruction moves four floats as well as one. Both operands are read from global memory 16 bytes at a
// time, and A is transposed on its way into shared memory, so that the 8 rows of a thread lie side by side there too
// and come in two loads per k.
//
//      A in memory     row r:  k k+1 k+2 k+3      one load of 16 bytes
//                               \   \   \   \
//      A's tile        k:    . . r . .  four stores of 4 bytes, one in each row of the transposed tile;
//                      k+1:  . . r . .  a pitch of TILE_N + 4 spreads them over the banks
//                      k+2:  . . r . .
//
// What it costs: rows must begin at multiples of 16 bytes. If the pitch forbids that, the four elements are read
// one by one (the branch is the same for the whole grid), so every shape is right, and ragged ones are slower.
// What the machine code shows (float, 128 x 128 x 16): 1024 of 1342 instructions are multiply-adds, 76 %, and about
// 150 of the others belong to the element-wise branch; 64 loads of 16 bytes from shared memory, 127 registers, two
// blocks per multiprocessor. Measured on an H200 at 8192^3: 37.4 TFLOP/s, 0.73 of cuBLAS (tile_k 8: 30.1).
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE_M / 8, TILE_N / 8); grid (ceil(m / TILE_M), ceil(n / TILE_N)).
#include "vectors.cuh"

/// @tparam T       the element: float or double
/// @tparam TILE_N  rows of C per block, a multiple of 8
/// @tparam TILE_M  columns of C per block, a multiple of 8
/// @tparam TILE_K  steps of k per tile, whole vectors
template <typename T, int TILE_N, int TILE_M, int TILE_K>
__global__ void __launch_bounds__(TILE_N / 8 * (TILE_M / 8))
vector_loads(const T* A, const T* B, T* C, int n, int p, int m)
{
    constexpr int ROWS = 8, COLS = 8;         // results per thread
    constexpr int WIDTH = Vector<T>::size;    // elements per load
    constexpr int THREADS = TILE_N / ROWS * (TILE_M / COLS);
    constexpr int PITCH_A = TILE_N + WIDTH;   // the padding spreads the scattered stores over the banks
    static_assert(TILE_N % ROWS == 0 && TILE_M % COLS == 0, "a tile is made of whole squares of 8 x 8");
    static_assert(TILE_K % WIDTH == 0, "a row of A's tile is made of whole vectors");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");
    static_assert(TILE_N * TILE_K / WIDTH % THREADS == 0 && TILE_K * TILE_M / WIDTH % THREADS == 0,
                  "every thread copies equally many vectors");
    static_assert((PITCH_A + TILE_M) * TILE_K * sizeof(T) <= 48 * 1024, "both tiles fit into static shared memory");
    __shared__ __align__(16) T tile_a[TILE_K][PITCH_A];  // transposed
    __shared__ __align__(16) T tile_b[TILE_K][TILE_M];

    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const int my_row = threadIdx.y * ROWS;  // within the tile
    const int my_col = threadIdx.x * COLS;
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
            for (int v = 0; v < ROWS / WIDTH; ++v) a[v] = load_vector(&tile_a[k][my_row + v * WIDTH]);
            #pragma unroll
            for (int v = 0; v < COLS / WIDTH; ++v) b[v] = load_vector(&tile_b[k][my_col + v * WIDTH]);
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
            store_within(C, first_row + my_row + i, first_col + my_col + v * WIDTH, n, m, aligned_b, c);
        }
}
