// C = A B on one CPU thread, loops in the order k, j, i: for every k, a column of A times a row of B.
//
// The idea: as in kij.cpp all of C is updated for every k, here down its columns: two cache lines a multiply-add as in
// jki.cpp. The column of A may stay in the cache while j runs; C, far larger, does not.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <cstddef>

/// @tparam T  the element: float, double or int
template <typename T>
void kji(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t i = 0; i < rows * cols; ++i) C[i] = 0;
    for (std::size_t k = 0; k < inner; ++k)
        for (std::size_t j = 0; j < cols; ++j) {
            const T b = B[k * cols + j];
            for (std::size_t i = 0; i < rows; ++i) C[i * cols + j] += A[i * inner + k] * b;
        }
}
