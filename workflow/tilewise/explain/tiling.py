"""Tile sizes: the part of C computed per block, warp and thread, and the operands loaded for it."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.study.device import WARP

#: What decides them.
COLUMNS = ("covers_n", "covers_m", "covers_k", "threads", "block_x", "block_y", "ntb", "thread_n", "thread_m")
#: A warp of the kernels whose threads compute thread_n x thread_m lies over C with so many threads side by side.
WARP_COLUMNS = 4


def tile_sizes(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tile sizes of a row of measurements.csv in elements, (rows, columns) of C; None if it covers no tiles of C.

    They are those of its `block`, `warp` and `thread`, None where the launch does not say them. `depth` is how many
    steps of k a block loads at a time, and `repeats` how many parts of C a thread has, side by side and a tile apart.
    If the elements of a thread are `parted`, they are no neighbours.
    """
    known = {name: int(row[name]) for name in COLUMNS if not pd.isna(row.get(name))}
    if not {"covers_n", "covers_m"} <= set(known):
        return None
    rows, columns, repeats, x = known["covers_n"], known["covers_m"], known.get("ntb", 1), known["block_x"]
    thread, across, parted = (0, 0), min(WARP, x), "thread_n" in known
    if parted:
        thread, across = (known["thread_n"], known["thread_m"]), WARP_COLUMNS
    elif known["block_y"] > 1:  # threadIdx.x runs along a row, as everywhere here
        thread = (rows // known["block_y"], columns // repeats // x)
    sizes = {"threads": known["threads"], "block": (rows, columns), "repeats": repeats, "depth": known.get("covers_k")}
    # Others have threads that only fetch, or results that wait elsewhere.
    if math.prod(thread) * repeats * known["threads"] != rows * columns:
        return sizes | {"thread": None, "warp": None, "parted": False}
    warp = (WARP // across * thread[0], across * thread[1])
    return sizes | {"thread": thread, "warp": warp, "parted": parted}
