// C = A B with 8 x 8 results per thread.
//
// The idea: tiled.cu reads two elements from shared memory for each multiply-add. A thread that computes 8 x 8
// results reads 8 elements of A and 8 of B, keeps them in registers, and makes 64 multiply-adds of them: four per
// element read instead of one half.
//
//        B's tile     . . . [8 columns] . . .
//      A's tile
//         .          +-----------------------+
//         .          |        ........       |
//      [8 rows]      |        ........       |   64 sums per thread, all in registers;
//         .          |        ........       |   TILE_N / 8 x TILE_M / 8 threads per block
//         .          +-----------------------+
//
// What it costs: 128 to 148 registers per thread (tiled.cu has 32), so that few warps are resident
// to hide each other's latencies.
// What the machine code shows (float, 128 x 128 x 8): 512 of the loop's 885 instructions are multiply-adds, 58 %; only
// 32 are loads from shared memory, since the compiler merges neighbouring elements into loads of 16 bytes by itself.
// The rest copies the next tiles element by element: addresses, tests of the edges, 14 loads and 14 stores. Those
// copies are what the next rung attacks. A larger tile has fewer of them for each multiply-add: 81 % of the loop of
// 256 x 128 x 32 are multiply-adds. Measured on an H200 at 8192^3: 16.3 TFLOP/s and 26.2, 0.32 and 0.51 of cuBLAS.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE_M / 8, TILE_N / 8); grid (ceil(m / TILE_M), ceil(n / TILE_N)).

/// @tparam T       the element: float or double
/// @tparam TILE_N  rows of C per block, a multiple of 8
/// @tparam TILE_M  columns of C per block, a multiple of 8
/// @tparam TILE_K  steps of k per tile
template <typename T, int TILE_N, int TILE_M, int TILE_K>
__global__ void __launch_bounds__(TILE_N / 8 * (TILE_M / 8))
register_tile(const T* A, const T* B, T* C, int n, int p, int m)
{
    constexpr int ROWS = 8, COLS = 8;  // results per thread
    constexpr int THREADS = TILE_N / ROWS * (TILE_M / COLS);
    static_assert(TILE_N % ROWS == 0 && TILE_M % COLS == 0, "a tile is made of whole squares of 8 x 8");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");
    static_assert((TILE_N + TILE_M) * TILE_K * sizeof(T) <= 48 * 1024, "both tiles fit into static shared memory");
    __shared__ T tile_a[TILE_N][TILE_K];
    __shared__ T tile_b[TILE_K][TILE_M];

    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const int my_row = threadIdx.y * ROWS;  // within the tile
    const int my_col = threadIdx.x * COLS;

    T sums[ROWS][COLS] = {};
    for (int start = 0; start < p; start += TILE_K) {
        #pragma unroll
        for (int e = thread; e < TILE_N * TILE_K; e += THREADS) {
            const int row = first_row + e / TILE_K, k = start + e % TILE_K;
            tile_a[e / TILE_K][e % TILE_K] = row < n && k < p ? A[static_cast<long long>(row) * p + k] : T(0);
        }
        #pragma unroll
        for (int e = thread; e < TILE_K * TILE_M; e += THREADS) {
            const int k = start + e / TILE_M, col = first_col + e % TILE_M;
            tile_b[e / TILE_M][e % TILE_M] = k < p && col < m ? B[static_cast<long long>(k) * m + col] : T(0);
        }
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            T a[ROWS], b[COLS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) a[i] = tile_a[my_row + i][k];
            #pragma unroll
            for (int j = 0; j < COLS; ++j) b[j] = tile_b[k][my_col + j];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                #pragma unroll
                for (int j = 0; j < COLS; ++j) sums[i][j] += a[i] * b[j];
        }
        __syncthreads();  // every thread is done with them
    }
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = first_row + my_row + i;
        #pragma unroll
        for (int j = 0; j < COLS; ++j) {
            const int col = first_col + my_col + j;
            if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sums[i][j];
        }
    }
}
