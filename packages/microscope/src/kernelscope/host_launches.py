"""What the host code of a CUDA file launches, as far as it is constant, and the command lines that trace it."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import ceil, floor, prod, sqrt
from operator import add, and_, eq, ge, gt, le, lshift, lt, mod, mul, ne, or_, rshift, sub, xor
from pathlib import Path
from typing import Any

from tree_sitter import Node

from kernelscope.argument_values import element_type, example
from kernelscope.cpp import display_path
from kernelscope.declarations import Function, Parameter, declarators, find_function, name_of, nodes_of, parse, text_of
from kernelscope.host_code import DEFINE, items, readable, types_of
from kernelscope.sources import Source, code_of

#: The most threads, and elements of an array, that a proposal has: more take minutes.
MOST = 2**16
#: What stands for a size that only the program itself can say.
UNKNOWN = 64
_DEPTH = 40

Number = int | float
#: The fields of a parameter that is a struct, by the function's instance and the parameter's number.
Structs = Callable[[str, int], Mapping[str, Parameter]]
Dim = tuple[Number, ...]


@dataclass(frozen=True)
class Definition:
    """A name's type and value, as they are written, and where."""

    type: str
    value: str
    at: int


@dataclass(frozen=True)
class Scope:
    """The names of a function of the host and what its parameters are given, or of the file."""

    node: Node
    names: Mapping[str, Sequence[Definition]]
    parameters: Mapping[str, str] = field(default_factory=dict)
    caller: "Scope | None" = None
    called_at: int = 0


@dataclass(frozen=True)
class Array:
    """An array of the GPU's: its bytes, None if not known, and what it holds before a launch."""

    bytes: int | None
    holds: str


@dataclass(frozen=True)
class Proposal:
    """A launch as options of the command: function, grid, block, bytes of dynamic shared memory, and arguments in
    words; `line` is where it stands, `smaller` says what is smaller than there, `large` that a trace takes long,
    `unknown` what is a guess."""

    function: str
    grid: Dim
    block: Dim
    shared: int
    arguments: Mapping[str, str]
    variables: Mapping[str, str]
    line: int
    smaller: Mapping[str, tuple[Number, Number]]
    large: str
    unknown: Sequence[str]

    @property
    def threads(self) -> int:
        """The threads of the grid."""
        return int(prod(self.grid) * prod(self.block))

    def command(self, file: Path, program: str = "kernelscope") -> str:
        """The command line."""
        words = [program, display_path(file), "--function", self.function]
        words += ["--grid", _by(self.grid), "--block", _by(self.block)]
        words += ["--shared", str(self.shared)] if self.shared else []
        words += [word for name, value in self.arguments.items() for word in ("--arg", f"{name}={value}")]
        words += [word for name, value in self.variables.items() for word in ("--variable", f"{name}={value}")]
        return shlex.join(words)


class _Unknown(Exception):
    """A value that no constant gives."""


NOT_KNOWN = (_Unknown, ArithmeticError, ValueError, TypeError, RecursionError)


