"""The machine that measures, as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from kernelscope.limits import EMULATED_LIMITS, MAX_CLUSTER_BLOCKS, PORTABLE_CLUSTER_BLOCKS
from tilewise import UserError
from tilewise.files import read_json, remedy, write_json
from tilewise.study.architectures import LARGE_CLUSTERS
from tilewise.study.schema import validate

#: Threads of a warp, on every device so far.
WARP = 32
#: A multiprocessor has this many schedulers, each of which issues an instruction of a warp per cycle.
SCHEDULERS = 4
#: A warp gets registers in units of this many, on every device since Volta.
REGISTER_UNIT = 256


@dataclass(frozen=True)
class Device:
    """The machine of a platform, as device.json describes it.

    backend: gpu or emulator; gpu: what CUDA and NVML report of the card, empty without one; limits: those of a launch.
    """

    platform: str
    backend: str
    captured: str = ""
    gpu: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    cpu: Mapping[str, Any] = field(default_factory=dict)
    host_compiler: str = ""
    node: str | None = None
    slurm_job: str | None = None

    @classmethod
    def from_capability(cls, capability: str, sms: int = 1) -> "Device":
        """A GPU of which only the compute capability (such as "9.0") and the multiprocessors matter."""
        return cls("", "gpu", gpu={"compute_capability": capability, "sms": sms, "name": "", "driver": ""})

    def numbers(self) -> dict[str, int]:
        """The whole numbers of the device by name, such as `sms`, for the expressions of the registry."""
        limits = {"sms": EMULATED_LIMITS["sms"], "most_cluster_blocks": MAX_CLUSTER_BLOCKS, **self.limits}
        if self.gpu:
            blocks = MAX_CLUSTER_BLOCKS if self.gpu["compute_capability"] in LARGE_CLUSTERS else PORTABLE_CLUSTER_BLOCKS
            limits |= {"sms": self.gpu["sms"], "most_cluster_blocks": blocks}
        return {name: value for name, value in limits.items() if isinstance(value, int)}


#: The device that the emulator stands for, where no platform is concerned.
EMULATED = Device("", "emulator", limits=EMULATED_LIMITS)


def write(device: Device, path: Path | str) -> None:
    """Write a device.json."""
    write_json(asdict(device), path)


def read(path: Path | str) -> Device:
    """The device of a device.json. Raises UserError, with the remedy, if it is damaged."""
    found = read_json(path)
    try:
        validate(found, "device", path)
    except UserError as error:
        raise UserError(f"{error}; {remedy(path)}") from None
    known = {each.name: found[each.name] for each in fields(Device) if each.name in found}
    return Device(**known | {"gpu": found["gpu"] or {}, "host_compiler": found["host_compiler"] or ""})
