"""Hash everything that determines a binary; equal hashes mean equal binaries. No compiler is needed."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from kernelscope.files import digest
from tilewise import UserError
from tilewise.study.device import Device
from tilewise.study.kernel import LANGUAGES, Kernel, Kind
from tilewise.study.sources import without_comments
from tilewise.study.sweeps import recorded_point

#: The options of the CPU loops, and the standard of C++ in which NVRTC compiles.
HOST_FLAGS, STANDARD = ("-O3",), "c++17"


def source_sha256(kernel: Kernel, instance: str, device: Device) -> str:
    """The hash of an instance: of its sources, with all that they include, its options and its target.

    It needs no compiler. The comments of C++ do not count, so they can be edited after a run was recorded; lines do,
    because messages name them.
    """
    return _source_sha256(tuple(kernel.code), kernel.path.suffix, instance, _options(kernel, device))


@functools.lru_cache(maxsize=4096)  # many rows of a run share an instance
def _source_sha256(code: tuple[str, ...], suffix: str, instance: str, options: tuple[str, str]) -> str:
    source, *headers = map(without_comments, code) if suffix != ".py" else code
    return digest([source, *([headers] if headers else []), instance, *options])


def row_sha256(row: Mapping[str, Any], kernel: Kernel, device: Device) -> str:
    """The `build_sha256` that a row of a kernel should have: of instructions.csv by its instance, of other files by its
    point; empty for a point that the kernel does not take."""
    if not kernel.source:
        return library_sha256(kernel, device)
    if "instance" in row and "status" not in row:  # of instructions.csv
        return source_sha256(kernel, row["instance"], device)
    try:
        point = recorded_point(row, kernel)
        return sha256_of(kernel, kernel.plan(point).instances, device) if point else ""
    except UserError:
        return ""


def sha256_of(kernel: Kernel, instances: Sequence[str], device: Device) -> str:
    """The hash of an instance, or of the hashes of several, in their order."""
    hashes = [source_sha256(kernel, instance, device) for instance in instances]
    return hashes[0] if len(hashes) == 1 else digest(hashes)


def library_sha256(kernel: Kernel, device: Device) -> str:
    """The hash of a library's call: of its name and the version of the library."""
    return digest([kernel.name, device.versions.get(str(kernel.library))])


def _options(kernel: Kernel, device: Device) -> tuple[str, str]:
    if kernel.kind == Kind.HOST:
        return " ".join(HOST_FLAGS), device.host_compiler
    if device.backend == "emulator":
        return "emulator", device.host_compiler
    standard = str(kernel.kind) if kernel.kind in LANGUAGES else STANDARD
    return kernel.target(device.gpu["compute_capability"]), standard
