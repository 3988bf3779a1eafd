"""The kernels of the study, read from kernels/registry.yaml, and the launches that follow from an entry."""

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewise import KERNELS, UserError
from tilewise.study import columns, tuning
from tilewise.study.device import EMULATED_LIMITS, MAX_CLUSTER_BLOCKS, numbers
from tilewise.study.expressions import CONSTANTS, FUNCTIONS, LARGEST, ceil_div, check, evaluate
from tilewise.study.launch import Argument, Array, Launch, Number, TensorMap, Workspace, number_types
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.schema import read_yaml, validate
from tilewise.study.sources import code_of, files_of

#: What a library entry may call, and where it runs.
LIBRARIES = {"cublas": "gpu", "numpy": "cpu"}
#: What a kernel is called with unless its entry says otherwise.
DEFAULT_ARGUMENTS = ("A", "B", "C", "n", "p", "m")
#: Keys of an entry that describe a launch: they stand in the entry itself if it has only one.
LAUNCH_KEYS = "function template block covers grid cluster dynamic_shared_bytes arguments when note".split()
#: Names that an expression may use beside the parameters: those of a point, and of a device.
POINT_NAMES = ("n", "p", "m", "itemsize")
NOTHING: Mapping[str, int] = {}
SWIZZLES = (0, 32, 64, 128)
MAX_BOX = 256


@dataclass(frozen=True)
class LaunchEntry:
    """A launch as the registry says it, in expressions; the registry's head explains the keys."""

    function: str
    template: tuple = ()
    block: tuple = ()
    covers: tuple = ()
    grid: tuple = ()
    cluster: tuple = ()
    dynamic_shared_bytes: str | int = 0
    arguments: tuple = DEFAULT_ARGUMENTS
    when: str | bool = True
    note: str = ""


