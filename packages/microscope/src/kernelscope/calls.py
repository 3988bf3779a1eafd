"""Calls of any kernel: a file, its functions, their launches and arguments."""

import difflib
import math
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope.argument_values import GivenArray, by_parameter, example, fit_shape, load, read_argument
from kernelscope.compile import build_traced, functions, layouts_of
from kernelscope.cpp import check as check_compiler
from kernelscope.cpp import display_path
from kernelscope.declarations import check_file, find_function
from kernelscope.emulator import FLOATING
from kernelscope.errors import UserError
from kernelscope.fault_kinds import FaultKind
from kernelscope.formats import Report
from kernelscope.launch import Argument, Array, Launch, Three, Value
from kernelscope.limits import MAX_CLUSTER_BLOCKS
from kernelscope.program import Arrays, Operand, Program, check_memory
from kernelscope.sources import Source
from kernelscope.struct_fields import gather_fields, root_of, value_of
from kernelscope.struct_layouts import Layouts
from kernelscope.tracer import SEED, Tracer
from kernelscope.unset import faults_of_variables

Sizes = int | str | Sequence[int]


@dataclass(frozen=True)
class Call:
    """One launch of a function, such as `scale<float>`, by default of the only one or of the one with the file's name:
    its grid and block as 4, "4x2" or (4, 2), its dynamic shared memory in bytes, and the names of what it is called
    with, in the order of its parameters; by default their own."""

    function: str | None = None
    grid: Sizes = 1
    block: Sizes = 1
    arguments: Sequence[str] | None = None
    shared: int = 0
    cluster: Sizes | None = None
    cooperative: bool = False


class Library:
    """Functions of a CUDA file, compiled so that they can be traced; `build` makes one."""

    def __init__(self, source: Source, wanted: Sequence[str | None]) -> None:
        self.source = source
        self.declared = functions(source)
        self.instances = {name: self._instance(self._only() if name is None else name) for name in wanted or [None]}
        self.built = list(dict.fromkeys(self.instances.values()))
        self._folder = tempfile.TemporaryDirectory()
        self.path = self._build(f"{source.path.stem}.so")

    @cached_property
    def zeroed(self) -> Path:
        """The same functions with variables without a value as zeros."""
        return self._build(f"{self.source.path.stem}.zeroed.so", zeroed=True)

    def _build(self, name: str, zeroed: bool = False) -> Path:
        return build_traced(self.source, self.built, Path(self._folder.name, name), zeroed)

    def instance(self, function: str | None) -> str:
        """The instance that a name stands for; of a library of one, None does, too."""
        if function in self.instances:
            return self.instances[function]
        if function in self.built:
            return function
        if function is None and len(self.built) == 1:
            return self.built[0]
        what = "several functions were built" if function is None else f"'{function}' was not built"
        raise UserError(f"{display_path(self.source.path)}: {what}; name one of {', '.join(self.built)}")

    @cached_property
    def layouts(self) -> Layouts:
        """The types of the functions' parameters, and the structs of the file."""
        return layouts_of(self.source, self.built)

    def types(self, calls: Iterable[Call]) -> dict[str, np.dtype]:
        """The types of the parameters by the names of what they are called with."""
        found: dict[str, np.dtype] = {}
        for call in calls:
            found |= zip(self.names(call, ()), self.layouts.parameters[self.instance(call.function)], strict=False)
        return found

    def names(self, call: Call, values: Iterable[str]) -> list[str]:
        """The arguments of a function, from these values: by default, values by the names of its parameters,
        or in their order if one has no name."""
        declared = self.declared[self.instance(call.function).split("<")[0]].parameters
        names = [parameter.name for parameter in declared]
        return list(values if "" in names else names) if call.arguments is None else list(call.arguments)

    def read(self, values: Mapping[str, Any], folder: Path | str = ".") -> dict[str, Any]:
        """Arguments or variables by name as `read_argument` reads them, which documents the errors; the fields of a
        dict get a name each."""
        return {
            name: read_argument(name, value, Path(folder), SEED, lambda: self.layouts.structs)
            for name, value in _flat(values).items()
        }

    def _only(self) -> str:
        """The function to call if none is named."""
        return self._function(self.source.path.stem) if len(self.declared) != 1 else next(iter(self.declared))

    def _function(self, name: str) -> str:
        if found := find_function(self.declared, name):
            return found
        if not self.declared:
            raise UserError(f"{display_path(self.source.path)}: there is no __global__ function in it")
        near = difflib.get_close_matches(name, self.declared, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.declared)}; name one by --function"
        raise UserError(f"{display_path(self.source.path)}: there is no __global__ function '{name}'; {hint}")

    def _instance(self, written: str) -> str:
        name, bracket, arguments = written.partition("<")
        found = self._function(name.strip())
        wanted = self.declared[found].template
        if wanted and not bracket:
            example = ", ".join("float" if p.type in ("typename", "class") else p.name or "16" for p in wanted)
            raise UserError(
                f"{display_path(self.source.path)}: {found} is a template; name an instance: '{found}<{example}>'"
            )
        return f"{found}{bracket}{arguments}"


