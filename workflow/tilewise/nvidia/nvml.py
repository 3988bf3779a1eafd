"""Query NVIDIA's management library (NVML) for a GPU's clocks, power and processes.

No other module calls it. A GPU is named by its UUID, as nvidia-smi writes it.
"""

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: A GPU that did nothing in the seconds before is seldom reported above this percentage; our own probe is below it.
IDLE_PERCENT = 10


class Unreported(Exception):
    """A GPU does not report something."""


def _opened(uuid: str) -> tuple[Any, Any]:
    """The module pynvml, and its handle of a GPU."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)


def rated_limits(uuid: str) -> dict[str, Any]:
    """The highest clocks in MHz, and the limit of the power in W, which is None if the card does not report it."""
    nvml, handle = _opened(uuid)
    power_limit_w = None
    with contextlib.suppress(nvml.NVMLError):
        power_limit_w = nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000
    return {
        "sm_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power_limit_w": power_limit_w,
    }


def energy_counter(uuid: str) -> Callable[[], int]:
    """A function that reads the energy in mJ that the board has used since some time in the past.

    Raises Unreported if there is no such counter.
    """
    import pynvml

    try:
        nvml, handle = _opened(uuid)
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        raise Unreported(f"NVML does not report the energy of this GPU: {error}") from None
    return functools.partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)


def clock_and_power(uuid: str) -> Callable[[], tuple[float | None, float | None]]:
    """A function that reads the clock of the multiprocessors in MHz and the board's power in W, each None if the GPU
    does not report it."""
    try:
        nvml, handle = _opened(uuid)
    except Exception:  # no such package, no driver
        return lambda: (None, None)

    def read() -> tuple[float | None, float | None]:
        mhz = watts = None
        with contextlib.suppress(nvml.NVMLError):
            mhz = float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        with contextlib.suppress(nvml.NVMLError):
            now = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
            if now.nvmlReturn == nvml.NVML_SUCCESS:
                watts = now.value.uiVal / 1000
        return mhz, watts

    return read


def processes(uuid: str) -> list[int] | None:
    """Ids of the processes that compute on a GPU; None if its driver does not say."""
    try:
        nvml, handle = _opened(uuid)
        return [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except Exception:  # no such package, no driver, or a card or container that does not report it
        return None


def other_users(uuid: str) -> list[str]:
    """Other users of a GPU, as text for the report, from a process with a context on it."""
    nvml, handle = _opened(uuid)
    running, found, names = processes(uuid), list[str](), list[str]()
    others = [pid for pid in running or () if pid != os.getpid()]
    for pid in others:
        with contextlib.suppress(nvml.NVMLError):
            name = nvml.nvmlSystemGetProcessName(pid)
            names.append(name.decode() if isinstance(name, bytes) else name)  # some versions give bytes
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if any("mps-server" in name for name in names) or (pipes / "control").exists():
        found.append("MPS shares it between processes")
    # In a container the driver may report process numbers of the host, so that our own process counts as another.
    count = len(others) - (running is not None and os.getpid() not in running)
    if count > 0:
        found.append(f"{count} other process{'es' if count > 1 else ''} on it")
    with contextlib.suppress(nvml.NVMLError):
        percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        if percent > IDLE_PERCENT:
            found.append(f"{percent} % of the last second in use")
    return found
