"""A traced program: a sequence of launches, its global arrays, and their expected final contents."""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

from kernelscope.errors import UserError
from kernelscope.fault_kinds import FaultKind
from kernelscope.launch import Launch

#: What else a byte of the operands takes: in the tracer, per 4 bytes, and in NumPy, which checks the result.
CELL_BYTES = 32
CHECK_BYTES = 6

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Operand:
    """An array in global memory, or a __device__ variable, whose elements may be of any type. `cpp` is the type of its
    elements in C++, `order` "C" if it lies there row after row, "F" if column after column."""

    name: str
    cpp: str
    dtype: np.dtype
    shape: tuple[int, ...]
    written_by_host: bool
    order: Literal["C", "F"] = "C"

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Program:
    """Launches over arrays. This one takes every result for right; others override what is right.

    `itemsize` is the size that elements of shared arrays and of variables are taken for, which no symbol tells; `kind`
    the kind of the fault that a wrong result is. A program that `repeats` may be launched a second time.
    `pointers_in_variables` are the kernel's variables, the byte in each and the array whose address it is to hold.
    """

    kind = FaultKind.WRONG
    repeats = False
    pointers_in_variables: Sequence[tuple[str, int, str]] = ()

    def __init__(self, label: str, launches: Sequence[Launch], operands: Sequence[Operand], itemsize: int = 4) -> None:
        self.label = label
        self.launches = tuple(launches)
        self.operands = list(operands)
        self.itemsize = itemsize

    @property
    def multiply_adds(self) -> int | None:
        """How many the result needs; None if unknown."""
        return None

    def about(self) -> dict[str, Any]:
        """The columns of a row that name the program."""
        return {}

    def fill(self, arrays: Arrays) -> None:
        """Make the arrays what a run begins with."""
        raise NotImplementedError

    def clear(self, arrays: Arrays) -> None:
        """Make the arrays what a second launch finds there, in addition to what the first one left."""

    def changed(self, arrays: Arrays) -> list[str]:
        """The arrays, by name, that a run was to leave as they are and has changed."""
        return []

    def results(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Copies of the arrays that are the result."""
        return {operand.name: arrays[operand.name].copy() for operand in self.operands}

    def wrong(self, results: Arrays) -> str:
        """The error in a result; "" if it is correct."""
        return ""

    def why(self, results: Arrays) -> tuple[str, int | None]:
        """What else is to be said of a wrong result, and the line of the source where it is, if one can be named."""
        return "", None

    def differs(self, order: str, first: Arrays, results: Arrays) -> tuple[FaultKind, str, int] | None:
        """Kind, words and number of what is wrong about results in another order of threads than that of `first`."""
        return None


class TooLarge(UserError):
    """Arrays need more memory than there is."""


def check_memory(label: str, operands: Iterable[Operand]) -> None:
    """Raise TooLarge if arrays need more memory than this machine, or this process's share of it, has left."""
    operands = list(operands)
    unit = min([4, *(operand.dtype.itemsize for operand in operands)])
    needed = sum(operand.bytes for operand in operands) * (1 + CELL_BYTES / unit + CHECK_BYTES)
    left = psutil.virtual_memory().available
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # a container's own limit, if it has one
            allowed, taken = (int(Path("/sys/fs/cgroup", name).read_text(encoding="utf-8")) for name in (limit, used))
            left = min(left, allowed - taken)
    if needed > left:
        raise TooLarge(
            f"{label}: tracing it needs about {needed / 1e9:,.1f} GB of memory, and {left / 1e9:,.1f} GB are "
            "free here; choose smaller sizes"
        )
