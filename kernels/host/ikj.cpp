// C = A B on one CPU thread, loops in the order i, k, j: a row of C is a sum of rows of B.
//
// The idea: with j innermost everything is walked as it lies in memory, as in kij.cpp; with k inside i, moreover, one
// row of C stays in the nearest cache until it is finished. Only B is read anew for every i: the best order of the six.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <cstddef>

/// @tparam T  the element: float, double or int
template <typename T>
void ikj(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t i = 0; i < rows * cols; ++i) C[i] = 0;
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t k = 0; k < inner; ++k) {
            const T a = A[i * inner + k];
            for (std::size_t j = 0; j < cols; ++j) C[i * cols + j] += a * B[k * cols + j];
        }
}
