// C = A B on one CPU thread, loops in the order j, k, i: a column of C is a sum of columns of A.
//
// The idea: the order that suits matrices stored by columns, as Fortran stores them. Stored by rows, the innermost i
// walks down a column of A and a column of C: two cache lines a multiply-add, one element used of each, and nothing
// for vector instructions to take.
//
// A is n x p, B is p x m, C is n x m, all row-major.

#include <cstddef>

/// @tparam T  the element: float, double or int
template <typename T>
void jki(const T* A, const T* B, T* C, int n, int p, int m)
{
    const std::size_t rows = n, inner = p, cols = m;
    for (std::size_t i = 0; i < rows * cols; ++i) C[i] = 0;
    for (std::size_t j = 0; j < cols; ++j)
        for (std::size_t k = 0; k < inner; ++k) {
            const T b = B[k * cols + j];
            for (std::size_t i = 0; i < rows; ++i) C[i * cols + j] += A[i * inner + k] * b;
        }
}