class Host:
    """The host code of a text: the functions, launches and constants in it. `smaller` values replace those of the
    text."""

    def __init__(self, text: str, smaller: Mapping[str, Number]) -> None:
        self.text, self.smaller = readable(text), smaller
        self.root = parse(self.text)
        self.macros = dict(DEFINE.findall(self.text))
        self.file = Scope(self.root, _definitions(self.root, functions=False))
        declared = items(text)
        self._gpu = [item.node for item in declared if item.is_gpu]
        of_host = [item.node for item in declared if not item.is_gpu]
        found = [each for node in of_host for each in nodes_of(node, "function_definition")]
        self.functions = {_called(each): each for each in found}
        self.leaves: set[str] = set()

    @cached_property
    def of_gpu(self) -> set[str]:
        """The macros and constants of the file that code of the GPU uses."""
        bodies = self.macros | {name: held[0].value for name, held in self.file.names.items()}
        found: set[str] = set()
        for node in self._gpu:
            heads = nodes_of(node, "parameter_declaration")
            own = {name_of(each) for p in heads if (each := p.child_by_field_name("declarator"))}
            found |= set(re.findall(r"[A-Za-z_]\w*", text_of(node))) - own
        while new := {word for name in found & bodies.keys() for word in re.findall(r"\w+", bodies[name])} - found:
            found |= new
        return found & bodies.keys()

    def leaf(self, name: str) -> Number | None:
        """The value of a name of `leaves`; None if it differs from place to place."""
        held = {
            each.value
            for scope in map(self.scope, self.functions.values())
            for each in scope.names.get(name, ())
            if each.value and each.type
        }
        try:
            return self.value(held.pop() if len(held) == 1 else name, self.file, len(self.text))
        except NOT_KNOWN:
            return None

    def launches(self) -> list[tuple[Node, Scope]]:
        """The calls that are launches, and where they stand."""
        found = []
        for function in self.functions.values():
            for call in nodes_of(function, "call_expression"):
                if _is_launch(call):
                    found.append((call, self.scope(function)))
        return found

    def variables(self) -> dict[str, str]:
        """The variables of the GPU that the host fills, with values in words."""
        found = {}
        for call in nodes_of(self.root, "call_expression"):
            name = text_of(_arguments(call)[0]) if _arguments(call) else ""
            held = self.file.names.get(name, ())
            if text_of(call.child_by_field_name("function")) == "cudaMemcpyToSymbol" and held:
                element, *sizes = re.split(r"[\[\]]+", held[0].type.rstrip("]"))
                try:
                    count = prod(int(self.value(size, self.file, 0)) for size in sizes)
                except NOT_KNOWN:
                    continue
                if element_type(element) and sizes:
                    found[name] = f"{element}[{count}]:random"
        return found

    def scope(self, function: Node, depth: int = 0) -> Scope:
        """The names of a function, with what its first call gives its parameters."""
        name = _called(function)
        heads = nodes_of(function, "function_declarator")[:1]
        listed = heads[0].child_by_field_name("parameters") if heads else None
        own = (
            [name_of(each) if (each := p.child_by_field_name("declarator")) else "" for p in listed.named_children]
            if listed
            else []
        )
        for caller in self.functions.values() if depth < 8 else ():
            if caller == function:
                continue
            for call in nodes_of(caller, "call_expression"):
                called = call.child_by_field_name("function")
                if called is not None and re.sub(r"<.*>$|^.*::", "", text_of(called)) == name:
                    values = dict(zip(own, map(text_of, _arguments(call)), strict=False))
                    outer = self.scope(caller, depth + 1)
                    return Scope(function, _definitions(function), values, outer, call.start_byte)
        return Scope(function, _definitions(function), {"argc": "1"} if name == "main" else {})

    def value(self, text: str, scope: Scope, at: int, depth: int = 0) -> Number:
        """The number that an expression has at a place of a scope. Raises _Unknown."""
        if depth > _DEPTH:
            raise _Unknown
        root = parse(f"auto emulator_value = {text};")
        found = nodes_of(root, "init_declarator")
        value = found[0].child_by_field_name("value") if found else None
        if value is None or root.has_error:
            raise _Unknown
        return self._of(value, scope, at, depth + 1)

    def dim(self, text: str, scope: Scope, at: int, depth: int = 0) -> Dim:
        """The numbers of an expression of type dim3 or int."""
        if depth > _DEPTH:
            raise _Unknown
        text = text.strip()
        if made := re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", text, re.DOTALL):
            parts = _split(made[1])
            if len(parts) > 1 or text.startswith("dim3"):
                return tuple(self.value(part, scope, at, depth + 1) for part in parts) or (1,)
        if re.fullmatch(r"[A-Za-z_]\w*", text):
            if text in scope.parameters and scope.caller:
                return self.dim(scope.parameters[text], scope.caller, scope.called_at, depth + 1)
            if text not in self.smaller and (held := self._definition(text, scope, at)):
                return (
                    self._members(text, self.dim(held.value, scope, held.at, depth + 1), scope, at)
                    if held.value
                    else self._members(text, (1, 1, 1), scope, at)
                )
        return (self.value(text, scope, at, depth + 1),)

    def _members(self, name: str, dim: Dim, scope: Scope, at: int) -> Dim:
        """Sizes whose members are assigned one by one."""
        sizes = [*dim, 1, 1, 1][:3]
        for i, member in enumerate("xyz"):
            if held := self._definition(f"{name}.{member}", scope, at):
                sizes[i] = self.value(held.value, scope, held.at)
        return tuple(sizes)

    def _definition(self, name: str, scope: Scope, at: int) -> Definition | None:
        for names in (scope.names, self.file.names):
            before = [each for each in names.get(name, ()) if each.at < at or names is self.file.names]
            if before:
                return next(
                    (each for each in reversed(before) if each.value and each.type),
                    next((each for each in reversed(before) if each.value), before[-1]),
                )
        return None

    def _named(self, name: str, scope: Scope, at: int, depth: int) -> Number:
        if name in self.smaller:
            return self.smaller[name]
        if name in scope.parameters and scope.caller:
            return self.value(scope.parameters[name], scope.caller, scope.called_at, depth)
        if name in scope.parameters:
            return int(scope.parameters[name])
        held = self._definition(name, scope, at)
        text = held.value.strip() if held else self.macros.get(name, "").replace("\\\n", " ").strip()
        if not text:
            raise _Unknown
        text = text[1:-1] if text.startswith("{") else text
        found = self.value(text, scope if held else self.file, held.at if held else at, depth)
        if not re.search(r"[A-Za-z_]\w*", re.sub(r"\b(?:0x)?[\da-fA-F.]+[uUlLfF]*\b|\b\d[\de.+-]*f?", "", text)):
            self.leaves.add(name)
        return found

    def _of(self, node: Node, scope: Scope, at: int, depth: int) -> Number:
        """The value of a node of an expression."""

        def part(name: str) -> Number:
            child = node.child_by_field_name(name)
            if child is None:
                raise _Unknown
            return self._of(child, scope, at, depth)

        text = text_of(node)
        match node.type:
            case "number_literal":
                return _literal(text)
            case "true" | "false":
                return int(text == "true")
            case "parenthesized_expression":
                return self._of(node.named_children[0], scope, at, depth)
            case "identifier" | "qualified_identifier":
                return self._named(text, scope, at, depth)
            case "field_expression":
                return self._member(node, scope, at, depth)
            case "cast_expression":
                value = part("value")
                is_real = re.search("float|double", text_of(node.child_by_field_name("type")))
                return float(value) if is_real else int(value)
            case "conditional_expression":
                return part("consequence" if part("condition") else "alternative")
            case "unary_expression" if text[0] in "+-!~":
                value = part("argument")
                return {"+": value, "-": -value, "!": int(not value), "~": ~int(value)}[text[0]]
            case "binary_expression":
                return _calculated(text_of(node.child_by_field_name("operator")), part("left"), part("right"))
            case "sizeof_expression":
                return self._size(node, scope, at, depth)
            case "call_expression":
                return self._call(node, scope, at, depth)
        raise _Unknown

    def _member(self, node: Node, scope: Scope, at: int, depth: int) -> Number:
        base, member = (text_of(node.child_by_field_name(name)) for name in ("argument", "field"))
        if member in ("x", "y", "z"):
            dim = self.dim(base, scope, at, depth)
            return (*dim, 1, 1, 1)["xyz".index(member)]
        if (held := self._definition(f"{base}.{member}", scope, at)) and held.value:
            return self.value(held.value, scope, held.at, depth)
        raise _Unknown

    def _size(self, node: Node, scope: Scope, at: int, depth: int) -> int:
        inside = re.sub(r"^sizeof\s*\(?\s*|\s*\)$", "", text_of(node))
        if (size := size_of_type(inside)) is not None:
            return size
        element = re.fullmatch(r"\*\s*(\w+)|(\w+)\s*\[[^\]]*\]", inside)
        if element and (held := self._definition(element[1] or element[2], scope, at)):
            size = size_of_type(re.sub(r"(?:\*|\[[^\]]*\])$", "", held.type))
            if size is not None:
                return size
        if held := self._definition(inside, scope, at):
            if array := re.fullmatch(r"(.*?)((?:\[[^\]]*\])+)", held.type):
                sizes = [self.value(each, scope, at, depth) for each in re.findall(r"\[([^\]]*)\]", array[2])]
                return int(prod(sizes)) * (size_of_type(array[1]) or 4)
            if (size := size_of_type(held.type)) is not None:
                return size
        raise _Unknown

    def _call(self, node: Node, scope: Scope, at: int, depth: int) -> Number:
        name = text_of(node.child_by_field_name("function"))
        texts = list(map(text_of, _arguments(node)))
        name = name.removeprefix("std::").removeprefix("::")
        if (body := self.macros.get(name, "").replace("\\\n", " ")).startswith("("):
            named, _, body = body[1:].partition(")")
            given = dict(zip([each.strip() for each in named.split(",")], texts))
            return self.value(
                re.sub(r"\w+", lambda word: f"({given[word[0]]})" if word[0] in given else word[0], body),
                scope,
                at,
                depth,
            )
        if name in self.functions:
            function = self.functions[name]
            returned = nodes_of(function, "return_statement")
            heads = nodes_of(function, "parameter_declaration")
            names = [name_of(each) for p in heads if (each := p.child_by_field_name("declarator"))]
            if not returned or not returned[0].named_children:
                raise _Unknown
            inner = Scope(function, _definitions(function), dict(zip(names, texts)), scope, at)
            return self.value(text_of(returned[0].named_children[0]), inner, returned[0].start_byte, depth)
        values = [self.value(each, scope, at, depth) for each in texts]
        plain = re.sub(r"<.*>$", "", name)
        calls = {"ceil": ceil, "ceilf": ceil, "floor": floor, "sqrt": sqrt, "min": min, "max": max, "pow": pow}
        if plain in calls and values:
            return calls[plain](*values)  # type: ignore[operator]
        if (plain == "static_cast" or size_of_type(name) is not None) and len(values) == 1:
            return float(values[0]) if re.search("float|double", name) else int(values[0])
        raise _Unknown

    def origin(self, text: str, scope: Scope) -> tuple[str, Scope]:
        """The name of an array where it is allocated, and the function there."""
        plain = re.sub(r"^(?:thrust::)?\w*cast(?:<[^>]*>)?|^\([^()]*\*\)", "", text)
        found = re.search(r"[A-Za-z_]\w*(?:(?:\.|->)\w+(?!\w*\())*", plain)
        name = found[0] if found else ""
        if name in scope.parameters and scope.caller:
            return self.origin(scope.parameters[name], scope.caller)
        return name, scope

    def array(self, text: str, scope: Scope, before: Sequence[str]) -> Array:
        """What is known of the array that an argument points to; `before` are arrays of earlier launches."""
        name, where = self.origin(text, scope)
        word = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.])")
        size, holds, is_allocated = None, "random" if name in before else "", False
        is_managed = False
        launching = {
            name for name, each in self.functions.items() if any(map(_is_launch, nodes_of(each, "call_expression")))
        }
        nodes = [where.node, *(each for each in self.functions.values() if each != where.node)] if name else []
        for around, call in [(each, call) for each in nodes for call in nodes_of(each, "call_expression")]:
            function = text_of(call.child_by_field_name("function"))
            arguments = list(map(text_of, _arguments(call)))
            is_filler = not re.match(r"cuda|f?printf|free|delete|.*\(", function) and function not in launching
            if is_managed and is_filler and word.search(" ".join(arguments)):
                holds = "random"
            if not arguments or not word.search(arguments[0]):
                continue
            if re.match(r"cuda(?:Malloc|HostAlloc|MallocManaged)", function) and len(arguments) > 1 and size is None:
                size, is_allocated = (
                    self._bytes(arguments[1], where if around == where.node else self.scope(around), call.start_byte),
                    True,
                )
                is_managed = "Managed" in function or "Host" in function
                if is_managed and re.search(
                    rf"(?:{word.pattern}\s*\[[^\]]*\]|\*\s*{word.pattern})\s*[^=\s]?=[^=]", self.text
                ):
                    holds = "random"
            if function.startswith("cudaMemcpy") and "DeviceToHost" not in arguments[-1]:
                holds = "random"
            if function.startswith("cudaMemset"):
                holds = holds or "zero"
        return Array(size, holds if is_allocated else "random")

    def _bytes(self, text: str, scope: Scope, at: int) -> int | None:
        try:
            return int(self.value(text, scope, at))
        except NOT_KNOWN:
            return None


