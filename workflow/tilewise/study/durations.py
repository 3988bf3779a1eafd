"""Estimate the durations of the study's steps from recorded runs, for time limits under Slurm."""

import functools
from collections.abc import Sequence
from pathlib import Path

from tilewise import RECORDED
from tilewise.study import columns
from tilewise.study.points import Point

#: Seconds of a point besides those of its samples: to verify and time it on a GPU, and to run it on the emulator.
POINT_S = {"gpu": 1.0, "emulator": 0.2}
#: Seconds before the first point of a task.
TASK_START_S = 3
#: Seconds to compile a kernel, on 16 cores.
BUILD_S = 1
#: Seconds of the other steps, on two cores in November 2026: to describe a machine, to trace kernels and loops, to read
#: all machine code, to tabulate the occupancy, and to profile a launch.
PROBE_S, TRACE_S, INSTRUCTIONS_S, OCCUPANCY_S, PROFILE_S = 20, 60, 60, 20, 2
#: Seconds to draw the page, and of the other rules of a platform, without a GPU.
PAGE_S, RULES_S = 50.0, {"probe": 3.0, "occupancy": 3.0, "instructions": 50.0, "show": 30.0}
#: Seconds of a tuning of the whole ladder, on an H200 with 16 cores in November 2026.
TUNE_S = 1000


@functools.cache
def recorded_seconds(folder: Path = RECORDED) -> dict[tuple, float]:
    """Seconds of a product's samples in the recorded runs, or its share of turns and load, by kernel, type, n, p
    and m; of several, the most."""
    rows = columns.read_all(sorted(folder.glob("*/measurements.csv")), "measurements")
    contenders = rows.groupby(["platform", "task", "dtype", *columns.SHAPE])["kernel"].transform("size")
    samples = rows["time_ms"] * rows["samples"] * rows["runs"].fillna(1) / 1000
    seconds = (rows["duel_s"].astype("Float64") / contenders).fillna(samples)
    return seconds.groupby([rows[name] for name in ("kernel", "dtype", *columns.SHAPE)]).max().dropna().to_dict()


def estimate_seconds(points: Sequence[Point], per_point: float, backend: str, folder: Path = RECORDED) -> float:
    """Seconds for the points of a task on a backend, each as long as so many points of a sweep."""
    known = recorded_seconds(folder) if backend == "gpu" else {}
    samples = sum(known.get((at.kernel, at.dtype, at.n, at.p, at.m), 0.0) for at in points)
    return per_point * (POINT_S[backend] * len(points) + samples)
