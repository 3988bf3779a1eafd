"""C = A B in Gluon: as many programs as multiprocessors, copies that run ahead in a ring, and wgmma that overlaps them.

After Gluon's tutorials "Warp-Group MMA" and "Persistent Kernels", whose pipelined kernels are the fastest that they
show on Hopper: the copies of the blocks of k to come stay in flight, across the tiles of C too, and one wgmma runs
while the next block is waited for.

A is n x p, B is p x m, C is n x m, all row-major. `stages` is the length of the ring.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def place(tile, n, m, tile_n: gl.constexpr, tile_m: gl.constexpr, band: gl.constexpr):
    """The first row and column of a tile of C, in bands of rows for the L2 cache."""
    tile_rows, tile_columns = gl.cdiv(n, tile_n), gl.cdiv(m, tile_m)
    first = tile // (band * tile_columns) * band
    rows_here = min(tile_rows - first, band)
    within = tile % (band * tile_columns)
    return (first + within % rows_here) * tile_n, within // rows_here * tile_m


@gluon.jit
def persistent(
    A,
    B,
    C,
    n,
    p,
    m,
    tile_n: gl.constexpr,
    tile_m: gl.constexpr,
    tile_k: gl.constexpr,
    band: gl.constexpr,
    stages: gl.constexpr,
    num_warps: gl.constexpr,
):
    element: gl.constexpr = A.dtype.element_ty
    left_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile_n, tile_k], element)
    right_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile_k, tile_m], element)
    product_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([tile_n, tile_m], element)
    sum_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, tile_m, 16])
    rows = tma.make_tensor_descriptor(A, [n, p], [p, 1], [tile_n, tile_k], left_layout)
    columns = tma.make_tensor_descriptor(B, [p, m], [m, 1], [tile_k, tile_m], right_layout)
    product = tma.make_tensor_descriptor(C, [n, m], [m, 1], [tile_n, tile_m], product_layout)
    left = gl.allocate_shared_memory(element, [stages, tile_n, tile_k], left_layout)
    right = gl.allocate_shared_memory(element, [stages, tile_k, tile_m], right_layout)
    staged = gl.allocate_shared_memory(element, [tile_n, tile_m], product_layout)
    arrived = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(stages):
        mbarrier.init(arrived.index(stage), count=1)

    blocks = gl.cdiv(p, tile_k)
    programs = gl.num_programs(0)
    tiles = gl.cdiv(gl.cdiv(n, tile_n) * gl.cdiv(m, tile_m) - gl.program_id(0), programs)  # of this program
    steps = tiles * blocks
    for step in range(0, min(stages - 1, steps)):
        row, column = place(gl.program_id(0) + step // blocks * programs, n, m, tile_n, tile_m, band)
        ready = arrived.index(step)
        mbarrier.expect(ready, rows.nbytes_per_cta + columns.nbytes_per_cta)
        tma.async_load(rows, [row, step % blocks * tile_k], ready, left.index(step))
        tma.async_load(columns, [step % blocks * tile_k, column], ready, right.index(step))

    step = 0
    for mine in range(0, tiles):
        total = warpgroup_mma_init(gl.zeros((tile_n, tile_m), gl.float32, sum_layout))
        for _k in range(0, blocks):
            slot = step % stages
            mbarrier.wait(arrived.index(slot), step // stages & 1)
            total = warpgroup_mma_wait(num_outstanding=0, deps=[total])  # so the slot before this one is free
            total = warpgroup_mma(left.index(slot), right.index(slot), total, is_async=True)
            ahead = step + stages - 1
            row, column = place(gl.program_id(0) + ahead // blocks * programs, n, m, tile_n, tile_m, band)
            ready = arrived.index(ahead % stages)
            mbarrier.expect(ready, rows.nbytes_per_cta + columns.nbytes_per_cta, pred=ahead < steps)
            tma.async_load(rows, [row, ahead % blocks * tile_k], ready, left.index(ahead % stages), pred=ahead < steps)
            tma.async_load(
                columns, [ahead % blocks * tile_k, column], ready, right.index(ahead % stages), pred=ahead < steps
            )
            step += 1
        total = warpgroup_mma_wait(num_outstanding=0, deps=[total])
        tma.store_wait(0)
        staged.store(total.to(element))
        fence_async_shared()
        row, column = place(gl.program_id(0) + mine * programs, n, m, tile_n, tile_m, band)
        tma.async_store(product, [row, column], staged)
    tma.store_wait(0)
    for stage in gl.static_range(stages):
        mbarrier.invalidate(arrived.index(stage))
