"""Compile cuTile's kernels to cubins, by its export and the package nvidia-cuda-tileiras.

An instance is `matmul<float, 128, 128, 32, 1, true>`: the element type, the function's constants in their order, and
whether rows of all arrays begin at multiples of 16 elements, which cuTile's launcher would look at. Of an array, the
function is called with its place, its shape and its pitches as numbers of 32 bits, which the registry spells. A block
has as many threads as the compiler likes; a launch says 1.
"""

import io
from collections.abc import Sequence
from typing import Any

from kernelscope.element_types import ARRAY_NAMES
from tilewise.study.kernel import Kernel

#: Every array of a product begins at a multiple of so many bytes.
_ALIGNED_BYTES = 256


def compile_cubin(kernel: Kernel, function: Any, words: Sequence[str], capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance; the entry has the symbol."""
    import cuda.tile as ct
    from cuda.tile.compilation import (
        ArrayConstraint,
        CallingConvention,
        ConstantConstraint,
        KernelSignature,
        export_kernel,
    )

    element, *constants, aligned = words
    array = ArrayConstraint(
        getattr(ct, ARRAY_NAMES[element]),
        2,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(None, 1),
        stride_divisible_by=(16 if aligned == "true" else 1, 1),
        base_addr_divisible_by=_ALIGNED_BYTES,
    )
    symbol = kernel.name
    signature = KernelSignature(
        [array, array, array, *(ConstantConstraint(int(word)) for word in constants)],
        calling_convention=CallingConvention.cutile_python_v1(),
        symbol=symbol,
    )
    cubin = io.BytesIO()
    export_kernel(function, [signature], cubin, gpu_code=f"sm_{capability.replace('.', '')}", output_format="cubin")
    return cubin.getvalue(), {"symbol": symbol}
