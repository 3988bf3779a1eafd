"""A kernel's memory accesses, as the columns of traffic.csv, and the blocks that count for all others."""

import contextlib
import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewise import UserError
from tilewise.study.expressions import evaluate
from tilewise.study.kernel import Kernel
from tilewise.study.launch import Three
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS

#: Bytes of a line of the GPU's L1 cache: four sectors.
LINE_BYTES = 128
#: The columns that are one number of the tracer: the memory or the way, the access, and the field of Traffic.
COUNTED = """global_load_requests global_load_sectors global_load_lines global_store_requests global_store_sectors
    shared_load_requests shared_load_wavefronts shared_store_requests shared_store_wavefronts async_load_requests
    async_load_sectors matrix_load_requests tma_load_requests tma_load_sectors tma_store_requests tma_store_sectors
    cluster_load_sectors cluster_store_sectors""".split()
#: The names that the tracer has for the ways of these columns; the fields by their words, in either memory.
WAYS = {"async": "by_copy", "matrix": "by_matrix", "tma": "by_tma", "cluster": "to_block"}
FIELDS = {"requests": 0, "sectors": 1, "wavefronts": 1, "lines": 2}

Row = dict[str, Any]


class Traffic(ctypes.Structure):
    """What the tracer counts of one kind of access; `units` are sectors of global and wavefronts of shared memory,
    `more` cache lines of global and bank conflicts of shared memory."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("requests", "units", "more", "bytes")]


def about(kernel: Kernel, point: Point) -> Row:
    """The columns of a row that name its point; without a block if the point has no launch."""
    row = {name: value for name, value in point.columns().items() if name != "task"}
    with contextlib.suppress(UserError):
        product = kernel.plan(point).product
        assert product is not None  # a CUDA kernel has one
        row |= {"block_x": product.block[0], "block_y": product.block[1]}
        row["padded_multiply_adds"] = kernel.padded_multiply_adds(point)
    return row


def counts(multiply_adds: int | None, traffic: np.ndarray, ways: Iterable[str]) -> Row:
    """The columns of a row for what the tracer counted, of so many multiply-adds if they are known. `ways` are their
    names there. `traffic` has a row for loads and
    one for stores, of global memory, then of shared memory, then of each way, and the fields of Traffic."""
    by = dict(zip(("global", "shared", *ways), traffic.reshape(-1, 2, 4).tolist(), strict=True))
    row: Row = {}
    for column in COUNTED:
        memory, access, what = column.split("_")
        row[column] = by[WAYS.get(memory, memory)][access == "store"][FIELDS[what]]
    loads, load_sectors, _, load_bytes = by["global"][0]
    moved = 32 * (load_sectors + row["global_store_sectors"])
    flops: Row = {}
    if multiply_adds is not None:
        flop = 2 * multiply_adds
        flops["flop_per_byte"] = flop / load_bytes if load_bytes else None
        flops["flop_per_byte_moved"] = flop / moved if moved else None
    return row | {
        "sectors_per_request": load_sectors / loads if loads else None,
        "shared_bank_conflicts": sum(conflicts for _, _, conflicts, _ in by["shared"]),
        **flops,
        "multicast_sectors": by["multicast"][0][1],
    }


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
