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
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.climb import explained
from tilewise.explain.timings import LOWERED, fastest_first, largest_square, swept_tasks
from tilewise.explain.traffic import bytes_per_multiply_add
from tilewise.study.device import SCHEDULERS, WARP
from tilewise.study.precision import ON_TENSOR_CORES

#: If no resource is used more than this, the kernel waits: for loads, for barriers, or for a launch.
HALF, LATENCY = 0.5, "latency"
#: A resource of which this much of the largest share is used limits as much: roofs are not known any better.
TIED = 0.98


def roofs(cycle: float, measured: Mapping[tuple[str, str], float], dtype: str) -> dict[str, float]:
    """What a device delivers per resource, in 10^9 a second; NaN if its roof was not measured.

    `cycle` is one per cycle and multiprocessor, `measured` are rates by (quantity, element type), as in the facts of
    `bandwidth`, and `dtype` is the type that the units multiply. The units make multiply-adds of warps.
    """

    def of(quantity: str, otherwise: float = math.nan, dtype: str = "float") -> float:
        return measured.get((quantity, dtype), otherwise)

    return {
        "tensor cores": of("tensor_rate", dtype=dtype) / (2 * WARP),
        "multiply-adds": of("multiply_add_rate", dtype=dtype) / (2 * WARP),
        "shared memory": of("shared_wavefronts_16_bytes", cycle),
        "look-ups in L1": cycle,
        "L1": of("l1_bandwidth", 128 * cycle),
        "L2": of("l2_bandwidth"),
        "memory": of("memory_bandwidth"),
        "requests": cycle,
        "issue slots": SCHEDULERS * cycle,
    }


def shares(gflops: float, needs: Mapping[str, float], roofs: Mapping[str, float]) -> dict[str, float]:
    """The share of its roof that a run at this rate used, per resource; NaN where it is not known.

    `needs` are those of a multiply-add of a warp.
    """
    return {name: gflops / (2 * WARP) * need / roofs[name] for name, need in needs.items()}


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
    gpu, least = evidence.device(row["platform"]).gpu, bytes_per_multiply_add(row)
    clock = gpu["sm_clock_mhz"] if pd.isna(row["sm_clock_mhz"]) else row["sm_clock_mhz"]
    slowed = clock / gpu["sm_clock_mhz"]
    found = roofs(gpu["sms"] * clock / 1000, evidence.roofs(row["platform"]), row["unit_dtype"])
    needs = {
        "shared memory": row["wavefronts_per_100"] / 100,
        "look-ups in L1": row["lines_per_100"] / 100,
        "L1": 32 * row["sectors_per_100"] / 100,
        "memory": least if pd.isna(row["dram_bytes_each"]) else max(least, row["dram_bytes_each"]),
    }
    if pd.notna(row["l2_bytes_each"]):
        needs["L2"] = row["l2_bytes_each"]
    if "MMA" in row["multiply_add"] if coded else row["unit"] == "tensor core":
        needs["tensor cores"] = row["unit_products"]
        if row["unit_dtype"] in ON_TENSOR_CORES and row["unit_dtype"] in (gpu["peak_gflops"] or {}):
            found["tensor cores"] = slowed * gpu["peak_gflops"][row["unit_dtype"]] / (2 * WARP)
    else:  # an instruction of the tensor cores does more than one multiply-add per thread
        needs |= {"multiply-adds": row["unit_products"], "requests": row["accesses_per_100"] / 100}
        needs["issue slots"] = 100 / row["executed_percent"]
    used = shares(row["gflops"], needs, found)
    uncounted = pd.isna(row["hardware_wavefronts_per_100"])
    if uncounted and used["shared memory"] > 1:  # the emulator counted reads that the compiler joins
        used["shared memory"] = math.nan
    name, share = limiting_resource(used)
    if name == "tensor cores" and slowed < LOWERED:
        name = "tensor cores, whose clock was lowered"
    others = sorted((part, other) for other, part in used.items() if not (part >= TIED * share or math.isnan(part)))
    second = others[-1] if others else (math.nan, "")
    return name, 100 * share, second[1], 100 * second[0]
