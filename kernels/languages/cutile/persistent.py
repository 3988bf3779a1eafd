"""C = A B in cuTile: as many blocks as multiprocessors, each of which makes tile after tile of C.

After "Matrix multiplication" in the samples of cuTile Python, its persistent kernel with bands of tiles for the L2
cache. `tf32` rounds floats to TF32 for the tensor cores.

A is n x p, B is p x m, C is n x m, all row-major.
"""

import cuda.tile as ct


@ct.kernel
def persistent(
    A,
    B,
    C,
    tile_n: ct.Constant[int],
    tile_m: ct.Constant[int],
    tile_k: ct.Constant[int],
    band: ct.Constant[int],
    tf32: ct.Constant[int],
):
    tile_rows, tile_columns = ct.cdiv(C.shape[0], tile_n), ct.cdiv(C.shape[1], tile_m)
    for tile in range(ct.bid(0), tile_rows * tile_columns, ct.num_blocks(0)):
        first = tile // (band * tile_columns) * band
        rows_here = min(tile_rows - first, band)
        within = tile % (band * tile_columns)
        row, column = first + within % rows_here, within // rows_here
        total = ct.full((tile_n, tile_m), 0, dtype=ct.float64 if C.dtype == ct.float64 else ct.float32)
        for k in range(ct.num_tiles(A, axis=1, shape=(tile_n, tile_k))):
            left = ct.load(A, index=(row, k), shape=(tile_n, tile_k), padding_mode=ct.PaddingMode.ZERO)
            right = ct.load(B, index=(k, column), shape=(tile_k, tile_m), padding_mode=ct.PaddingMode.ZERO)
            if tf32:
                left, right = left.astype(ct.tfloat32), right.astype(ct.tfloat32)
            total = ct.mma(left, right, total)
        ct.store(C, index=(row, column), tile=total.astype(C.dtype))
