"""C = A B in Numba: one thread per element, which reads a row of A and a column of B.

After the first kernel of "Matrix multiplication" in the examples of Numba's manual, with the column along x, so that
the threads of a warp read neighbours, and the sum in the element's type.

A is n x p, B is p x m, C is n x m, all row-major.
"""

from numba import cuda


def naive(element):
    """The kernel for one element type of Numba's."""

    def kernel(A, B, C):
        j, i = cuda.grid(2)
        if i < C.shape[0] and j < C.shape[1]:
            total = element(0)
            for k in range(A.shape[1]):
                total += A[i, k] * B[k, j]
            C[i, j] = total

    return kernel
