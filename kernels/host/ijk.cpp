// C = A B on one CPU thread, loops in the order i, j, k: the definition of the product, written down.
//
// The idea: each element of C is a dot product and is written once. But with k innermost B is walked down a column:
// every step fetches another cache line and uses one element of it, and the sum is a chain in which each addition
// waits for the one before.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <cstddef>

/// @tparam T  the element: float, double or int
template <typename T>
void ijk(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < cols; ++j) {
            T sum = 0;
            for (std::size_t k = 0; k < inner; ++k) sum += A[i * inner + k] * B[k * cols + j];
            C[i * cols + j] = sum;
        }
}
