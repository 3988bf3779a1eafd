"""What a stopwatch around the whole call shows: source b's way to time a kernel, step by step and in a fresh process.

Source b times allocation, copies and kernel together, and its first kernel also pays for the creation of the CUDA
context. Here every repetition is a process of its own (`python -m tilewise.measure.methods.cold_start`, jobs on stdin, steps on
stdout), both kernels run in it one after the other, and both orders are tried. Device memory is from cudaMalloc, host
memory is pageable, and nothing is warmed up. Starting Python and importing CuPy does not count: source b had neither.
"""

import itertools
import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd

from tilewise.build import build
from tilewise.measure import task as measure
from tilewise.measure import verify
from tilewise.study.registry import DTYPES

COLUMNS = "platform order position kernel dtype n p m step ms repeat status message".split()
#: In the order of the clock. `load` is the loading of the compiled kernel, `total` the whole call.
STEPS = "context allocate copy_in load kernel copy_out free total".split()
REPEATS = 3


def cold_start(points, kernels, builds, device, config):
    """Time `points` in fresh processes, all those of one shape in each; returns a DataFrame, one row a step.

    The arguments are those of measure.Work. `order` names the kernels as they run, `position` counts from 1. The
    emulator has no clock to read: there each kernel has one row whose message says so.
    """
    manifests = build.manifests(builds)
    jobs = [measure.prepare(point, kernels[point.kernel], manifests, builds, device, config) for point in points]
    shapes = {}
    for job in jobs:
        shapes.setdefault(tuple(job["row"][name] for name in ("dtype", "n", "p", "m")), []).append(job)
    rows = []
    for order in itertools.chain.from_iterable(itertools.permutations(group) for group in shapes.values()):
        names = ", ".join(job["row"]["kernel"] for job in order)
        if device["backend"] == "emulator":
            note = {"status": "not_timed", "message": "emulated: not timed", "order": names}
            rows += [job["row"] | note | {"position": place} for place, job in enumerate(order, 1)]
            continue
        for repeat in range(1, REPEATS + 1):
            rows += [row | {"order": names, "repeat": repeat} for row in _in_fresh_process(order, config["seed"])]
    whole = dict.fromkeys(("position", "repeat"), "Int64")
    return pd.DataFrame(rows, columns=COLUMNS).astype(whole)


def _in_fresh_process(jobs, seed):
    """The rows of one process, or one row a kernel with the reason why there are none."""
    done = subprocess.run(
        [sys.executable, "-m", "tilewise.measure.methods.cold_start"],
        input=json.dumps({"jobs": jobs, "seed": seed}),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with exit status {done.returncode}"]
        note = {"status": "error", "message": said[-1]}
        return [job["row"] | note | {"position": place} for place, job in enumerate(jobs, 1)]
    rows = []
    for place, (job, call) in enumerate(zip(jobs, json.loads(done.stdout)), 1):
        row = job["row"] | {"position": place, "status": call["status"], "message": call["message"]}
        rows += [row | {"step": step, "ms": call["ms"][step]} for step in STEPS if step in call["ms"]]
    return rows


class Stopwatch:
    """Milliseconds from one lap to the next, by name."""

    def __init__(self):
        self.ms = {}
        self.start = self.last = time.perf_counter()

    def lap(self, name):
        """End the step `name` here."""
        now = time.perf_counter()
        self.ms[name] = 1000 * (now - self.last)
        self.last = now

    def stop(self):
        """The laps and their total."""
        return self.ms | {"total": 1000 * (self.last - self.start)}


def main():
    """The fresh process: run the jobs one after the other, and print what their steps took and whether C is right."""
    request = json.load(sys.stdin)
    row = request["jobs"][0]["row"]
    n, p, m, dtype = row["n"], row["p"], row["m"], row["dtype"]
    A, B = verify.operands(np, dtype, n, p, m, request["seed"])
    calls = []
    for job in request["jobs"]:
        C = np.empty((n, m), DTYPES[dtype][1])
        ms = _call(job, A, B, C, first=not calls)
        calls.append((ms, C))
    reference = verify.reference(A, B)
    checks = [verify.check(C, *reference, dtype, p) for _, C in calls]
    answer = [
        {"ms": ms, "status": "ok" if found.ok else "incorrect", "message": found.message}
        for (ms, _), found in zip(calls, checks)
    ]
    print(json.dumps(answer))


def _call(job, A, B, C, first):
    """One call as in source b; returns ms by step."""
    import cupy
    from cupy.cuda import runtime

    row = job["row"]
    sizes = tuple(np.int32(row[name]) for name in "npm")
    watch = Stopwatch()
    if first:
        runtime.free(0)
        watch.lap("context")
    pointers = [runtime.malloc(array.nbytes) for array in (A, B, C)]
    watch.lap("allocate")
    for pointer, array in zip(pointers, (A, B)):
        runtime.memcpy(pointer, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice)
    watch.lap("copy_in")
    kernel = cupy.RawModule(path=job["file"]).get_function(job["symbol"]).kernel
    watch.lap("load")
    grid, block = (row["grid_x"], row["grid_y"]), (row["block_x"], row["block_y"])
    kernel(grid, block, (*pointers, *sizes), shared_mem=job["dynamic_shared_bytes"])
    runtime.deviceSynchronize()
    watch.lap("kernel")
    runtime.memcpy(C.ctypes.data, pointers[2], C.nbytes, runtime.memcpyDeviceToHost)
    watch.lap("copy_out")
    for pointer in pointers:
        runtime.free(pointer)
    watch.lap("free")
    return watch.stop()


if __name__ == "__main__":
    main()
