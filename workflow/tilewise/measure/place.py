"""Where a point is measured, and whether anything else uses the same machine meanwhile."""

import functools
import os
import platform
import re
import socket
import subprocess
import time
from typing import Any

#: Seconds for which an answer of Slurm holds: a job asks its controller no more often.
ASK_AGAIN_S = 30


def node() -> str:
    """This machine as Slurm calls it, or by its own name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def slurm_job() -> str | None:
    """The number of the Slurm job that this process is part of."""
    return os.environ.get("SLURM_JOB_ID")


def cores(threads: int) -> int:
    """The cores that a job may use: those of its Slurm job, or else the threads of its rule."""
    return int(os.environ.get("SLURM_CPUS_PER_TASK", threads))


@functools.cache
def processor() -> str:
    """The name of the processor."""
    name = platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            found = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
            return next(found, name)
    except OSError:
        return name


def columns(gpu: str | None = None) -> dict[str, Any]:
    """What a row says of the place: node, slurm_job, processor, alone. `gpu` is the UUID of the GPU that measured."""
    return {"node": node(), "slurm_job": slurm_job(), "processor": processor(), "alone": alone(gpu)}


def alone(gpu: str | None) -> bool | None:
    """Whether no other process uses the GPU, and no other Slurm job the node; None if neither can be told."""
    job = slurm_job()
    answers = [
        None if job is None else _alone_on_node(job, node(), int(time.monotonic() / ASK_AGAIN_S)),
        # One process is our own: the worker that has just measured.
        None if gpu is None else _at_most(processes(gpu), 1),
    ]
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


def processes(gpu: str) -> list[int] | None:
    """Ids of the processes that compute on a GPU; None if its driver does not say."""
    try:
        import pynvml

        pynvml.nvmlInit()
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(gpu))
        return [process.pid for process in found]
    except Exception:  # no such package, no driver, or a card or a container that does not tell
        return None


def _at_most(found: list[int] | None, number: int) -> bool | None:
    return None if found is None else len(found) <= number


@functools.lru_cache(1)
def _alone_on_node(job: str, node: str, _moment: int) -> bool | None:
    """Whether the job has all the cores of the node that are given away. Slurm tells this of jobs of others too."""
    try:
        mine = _ask("squeue", "--noheader", "--format=%C", f"--jobs={job}")
        given = re.search(r"\bCPUAlloc=(\d+)", _ask("scontrol", "show", "node", node))
    except (OSError, subprocess.SubprocessError):
        return None
    return int(given[1]) <= int(mine) if given and mine.strip().isdigit() else None


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
