"""Describe a card by CUDA and NVML: limits, peaks and versions."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from tilewise import UserError
from tilewise.nvidia import gpus, nvml, toolkits

#: Multiply-adds per cycle and multiprocessor by compute capability. Of float, double and int32: CUDA C++ Programming
#: Guide, table "Throughput of Native Arithmetic Instructions", without tensor cores. Of the other types, on tensor
#: cores with float sums: from the peak rates of NVIDIA's white papers for a chip of that capability (V100, RTX 2080
#: Ti, A100, RTX 3090, RTX 4090, H100, B200, RTX 5090), divided by its multiprocessors and boost clock.
LANES: dict[str, dict[str, int]] = {
    "7.0": {"float": 64, "double": 32, "int32": 64, "half": 512},
    "7.5": {"float": 64, "double": 2, "int32": 64, "half": 256, "int8": 1024},
    "8.0": {"float": 64, "double": 32, "int32": 64, "half": 1024, "bfloat16": 1024, "tf32": 512, "int8": 2048},
    "8.6": {"float": 128, "double": 2, "int32": 64, "half": 256, "bfloat16": 256, "tf32": 128, "int8": 1024},
    "8.9": {"float": 128, "double": 2, "int32": 64, "half": 256, "bfloat16": 256, "tf32": 128, "int8": 1024},
    "9.0": {"float": 128, "double": 64, "int32": 64, "half": 2048, "bfloat16": 2048, "tf32": 1024, "int8": 4096},
    "10.0": {"float": 128, "double": 64, "int32": 64, "half": 4096, "bfloat16": 4096, "tf32": 2048, "int8": 8192},
    "12.0": {"float": 128, "double": 2, "int32": 64, "half": 256, "bfloat16": 256, "tf32": 128, "int8": 1024},
}


def describe(platform: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The first GPU that a platform measures, its limits, and the versions of what CUDA runs there.

    Raises UserError if CUDA or its packages are missing, or no GPU is visible.
    """
    cards = gpus.of_platform(platform)
    toolkits.check(cards[0])
    try:
        import cupy
        import pynvml  # noqa: F401  which nvml needs
    except ImportError as error:
        requirements, why = toolkits.choose(cards, compatible=toolkits.compatible())
        raise UserError(
            f"the platform's backend is gpu, but the package {error.name} is missing; run "
            f"`pip install -r requirements/{requirements}.txt` ({why}), or choose the backend emulator"
        ) from None
    if importlib.util.find_spec("cuda.bench") is None:
        raise UserError(
            "the package cuda-bench, which times, is missing; it has no wheel for aarch64: build it as docs/cluster.md "
            "shows, or choose the backend emulator"
        )
    with gpus.show_only(cards[0].uuid):
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
            f"the platform's backend is gpu, but CUDA reports: {error}; is there a GPU, and a driver for "
            "its CUDA packages (`python -m tilewise.nvidia.toolkits` shows which)?"
        ) from None
    capability, sms = f"{facts['major']}.{facts['minor']}", facts["multiProcessorCount"]
    rated, lanes = nvml.rated_limits(cards[0].uuid), LANES.get(capability, {})
    peaks = {dtype: round(2 * each * sms * rated["sm_clock_mhz"] / 1000, 1) for dtype, each in lanes.items()}
    gpu = {
        "name": cards[0].name,
        "uuid": cards[0].uuid,
        "busy": nvml.other_users(cards[0].uuid),
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
