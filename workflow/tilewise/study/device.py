"""The numbers of a device that the study's expressions and checks may use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise import UserError
from tilewise.files import read_json, remedy

#: CUDA's limit on every device so far; a device's other limits come from device.json.
MAX_THREADS_PER_BLOCK = 1024
#: CUDA's limit of blocks in a cluster, on every device that has clusters.
MAX_CLUSTER_BLOCKS = 16
#: A block may use this much shared memory without asking.
DEFAULT_SHARED_BYTES = 48 * 1024

#: Limits of the emulated device, those of compute capability 9.0: threads, bytes, blocks along x, y, z,
#: multiprocessors. Of the last it has few, so that a kernel with as many blocks as multiprocessors gives each of them
#: several tiles.
EMULATED_LIMITS: dict[str, Any] = {
    "sms": 4,
    "max_threads_per_block": MAX_THREADS_PER_BLOCK,
    "shared_bytes_per_block": DEFAULT_SHARED_BYTES,
    "shared_bytes_per_block_optin": 232448,
    "shared_bytes_per_sm": 233472,
    "warp_size": 32,
    "max_grid": [2147483647, 65535, 65535],
}

#: What device.json tells, as far as anything depends on it.
FIELDS = ("platform", "backend", "captured", "gpu", "limits", "versions", "cpu", "host_compiler")


def read(path: Path | str) -> dict[str, Any]:
    """The content of a device.json. Raises UserError, with the remedy, if it is damaged."""
    device = read_json(path)
    missing = [name for name in FIELDS if name not in device]
    if missing:
        raise UserError(f"{path}: the field '{missing[0]}' is missing; {remedy(path)}")
    return device


def numbers(device: Mapping[str, Any] | None) -> dict[str, int]:
    """The whole numbers of a device (the content of device.json) by name, such as `sms`; None is the emulated one."""
    limits = dict(EMULATED_LIMITS if device is None else device["limits"])
    if device is not None and device.get("gpu"):
        limits["sms"] = device["gpu"]["sms"]
    return {"sms": EMULATED_LIMITS["sms"]} | {name: value for name, value in limits.items() if isinstance(value, int)}
