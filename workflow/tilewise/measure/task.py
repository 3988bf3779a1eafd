"""Verify and time the points of a task, and collect tidy rows; an interrupted task resumes.

The points run in a worker process (`tilewise.measure.worker`): a crash or a sticky CUDA error ends one point and not
the task, and the worker is replaced. Every finished row goes at once into the journal; a later run takes from it what
was measured under the same conditions.
"""

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kernelscope.files import digest
from tilewise.compile.build import Builds
from tilewise.measure.job import case_of, prepare
from tilewise.measure.journal import Journal
from tilewise.measure.result_rows import median_run
from tilewise.measure.row_summary import row_summary
from tilewise.study import columns, registry
from tilewise.study.device import Device
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.status import ENDS_A_DUEL, NOT_BUILT, Status
from tilewise.study.sweeps import LARGEST_SIDE

LOG = logging.getLogger(__name__)
#: Signals that come from outside: from a user, a cluster or a system that is short of memory.
KILLS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
#: What takes the place of values of the config's `duel` in duels at many products, or of many variants: no load.
BRIEF_DUEL = {"least_turns": 5, "most_turns": 10, "budget_s": 2, "load_turns": 0, "load_s": 0, "load_from_ms": 0}
#: Python and its packages may take this many seconds to start on a busy machine or a slow file system.
START_LIMIT_S = 300


class Work(NamedTuple):
    """The work of a measuring rule: the points of its task, with their kernels, builds, device and folders.

    `builds` is what `build.build` made of its kernels, `device` is the content of device.json, `samples` the folder for
    NVBench's own files, `journal` the file that remembers finished points.
    """

    task: str
    points: list[Point]
    kernels: Mapping[str, Kernel]
    builds: Builds
    device: Device
    config: Mapping[str, Any]
    samples: Path
    journal: Path

    @property
    def parameters(self) -> list[str]:
        """The parameters that have columns."""
        return registry.parameters(self.kernels)

    def briefly(self) -> "Work":
        """The same work with brief duels."""
        return self._replace(config={**self.config, "duel": self.config["duel"] | BRIEF_DUEL})

    def jobs(self, points: Sequence[Point] | None = None) -> list[Job]:
        """The points, or others of the same kernels, as jobs."""
        return [
            prepare(point, self.kernels[point.kernel], self.builds, self.device, self.config)
            for point in (self.points if points is None else points)
        ]


def measure_task(work: Work) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure every point of a task; returns (measurements, facts), the latter one row: how long it took.

    A GPU times a point up to `timing.repeats` times, each in a separate process, until two runs or more are within
    `timing.agree_percent`; its row is that of the median run.

    A point that cannot be measured is a row whose status and message say why. Two runs never share a journal: the
    second waits a minute, then raises UserError.
    """
    start = time.monotonic()
    jobs = [_emulated(job, work.config) for job in work.jobs()]
    timing = work.config["timing"]
    keys = {job.key: _keys(job, timing) for job in jobs}
    with Journal(work.journal) as remembered:
        rows = remembered.rows
        for job in jobs:  # a row that was damaged is measured again
            if set(job.row) - set(rows.get(job.key, job.row)):
                del rows[job.key]
        known = sum(job.key in rows for job in jobs)
        asked = list(itertools.chain.from_iterable(keys[job.key] for job in jobs))
        done = sum(key in rows for key in asked)
        rows |= {job.key: job.row for job in jobs if job.row["status"] in NOT_BUILT}
        LOG.info("%d points, %d of them from the journal", len(asked), done)
        number = 0
        for run in range(max(map(len, keys.values()), default=0)):
            waiting = [job for job in jobs if run < len(keys[job.key]) and keys[job.key][run] not in rows]
            earlier = [[rows[key] for key in keys[job.key][:run] if key in rows] for job in waiting]
            waiting = [job for job, runs in zip(waiting, earlier) if not _is_settled(runs, timing["agree_percent"])]
            waiting.sort(key=lambda job: job.backend != "cuda")  # NVBench takes all points of a process in one call
            of_run = {job.key: keys[job.key][run] for job in waiting}
            number = _run(waiting, work, remembered, "repeat" if run else "measure", of_run, number, len(asked) - done)
        runs = [[rows[key] for key in keys[job.key] if key in rows] for job in jobs]
    found = [median_run(each) for each in runs]
    return _tables(work, found, known, start, sum(row.get("timed_s") or 0 for each in runs for row in each))


def _tables(
    work: Work, rows: Sequence[Row], remembered: int, start: float, timed_s: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of a task that began at `start`, `remembered` of whose rows came from the journal."""
    facts = {
        "platform": work.device.platform,
        "task": work.task,
        "points": len(rows),
        "remembered": remembered,
        "wall_s": time.monotonic() - start,
        "timed_s": timed_s,
    }
    return columns.frame(rows, "measurements", work.parameters), columns.frame([facts], "sweep")


