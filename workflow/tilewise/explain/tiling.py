"""Tile sizes: the part of C computed per block, warp and thread, and the operands loaded for it.

Everything follows from a row of measurements.csv: the launch, what a block covers, and the parameters.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tilewise.study.device import WARP

#: A warp of the kernels whose threads compute thread_n x thread_m lies over C as so many threads.
WARP_ROWS, WARP_COLUMNS = 8, 4
#: The parameters that say how a kernel's threads share its tile.
PARAMETERS = ("ntb", "thread_n", "thread_m", "warp_n", "warp_m", "stages")


@dataclass(frozen=True)
class Tiling:
    """Tile sizes in elements: (rows, columns) of C; None if the row lacks them.

    `depth` is how many steps of k a block loads at a time, `stages` how many such tiles it holds, and `repeats` how
    many parts of C a thread has, side by side and a tile apart. If it is `parted`, its elements are not neighbours.
    `cluster` is how many blocks share what they load of B.
    """

    threads: int
    block: tuple[int, int]
    warp: tuple[int, int] | None
    thread: tuple[int, int] | None
    repeats: int = 1
    depth: int | None = None
    stages: int = 1
    parted: bool = False
    cluster: int = 1

    @property
    def words(self) -> str:
        """The tiling in plain English."""
        rows, columns = self.block
        computed = [f"A block of {self.threads:,} threads computes {rows} × {columns} elements of C"]
        if self.warp:
            computed.append(f"a warp {self.warp[0]} × {self.warp[1] * self.repeats}")
        if self.thread:
            times = f", {self.repeats} times" if self.repeats > 1 else ""
            shape = f"{self.thread[0]} × {self.thread[1]}{times}, in registers"
            computed.append("a thread one" if math.prod(self.thread) * self.repeats == 1 else f"a thread {shape}")
        said = [f"{_listed(computed)}."]
        if self.depth:
            ahead = f", and holds {self.stages} such steps" if self.stages > 1 else ""
            said.append(f"In each step it loads {rows} × {self.depth} of A and {self.depth} × {columns} of B{ahead}.")
        else:
            said.append(f"It needs {_plural(rows, 'row')} of A and {_plural(columns, 'column')} of B.")
        if self.cluster > 1:
            said.append(f"The {self.cluster} blocks of a cluster share what they load of B.")
        if self.parted:
            said.append("A thread's elements are drawn as one square; they are several smaller ones in the warp's.")
        return " ".join(said)


def _listed(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def tiling(row: Mapping[str, Any]) -> Tiling | None:
    """The tiling of a row of measurements.csv; None for a library, another language than CUDA C++, and a launch that
    covers no tiles of C."""
    if pd.isna(row.get("covers_n")) or pd.isna(row.get("covers_m")):
        return None
    chosen = {name: int(row[name]) for name in PARAMETERS if not pd.isna(row.get(name))}
    rows, across, threads = (int(row[name]) for name in ("covers_n", "covers_m", "threads"))
    x, y = int(row["block_x"]), int(row["block_y"])
    repeats = chosen.get("ntb", 1)
    warp = thread = None
    if "thread_n" in chosen and "thread_m" in chosen:
        thread = (chosen["thread_n"], chosen["thread_m"])
        warp = (WARP_ROWS * thread[0], WARP_COLUMNS * thread[1])
    elif y > 1 and rows % y == 0 and across % (x * repeats) == 0:  # threadIdx.x runs along a row, as everywhere here
        thread = (rows // y, across // repeats // x)
        warp = (max(1, WARP // x) * thread[0], min(WARP, x) * thread[1])
    if "warp_n" in chosen and "warp_m" in chosen:
        warp = (chosen["warp_n"], chosen["warp_m"])
        if math.prod(warp) * threads != rows * across * WARP:
            warp = None  # the launch has other tiles than the parameters say
    if thread and math.prod(thread) * repeats * threads != rows * across:
        warp = thread = None  # threads that only fetch, or results that wait elsewhere
    depth = None if pd.isna(row["covers_k"]) else int(row["covers_k"])
    parted = thread is not None and "thread_n" in chosen
    stages, cluster = chosen.get("stages", 1), int(row["cluster_size"])
    return Tiling(threads, (rows, across), warp, thread, repeats, depth, stages, parted, cluster)
