"""A kernel of the registry, and its launches for a point."""

import ctypes
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope.element_types import number_types
from kernelscope.launch import SWIZZLES, Argument, Array, Launch, Number, Plan, TensorMap, Three, Value, Workspace
from kernelscope.limits import MAX_CLUSTER_BLOCKS
from kernelscope.sources import Source, code_of
from tilewise import KERNELS, UserError
from tilewise.study import architectures
from tilewise.study.device import EMULATED, Device
from tilewise.study.expressions import LARGEST, ceil_div, evaluate, names_in
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, SCHEMES, result_of
from tilewise.study.sources import INCLUDE
from tilewise.study.verify import Lying, Wanted


class Kind(StrEnum):
    """How a kernel is implemented: CUDA C++, another GPU language, a CPU loop, or a library call."""

    CUDA = auto()
    TRITON = auto()
    GLUON = auto()
    NUMBA = auto()
    CUTILE = auto()
    WARP = auto()
    CUTE = auto()
    HOST = auto()
    LIBRARY = auto()


class Language(NamedTuple):
    """A language for kernels besides CUDA C++: its name, and the Python package on whose version a row depends."""

    name: str
    package: str


LANGUAGES: Mapping[Kind, Language] = {
    Kind.TRITON: Language("Triton", "triton"),
    Kind.GLUON: Language("Gluon", "triton"),
    Kind.NUMBA: Language("Numba", "numba-cuda"),
    Kind.CUTILE: Language("cuTile", "cuda-tile"),
    Kind.WARP: Language("Warp", "warp-lang"),
    Kind.CUTE: Language("CuTe DSL", "nvidia-cutlass-dsl"),
}
#: A product so many times as high and as wide has hardly any edges.
MANY = 64
#: What a library entry may call, and where it runs.
LIBRARIES = {"cublas": "gpu", "numpy": "cpu"}
#: What a kernel is called with unless its entry says otherwise.
DEFAULT_ARGUMENTS = ("A", "B", "C", "n", "p", "m")
#: Names that an expression may use in addition to the parameters: those of a point.
POINT_NAMES = ("n", "p", "m", "batch", "itemsize")


@dataclass(frozen=True)
class LaunchEntry:
    """A launch of the registry, in expressions; the registry's head explains the keys."""

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
    cooperative: bool = False


