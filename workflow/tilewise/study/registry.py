"""Read kernels/registry.yaml and check its entries."""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.limits import EMULATED_LIMITS
from tilewise import KERNELS, UserError
from tilewise.study import columns, schema, tuning
from tilewise.study.device import EMULATED
from tilewise.study.expressions import CONSTANTS, FUNCTIONS, check
from tilewise.study.kernel import LIBRARIES, POINT_NAMES, Kernel, Kind, LaunchEntry, is_tensor_map
from tilewise.study.precision import PRECISIONS

#: Keys of an entry that describe a launch: the entry itself has them if there is only one.
LAUNCH_KEYS = "function template block covers grid cluster dynamic_shared_bytes arguments when note cooperative".split()

#: How a kernel waits for the launches before it.
WAITS = re.compile(r"griddepcontrol\.wait|cudaGridDependencySynchronize")


def parameters(kernels: Mapping[str, Kernel]) -> list[str]:
    """The names of all kernels' parameters that are columns, in the order of the registry."""
    names = (name for kernel in kernels.values() for name in kernel.columns)
    return [name for name in dict.fromkeys(names) if name not in ("block_x", "block_y")]


def load(folder: Path | str = KERNELS, checked: bool = False) -> dict[str, Kernel]:
    """The registry of a kernels folder as a dict from name to Kernel: registry.yaml, with the choices of tuned.yaml.

    `checked`: Snakemake checked the entries, their expressions and their sources when it started. Raises UserError if
    an entry is malformed, names a file that is not there or does not define its functions, or includes a header that is
    not there.
    """
    folder = Path(folder)
    path = folder / "registry.yaml"
    entries = schema.read(path, "registry", checked)
    chosen = tuning.choices_by_kernel(folder, checked)
    kernels = {name: _kernel(name, entry, folder, chosen.get(name, {})) for name, entry in entries.items()}
    if not checked:
        for kernel in kernels.values():
            _check_expressions(kernel, f"{path}: {kernel.name}")
            if kernel.source:
                _check_source(kernel, f"{path}: {kernel.name}")
    for name in chosen:
        if name not in kernels:
            raise UserError(f"{folder / tuning.TUNED}: there is no kernel '{name}' in {path}; correct or remove it")
    return kernels


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _kernel(name: str, entry: Mapping, folder: Path, tuned: Mapping) -> Kernel:
    place = f"{folder / 'registry.yaml'}: {name}"
    fields = {key: _frozen(value) for key, value in entry.items() if key not in LAUNCH_KEYS}
    if entry["kind"] != Kind.LIBRARY:
        alone = {key: value for key, value in entry.items() if key in LAUNCH_KEYS}
        if "launches" in entry and alone:
            raise UserError(f"{place}.{min(alone)}: an entry with `launches` says this in each of them; move it there")
        launches = entry.get("launches", [alone])
        fields["launches"] = tuple(
            LaunchEntry(**{"function": name} | {key: _frozen(value) for key, value in launch.items()})
            for launch in launches
        )
    space = {key: tuple(values) for key, values in entry.get("space", {}).items()}
    fields |= {"kind": Kind(entry["kind"]), "space_requires": space.pop("requires", ()), "space": space}
    kernel = Kernel(name=name, folder=folder, tuned=tuned, **fields)
    _check_names(kernel, place)
    _check_tuning(kernel, place)
    if kernel.kind == Kind.LIBRARY and kernel.library not in LIBRARIES:
        raise UserError(f"{place}.library: the libraries are {' and '.join(LIBRARIES)}; a kernel is cuda or host")
    return kernel


def _check_names(kernel: Kernel, place: str) -> None:
    device = set(EMULATED.numbers()) | set(EMULATED_LIMITS)
    taken = {**dict.fromkeys(columns.COLUMNS, "a column"), **dict.fromkeys(POINT_NAMES, "a number of every point")}
    taken |= {**dict.fromkeys(device, "a number of the device"), **dict.fromkeys(FUNCTIONS, "a function")}
    taken |= dict.fromkeys((*keyword.kwlist, *CONSTANTS), "a word of expressions")
    taken |= dict.fromkeys(set(kernel.parameters) & set(kernel.workspaces), "a parameter")
    for name in (*kernel.parameters, *kernel.workspaces):
        if name != "block" and (name in taken or name in ("A", "B", "C", "dtype")):
            raise UserError(f"{place}: '{name}' is {taken.get(name, 'an argument')} already; choose another name")
    for name in kernel.least:
        if name not in kernel.parameters or name == "block":
            raise UserError(f"{place}.least: '{name}' is not one of its parameters: {', '.join(kernel.parameters)}")
    known = {*POINT_NAMES, *kernel.columns}
    types = {PRECISIONS[dtype].cpp for dtype in kernel.dtypes}
    for launch in kernel.launches:
        for word in launch.template:
            if isinstance(word, str) and word != "dtype" and re.fullmatch(r"[A-Za-z_]\w*", word) and word not in known:
                raise UserError(
                    f"{place}.template: {word} is none of its parameters; a template is of dtype and its parameters"
                )
        needed = kernel.kind == Kind.HOST or (len(types) > 1 and _touches_operands(launch))
        if needed and "dtype" not in launch.template:
            raise UserError(f"{place}.template: dtype is missing; a kernel of several types is a template of dtype")


