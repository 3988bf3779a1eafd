"""The kernels of the study, read from kernels/registry.yaml, and the launch geometry that follows from an entry."""

import math
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import jinja2
import jinja2.sandbox
import numpy as np

from tilewise import KERNELS, UserError
from tilewise.study.schema import read_yaml, validate

#: The element types: the name used everywhere -> (C++ type, NumPy type).
DTYPES = {
    "float": ("float", np.dtype(np.float32)),
    "double": ("double", np.dtype(np.float64)),
    "int32": ("int", np.dtype(np.int32)),
}
#: The kernels that are calls of a library, of the GPU and of the CPU.
LIBRARIES = ("cublas", "numpy")
#: CUDA's limit on every device so far; the device's other limits come from device.json.
MAX_THREADS_PER_BLOCK = 1024

_environment = jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined)


@cache
def _compile(expression):
    return _environment.compile_expression(expression, undefined_to_none=False)


def evaluate(expression, variables):
    """Value of an arithmetic or boolean expression of the registry over `variables`, a dict of numbers."""
    if not isinstance(expression, str):
        return expression
    try:
        value = _compile(expression)(**variables)
        if isinstance(value, jinja2.Undefined):
            str(value)  # a lone unknown name is only an error once it is used
        return value
    except jinja2.UndefinedError as error:
        raise UserError(f"'{expression}': {error}; there are {', '.join(sorted(variables))}") from None
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"'{expression}' is no expression: {error}") from None


@dataclass(frozen=True)
class Geometry:
    """A launch: threads of a block and blocks of the grid along (x, y), and dynamic shared memory in bytes."""

    block: tuple[int, int]
    grid: tuple[int, int]
    dynamic_shared_bytes: int

    @property
    def threads(self):
        """Threads of one block."""
        return self.block[0] * self.block[1]


@dataclass(frozen=True)
class Kernel:
    """One entry of the registry; the registry's head explains the fields."""

    name: str
    title: str
    kind: str
    dtypes: tuple
    source: str | None = None
    template: tuple = ()
    parameters: tuple = ()
    block: tuple = ()
    covers: tuple = ()
    dynamic_shared_bytes: str | int = 0
    requires: tuple = ()
    folder: Path = KERNELS

    @property
    def path(self):
        """The source file, or None for a library call."""
        return self.folder / self.source if self.source else None

    def variables(self, point):
        """The numbers an expression may use for this point: its shape, its parameters and the element's size in B."""
        names = ("n", "p", "m", "block_x", "block_y", "tile", "ntb")
        values = {name: getattr(point, name) for name in names if getattr(point, name) is not None}
        return values | {"itemsize": DTYPES[point.dtype][1].itemsize}

    def geometry(self, point):
        """Launch geometry of a CUDA kernel at a point, or None for kernels that are not launched on a grid."""
        if self.kind != "cuda":
            return None
        x, y = (self._whole("block", expression, point) for expression in self.block)
        rows, columns = (self._whole("covers", expression, point) for expression in self.covers)
        shared = self._whole("dynamic_shared_bytes", self.dynamic_shared_bytes, point, least=0)
        return Geometry((x, y), (math.ceil(point.m / columns), math.ceil(point.n / rows)), shared)

    def _whole(self, key, expression, point, least=1):
        value = self._value(key, expression, point)
        if isinstance(value, int | float) and int(value) >= least:
            return int(value)
        raise UserError(
            f"{self.folder / 'registry.yaml'}: {self.name}.{key}: '{expression}' is {value} for {point.label()}; "
            f"it must be a whole number of at least {least}"
        )

    def _value(self, key, expression, point):
        try:
            return evaluate(expression, self.variables(point))
        except (UserError, ArithmeticError, TypeError, ValueError) as error:
            why = error if isinstance(error, UserError) else f"'{expression}': {error} for {point.label()}"
            raise UserError(f"{self.folder / 'registry.yaml'}: {self.name}.{key}: {why}") from None

    def instance(self, point):
        """The C++ template instance of a point: `tiled<float, 32>`; the kernel's name for library calls."""
        return instance(self, point.dtype, point.tile, point.ntb)

    def unmet(self, point):
        """The first condition of `requires` that the point breaks, or None."""
        return next((condition for condition in self.requires if not self._value("requires", condition, point)), None)


def instance(kernel, dtype, tile=None, ntb=None):
    """The C++ template instance for these arguments: `tiled<float, 32>`."""
    if not kernel.source:
        return kernel.name
    values = {"dtype": DTYPES[dtype][0], "tile": tile, "ntb": ntb}
    return f"{kernel.name}<{', '.join(str(values[name]) for name in kernel.template)}>"


def load(folder=KERNELS):
    """The registry of a kernels folder as a dict from name to Kernel.

    Raises UserError where an entry is malformed, or names a file that is not there or does not define the kernel.
    """
    folder = Path(folder)
    path = folder / "registry.yaml"
    entries = read_yaml(path)
    validate(entries, "registry", path)
    known = {field.name for field in fields(Kernel)}
    kernels = {}
    for name, entry in entries.items():
        frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        assert set(frozen) <= known, "the schema and Kernel disagree"
        kernel = Kernel(name=name, folder=folder, **frozen)
        if kernel.kind == "library" and name not in LIBRARIES:
            raise UserError(
                f"{path}: {name}.kind: the libraries are {' and '.join(LIBRARIES)}; a kernel is cuda or host"
            )
        if kernel.source:
            unknown = set(kernel.template) - {"dtype", *kernel.parameters}
            if "dtype" not in kernel.template or unknown:
                said = f"{min(unknown)} is none of its parameters" if unknown else "dtype is missing"
                raise UserError(f"{path}: {name}.template: {said}; a kernel is a template of dtype and its parameters")
            if not kernel.path.is_file():
                raise UserError(f"{path}: {name}.source: there is no file {kernel.path}; add it or correct the name")
            if not re.search(rf"\b{name}\s*\(", kernel.path.read_text()):
                raise UserError(
                    f"{path}: {name}: {kernel.path} defines no function '{name}'; entry and function must agree"
                )
        kernels[name] = kernel
    return kernels