def measure_in_turns(work: Work) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure every point of a task of a GPU; the kernels of a case are timed in turns, in one process.

    Returns the tables of `measure_task`.
    """
    start = time.monotonic()
    jobs = work.jobs()
    built = [job for job in jobs if job.row["status"] not in NOT_BUILT]
    with Journal(work.journal) as remembered:
        found, known = run_in_turns(built, work, remembered)
    rows = [found.get(job.key, job.row) for job in jobs]
    # A kernel that failed has no time; the others of its case have the time of all.
    spent = {case: max(found[job.key].get("duel_s") or 0 for job in members) for case, members in _cases(built).items()}
    return _tables(work, rows, known, start, sum(spent.values()))


def run_in_turns(jobs: Sequence[Job], work: Work, remembered: Journal) -> tuple[dict[str, Row], int]:
    """The rows of jobs by their keys, and how many of them the journal had; the kernels of a case are timed in turns.

    The journal keeps a case whole: if a row of it is missing, or a kernel came or went, all its kernels are measured
    again.
    """
    cases = _cases(jobs)
    keys: dict[str, str] = {}
    for members in cases.values():
        whole = sorted(job.key for job in members)
        keys |= {job.key: digest([job.key, whole, work.config["duel"]]) for job in members}
    rows = remembered.rows

    def known(job: Job) -> bool:
        return not set(job.row) - set(rows.get(keys[job.key], ()))

    waiting = {key: members for key, members in cases.items() if not all(map(known, members))}
    asked = sum(map(len, waiting.values()))
    LOG.info("%d points in %d cases, %d points from the journal", len(keys), len(cases), len(keys) - asked)
    number = 0
    for how, backend in (("duel", "cuda"), ("measure", "host")):
        some = [job for key in sorted(waiting) if key[0] == backend for job in waiting[key]]
        number = _run(some, work, remembered, how, keys, number, asked)
    return {job.key: rows[keys[job.key]] for job in jobs}, len(keys) - asked


def _cases(jobs: Sequence[Job]) -> dict[tuple, list[Job]]:
    """The jobs of each backend and case."""
    cases: dict[tuple, list[Job]] = {}
    for job in jobs:
        cases.setdefault((job.backend, *case_of(job)), []).append(job)
    return cases


def _emulated(job: Job, config: Mapping[str, Any]) -> Job:
    """The job, unsupported if the emulator has no shape for it: no small one suits its kernel."""
    shape = job.point.shape
    if job.backend != "emulator" or max(shape.values()) <= LARGEST_SIDE or shape in config["emulator"]["shapes"]:
        return job
    message = f"no shape of up to {LARGEST_SIDE} suits this kernel; add one that does to emulator.shapes in the config"
    return dataclasses.replace(job, row=job.row | {"status": Status.UNSUPPORTED, "message": message})


def _keys(job: Job, timing: Mapping[str, Any]) -> list[str]:
    """The keys of a job's runs in the journal; only what a GPU times is repeated."""
    further = range(2, timing["repeats"] + 1) if job.backend == "cuda" else ()
    return [job.key, *(digest([job.key, "run", run]) for run in further)]


def _is_settled(runs: Sequence[Row], percent: float) -> bool:
    """Whether a point needs no further run: one was not right, or its runs, two or more, are within `percent`."""
    if any(row["status"] != Status.OK for row in runs):
        return True
    times = [row["time_ms"] for row in runs]
    return len(times) > 1 and max(times) <= min(times) * (1 + percent / 100)


def run_jobs(
    jobs: Sequence[Job], device: Device, config: Mapping, samples: Path, how: str = "measure"
) -> Iterator[tuple[str, Row]]:
    """Run jobs in worker processes; yields (key, row) as each ends. A worker that dies is replaced.

    `how` is the method of the backend that runs them: measure, repeat, overhead, screen or duel.

    A job that exceeds `timing.point_limit_s` ends as `timeout`, one that crashes its worker as `error`; if the
    worker was killed from outside, the job has a second try. The CPU's loops have a separate budget, on top of
    which the limit counts.
    """
    jobs, tried_again = list(jobs), set()
    while jobs:
        finished = set()
        for index, row in _one_worker(jobs, device, config, samples, how):
            key = jobs[index].key
            if row.pop("killed", False) and key not in tried_again:
                tried_again.add(key)
                break
            finished.add(index)
            yield key, row
        jobs = [job for index, job in enumerate(jobs) if index not in finished]


