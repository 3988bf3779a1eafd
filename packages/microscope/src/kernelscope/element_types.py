"""The types of elements and of numbers that a kernel is called with."""

import ctypes
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class ElementType:
    """The storage format of a number type.

    `cpp` is the type in C++, `stored` that of an array in memory; bfloat16 is kept as its 16 bits, because CuPy has no
    such type. `header` declares a type that is a class in C++.
    """

    name: str
    cpp: str
    stored: np.dtype
    header: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.stored.itemsize

    @property
    def array_name(self) -> str:
        """The name of the type in NumPy and most languages: float32, bfloat16."""
        return "bfloat16" if self.name == "bfloat16" else self.stored.name

    @property
    def exact(self) -> bool:
        """Whether it is a type of integers."""
        return self.stored.kind == "i"

    def wide(self, xp: Any, array: Any) -> Any:
        """A stored array (of the array module xp) as numbers that float64 holds exactly."""
        if self.name == "bfloat16":
            return (array.astype(xp.uint32) << 16).view(xp.float32)
        return array

    def narrow(self, xp: Any, numbers: Any) -> Any:
        """Numbers, rounded to the nearest that can be stored, as they are stored."""
        if self.name != "bfloat16":
            return numbers.astype(self.stored, copy=False)
        on_host = numbers if xp is np else numbers.get()
        return xp.asarray(on_host.astype(ml_dtypes.bfloat16).view(np.uint16))


#: The element types by name; tf32 are floats of which a tensor core reads 10 bits.
ELEMENT_TYPES = {
    element.name: element
    for element in (
        ElementType("float", "float", np.dtype(np.float32)),
        ElementType("double", "double", np.dtype(np.float64)),
        ElementType("int32", "int", np.dtype(np.int32)),
        ElementType("int8", "signed char", np.dtype(np.int8)),
        ElementType("half", "__half", np.dtype(np.float16), "cuda_fp16.h"),
        ElementType("bfloat16", "__nv_bfloat16", np.dtype(np.uint16), "cuda_bf16.h"),
        ElementType("tf32", "float", np.dtype(np.float32)),
    )
}
#: Their names in NumPy and most languages, by those of C++.
ARRAY_NAMES = {element.cpp: element.array_name for element in ELEMENT_TYPES.values()}
#: The types of whole numbers that a kernel can be called with, in addition to the element types.
INTEGERS: dict[str, Any] = {
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
}


def number_types() -> tuple[str, ...]:
    """The types of numbers that a kernel can be called with."""
    return (*INTEGERS, *ELEMENT_TYPES)