def size_of_type(text: str) -> int | None:
    """The bytes of a type in C++, None if it is not known."""
    plain = " ".join(re.sub(r"\b(?:const|volatile|static|struct|register)\b|__restrict__", "", text).split())
    if plain.endswith("*"):
        return 8
    found = element_type(plain)
    return found[0].itemsize * found[1] if found else None


def proposed(source: Source, functions: Mapping[str, Function], structs: Structs, wanted: str | None) -> str:
    """What the host code of a file launches, of the function `wanted` if there is one, as a message with the command
    lines that trace it; "" if it launches nothing."""
    every = proposals(source, functions, structs)
    found = [each for each in every if wanted in (None, each.function.partition("<")[0])]
    if not found:
        return ""
    lines = [f"{display_path(source.path)}:{found[0].line}: code of the host is not run; to trace what it launches:"]
    lines += [f"  {each.command(source.path)}" for each in found]
    if smaller := [f"{name} {here} instead of {there}" for name, (there, here) in found[0].smaller.items()]:
        why = "" if found[0].large else ", for a trace of seconds"
        lines.append(f"  (smaller than in the file{why}: {', '.join(smaller)})")
    lines += [f"  ({found[0].large})"] if found[0].large else []
    if any(value.endswith(":random") for each in found for value in each.arguments.values()):
        lines.append("  (random: what the host writes into these arrays is not known here)")
    if guesses := dict.fromkeys(guess for each in found for guess in each.unknown):
        lines.append(f"  (guesses, because the file has no constants for them: {', '.join(guesses)})")
    return "\n".join(lines)


