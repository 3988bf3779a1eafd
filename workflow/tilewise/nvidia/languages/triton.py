"""Compile Triton's kernels, and Gluon's, which is Triton's lower level, to cubins.

An instance is written like one of CUDA C++: `matmul<float, 128, 128, 32, 8, ieee, 4, 3, true>` is the element type, the
function's constexpr parameters in their order, num_warps, num_stages, and whether its whole numbers are multiples of
16, which lets Triton copy 16 bytes at a time (its launcher would look at every argument).
"""

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from kernelscope.element_types import ARRAY_NAMES
from tilewise import UserError
from tilewise.study.kernel import Kernel
from tilewise.study.precision import PRECISIONS

#: Triton's names of element types, by those of C++: fp32, bf16, i8.
_ELEMENTS = {
    cpp: name.replace("bfloat", "bf").replace("float", "fp").replace("int", "i") for cpp, name in ARRAY_NAMES.items()
}
#: Triton's names of the types of whole numbers that a launch may pass.
_TRITON_TYPES = {"int": "i32", "signed char": "i8", "unsigned": "u32", "int64": "i64", "uint64": "u64"}
#: Pointers to scratch memory, which every kernel of Triton takes last: for tensor maps that it makes itself, and for
#: its profiler. Who needs none passes {uint64: 0}.
HIDDEN_ARGUMENTS = 2


def compile_cubin(kernel: Kernel, function: Any, words: Sequence[str], capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance; the entry has the symbol, the dynamic shared bytes and the threads of a block."""
    import triton
    from triton.backends.compiler import GPUTarget

    if function.is_gluon():
        from triton.experimental.gluon import GluonASTSource as Source  # Triton 3.6 has none
    else:
        from triton.compiler import ASTSource as Source

    element, *constants, warps, stages, aligned = words
    name = function.__name__
    free = [parameter.name for parameter in function.params if not parameter.is_constexpr]
    fixed = [parameter.name for parameter in function.params if parameter.is_constexpr]
    types, scratch_bytes = _types(kernel, name, element)
    if len(types) != len(free) or len(constants) != len(fixed):
        raise UserError(
            f"{name} takes {len(free)} arguments and {len(fixed)} constants ({', '.join(fixed)}); the entry "
            f"gives {len(types)} and {len(constants)}, with {HIDDEN_ARGUMENTS} times {{uint64: 0}} after the arguments"
        )
    signature = dict(zip(free, types)) | dict.fromkeys(fixed, "constexpr")
    divisible = [name for name, type in zip(free, types) if type.startswith("*") or aligned == "true"]
    attributes = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    values = {
        (function.arg_names.index(name),): int(word) if word.lstrip("-").isdigit() else word
        for name, word in zip(fixed, constants)
    }
    signature = {name: signature[name] for name in function.arg_names}
    options = {"num_warps": int(warps), "num_stages": int(stages), "enable_fp_fusion": True}
    target = GPUTarget("cuda", int(capability.replace(".", "")), 32)
    before = triton.knobs.cache.dir
    with tempfile.TemporaryDirectory() as cache:
        triton.knobs.cache.dir = cache
        try:
            found = triton.compile(Source(function, signature, values, attributes), target=target, options=options)
        finally:
            triton.knobs.cache.dir = before
        facts, cubin = found.metadata, found.asm["cubin"]
    if facts.global_scratch_size > scratch_bytes or facts.profile_scratch_size or facts.num_ctas != 1:
        raise UserError(
            f"it needs {facts.global_scratch_size} B of scratch memory per block and clusters of {facts.num_ctas}; the "
            f"entry gives {scratch_bytes} B, in rows of a workspace of int8 before the last argument, and no clusters"
        )
    return cubin, {"symbol": facts.name, "dynamic_shared_bytes": facts.shared}


def _types(kernel: Kernel, name: str, element: str) -> tuple[list[str], int]:
    """Triton's types of the arguments that the registry passes, without the hidden ones; scratch bytes of a block."""
    [entry] = [entry for entry in kernel.launches if entry.function == name][:1]
    types = []
    scratch = entry.arguments[-HIDDEN_ARGUMENTS]
    scratch_bytes = kernel.workspaces[scratch]["shape"][-1] if isinstance(scratch, str) else 0
    for argument in entry.arguments[:-HIDDEN_ARGUMENTS]:
        if isinstance(argument, Mapping):
            [kind] = argument
            types.append(_TRITON_TYPES.get(kind) or _ELEMENTS[element if kind == "dtype" else PRECISIONS[kind].cpp])
        else:
            types.append(f"*{_ELEMENTS[element]}" if argument in ("A", "B", "C", *kernel.workspaces) else "i32")
    return types, scratch_bytes
