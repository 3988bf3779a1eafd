"""Compile Triton's kernels to cubins, ahead of time: that needs neither a driver nor a GPU, only the wheel.

An instance is written like one of CUDA C++: `matmul<float, 128, 128, 32, 8, ieee, 4, 3, true>` is the element type, the
function's constexpr parameters in their order, num_warps, num_stages, and whether its whole numbers are multiples of
16, which lets Triton copy 16 bytes at a time (its launcher would look at every argument).
"""

import importlib.util
import re
import tempfile
from collections.abc import Mapping
from typing import Any

from tilewise import UserError
from tilewise.study.kernel import Kernel
from tilewise.study.precision import PRECISIONS

DISTRIBUTION = "triton"
#: Triton's names of element types, by those of C++.
_ELEMENTS = {
    "float": "fp32",
    "double": "fp64",
    "int": "i32",
    "signed char": "i8",
    "__half": "fp16",
    "__nv_bfloat16": "bf16",
}
#: Triton's names of the types of whole numbers that a launch may pass.
_TRITON_TYPES = {"int": "i32", "signed char": "i8", "unsigned": "u32", "int64": "i64", "uint64": "u64"}
#: Pointers to scratch memory, which every kernel of Triton takes last; ours need none and pass {uint64: 0}.
HIDDEN_ARGUMENTS = 2


def missing() -> str:
    """Why Triton's kernels cannot be compiled here; empty if they can."""
    if importlib.util.find_spec("triton"):
        return ""
    return (
        "the Python package triton is missing: `pip install -r requirements/triton.txt`, then run with "
        "`--forcerun measure`"
    )


def compile_cubin(kernel: Kernel, instance: str, capability: str) -> tuple[bytes, dict[str, Any]]:
    """Compile one instance for a compute capability such as "9.0"; needs the package triton.

    Returns the cubin and its entry for `build`: symbol and dynamic shared bytes. Raises UserError with the
    compiler's last line.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    place = f"{kernel.path}: {instance}"
    name, words = re.fullmatch(r"(\w+)<(.*)>", instance).groups()  # type: ignore[union-attr]
    element, *constants, warps, stages, aligned = words.split(", ")
    try:
        function = getattr(_module(kernel), name)
        free = [parameter.name for parameter in function.params if not parameter.is_constexpr]
        fixed = [parameter.name for parameter in function.params if parameter.is_constexpr]
    except Exception as error:  # whatever the user's module does
        raise UserError(f"{place}: {kernel.source} cannot be read: {error}") from None
    types = _types(kernel, name, element)
    if len(types) != len(free) or len(constants) != len(fixed):
        raise UserError(
            f"{place}: {name} takes {len(free)} arguments and {len(fixed)} constants ({', '.join(fixed)}); the entry "
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
            found = triton.compile(ASTSource(function, signature, values, attributes), target=target, options=options)
        except Exception as error:  # of MLIR, LLVM and ptxas
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise UserError(f"{place} does not compile for sm_{target.arch}: {said[-1]}") from None
        finally:
            triton.knobs.cache.dir = before
        facts, cubin = found.metadata, found.asm["cubin"]
    if facts.global_scratch_size or facts.profile_scratch_size or facts.num_ctas != 1:
        raise UserError(
            f"{place}: it needs scratch memory or clusters, which the study does not give to Triton's kernels"
        )
    return cubin, {"symbol": facts.name, "dynamic_shared_bytes": facts.shared}


def _module(kernel: Kernel) -> Any:
    spec = importlib.util.spec_from_file_location(f"tilewise_kernel_{kernel.path.stem}", kernel.path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _types(kernel: Kernel, name: str, element: str) -> list[str]:
    """Triton's types of the arguments that the registry passes, without the hidden ones."""
    [entry] = [entry for entry in kernel.launches if entry.function == name][:1]
    types = []
    for argument in entry.arguments[:-HIDDEN_ARGUMENTS]:
        if isinstance(argument, Mapping):
            [kind] = argument
            types.append(_TRITON_TYPES.get(kind) or _ELEMENTS[element if kind == "dtype" else PRECISIONS[kind].cpp])
        else:
            types.append(f"*{_ELEMENTS[element]}" if argument in ("A", "B", "C") else "i32")
    return types
