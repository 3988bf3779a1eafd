"""How many blocks of a kernel a multiprocessor holds at a time, and which tile width is best for that.

Blocks share four resources of a multiprocessor: thread slots, block slots, registers and shared memory. The resource
that runs out first is the limit. The rules are those of NVIDIA's occupancy calculator; on a GPU, the table also holds
the answer of CUDA's API.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.compile.build import Builds
from tilewise.study.device import REGISTER_UNIT, Device
from tilewise.study.kernel import Kernel
from tilewise.study.launch import Launch
from tilewise.study.points import Point, point

Rows = list[dict[str, Any]]

#: The registers lie in four separate parts of the multiprocessor.
REGISTER_PARTS = 4
MAX_REGISTERS_PER_THREAD = 255


@dataclass(frozen=True)
class Occupancy:
    """Blocks that a multiprocessor holds, the share of its warps that they fill, and the resource that limits them."""

    active_blocks: int
    occupancy: float
    limiter: str


def occupancy(threads, registers, shared_bytes, limits, capability):
    """The Occupancy of a kernel: threads and shared bytes (static and dynamic) per block, registers per thread.

    `limits` are those of device.json; `capability` is a compute capability such as "9.0". If a multiprocessor cannot
    hold the block, there are no active blocks.
    """
    warp = limits["warp_size"]
    warps = _units(threads, warp)
    registers_per_warp = _units(registers * warp, REGISTER_UNIT) * REGISTER_UNIT
    per_part = limits["registers_per_sm"] // REGISTER_PARTS
    # The warps of a block, spread evenly over all parts, must fit into the registers.
    fits = registers <= MAX_REGISTERS_PER_THREAD and (
        registers_per_warp * _units(warps, REGISTER_PARTS) * REGISTER_PARTS <= limits["registers_per_sm"]
    )
    unit = shared_unit(capability)
    shared = _units(shared_bytes + limits["reserved_shared_bytes_per_block"], unit) * unit
    allowed = {
        "threads": limits["threads_per_sm"] // warp // warps if threads <= limits["max_threads_per_block"] else 0,
        "registers": _per(per_part, registers_per_warp) * REGISTER_PARTS // warps if fits else 0,
        "shared memory": _per(limits["shared_bytes_per_sm"], shared)
        if shared_bytes <= limits["shared_bytes_per_block_optin"]
        else 0,
        "blocks": limits["blocks_per_sm"],
    }
    limiter = min(allowed, key=allowed.get)
    blocks = allowed[limiter]
    return Occupancy(blocks, blocks * warps / (limits["threads_per_sm"] // warp), limiter)


def shared_unit(capability):
    """A block gets shared memory in units of this many bytes: 128 from compute capability 8.0 on, 256 before."""
    return 128 if int(capability.split(".")[0]) >= 8 else 256


def _units(amount, unit):
    """How many units are needed to hold the amount."""
    return -(-amount // unit)


def _per(amount, share):
    """How many times the share fits into the amount; if the share is 0, a number larger than any device could use."""
    return amount // share if share else 2**31


def table(
    points: Iterable[Point],
    kernels: Mapping[str, Kernel],
    builds: Builds,
    device: Device,
    ask: Callable[[Mapping, int, int], int] | None = None,
) -> Rows:
    """One row for each kernel, dtype and choice of parameters among `points`, of the launch that makes the product.

    `ask(entry of an instance, threads, dynamic shared bytes)` is CUDA's own answer on a GPU. Without a GPU no registers
    are known, and there are no rows.
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
    """Which tile width the device favours for a kernel whose width is chosen at run time.

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


def cuda_api() -> Callable[[Mapping, int, int], int]:
    """A function that asks CUDA's occupancy API about a compiled kernel, for `table`; needs a GPU."""
    from cuda.bindings import driver

    from tilewise.measure.backends.launcher import allow_shared, done, load

    def ask(entry: Mapping, threads: int, dynamic_shared_bytes: int) -> int:
        function = load(entry["file"], entry["symbol"])
        allow_shared(function, dynamic_shared_bytes)
        return done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function.handle, threads, dynamic_shared_bytes))

    return ask
