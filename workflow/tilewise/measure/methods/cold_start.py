"""Time a whole call from the host, step by step and in a fresh process, as source b does.

Source b times allocation, copies and kernel together, and its first kernel also pays for the creation of the CUDA
context. Here every repetition is a separate process (`python -m tilewise.measure.methods.cold_start`, jobs on stdin,
steps on stdout), both kernels run in it one after the other, and both orders are tried. Device memory is from
cudaMalloc, host memory is pageable, and nothing is warmed up. Starting Python and importing CuPy does not count:
source b had neither.
"""

import itertools
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tilewise import UserError
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import message_of
from tilewise.measure.task import Work, measure_task
from tilewise.study import columns, verify
from tilewise.study.device import Device
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import result_of
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.sweeps import Reading

#: In the order of the clock. `load` is the loading of the compiled kernel, `total` the whole call.
STEPS = "context allocate copy_in load kernel copy_out free total".split()
REPEATS = 3


class ColdStart(Method):
    """Its measurements are those of a sweep: the kernels alone, warm."""

    name = "cold_start"
    reading = Reading(only_cuda=True)
    times_host = True

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError for points of several shapes or types, too."""
        super().check(points, kernels, place)
        if len({(point.dtype, point.n, point.p, point.m) for point in points}) > 1:
            raise UserError(f"{place}: cold_start is for one shape and dtype; make a task of each")

    def run(self, work: Work) -> Tables:
        facts = calls(work.jobs(), work.device, work.config["seed"])
        return measure_task(work)[0], columns.frame(facts, self.name)


def calls(jobs: Sequence[Job], device: Device, seed: int) -> list[Row]:
    """Time jobs in fresh processes, all those of one shape in each; returns a row for each step.

    `order` names the kernels as they run, `position` counts from 1. The emulator has no clock to read: there each
    kernel has one row whose message says so.
    """
    shapes: dict[tuple, list[Job]] = {}
    for job in jobs:
        if job.row["status"] in NOT_BUILT:
            continue
        shapes.setdefault((job.point.dtype, *job.point.shape.values()), []).append(job)
    rows = [job.row for job in jobs if job.row["status"] in NOT_BUILT]
    for order in itertools.chain.from_iterable(itertools.permutations(group) for group in shapes.values()):
        names = ", ".join(job.point.kernel for job in order)
        if device.backend == "emulator":
            note = {"status": Status.NOT_TIMED, "message": "emulated: not timed", "order": names}
            rows += [job.row | note | {"position": place} for place, job in enumerate(order, 1)]
            continue
        for repeat in range(1, REPEATS + 1):
            rows += [row | {"order": names, "repeat": repeat} for row in _in_fresh_process(order, seed)]
    return rows


def _in_fresh_process(jobs: Sequence[Job], seed: int) -> list[Row]:
    """The rows of one process, or one row per kernel with the reason why there are none."""
    done = subprocess.run(
        [sys.executable, "-m", "tilewise.measure.methods.cold_start"],
        input=pickle.dumps({"jobs": list(jobs), "seed": seed}),
        capture_output=True,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        note = {"status": Status.ERROR, "message": (said or [f"it ended with exit status {done.returncode}"])[-1]}
        return [job.row | note | {"position": place} for place, job in enumerate(jobs, 1)]
    rows = []
    for place, (job, call) in enumerate(zip(jobs, json.loads(done.stdout)), 1):
        row = job.row | {"position": place, "status": call["status"], "message": call["message"]}
        steps = [row | {"step": step, "ms": call["ms"][step]} for step in STEPS if step in call["ms"]]
        rows += steps or [row]
    return rows


def main() -> None:
    """The fresh process: run the jobs one after the other, and print what their steps took and whether C is right."""
    request = pickle.load(sys.stdin.buffer)
    point = request["jobs"][0].point
    dtype = point.dtype
    A, B = verify.operands(np, dtype, point.n, point.p, point.m, request["seed"])
    found: list[tuple[dict[str, float], np.ndarray, str]] = []
    for job in request["jobs"]:
        C = np.empty((point.n, point.m), result_of(dtype).stored)
        verify.begin(C, dtype, job.kernel.wanted)
        ms, stopped = {}, ""
        try:
            from tilewise.nvidia.launcher import whole_call

            ms = laps(whole_call(job, {"A": A, "B": B, "C": C}, first=not found))
        except Exception as error:  # whatever it is: the other calls are made in this process too
            stopped = message_of(error)
        found.append((ms, C, stopped))
    reference = verify.reference(A, B, dtype)
    answer = []
    for job, (ms, C, stopped) in zip(request["jobs"], found):
        check = verify.check(C, *reference, dtype, point.p, job.kernel.wanted)
        status = Status.ERROR if stopped else Status.OK if check.ok else Status.INCORRECT
        answer.append({"ms": ms, "status": status, "message": stopped or check.message})
    print(json.dumps(answer))


def laps(steps: Iterable[str]) -> dict[str, float]:
    """Milliseconds of each step, which names itself when it is done, and their total."""
    start = last = time.perf_counter()
    ms = {}
    for step in steps:
        now = time.perf_counter()
        ms[step], last = 1000 * (now - last), now
    return ms | {"total": 1000 * (last - start)}


if __name__ == "__main__":
    main()
