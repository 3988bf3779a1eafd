"""C = A B in Triton: what a user writes instead of a kernel in CUDA.

The idea: a program computes a tile of C with blocks of tile_k, and Triton's compiler chooses threads, shared memory,
copies and instructions. Tiles are walked in bands of `band` rows, for the L2 cache. After Triton's tutorial "Matrix
Multiplication", with masks instead of indices modulo n and m.

A is n x p, B is p x m, C is n x m, all row-major. `precision` is Triton's input_precision: ieee (CUDA cores for float),
tf32, or tf32x3 (three TF32 products, one accumulator).
"""

import triton
import triton.language as tl


@triton.jit
def matmul(
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
    precision: tl.constexpr,
):
    tile = tl.program_id(0)
    tile_rows, tile_columns = tl.cdiv(n, tile_n), tl.cdiv(m, tile_m)
    first = tile // (band * tile_columns) * band
    rows_here = min(tile_rows - first, band)
    within = tile % (band * tile_columns)
    row = (first + within % rows_here) * tile_n + tl.arange(0, tile_n)[:, None]
    column = within // rows_here * tile_m + tl.arange(0, tile_m)[None, :]
    k = tl.arange(0, tile_k)
    total = tl.zeros((tile_n, tile_m), tl.float32)
    for start in range(0, p, tile_k):
        across, down = start + k[None, :], start + k[:, None]
        left = tl.load(A + row.to(tl.int64) * p + across, mask=(row < n) & (across < p), other=0.0)
        right = tl.load(B + down.to(tl.int64) * m + column, mask=(down < p) & (column < m), other=0.0)
        total = tl.dot(left, right, total, input_precision=precision)
    to = C + row.to(tl.int64) * m + column
    tl.store(to, total.to(C.dtype.element_ty), mask=(row < n) & (column < m))
