"""The points of the study: every combination that a task of the config asks for, as plain data."""

import dataclasses
import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise import UserError
from tilewise.study.device import MAX_THREADS_PER_BLOCK
from tilewise.study.precision import PRECISIONS

if TYPE_CHECKING:
    from tilewise.study.registry import Kernel

Parameters = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Point:
    """One product to verify and time: C (n x m) = A (n x p) B (p x m) by one kernel with one choice of parameters.

    `parameters` holds the names of the kernel's parameters with their values; block_x and block_y are threads.
    """

    task: str
    kernel: str
    dtype: str
    n: int
    p: int
    m: int
    parameters: Parameters = ()

    @property
    def shape(self) -> dict[str, int]:
        """n, p and m by name."""
        return {"n": self.n, "p": self.p, "m": self.m}

    @property
    def multiply_adds(self) -> int:
        """n p m."""
        return self.n * self.p * self.m

    def columns(self) -> dict[str, Any]:
        """The point as columns of a row: one for each field, and one for each parameter."""
        names = ("task", "kernel", "dtype", "n", "p", "m")
        return {name: getattr(self, name) for name in names} | dict(self.parameters)

    def label(self) -> str:
        """The point in words, for messages: `tiled float 64x64x64 tile=16` (n x p x m)."""
        words = [self.kernel, self.dtype, f"{self.n}x{self.p}x{self.m}"]
        values = dict(self.parameters)
        if "block_x" in values:
            words.append(f"block={values.pop('block_x')}x{values.pop('block_y')}")
        return " ".join([*words, *(f"{name}={value}" for name, value in values.items())])


def point(task: str, kernel: str, dtype: str, n: int, p: int, m: int, **parameters: int) -> Point:
    """A Point with its parameters as keywords."""
    return Point(task, kernel, dtype, n, p, m, tuple(parameters.items()))


def listed(value: Any) -> list:
    """A value of the config that may be one or several, as a list."""
    return value if isinstance(value, list) else [value]


def one_of(value: str, known: Mapping[str, Any], place: str) -> Any:
    """known[value]; UserError with the nearest name if there is no such key."""
    if value not in known:
        raise UserError(f"{place}: there is no '{value}'; {nearest(value, known)}")
    return known[value]


