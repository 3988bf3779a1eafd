"""What limits a kernel: the resource of which its run used the largest share.

A share is what the kernel asks for per multiply-add, counted by the emulator, by the hardware or in the machine code,
times the measured rate of multiply-adds, over what the device can deliver: its roof, measured by the task `bandwidth`,
or else what its clock and its units allow. Traffic behind the first cache is what ncu counted at the shape that it
profiled; if it did not, that of memory is the least that there can be, every matrix once, and that of the second cache
is left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: A multiprocessor has so many schedulers, each of which issues an instruction of a warp of so many threads per cycle.
SCHEDULERS, WARP = 4, 32
#: If no resource is used more than this, the kernel waits: for loads, for barriers, or for a launch.
HALF, LATENCY = 0.5, "latency"


@dataclass(frozen=True)
class Demand:
    """What a kernel asks for, per multiply-add of a warp; NaN for what nobody counted.

    `multiply_add_share` is that of its loop's instructions, `wavefronts` are passes of shared memory, `lines` are cache
    lines of 128 bytes looked up in the first cache, `sectors` are sectors of 32 bytes loaded through it, `l2_bytes`
    are what the second cache delivers and takes, and `bytes` what memory does.
    """

    on_tensor_cores: bool = False
    multiply_add_share: float = math.nan
    wavefronts: float = math.nan
    lines: float = math.nan
    sectors: float = math.nan
    l2_bytes: float = math.nan
    bytes: float = math.nan


@dataclass(frozen=True)
class Roofs:
    """What a device delivers: its multiprocessors, their clock during the run in MHz, and what was measured of it.

    `measured` has rates in 10^9 a second by (quantity, element type), as in the facts of `bandwidth`.
    """

    sms: int
    clock_mhz: float
    measured: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def per_cycle(self, amount: float = 1) -> float:
        """10^9 a second, of so many per cycle and multiprocessor."""
        return amount * self.sms * self.clock_mhz / 1000


def shares(gflops: float, demand: Demand, roofs: Roofs, dtype: str) -> dict[str, float]:
    """Of each resource the share of its roof that a run at this rate used; NaN for what is not known."""
    warps = gflops / 2 / WARP  # 10^9 multiply-adds of a warp per second
    units, rate = ("tensor cores", "tensor_rate") if demand.on_tensor_cores else ("multiply-adds", "multiply_add_rate")
    wavefronts = roofs.measured.get(("shared_wavefronts_16_bytes", "float"), roofs.per_cycle())
    found = {
        units: gflops / roofs.measured.get((rate, dtype), math.nan),
        "shared memory": warps * demand.wavefronts / wavefronts,
        "look-ups in L1": warps * demand.lines / roofs.per_cycle(),
        "L1": 32 * warps * demand.sectors / roofs.measured.get(("l1_bandwidth", "float"), roofs.per_cycle(128)),
        "memory": warps * demand.bytes / roofs.measured.get(("memory_bandwidth", "float"), math.nan),
    }
    if not math.isnan(demand.l2_bytes):
        found["L2"] = warps * demand.l2_bytes / roofs.measured.get(("l2_bandwidth", "float"), math.nan)
    if not demand.on_tensor_cores:  # whose instructions do more than one multiply-add per thread
        found["issue slots"] = warps / demand.multiply_add_share / roofs.per_cycle(SCHEDULERS)
    return found


def limited_by(used: Mapping[str, float]) -> tuple[str, float]:
    """The resource with the largest share, and the share; `latency` if none is above half.

    Nothing, and NaN, if none of those that are known is above half and one is not known.
    """
    known = {name: share for name, share in used.items() if not math.isnan(share)}
    name = max(known, key=lambda resource: known[resource], default="")
    if name and known[name] > HALF:
        return name, known[name]
    return (LATENCY, known[name]) if name and len(known) == len(used) else ("", math.nan)


def bytes_per_multiply_add(row: Mapping[str, Any], itemsize: int) -> float:
    """Bytes of the three matrices of a product per multiply-add of a warp."""
    n, p, m = (float(row[name]) for name in ("n", "p", "m"))
    return WARP * itemsize * (n * p + p * m + n * m) / (n * p * m)