def _run(
    jobs: Sequence[Job], work: Work, remembered: Journal, how: str, keys: Mapping[str, str], done: int, asked: int
) -> int:
    """Run jobs and remember the row of each under its `keys`, with a line in the log, of which `asked` are expected;
    returns `done` and those of now. Rows of a few runs need not survive the machine."""
    names = {job.key: job.point.label() for job in jobs}
    for key, row in run_jobs(jobs, work.device, work.config, work.samples, how):
        remembered.add(keys[key], row, lasting=how != "screen")
        done += 1
        LOG.info("%d/%d %s: %s", done, asked, names[key], row_summary(row))
    return done


def run_screened(jobs: Sequence[Job], work: Work, remembered: Journal, keys: Mapping[str, str]) -> dict[str, Row]:
    """The rows of jobs by their keys, from the journal, which has those of `keys`, or else each from a few runs."""
    waiting = [job for job in jobs if keys[job.key] not in remembered.rows]
    _run(waiting, work, remembered, "screen", keys, 0, len(waiting))
    return {job.key: remembered.rows[keys[job.key]] for job in jobs}


def by_operands(job: Job) -> tuple:
    """Sorts jobs so that those that share operands follow each other: the operands are then made once for all."""
    point = job.point
    return point.multiply_adds, point.batch, point.dtype, point.n, point.p, point.m, point.kernel


def _one_worker(
    jobs: Sequence[Job], device: Device, config: Mapping, samples: Path, how: str
) -> Iterator[tuple[int, Row]]:
    """Yield (index, row) from one worker until it ends; the job that ended it is the last one yielded.

    If a signal from outside ended the worker, that row has the entry `killed`, which is no column.
    """
    Path(samples).mkdir(parents=True, exist_ok=True)
    request = {"how": how, "jobs": jobs, "device": device, "config": config, "samples": Path(samples)}
    read_end, write_end = os.pipe()
    log_path = Path(samples) / "worker.log"
    with open(log_path, "w", encoding="utf-8") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tilewise.measure.worker", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
        )
    os.close(write_end)
    answers: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_pump, args=(read_end, answers), daemon=True).start()
    assert worker.stdin
    # A worker that dies early breaks the pipe; its answers, or their absence, show what happened.
    with contextlib.suppress(BrokenPipeError), worker.stdin:
        pickle.dump(request, worker.stdin)
    index, waiting = 0, set(range(len(jobs)))
    limit = START_LIMIT_S
    started = False
    try:
        while waiting:
            if started:
                limit = config["timing"]["point_limit_s"]
                if jobs[index].backend == "host":
                    limit += config["cpu"]["budget_s"][device.backend]
            try:
                answered = answers.get(timeout=limit)
            except queue.Empty:
                yield index, jobs[index].row | {"status": Status.TIMEOUT, "message": f"not done after {limit:g} s"}
                return
            if answered is None:
                worker.wait()
                message = f"the worker ended with exit status {worker.returncode}: {_last_line(log_path)}"
                killed = -worker.returncode in KILLS
                yield index, jobs[index].row | {"status": Status.ERROR, "message": message, "killed": killed}
                return
            if not started:
                started = True
                continue
            index, row = answered["index"], answered["row"]
            if row is None:  # it comes next
                continue
            waiting.remove(index)
            yield index, row
            index = min(waiting, default=index)
            if row["status"] in (ENDS_A_DUEL if how == "duel" else (Status.ERROR,)):
                return  # what went wrong may have left the worker's device in a bad state
        with contextlib.suppress(subprocess.TimeoutExpired):  # NVBench writes its JSON when all points are through
            worker.wait(timeout=limit)
    finally:
        worker.kill()
        worker.wait()


def _pump(read_end: int, answers: queue.SimpleQueue) -> None:
    """Copy the worker's rows into a queue; None when it has closed its end."""
    with os.fdopen(read_end, encoding="utf-8") as lines:
        for line in lines:
            answers.put(json.loads(line))
    answers.put(None)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