def nearest(value: str, known: Iterable[str]) -> str:
    """Words that lead from a name that is not known to one that is."""
    known = list(known)
    near = difflib.get_close_matches(value, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"


def expand(
    config: Mapping[str, Any],
    kernels: Mapping[str, "Kernel"],
    task: str,
    backend: str = "gpu",
    shapes: bool = True,
    emulators_shapes: bool = True,
    only_cuda: bool = False,
) -> list[Point]:
    """The points of one task, in the order of the config, each once.

    `config` is a validated config, `kernels` the registry. A point that breaks a condition of its kernel drops out if
    the sweep names others of the same kernel, element type and shape. On the backend `emulator` CUDA kernels run at
    those of the emulator's shapes that they take (not if `emulators_shapes` is false), or else at the smallest shape
    that they take, and library calls for the GPU drop out; the CPU's loops and libraries are the same everywhere. If
    `shapes` is false, the task's method chooses the shapes, and a point stands for its kernel with its parameters; if
    `only_cuda` is true, it is for CUDA kernels alone. Raises UserError for a point that cannot be right on any device.
    """
    found: dict[Point, None] = {}
    for number, sweep in enumerate(config["tasks"][task].get("sweeps", [])):
        where = f"tasks.{task}.sweeps.{number}"
        named = _shapes(config, sweep, where) if shapes else [{"n": 1, "p": 1, "m": 1}]
        for name in listed(sweep["kernel"]):
            kernel = one_of(name, kernels, f"{where}.kernel")
            if only_cuda and kernel.kind != "cuda":
                cuda = ", ".join(other for other, entry in kernels.items() if entry.kind == "cuda")
                method = config["tasks"][task]["method"]
                raise UserError(
                    f"{where}.kernel: {method} is for CUDA kernels, and {name} is not one; there are {cuda}"
                )
            choices = list(_choices(kernel, sweep, where))
            emulated = backend == "emulator" and kernel.kind == "cuda" and shapes and emulators_shapes
            for dtype in listed(sweep["dtype"]):
                one_of(dtype, PRECISIONS, f"{where}.dtype")
                if dtype not in kernel.dtypes:
                    raise UserError(f"{where}.dtype: {name} is not for {dtype}; it takes {', '.join(kernel.dtypes)}")
                for shape in config["emulator"]["shapes"] if emulated else named:
                    asked = [Point(task, name, dtype, **shape, parameters=choice) for choice in choices]
                    broken = {each: kernel.unmet(each) for each in asked}
                    possible = [each for each, condition in broken.items() if condition is None]
                    if not possible and not emulated:
                        label, condition = asked[0].label(), broken[asked[0]]
                        raise UserError(f"{where}: {label}: {name} requires {condition}; choose other sizes")
                    found |= dict.fromkeys(possible)
                if emulated:
                    asked = [Point(task, name, dtype, 1, 1, 1, choice) for choice in choices]
                    served = {(each.dtype, each.parameters) for each in found if each.kernel == name}
                    lonely = [each for each in asked if (dtype, each.parameters) not in served]
                    found |= dict.fromkeys(filter(None, (at_smallest_shape(each, kernel) for each in lonely)))
    if backend == "emulator":
        return [each for each in found if kernels[each.kernel].kind != "library" or not kernels[each.kernel].on_gpu]
    return list(found)


def at_smallest_shape(point: Point, kernel: "Kernel", blocks: int = 1) -> Point | None:
    """The point at the smallest shape that its kernel takes, whose rows and columns are `blocks` times as many if it
    takes that too; None if there is none of sizes up to 512.

    Tried are powers of two and the multiples of what the kernel's numbers say: its parameters and what a block covers.
    """
    numbers = {value for _, value in point.parameters} | set(kernel.covered(point))
    sizes = {32, 64, 128, 256, 512} | {k * number for number in numbers for k in (1, 2, 3) if 8 <= k * number <= 512}
    shapes = sorted(itertools.product(sizes, repeat=3), key=lambda shape: (math.prod(shape), shape))
    tried = (dataclasses.replace(point, n=n, p=p, m=m) for n, p, m in shapes)
    found = next((each for each in tried if kernel.unmet(each) is None), None)
    larger = found and dataclasses.replace(found, n=blocks * found.n, m=blocks * found.m)
    return larger if larger and kernel.unmet(larger) is None else found


def _shapes(config: Mapping, sweep: Mapping, where: str) -> list[dict[str, int]]:
    if "shapes" not in sweep:
        raise UserError(f"{where}: the key 'shapes' is missing; name one of {', '.join(config['shapes'])}")
    return [s for name in listed(sweep["shapes"]) for s in one_of(name, config["shapes"], f"{where}.shapes")]


def _choices(kernel: "Kernel", sweep: Mapping[str, Any], where: str) -> Iterator[Parameters]:
    """Every combination of the sweep's parameters."""
    given = [key for key in sweep if key not in ("kernel", "dtype", "shapes")]
    takes = ", ".join(kernel.parameters) or "no parameter"
    for key in given:
        if key not in kernel.parameters:
            near = difflib.get_close_matches(key, kernel.parameters, n=1)
            hint = f"did you mean '{near[0]}'? It takes {takes}" if near else f"it takes {takes}"
            raise UserError(f"{where}: {kernel.name} does not take '{key}'; {hint}")
    for key in kernel.parameters:
        if key not in given:
            raise UserError(f"{where}: {kernel.name} needs '{key}'; it takes {takes}")
    axes = [_values(key, kernel, sweep, where) for key in kernel.parameters]
    for chosen in itertools.product(*axes):
        yield tuple(itertools.chain.from_iterable(chosen))


def _values(key: str, kernel: "Kernel", sweep: Mapping[str, Any], where: str) -> list[Parameters]:
    """The values that a sweep gives one parameter, each as columns."""
    if key == "block":
        sizes = [[int(size) for size in text.split("x")] for text in listed(sweep[key])]
        return [(("block_x", x), ("block_y", y)) for x, y in sizes]
    least = kernel.least.get(key, 1)
    for value in listed(sweep[key]):
        if not isinstance(value, int) or value < least:
            raise UserError(f"{where}.{key}: {value!r}; {kernel.name} takes whole numbers of at least {least}")
    return [((key, int(value)),) for value in listed(sweep[key])]


def refuse_too_many_threads(points: Iterable[Point], kernels: Mapping[str, "Kernel"], place: str) -> None:
    """UserError if a point's block has more threads than any device takes."""
    for each in points:
        for launch in kernels[each.kernel].at(each):
            if launch.threads > MAX_THREADS_PER_BLOCK:
                block = " x ".join(str(size) for size in launch.block if size > 1)
                raise UserError(
                    f"{place}: {each.label()}: a block of {block} = {launch.threads} threads; "
                    f"CUDA allows {MAX_THREADS_PER_BLOCK}, for example 32x32"
                )
