"""Command lines that trace what the host code of a CUDA file launches."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from pathlib import Path

from kernelscope.argument_values import example
from kernelscope.cpp import display_path
from kernelscope.declarations import Function, Parameter, find_function
from kernelscope.expressions import Number, Unknown
from kernelscope.host_code import types_of
from kernelscope.host_launches import HostLaunch, array_of, launches, origin, variables_of_gpu
from kernelscope.host_values import Expression, Host, size_of_type
from kernelscope.sources import Source, code_of
from kernelscope.syntax import text_of

#: The most threads, and elements of an array, that a proposal has: more take minutes.
MOST = 2**16
#: What stands for a size that only the program itself can say.
UNKNOWN = 64

#: The fields of a parameter that is a struct, by the function's instance and the parameter's number.
Structs = Callable[[str, int], Mapping[str, Parameter]]
Dim = tuple[int, ...]


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
    is_cooperative: bool

    @property
    def threads(self) -> int:
        """The threads of the grid."""
        return int(prod(self.grid) * prod(self.block))

    def command(self, file: Path, program: str = "kernelscope") -> str:
        """The command line."""
        words = [program, display_path(file), "--function", self.function]
        words += ["--grid", _by(self.grid), "--block", _by(self.block)]
        words += ["--shared", str(self.shared)] if self.shared else []
        words += ["--cooperative"] if self.is_cooperative else []
        words += [word for name, value in self.arguments.items() for word in ("--arg", f"{name}={value}")]
        words += [word for name, value in self.variables.items() for word in ("--variable", f"{name}={value}")]
        return shlex.join(words)


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
    host = Host(text)
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
    before: list[str] = []  # arrays of the launches so far
    for launch in launches(host):
        if name := find_function(functions, launch.function):
            found.append(_proposal(host, launch, functions[name], structs, types, before))
    return found


def _proposal(
    host: Host,
    launch: HostLaunch,
    function: Function,
    structs: Structs,
    types: Mapping[str, str],
    before: list[str],
) -> Proposal:
    """A launch as a Proposal; its arrays are added to those `before`."""
    scope, at = launch.scope, launch.at
    template = _template(host, launch, function)
    words = {**types, **template}
    unknown: list[str] = []
    arguments: dict[str, str] = {}

    def number(text: str, guess: Number) -> Number:
        value = host.known(Expression(text, scope, at))
        unknown.extend([text] if value is None else [])
        return guess if value is None else value

    def sizes(number: int, guess: Dim) -> Dim:
        try:
            values = [host.known(each) for each in launch.extents(host, number)]
        except Unknown:
            values = [None]
        if None not in values:
            return tuple(max(1, int(each or 0)) for each in values)
        unknown.append(launch.configuration[number])
        return guess

    block = sizes(1, (256,)) or (1,)
    is_plane = prod(block[1:2]) > 1
    grid = sizes(0, tuple(max(1, UNKNOWN // size) for size in block[:2]) if is_plane else (4,))

    def give(name: str, parameter: Parameter, text: str) -> None:
        """Add what a parameter, or a field of a struct, is given."""
        value = example(parameter, words, 1, "")
        if parameter.is_pointer:
            array, width = array_of(host, text, scope, before), size_of_type(value.partition("[")[0]) or 4
            if not array.bytes:
                unknown.append(f"the size of {text}")
            elif re.search(r"\w\s*\+|&\s*\w+\s*\[", text):
                unknown.append(f"the array's begin, which is {text}")
            numbers = [int(each) for each in arguments.values() if each.isdigit()]
            least = max(UNKNOWN**2, int(prod(grid) * prod(block)), *(each for each in numbers if each <= 2**24))
            elements = array.bytes // width if array.bytes else least
            holds = array.holds or ("random" if "const" in parameter.type.split() else "")
            arguments[name] = example(parameter, words, max(1, elements), holds)
            before.append(origin(host, text, scope)[0])
        elif value in ("1", "1.0"):
            worth = number(text, float(value) if "." in value else UNKNOWN)
            arguments[name] = str(float(worth) if "." in value else int(worth))
        elif value:
            arguments[name] = value

    named = function.name + (f"<{', '.join(template.values())}>" if template else "")
    given: list[tuple[str, Parameter, str]] = []
    for place, (parameter, argument) in enumerate(zip(function.parameters, launch.arguments, strict=False)):
        if example(parameter, words):
            given.append((parameter.name, parameter, argument))
        else:
            fields = structs(named, place).items()
            given += [(f"{parameter.name}.{name}", each, f"{argument}.{name}") for name, each in fields]
    for name, parameter, text in sorted(given, key=lambda each: each[1].is_pointer):  # arrays may need the numbers
        give(name, parameter, text)
    arguments = {name: arguments[name] for name, *_ in given if name in arguments}
    shared = int(number(launch.configuration[2], 0)) if len(launch.configuration) > 2 else 0
    variables, cooperative = variables_of_gpu(host), launch.is_cooperative
    return Proposal(named, grid, block, shared, arguments, variables, launch.line, {}, "", unknown, cooperative)


def _template(host: Host, launch: HostLaunch, function: Function) -> dict[str, str]:
    """The arguments of a template by name, in the launch or by default; float for a type that the host's function is
    a template of."""
    around = text_of(launch.scope.node.parent)
    types = dict.fromkeys(re.findall(r"(?:typename|class)\s+(\w+)", around.partition("(")[0]), "float")
    found: dict[str, str] = {}
    for number, parameter in enumerate(function.template):
        text = launch.template[number] if number < len(launch.template) else parameter.default
        if parameter.type in ("typename", "class"):
            found[parameter.name] = re.sub(r"\w+", lambda word: types.get(word[0], word[0]), text or "float")
            continue
        value = host.known(Expression(text, launch.scope, launch.at))
        found[parameter.name] = text or "16" if value is None else str(int(value))
    return found


def _by(sizes: Dim) -> str:
    last = max((i for i, size in enumerate(sizes) if size != 1), default=0)
    return "x".join(str(int(size)) for size in sizes[: last + 1])
