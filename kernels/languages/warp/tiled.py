"""C = A B in Warp: a block makes a tile of C from tiles of A and B, with cuBLASDx for their products.

After the example "tile_matmul" of Warp. Whole tiles alone are loaded and stored: beyond the edges, Warp loads zeros and
stores nothing. `tf32` rounds floats to TF32 for the tensor cores.

A is n x p, B is p x m, C is n x m, all row-major.
"""

import warp as wp


def tiled(element, result, tile_n, tile_m, tile_k, tf32):
    """The kernel for elements of one type and sums of another, and for tiles of one shape."""
    options = {"enable_mathdx_gemm": True, "enable_backward": False}

    @wp.kernel(module="unique", module_options=options)
    def tiled(A: wp.array2d(dtype=element), B: wp.array2d(dtype=element), C: wp.array2d(dtype=element)):
        row, column = wp.tid()
        total = wp.tile_zeros(shape=(tile_n, tile_m), dtype=result)
        for k in range((A.shape[1] + tile_k - 1) // tile_k):
            left = wp.tile_load(A, shape=(tile_n, tile_k), offset=(row * tile_n, k * tile_k))
            right = wp.tile_load(B, shape=(tile_k, tile_m), offset=(k * tile_k, column * tile_m))
            if wp.static(tf32 == 1):
                wp.tile_matmul(left, right, total, precision="tf32")
            else:
                wp.tile_matmul(left, right, total)
        wp.tile_store(C, wp.tile_astype(total, dtype=element), offset=(row * tile_n, column * tile_m))

    return tiled
