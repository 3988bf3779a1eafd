"""Representative blocks of a product, and the columns of traffic.csv that name its point."""

import contextlib

from kernelscope.counts import LINE_BYTES, Row
from kernelscope.launch import Three
from tilewise import UserError
from tilewise.study.expressions import evaluate
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS


def point_columns(kernel: Kernel, point: Point) -> Row:
    """The columns of a row that name its point; without a block if the point has no launch."""
    row = {name: value for name, value in point.columns().items() if name != "task"}
    with contextlib.suppress(UserError):
        product = kernel.plan(point).product
        assert product is not None  # a CUDA kernel has one
        row |= {"block_x": product.block[0], "block_y": product.block[1]}
        row["padded_multiply_adds"] = kernel.padded_multiply_adds(point)
    return row


def covers(kernel: Kernel) -> tuple:
    """The rows and columns of C of a block, if the kernel is one launch whose grid follows from them; else nothing."""
    [*others, entry] = kernel.launches
    return () if others or entry.grid else entry.covers


def block_classes(kernel: Kernel, point: Point) -> dict[Three, int]:
    """The kinds of blocks that do not count alike: a dict from one block (x, y, z) of each to their number."""
    [launch] = kernel.plan(point).launches
    itemsize = PRECISIONS[point.dtype].itemsize
    height, width = (int(evaluate(size, kernel.variables(point))) for size in covers(kernel))
    across: dict[tuple, list[int]] = {}  # along x a tile begins at a column of B and C
    down: dict[tuple, list[int]] = {}  # along y at a row of A and C
    for x in range(launch.grid[0]):
        across.setdefault((x * width * itemsize % LINE_BYTES, x == launch.grid[0] - 1), []).append(x)
    for y in range(launch.grid[1]):
        begins = (y * height * itemsize * columns % LINE_BYTES for columns in (point.p, point.m))
        down.setdefault((*begins, y == launch.grid[1] - 1), []).append(y)
    return {(xs[0], ys[0], 0): len(xs) * len(ys) for xs in across.values() for ys in down.values()}
