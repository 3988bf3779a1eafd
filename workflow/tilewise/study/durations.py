"""How long the study's steps take, from recorded runs: a job's time limit under Slurm follows from it."""

import functools
from pathlib import Path

import pandas as pd

from tilewise import RECORDED
from tilewise.study import columns

#: Seconds of a point without a recorded one: to verify and time it on a GPU, and to run it on the emulator.
POINT_S = {"gpu": 2.0, "emulator": 0.2}
#: Seconds before the first point of a task.
TASK_START_S = 3
#: Seconds to compile a kernel.
BUILD_S = 3
#: Seconds of the other steps, on two cores in November 2026: to describe a machine, to trace kernels and loops, to read
#: all machine code, to tabulate the occupancy, and to profile a launch.
PROBE_S, TRACE_S, INSTRUCTIONS_S, OCCUPANCY_S, PROFILE_S = 20, 60, 60, 20, 2
#: Seconds to draw the page, and of the other rules of a platform, without a GPU.
PAGE_S, RULES_S = 20.0, {"probe": 3.0, "occupancy": 3.0, "instructions": 50.0, "show": 20.0}
#: Seconds of a tuning of the whole ladder, on an H200 with 16 cores in November 2026.
TUNE_S = 300


@functools.cache
def recorded(folder: Path = RECORDED) -> dict[str, tuple[int, float]]:
    """For each task of the recorded runs, how many points it had and the seconds that it took; of several, the slowest.

    If a run does not say how long the whole task took, that is the time of its samples and a second per point.
    """
    found: dict[str, tuple[int, float]] = {}
    for path in sorted(folder.glob("*/measurements.csv")):
        rows = columns.read(path, "measurements", partly=True)
        for task, points in rows.groupby("task"):
            seconds = len(points) + (points["time_ms"] * points["samples"]).sum() / 1000
            facts = path.parent / "facts" / f"{task}.csv"
            if facts.is_file():
                whole = pd.read_csv(facts)
                if {"wall_s", "remembered"} <= set(whole) and len(whole) and not whole["remembered"].any():
                    seconds = float(whole["wall_s"].iloc[0])
            found[str(task)] = max(found.get(str(task), (0, 0.0)), (len(points), seconds), key=lambda each: each[1])
    return found


def of_task(task: str, points: int, length: float, backend: str, folder: Path = RECORDED) -> float:
    """Seconds for the points of a task on a backend; `length` is how many points of a sweep would take as long.

    What a method does in addition to its points is not recorded, so a task whose length is not that of its points has
    at least that.
    """
    estimate = POINT_S[backend] * length
    if backend != "gpu" or task not in recorded(folder):
        return estimate
    then, seconds = recorded(folder)[task]
    seconds *= max(points, 1) / then
    return seconds if length == points else max(seconds, estimate)