def build(file: Path | str, *names: str | None, includes: Sequence[Path | str] = ()) -> Library:
    """Compile functions of a CUDA file, such as `scale` or `scale<float, 16>`, to be traced; without a name, or for
    None, the only one, or the one that is called as the file. `includes` are folders of headers.

    Raises UserError if the file is not there or does not compile, and for a function that it has not.
    """
    check_compiler()
    path = Path(file)
    check_file(path)
    return Library(Source(path, includes=tuple(map(Path, includes))), names)


def trace(
    source: Library | Path | str,
    calls: Call | Sequence[Call],
    arguments: Mapping[str, Any] | None = None,
    *,
    variables: Mapping[str, Any] | None = None,
    expect: Mapping[str, Any] | None = None,
    tolerance: float = 0.0,
    limit: float = 0.0,
    folder: Path | str = ".",
) -> Report:
    """Run launches of a CUDA file with every access to memory watched; returns a Report.

    `source` is a file or what `build` made of it; `calls` are the launches in their order. `arguments`, by the names
    of the parameters, and `variables`, which are __constant__ or __device__, are read by
    `kernelscope.argument_values.read_argument`. `expect` holds what arrays should be at the end: arrays, .npy files, or
    functions of a dict of all arrays as they are at first; each element may differ by `tolerance` * (1 + |expected|).
    `limit` is as of a Tracer; files lie in `folder`.
    Raises UserError for what does not fit together, LaunchError for a launch that a device would refuse.
    """
    if isinstance(calls, str):
        raise UserError(f"a launch is a Call, not text; write Call('{calls}', grid=4, block=256) with its own numbers")
    ordered = [calls] if isinstance(calls, Call) else calls
    library = source if isinstance(source, Library) else build(source, *(call.function for call in ordered))
    tracer = Tracer(library.path, library.source, limit)
    given, held = library.read(arguments or {}, folder), library.read(variables or {}, folder)
    right = {name: partial(_expected, name, value, Path(folder)) for name, value in (expect or {}).items()}

    def make(of: Tracer) -> Given:
        return program_of(library, of, ordered, given, held, right, tolerance)

    program = make(tracer)
    row, faults = tracer.trace(program)
    unjudged = [name for name in tracer.results if name not in right]
    if tracer.unset and unjudged:
        found = faults_of_variables(tracer, library.zeroed, make, unjudged)
        faults += found
        row["uninitialised"] += len(found)
    point = {
        "launches": [_shown(launch) for launch in program.launches],
        "arguments": {
            name: str(value) for name, value in _flat(arguments or {}).items() if isinstance(value, str | int | float)
        },
    }
    return Report(program.label, point, row, faults, tracer.results)


