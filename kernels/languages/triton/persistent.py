"""C = A B in Triton with tensor maps: as many programs as multiprocessors, each of which makes tile after tile of C.

After Triton's tutorial "Persistent Matmul", its kernel with tensor descriptors that are made on the device, which is
the fastest of that tutorial on Hopper. B may be turned: TF32's wgmma reads it along k only, and Triton would otherwise
copy it element by element into that order (4 bytes per cp.async), so `turn` writes it along k first.

A is n x p, B is p x m, C is n x m, all row-major; turned, B is m x p.
"""

import triton
import triton.language as tl


@triton.jit
def turn(B, turned, p, m, tile: tl.constexpr):
    k = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    column = tl.program_id(1).to(tl.int64) * tile + tl.arange(0, tile)
    values = tl.load(B + k[:, None] * m + column[None, :], mask=(k < p)[:, None] & (column < m)[None, :])
    tl.store(turned + column[:, None] * p + k[None, :], values.T, mask=(column < m)[:, None] & (k < p)[None, :])


@triton.jit
def persistent(
    A,
    B,
    C,
    n,
    p,
    m,
    tile_n: tl.constexpr,
    tile_m: tl.constexpr,
    tile_k: tl.constexpr,
    band: tl.constexpr,
    turned: tl.constexpr,
):
    rows = tl.make_tensor_descriptor(A, [n, p], [p, 1], [tile_n, tile_k])
    if turned:
        columns = tl.make_tensor_descriptor(B, [m, p], [p, 1], [tile_m, tile_k])
    else:
        columns = tl.make_tensor_descriptor(B, [p, m], [m, 1], [tile_k, tile_m])
    product = tl.make_tensor_descriptor(C, [n, m], [m, 1], [tile_n, tile_m])
    tile_rows, tile_columns = tl.cdiv(n, tile_n), tl.cdiv(m, tile_m)
    for tile in tl.range(tl.program_id(0), tile_rows * tile_columns, tl.num_programs(0)):
        first = tile // (band * tile_columns) * band
        rows_here = min(tile_rows - first, band)
        within = tile % (band * tile_columns)
        row, column = (first + within % rows_here) * tile_n, within // rows_here * tile_m
        total = tl.zeros((tile_n, tile_m), tl.float64 if C.dtype.element_ty == tl.float64 else tl.float32)
        for k in range(0, p, tile_k):
            left = rows.load([row, k])
            right = columns.load([column, k]).T if turned else columns.load([k, column])
            total = tl.dot(left, right, total, out_dtype=total.dtype)
        product.store([row, column], total.to(C.dtype.element_ty))
