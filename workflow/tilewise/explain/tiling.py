"""Tile sizes: the part of C computed per block, warp and thread, and the operands loaded for it.

Everything follows from the registry's numbers for a point: the launch, what a block covers, and the parameters.
"""

import math
from dataclasses import dataclass

from kernelscope.launch import TensorMap
from tilewise.study.device import EMULATED, WARP, Device
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.points import Point

#: A warp of the kernels whose threads compute thread_n x thread_m lies over C as so many threads.
WARP_ROWS, WARP_COLUMNS = 8, 4


@dataclass(frozen=True)
class Tiling:
    """How a kernel cuts its product, in elements: (rows, columns) of C; None if the registry's numbers do not say it.

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
        said = [f"A block of {self.threads:,} threads computes {rows} × {columns} elements of C."]
        if self.depth:
            ahead = f", and holds {self.stages} such steps" if self.stages > 1 else ""
            said.append(f"In each step it loads {rows} × {self.depth} of A and {self.depth} × {columns} of B{ahead}.")
        else:
            said.append(f"It needs {_plural(rows, 'row')} of A and {_plural(columns, 'column')} of B.")
        if self.cluster > 1:
            said.append(f"The {self.cluster} blocks of a cluster share what they load of B.")
        if self.warp:
            said.append(f"A warp computes {self.warp[0]} × {self.warp[1] * self.repeats} of them.")
        if self.thread:
            count = math.prod(self.thread) * self.repeats
            shape = f"{self.thread[0]} × {self.thread[1]}" + (f", {self.repeats} times" if self.repeats > 1 else "")
            said.append(
                "A thread computes one." if count == 1 else f"A thread keeps {shape}: {count} sums in registers."
            )
        if self.parted:
            said.append("The drawing shows one square; in fact they are smaller ones, one in each part of the warp's.")
        return " ".join(said)


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def tiling(kernel: Kernel, point: Point, device: Device = EMULATED) -> Tiling | None:
    """How a kernel cuts the product of a point; None for a library, and for a launch that covers no tiles of C.

    Raises UserError if an expression of the registry's entry cannot be evaluated.
    """
    launch = kernel.plan(point, device).product if kernel.kind == Kind.CUDA else None
    if launch is None:
        return None
    chosen = dict(point.parameters)
    # A kernel whose tiles TMA fetches may say the rows and the depth of A's in its tensor map only.
    boxes = [argument.box for argument in launch.arguments if isinstance(argument, TensorMap)]
    rows_of_a, depth_of_a = (*boxes, (0, 0))[0][:2]
    covered = kernel.covered(point) or [chosen.get("tile_n", rows_of_a), chosen.get("tile_m", 0)]
    if len(covered) < 2 or not all(covered[:2]):
        return None
    rows, columns = covered[:2]
    x, y, _ = launch.block
    repeats = chosen.get("ntb", 1)
    warp = thread = None
    if "thread_n" in chosen and "thread_m" in chosen:
        thread = (chosen["thread_n"], chosen["thread_m"])
        warp = (WARP_ROWS * thread[0], WARP_COLUMNS * thread[1])
    elif y > 1 and rows % y == 0 and columns % (x * repeats) == 0:  # threadIdx.x runs along a row, as everywhere here
        thread = (rows // y, columns // repeats // x)
        warp = (max(1, WARP // x) * thread[0], min(WARP, x) * thread[1])
    if "warp_n" in chosen and "warp_m" in chosen:
        warp = (chosen["warp_n"], chosen["warp_m"])
        if math.prod(warp) * launch.threads != rows * columns * WARP:
            warp = None  # the launch has other tiles than the parameters say
    if thread and math.prod(thread) * repeats * launch.threads != rows * columns:
        warp = thread = None  # threads that only fetch, or results that wait elsewhere
    depth = chosen.get("tile_k", chosen.get("tile", depth_of_a or None))
    parted = thread is not None and "thread_n" in chosen
    stages, cluster = chosen.get("stages", 1), math.prod(launch.cluster)
    return Tiling(launch.threads, (rows, columns), warp, thread, repeats, depth, stages, parted, cluster)
