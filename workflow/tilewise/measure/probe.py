"""The machine as data: what device.json holds, captured on the machine that measures."""

import contextlib
import datetime
import importlib.metadata
import os
import platform as python_platform
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from tilewise import UserError
from tilewise.compile.cpp import compiler
from tilewise.measure import gpus, nvml, where
from tilewise.study.device import EMULATED_LIMITS, Device

#: Multiply-adds per cycle and multiprocessor by compute capability. Of float, double and int32: CUDA C++ Programming
#: Guide, table "Throughput of Native Arithmetic Instructions", without tensor cores. Of the other types, on tensor
#: cores with float sums: from the peak rates of NVIDIA's white papers for a chip of that capability (V100, RTX 2080
#: Ti, A100, RTX 3090, RTX 4090, H100, B200, RTX 5090), divided by its multiprocessors and boost clock.
LANES: dict[str, dict[str, int]] = {
    "7.0": {"float": 64, "double": 32, "int32": 64, "half": 512},
    "7.5": {"float": 64, "double": 2, "int32": 64, "half": 256},
    "8.0": {"float": 64, "double": 32, "int32": 64, "half": 1024, "bfloat16": 1024, "tf32": 512},
    "8.6": {"float": 128, "double": 2, "int32": 64, "half": 256, "bfloat16": 256, "tf32": 128},
    "8.9": {"float": 128, "double": 2, "int32": 64, "half": 256, "bfloat16": 256, "tf32": 128},
    "9.0": {"float": 128, "double": 64, "int32": 64, "half": 2048, "bfloat16": 2048, "tf32": 1024},
    "10.0": {"float": 128, "double": 64, "int32": 64, "half": 4096, "bfloat16": 4096, "tf32": 2048},
    "12.0": {"float": 128, "double": 2, "int32": 64, "half": 256, "bfloat16": 256, "tf32": 128},
}
PACKAGES = ("snakemake", "numpy", "pandas", "cupy-cuda13x", "cuda-core", "cuda-bench", "nvidia-cuda-nvrtc", "triton")


def capture(platform: str, backend: str) -> Device:
    """Describe this machine: everything that a reader of its numbers may want to know.

    `backend` is gpu or emulator. Raises UserError if a GPU is asked for and cannot be used.
    """
    if backend == "gpu":
        gpu, limits, versions = _gpu(platform)
    else:
        gpu, limits, versions = {}, EMULATED_LIMITS, {}
    return Device(
        platform=platform,
        backend=backend,
        node=where.node(),
        slurm_job=where.slurm_job(),
        captured=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        gpu=gpu,
        limits=limits,
        versions=versions | _packages(),
        cpu=processor(),
        host_compiler=_first_line([*compiler(), "--version"]) or "",
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


def _gpu(platform: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The first GPU that a platform measures, its limits, and the versions of what CUDA runs there."""
    try:
        import cupy
        import pynvml  # noqa: F401  which nvml needs
    except ImportError as error:
        raise UserError(
            f"the platform's backend is gpu, but the package {error.name} is missing; run `make report`, which "
            "installs the GPU packages, or `pip install -e '.[gpu]'`"
        ) from None
    cards = gpus.of_platform(platform)
    with gpus.only(cards[0].uuid):
        return _described(cupy, cards)


def _described(cupy: Any, cards: Sequence[gpus.Gpu]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What CUDA and NVML say of the first of the cards, the only one that this process sees."""
    runtime = cupy.cuda.runtime
    try:
        device = cupy.cuda.Device(0)
        facts = runtime.getDeviceProperties(0)
        free, total = runtime.memGetInfo()
    except runtime.CUDARuntimeError as error:
        raise UserError(
            f"the platform's backend is gpu, but CUDA answers: {error}; is there a GPU, and a driver for CUDA 13 "
            "(580 or newer)?"
        ) from None
    capability, sms = f"{facts['major']}.{facts['minor']}", facts["multiProcessorCount"]
    rated, lanes = nvml.rated(cards[0].uuid), LANES.get(capability, {})
    peaks = {dtype: round(2 * each * sms * rated["sm_clock_mhz"] / 1000, 1) for dtype, each in lanes.items()}
    gpu = {
        "name": cards[0].name,
        "uuid": cards[0].uuid,
        "busy": nvml.busy(cards[0].uuid),
        "all_uuids": [card.uuid for card in cards],
        "compute_capability": capability,
        "sms": sms,
        **rated,
        "memory_bytes": total,
        "memory_free_bytes": free,
        # Two transfers per clock cycle, over the whole bus.
        "memory_bandwidth_gb_s": round(2 * rated["memory_clock_mhz"] * 1e6 * facts["memoryBusWidth"] / 8 / 1e9, 1),
        "l2_bytes": facts["l2CacheSize"],
        "driver": cards[0].driver,
        "peak_gflops": peaks or None,
    }
    attributes = device.attributes
    limits = {
        "max_threads_per_block": facts["maxThreadsPerBlock"],
        "max_grid": list(facts["maxGridSize"]),
        "shared_bytes_per_block": facts["sharedMemPerBlock"],
        "shared_bytes_per_block_optin": facts["sharedMemPerBlockOptin"],
        "shared_bytes_per_sm": facts["sharedMemPerMultiprocessor"],
        "reserved_shared_bytes_per_block": attributes["ReservedSharedMemoryPerBlock"],
        "registers_per_sm": facts["regsPerMultiprocessor"],
        "threads_per_sm": facts["maxThreadsPerMultiProcessor"],
        "blocks_per_sm": attributes["MaxBlocksPerMultiprocessor"],
        "warp_size": facts["warpSize"],
        "memory_bytes": total,
    }
    blas = cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())
    versions = {
        "cuda_driver": _dotted(runtime.driverGetVersion()),
        "cuda_runtime": _dotted(runtime.runtimeGetVersion()),
        "nvrtc": ".".join(str(part) for part in cupy.cuda.nvrtc.getVersion()),
        "cublas": str(blas),
    }
    return gpu, limits, versions


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _packages() -> dict[str, str]:
    found = {"python": python_platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def processor() -> dict[str, Any]:
    """The processor: its name, the cores that this process may use, and the memory of the machine in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "name": where.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
    }


def _first_line(command: list[str]) -> str | None:
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    lines = answer.stdout.splitlines()
    return lines[0] if answer.returncode == 0 and lines else None
