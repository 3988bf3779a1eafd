"""The process that runs points: `python -m tilewise.measure.worker FD` reads jobs from stdin and writes each row to FD.

It prints nothing else to FD; NVBench's log goes to stdout. It may die at any job: `tilewise.measure.task` replaces it.
"""

import ctypes
import functools
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import threadpoolctl

from tilewise.measure import verify
from tilewise.measure.backends import emulator
from tilewise.study.registry import DTYPES, Geometry

#: prctl's PR_SET_PDEATHSIG
DEATH_SIGNAL = 1


def main():
    # A worker whose task is killed would go on measuring, beside the run that takes the task up again.
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    request = json.load(sys.stdin)
    answers = os.fdopen(int(sys.argv[1]), "w")

    def answer(row):
        answers.write(json.dumps(row) + "\n")
        answers.flush()

    jobs, device, config = request["jobs"], request["device"], request["config"]
    on_gpu = [job for job in jobs if job["on_gpu"]]  # these come first
    if on_gpu:
        from tilewise.measure.backends import cuda as gpu

        gpu.run(on_gpu, device, config, Path(request["samples"]), answer)
    for job in jobs[len(on_gpu) :]:
        run = run_emulated if job["kind"] == "cuda" else run_on_cpu
        answer(run(job, device, config))


def run_emulated(job, device, config):
    """Verify one CUDA kernel on the CPU emulator; it counts and checks, it does not time."""
    row = job["row"]
    geometry = Geometry((row["block_x"], row["block_y"]), (row["grid_x"], row["grid_y"]), job["dynamic_shared_bytes"])
    n, p, m = row["n"], row["p"], row["m"]
    A, B = verify.operands(np, row["dtype"], n, p, m, config["seed"])
    C = np.empty((n, m), DTYPES[row["dtype"]][1])
    verify.poison(C)
    try:
        _emulator(job["file"]).launch(job["instance"], geometry, A, B, C, n, p, m, device["limits"])
    except emulator.LaunchError as error:
        return row | {"status": "invalid_launch", "message": str(error)}
    found = verify.check(C, *verify.reference(A, B), row["dtype"], p)
    return row | outcome(found, "emulated: verified, not timed")


#: A library is opened once a process: that reads its symbols, and its fibers' stacks live as long as it is open.
_emulator = functools.cache(emulator.Emulator)


def outcome(found, note=""):
    """The columns of a row that a verification decides."""
    return {
        "status": "ok" if found.ok else "incorrect",
        "message": found.message or note,
        "relative_error": found.relative_error,
        "bound_ratio": found.bound_ratio,
    }


def timing(times_ms, flop):
    """The columns of a row that follow from the samples: times in ms, noise as a fraction, rate in GFLOP/s."""
    q1, median, q3 = (float(q) for q in np.percentile(times_ms, [25, 50, 75]))
    return {
        "samples": len(times_ms),
        "time_ms": median,
        "time_min_ms": float(min(times_ms)),
        "time_q1_ms": q1,
        "time_q3_ms": q3,
        "noise": float(np.std(times_ms) / np.mean(times_ms)) if len(times_ms) > 1 else None,
        "gflops": flop / median / 1e6,
    }


def run_on_cpu(job, device, config):
    """Verify and time a CPU loop (one thread) or NumPy's BLAS (all cores) within the budget of the config.

    A run on the first 1/64 of the inner dimension tells how long the whole would take; beyond the budget the point is
    a row with status timeout, which costs no more than that.
    """
    row = job["row"]
    n, p, m, dtype = row["n"], row["p"], row["m"], row["dtype"]
    C = np.empty((n, m), DTYPES[dtype][1])
    multiply = _host_function(job)
    cores = len(os.sched_getaffinity(0))
    with threadpoolctl.threadpool_limits(cores):
        few = max(1, p // 64)
        A, B = verify.operands(np, dtype, n, few, m, config["seed"])
        verify.poison(C)  # touches C's pages once, which is no part of the product
        predicted = _seconds(multiply, A, B, C) * p / few
        budget = config["cpu"]["budget_s"][device["backend"]]
        if predicted > budget:
            message = f"would take about {predicted:.0f} s; cpu.budget_s is {budget:g} s"
            return row | {"status": "timeout", "message": message}
        A, B = verify.operands(np, dtype, n, p, m, config["seed"])
        times = []
        verify.poison(C)
        repeat = config["cpu"]["repeat_s"][device["backend"]]
        while len(times) < config["cpu"]["samples"] and (not times or sum(times) < repeat):
            times.append(_seconds(multiply, A, B, C))
        settings = config["verification"]
        flop = 2 * n * p * m
        if flop > settings["full_limit_gflop"]["cpu"] * 1e9:
            found = verify.check_rows(A, B, C, dtype, settings["rows"], config["seed"])
        else:
            found = verify.check(C, *verify.reference(A, B), dtype, p)
    note = f"{cores} threads" if job["kind"] == "library" else ""
    row = row | outcome(found, note)
    return row | timing([1000 * t for t in times], flop) if found.ok else row


def _host_function(job):
    """The product as a function of (A, B, C): NumPy's, or the C++ loop of a shared library."""
    if job["kind"] == "library":
        return lambda A, B, C: np.matmul(A, B, out=C)
    function = getattr(ctypes.CDLL(str(Path(job["file"]).resolve())), job["symbol"])

    def multiply(A, B, C):
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (A, B, C)]
        function(*pointers, *(ctypes.c_int(k) for k in (*A.shape, B.shape[1])))

    return multiply


def _seconds(multiply, A, B, C):
    start = time.perf_counter()
    multiply(A, B, C)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