def proposals(source: Source, functions: Mapping[str, Function], structs: Structs) -> list[Proposal]:
    """What the host code of a file launches, each function and size once, smaller if it would take minutes."""
    text = "\n".join(code_of(each) for each in (*source.files[1:], source.path))
    before = text.count("\n") - code_of(source.path).count("\n")
    unique: dict[tuple[object, ...], Proposal] = {}
    for each in _small_enough(text, functions, structs):
        own = (each.function, each.grid, each.block, each.shared)
        unique.setdefault(own, replace(each, line=each.line - before))
    return list(unique.values())


def _small_enough(text: str, functions: Mapping[str, Function], structs: Structs) -> list[Proposal]:
    """The launches of a text. If one has more than MOST threads or elements, the largest of the numbers on which sizes
    depend are halved: none on which a block depends or which the kernels' code has, and two at once if an array has as
    many elements as their product says."""
    types = types_of(text)
    text = re.sub(r"\w+", lambda word: types.get(word[0], word[0]), text)
    host = Host(text, {})
    found = _proposals(host, functions, structs, types)
    blocks, there = [each.block for each in found], {name: host.leaf(name) for name in sorted(host.leaves)}
    here = {name: number for name, number in there.items() if isinstance(number, int) and name not in host.of_gpu}

    def halved(measures: int) -> tuple[list[Proposal], dict[str, int]] | None:
        """The launches, and the numbers, with the first halving that lowers the cost by its first `measures`."""
        names = sorted((name for name, number in here.items() if number >= 32), key=lambda each: -here[each])
        alike = [tuple(name for name in names if here[name] == number) for number in set(here.values())]
        for together in dict.fromkeys([*combinations(names, 1), *alike, *combinations(names, 2)]):
            smaller = here | {name: here[name] // 2 for name in together}
            changed = {name: number for name, number in smaller.items() if number != there[name]}
            tried = _proposals(Host(text, changed), functions, structs, types)
            is_like = [each.block for each in tried] == blocks and all(map(_has_sizes_of, tried, found))
            if is_like and _cost(tried)[:measures] < _cost(found)[:measures]:
                of_file = {name: (there[name] or 0, number) for name, number in changed.items()}
                return [replace(each, smaller=of_file) for each in tried], smaller
        return None

    while found and max(map(_work, found)) > MOST:
        if not (better := halved(1) or halved(2)):
            words = "a trace may take minutes"
            if fixed := sorted(name for name in host.leaves & host.of_gpu if (there[name] or 0) > UNKNOWN):
                words += f"; for a shorter one make {', '.join(fixed)} smaller in the file, because kernels use them"
            return [replace(each, large=words) for each in found]
        found, here = better
    return found


def _numbers(one: Proposal) -> tuple[dict[str, int], dict[str, int]]:
    """The whole numbers and the elements of the arrays that a launch is given, by parameter."""
    whole = {name: int(value) for name, value in one.arguments.items() if value.isdigit()}
    sizes = {name: int(size[1]) for name, value in one.arguments.items() if (size := re.search(r"\[(\d+)\]", value))}
    return whole, sizes


def _has_sizes_of(one: Proposal, other: Proposal) -> bool:
    """Whether each array whose size is a product of numbers of another launch has that of the same ones in this."""
    (numbers, sizes), (others, other_sizes) = _numbers(one), _numbers(other)
    return all(
        prod(numbers.get(name, 0) for name in names) == sizes.get(array)
        for count in (1, 2, 3)
        for names in combinations(others, count)
        for array, size in other_sizes.items()
        if prod(others[name] for name in names) == size and 1 not in map(others.get, names)
    )


def _work(one: Proposal) -> int:
    """Threads, or elements of the largest array."""
    return max(one.threads, *_numbers(one)[1].values(), 0)


def _cost(found: Sequence[Proposal]) -> tuple[int, int]:
    """The most work of a launch, then that of all: their threads, and the elements of their arrays."""
    return max(map(_work, found)), sum(each.threads + sum(_numbers(each)[1].values()) for each in found)


def _proposals(
    host: Host, functions: Mapping[str, Function], structs: Structs, types: Mapping[str, str]
) -> list[Proposal]:
    found: list[Proposal] = []
    before: list[str] = []
    for call, scope in host.launches():
        called, _, instance = text_of(_function_of(_function_of(call))).partition("<")
        name = find_function(functions, called.split("::")[-1].strip())
        if name:
            instance = instance.removesuffix(">")
            found.append(_proposal(host, call, scope, functions[name], instance, structs, types, before))
    return found


def _proposal(
    host: Host,
    call: Node,
    scope: Scope,
    function: Function,
    instance: str,
    structs: Structs,
    types: Mapping[str, str],
    before: list[str],
) -> Proposal:
    """A launch as a Proposal; its arrays are added to those `before`."""
    template = _template(host, scope, function, instance, call.start_byte)
    words = {**types, **template}
    how = list(map(text_of, _arguments(_function_of(call))))
    unknown: list[str] = []
    arguments: dict[str, str] = {}

    def number(text: str, guess: Number) -> Number:
        try:
            return host.value(text, scope, call.start_byte)
        except NOT_KNOWN:
            unknown.append(text)
            return guess

    def sizes(text: str, guess: Dim) -> Dim:
        try:
            return tuple(max(1, int(each)) for each in host.dim(text, scope, call.start_byte))
        except NOT_KNOWN:
            unknown.append(text)
            return guess

    block = sizes(how[1] if len(how) > 1 else "1", (256,))
    is_plane = prod(block[1:2]) > 1
    grid = sizes(how[0], tuple(max(1, UNKNOWN // int(size)) for size in block[:2]) if is_plane else (4,))

    def give(name: str, parameter: Parameter, text: str) -> None:
        """Add what a parameter, or a field of a struct, is given."""
        value = example(parameter, words, 1, "")
        if parameter.is_pointer:
            array, width = host.array(text, scope, before), size_of_type(value.partition("[")[0]) or 4
            if not array.bytes:
                unknown.append(f"the size of {text}")
            elif re.search(r"\w\s*\+|&\s*\w+\s*\[", text):
                unknown.append(f"the array's begin, which is {text}")
            numbers = [int(each) for each in arguments.values() if each.isdigit()]
            least = max(UNKNOWN**2, int(prod(grid) * prod(block)), *(each for each in numbers if each <= 2**24))
            elements = array.bytes // width if array.bytes else least
            holds = array.holds or ("random" if "const" in parameter.type.split() else "")
            arguments[name] = example(parameter, words, max(1, elements), holds)
            before.append(host.origin(text, scope)[0])
        elif value in ("1", "1.0"):
            worth = number(text, float(value) if "." in value else UNKNOWN)
            arguments[name] = str(float(worth) if "." in value else int(worth))
        elif value:
            arguments[name] = value

    named = function.name + (f"<{', '.join(template.values())}>" if template else "")
    given: list[tuple[str, Parameter, str]] = []
    for place, (parameter, argument) in enumerate(zip(function.parameters, _arguments(call), strict=False)):
        if example(parameter, words):
            given.append((parameter.name, parameter, text_of(argument)))
        else:
            fields = structs(named, place).items()
            given += [(f"{parameter.name}.{name}", each, f"{text_of(argument)}.{name}") for name, each in fields]
    for name, parameter, text in sorted(given, key=lambda each: each[1].is_pointer):  # arrays may need the numbers
        give(name, parameter, text)
    arguments = {name: arguments[name] for name, *_ in given if name in arguments}
    shared = int(number(how[2], 0)) if len(how) > 2 else 0
    line = host.text.count("\n", 0, call.start_byte) + 1
    return Proposal(named, grid, block, shared, arguments, host.variables(), line, {}, "", unknown)


def _template(host: Host, scope: Scope, function: Function, written: str, at: int) -> dict[str, str]:
    """The arguments of a template by name, in the launch or by default; float for a type that the host's function is
    a template of."""
    around = text_of(scope.node.parent) if scope.node.parent else ""
    types = dict.fromkeys(re.findall(r"(?:typename|class)\s+(\w+)", around.partition("(")[0]), "float")
    given = _split(written)
    found: dict[str, str] = {}
    for number, parameter in enumerate(function.template):
        text = given[number] if number < len(given) else parameter.default
        if parameter.type in ("typename", "class"):
            found[parameter.name] = re.sub(r"\w+", lambda word: types.get(word[0], word[0]), text or "float")
            continue
        try:
            found[parameter.name] = str(int(host.value(text, scope, at)))
        except NOT_KNOWN:
            found[parameter.name] = text or "16"
    return found


def _called(function: Node) -> str:
    """The name of a function."""
    return "".join(name_of(each) for each in declarators(function)[:1])


def _is_launch(call: Node) -> bool:
    return _function_of(call).type == "call_expression"


def _function_of(call: Node) -> Node:
    """What is called."""
    function = call.child_by_field_name("function")
    assert function is not None  # as the grammar has it
    return function


def _definitions(node: Node, functions: bool = True) -> dict[str, list[Definition]]:
    """The variables of a function, or of the file outside of functions, and what is assigned to them."""
    found: dict[str, list[Definition]] = {}
    for each in nodes_of(node, "declaration"):
        if not functions and _in_function(each):
            continue
        words = " ".join(
            text_of(child)
            for child in each.children
            if child.type not in ("init_declarator", ";", ",") and not child.type.endswith("declarator")
        )
        for declarator in declarators(each):
            rest = text_of(declarator)
            name = name_of(declarator)
            sizes = "".join(re.findall(r"\[[^\]]*\]", rest.partition("=")[0]))
            value = declarator.child_by_field_name("value")
            if value is None and declarator.type == "function_declarator":
                value = declarator.child_by_field_name("parameters")
            star = "*" if "*" in rest.partition(name)[0] else ""
            found.setdefault(name, []).append(Definition(words + star + sizes, text_of(value), each.start_byte))
    for each in nodes_of(node, "assignment_expression") if functions else ():
        left, right = each.child_by_field_name("left"), each.child_by_field_name("right")
        if left is not None and text_of(each.child_by_field_name("operator")) == "=":
            while right is not None and right.type == "assignment_expression":
                right = right.child_by_field_name("right")
            found.setdefault(text_of(left), []).append(Definition("", text_of(right), each.start_byte))
    return found


def _in_function(node: Node) -> bool:
    while node := node.parent:  # type: ignore[assignment]
        if node.type == "compound_statement":
            return True
    return False


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [each for each in listed.named_children if each.type != "comment"] if listed else []


def _split(text: str) -> list[str]:
    """Parts between the commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([{<") - (sign in ")]}>")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _literal(text: str) -> Number:
    plain = text.replace("'", "")
    if re.fullmatch(r"(?:0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]*", plain):
        digits = re.sub(r"[uUlLzZ]+$", "", plain)
        return int(digits, 8) if re.fullmatch(r"0[0-7]+", digits) else int(digits, 0)
    try:
        return float(re.sub(r"[fFlL]$", "", plain))
    except ValueError:
        raise _Unknown from None


def _calculated(operator: str, left: Number, right: Number) -> Number:
    if operator == "/":
        return left / right if isinstance(left, float) or isinstance(right, float) else left // right
    whole = {"%": mod, "<<": lshift, ">>": rshift, "&": and_, "|": or_, "^": xor}
    if operator in whole:
        return int(whole[operator](int(left), int(right)))
    known: dict[str, Callable[[Any, Any], Any]] = {
        **{"+": add, "-": sub, "*": mul, "<": lt, ">": gt, "<=": le, ">=": ge, "==": eq, "!=": ne},
        **{"&&": lambda one, other: one and other, "||": lambda one, other: one or other},
    }
    if operator not in known:
        raise _Unknown
    found = known[operator](left, right)
    return int(found) if isinstance(found, bool) else found


def _by(sizes: Dim) -> str:
    last = max((i for i, size in enumerate(sizes) if size != 1), default=0)
    return "x".join(str(int(size)) for size in sizes[: last + 1])
