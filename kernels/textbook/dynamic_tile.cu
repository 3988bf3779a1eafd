// C = A B through shared memory, with a tile width that is chosen when the kernel is launched.
//
// The idea: the best tile width depends on the device. So ask the device and launch accordingly, without compiling
// again. A tile is as wide as the block, and the two tiles share one dynamic array, whose size the launch gives. The
// price: the compiler does not know how long the inner loop is. So it cannot unroll the loop completely, and it cannot
// turn products with the width into constants. A comparison with tiled.cu at the same width shows how much that costs.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (tile, tile); grid (ceil(m / tile), ceil(n / tile));
//         dynamic shared memory 2 * tile * tile * sizeof(T).

/// @tparam T  the element: float, double or int
template <typename T>
__global__ void dynamic_tile(const T* A, const T* B, T* C, int n, int p, int m)
{
    // Declared as bytes, because one name cannot have a different type for each T.
    extern __shared__ __align__(16) unsigned char shared_memory[];
    const int tile = blockDim.x;
    T* tile_a = reinterpret_cast<T*>(shared_memory);  // tile x tile
    T* tile_b = tile_a + tile * tile;                 // tile x tile

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * tile + ty;
    const int col = blockIdx.x * tile + tx;

    T sum = 0;
    for (int start = 0; start < p; start += tile) {
        tile_a[ty * tile + tx] = row < n && start + tx < p ? A[static_cast<long long>(row) * p + start + tx] : T(0);
        tile_b[ty * tile + tx] = start + ty < p && col < m ? B[static_cast<long long>(start + ty) * m + col] : T(0);
        __syncthreads();  // both tiles are complete

        for (int k = 0; k < tile; ++k)
            sum += tile_a[ty * tile + k] * tile_b[k * tile + tx];
        __syncthreads();  // every thread is done with them
    }
    if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sum;
}
