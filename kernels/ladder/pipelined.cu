// C = A B with the next tile fetched while this one is used: warp_tile.cu without its waits.
//
// The idea: start every load long before its result is needed. There are two sets of tiles and two sets of
// fragments. While tile t is multiplied, tile t + 1 is on its way (B by cp.async, A through registers, since it must
// be transposed), and while k is multiplied, the fragments of k + 1 are. One barrier per tile is left of two.
//
//      global memory      t+1 ......................... t+2 ......
//      shared memory           t: k  k+1  k+2  ...   | t+1: k
//      registers               k+1  k+2  k+3   ...  first of t+1
//      multiply-adds           k    k+1  k+2   ...  last of t
//
// Since nothing is waited for, few warps are enough, and a thread may have 8 x 16 results: 24 floats are read from
// shared memory for 128 multiply-adds; 8 x 8 needs 16 for 64.
// What it costs: 255 registers, one block of 8 warps per multiprocessor.
// What the machine code shows (float, 128 x 256 x 16): 2048 of 2236 instructions are multiply-adds, 92 %. A
// multiply-add needs three registers and the register file delivers two per cycle, one even and one odd: the third
// must be kept from the instruction before. In serpentine order (ORDER 0) 178 of the 2048 need all three anew, row by
// row (ORDER 80) 241, and the compiler can place the sums in better banks. Measured on an H200 at 8192^3: 50.4
// TFLOP/s, 0.985 of cuBLAS, in serpentine order; 47.5 row by row; 50.6, 0.988, with TILE_K 32 and ORDER 79. In double
// (128 x 128 x 8, 8 x 8 per thread): 24.0 of the 33.5 TFLOP/s of the vector units; there shared memory delivers 16
// numbers of 8 bytes for 64 multiply-adds, as many cycles as the multiply-adds themselves take, and larger thread tiles
// do not fit the registers.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE_N / ROWS * TILE_M / COLS); grid (ceil(m / TILE_M), ceil(n / TILE_N));
//         dynamic shared memory 2 * (TILE_N + TILE_M) * TILE_K * sizeof(T).
#include "async_copy.cuh"
#include "shared_memory.cuh"
#include "vectors.cuh"
#include "walk.cuh"
#include "warp_layout.cuh"

/// The two tiles of one step.
template <typename T, int TILE_N, int TILE_M, int TILE_K>
struct Tiles {
    T a[TILE_K][TILE_N];  // transposed
    T b[TILE_K][TILE_M];
};