def _check_expressions(kernel: Kernel, place: str) -> None:
    """UserError for an expression that is malformed or names something unknown, also where no sweep needs its value."""
    of_point = {*POINT_NAMES, *kernel.columns}
    of_device = {*of_point, *EMULATED.numbers()}
    found: list[tuple[str, Any, set[str]]] = [("requires", each, of_point) for each in kernel.requires]
    found += [("space.requires", each, of_point) for each in kernel.space_requires]
    for name, entry in kernel.workspaces.items():
        found += [(f"workspaces.{name}.shape", each, of_device) for each in entry["shape"]]
    found += [(f"ld.{name}", each, of_point) for name, each in kernel.ld.items()]
    for key, launch in kernel.entries():
        found += [(f"{key}template", each, of_point) for each in launch.template if each != "dtype"]
        found.append((f"{key}when", launch.when, of_point))
        found.append((f"{key}dynamic_shared_bytes", launch.dynamic_shared_bytes, of_device))
        for name in ("block", "covers", "grid", "cluster"):
            found += [(f"{key}{name}", each, of_device) for each in getattr(launch, name)]
        for argument in launch.arguments:
            for each in _expressions_of(argument, kernel):
                found.append((f"{key}arguments", each, of_device | {*kernel.scalars}))
    for key, expression, names in found:
        try:
            check(expression, names)
        except UserError as error:
            raise UserError(f"{place}.{key}: {error}") from None


def _expressions_of(argument: Any, kernel: Kernel) -> list[Any]:
    if is_tensor_map(argument):
        return [*argument["box"], *argument.get("strides", ()), argument.get("swizzle", 0)]
    if isinstance(argument, Mapping) and "struct" in argument:
        return [each for member in argument["struct"] for each in _expressions_of(member, kernel)]
    if isinstance(argument, Mapping):
        return list(argument.values())
    return [] if argument in ("A", "B", "C", *kernel.workspaces) else [argument]


def _check_tuning(kernel: Kernel, place: str) -> None:
    takes = ", ".join(kernel.parameters) or "no parameter"
    choices = {f"{place}.space": kernel.space} if kernel.space else {}
    for gpu, types in kernel.tuned.items():
        for dtype, classes in types.items():
            at = f"{kernel.folder / tuning.TUNED}: {gpu}.{kernel.name}.{dtype}"
            if dtype not in kernel.dtypes:
                raise UserError(f"{at}: the kernel takes {', '.join(kernel.dtypes)}; correct or remove it")
            choices |= {f"{at}.{name}": choice for name, choice in classes.items()}
    for at, choice in choices.items():
        for name in (*choice, *kernel.parameters):
            if name not in kernel.parameters:
                raise UserError(f"{at}: '{name}' is not one of its parameters; {kernel.name} takes {takes}")
            if name not in choice:
                raise UserError(f"{at}: '{name}' is missing; {kernel.name} takes {takes}")
            values: Any = choice[name] if isinstance(choice[name], tuple) else [choice[name]]
            for value in values:
                least = kernel.least.get(name, 1)
                if isinstance(value, str) != (name == "block") or (name != "block" and value < least):
                    right = "text such as 32x8" if name == "block" else f"a whole number of at least {least}"
                    raise UserError(f"{at}.{name}: {value!r}; {kernel.name} takes {right}")


def _touches_operands(launch: LaunchEntry) -> bool:
    """Whether the launch is called with A, B or C, whose type its function must then know."""
    return any(_names(argument) & {"A", "B", "C"} for argument in launch.arguments)


def _names(argument: Any) -> set[str]:
    if isinstance(argument, Mapping):
        return set().union(*map(_names, argument.get("struct", [argument.get("tensor_map")])))
    return {argument}


def _check_source(kernel: Kernel, place: str) -> None:
    if not kernel.path.is_file():
        raise UserError(f"{place}.source: there is no file {kernel.path}; add it or correct the name")
    text = "\n".join(kernel.code)
    if kernel.dependent and not WAITS.search(text):
        raise UserError(
            f"{place}.dependent: {kernel.path} never waits for earlier launches (griddepcontrol.wait); let each "
            "function wait before it touches global memory, or remove the key"
        )
    for launch in kernel.launches:
        own = launch.function.rsplit("::", 1)[-1]
        if not re.search(rf"\b{own}\s*\(", text):
            raise UserError(
                f"{place}: {kernel.path} defines no function '{launch.function}'; entry and function must agree"
            )