def program_of(
    library: Library,
    tracer: Tracer,
    calls: Sequence[Call],
    arguments: Mapping[str, Any],
    variables: Mapping[str, Any],
    expect: Mapping[str, Callable[[Arrays], Any]],
    tolerance: float,
) -> "Given":
    """The program of some calls with arguments and variables that `Library.read` has read. `expect` are functions of
    all arrays at first; `trace` documents the rest, and the errors."""
    values = gather_fields(arguments, lambda: library.types(calls))
    pointed, pointers = _set_variables(library, tracer, variables)
    launches = [_launch(library, tracer, call, values) for call in calls]
    _refuse_unused(library, calls, values)
    if twice := values.keys() & pointed.keys():
        raise UserError(f"variable {min(twice)}: a parameter has this name, too; give one of them another")
    program = Given(_title(launches), launches, values | pointed, expect, tolerance)
    program.pointers_in_variables = pointers
    return program


class Given(Program):
    """Launches over given arrays, and the expected contents of these, if any."""

    def __init__(
        self,
        label: str,
        launches: Sequence[Launch],
        values: Mapping[str, Any],
        expect: Mapping[str, Callable[[Arrays], Any]],
        tolerance: float,
    ) -> None:
        arrays = {name: value for name, value in values.items() if isinstance(value, GivenArray)}
        _check_expected(expect, arrays)
        types = {np.dtype(f"f{size}"): cpp for (_, size), cpp in FLOATING.items()}
        own = [
            Operand(name, types.get(array.dtype, str(array.dtype)), array.dtype, array.shape, array.make is not None)
            for name, array in arrays.items()
        ]
        super().__init__(label, launches, own, max([1, *(min(8, each.dtype.itemsize) for each in own)]) if own else 4)
        check_memory(label, own)
        self.first = {name: array.make() for name, array in arrays.items() if array.make}
        self.pointers = {name: array.pointers for name, array in arrays.items() if array.pointers}
        self.const = [name for name, array in arrays.items() if array.const]
        self.tolerance = tolerance
        self.expect = {
            name: fit_shape(f"expected {name}", np.asarray(right(self.first)), arrays[name].dtype, arrays[name].shape)
            for name, right in expect.items()
        }

    def fill(self, arrays: Arrays) -> None:
        for name, pointers in self.pointers.items():
            data = bytearray(self.first[name].tobytes())
            for at, to in pointers:
                data[at : at + 8] = arrays[to].ctypes.data.to_bytes(8, "little")
            self.first[name] = np.frombuffer(data, self.first[name].dtype).reshape(self.first[name].shape)
        for operand in self.operands:
            if operand.name in self.first:
                # As bytes: what pads a struct, too.
                arrays[operand.name].view(np.uint8)[...] = self.first[operand.name].view(np.uint8)
            else:
                arrays[operand.name].view(np.uint8).fill(0xFF)

    def results(self, arrays: Arrays) -> dict[str, np.ndarray]:
        # As bytes, for the same reason.
        return {own.name: arrays[own.name].view(np.uint8).copy().view(own.dtype) for own in self.operands}

    def wrong(self, results: Arrays) -> str:
        for name in self.const:
            if at := _first_difference(results[name].view(np.uint8) != self.first[name].view(np.uint8)):
                at = (*at[:-1], at[-1] // results[name].itemsize)
                before, after = self.first[name][at], results[name][at]
                return f"{name} is const, but {_element(name, at)} was {before} and is {after}; no kernel may write it"
        for name, right in self.expect.items():
            if said := self._beside(name, results[name], right):
                return said
        return ""

    def differs(self, order: str, first: Arrays, results: Arrays) -> tuple[FaultKind, str, int] | None:
        text = "" if self.wrong(first) else self.wrong(results)
        return (self.kind, f"in {order} order of threads {text}", 1) if text else None

    def _beside(self, name: str, held: np.ndarray, right: np.ndarray) -> str:
        """What is wrong about an array, compared with what is expected."""
        one, other = (array.astype(np.float64 if array.dtype.kind != "c" else np.complex128) for array in (held, right))
        if self.tolerance:
            wrong = ~np.isclose(one, other, rtol=self.tolerance, atol=self.tolerance, equal_nan=True)
        else:
            wrong = (held != right) & ~((one != one) & (other != other))
        if not (at := _first_difference(wrong)):
            return ""
        text = f"{wrong.sum()} of {held.size} elements of {name} are not as expected"
        text += f"; {_element(name, at)} is {held[at]}, should be {right[at]}"
        untouched = (held.reshape(-1).view(np.uint8).reshape(held.size, -1) == 0xFF).all(axis=1).reshape(held.shape)
        return f"{text}; nothing has written them" if name not in self.first and untouched[wrong].all() else text


def _first_difference(differ: np.ndarray) -> tuple[int, ...]:
    """The place of the first element that differs; () if there is none."""
    return tuple(int(i) for i in np.unravel_index(int(differ.argmax()), differ.shape)) if differ.any() else ()


def _element(name: str, at: Iterable[int]) -> str:
    return f"{name}[{', '.join(map(str, at))}]"


def _check_expected(names: Iterable[str], arrays: Mapping[str, GivenArray]) -> None:
    """Raise UserError unless these are names of arrays whose elements can be compared."""
    for name in names:
        if name not in arrays:
            raise UserError(f"expected {name}: there is no array of that name; there are {', '.join(arrays) or 'none'}")
        if arrays[name].dtype.fields:
            raise UserError(f"expected {name}: its elements are structs, which are not compared; leave it out")


def _expected(name: str, right: Any, folder: Path, arrays: Arrays) -> Any:
    """What an array must hold at the end, if all arrays are these at first."""
    if callable(right):
        return right(arrays)
    return load(f"expected {name}", folder, right) if isinstance(right, str) else right


def _launch(library: Library, tracer: Tracer, call: Call, values: Mapping[str, Any]) -> Launch:
    """A launch as the emulator takes it. Raises UserError for what does not fit the function."""
    instance = library.instance(call.function)
    parameters = tracer.emulator.parameters[instance]
    names = library.names(call, values)
    if call.arguments is None and any(name not in values for name in names):
        types = zip(names, library.layouts.parameters[instance], strict=False)
        empty = {name: dtype for name, dtype in types if dtype.kind == "V" and not dtype.names and dtype.itemsize == 1}
        values = {name: Value(bytes(1), "o", "an empty struct") for name in empty} | dict(values)
    if call.arguments is None and (missing := [name for name in names if name not in values]):
        raise UserError(
            f"{instance} has the parameters {', '.join(names)}; nothing is given for {', '.join(missing)}; "
            f"for example {' '.join(_example(library, call, name) for name in missing)}"
        )
    if unknown := [name for name in names if name not in values]:
        raise UserError(f"{instance} is called with {unknown[0]}, which is not given; there are {', '.join(values)}")
    if len(names) != len(parameters):
        raise UserError(f"{instance} has {len(parameters)} parameters, and is called with {len(names)} arguments")
    arguments: list[Argument] = []
    for name, parameter in zip(names, parameters):
        value = values[name]
        if isinstance(value, GivenArray):
            arguments.append(Array(name))
        elif isinstance(value, Value):
            arguments.append(value)
        else:
            arguments.append(by_parameter(name, value, parameter.size, parameter.kind.decode()))
    grid, block = three_sizes(call.grid, "grid"), three_sizes(call.block, "block")
    cluster = three_sizes(call.cluster or tracer.emulator.attributes.get(instance, {}).get("cluster") or 1, "cluster")
    if math.prod(cluster) > MAX_CLUSTER_BLOCKS:
        raise UserError(f"cluster {_by(cluster)}: a device takes at most {MAX_CLUSTER_BLOCKS} blocks in a cluster")
    if any(size % part for size, part in zip(grid, cluster)):
        raise UserError(f"cluster {_by(cluster)}: a grid of {_by(grid)} blocks is not a multiple of it; round it up")
    return Launch(instance, block, grid, tuple(arguments), call.shared, cluster, cooperative=call.cooperative)


def _example(library: Library, call: Call, name: str) -> str:
    """The option that gives a parameter a value of its type."""
    base, _, given = library.instance(call.function).partition("<")
    function = library.declared[base]
    template = dict(zip((each.name for each in function.template), re.split(r"\s*,\s*", given.rstrip("> "))))
    parameter = next(each for each in function.parameters if each.name == name)
    if value := example(parameter, template):
        return f"--arg {shlex.quote(f'{name}={value}')}"
    fields = library.types([call])[name].names
    return f"--arg '{name}.{fields[0]}=...', of a struct each field" if fields else f"--arg {name}=64"


def _flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, where a dict is a struct: its fields get a name each."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        inner = _flat(value) if isinstance(value, Mapping) else {}
        found |= {f"{name}.{field}": each for field, each in inner.items()} or {name: value}
    return found


def _refuse_unused(library: Library, calls: Sequence[Call], values: Mapping[str, Any]) -> None:
    used = {name for call in calls for name in library.names(call, values)}
    for name in map(root_of, values):
        if name not in used:
            near = difflib.get_close_matches(name, used, n=1)
            takes = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(used)) or 'none'}"
            raise UserError(f"argument {name}: no function that is launched has a parameter of that name; {takes}")


