// C = A B through shared memory, with the test for the edges in the inner loop: tiled.cu without its zeros.
//
// The idea: beyond the edges of A and B nothing is copied, so the inner loop may not read there. It asks before each
// multiply-add whether the element of C and the step of k exist. That is right for every shape, as the zeros of tiled.cu
// are; compared with it, this kernel shows what the tests cost, which every thread makes in every step.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / TILE), ceil(n / TILE)).

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; a block has TILE * TILE threads
template <typename T, int TILE>
__global__ void tiled_inner_test(const T* A, const T* B, T* C, int n, int p, int m)
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
        if (row < n && start + tx < p) tile_a[ty][tx] = A[static_cast<long long>(row) * p + start + tx];
        if (start + ty < p && col < m) tile_b[ty][tx] = B[static_cast<long long>(start + ty) * m + col];
        __syncthreads();  // what exists of both tiles is there

        #pragma unroll
        for (int k = 0; k < TILE; ++k)
            if (row < n && col < m && start + k < p) sum += tile_a[ty][k] * tile_b[k][tx];
        __syncthreads();  // every thread is done with them
    }
    if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sum;
}
