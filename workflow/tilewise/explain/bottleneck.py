"""Find the bottleneck of a kernel: the resource with the largest used share.

A share is what the kernel needs per multiply-add, counted by the emulator, by the hardware or in the machine code,
times the measured rate of multiply-adds, over what the device can deliver: its roof, measured by the task `bandwidth`,
or else what its clock and its units allow. The roof of the tensor cores is their peak at the clock of the run, because
power lowers that clock in long products more than in the short ones that measure the roof. Traffic behind the first
cache is what ncu counted at the shape that it profiled; if it did not, that of memory is the least that there can be,
every matrix once, and that of the second cache is left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.climb import explained
from tilewise.explain.timings import fastest_first, largest_square, swept_tasks
from tilewise.explain.traffic import bytes_per_multiply_add
from tilewise.study.device import SCHEDULERS, WARP
from tilewise.study.precision import ON_TENSOR_CORES

#: If no resource is used more than this, the kernel waits: for loads, for barriers, or for a launch.
HALF, LATENCY = 0.5, "latency"
#: A resource of which this much of the largest share is used limits as much: roofs are not known any better.
TIED = 0.98
#: A clock is lowered if it is this much below the highest.
LOWERED = 0.98


@dataclass(frozen=True)
class Demand:
    """Resources that a kernel needs per multiply-add of a warp; NaN where there is no count.

    `products` of short numbers make a multiply-add of floats, `multiply_add_share` is that of its instructions,
    `requests` are those to shared memory and the caches, `wavefronts` are passes of shared memory, `lines` are cache
    lines of 128 bytes looked up in the first cache, `sectors` are sectors of 32 bytes loaded through it, `l2_bytes` are
    what the second cache delivers and takes, and `bytes` what memory does.
    """

    on_tensor_cores: bool = False
    products: float = 1
    multiply_add_share: float = math.nan
    requests: float = math.nan
    wavefronts: float = math.nan
    lines: float = math.nan
    sectors: float = math.nan
    l2_bytes: float = math.nan
    bytes: float = math.nan


@dataclass(frozen=True)
class Roofs:
    """Rates of a device: its multiprocessors, their clock during the run in MHz, and its measured roofs.

    `measured` has rates in 10^9 a second by (quantity, element type), as in the facts of `bandwidth`; `tensor_peaks`
    are GFLOP/s of the tensor cores at that clock, by element type.
    """

    sms: int
    clock_mhz: float
    measured: Mapping[tuple[str, str], float] = field(default_factory=dict)
    tensor_peaks: Mapping[str, float] = field(default_factory=dict)

    def per_cycle(self, amount: float = 1) -> float:
        """10^9 a second, of so many per cycle and multiprocessor."""
        return amount * self.sms * self.clock_mhz / 1000


def shares(gflops: float, demand: Demand, roofs: Roofs, dtype: str) -> dict[str, float]:
    """The share of its roof that a run at this rate used, per resource; NaN where it is not known.

    `dtype` is the type that the units multiply.
    """
    warps = gflops / 2 / WARP  # 10^9 multiply-adds of a warp per second
    if demand.on_tensor_cores:
        units, peak = (
            "tensor cores",
            roofs.tensor_peaks.get(dtype, roofs.measured.get(("tensor_rate", dtype), math.nan)),
        )
    else:
        units, peak = "multiply-adds", roofs.measured.get(("multiply_add_rate", dtype), math.nan)
    wavefronts = roofs.measured.get(("shared_wavefronts_16_bytes", "float"), roofs.per_cycle())
    found = {
        units: gflops * demand.products / peak,
        "shared memory": warps * demand.wavefronts / wavefronts,
        "look-ups in L1": warps * demand.lines / roofs.per_cycle(),
        "L1": 32 * warps * demand.sectors / roofs.measured.get(("l1_bandwidth", "float"), roofs.per_cycle(128)),
        "memory": warps * demand.bytes / roofs.measured.get(("memory_bandwidth", "float"), math.nan),
    }
    if not math.isnan(demand.l2_bytes):
        found["L2"] = warps * demand.l2_bytes / roofs.measured.get(("l2_bandwidth", "float"), math.nan)
    if not demand.on_tensor_cores:  # whose instructions do more than one multiply-add per thread
        found["requests"] = warps * demand.requests / roofs.per_cycle()
        found["issue slots"] = warps / demand.multiply_add_share / roofs.per_cycle(SCHEDULERS)
    return found


def limiting_resource(used: Mapping[str, float]) -> tuple[str, float]:
    """The resource with the largest share, and the share; `latency`, which has no share, if none is above half.

    Resources that are TIED are named together, the largest first. Nothing, and NaN, if none of those that are known is
    above half and one is not known.
    """
    known = {name: share for name, share in used.items() if not math.isnan(share)}
    name = max(known, key=lambda resource: known[resource], default="")
    if name and known[name] > HALF:
        tied = sorted((other for other in known if known[other] >= TIED * known[name]), key=lambda other: -known[other])
        return " and ".join(tied), known[name]
    return (LATENCY if name and len(known) == len(used) else ""), math.nan


def limits(evidence: Evidence) -> pd.DataFrame:
    """Bottlenecks of the best choice of each kernel and element type at the largest square product of each GPU.

    `limited_by` is the resource with the largest share of its roof, `limit_percent` the share, and `second_limit` and
    `second_percent` the next; the roofs are those at the row's own clock, where they follow from one.
    """
    rows = largest_square(evidence.select_tasks(*swept_tasks(evidence)).gpu)
    rows = fastest_first(rows).drop_duplicates(["platform", "kernel", "dtype"])
    rows = explained(rows, evidence)
    found = [_limits_of(row, evidence) for row in rows.to_dict("records")]
    names = ["limited_by", "limit_percent", "second_limit", "second_percent"]
    added = pd.DataFrame(found, columns=names, index=rows.index)
    types = {name: "float64" if name.endswith("percent") else "str" for name in names}
    return rows.join(added.astype(types)).sort_values(["platform", "dtype", "gflops"], kind="stable", ignore_index=True)


def _limits_of(row: Mapping[str, Any], evidence: Evidence) -> tuple[str, float, str, float]:
    """The two resources that a run used most, each with its share in percent."""
    coded = isinstance(row["multiply_add"], str) and row["multiply_add"] != ""
    # Nothing is counted of a library, nor of a kernel without machine code that may use either units.
    if row["anchor"] or not (coded or row["dtype"] in ON_TENSOR_CORES):
        return "", math.nan, "", math.nan
    gpu, measured = evidence.device(row["platform"]).gpu, evidence.roofs(row["platform"])
    wavefronts = row["hardware_wavefronts_per_100"]
    least = bytes_per_multiply_add(row)
    demand = Demand(
        on_tensor_cores="MMA" in row["multiply_add"] if coded else row["unit"] == "tensor core",
        products=row["unit_products"],
        multiply_add_share=row["executed_percent"] / 100,
        requests=row["accesses_per_100"] / 100,
        wavefronts=row["wavefronts_per_100"] / 100,
        lines=row["lines_per_100"] / 100,
        sectors=row["sectors_per_100"] / 100,
        l2_bytes=row["l2_bytes_each"],
        bytes=least if pd.isna(row["dram_bytes_each"]) else max(least, row["dram_bytes_each"]),
    )
    clock = gpu["sm_clock_mhz"] if pd.isna(row["sm_clock_mhz"]) else row["sm_clock_mhz"]
    slowed = clock / gpu["sm_clock_mhz"]
    peaks = {name: peak * slowed for name, peak in (gpu["peak_gflops"] or {}).items() if name in ON_TENSOR_CORES}
    used = shares(row["gflops"], demand, Roofs(gpu["sms"], clock, measured, peaks), row["unit_dtype"])
    if pd.isna(wavefronts) and used["shared memory"] > 1:  # the emulator counted reads that the compiler joins
        used["shared memory"] = math.nan
    name, share = limiting_resource(used)
    if name == "tensor cores" and slowed < LOWERED:
        name = "tensor cores, whose clock was lowered"
    others = sorted((part, other) for other, part in used.items() if not part >= share and not math.isnan(part))
    second = others[-1] if others else (math.nan, "")
    return name, 100 * share, second[1], 100 * second[0]
