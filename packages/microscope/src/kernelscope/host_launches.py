"""What the host code of a CUDA file launches, and what it does with the arrays that it gives to launches."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tree_sitter import Node

from kernelscope.argument_values import element_type
from kernelscope.expressions import NOT_KNOWN, split
from kernelscope.host_values import Expression, Host, Scope, arguments_of, size_of_type
from kernelscope.syntax import nodes_of, text_of


@dataclass(frozen=True)
class HostLaunch:
    """A launch as it is written: the kernel without its namespaces, the template's arguments, what stands in <<<...>>>,
    the arguments, the scope, the place and the line, and whether the blocks of the grid wait for each other."""

    function: str
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    scope: Scope
    at: int
    line: int
    is_cooperative: bool = False

    def extents(self, host: Host, number: int) -> list[Expression]:
        """The parts of the grid, number 0, or of the block, 1; none if it lacks them. Raises Unknown."""
        return [
            part for text in self.configuration[number : number + 1] for part in host.extents(text, self.scope, self.at)
        ]


@dataclass(frozen=True)
class Array:
    """An array of the GPU's: its bytes, None if not known, and what it holds before a launch."""

    bytes: int | None
    holds: str


def launches(host: Host) -> list[HostLaunch]:
    """The launches of a file, in the order of its functions."""
    found = []
    for function in host.functions.values():
        for call in nodes_of(function, "call_expression"):
            scope, inner, is_cooperative = host.scope(function), _launched(call), False
            if inner:
                kernel, how, given = (
                    text_of(inner.child_by_field_name("function")),
                    arguments_of(inner),
                    arguments_of(call),
                )
            elif by_api := re.fullmatch(
                r"cudaLaunch(Cooperative)?Kernel", text_of(call.child_by_field_name("function"))
            ):
                kernel, grid, block, array, *rest = [*arguments_of(call), "", "", "", ""]
                kernel, how = re.sub(r"^\(.*?\)\s*|^&", "", kernel), [grid, block, rest[0] or "0"]
                held, is_cooperative = host.definition(array, scope, call.start_byte), bool(by_api[1])
                given = [each.removeprefix("&") for each in split(held.value[1:-1])] if held else []
            else:
                continue
            name, _, template = kernel.partition("<")
            found.append(
                HostLaunch(
                    name.split("::")[-1].strip(),
                    tuple(split(template.removesuffix(">"))),
                    tuple(how),
                    tuple(given),
                    scope,
                    call.start_byte,
                    host.text.count("\n", 0, call.start_byte) + 1,
                    is_cooperative,
                )
            )
    return found


def variables_of_gpu(host: Host) -> dict[str, str]:
    """The variables of the GPU that the host fills, with values in words."""
    found = {}
    for call in nodes_of(host.root, "call_expression"):
        name = "".join(arguments_of(call)[:1])
        held = host.file.names.get(name, ())
        if text_of(call.child_by_field_name("function")) == "cudaMemcpyToSymbol" and held:
            element, *sizes = re.split(r"[\[\]]+", held[0].type.rstrip("]"))
            counts = [host.known(Expression(size, host.file, 0)) for size in sizes]
            if element_type(element) and counts and None not in counts:
                found[name] = f"{element}[{prod(int(count or 0) for count in counts)}]:random"
    return found


def origin(host: Host, text: str, scope: Scope) -> tuple[str, Scope]:
    """The name of an array where it is allocated, and the function there."""
    plain = re.sub(r"^(?:thrust::)?\w*cast(?:<[^>]*>)?|^\([^()]*\*\)", "", text)
    found = re.search(r"[A-Za-z_]\w*(?:(?:\.|->)\w+(?!\w*\())*", plain)
    name = found[0] if found else ""
    if name in scope.parameters and scope.caller:
        return origin(host, scope.parameters[name], scope.caller)
    return name, scope


def array_of(host: Host, text: str, scope: Scope, before: Sequence[str]) -> Array:
    """What is known of the array that an argument points to; `before` are arrays of earlier launches."""
    name, where = origin(host, text, scope)
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.])")
    size, holds, is_allocated, is_managed = None, "random" if name in before else "", False, False
    launching = {key for key, each in host.functions.items() if any(map(_launched, nodes_of(each, "call_expression")))}
    nodes = [where.node, *(each for each in host.functions.values() if each != where.node)] if name else []
    for around, call in [(each, call) for each in nodes for call in nodes_of(each, "call_expression")]:
        function, arguments = text_of(call.child_by_field_name("function")), arguments_of(call)
        is_filler = not re.match(r"cuda|f?printf|free|delete|.*\(", function) and function not in launching
        if is_managed and is_filler and word.search(" ".join(arguments)):
            holds = "random"
        if not arguments or not word.search(arguments[0]):
            continue
        if re.match(r"cuda(?:Malloc|HostAlloc|MallocManaged)", function) and len(arguments) > 1 and size is None:
            there = where if around == where.node else host.scope(around)
            text = arguments[1]
            if function == "cudaMallocPitch":
                text = f"{text.removeprefix('&')} * ({arguments[3]})"
            size, is_allocated = host.known(Expression(text, there, call.end_byte)), True
            is_managed = "Managed" in function or "Host" in function
            stored = rf"(?:{word.pattern}\s*\[[^\]]*\]|\*\s*{word.pattern})\s*[^=\s]?=[^=]"
            if is_managed and re.search(stored, host.text):
                holds = "random"
        if function.startswith("cudaMemcpy") and "DeviceToHost" not in arguments[-1]:
            holds = "random"
        if function.startswith("cudaMemset"):
            holds = holds or "zero"
    held = host.definition(name, where, len(host.text))
    if held and (vector := re.search(r"\bdevice_vector<(.*)>$", held.type)):
        with contextlib.suppress(*NOT_KNOWN):
            size = host.length(name, where, len(host.text)) * (size_of_type(vector[1]) or 4)
    return Array(None if size is None else int(size), holds if is_allocated else "random")


def _launched(call: Node) -> Node | None:
    """The call `f(grid, block)` in what readable() makes of a launch; None if a call is no launch."""
    function = call.child_by_field_name("function")
    return function if function is not None and function.type == "call_expression" else None
