"""C = A B in Warp: one thread per element, which reads a row of A and a column of B.

After the basic kernel of "Tiles" in Warp's manual, which multiplies without tiles before it introduces them.

A is n x p, B is p x m, C is n x m, all row-major.
"""

import warp as wp


def naive(element, result):
    """The kernel for elements of one type and sums of another."""

    @wp.kernel(module="unique", module_options={"enable_backward": False})
    def naive(A: wp.array2d(dtype=element), B: wp.array2d(dtype=element), C: wp.array2d(dtype=element)):
        i, j = wp.tid()
        total = result(0.0)
        for k in range(A.shape[1]):
            total += result(A[i, k]) * result(B[k, j])
        C[i, j] = element(total)

    return naive
