"""The points of the study: every combination that a task of the config asks for, as plain data."""

import contextlib
import dataclasses
import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kernelscope.limits import MAX_THREADS_PER_BLOCK
from kernelscope.yaml_input import suggest_name
from tilewise import UserError
from tilewise.study import tuning
from tilewise.study.architectures import SMALL_CHOICES, has_little_shared_memory
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.points import Parameters, Point
from tilewise.study.precision import PRECISIONS

#: If a method chooses the shapes, its sizes are multiples of this for a kernel whose launches depend on what divides
#: them; such a kernel is built for a product of this size.
UNIT = 16
#: How many choices of parameters are tried for a kernel that no sweep names.
MOST_EXAMPLES = 100


def as_list(value: Any) -> list:
    """A value of the config that may be one or several, as a list."""
    return value if isinstance(value, list) else [value]


class _Mistake(Exception):
    """A mistake in the parameters of a kernel, at a key or of them all; `_within` says where they are."""

    def __init__(self, words: str, key: str = "") -> None:
        super().__init__(f".{key}: {words}" if key else f": {words}")


@contextlib.contextmanager
def _within(place: str) -> Iterator[None]:
    """What raises _Mistake in the block raises UserError with the place."""
    try:
        yield
    except _Mistake as mistake:
        raise UserError(f"{place}{mistake}") from None


def _look_up(value: str, known: Mapping[str, Any], key: str) -> Any:
    """known[value]; _Mistake with the nearest name if there is no such key."""
    if value not in known:
        raise _Mistake(f"there is no '{value}'; {suggest_name(value, known)}", key)
    return known[value]


#: A shape that is chosen for the emulator has at most this many rows and columns: more would take minutes.
LARGEST_SIDE = 512