/// @tparam T        the element: float or double
/// @tparam TILE_N   rows of C per block, a multiple of 8 * ROWS
/// @tparam TILE_M   columns of C per block, a multiple of 4 * COLS
/// @tparam TILE_K   steps of k per tile, whole vectors
/// @tparam ROWS     rows of results per thread
/// @tparam COLS     columns of results per thread
/// @tparam ORDER    of the multiply-adds: see Walk
/// @tparam ALIGNED  whether rows of A, B and C begin at multiples of 16 bytes
template <typename T, int TILE_N, int TILE_M, int TILE_K, int ROWS, int COLS, int ORDER, bool ALIGNED>
__global__ void __launch_bounds__(TILE_N / ROWS * (TILE_M / COLS), 1)
pipelined(const T* A, const T* B, T* C, int n, int p, int m)
{
    constexpr int WIDTH = Vector<T>::size;  // elements per load
    constexpr int THREADS = TILE_N / ROWS * (TILE_M / COLS);
    constexpr int VECTORS_A = TILE_N * TILE_K / WIDTH / THREADS;  // per thread
    constexpr int VECTORS_B = TILE_K * TILE_M / WIDTH / THREADS;
    constexpr int STEP_A = THREADS * WIDTH / TILE_K, STEP_B = THREADS * WIDTH / TILE_M;  // rows between two of them
    using Layout = WarpLayout<TILE_M, ROWS, COLS, WIDTH>;
    static_assert(TILE_N % Layout::WARP_N == 0, "warps cover the tile's rows");
    static_assert(TILE_K % WIDTH == 0 && TILE_N % 32 == 0, "a row of A's tile is made of whole vectors");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");
    static_assert(VECTORS_A * STEP_A == TILE_N && VECTORS_B * STEP_B == TILE_K,
                  "every thread copies equally many vectors");
    static_assert(TILE_K % 2 == 0, "two sets of fragments take turns");
    extern __shared__ __align__(16) unsigned char shared_memory[];
    auto* tiles = reinterpret_cast<Tiles<T, TILE_N, TILE_M, TILE_K>*>(shared_memory);  // two of them

    const int thread = threadIdx.x;
    const int first_row = blockIdx.y * TILE_N;
    const int first_col = blockIdx.x * TILE_M;
    const Layout mine(thread);

    // What this thread copies: vectors at these places of the tiles, STEP_A and STEP_B rows apart.
    const int row_a = thread * WIDTH / TILE_K, k_a = thread * WIDTH % TILE_K;
    const int k_b = thread * WIDTH / TILE_M, col_b = thread * WIDTH % TILE_M;
    // A warp stores rows of several vectors of k at once: exchanged in groups of 8, they meet 32 different banks.
    const int exchange_a = k_a / WIDTH % 4 * 8;
    const int column_a = row_a ^ exchange_a;
    Vector<T> coming[VECTORS_A];  // A of the next step, on its way to shared memory
    const auto fetch_a = [&](int start) {
        #pragma unroll
        for (int v = 0; v < VECTORS_A; ++v)
            coming[v] = load_within(A, first_row + row_a + v * STEP_A, start + k_a, n, p, ALIGNED);
    };
    const auto fetch_b = [&](int start, int stage) {
        #pragma unroll
        for (int v = 0; v < VECTORS_B; ++v)
            copy_within_async(&tiles[stage].b[k_b + v * STEP_B][col_b], B, start + k_b + v * STEP_B, first_col + col_b,
                              p, m, ALIGNED);
        close_copy_group();
    };
    const auto put_a = [&](int stage) {
        #pragma unroll
        for (int v = 0; v < VECTORS_A; ++v) {
            const int column = STEP_A % 32 == 0 ? column_a + v * STEP_A : (row_a + v * STEP_A) ^ exchange_a;
            #pragma unroll
            for (int e = 0; e < WIDTH; ++e) tiles[stage].a[k_a + e][column] = coming[v].element[e];
        }
    };

    T a[2][ROWS / WIDTH][WIDTH], b[2][COLS / WIDTH][WIDTH];  // fragments of this k and of the next
    const auto load_fragments = [&](int stage, int k) {
        #pragma unroll
        for (int v = 0; v < ROWS / WIDTH; ++v)
            load_16_bytes(a[k % 2][v], &tiles[stage].a[k][mine.row(v * WIDTH) ^ (k / WIDTH % 4 * 8)]);
        #pragma unroll
        for (int v = 0; v < COLS / WIDTH; ++v)
            load_16_bytes(b[k % 2][v], &tiles[stage].b[k][mine.col(v * WIDTH)]);
    };

    fetch_b(0, 0);
    fetch_a(0);
    put_a(0);
    wait_for_copy_groups<0>();
    __syncthreads();  // the first two tiles are complete
    load_fragments(0, 0);

    T sums[ROWS][COLS] = {};
    int stage = 0;
    for (int start = 0; start < p; start += TILE_K) {
        fetch_b(start + TILE_K, stage ^ 1);  // zeros after the last step, and nothing is read
        fetch_a(start + TILE_K);
        #pragma unroll
        for (int k = 0; k < TILE_K; ++k) {
            if (k < TILE_K - 1) {
                load_fragments(stage, k + 1);
            } else {
                put_a(stage ^ 1);
                wait_for_copy_groups<0>();
                __syncthreads();  // the next tiles are complete, and every thread is done with these
                load_fragments(stage ^ 1, 0);
            }
            #pragma unroll
            for (int t = 0; t < ROWS * COLS; ++t) {
                const int i = Walk<ROWS, COLS, ORDER>::row(k, t), j = Walk<ROWS, COLS, ORDER>::col(k, t);
                sums[i][j] += a[k % 2][i / WIDTH][i % WIDTH] * b[k % 2][j / WIDTH][j % WIDTH];
            }
        }
        stage ^= 1;
    }
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
