"""A kernel's memory accesses, as the columns of traffic.csv."""

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

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


def counts(multiply_adds: int | None, traffic: np.ndarray, ways: Iterable[str]) -> Row:
    """The columns of a row for what the tracer counted, for a number of multiply-adds if it is known.

    `traffic` has a row for loads and one for stores of global memory, then of shared memory, then of each of `ways`,
    which are named as in the tracer; its columns are the fields of Traffic."""
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
