// C = A B through shared memory: each block computes NTB tiles of C that lie side by side.
//
// The idea: in tiled.cu each tile of A is loaded again for every tile of C in its row. Here a block loads it once and
// multiplies it with NTB neighbouring tiles of B, so a thread keeps NTB sums in registers. A thread reads an element of
// A from shared memory once for NTB multiply-adds, so each load serves more arithmetic. The price is more registers and
// more shared memory per block, so fewer blocks fit on a multiprocessor. The best NTB lies somewhere in between.
//
// (1 + NTB) tiles can need more than the 48 KiB of shared memory that a block may have by default. So the array is
// dynamic: the launch gives its size, and the host raises the kernel's limit first. Beyond the edges the tiles are
// filled with zeros.
//
// A block of 32 x 32 threads fills half of a multiprocessor. A second block fits beside it only if a thread uses at most
// 32 registers. multi_tile asks the compiler for that by its launch bounds, as long as the sums leave enough registers;
// with more sums, the compiler would have to move them out to memory. multi_tile_unbounded leaves the choice to the
// compiler, as the original of this kernel does. Otherwise they are the same: both call one function.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / (TILE * NTB)), ceil(n / TILE));
//         dynamic shared memory (1 + NTB) * TILE * TILE * sizeof(T).

/// What both kernels do: T, TILE and NTB are theirs.
template <typename T, int TILE, int NTB>
__device__ __forceinline__ void multiply_tiles(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
    // Declared as bytes, because one name cannot have a different type for each T.
    extern __shared__ __align__(16) unsigned char shared_memory[];
    T* tile_a = reinterpret_cast<T*>(shared_memory);  // TILE x TILE
    T* tiles_b = tile_a + TILE * TILE;                // NTB of TILE x TILE

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty;
    const int first_col = blockIdx.x * (TILE * NTB) + tx;

    T sums[NTB] = {};
    for (int start = 0; start < p; start += TILE) {
        tile_a[ty * TILE + tx] = row < n && start + tx < p ? A[static_cast<long long>(row) * p + start + tx] : T(0);
        #pragma unroll
        for (int t = 0; t < NTB; ++t) {
            const int col = first_col + t * TILE;
            tiles_b[(t * TILE + ty) * TILE + tx] =
                start + ty < p && col < m ? B[static_cast<long long>(start + ty) * m + col] : T(0);
        }
        __syncthreads();  // all tiles are complete

        #pragma unroll
        for (int k = 0; k < TILE; ++k) {
            const T a = tile_a[ty * TILE + k];
            #pragma unroll
            for (int t = 0; t < NTB; ++t)
                sums[t] += a * tiles_b[(t * TILE + k) * TILE + tx];
        }
        __syncthreads();  // every thread is done with them
    }
    #pragma unroll
    for (int t = 0; t < NTB; ++t) {
        const int col = first_col + t * TILE;
        if (row < n && col < m) C[static_cast<long long>(row) * m + col] = sums[t];
    }
}

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; a block has TILE * TILE threads
/// @tparam NTB   tiles of B, and so of C, per block
template <typename T, int TILE, int NTB>
__global__ void __launch_bounds__(1024, TILE == 32 && NTB * sizeof(T) <= 64 ? 2 : 0)
multi_tile(const T* A, const T* B, T* C, int n, int p, int m)
{
    multiply_tiles<T, TILE, NTB>(A, B, C, n, p, m);
}

/// The same without a request to the compiler.
template <typename T, int TILE, int NTB>
__global__ void multi_tile_unbounded(const T* A, const T* B, T* C, int n, int p, int m)
{
    multiply_tiles<T, TILE, NTB>(A, B, C, n, p, m);
}
