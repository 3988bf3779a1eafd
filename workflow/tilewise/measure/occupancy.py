"""Tables of the resident blocks per multiprocessor of each kernel, and of the best tile width.

On a GPU, the table also holds the answer of CUDA's own interface.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelscope.launch import Launch
from tilewise.compile.build import Builds
from tilewise.study.device import Device
from tilewise.study.kernel import Kernel
from tilewise.study.occupancy import occupancy
from tilewise.study.points import Point, point

Rows = list[dict[str, Any]]


def table(
    points: Iterable[Point],
    kernels: Mapping[str, Kernel],
    builds: Builds,
    device: Device,
    ask: Callable[[Mapping, int, int], int] | None = None,
) -> Rows:
    """One row for each kernel, dtype and choice of parameters among `points`, of the launch that makes the product.

    `ask(entry of an instance, threads, dynamic shared bytes)` is CUDA's own answer on a GPU. Without a GPU no
    registers are known, and there are no rows.
    """
    rows: dict[tuple, dict] = {}
    for at in points:
        kernel = kernels[at.kernel]
        launch = kernel.plan(at, device).product
        entry = _entry(builds, kernel, launch)
        if launch is None or entry is None:
            continue
        block = {"block_x": launch.block[0], "block_y": launch.block[1]}
        row = {"platform": device.platform, "kernel": at.kernel, "dtype": at.dtype} | dict(at.parameters) | block
        key = tuple(row.items())
        if key not in rows:
            shared = launch.dynamic_shared_bytes
            answer = ask(entry, launch.threads, shared) if ask else None
            rows[key] = row | _facts(launch, entry, device) | {"api_active_blocks": answer}
    return list(rows.values())


def tile_choice(kernel: Kernel, builds: Builds, device: Device, widths: Iterable[int] = range(1, 33)) -> Rows:
    """The best tile width on the device for a kernel whose width is chosen at run time.

    There is one row for each dtype and width. `chosen` marks the width with the most active warps; if several are
    equal, the largest of them, because it loads least.
    """
    found: Rows = []
    for dtype in kernel.dtypes:
        rows: Rows = []
        for tile in widths:
            launch = kernel.plan(point("", kernel.name, dtype, tile, tile, tile, tile=tile), device).product
            entry = _entry(builds, kernel, launch)
            if launch is not None and entry is not None:
                row = {"platform": device.platform, "kernel": kernel.name, "dtype": dtype, "tile": tile}
                rows.append(row | _facts(launch, entry, device))
        best = max(rows, key=lambda row: (row["occupancy"], row["tile"]), default=None)
        found += [row | {"chosen": row is best} for row in rows]
    return found


def _entry(builds: Builds, kernel: Kernel, launch: Launch | None) -> Mapping | None:
    """The entry of a launch's instance, if it was compiled for a GPU."""
    instances = builds.get(kernel.name, {}).get("instances", {})
    entry = instances.get(launch.instance, {}) if launch else {}
    return entry if "registers" in entry else None


def _facts(launch: Launch, entry: Mapping, device: Device) -> dict[str, Any]:
    shared = entry["shared_bytes"] + launch.dynamic_shared_bytes
    found = occupancy(launch.threads, entry["registers"], shared, device.limits, device.gpu["compute_capability"])
    return {
        "threads": launch.threads,
        "registers": entry["registers"],
        "shared_bytes": shared,
        "active_blocks": found.active_blocks,
        "occupancy": found.occupancy,
        "limiter": found.limiter,
    }
