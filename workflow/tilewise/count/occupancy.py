"""How many blocks of a kernel a multiprocessor holds at a time, and which tile width is best for that.

Blocks share four resources of a multiprocessor: thread slots, block slots, registers and shared memory. The resource
that runs out first is the limit. The rules are those of NVIDIA's occupancy calculator; on a GPU, the table also holds
the answer of CUDA's API.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tilewise.study.points import Point

COLUMNS = (
    "platform kernel dtype block_x block_y tile ntb threads registers shared_bytes active_blocks occupancy limiter "
    "api_active_blocks"
).split()
CHOICE_COLUMNS = (
    "platform kernel dtype tile threads registers shared_bytes active_blocks occupancy limiter chosen"
).split()
WHOLE = "block_x block_y tile ntb threads registers shared_bytes active_blocks api_active_blocks".split()

#: A warp gets registers in units of this many; they lie in four separate parts of the multiprocessor.
REGISTER_UNIT = 256
REGISTER_PARTS = 4
MAX_REGISTERS_PER_THREAD = 255
#: A block may use this much shared memory without raising the kernel's limit.
DEFAULT_SHARED_BYTES = 48 * 1024


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


def table(points, kernels, manifests, device, ask=None):
    """One row for each kernel, dtype and launch among `points`; returns a DataFrame with COLUMNS.

    `manifests` maps a kernel's name to the content of its manifest.json. On a GPU, `ask(kernel name, entry, threads,
    dynamic shared bytes)` returns CUDA's own answer. Without a GPU the registers are not known, so the table is empty.
    """
    rows = {}
    for point in points:
        kernel = kernels[point.kernel]
        geometry = kernel.geometry(point)
        entry = _entry(manifests, kernel, point) if geometry else None
        if entry is None:
            continue
        facts = _facts(geometry, entry, device)
        row = {name: getattr(point, name) for name in ("kernel", "dtype", "tile", "ntb")} | facts
        row |= {"platform": device["platform"], "block_x": geometry.block[0], "block_y": geometry.block[1]}
        key = tuple(row[name] for name in ("kernel", "dtype", "block_x", "block_y", "tile", "ntb"))
        if key in rows:
            continue
        row["api_active_blocks"] = (
            ask(kernel.name, entry, geometry.threads, geometry.dynamic_shared_bytes) if ask else None
        )
        rows[key] = row
    return _frame(rows.values(), COLUMNS)


def tile_choice(kernel, manifest, device, widths=range(1, 33)):
    """Which tile width is best on the device for a kernel whose width is chosen at run time; returns a DataFrame.

    There is one row for each dtype and width. `chosen` marks the width with the most active warps; if several are
    equal, the largest of them, because it loads least.
    """
    found = []
    for dtype in kernel.dtypes:
        rows = []
        for tile in widths:
            point = Point("", kernel.name, dtype, tile, tile, tile, tile=tile)
            entry = _entry({kernel.name: manifest}, kernel, point)
            if entry is not None:
                row = {"platform": device["platform"], "kernel": kernel.name, "dtype": dtype, "tile": tile}
                rows.append(row | _facts(kernel.geometry(point), entry, device))
        best = max(rows, key=lambda row: (row["occupancy"], row["tile"]), default=None)
        found += [row | {"chosen": row is best} for row in rows]
    return _frame(found, CHOICE_COLUMNS)


def _entry(manifests, kernel, point):
    """The manifest's entry for the instance of a point, if it was compiled for a GPU."""
    entry = manifests.get(kernel.name, {}).get("instances", {}).get(kernel.instance(point), {})
    return entry if "registers" in entry else None


def _facts(geometry, entry, device):
    shared = entry["shared_bytes"] + geometry.dynamic_shared_bytes
    found = occupancy(
        geometry.threads, entry["registers"], shared, device["limits"], device["gpu"]["compute_capability"]
    )
    return {
        "threads": geometry.threads,
        "registers": entry["registers"],
        "shared_bytes": shared,
        "active_blocks": found.active_blocks,
        "occupancy": found.occupancy,
        "limiter": found.limiter,
    }


def _frame(rows, columns):
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({name: "Int64" for name in WHOLE if name in columns})


def cuda_api(builds):
    """A function that asks CUDA's occupancy API about a compiled kernel, for `table`; needs a GPU.

    `builds` maps a kernel's name to its build folder.
    """
    import cupy
    from cupy.cuda import driver

    def ask(name, entry, threads, dynamic_shared_bytes):
        kernel = cupy.RawModule(path=str(Path(builds[name]) / entry["file"])).get_function(entry["symbol"])
        if dynamic_shared_bytes + entry["shared_bytes"] > DEFAULT_SHARED_BYTES:
            kernel.max_dynamic_shared_size_bytes = dynamic_shared_bytes
        return driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, dynamic_shared_bytes)

    return ask
