// C = A B through shared memory without barriers: tiled.cu with a fault on purpose.
//
// The idea: what are the two barriers of tiled.cu for? Without the first, a thread may multiply elements that another
// thread has not copied yet. Without the second, a thread may overwrite an element that another still needs. Whether
// that happens depends on which warp is faster, so the product can be right all day and wrong once. The study never
// times this kernel; the memory microscope runs it and reports the races (docs/microscope.md).
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / TILE), ceil(n / TILE)).

/// @tparam T     the element: float
/// @tparam TILE  width of a tile; a block has TILE * TILE threads
template <typename T, int TILE>
__global__ void without_barriers(const T* A, const T* B, T* C, int n, int p, int m)
{
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
        for (int k = 0; k < TILE; ++k)
            sum += tile_a[ty][k] * tile_b[k][tx];
    }
    if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sum;
}
