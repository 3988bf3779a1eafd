// C = A B through shared memory, but threadIdx.x is the row: tiled.cu with x and y exchanged.
//
// The idea: the order of the threads matters even with tiles. While the block copies a tile, neighbouring threads read
// elements of A and B that lie a whole row apart, so nothing coalesces. While the block uses the tiles, neighbouring
// threads read elements of tile_a that lie a whole row of the tile apart. Those elements lie in only a few of the 32
// banks of shared memory, so the requests to a bank are served one after the other. Each element fetched is still used
// TILE times, so the loss is smaller than the naive kernel's.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / TILE), ceil(n / TILE)).

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; a block has TILE * TILE threads
template <typename T, int TILE>
__global__ void tiled_transposed(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * TILE + tx;
    const int col = blockIdx.x * TILE + ty;

    T sum = 0;
    for (int start = 0; start < p; start += TILE) {
        tile_a[tx][ty] = row < n && start + ty < p ? A[static_cast<long long>(row) * p + start + ty] : T(0);
        tile_b[tx][ty] = start + tx < p && col < m ? B[static_cast<long long>(start + tx) * m + col] : T(0);
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE; ++k)
            sum += tile_a[tx][k] * tile_b[k][ty];
        __syncthreads();  // every thread is done with them
    }
    if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sum;
}
