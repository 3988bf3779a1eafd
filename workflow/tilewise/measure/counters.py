"""Read hardware counters of kernels on a GPU with ncu: memory traffic, caches and schedulers.

There are two runs of the profiler and one row per point. At `cross_check_points` it reads the columns of traffic.csv
that hardware has a counter for, under the same names; at the points of the config's `counters.sweeps`, which are of
full size, also how the caches, the memory and the schedulers fare.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tilewise import UserError
from tilewise.compile import build
from tilewise.measure.job import prepare
from tilewise.nvidia import ncu
from tilewise.study import columns, registry
from tilewise.study.device import Device
from tilewise.study.jobs import Job
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point, point
from tilewise.study.sweeps import Reading, Target, expand

#: What a row has of its launch.
OF_PLAN = ("block_x", "block_y", "padded_multiply_adds")


def cross_check_points(config: Mapping[str, Any], kernels: Mapping[str, Kernel], gpu: str = "") -> list[Point]:
    """The points at which counted and hardware numbers are compared: of source a's kernels a square, and shapes that no
    tile or warp divides; of every kernel that is counted at full size, the square, which the emulator can count, too.

    Arguments and errors are those of full_size_points.
    """
    shapes = [(256, 256, 256), (64, 64, 64), (33, 35, 70), (17, 17, 17), (100, 101, 103), (1, 37, 45), (37, 45, 1)]
    blocks = [(16, 16), (32, 32), (8, 128), (16, 64), (128, 8), (256, 4), (24, 5)]
    choices: list[tuple[str, dict[str, int]]] = [("naive", {"block_x": x, "block_y": y}) for x, y in blocks]
    choices += [("tiled", {"tile": tile}) for tile in (8, 16, 32)]
    choices += [("multi_tile", {"tile": 16, "ntb": ntb}) for ntb in (1, 2, 3, 4, 8)]
    choices += [("multi_tile", {"tile": 32, "ntb": ntb}) for ntb in (1, 3, 7)]
    found = [
        point("counters", name, dtype, *shape, **choice)
        for (name, choice), dtype, shape in itertools.product(choices, ("float", "double"), shapes)
        if name in kernels
    ]
    n, p, m = shapes[0]
    small = (dataclasses.replace(at, n=n, p=p, m=m) for at in full_size_points(config, kernels, gpu))
    return list(dict.fromkeys([*found, *(at for at in small if not kernels[at.kernel].unmet(at))]))


def full_size_points(config: Mapping[str, Any], kernels: Mapping[str, Kernel], gpu: str = "") -> list[Point]:
    """The points of the config's `counters.sweeps`; `gpu` is the platform whose choices they take from the registry, or
    empty for the first there. Raises UserError for what is no CUDA kernel, or cannot be right."""
    tasks = {"counters": {**config["counters"], "method": "counters"}}
    try:
        return expand({**config, "tasks": tasks}, kernels, "counters", Target(gpu=gpu), Reading(only_cuda=True))
    except UserError as error:
        raise UserError(str(error).removeprefix("tasks.")) from None


def count(
    points: Sequence[Point],
    kernels: Mapping[str, Kernel],
    log: Path | str,
    device: Device,
    builds: Path | str,
    workers: int = 1,
    full_size: bool = False,
) -> pd.DataFrame:
    """Profile `points` of CUDA kernels on this machine's GPU; returns a DataFrame with the columns of counters.csv.

    `kernels` is the registry; `log` receives what the profiler prints; `device` is the GPU; `workers` processes build
    into the folder `builds` what is not there; `full_size` says whether to count also how caches, memory and schedulers
    fare. A point that the GPU refuses, that was not built, or whose
    product is wrong has no row; `log` names those that are wrong. Raises UserError if the profiler is missing, not
    permitted, or fails.
    """
    profiler = ncu.find_ncu()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    jobs = [job for job in _jobs(points, kernels, device, Path(builds), workers) if job.files]
    found = ncu.count(jobs, Path(log), profiler, full_size)
    rows = [job.point.columns() | {name: job.row[name] for name in OF_PLAN} | counted for job, counted in found]
    return columns.frame(rows, "counters", registry.parameters(kernels))


def count_all(
    config: Mapping[str, Any],
    kernels: Mapping[str, Kernel],
    log: Path | str,
    gpu: str,
    device: Device,
    builds: Path | str,
    workers: int,
) -> pd.DataFrame:
    """The rows of counters.csv, of both kinds of points; `gpu` is as in full_size_points, the others as in count.

    The log of the points of full size is next to `log`.
    """
    log = Path(log)
    small = count(cross_check_points(config, kernels, gpu), kernels, log, device, builds, workers)
    large_log, points = log.with_stem(f"{log.stem}-full-size"), full_size_points(config, kernels, gpu)
    large = count(points, kernels, large_log, device, builds, workers, full_size=True)
    return columns.set_types(pd.concat([small, large], ignore_index=True))


def _jobs(
    points: Sequence[Point], kernels: Mapping[str, Kernel], device: Device, folder: Path, workers: int
) -> list[Job]:
    """The points as jobs for the profiler; each kernel is built once."""
    config = {"seed": 0, "timing": {}, "verification": {"full_limit_gflop": {"gpu": 0}, "rows": 0}}
    builds = build.build(build.instances(points, kernels), kernels, device, folder, workers)
    return [prepare(at, kernels[at.kernel], builds, device, config) for at in points]
