"""C = A B in Gluon: a program makes a tile of C, one block of k after the other: copy, wait, multiply.

After the first kernel of Gluon's tutorial "Warp-Group MMA". Gluon is Triton with the layouts, the copies by TMA, their
barriers and the wgmma instructions written out; threads stay implicit.

A is n x p, B is p x m, C is n x m, all row-major.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def blocked(
    A, B, C, n, p, m, tile_n: gl.constexpr, tile_m: gl.constexpr, tile_k: gl.constexpr, num_warps: gl.constexpr
):
    element: gl.constexpr = A.dtype.element_ty
    left_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile_n, tile_k], element)
    right_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile_k, tile_m], element)
    product_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile_n, tile_m], element)
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, tile_m, 16])
    rows = tma.make_tensor_descriptor(A, [n, p], [p, 1], [tile_n, tile_k], left_layout)
    columns = tma.make_tensor_descriptor(B, [p, m], [m, 1], [tile_k, tile_m], right_layout)
    product = tma.make_tensor_descriptor(C, [n, m], [m, 1], [tile_n, tile_m], product_layout)
    left = gl.allocate_shared_memory(element, [tile_n, tile_k], left_layout)
    right = gl.allocate_shared_memory(element, [tile_k, tile_m], right_layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    row, column = gl.program_id(1) * tile_n, gl.program_id(0) * tile_m
    total = gl.zeros((tile_n, tile_m), gl.float32, sum_layout)
    phase = 0
    for k in range(0, p, tile_k):
        mbarrier.expect(arrived, rows.nbytes_per_cta + columns.nbytes_per_cta)
        tma.async_load(rows, [row, k], arrived, left)
        tma.async_load(columns, [k, column], arrived, right)
        mbarrier.wait(arrived, phase)
        phase ^= 1
        total = warpgroup_mma(left, right, total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=[total])
    mbarrier.invalidate(arrived)
    staged = gl.allocate_shared_memory(element, [tile_n, tile_m], product_layout)
    staged.store(total.to(element))
    fence_async_shared()
    tma.async_store(product, [row, column], staged)
    tma.store_wait(0)
