// C = A B through shared memory: each block computes one TILE x TILE tile of C.
//
// The idea: the threads of a block need the same rows of A and the same columns of B. So the block walks along p in
// steps of TILE. In each step it copies one tile of A and one of B into shared memory (each thread copies one element
// of each), and then uses every copied element TILE times. Global loads fall to 1/TILE of the naive kernel's.
//
// Each step has two barriers: no thread may multiply before both tiles are complete, and no thread may overwrite a tile
// that another thread still reads. Beyond the edges of A and B the tiles are filled with zeros, which add nothing to
// the sums. So the product is right for any n, p and m, and the inner loop needs no test.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / TILE), ceil(n / TILE)).

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; a block has TILE * TILE threads
template <typename T, int TILE>
__global__ void tiled(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty;
    const int col = blockIdx.x * TILE + tx;

    T sum = 0;
    for (int start = 0; start < p; start += TILE) {
        tile_a[ty][tx] = row < n && start + tx < p ? A[static_cast<long long>(row) * p + start + tx] : T(0);
        tile_b[ty][tx] = start + ty < p && col < m ? B[static_cast<long long>(start + ty) * m + col] : T(0);
        __syncthreads();  // both tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE; ++k)
            sum += tile_a[ty][k] * tile_b[k][tx];
        __syncthreads();  // every thread is done with them
    }
    if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sum;
}
