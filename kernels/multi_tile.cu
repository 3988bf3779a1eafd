// C = A B through shared memory: each block computes NTB tiles of C that lie side by side.
//
// The idea: in tiled.cu each tile of A is loaded anew for every tile of C in its row. Here a block loads it once and
// multiplies it with NTB neighbouring tiles of B, so a thread keeps NTB sums in registers. An element of A is read from
// shared memory once for NTB multiply-adds, which makes more arithmetic of each load; the price is more registers and
// more shared memory a block, so fewer blocks fit on a multiprocessor. Somewhere between lies the best NTB.
//
// (1 + NTB) tiles can pass the 48 KiB that a block gets without asking; so the array is dynamic: its size is given at
// the launch, and the host raises the kernel's limit first. Beyond the edges the tiles are filled with zeros.
//
// A is n x p, B is p x m, C is n x m, all row-major.
// Launch: block (TILE, TILE); grid (ceil(m / (TILE * NTB)), ceil(n / TILE));
//         dynamic shared memory (1 + NTB) * TILE * TILE * sizeof(T).

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile; TILE * TILE threads a block
/// @tparam NTB   tiles of B, and so of C, a block
///
/// A block of 32 x 32 threads fills half of a multiprocessor, and a second one fits beside it only if a thread keeps to 32
/// registers. The launch bounds ask the compiler for that, as long as the sums leave it room: beyond, it would have to
/// move them out to memory.
template <typename T, int TILE, int NTB>
__global__ void __launch_bounds__(1024, TILE == 32 && NTB * sizeof(T) <= 64 ? 2 : 0)
multi_tile(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads");
    // Declared as bytes: one name cannot have the type of each T in turn.
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
