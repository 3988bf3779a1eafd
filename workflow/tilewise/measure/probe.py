"""The machine as data: what device.json holds, captured on the machine that measures."""

import contextlib
import datetime
import importlib.metadata
import os
import platform as python_platform
import socket
import subprocess

from tilewise import ROOT, UserError
from tilewise.build.cpp import compiler

#: Multiply-adds per cycle and multiprocessor, by compute capability: (float, double, int32). From the CUDA C++
#: Programming Guide, table "Throughput of Native Arithmetic Instructions". Tensor cores are not counted.
LANES = {
    "7.0": (64, 32, 64),
    "7.5": (64, 2, 64),
    "8.0": (64, 32, 64),
    "8.6": (128, 2, 64),
    "8.9": (128, 2, 64),
    "9.0": (128, 64, 64),
    "10.0": (128, 64, 64),
    "12.0": (128, 2, 64),
}
PACKAGES = ("snakemake", "numpy", "pandas", "cupy-cuda13x", "cuda-core", "cuda-bench", "nvidia-cuda-nvrtc")


def capture(platform, backend, config):
    """Everything about this machine that a reader of its numbers may want to know, as data for device.json.

    `backend` is gpu or emulator. Raises UserError if a GPU is asked for and cannot be used.
    """
    if backend == "gpu":
        gpu, limits, versions = _gpu()
    else:
        from tilewise.measure.backends.emulator import EMULATED_LIMITS

        gpu, limits, versions = None, EMULATED_LIMITS | {"memory_bytes": config["emulator"]["memory_bytes"]}, {}
    return {
        "platform": platform,
        "backend": backend,
        "captured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": gpu,
        "limits": limits,
        "versions": versions | _packages(),
        "cpu": _cpu(),
        "host_compiler": _first_line([*compiler(), "--version"]),
        "commit": _first_line(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
        "dirty": bool(_first_line(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])),
        "config": config,
    }


def machine(device):
    """The part of device.json that identifies the kind of machine; measurements from another kind are not reused."""
    gpu = device["gpu"] or {}
    return {
        "backend": device["backend"],
        "gpu": gpu.get("name"),
        "driver": gpu.get("driver"),
        "cpu": device["cpu"],
        "host_compiler": device["host_compiler"],
        "versions": device["versions"],
    }


def check_here(device):
    """Raise UserError if this is not the kind of machine that `device` (the content of device.json) describes.

    On a cluster, the measuring jobs of a platform may run on other nodes than its probe.
    """
    captured, here = [device["cpu"]["name"]], [_cpu()["name"]]
    if device["backend"] == "gpu":
        import pynvml

        captured.append(f"{device['gpu']['name']}, driver {device['gpu']['driver']}")
        pynvml.nvmlInit()
        names = {
            _text(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(k)))
            for k in range(pynvml.nvmlDeviceGetCount())
        }
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        # CUDA and NVML may number the GPUs of a node differently, so any of them may be the one that CUDA uses.
        seen = sorted(names, key=lambda name: name != device["gpu"]["name"])
        here.append(f"{seen[0] if seen else 'no GPU'}, driver {driver}")
    if captured != here:
        raise UserError(
            f"results/{device['platform']}/device.json describes another machine ({'; '.join(captured)}) than "
            f"{socket.gethostname()} ({'; '.join(here)}); on a cluster, give the platform a Slurm constraint that only "
            "one kind of node meets; elsewhere, measure again with `snakemake --cores all --forcerun probe`"
        )


def _gpu():
    try:
        import cupy
        import pynvml
    except ImportError as error:
        raise UserError(
            f"the platform's backend is gpu, but the package {error.name} is missing; run `make report`, which "
            "installs the GPU packages, or `pip install -e .[gpu]`"
        ) from None
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
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(device.pci_bus_id)
    capability = f"{facts['major']}.{facts['minor']}"
    sms = facts["multiProcessorCount"]
    sm_mhz = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
    memory_mhz = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    lanes = LANES.get(capability)
    power_limit = None
    with contextlib.suppress(pynvml.NVMLError):  # not every card reports it
        power_limit = pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000
    gpu = {
        "name": _text(facts["name"]),
        "compute_capability": capability,
        "sms": sms,
        "sm_clock_mhz": sm_mhz,
        "memory_clock_mhz": memory_mhz,
        "power_limit_w": power_limit,
        "memory_bytes": total,
        "memory_free_bytes": free,
        # Two transfers per clock cycle, over the whole bus.
        "memory_bandwidth_gb_s": round(2 * memory_mhz * 1e6 * facts["memoryBusWidth"] / 8 / 1e9, 1),
        "l2_bytes": facts["l2CacheSize"],
        "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
        "peak_gflops": None
        if lanes is None
        else {d: round(2 * k * sms * sm_mhz / 1000, 1) for d, k in zip(("float", "double", "int32"), lanes)},
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


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def _dotted(version):
    return f"{version // 1000}.{version % 1000 // 10}"


def _packages():
    found = {"python": python_platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _cpu():
    name = python_platform.machine()
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"name": name, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**30)}


def _first_line(command):
    try:
        answer = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    lines = answer.stdout.splitlines()
    return lines[0] if answer.returncode == 0 and lines else None