def three_sizes(sizes: Sizes, what: str) -> Three:
    """Sizes along x, y and z, of 4, "4x2" or (4, 2). Raises UserError for anything else."""
    parts = (
        re.split(r"\s*[x,]\s*", sizes.strip()) if isinstance(sizes, str) else np.atleast_1d(np.asarray(sizes)).tolist()
    )
    if not 1 <= len(parts) <= 3 or not all(re.fullmatch(r"[1-9]\d{0,9}", str(part)) for part in parts):
        raise UserError(f"{what}: {sizes} is no size along x, y and z; write for example 4, 4x2 or 4x2x1")
    x, y, z = (*map(int, parts), 1, 1, 1)[:3]
    return x, y, z


def _by(sizes: Three) -> str:
    shown_sizes = sizes if sizes[2] > 1 else sizes[: 2 if sizes[1] > 1 else 1]
    return "x".join(map(str, shown_sizes))


def _title(launches: Iterable[Launch]) -> str:
    return ", ".join(f"{launch.instance}<<<{_by(launch.grid)}, {_by(launch.block)}>>>" for launch in launches)


def _shown(launch: Launch) -> dict[str, Any]:
    found = {"function": launch.instance, "grid": launch.grid, "block": launch.block, "cluster": launch.cluster}
    return found | {"shared": launch.dynamic_shared_bytes, "cooperative": launch.cooperative}


