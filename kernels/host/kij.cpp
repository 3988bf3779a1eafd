// C = A B on one CPU thread, loops in the order k, i, j: the baseline of source a.
//
// The idea: with j innermost, both the row of B and the row of C are walked in the order in which they lie in memory,
// so every cache line fetched is used whole and the compiler can use vector instructions. But all of C is read and
// written again for every k: once C no longer fits into the cache, the loop runs at the speed of main memory.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <cstddef>

/// @tparam T  the element: float, double or int
template <typename T>
void kij(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t i = 0; i < rows * cols; ++i) C[i] = 0;
    for (std::size_t k = 0; k < inner; ++k)
        for (std::size_t i = 0; i < rows; ++i) {
            const T a = A[i * inner + k];
            for (std::size_t j = 0; j < cols; ++j) C[i * cols + j] += a * B[k * cols + j];
        }
}
