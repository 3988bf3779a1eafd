"""Compile kernels of CuTe DSL, CUTLASS's language in Python, to cubins.

An instance is `naive<float, 32, 8>`: the element type, then whole numbers. The function of that name in the kernel's
file is called with the DSL's type and the numbers, and returns what the DSL calls a host function, of the places of A,
B and C and of n, p and m, which launches one kernel. The study launches that kernel itself, with the numbers that the
compiler leaves of its tensors, which the registry spells.
"""

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from kernelscope.element_types import ARRAY_NAMES
from tilewise import UserError
from tilewise.study.kernel import Kernel

_ALIGNED_TO = 16


def compile_cubin(kernel: Kernel, function: Any, words: Sequence[str], capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance; the entry has the symbol."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_ptr

    element, *numbers = words
    name = ARRAY_NAMES[element].replace("float", "Float")  # Float32, BFloat16
    type = getattr(cutlass, name[0].upper() + name[1:])
    place = make_ptr(type, _ALIGNED_TO, cute.AddressSpace.gmem, assumed_align=_ALIGNED_TO)
    size = cutlass.Int32(1)
    arch = f"sm_{capability.replace('.', '')}a"
    with tempfile.TemporaryDirectory() as folder:
        options = f"--gpu-arch {arch} --keep-cubin --dump-dir {folder}"
        cute.compile(function(type, *map(int, numbers)), place, place, place, size, size, size, options=options)
        found = [path.read_bytes() for path in Path(folder).glob("*.cubin")]
    if len(found) != 1:
        raise UserError(f"it makes {len(found)} cubins; a host function launches one kernel")
    [symbol] = [
        section.name.removeprefix(".text.")
        for section in ELFFile(io.BytesIO(found[0])).iter_sections()
        if section.name.startswith(".text.")
    ]
    return found[0], {"symbol": symbol}