@dataclasses.dataclass(frozen=True)
class Target:
    """The target of points: a backend (gpu or emulator), and the platform whose tuned choices they take.

    `gpu` is empty for the first platform of the registry's choices. Without `only_timed`, sweeps whose kernels are only
    timed have no points; on the emulator they never have.
    """

    backend: str = "gpu"
    gpu: str = ""
    only_timed: bool = True


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options by which a method reads its sweeps.

    shapes             sweeps name shapes; else the method chooses them, and a point stands for its kernel
    emulators_shapes   CUDA kernels run at the emulator's shapes on the emulator, not at their own
    on_emulator        sweeps have points on the emulator, too
    only_cuda          sweeps name CUDA kernels only
    batches            their shapes may have a batch
    space              a parameter that a sweep does not name has every value of its kernel's `space`
    """

    shapes: bool = True
    emulators_shapes: bool = True
    on_emulator: bool = True
    only_cuda: bool = False
    space: bool = False
    batches: bool = False


def gpu_of_choices(platform: str, kernels: Mapping[str, Kernel], capability: str = "") -> str:
    """The `gpu` of a platform's Target: its name if the registry has choices for it, else those for little shared
    memory if its compute capability is known and has little, else empty."""
    if any(platform in kernel.tuned for kernel in kernels.values()):
        return platform
    return SMALL_CHOICES if capability and has_little_shared_memory(capability) else ""


#: A GPU that takes the first choices of the registry, and the way most methods read sweeps.
ANY_GPU, PLAINLY = Target(), Reading()


def expand(
    config: Mapping[str, Any],
    kernels: Mapping[str, Kernel],
    task: str,
    target: Target = ANY_GPU,
    reading: Reading = PLAINLY,
) -> list[Point]:
    """The points of one task, in the order of the config, each once.

    `config` is a validated config, `kernels` the registry. A point that breaks a condition of its kernel drops out if
    the sweep names others of the same kernel, element type and shape. On the emulator, CUDA kernels run at those of the
    emulator's shapes that they take, or else at the smallest shape that they take, or at one of the sweep's, for a row
    that says so; library calls for the GPU drop out; the CPU's loops and libraries are the same everywhere. A sweep
    with `tuned: true` takes the parameters that it does not name from the registry: those of the class of each shape.
    Raises UserError for a point that cannot be right on any device.
    """
    found: dict[Point, None] = {}
    emulated = target.backend == "emulator"
    if emulated and not reading.on_emulator:
        return []
    for number, sweep in enumerate(config["tasks"][task].get("sweeps", [])):
        if sweep.get("only_timed") and (emulated or not target.only_timed):
            continue
        with _within(f"tasks.{task}.sweeps.{number}"):
            found |= dict.fromkeys(_points_of(sweep, config, kernels, task, target, reading))
    if emulated:
        return [each for each in found if kernels[each.kernel].kind != Kind.LIBRARY or not kernels[each.kernel].on_gpu]
    return list(found)


def _points_of(
    sweep: Mapping[str, Any],
    config: Mapping[str, Any],
    kernels: Mapping[str, Kernel],
    task: str,
    target: Target,
    reading: Reading,
) -> Iterator[Point]:
    """The points of one sweep of a task."""
    named = _shapes(config, sweep) if reading.shapes else [dict.fromkeys(("n", "p", "m"), UNIT)]
    if not reading.batches and any("batch" in shape for shape in named):
        raise _Mistake("a shape with a batch is for a task with the method batches", "shapes")
    only_for = config["tasks"][task]["method"] if reading.only_cuda else ""
    for kernel, dtype in _named(sweep, kernels, only_for):
        bare = Point(task, kernel.name, dtype, 1, 1, 1)
        at = [(shape, _chosen(kernel, dtype, sweep, shape, target, reading)) for shape in named]
        if target.backend == "emulator" and kernel.launched and reading.shapes and reading.emulators_shapes:
            everywhere = dict.fromkeys(itertools.chain.from_iterable(choices for _, choices in at))
            asked = [dataclasses.replace(bare, parameters=choice) for choice in everywhere]
            yield from _on_emulator(asked, config["emulator"]["shapes"], named, kernel, reading.space)
        else:
            for shape, choices in at:
                asked = [Point(task, kernel.name, dtype, **shape, parameters=choice) for choice in choices]
                tuned = bool(sweep.get("tuned")) and not reading.space
                yield from _possible(asked, kernel, reading.space, tuned)


def _named(sweep: Mapping[str, Any], kernels: Mapping[str, Kernel], only_for: str) -> Iterator[tuple[Kernel, str]]:
    """The kernels of a sweep, each with every element type; `only_for` is the method if that is for CUDA kernels only.

    Raises _Mistake for a kernel that it cannot have, and for a type that the kernel does not take.
    """
    for name, dtype in itertools.product(as_list(sweep["kernel"]), as_list(sweep["dtype"])):
        kernel = _look_up(name, kernels, "kernel")
        if kernel.faulty:
            raise _Mistake(f"{name} has a fault on purpose; the memory microscope alone runs it", "kernel")
        if only_for and not kernel.launched:
            first = next(other for other, entry in kernels.items() if entry.launched)
            words = f"{only_for} is for CUDA kernels, and {name} is not one; name one, such as {first}"
            raise _Mistake(f"{words}; `tilewise list kernels` shows all", "kernel")
        _look_up(dtype, PRECISIONS, "dtype")
        if dtype not in kernel.dtypes:
            raise _Mistake(f"{name} is not for {dtype}; it takes {', '.join(kernel.dtypes)}", "dtype")
        yield kernel, dtype


def _chosen(
    kernel: Kernel, dtype: str, sweep: Mapping, shape: Mapping[str, int], target: Target, reading: Reading
) -> list[Parameters]:
    """The parameters of a kernel at a shape."""
    if sweep.get("tuned") and not reading.space:
        sweep = _tuned(kernel, dtype, tuning.shape_class(shape), target.gpu, sweep)
    return _choices(kernel, sweep, reading.space)


def _possible(asked: list[Point], kernel: Kernel, space: bool, tuned: bool) -> list[Point]:
    """Those of the points that meet their kernel's conditions; _Mistake if none does. Their parameters may be `tuned`
    ones of the registry."""
    broken = {each: kernel.unmet(each, space) for each in asked}
    possible = [each for each, condition in broken.items() if condition is None]
    if not possible:
        label, condition = asked[0].label(), broken[asked[0]]
        file = f", or other parameters in {kernel.folder / tuning.TUNED}" if tuned else ""
        raise _Mistake(f"{label}: {kernel.name} requires {condition}; choose other sizes{file}")
    return possible


def _on_emulator(asked: list[Point], shapes: list, named: list, kernel: Kernel, space: bool) -> list[Point]:
    """Points at those of the emulator's `shapes` that their kernel takes; a choice of parameters that takes none, at
    the smallest shape that it takes, or else at the first possible one of the shapes `named` in the config."""
    at = [dataclasses.replace(each, **shape) for shape in shapes for each in asked]
    found = [each for each in at if not kernel.unmet(each, space)]
    served = {each.parameters for each in found}
    for each in asked if not space else ():
        if each.parameters not in served:
            own = (dataclasses.replace(each, **shape) for shape in named)
            suited = at_smallest_shape(each, kernel) or next((p for p in own if not kernel.unmet(p)), None)
            found += [suited] if suited else []
    return found


def at_smallest_shape(point: Point, kernel: Kernel, blocks: int = 1) -> Point | None:
    """The point at the smallest shape that its kernel takes, whose rows and columns are `blocks` times as many if it
    takes that too; None if there is none of sizes up to LARGEST_SIDE.

    Powers of two, and multiples of the kernel's parameters and of the sizes that a block covers, are tried.
    """
    numbers = {value for _, value in point.parameters} | set(kernel.covered(point))
    multiples = {k * number for number in numbers for k in (1, 2, 3)}
    sizes = {32, 64, 128, 256, 512} | {size for size in multiples if 8 <= size <= LARGEST_SIDE}
    # Most conditions are over one side, or over none: they leave few shapes to try.
    sides = [[size for size in sizes if kernel.takes_side(point, side, size)] for side in ("n", "p", "m")]
    shapes = sorted(itertools.product(*sides), key=lambda shape: (math.prod(shape), shape))
    tried = (dataclasses.replace(point, n=n, p=p, m=m) for n, p, m in shapes)
    found = next((each for each in tried if kernel.unmet(each) is None), None)
    larger = found and dataclasses.replace(found, n=blocks * found.n, m=blocks * found.m)
    return larger if larger and kernel.unmet(larger) is None else found


def _shapes(config: Mapping, sweep: Mapping) -> list[dict[str, int]]:
    if "shapes" not in sweep:
        raise _Mistake(f"the key 'shapes' is missing; name one of {', '.join(config['shapes'])}")
    return [s for name in as_list(sweep["shapes"]) for s in _look_up(name, config["shapes"], "shapes")]


def _tuned(kernel: Kernel, dtype: str, word: str, gpu: str, sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    """A sweep with the parameters that it lacks as the registry has them for a GPU and a class of shapes."""
    choice = tuning.chosen(kernel.tuned, gpu, dtype, word)
    if choice is None:
        raise _Mistake(
            f"{kernel.folder / tuning.TUNED} has no choice of {kernel.name} for {dtype}; name the parameters here "
            f"({', '.join(kernel.parameters) or 'none'}), or add a choice: docs/kernels.md shows how",
            "tuned",
        )
    return dict(choice) | dict(sweep)


def tuned_point(kernel: Kernel, dtype: str, shape: Mapping[str, int], gpu: str) -> Point | None:
    """The point of a kernel at a shape with the parameters that the registry has for a GPU and the shape's class; None
    if it has none for the element type, or if the kernel does not take the shape with them."""
    choice = tuning.chosen(kernel.tuned, gpu, dtype, tuning.shape_class(shape))
    if choice is None:
        return None
    with _within(str(kernel.folder / tuning.TUNED)):
        [parameters] = _choices(kernel, choice)
    point = Point("", kernel.name, dtype, **shape, parameters=parameters)
    return None if kernel.unmet(point) else point


def recorded_point(row: Mapping[str, Any], kernel: Kernel) -> Point | None:
    """The point of a kernel's row; None if the row lacks a size or a parameter, or has a type that the kernel does not
    take."""
    import pandas as pd

    numbers = [row.get(name) for name in (*SHAPE, *kernel.columns)]
    if row["dtype"] not in kernel.dtypes or any(number is None or pd.isna(number) or number < 0 for number in numbers):
        return None
    n, p, m = (int(row[name]) for name in SHAPE)
    parameters = tuple((name, int(row[name])) for name in kernel.columns)
    batch = 1 if pd.isna(row.get("batch")) else int(row["batch"])
    return Point(str(row.get("task", "")), kernel.name, row["dtype"], n, p, m, parameters, batch)


def sweep_parameters(parameters: Parameters) -> dict[str, Any]:
    """Parameters as a sweep of the config names them: block_x and block_y are one, `block: 32x8`."""
    values = dict(parameters)
    block = {"block": f"{values.pop('block_x')}x{values.pop('block_y')}"} if "block_x" in values else {}
    return block | values


def tuned_kernels(config: Mapping[str, Any], kernels: Mapping[str, Kernel], task: str) -> list[str]:
    """The kernels of a task that tunes, in the order of the config. Raises what `expand` would raise for its sweeps,
    except for conditions: it looks at names only, because a space may be large."""
    found: dict[str, None] = {}
    for number, sweep in enumerate(config["tasks"][task]["sweeps"]):
        with _within(f"tasks.{task}.sweeps.{number}"):
            _shapes(config, sweep)
            for kernel, _ in _named(sweep, kernels, config["tasks"][task]["method"]):
                _axes(kernel, sweep, space=True)
                found[kernel.name] = None
    return list(found)


def _choices(kernel: Kernel, sweep: Mapping[str, Any], space: bool = False) -> list[Parameters]:
    """Every combination of the sweep's parameters, and of those of the kernel's `space` if that is asked for."""
    chosen = itertools.product(*_axes(kernel, sweep, space))
    return [tuple(itertools.chain.from_iterable(values)) for values in chosen]


def _axes(kernel: Kernel, sweep: Mapping[str, Any], space: bool) -> list[list[Parameters]]:
    """The values of each parameter, as columns."""
    if space:
        if sweep.get("tuned"):
            raise _Mistake("this task looks for the choice that the registry is to have; remove it", "tuned")
        sweep = {key: list(values) for key, values in kernel.space.items()} | dict(sweep)
    given = [key for key in sweep if key not in ("kernel", "dtype", "shapes", "tuned", "only_timed")]
    takes = ", ".join(kernel.parameters) or "no parameter"
    for key in given:
        if key not in kernel.parameters:
            near = difflib.get_close_matches(key, kernel.parameters, n=1)
            hint = f"did you mean '{near[0]}'? It takes {takes}" if near else f"it takes {takes}"
            raise _Mistake(f"{kernel.name} does not take '{key}'; {hint}")
    for key in kernel.parameters:
        if key not in given:
            more = f", or give its entry in {kernel.folder / 'registry.yaml'} a `space`" if space else ""
            raise _Mistake(f"{kernel.name} needs '{key}'; it takes {takes}{more}")
    return [_values(key, kernel, sweep) for key in kernel.parameters]


def _values(key: str, kernel: Kernel, sweep: Mapping[str, Any]) -> list[Parameters]:
    """The values that a sweep gives one parameter, each as columns."""
    if key == "block":
        sizes = [[int(size) for size in text.split("x")] for text in as_list(sweep[key])]
        return [(("block_x", x), ("block_y", y)) for x, y in sizes]
    least = kernel.least.get(key, 1)
    for value in as_list(sweep[key]):
        if not isinstance(value, int) or value < least:
            raise _Mistake(f"{value!r}; {kernel.name} takes whole numbers of at least {least}", key)
    return [((key, int(value)),) for value in as_list(sweep[key])]


def check_unswept(kernels: Mapping[str, Kernel], swept: Iterable[str]) -> None:
    """Evaluate every kernel that no sweep names once, at its smallest shape, so that a mistake in its entry is found.

    Raises UserError if its launches can be evaluated for none of the choices of parameters that are tried.
    """
    known = set(swept)
    for kernel in (kernel for name, kernel in kernels.items() if name not in known):
        errors = []
        for example in itertools.islice(_examples(kernel), MOST_EXAMPLES):
            try:
                at = at_smallest_shape(example, kernel)
                if at:
                    kernel.plan(at)
                    break
            except UserError as error:
                errors.append(error)
        else:
            if errors:
                raise errors[0]


def _examples(kernel: Kernel) -> Iterator[Point]:
    """Points with choices of parameters that a kernel may take: tuned ones, those of its space, and powers of two."""
    choices = [choice for types in kernel.tuned.values() for classes in types.values() for choice in classes.values()]
    choices += [kernel.space] if kernel.space else []
    for number in (16, 32, 64, 128, 8, 4, 2, 1):
        numbers = {name: max(number, kernel.least.get(name, number)) for name in kernel.parameters}
        choices.append(numbers | ({"block": f"{number}x4"} if "block" in numbers else {}))
    for choice in choices:
        sweep = {key: list(value) if isinstance(value, tuple) else value for key, value in choice.items()}
        with _within(str(kernel.folder / "registry.yaml")):
            chosen = _choices(kernel, sweep)
        for parameters in chosen:
            yield Point("", kernel.name, kernel.dtypes[0], 1, 1, 1, parameters)


def refuse_too_many_threads(points: Iterable[Point], kernels: Mapping[str, Kernel], place: str) -> None:
    """UserError if a point's block has more threads than any device takes."""
    for each in points:
        for launch in kernels[each.kernel].plan(each).launches:
            if launch.threads > MAX_THREADS_PER_BLOCK:
                block = " x ".join(str(size) for size in launch.block if size > 1)
                raise UserError(
                    f"{place}: {each.label()}: a block of {block} = {launch.threads} threads; "
                    f"CUDA allows {MAX_THREADS_PER_BLOCK}, for example 32x32"
                )