def _set_variables(
    library: Library, tracer: Tracer, read: Mapping[str, Any]
) -> tuple[dict[str, GivenArray], list[tuple[str, int, str]]]:
    """Write what the kernel's variables are to hold. Returns the arrays that their pointers are given, by name, and
    where the pointers are, as of a Program."""

    def types() -> dict[str, np.dtype]:
        found = dict(library.layouts.variables)
        return {name.rsplit("::", 1)[-1]: dtype for name, dtype in found.items()} | found

    arrays: dict[str, GivenArray] = {}
    pointers: list[tuple[str, int, str]] = []
    for name in dict.fromkeys(map(root_of, read)):
        held, own = tracer.emulator.variable(name), {path: read[path] for path in read if root_of(path) == name}
        value = own.setdefault(name, Value(bytes(held), "o", "what it holds"))
        if isinstance(value, GivenArray) and len(held) == 8 and types()[name].metadata:
            arrays[name] = value
            pointers.append((name, 0, name))
            continue
        if not isinstance(value, GivenArray | Value):
            own[name] = Value(value_of(name, value, types()[name]), "o", "a number")
        whole = gather_fields(own, types, "the file has no variable")
        arrays |= {path: each for path, each in whole.items() if path != name and isinstance(each, GivenArray)}
        data = _bytes_of(whole[name], name)
        if len(data) != len(held):
            what = f"the variable {name} has {len(held)} B, and is given {len(data)} B"
            raise UserError(f"{library.source.path.stem}: {what}")
        held[:] = data
        if isinstance(filled := whole[name], GivenArray | Value):
            pointers += [(name, at, path) for at, path in filled.pointers]
    return arrays, pointers


def _bytes_of(value: Any, name: str) -> bytes:
    """What a variable of the kernel is to hold."""
    if isinstance(value, GivenArray) and value.make:
        return value.make().tobytes()
    if isinstance(value, Value):
        return value.data
    raise UserError(f"variable {name}: say what it holds, such as 'float[16]:ramp' or 'int:64'")
