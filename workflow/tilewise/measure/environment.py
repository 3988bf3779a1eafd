"""Record the machine, software versions and competing load of a measurement."""

import functools
import os
import platform
import re
import socket
import subprocess
import time
from typing import Any

from tilewise import ROOT
from tilewise.nvidia import nvml

#: What a measurement depends on: a change of other files, such as the report's, is no change of it.
MEASURED_WITH = ("kernels", "workflow", "packages/microscope/src", "config", "Snakefile", "pyproject.toml")
#: A row names this many changed files.
NAMED = 5
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
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            found = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
            return next(found, name)
    except OSError:
        return name


@functools.cache
def source() -> dict[str, str]:
    """The columns `commit` and `changes` of the clone at the first call in this process; empty without git's history.

    `changes` names the files, new ones too, in which what measures differs from the commit.
    """
    try:
        commit = _git("rev-parse", "--short=10", "HEAD").strip()
        lines = _git(
            "status", "--porcelain", "--no-renames", "--untracked-files=all", "--", *MEASURED_WITH
        ).splitlines()
    except (OSError, subprocess.SubprocessError):
        return {"commit": "", "changes": ""}
    # A line is two letters, a blank, and the path, which is quoted if it has odd characters; `??` is an untracked file.
    paths = [line[3:].strip('"') + " (new)" * line.startswith("??") for line in lines]
    more = [f"{len(paths) - NAMED} more"] if len(paths) > NAMED else []
    return {"commit": commit, "changes": ", ".join(paths[:NAMED] + more)}


def _git(*words: str) -> str:
    # Without locks: a user may commit meanwhile.
    command = ["git", "--no-optional-locks", "-C", str(ROOT), "-c", "core.quotePath=false", *words]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=30, check=True).stdout


def columns(gpu: str | None = None) -> dict[str, Any]:
    """The columns of the machine and the sources: node, slurm_job, processor, alone, commit, changes.

    `gpu` is the UUID of the GPU that measured.
    """
    return {"node": node(), "slurm_job": slurm_job(), "processor": processor(), "alone": is_exclusive(gpu)} | source()


def is_exclusive(gpu: str | None) -> bool | None:
    """Whether no other process uses the GPU, and no other Slurm job the node; None if neither can be told."""
    job = slurm_job()
    answers = [None if job is None else _alone_on_node(job, node(), int(time.monotonic() / ASK_AGAIN_S))]
    if gpu is not None and (found := nvml.processes(gpu)) is not None:
        answers.append(len(found) <= 1)  # one is our own: the worker that has just measured
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None


@functools.lru_cache(1)
def _alone_on_node(job: str, node: str, _moment: int) -> bool | None:
    """Whether the job holds all allocated cores of the node. Slurm counts those of other users, too."""
    try:
        mine = _ask("squeue", "--noheader", "--format=%C", f"--jobs={job}")
        given = re.search(r"\bCPUAlloc=(\d+)", _ask("scontrol", "show", "node", node))
    except (OSError, subprocess.SubprocessError):
        return None
    return int(given[1]) <= int(mine) if given and mine.strip().isdigit() else None


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=30, check=True).stdout
