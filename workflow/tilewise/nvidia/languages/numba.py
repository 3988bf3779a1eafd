"""Compile Numba's kernels, to PTX by Numba and to a cubin by NVIDIA's linker.

An instance is `tiled<float, 32>`: the element type, then whole numbers. The function of that name in the kernel's file
is called with Numba's type and the numbers, and returns the kernel, which takes A, B and C as arrays of two
dimensions. Numba passes an array as nine numbers, which the registry spells.
"""

import re
from collections.abc import Sequence
from typing import Any

from kernelscope.element_types import ARRAY_NAMES
from tilewise.nvidia.nvrtc import assemble
from tilewise.study.kernel import Kernel


def compile_cubin(kernel: Kernel, function: Any, words: Sequence[str], capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance; the entry has the symbol."""
    from numba import cuda, types

    element, *numbers = words
    array = types.Array(getattr(types, ARRAY_NAMES[element]), 2, "C")
    ptx, _ = cuda.compile(
        function(array.dtype, *map(int, numbers)),
        types.void(array, array, array),
        device=False,
        abi="numba",
        cc=tuple(map(int, capability.split("."))),
    )
    [symbol] = re.findall(r"\.visible \.entry (\w+)", ptx)
    return assemble(ptx, f"sm_{capability.replace('.', '')}"), {"symbol": symbol}
