// C = A B through shared memory, for sizes that are multiples of the tile: tiled.cu without the code for the edges.
//
// The idea: if TILE divides n, p and m, no tile reaches over an edge. Then neither the loads nor the store need a test,
// and only the plain tiled product is left. Compared with tiled.cu at the same sizes, it shows what the tests and the
// zero padding cost. For any other size the product would be wrong, so the registry refuses it.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (m / TILE, n / TILE).

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; a block has TILE * TILE threads; divides n, p and m
template <typename T, int TILE>
__global__ void tiled_exact(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const long long row = blockIdx.y * TILE + ty;
    const long long col = blockIdx.x * TILE + tx;

    T sum = 0;
    for (int start = 0; start < p; start += TILE) {
        tile_a[ty][tx] = A[row * p + start + tx];
        tile_b[ty][tx] = B[static_cast<long long>(start + ty) * m + col];
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE; ++k)
            sum += tile_a[ty][k] * tile_b[k][tx];
        __syncthreads();  // every thread is done with them
    }
    C[row * m + col] = sum;
}
