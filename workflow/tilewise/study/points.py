"""The points of the study: every combination that a task of the config asks for, as plain data."""

import dataclasses
import difflib
import itertools
from dataclasses import dataclass

from tilewise import UserError
from tilewise.study.registry import DTYPES, MAX_THREADS_PER_BLOCK


@dataclass(frozen=True)
class Point:
    """One product to verify and time: C (n x m) = A (n x p) B (p x m) by one kernel with one choice of parameters.

    A field is None where the kernel has no such parameter; block_x and block_y are threads.
    """

    task: str
    kernel: str
    dtype: str
    n: int
    p: int
    m: int
    block_x: int | None = None
    block_y: int | None = None
    tile: int | None = None
    ntb: int | None = None

    def label(self):
        """The point in words, for messages: `tiled float 64x64x64 tile=16` (n x p x m)."""
        block = f" block={self.block_x}x{self.block_y}" if self.block_x and not self.tile else ""
        parameters = "".join(f" {k}={getattr(self, k)}" for k in ("tile", "ntb") if getattr(self, k))
        return f"{self.kernel} {self.dtype} {self.n}x{self.p}x{self.m}{block}{parameters}"


def _listed(value):
    return value if isinstance(value, list) else [value]


def _one_of(value, known, place):
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
        raise UserError(f"{place}: there is no '{value}'; {hint}")
    return known[value]


def expand(config, kernels, task, backend="gpu"):
    """The points of one task, in the order of the config, each once.

    `config` is a validated config, `kernels` the registry. On the backend `emulator` the sweeps of CUDA kernels run at
    the emulator's shapes, but for those that the kernel's `requires` excludes, and library calls for the GPU drop out;
    the CPU's loops and libraries are the same everywhere.
    Raises UserError for a point that cannot be right on any device.
    """
    place = f"tasks.{task}"
    method = config["tasks"][task].get("method", "sweep")
    found = {}
    for number, sweep in enumerate(config["tasks"][task].get("sweeps", [])):
        where = f"{place}.sweeps.{number}"
        for name in _listed(sweep["kernel"]):
            kernel = _one_of(name, kernels, f"{where}.kernel")
            shapes = _shapes(config, method, sweep, where)
            if method != "sweep" and kernel.kind != "cuda":
                cuda = ", ".join(other for other, entry in kernels.items() if entry.kind == "cuda")
                raise UserError(f"{where}.kernel: {method} is for CUDA kernels, and {name} is none; there are {cuda}")
            if backend == "emulator":
                if name == "cublas":
                    continue
                if kernel.kind == "cuda" and "shapes" in sweep and method != "launch_limits":
                    shapes = config["emulator"]["shapes"]
            for dtype, shape, choice in itertools.product(
                _listed(sweep["dtype"]), shapes, _choices(kernel, sweep, where)
            ):
                _one_of(dtype, DTYPES, f"{where}.dtype")
                if dtype not in kernel.dtypes:
                    raise UserError(f"{where}.dtype: {name} is not for {dtype}; it takes {', '.join(kernel.dtypes)}")
                point = Point(task, name, dtype, **shape, **choice)
                if backend == "emulator" and kernel.unmet(point):
                    continue
                found[_checked(point, kernel, where, method)] = None
    if method == "maximum_size" and len(found) > 1:
        raise UserError(
            f"{place}: maximum_size is for one kernel, dtype and choice, not {len(found)}; make a task of each"
        )
    # On the emulator every kernel runs at the emulator's shapes.
    if method == "cold_start" and backend == "gpu" and len({(p.dtype, p.n, p.p, p.m) for p in found}) > 1:
        raise UserError(f"{place}: cold_start is for one shape and dtype; make a task of each")
    return list(found)


def _shapes(config, method, sweep, where):
    if method == "maximum_size":
        return [{"n": 1, "p": 1, "m": 1}]  # the probe finds n; this only carries the kernel and its parameters
    if "shapes" not in sweep:
        raise UserError(f"{where}: the key 'shapes' is missing; name one of {', '.join(config['shapes'])}")
    return [s for name in _listed(sweep["shapes"]) for s in _one_of(name, config["shapes"], f"{where}.shapes")]


def _choices(kernel, sweep, where):
    """Every combination of the sweep's parameters, as keyword arguments of Point."""
    for key in ("block", "tile", "ntb"):
        if (key in sweep) != (key in kernel.parameters):
            wanted = ", ".join(kernel.parameters) or "no parameter"
            verb = "does not take" if key in sweep else "needs"
            raise UserError(f"{where}: {kernel.name} {verb} '{key}'; it takes {wanted}")
    axes = [_listed(sweep[key]) for key in kernel.parameters]
    for values in itertools.product(*axes):
        choice = dict(zip(kernel.parameters, values))
        if "block" in choice:
            x, y = choice.pop("block").split("x")
            choice |= {"block_x": int(x), "block_y": int(y)}
        yield choice


def _checked(point, kernel, where, method):
    """The point with its block filled in from the registry; UserError where no device could run it.

    The method launch_limits is there to launch what no device runs.
    """
    unmet = kernel.unmet(point)
    if unmet:
        raise UserError(f"{where}: {point.label()}: {kernel.name} requires {unmet}; choose other sizes")
    geometry = kernel.geometry(point)
    if geometry is None:
        return point
    if geometry.threads > MAX_THREADS_PER_BLOCK and method != "launch_limits":
        x, y = geometry.block
        raise UserError(
            f"{where}: {point.label()}: a block of {x} x {y} = {geometry.threads} threads; "
            f"CUDA allows {MAX_THREADS_PER_BLOCK}, for example 32x32"
        )
    return dataclasses.replace(point, block_x=geometry.block[0], block_y=geometry.block[1])
