"""C = A B in cuTile: a block makes a tile of C from tiles of A and B.

After "Matrix multiplication" in the samples of cuTile Python, without its order of blocks. The compiler chooses
threads, copies and instructions. `tf32` rounds floats to TF32 for the tensor cores.

A is n x p, B is p x m, C is n x m, all row-major.
"""

import cuda.tile as ct


@ct.kernel
def matmul(
    A,
    B,
    C,
    tile_n: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_k: ct.Constant[int],
    tf32: ct.Constant[int],
):
    column, row = ct.bid(0), ct.bid(1)
    total = ct.full((tile_n, tile_m), 0, dtype=ct.float64 if C.dtype == ct.float64 else ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(tile_n, tile_k))):
        left = ct.load(A, index=(row, k), shape=(tile_n, tile_k), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(B, index=(k, column), shape=(tile_k, tile_m), padding_mode=ct.PaddingMode.ZERO)
        if tf32:
            left, right = left.astype(ct.tfloat32), right.astype(ct.tfloat32)
        total = ct.mma(left, right, total)
    ct.store(C, index=(row, column), tile=total.astype(C.dtype))
