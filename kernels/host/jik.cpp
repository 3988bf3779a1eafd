// C = A B on one CPU thread, loops in the order j, i, k: the dot products of ijk.cpp, column of C after column.
//
// The idea: one column of B serves a whole column of C before the next is touched, so it may stay in the cache, as one
// cache line for each of its elements; in exchange all of A is read anew for every j, and C is written down a column.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <cstddef>

/// @tparam T  the element: float, double or int
template <typename T>
void jik(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t j = 0; j < cols; ++j)
        for (std::size_t i = 0; i < rows; ++i) {
            T sum = 0;
            for (std::size_t k = 0; k < inner; ++k) sum += A[i * inner + k] * B[k * cols + j];
            C[i * cols + j] = sum;
        }
}
