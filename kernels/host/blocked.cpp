// C = A B on one CPU thread, in tiles: three loops over tiles, three within a tile.
//
// The idea: a tile of A and a tile of B are small enough to stay in the nearest cache while all their products are
// made, so each element that is fetched is used TILE times, whatever the size of the matrices. It is the order of the
// loops in which the GPU's tiled kernel works: there the outer i and j are the grid, the inner i and j the threads of a
// block, and the cache is shared memory.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <algorithm>
#include <cstddef>

/// @tparam T     the element: float, double or int
/// @tparam TILE  width of a tile
template <typename T, int TILE>
void blocked(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t i = 0; i < rows * cols; ++i) C[i] = 0;
    for (std::size_t i0 = 0; i0 < rows; i0 += TILE)
        for (std::size_t j0 = 0; j0 < cols; j0 += TILE)
            for (std::size_t k0 = 0; k0 < inner; k0 += TILE) {
                const std::size_t i1 = std::min(i0 + TILE, rows);
                const std::size_t j1 = std::min(j0 + TILE, cols);
                const std::size_t k1 = std::min(k0 + TILE, inner);
                for (std::size_t i = i0; i < i1; ++i)
                    for (std::size_t j = j0; j < j1; ++j) {
                        T sum = C[i * cols + j];
                        for (std::size_t k = k0; k < k1; ++k) sum += A[i * inner + k] * B[k * cols + j];
                        C[i * cols + j] = sum;
                    }
            }
}