@dataclass(frozen=True)
class Kernel:
    """One entry of the registry; the registry's head explains the fields.

    The methods raise UserError, with the place in the registry, for an expression that cannot be evaluated or gives
    what no launch can have. `tuned` is the kernel's part of tuned.yaml: choices by GPU, element type and class of
    shapes.
    """

    name: str
    title: str
    kind: Kind
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
    alpha: float = 1.0
    beta: float = 0.0
    initial: str = ""
    column_major: tuple = ()
    ld: Mapping[str, Any] = field(default_factory=dict)
    reads_c: bool = False
    dependent: bool = False
    batched: bool = False
    needs: tuple[str, ...] = ()
    emulated: bool = True
    reason: str = ""
    faulty: bool = False
    accuracy: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, Any] = field(default_factory=dict)
    library: str | None = None
    emulation: bool = False
    searched: bool = False
    folder: Path = KERNELS

    @property
    def path(self) -> Path:
        """The source file of a kernel that has one."""
        return self.folder / str(self.source)

    @property
    def includes(self) -> tuple[Path, ...]:
        """The folders of headers, in addition to that of the source file. Those of a commit are beside its registry."""
        return tuple(dict.fromkeys((self.folder / "include", INCLUDE)))

    @cached_property
    def files(self) -> list[Path]:
        """The source file and every file that it includes, at any depth; nothing for a library call."""
        return Source(self.path, includes=self.includes).files if self.source else []

    @cached_property
    def code(self) -> list[str]:
        """The texts of `files` at the first access."""
        return [code_of(path) for path in self.files]

    @property
    def launched(self) -> bool:
        """Whether it is compiled for a GPU and launched there on a grid."""
        return self.kind not in (Kind.HOST, Kind.LIBRARY)

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on the GPU, if there is one."""
        return self.launched or LIBRARIES.get(self.library or "") == "gpu"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold its parameters: one each, and block_x and block_y for `block`."""
        return tuple(c for name in self.parameters for c in (("block_x", "block_y") if name == "block" else (name,)))

    @property
    def as_run(self) -> list[Any]:
        """The values of its entry that affect how it runs at a point."""
        kind = [self.name, self.kind, self.library, self.emulation, self.searched, self.dependent, self.workspaces]
        asked = [self.reads_c, self.alpha, self.beta, self.initial, self.column_major, self.ld]
        return [*kind, *asked, *(replace(launch, note="") for launch in self.launches)]

    @property
    def wanted(self) -> Wanted:
        """The product to compute, and its declared rounding."""
        return Wanted(self.alpha, self.beta, self.initial, self.reads_c, self.accuracy.get("scheme", ""))

    @property
    def makes_ab(self) -> bool:
        """Whether it makes A B whatever C holds, of matrices that lie row after row."""
        return self.wanted.plain and not (self.initial or self.column_major or self.ld)

    @property
    def scalars(self) -> dict[str, float]:
        """The numbers that the expressions of its arguments may use in addition to those of a point and the device."""
        return {"alpha": self.alpha, "beta": self.beta}

    def claims_accuracy(self, operands: str, p: int) -> bool:
        """Whether it claims to be as accurate as SGEMM in sums of p products of this kind of operands."""
        return operands in self.accuracy.get("claims", ()) and p >= self.accuracy.get("from_p", 1)

    @property
    def library_call(self) -> str:
        """How it calls the library: "default", "best" after a search, or "" if it does not, or emulates."""
        if self.library is None or self.emulation:
            return ""
        return "best" if self.searched else "default"

    @property
    def made_of_short(self) -> bool:
        """Whether it makes its results of shorter numbers than its operands are."""
        return bool(self.accuracy) and self.accuracy.get("scheme") != "chain"  # which is one of floats

    def short_products(self, row: Mapping[str, Any]) -> tuple[str, float]:
        """The element type that the units multiply for a row, and how many such products replace one of the row's type.

        The number is NaN for a row that lacks the parameter on which it depends, as a damaged recording may.
        """
        scheme = SCHEMES.get(self.wanted.scheme)
        if scheme and scheme.short and row["dtype"] in scheme.dtypes:
            return scheme.short, _moduli(row) if "moduli" in self.parameters else scheme.products
        if self.name == "triton_tf32x3":
            return "tf32", 3
        if self.emulation:  # cuBLAS 13.10: 16 moduli for 55 bits, by its kernels' names; 13.1 had 28 pairs of slices
            return "int8", 16
        return row["dtype"], 1

    @property
    def grade(self) -> str:
        """The grade of its products (study/accuracy.py): A if it computes in the type of its operands or a longer one,
        else what it claims."""
        return self.accuracy.get("grade", "none") if self.made_of_short else "A"

    def target(self, capability: str) -> str:
        """The target architecture on a GPU of this compute capability, such as sm_90a for a kernel with wgmma."""
        return architectures.target(self.needs, capability)

    def cannot_run(self, capability: str) -> str:
        """The reason why a GPU of this compute capability cannot run it; empty if it can."""
        return architectures.lacks(self.needs, capability)

    # ---- What runs --------------------------------------------------------------------------------------------------

    def variables(self, point: Point) -> dict[str, int]:
        """The numbers that every expression may use: the point's shape, its parameters, the element's size in bytes."""
        return (
            point.shape | {"batch": point.batch, "itemsize": PRECISIONS[point.dtype].itemsize} | dict(point.parameters)
        )

    def plan(self, point: Point, device: Device = EMULATED) -> Plan:
        """The plan of a point. Without a grid, as on the CPU, there are instances and no launches.

        `product` is the launch of the function that has the kernel's name, or else the last one.
        """
        values = self._at(point)
        of_device, workspaces = self._on(point, device)
        entries = self._serving(values) if self.launched else self.entries()
        instances = [self._instance(key, entry, values) for key, entry in entries]
        launches = tuple(
            _launch(key, entry, instance, of_device, workspaces, self.dependent)
            for (key, entry), instance in zip(entries, instances)
            if self.launched
        )
        named = [launch for launch in launches if launch.instance.split("<")[0] == self.name]
        product = (named or [*launches])[-1] if launches else None
        return Plan(launches, product, tuple(workspaces.values()), tuple(dict.fromkeys(instances)))

    def lying(self, point: Point, columns: Collection[str] | None = None) -> dict[str, Lying]:
        """The memory layouts of A, B and C of a point; `columns` instead of `column_major`."""
        columns = self.column_major if columns is None else columns
        at, found = self._at(point), {}
        shapes = {"A": (point.n, point.p), "B": (point.p, point.m), "C": (point.n, point.m)}
        for name, (rows, across) in shapes.items():
            by_columns = name in columns
            least = rows if by_columns else across
            ld = at.whole(f"ld.{name}", self.ld[name], least) if name in self.ld else 0
            found[name] = Lying(by_columns, 0 if ld == least else ld)
        return found

    def unmet(self, point: Point, tuning: bool = False) -> str | None:
        """The first condition that the point breaks: one of `requires`, or of a tensor map; None if there is none.

        The conditions of the tuner's `space` count only if `tuning`.
        """
        if point.batch > 1 and (not self.batched or self.column_major):
            return "batch == 1"
        values = self._at(point)
        wanted = {"requires": self.requires} | ({"space.requires": self.space_requires} if tuning else {})
        for key, conditions in wanted.items():
            for condition in conditions:
                if not values.holds(key, condition):
                    return condition
        if not any(is_tensor_map(each) for entry in self.launches for each in entry.arguments):
            return None
        of_device, workspaces = self._on(point, EMULATED)
        maps = (
            _tensor_map(f"{key}arguments", each, of_device, workspaces)
            for key, entry in self._serving(values)
            for each in entry.arguments
            if is_tensor_map(each)
        )
        return next((each.refused for each in maps if each.refused), None)

    def takes_side(self, point: Point, side: str, size: int) -> bool:
        """Whether the point, with a `side` (n, p or m) of this size, meets those of `requires` over no other side."""
        values, others = _Values(self, point, self.variables(point) | {side: size}), {"n", "p", "m"} - {side}
        return all(values.holds("requires", each) for each in self.requires if not others & names_in(each))

    def covered(self, point: Point) -> list[int]:
        """The rows and columns of C that a block of each launch makes, as far as the launches say it."""
        values = self._at(point, EMULATED.numbers())
        sizes = [values.value(f"{key}covers", size) for key, entry in self.entries() for size in entry.covers]
        return [size for size in sizes if isinstance(size, int)]

    def padded_multiply_adds(self, point: Point) -> float | None:
        """Multiply-adds of all blocks of the product's launch, with those beyond the edges of C; None without a launch.

        They follow from the number of blocks of a product whose edges hardly count. Blocks that take tile after tile,
        as many as the device holds, say nothing about edges: their products have n p m multiply-adds.
        """
        sizes = (point, *(replace(point, n=point.n * times, m=point.m * times) for times in (MANY, 2 * MANY)))
        products = [self.plan(size).product for size in sizes]
        blocks, of_large, of_larger = (math.prod(launch.grid) if launch else 0 for launch in products)
        if not blocks:
            return None
        work = float(point.n) * point.p * point.m
        return work if of_large == of_larger else work * blocks * MANY**2 / of_large

    def entries(self) -> list[tuple[str, LaunchEntry]]:
        """The launches of the entry, each with the words before its keys in messages."""
        if len(self.launches) == 1:
            return [("", self.launches[0])]
        return [(f"launches.{number}.", entry) for number, entry in enumerate(self.launches)]

    def _at(self, point: Point, of_device: Mapping[str, float] | None = None) -> "_Values":
        """The kernel's expressions at a point; with `of_device`, those that may use the device's numbers."""
        return _Values(self, point, {**(of_device or {}), **self.variables(point)})

    def _on(self, point: Point, device: Device) -> tuple["_Values", dict[str, Workspace]]:
        """The expressions of the kernel's arguments at a point on a device, and its workspaces there."""
        values = self._at(point, {**self.scalars, **device.numbers()})
        return values, {name: _workspace(name, entry, values) for name, entry in self.workspaces.items()}

    def _serving(self, values: "_Values") -> list[tuple[str, LaunchEntry]]:
        found = [(key, entry) for key, entry in self.entries() if values.holds(f"{key}when", entry.when)]
        if not found:
            label = values.point.label()
            raise UserError(f"{values.place}.launches: none serves {label}; correct the conditions in `when`")
        return found

    def _instance(self, key: str, entry: LaunchEntry, values: "_Values") -> str:
        if not self.source:
            return self.name
        words = []
        for word in entry.template:
            value = PRECISIONS[values.point.dtype].cpp if word == "dtype" else values.value(f"{key}template", word)
            words.append(str(value).lower() if isinstance(value, bool) else str(value))
        return f"{entry.function}<{', '.join(words)}>" if words else entry.function


