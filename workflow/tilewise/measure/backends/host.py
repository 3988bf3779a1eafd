"""Verify and time the CPU's loops (one thread each) and NumPy's BLAS (all cores)."""

import ctypes
import functools
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from tilewise.measure.backends import Setting
from tilewise.measure.result_rows import failed_row, timing, verification_columns
from tilewise.measure.row_summary import BEYOND_BUDGET
from tilewise.study import verify
from tilewise.study.jobs import Job, Row
from tilewise.study.precision import result_of
from tilewise.study.status import Status

Multiply = Callable[[Any, Any, Any], None]

#: This many multiply-adds show how fast one thread's loop is: they take about a tenth of a second.
ENOUGH = 200_000_000

#: References of at most this many elements are cached, because the loops of a task multiply the same operands.
SMALL_C = 1 << 20


class Backend:
    """The processor of this machine."""

    def __init__(self, setting: Setting):
        self.config, self.where = setting.config, setting.device.backend

    def measure(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        for job in jobs:
            answer(self._measure(job))

    def _measure(self, job: Job) -> Row:
        """The row of a product within the budget of the config.

        A run on the first 1/64 of the inner dimension, or on fewer steps of a loop if that is long, shows how long the
        whole would take; beyond the budget the point is a row with status timeout, which costs no more than that.
        """
        point, config = job.point, self.config
        n, p, m, dtype = point.n, point.p, point.m, point.dtype
        C = np.empty((n, m), result_of(dtype).stored)
        multiply = _function(job)
        cores = len(os.sched_getaffinity(0))
        with threadpoolctl.threadpool_limits(cores):
            few = max(1, p // 64 if job.kernel.library else min(p // 64, ENOUGH // (n * m)))
            A, B = verify.operands(np, dtype, n, few, m, config["seed"])
            verify.poison(C, dtype)  # touches C's pages once, which is no part of the product
            predicted = _seconds(multiply, A, B, C) * p / few
            budget = config["cpu"]["budget_s"][self.where]
            if predicted > budget:
                return failed_row(
                    job, Status.TIMEOUT, f"{BEYOND_BUDGET} {predicted:.0f} s; cpu.budget_s is {budget:g} s"
                )
            A, B = verify.operands(np, dtype, n, p, m, config["seed"])
            times: list[float] = []
            verify.poison(C, dtype)
            repeat = config["cpu"]["repeat_s"][self.where]
            while len(times) < config["cpu"]["samples"] and (not times or sum(times) < repeat):
                times.append(_seconds(multiply, A, B, C))
            settings = config["verification"]
            if 2 * point.multiply_adds > settings["full_limit_gflop"]["cpu"] * 1e9:
                found = verify.check_rows(A, B, C, dtype, settings["rows"], secrets.randbits(64))
            else:
                small = n * m <= SMALL_C
                reference = _known(dtype, n, p, m, config["seed"]) if small else verify.reference(A, B, dtype)
                found = verify.check(C, *reference, dtype, p)
        row = job.row | verification_columns(job, found, f"{cores} threads" if job.kernel.library else "")
        return row | timing([1000 * t for t in times], job) if found.ok else row


@functools.lru_cache(maxsize=4)
def _known(dtype: str, n: int, p: int, m: int, seed: int) -> tuple[Any, Any]:
    """`verify.reference` of the operands that these numbers make."""
    A, B = verify.operands(np, dtype, n, p, m, seed)
    return verify.reference(A, B, dtype)


def _function(job: Job) -> Multiply:
    """The product as a function of (A, B, C): NumPy's, or the C++ loop of a shared library."""
    if job.kernel.library:
        return lambda A, B, C: np.matmul(A, B, out=C)
    [(file, symbol)] = job.files.values()
    return multiplied_by(file, symbol)


def multiplied_by(file: Path | str, symbol: str) -> Multiply:
    """The C++ loop of a shared library as a function of (A, B, C), which are contiguous."""
    function = getattr(ctypes.CDLL(str(Path(file).resolve())), symbol)

    def multiply(A: Any, B: Any, C: Any) -> None:
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (A, B, C)]
        function(*pointers, *(ctypes.c_int(k) for k in (*A.shape, B.shape[1])))

    return multiply


def _seconds(multiply: Multiply, A: Any, B: Any, C: Any) -> float:
    start = time.perf_counter()
    multiply(A, B, C)
    return time.perf_counter() - start
