"""A launch as plain data, shared by the GPU, the emulator and the profiler."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelscope.element_types import ELEMENT_TYPES, INTEGERS

Three = tuple[int, int, int]
#: What TMA has: the widths of its swizzles in bytes, and the most elements of a box along a dimension.
SWIZZLES = (0, 32, 64, 128)
MAX_BOX = 256


@dataclass(frozen=True)
class Array:
    """An argument that is the address of an array: A, B, C or a workspace."""

    name: str


@dataclass(frozen=True)
class Number:
    """An argument that is a number; `type` is one of `number_types()`."""

    type: str
    value: int | float

    @property
    def whole(self) -> bool:
        """Whether it is of a type of whole numbers."""
        return self.type in INTEGERS or ELEMENT_TYPES[self.type].exact

    @property
    def is_struct(self) -> bool:
        """Whether its type is a class in C++, as __half is, and no type of the language."""
        return self.type not in INTEGERS and bool(ELEMENT_TYPES[self.type].header)

    @property
    def ctype(self) -> Any:
        """The type that holds it in ctypes: the bits as a whole number, if it is a class in C++."""
        if self.type in INTEGERS:
            return INTEGERS[self.type]
        stored = ELEMENT_TYPES[self.type].stored
        return np.ctypeslib.as_ctypes_type(f"u{stored.itemsize}" if self.is_struct else stored)

    def packed(self) -> Any:
        """The number as ctypes holds it."""
        if not self.is_struct:
            return self.ctype(self.value)
        bits = ELEMENT_TYPES[self.type].narrow(np, np.float32(self.value))
        return self.ctype.from_buffer_copy(np.asarray(bits).tobytes())


@dataclass(frozen=True)
class Value:
    """An argument by value of any other type, as its bytes: `kind` is "i" for an integer, "f" for a floating-point
    number, "o" for a struct; `type` is what messages call it. `pointers` are the arrays, by name, whose addresses it
    holds, each with its place in bytes."""

    data: bytes
    kind: str
    type: str
    pointers: tuple[tuple[int, str], ...] = ()


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

    @property
    def refused(self) -> str:
        """What TMA requires instead of this (CUDA driver API, cuTensorMapEncodeTiled); "" if it takes it."""
        itemsize = ELEMENT_TYPES[self.dtype].itemsize
        pitch, inner = self.shape[-1] * itemsize, self.box[-1] * itemsize
        if len(self.shape) > 1 and pitch % 16:
            return f"rows of a multiple of 16 B for its tensor map of {self.array}, not of {pitch} B"
        if inner % 16:
            return f"a box of rows of a multiple of 16 B for its tensor map of {self.array}, not of {inner} B"
        if self.swizzle and inner > self.swizzle:
            return f"a box of rows of at most the swizzle's {self.swizzle} B for its tensor map of {self.array}"
        if max(self.box) > MAX_BOX:
            return f"a box of at most {MAX_BOX} elements along a dimension for its tensor map of {self.array}"
        return ""


Argument = Array | Number | Value | TensorMap


@dataclass(frozen=True)
class Workspace:
    """An array of device memory that a kernel needs in addition to A, B and C. `dtype` names an element type."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Launch:
    """One launch: a C++ template instance, threads of a block, blocks of the grid, blocks of a cluster along (x, y, z),
    dynamic shared memory in bytes, and what the function is called with. `note` is for the row. All blocks of a
    `cooperative` launch run at the same time. On a GPU, a `dependent` launch may begin before the
    results of the previous one can be read."""

    instance: str
    block: Three
    grid: Three
    arguments: tuple[Argument, ...]
    dynamic_shared_bytes: int = 0
    cluster: Three = (1, 1, 1)
    note: str = ""
    cooperative: bool = False
    dependent: bool = False

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Plan:
    """What a kernel runs for a point: its launches in order, among them the one that stands for it in tables, the
    arrays that it needs in addition to A, B and C, and its template instances, such as `tiled<float, 32>`."""

    launches: tuple[Launch, ...]
    product: Launch | None
    workspaces: tuple[Workspace, ...]
    instances: tuple[str, ...]