def _moduli(row: Mapping[str, Any]) -> float:
    try:
        return float(row["moduli"])
    except (LookupError, TypeError):  # there is none, or it is missing, in one of pandas' ways
        return math.nan


@dataclass(frozen=True)
class _Values:
    """The expressions of a kernel's entry at one point; `names` is what they may use."""

    kernel: Kernel
    point: Point
    names: Mapping[str, float]

    @property
    def place(self) -> str:
        """The entry's place in messages."""
        return f"{self.kernel.folder / 'registry.yaml'}: {self.kernel.name}"

    def value(self, key: str, expression: Any) -> Any:
        """The value of an expression. Raises UserError with its place."""
        try:
            return evaluate(expression, self.names)
        except (UserError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            why = error if isinstance(error, UserError) else f"'{expression}': {error} for {self.point.label()}"
            raise UserError(f"{self.place}.{key}: {why}") from None

    def holds(self, key: str, condition: Any) -> bool:
        """Whether a condition holds. Raises UserError for what is none, such as a number or text."""
        value = self.value(key, condition)
        if not isinstance(value, bool):
            raise UserError(
                f"{self.place}.{key}: '{condition}' is {value!r} for {self.point.label()}; a condition is true or "
                "false, for example n % tile == 0"
            )
        return value

    def whole(self, key: str, expression: Any, least: int = 1) -> int:
        """The value of an expression, which must be a whole number of at least `least`."""
        value = self.value(key, expression)
        if isinstance(value, int | float) and least <= value <= LARGEST and value == int(value):
            return int(value)
        bound = f"at most {LARGEST}" if isinstance(value, int | float) and value > LARGEST else f"at least {least}"
        raise UserError(
            f"{self.place}.{key}: '{expression}' is {value} for {self.point.label()}; it must be a whole number of "
            f"{bound}"
        )

    def three(self, key: str, expressions: tuple) -> Three:
        """The values along x, y and z; 1 for those that are not given."""
        x, y, z = (*(self.whole(key, expression) for expression in expressions), 1, 1, 1)[:3]
        return x, y, z


def _launch(
    key: str, entry: LaunchEntry, instance: str, at: _Values, workspaces: Mapping[str, Workspace], dependent: bool
) -> Launch:
    cluster = at.three(f"{key}cluster", entry.cluster)
    grid = at.three(f"{key}grid", entry.grid)
    if not entry.grid:
        rows, columns = (at.whole(f"{key}covers", size) for size in entry.covers)
        grid = (ceil_div(at.point.m, columns), ceil_div(at.point.n, rows), 1)
    blocks = cluster[0] * cluster[1] * cluster[2]
    if blocks > MAX_CLUSTER_BLOCKS:
        raise UserError(
            f"{at.place}.{key}cluster: {blocks} blocks for {at.point.label()}; a device takes at most "
            f"{MAX_CLUSTER_BLOCKS} in a cluster"
        )
    if any(size % part for size, part in zip(grid, cluster)):
        raise UserError(
            f"{at.place}.{key}cluster: a grid of {_by(grid)} blocks is not a multiple of clusters of {_by(cluster)} "
            f"for {at.point.label()}; round the grid up"
        )
    return Launch(
        instance,
        at.three(f"{key}block", entry.block),
        grid,
        tuple(_argument(f"{key}arguments", argument, at, workspaces) for argument in entry.arguments),
        at.whole(f"{key}dynamic_shared_bytes", entry.dynamic_shared_bytes, least=0),
        cluster,
        entry.note,
        entry.cooperative,
        dependent,
    )


def _by(sizes: Three) -> str:
    return " x ".join(map(str, sizes))


def is_tensor_map(argument: Any) -> bool:
    """Whether an argument of a launch, as the registry has it, is a tensor map."""
    return isinstance(argument, Mapping) and "tensor_map" in argument


def _argument(key: str, argument: Any, at: _Values, workspaces: Mapping[str, Workspace]) -> Argument:
    if is_tensor_map(argument):
        return _tensor_map(key, argument, at, workspaces)
    if isinstance(argument, Mapping) and "struct" in argument:
        return _struct(f"{key}.struct", argument["struct"], at, workspaces)
    if isinstance(argument, Mapping):
        [(kind, expression)] = argument.items()
        return _number(key, at.point.dtype if kind == "dtype" else kind, expression, at)
    if argument in ("A", "B", "C", *workspaces):
        return Array(argument)
    return _number(key, "int", argument, at)


def _struct(key: str, members: Sequence, at: _Values, workspaces: Mapping[str, Workspace]) -> Value:
    """A struct by value, whose members lie as C has them."""
    fields, packed, arrays = [], {}, {}
    for number, entry in enumerate(members):
        name, member = f"member_{number}", _argument(key, entry, at, workspaces)
        if isinstance(member, Array):
            arrays[name] = member.name
            fields.append((name, ctypes.c_void_p))
        elif isinstance(member, Number):
            packed[name] = member.packed()
            fields.append((name, member.ctype))
    layout = type("Struct", (ctypes.Structure,), {"_fields_": fields})
    pointers = tuple((getattr(layout, name).offset, array) for name, array in arrays.items())
    return Value(bytes(layout(**packed)), "o", f"struct of {ctypes.sizeof(layout)} B", pointers)


def _number(key: str, kind: str, expression: Any, at: _Values) -> Number:
    if kind not in number_types():
        raise UserError(f"{at.place}.{key}: a number of type {kind}; there are {', '.join(number_types())}")
    if Number(kind, 0).whole:
        return Number(kind, at.whole(key, expression, least=-(2**63)))
    value = at.value(key, expression)
    if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
        return Number(kind, float(value))
    raise UserError(f"{at.place}.{key}: '{expression}' is {value} for {at.point.label()}; it must be a number")


def _tensor_map(key: str, argument: Mapping, at: _Values, workspaces: Mapping[str, Workspace]) -> TensorMap:
    name, point = argument["tensor_map"], at.point
    arrays: dict[str, tuple[str, tuple[int, ...]]] = {
        "A": (point.dtype, (point.n, point.p)),
        "B": (point.dtype, (point.p, point.m)),
        "C": (result_of(point.dtype).name, (point.n, point.m)),
    } | {space.name: (space.dtype, space.shape) for space in workspaces.values()}
    if name not in arrays:
        known = ", ".join(arrays)
        raise UserError(f"{at.place}.{key}: a tensor map of '{name}', which is not an array; there are {known}")
    dtype, shape = arrays[name]
    if name in ("A", "B", "C") and len(argument["box"]) == 3:
        shape = (point.batch, *shape)
    if name in at.kernel.ld:
        raise UserError(f"{at.place}.{key}: a tensor map of {name}, which has a leading dimension; give it without one")
    if name in at.kernel.column_major:
        shape = shape[::-1]
    box = tuple(at.whole(f"{key}.box", size) for size in argument["box"])
    strides = tuple(at.whole(f"{key}.strides", size) for size in argument.get("strides", ()))
    swizzle = at.whole(f"{key}.swizzle", argument.get("swizzle", 0), least=0)
    if len(box) != len(shape) or len(strides or box) != len(shape):
        raise UserError(f"{at.place}.{key}: the box of {name} has {len(box)} sizes; the array has {len(shape)}")
    if swizzle not in SWIZZLES:
        raise UserError(f"{at.place}.{key}.swizzle: {swizzle}; TMA has {', '.join(map(str, SWIZZLES))}")
    return TensorMap(name, dtype, shape, box, swizzle, strides)


def _workspace(name: str, entry: Mapping, at: _Values) -> Workspace:
    dtype = at.point.dtype if entry["dtype"] == "dtype" else entry["dtype"]
    shape = tuple(at.whole(f"workspaces.{name}.shape", size) for size in entry["shape"])
    return Workspace(name, dtype, shape, PRECISIONS[dtype].itemsize * math.prod(shape))
