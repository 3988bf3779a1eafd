"""The product that a kernel computes: its arrays in memory, and the check of C."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernelscope.program import Operand
from tilewise.study import verify
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, result_of

#: A product of more multiply-adds takes too long to be checked again and again, or to be run only to be counted.
MOST_MULTIPLY_ADDS = 200_000_000


@dataclass(frozen=True)
class Convention:
    """A kernel's calling convention: which of A, B and C lie in memory column after column, what it
    computes, and whether there are gaps between the rows or columns of A or B."""

    columns: tuple[str, ...] = ()
    wanted: verify.Wanted = verify.PLAIN
    gaps: bool = False

    def order(self, name: str) -> Literal["C", "F"]:
        """NumPy's name for the memory order of a matrix."""
        return "F" if name in self.columns else "C"

    def __str__(self) -> str:
        """The options of `tilewise trace` that say the same."""
        said = [f"--columns {','.join(self.columns)}"] if self.columns else []
        said += ["--short-sums"] * (self.wanted.scheme == "short_sums")
        said += [f"--alpha {self.wanted.alpha:g}"] if self.wanted.alpha != 1 else []
        said += [f"--beta {self.wanted.beta:g}"] if self.wanted.beta else []
        return " ".join(said) or "neither --columns nor --short-sums"


def shapes(point: Point) -> dict[str, tuple[int, int]]:
    """The rows and columns of A, B and C, of a batch those of all of its matrices."""
    n, p, m = point.n, point.p, point.m
    return {"A": (point.batch * n, p), "B": (point.batch * p, m), "C": (point.batch * n, m)}


def operands(kernel: Kernel, point: Point, columns: Collection[str] = ()) -> list[Operand]:
    """A, B, C and the workspaces of a point; a matrix with a leading dimension has its gaps, too."""
    result = result_of(point.dtype).name
    found: list[tuple[str, str, tuple[int, ...], bool]] = []
    for name, (rows, across) in shapes(point).items():
        ld = kernel.lying(point, columns)[name].ld
        extents = (ld or rows, across) if name in columns else (rows, ld or across)
        written = name != "C" or kernel.reads_c or kernel.wanted.begins
        found.append((result if name == "C" else point.dtype, name, extents, written))
    found += [(space.dtype, space.name, space.shape, False) for space in kernel.plan(point).workspaces]
    return [
        Operand(name, PRECISIONS[dtype].cpp, PRECISIONS[dtype].stored, shape, written, "F" if name in columns else "C")
        for dtype, name, shape, written in found
    ]


def check(
    point: Point, own: Convention, read_by: Convention, operands: Sequence[np.ndarray], C: np.ndarray
) -> verify.Check:
    """Whether C is the product of these operands, if what lies in the memory of the three by the convention `own` is
    read by another."""
    A, B, result = (
        matrix.ravel(order=own.order(name)).reshape(matrix.shape, order=read_by.order(name))
        for name, matrix in zip("ABC", (*operands, C))
    )
    product = verify.reference(A, B, point.dtype, point.batch)
    return verify.check(result, *product, point.dtype, point.p, read_by.wanted)
