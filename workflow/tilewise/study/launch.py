"""What a launch is, as plain data: the same for a GPU, for the emulator and for the profiler."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.study.precision import PRECISIONS

Three = tuple[int, int, int]

#: The types of numbers that a kernel can be called with.
NUMBERS: dict[str, Any] = {
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "half": ctypes.c_uint16,  # its bits
    "bfloat16": ctypes.c_uint16,
}
#: Those of them that are no integers.
FLOATING = ("float", "double", "half", "bfloat16")


@dataclass(frozen=True)
class Array:
    """An argument that is the address of an array: A, B, C or a workspace."""

    name: str


@dataclass(frozen=True)
class Number:
    """An argument that is a number; `type` is a key of NUMBERS."""

    type: str
    value: int | float

    def packed(self) -> Any:
        """The number as ctypes holds it."""
        value = self.value
        if NUMBERS[self.type] is ctypes.c_uint16:
            value = int(PRECISIONS[self.type].narrow(np, np.float32(value)).view(np.uint16))
        return NUMBERS[self.type](value)


@dataclass(frozen=True)
class TensorMap:
    """An argument that describes a row-major array to the tensor memory accelerator (TMA).

    `shape` is the array's, `box` what one copy takes of it, both with the innermost dimension last; `swizzle` is 0, 32,
    64 or 128 bytes, `strides` are the distances of the elements copied, along each dimension.
    """

    array: str
    dtype: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    strides: tuple[int, ...] = ()


Argument = Array | Number | TensorMap


@dataclass(frozen=True)
class Workspace:
    """An array of device memory that a kernel needs beside A, B and C. `dtype` is the name of a precision."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Launch:
    """One launch: a C++ template instance, threads of a block, blocks of the grid, blocks of a cluster along (x, y, z),
    dynamic shared memory in bytes, and what the function is called with. `note` is for the row."""

    instance: str
    block: Three
    grid: Three
    arguments: tuple[Argument, ...]
    dynamic_shared_bytes: int = 0
    cluster: Three = (1, 1, 1)
    note: str = ""

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]
