"""The model of bottlenecks: the rate that each resource of a GPU alone would allow a kernel.

The rate is the roof of the resource over what a multiply-add of a warp needs of it, as counted by the hardware, by the
emulator or in the machine code. The lowest of these rates is the bound of the kernel, and its resource limits the
kernel. A roof is what the task `bandwidth` measured, or else what the clock and the units allow:

- instructions: one per cycle and scheduler at the clock of the row. A multiply-add takes one of these slots like any
  other instruction. That multiply-adds alone reach less is a roof of its own, of the multiply-adds, and the only one if
  their units take one in every second cycle, such as Hopper's for double;
- requests and look-ups in L1: one per cycle and multiprocessor at the clock of the row;
- tensor cores: their peak at the clock of the row, because power lowers that clock in long products more than in the
  short ones that measure the roof;
- memory: if ncu did not count its traffic, the need is the least that there can be, every matrix once. Traffic of the
  second cache is then left out.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import LOWERED
from tilewise.study.columns import SHAPE
from tilewise.study.device import SCHEDULERS, WARP
from tilewise.study.precision import ON_TENSOR_CORES, bytes_of_product

#: A kernel that reaches no more of its bound than this waits: for loads, for barriers, or for a launch.
HALF, LATENCY = 0.5, "latency"
#: The columns that `beside_bounds` adds, with their types.
BOUNDS = dict.fromkeys(("bound_gflops", "limited_by", "limit_percent", "second_limit", "second_percent"), "float64")
BOUNDS |= {"limited_by": "str", "second_limit": "str"}


def beside_bounds(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds BOUNDS to rows with the counts of their kernels (`climb.explained`)."""
    gpus = {gpu.name: (gpu.device.gpu, evidence.roofs(gpu.name)) for gpu in evidence.gpus}
    found = [limits(row["gflops"], _rates(row, *gpus[row["platform"]])) for row in rows.to_dict("records")]
    rows = rows.join(pd.DataFrame(found, columns=[*BOUNDS], index=rows.index).astype(BOUNDS))
    highest = rows["platform"].map({name: gpu["sm_clock_mhz"] for name, (gpu, _) in gpus.items()}).astype("float64")
    lowered = (rows["limited_by"] == "tensor cores") & (rows["sm_clock_mhz"] < LOWERED * highest)
    return rows.assign(limited_by=rows["limited_by"].mask(lowered, "tensor cores, whose clock was lowered"))


def limits(gflops: float, allowed: Mapping[str, float]) -> tuple[float, str, float, str, float]:
    """The bound of a run in GFLOP/s, the two resources that allow the lowest rates, and the run's rate in % of these.

    `allowed` is the rate that each resource allows, NaN if that is not known. The first limit is LATENCY, without a
    percentage, if the run reaches at most half of every rate, and empty if it reaches at most half of those that are
    known. A kernel of the tensor cores has no bound without their rate.
    """
    known = sorted((rate, name) for name, rate in allowed.items() if not math.isnan(rate))
    bound = known[0][0] if known and not math.isnan(allowed.get("tensor cores", 0)) else math.nan
    if not (known and gflops > HALF * known[0][0]):
        known.insert(0, (math.nan, LATENCY if known and len(known) == len(allowed) else ""))
    (first, name), (second, other) = [*known, (math.nan, "")][:2]
    return bound, name, 100 * gflops / first, other, 100 * gflops / second


def allowed(needs: Mapping[str, float], roofs: Mapping[str, float]) -> dict[str, float]:
    """The rate in GFLOP/s that each resource alone allows, from the needs of a multiply-add of a warp."""
    return {name: 2 * WARP * roofs[name] / need if need else math.inf for name, need in needs.items()}


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
        "instructions": SCHEDULERS * cycle,
        "requests": cycle,
        "passes of shared memory": of("shared_wavefronts_16_bytes", cycle),
        "look-ups in L1": cycle,
        "L1": of("l1_bandwidth", 128 * cycle),
        "L2": of("l2_bandwidth"),
        "memory": of("memory_bandwidth"),
    }


def _rates(
    row: Mapping[str, Any], gpu: Mapping[str, Any], measured: Mapping[tuple[str, str], float]
) -> dict[str, float]:
    """The rate in GFLOP/s that each resource allows a row; nothing if the kernel's needs are not counted."""
    coded = isinstance(row["multiply_add"], str) and row["multiply_add"] != ""
    # Nothing is counted of a library, nor of a kernel without machine code that may use either units.
    if row["anchor"] or not (coded or row["dtype"] in ON_TENSOR_CORES):
        return {}
    clock = gpu["sm_clock_mhz"] if pd.isna(row["sm_clock_mhz"]) else row["sm_clock_mhz"]
    found = roofs(gpu["sms"] * clock / 1000, measured, row["unit_dtype"])
    n, p, m = (int(row[name]) for name in SHAPE)
    least = WARP * bytes_of_product(row["dtype"], n, p, m) / (n * p * m)  # every matrix once
    needs = {
        "passes of shared memory": row["wavefronts_per_100"] / 100,
        "look-ups in L1": row["lines_per_100"] / 100,
        "L1": 32 * row["sectors_per_100"] / 100,
        "memory": least if pd.isna(row["dram_bytes_each"]) else max(least, row["dram_bytes_each"]),
    }
    if pd.notna(row["l2_bytes_each"]):
        needs["L2"] = row["l2_bytes_each"]
    if "MMA" in row["multiply_add"] if coded else row["unit"] == "tensor core":
        peaks = gpu["peak_gflops"] or {}
        if row["unit_dtype"] in ON_TENSOR_CORES and row["unit_dtype"] in peaks:
            found["tensor cores"] = clock / gpu["sm_clock_mhz"] * peaks[row["unit_dtype"]] / (2 * WARP)
        needs["tensor cores"] = row["unit_products"]
    else:  # an instruction of the tensor cores does more than one multiply-add per thread
        needs |= {"multiply-adds": row["unit_products"], "instructions": 100 / row["executed_percent"]}
        needs["requests"] = row["accesses_per_100"] / 100
    rates = allowed(needs, found)
    emulated = ["look-ups in L1", "L1"]
    if pd.isna(row["hardware_wavefronts_per_100"]):
        emulated.append("passes of shared memory")
    # The emulator counts reads that the compiler joins, and at another shape, whose rows may lie across cache lines.
    return rates | {name: math.nan for name in emulated if rates[name] < row["gflops"]}
