"""Capture device.json, the description of the measuring machine."""

import contextlib
import datetime
import importlib.metadata
import os
import platform as python_platform
import socket
from typing import Any

from kernelscope import cpp
from kernelscope.limits import EMULATED_LIMITS
from tilewise import UserError
from tilewise.measure import environment
from tilewise.nvidia import card, gpus
from tilewise.study.architectures import TOOLKITS
from tilewise.study.device import Device
from tilewise.study.kernel import LANGUAGES

PACKAGES = (
    *("snakemake", "numpy", "pandas", "cupy-cuda12x", "cupy-cuda13x", "cuda-core", "cuda-bench", "nvmath-python"),
    *(toolkit.nvrtc for toolkit in TOOLKITS),
    *dict.fromkeys(language.package for language in LANGUAGES.values()),
)


def capture(platform: str, backend: str) -> Device:
    """Describe this machine: everything that a reader of its numbers may want to know.

    `backend` is gpu or emulator. Raises UserError if a GPU is asked for and cannot be used.
    """
    if backend == "gpu":
        gpu, limits, versions = card.describe(platform)
    else:
        gpu, limits, versions = {}, EMULATED_LIMITS, {}
    return Device(
        platform=platform,
        backend=backend,
        node=environment.node(),
        slurm_job=environment.slurm_job(),
        captured=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        gpu=gpu,
        limits=limits,
        versions=versions | packages(),
        cpu=processor(),
        host_compiler=_host_compiler(),
    )


def check_here(device: Device) -> None:
    """Raise UserError if this is not the kind of machine that `device` (the content of device.json) was captured on.

    On a cluster, the measuring jobs of a platform may run on other nodes than its probe.
    """
    captured, here = [device.cpu["name"]], [processor()["name"]]
    if device.backend == "gpu":
        name = device.gpu["name"]
        captured.append(f"{name}, driver {device.gpu['driver']}")
        seen = gpus.of_model(name) or gpus.visible()
        here.append(f"{seen[0].name}, driver {seen[0].driver}" if seen else "no GPU")
    if captured != here:
        raise UserError(
            f"results/{device.platform}/device.json describes another machine ({'; '.join(captured)}) than "
            f"{socket.gethostname()} ({'; '.join(here)}); on a cluster, give the platform a Slurm constraint that only "
            "one kind of node meets; elsewhere, measure again with `snakemake --cores all --forcerun probe`"
        )


def packages() -> dict[str, str]:
    """The version of Python, and those of the installed packages on which rows may depend."""
    found = {"python": python_platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def processor() -> dict[str, Any]:
    """The processor: its name, the cores that this process may use, and the memory of the machine in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "name": environment.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
    }


def _host_compiler() -> str:
    """What the C++ compiler calls itself; empty if there is none."""
    try:
        return cpp.version().splitlines()[0]
    except UserError:
        return ""