@dataclass(frozen=True)
class Kernel:
    """One entry of the registry; the registry's head explains the fields.

    The methods raise UserError, with the place in the registry, for an expression that cannot be evaluated or gives
    what no launch can have. `device` is the content of device.json; None stands for the emulated device. `tuned` is the
    kernel's part of tuned.yaml: choices by GPU, element type and class of shapes.
    """

    name: str
    title: str
    kind: str
    dtypes: tuple
    source: str | None = None
    parameters: tuple = ()
    least: Mapping[str, int] = field(default_factory=dict)
    space: Mapping[str, tuple] = field(default_factory=dict)
    space_requires: tuple = ()
    tuned: Mapping[str, Mapping] = field(default_factory=dict)
    launches: tuple[LaunchEntry, ...] = ()
    workspaces: Mapping[str, Mapping] = field(default_factory=dict)
    requires: tuple = ()
    reads_c: bool = False
    architecture: str | None = None
    capability: str | None = None
    emulated: bool = True
    reason: str = ""
    faulty: bool = False
    accuracy: Mapping[str, Any] = field(default_factory=dict)
    library: str | None = None
    folder: Path = KERNELS

    @property
    def path(self) -> Path:
        """The source file of a kernel that has one."""
        return self.folder / str(self.source)

    @property
    def files(self) -> list[Path]:
        """The source file and every file that it includes, at any depth; nothing for a library call."""
        return files_of(self.path) if self.source else []

    @cached_property
    def code(self) -> list[str]:
        """The texts of `files`, as they were when somebody first asked."""
        return [code_of(path) for path in self.files]

    @property
    def launched(self) -> bool:
        """Whether it is compiled for a GPU and launched there on a grid: of CUDA C++ or of Triton."""
        return self.kind in ("cuda", "triton")

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on the GPU, if there is one."""
        return self.launched or LIBRARIES.get(self.library or "") == "gpu"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold its parameters: one each, and block_x and block_y for `block`."""
        return tuple(c for name in self.parameters for c in (("block_x", "block_y") if name == "block" else (name,)))

    def claims_accuracy(self, operands: str, p: int) -> bool:
        """Whether it claims to be as accurate as SGEMM in sums of p products of this kind of operands."""
        return operands in self.accuracy.get("claims", ()) and p >= self.accuracy.get("from_p", 1)

    @cached_property
    def _place(self) -> str:
        return f"{self.folder / 'registry.yaml'}: {self.name}"

    # ---- Expressions ------------------------------------------------------------------------------------------------

    def variables(self, point: Point) -> dict[str, int]:
        """The numbers that every expression may use: the point's shape, its parameters, the element's size in bytes."""
        return point.shape | {"itemsize": PRECISIONS[point.dtype].itemsize} | dict(point.parameters)

    def _value(self, key: str, expression: Any, point: Point, of_device: Mapping[str, int] = NOTHING) -> Any:
        try:
            return evaluate(expression, {**of_device, **self.variables(point)})
        except (UserError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            why = error if isinstance(error, UserError) else f"'{expression}': {error} for {point.label()}"
            raise UserError(f"{self._place}.{key}: {why}") from None

    def _whole(
        self, key: str, expression: Any, point: Point, of_device: Mapping[str, int] = NOTHING, least: int = 1
    ) -> int:
        value = self._value(key, expression, point, of_device)
        if isinstance(value, int | float) and least <= value <= LARGEST and value == int(value):
            return int(value)
        bound = f"at most {LARGEST}" if isinstance(value, int | float) and value > LARGEST else f"at least {least}"
        raise UserError(
            f"{self._place}.{key}: '{expression}' is {value} for {point.label()}; it must be a whole number of {bound}"
        )

    def unmet(self, point: Point, tuning: bool = False) -> str | None:
        """The first condition that the point breaks: one of `requires`, or of a tensor map; None if there is none.

        The conditions of the tuner's `space` count only if `tuning`.
        """
        wanted = {"requires": self.requires} | ({"space.requires": self.space_requires} if tuning else {})
        for key, conditions in wanted.items():
            for condition in conditions:
                if not self._value(key, condition, point):
                    return condition
        described = any(isinstance(a, Mapping) and "tensor_map" in a for e in self.launches for a in e.arguments)
        for key, entry in self._serving(point) if described else ():
            for argument in entry.arguments:
                if isinstance(argument, Mapping) and "tensor_map" in argument:
                    broken = _broken(self._tensor_map(f"{key}arguments", argument, point, numbers(None)))
                    if broken:
                        return broken
        return None

    def covered(self, point: Point) -> list[int]:
        """The rows and columns of C that a block of each launch makes, as far as the launches say it."""
        sizes = ((f"{key}covers", size) for key, entry in self.entries() for size in entry.covers)
        return [value for key, size in sizes if isinstance(value := self._value(key, size, point, numbers(None)), int)]

    # ---- What runs --------------------------------------------------------------------------------------------------

    def at(self, point: Point, device: Mapping[str, Any] | None = None) -> tuple[Launch, ...]:
        """The launches that make the product of a point, in order; none for what is not launched on a grid."""
        if not self.launched:
            return ()
        of_device = numbers(device)
        return tuple(self._launch(key, entry, point, of_device) for key, entry in self._serving(point))

    def _serving(self, point: Point) -> list[tuple[str, LaunchEntry]]:
        """The entries of the launches that serve a point, each with the words before its keys in messages."""
        found = [(key, entry) for key, entry in self.entries() if self._value(f"{key}when", entry.when, point)]
        if not found:
            raise UserError(f"{self._place}.launches: none serves {point.label()}; correct the conditions in `when`")
        return found

    def product(self, point: Point, device: Mapping[str, Any] | None = None) -> Launch | None:
        """The launch that stands for the kernel in tables: that of the function named like it, else the last one."""
        return self.product_among(self.at(point, device))

    def product_among(self, launches: tuple[Launch, ...]) -> Launch | None:
        """The same, of a point's launches."""
        own = tuple(launch for launch in launches if launch.instance.split("<")[0] == self.name)
        return (own or launches)[-1] if launches else None

    def instances(self, point: Point) -> list[str]:
        """The C++ template instances that a point runs, in order: `tiled<float, 32>`."""
        entries = self._serving(point) if self.launched else self.entries()
        return list(dict.fromkeys(self._instance(key, entry, point) for key, entry in entries))

    def workspaces_at(self, point: Point, device: Mapping[str, Any] | None = None) -> tuple[Workspace, ...]:
        """The arrays that the kernel needs beside A, B and C."""
        of_device = numbers(device)
        return tuple(self._workspace(name, point, of_device) for name in self.workspaces)

    def entries(self) -> list[tuple[str, LaunchEntry]]:
        """The launches, each with the words before its keys in messages."""
        if len(self.launches) == 1:
            return [("", self.launches[0])]
        return [(f"launches.{number}.", entry) for number, entry in enumerate(self.launches)]

    def _instance(self, key: str, entry: LaunchEntry, point: Point) -> str:
        if not self.source:
            return self.name
        words = []
        for word in entry.template:
            value = PRECISIONS[point.dtype].cpp if word == "dtype" else self._value(f"{key}template", word, point)
            words.append(str(value).lower() if isinstance(value, bool) else str(value))
        return f"{entry.function}<{', '.join(words)}>" if words else entry.function

    def _launch(self, key: str, entry: LaunchEntry, point: Point, of_device: Mapping[str, int]) -> Launch:
        def three(name: str, expressions: tuple) -> tuple[int, int, int]:
            values = [self._whole(f"{key}{name}", expression, point, of_device) for expression in expressions]
            x, y, z = (*values, 1, 1, 1)[:3]
            return x, y, z

        if entry.grid:
            grid = three("grid", entry.grid)
        else:
            rows, columns = (self._whole(f"{key}covers", size, point, of_device) for size in entry.covers)
            grid = (ceil_div(point.m, columns), ceil_div(point.n, rows), 1)
        cluster = three("cluster", entry.cluster)
        blocks = cluster[0] * cluster[1] * cluster[2]
        if blocks > MAX_CLUSTER_BLOCKS:
            raise UserError(
                f"{self._place}.{key}cluster: {blocks} blocks for {point.label()}; a device takes at most "
                f"{MAX_CLUSTER_BLOCKS} in a cluster"
            )
        if any(size % part for size, part in zip(grid, cluster)):
            raise UserError(
                f"{self._place}.{key}cluster: a grid of {_by(grid)} blocks is not a multiple of clusters of "
                f"{_by(cluster)} for {point.label()}; round the grid up"
            )
        return Launch(
            self._instance(key, entry, point),
            three("block", entry.block),
            grid,
            tuple(self._argument(f"{key}arguments", argument, point, of_device) for argument in entry.arguments),
            self._whole(f"{key}dynamic_shared_bytes", entry.dynamic_shared_bytes, point, of_device, least=0),
            cluster,
            entry.note,
        )

    def _argument(self, key: str, argument: Any, point: Point, of_device: Mapping[str, int]) -> Argument:
        if isinstance(argument, Mapping) and "tensor_map" in argument:
            return self._tensor_map(key, argument, point, of_device)
        if isinstance(argument, Mapping):
            [(kind, expression)] = argument.items()
            return self._number(key, point.dtype if kind == "dtype" else kind, expression, point, of_device)
        if argument in ("A", "B", "C") or argument in self.workspaces:
            return Array(argument)
        return self._number(key, "int", argument, point, of_device)

    def _number(self, key: str, kind: str, expression: Any, point: Point, of_device: Mapping[str, int]) -> Number:
        if kind not in number_types():
            raise UserError(f"{self._place}.{key}: a number of type {kind}; there are {', '.join(number_types())}")
        if Number(kind, 0).whole:
            return Number(kind, self._whole(key, expression, point, of_device, least=-(2**63)))
        value = self._value(key, expression, point, of_device)
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
            return Number(kind, float(value))
        raise UserError(f"{self._place}.{key}: '{expression}' is {value} for {point.label()}; it must be a number")

    def _tensor_map(self, key: str, argument: Mapping, point: Point, of_device: Mapping[str, int]) -> TensorMap:
        name = argument["tensor_map"]
        operands: dict[str, tuple[int, ...]] = {
            "A": (point.n, point.p),
            "B": (point.p, point.m),
            "C": (point.n, point.m),
        }
        if name in operands:
            dtype, shape = point.dtype, operands[name]
        elif name in self.workspaces:
            workspace = self._workspace(name, point, of_device)
            dtype, shape = workspace.dtype, workspace.shape
        else:
            known = ", ".join([*operands, *self.workspaces])
            raise UserError(f"{self._place}.{key}: a tensor map of '{name}', which is not an array; there are {known}")
        box = tuple(self._whole(f"{key}.box", size, point, of_device) for size in argument["box"])
        strides = tuple(self._whole(f"{key}.strides", size, point, of_device) for size in argument.get("strides", ()))
        swizzle = self._whole(f"{key}.swizzle", argument.get("swizzle", 0), point, of_device, least=0)
        if len(box) != len(shape) or len(strides or box) != len(shape):
            raise UserError(f"{self._place}.{key}: the box of {name} has {len(box)} sizes; the array has {len(shape)}")
        if swizzle not in SWIZZLES:
            raise UserError(f"{self._place}.{key}.swizzle: {swizzle}; TMA has {', '.join(map(str, SWIZZLES))}")
        return TensorMap(name, dtype, shape, box, swizzle, strides)

    def _workspace(self, name: str, point: Point, of_device: Mapping[str, int]) -> Workspace:
        entry = self.workspaces[name]
        dtype = point.dtype if entry["dtype"] == "dtype" else entry["dtype"]
        shape = tuple(self._whole(f"workspaces.{name}.shape", size, point, of_device) for size in entry["shape"])
        size = PRECISIONS[dtype].itemsize
        for extent in shape:
            size *= extent
        return Workspace(name, dtype, shape, size)


def _by(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def _broken(tensor: TensorMap) -> str | None:
    """What TMA refuses of a tensor map (CUDA driver API, cuTensorMapEncodeTiled); None if it takes it."""
    itemsize = PRECISIONS[tensor.dtype].itemsize
    pitch, inner = tensor.shape[-1] * itemsize, tensor.box[-1] * itemsize
    if len(tensor.shape) > 1 and pitch % 16:
        return f"rows of a multiple of 16 B for its tensor map of {tensor.array}, not of {pitch} B"
    if inner % 16:
        return f"a box of rows of a multiple of 16 B for its tensor map of {tensor.array}, not of {inner} B"
    if tensor.swizzle and inner > tensor.swizzle:
        return f"a box of rows of at most the swizzle's {tensor.swizzle} B for its tensor map of {tensor.array}"
    if max(tensor.box) > MAX_BOX:
        return f"a box of at most {MAX_BOX} elements along a dimension for its tensor map of {tensor.array}"
    return None


def parameters(kernels: Mapping[str, Kernel]) -> list[str]:
    """The names of all kernels' parameters that are columns of their own, in the order of the registry."""
    names = (name for kernel in kernels.values() for name in kernel.columns)
    return [name for name in dict.fromkeys(names) if name not in ("block_x", "block_y")]


def load(folder: Path | str = KERNELS, checked: bool = False) -> dict[str, Kernel]:
    """The registry of a kernels folder as a dict from name to Kernel: registry.yaml, with the choices of tuned.yaml.

    `checked`: the entries were compared with the schema when Snakemake started. Raises
    UserError if an entry is malformed, names a file that is not there or does not define its functions, or includes a
    header that is not there.
    """
    folder = Path(folder)
    path = folder / "registry.yaml"
    entries = read_yaml(path)
    if not checked:
        validate(entries, "registry", path)
    chosen = tuning.of_kernels(folder)
    kernels = {name: _kernel(name, entry, folder, chosen.get(name, {})) for name, entry in entries.items()}
    for name in chosen:
        if name not in kernels:
            raise UserError(f"{folder / tuning.FILE}: there is no kernel '{name}' in {path}; correct or remove it")
    return kernels


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _kernel(name: str, entry: Mapping, folder: Path, tuned: Mapping) -> Kernel:
    place = f"{folder / 'registry.yaml'}: {name}"
    fields = {key: _frozen(value) for key, value in entry.items() if key not in LAUNCH_KEYS}
    if entry["kind"] != "library":
        alone = {key: value for key, value in entry.items() if key in LAUNCH_KEYS}
        if "launches" in entry and alone:
            raise UserError(f"{place}.{min(alone)}: an entry with `launches` says this in each of them; move it there")
        launches = entry.get("launches", [alone])
        fields["launches"] = tuple(
            LaunchEntry(**{"function": name} | {key: _frozen(value) for key, value in launch.items()})
            for launch in launches
        )
    space = {key: tuple(values) for key, values in entry.get("space", {}).items()}
    fields |= {"space_requires": space.pop("requires", ()), "space": space}
    kernel = Kernel(name=name, folder=folder, tuned=tuned, **fields)
    _check_names(kernel, place)
    _check_expressions(kernel, place)
    _check_tuning(kernel, place)
    if kernel.kind == "library" and kernel.library not in LIBRARIES:
        raise UserError(f"{place}.library: the libraries are {' and '.join(LIBRARIES)}; a kernel is cuda or host")
    if kernel.source:
        _check_source(kernel, place)
    return kernel


def _check_names(kernel: Kernel, place: str) -> None:
    device = set(numbers(None)) | set(EMULATED_LIMITS)
    taken = {**dict.fromkeys(columns.FIXED, "a column"), **dict.fromkeys(POINT_NAMES, "a number of every point")}
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
        needed = kernel.kind == "host" or (len(types) > 1 and _touches_operands(launch))
        if needed and "dtype" not in launch.template:
            raise UserError(f"{place}.template: dtype is missing; a kernel of several types is a template of dtype")


def _check_expressions(kernel: Kernel, place: str) -> None:
    """UserError for an expression that is malformed or names something unknown, also where no sweep needs its value."""
    of_point = {*POINT_NAMES, *kernel.columns}
    of_device = {*of_point, *numbers(None)}
    found: list[tuple[str, Any, set[str]]] = [("requires", each, of_point) for each in kernel.requires]
    found += [("space.requires", each, of_point) for each in kernel.space_requires]
    for name, entry in kernel.workspaces.items():
        found += [(f"workspaces.{name}.shape", each, of_device) for each in entry["shape"]]
    for key, launch in kernel.entries():
        found += [(f"{key}template", each, of_point) for each in launch.template if each != "dtype"]
        found.append((f"{key}when", launch.when, of_point))
        found.append((f"{key}dynamic_shared_bytes", launch.dynamic_shared_bytes, of_device))
        for name in ("block", "covers", "grid", "cluster"):
            found += [(f"{key}{name}", each, of_device) for each in getattr(launch, name)]
        for argument in launch.arguments:
            for each in _expressions_of(argument, kernel):
                found.append((f"{key}arguments", each, of_device))
    for key, expression, names in found:
        try:
            check(expression, names)
        except UserError as error:
            raise UserError(f"{place}.{key}: {error}") from None


def _expressions_of(argument: Any, kernel: Kernel) -> list[Any]:
    if isinstance(argument, Mapping) and "tensor_map" in argument:
        return [*argument["box"], *argument.get("strides", ()), argument.get("swizzle", 0)]
    if isinstance(argument, Mapping):
        return list(argument.values())
    return [] if argument in ("A", "B", "C", *kernel.workspaces) else [argument]


def _check_tuning(kernel: Kernel, place: str) -> None:
    takes = ", ".join(kernel.parameters) or "no parameter"
    choices = {f"{place}.space": kernel.space} if kernel.space else {}
    for gpu, types in kernel.tuned.items():
        for dtype, classes in types.items():
            at = f"{kernel.folder / tuning.FILE}: {gpu}.{kernel.name}.{dtype}"
            if dtype not in kernel.dtypes:
                raise UserError(f"{at}: the kernel takes {', '.join(kernel.dtypes)}; correct or remove it")
            choices |= {f"{at}.{name}": choice for name, choice in classes.items()}
    for at, choice in choices.items():
        for name in (*choice, *kernel.parameters):
            if name not in kernel.parameters:
                raise UserError(f"{at}: '{name}' is not one of its parameters; {kernel.name} takes {takes}")
            if name not in choice:
                raise UserError(f"{at}: '{name}' is missing; {kernel.name} takes {takes}")


def _touches_operands(launch: LaunchEntry) -> bool:
    """Whether the launch is called with A, B or C, whose type its function must then know."""
    names = {a.get("tensor_map") if isinstance(a, Mapping) else a for a in launch.arguments}
    return bool(names & {"A", "B", "C"})


def _check_source(kernel: Kernel, place: str) -> None:
    if not kernel.path.is_file():
        raise UserError(f"{place}.source: there is no file {kernel.path}; add it or correct the name")
    text = "\n".join(code_of(path) for path in kernel.files)
    for launch in kernel.launches:
        own = launch.function.rsplit("::", 1)[-1]
        if not re.search(rf"\b{own}\s*\(", text):
            raise UserError(
                f"{place}: {kernel.path} defines no function '{launch.function}'; entry and function must agree"
            )
