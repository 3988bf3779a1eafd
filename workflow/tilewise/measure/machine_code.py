"""Count the instructions of each kernel's innermost multiply-add loop in its machine code."""

import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tilewise import UserError
from tilewise.compile import build
from tilewise.nvidia import sass
from tilewise.study.device import Device
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.points import Point

Rows = list[dict[str, Any]]


def examine(kernel: Kernel, point: Point, capability: str) -> dict[str, Any]:
    """Compile the launch that makes a point's product, for a compute capability such as "9.0", and read its loop.

    Returns a row of instructions.csv. Raises UserError if it does not compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        kernels = {kernel.name: kernel}
        builds = compile_for(capability, [point], kernels, folder)
        rows = table([point], kernels, builds, capability)
        if not rows:
            [built] = builds.values()
            [entry] = built["instances"].values()
            raise UserError(entry.get("error") or f"{kernel.name}: {built['unsupported']}")
        return rows[0]


def compile_for(
    capability: str, points: Iterable[Point], kernels: Mapping[str, Kernel], folder: Path | str, workers: int = 1
) -> build.Builds:
    """Build the kernels of some points for a compute capability such as "9.0", on a machine that need not have a GPU.

    Raises UserError if there is no compiler.
    """
    device = Device.from_capability(capability)
    asked: dict[str, dict[str, None]] = {}
    for point in points:
        kernel = kernels[point.kernel]
        if kernel.kind == Kind.CUDA:
            asked.setdefault(kernel.name, {})[_product(kernel, point)] = None
    wanted = {name: list(instances) for name, instances in asked.items()}
    return build.build(wanted, kernels, device, folder, workers)


def table(
    points: Iterable[Point],
    kernels: Mapping[str, Kernel],
    builds: build.Builds,
    capability: str,
    workers: int = 1,
) -> Rows:
    """One row per kernel, element type and template instance among `points`, of the launch that makes the product.

    `builds` was made for the compute capability `capability`. What was not
    built as a cubin has no row. `workers` instances are read at a time.
    """
    asked = [(kernels[point.kernel], point) for point in points if kernels[point.kernel].kind == Kind.CUDA]
    instances = dict.fromkeys((kernel.name, point.dtype, _product(kernel, point)) for kernel, point in asked)

    def row(key: tuple[str, str, str]) -> dict[str, Any] | None:
        name, dtype, instance = key
        entry = builds.get(name, {}).get("instances", {}).get(instance, {})
        if "registers" not in entry:
            return None
        loop = sass.main_loop_of(entry["file"], entry["symbol"], dtype)
        about = {"kernel": name, "dtype": dtype, "instance": instance}
        of_build = {name: entry[name] for name in ("registers", "spill_bytes")} | {"build_sha256": entry["sha256"]}
        return about | {"architecture": kernels[name].target(capability)} | loop | of_build

    with ThreadPoolExecutor(workers) as pool:
        return [found for found in pool.map(row, instances) if found]


def _product(kernel: Kernel, point: Point) -> str:
    launch = kernel.plan(point).product
    assert launch is not None  # a CUDA kernel has one
    return launch.instance
