"""Compute the number of resident blocks per multiprocessor.

Blocks share four resources of a multiprocessor: thread slots, block slots, registers and shared memory. The resource
that runs out first is the limit. The rules are those of NVIDIA's occupancy calculator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.study.device import REGISTER_UNIT
from tilewise.study.expressions import ceil_div

#: The registers lie in four separate parts of the multiprocessor.
REGISTER_PARTS = 4
MAX_REGISTERS_PER_THREAD = 255


@dataclass(frozen=True)
class Occupancy:
    """Blocks that a multiprocessor holds, the share of its warps that they fill, and the resource that limits them."""

    active_blocks: int
    occupancy: float
    limiter: str


def occupancy(threads: int, registers: int, shared_bytes: int, limits: Mapping[str, Any], capability: str) -> Occupancy:
    """The Occupancy of a kernel: threads and shared bytes (static and dynamic) per block, registers per thread.

    `limits` are those of device.json; `capability` is a compute capability such as "9.0". If a multiprocessor cannot
    hold the block, there are no active blocks.
    """
    warp = limits["warp_size"]
    warps = ceil_div(threads, warp)
    registers_per_warp = ceil_div(registers * warp, REGISTER_UNIT) * REGISTER_UNIT
    per_part = limits["registers_per_sm"] // REGISTER_PARTS
    # The warps of a block, spread evenly over all parts, must fit into the registers.
    fits = registers <= MAX_REGISTERS_PER_THREAD and (
        registers_per_warp * ceil_div(warps, REGISTER_PARTS) * REGISTER_PARTS <= limits["registers_per_sm"]
    )
    unit = 128 if int(capability.split(".")[0]) >= 8 else 256  # in which a block gets shared memory
    shared = ceil_div(shared_bytes + limits["reserved_shared_bytes_per_block"], unit) * unit
    allowed = {
        "threads": limits["threads_per_sm"] // warp // warps if threads <= limits["max_threads_per_block"] else 0,
        "registers": _per(per_part, registers_per_warp) * REGISTER_PARTS // warps if fits else 0,
        "shared memory": _per(limits["shared_bytes_per_sm"], shared)
        if shared_bytes <= limits["shared_bytes_per_block_optin"]
        else 0,
        "blocks": limits["blocks_per_sm"],
    }
    limiter = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limiter]
    return Occupancy(blocks, blocks * warps / (limits["threads_per_sm"] // warp), limiter)


def _per(amount: int, share: int) -> int:
    """How many times the share fits into the amount; if the share is 0, a number larger than any device could use."""
    return amount // share if share else 2**31
