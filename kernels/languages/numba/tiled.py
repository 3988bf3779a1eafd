"""C = A B in Numba: a block of threads shares square tiles of A and B.

After the second kernel of "Matrix multiplication" in the examples of Numba's manual, the fastest that it shows; zeros
stand beyond the edges.

A is n x p, B is p x m, C is n x m, all row-major. `tile` is the width of a tile and of the block.
"""

from numba import cuda


def tiled(element, tile):
    """The kernel for one element type of Numba's and one width of tiles."""

    def kernel(A, B, C):
        left = cuda.shared.array((tile, tile), element)
        right = cuda.shared.array((tile, tile), element)
        j, i = cuda.grid(2)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        total = element(0)
        for start in range(0, A.shape[1], tile):
            left[y, x] = element(0)
            right[y, x] = element(0)
            if i < A.shape[0] and start + x < A.shape[1]:
                left[y, x] = A[i, start + x]
            if start + y < B.shape[0] and j < B.shape[1]:
                right[y, x] = B[start + y, j]
            cuda.syncthreads()
            for k in range(tile):
                total += left[y, k] * right[k, x]
            cuda.syncthreads()
        if i < C.shape[0] and j < C.shape[1]:
            C[i, j] = total

    return kernel
