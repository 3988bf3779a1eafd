"""The accuracy gate: products of several kinds of operands and cuBLAS's SGEMM, both against float64."""

import functools
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tilewise import KERNELS, UserError
from tilewise.compile.build import build
from tilewise.measure import accuracy
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.backends.host import multiplied_by
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import failed_row, message_of, row_or_failure
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.jobs import Job, Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.sources import files_of
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.sweeps import Reading
from tilewise.study.verify import fetched

#: The CPU loop with which products are compared too, as source a does; only up to this many multiply-adds.
LOOP, LOOP_MULTIPLY_ADDS = "kij", 2_000_000_000
#: A product of float32 matrices of the host, as the loop makes it; None if it is too large.
Loop = Callable[[np.ndarray, np.ndarray], np.ndarray | None]


class Multiplier(Protocol):
    """A GPU that multiplies matrices."""

    @property
    def xp(self) -> Any:
        """The array module of its matrices."""

    def sgemm(self, A: Any, B: Any) -> Any:
        """A B in float, as cuBLAS makes it."""

    def multiply(self, job: Job, A: Any, B: Any) -> tuple[Any, Row]:
        """A B as a job makes it, and its row; without a product (None) the row's status and message say why."""


class Accuracy(Method):
    """Nothing is timed, so measurements.csv gets no row."""

    name = "accuracy"
    reading = Reading(emulators_shapes=False, only_cuda=True)
    points_per_point = 3

    def sources(self) -> list[Path]:
        return files_of(KERNELS / "host" / f"{LOOP}.cpp")

    def entry_conditions(self, kernel: Kernel) -> Any:
        return kernel.accuracy

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError for points that are not of floats, too."""
        super().check(points, kernels, place)
        for point in points:
            if point.dtype != "float":
                raise UserError(f"{place}: accuracy compares with SGEMM, so it is for float, not for {point.dtype}")

    def run(self, work: Work) -> Tables:
        """Facts: a row per point and kind of operands, on the emulator none."""
        rows: list[Row] = []
        if work.device.backend == "gpu":
            backend = open_backend("cuda", Setting(work.device, work.config, work.samples))
            with tempfile.TemporaryDirectory() as folder:
                rows = compare(work.jobs(), backend, work.config["seed"], loop_of(work, Path(folder)))
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name, work.parameters)


def loop_of(work: Work, folder: Path) -> Loop:
    """The CPU's loop, compiled into a folder. Raises UserError if it does not compile."""
    instance = f"{LOOP}<float>"
    entry = build({LOOP: [instance]}, work.kernels, work.device, folder)[LOOP]["instances"][instance]
    if "error" in entry:
        raise UserError(entry["error"])
    multiply = multiplied_by(entry["file"], entry["symbol"])

    def loop(A: np.ndarray, B: np.ndarray) -> np.ndarray | None:
        if len(A) * len(B) * B.shape[1] > LOOP_MULTIPLY_ADDS:
            return None
        C = np.empty((len(A), B.shape[1]), np.float32)
        multiply(np.ascontiguousarray(A), np.ascontiguousarray(B), C)
        return C

    return loop


def compare(jobs: Iterable[Job], by: Multiplier, seed: int, loop: Loop = lambda A, B: None) -> list[Row]:
    """The rows of jobs of any shapes, each for every kind of operands."""
    rows = []
    for shape, some in itertools.groupby(sorted(jobs, key=_shape), _shape):
        same = list(some)
        for kind in accuracy.OPERANDS:
            try:
                A, B = accuracy.operands(by.xp, kind, *shape, seed)
                sgemm = accuracy.errors(by.sgemm(A, B), A, B)
                looped = loop(fetched(A), fetched(B))
            except Exception as error:  # whatever it is: other shapes and kinds are compared in this process too
                built = [job for job in same if job.row["status"] not in NOT_BUILT]
                rows += [failed_row(job, Status.ERROR, message_of(error)) | _about(job, kind) for job in built]
                rows += [job.row | _about(job, kind) for job in same if job not in built]
                continue
            for job in same:
                run = functools.partial(_row, job, by, A, B, sgemm, looped)
                rows.append(row_or_failure(job, run) | _about(job, kind))
    return rows


def _shape(job: Job) -> tuple[int, int, int]:
    return job.point.n, job.point.p, job.point.m


def _about(job: Job, kind: str) -> Row:
    """What a row is about."""
    return {"operands": kind, "claimed": job.kernel.claims_accuracy(kind, job.point.p)}


def _row(job: Job, by: Multiplier, A: Any, B: Any, sgemm: accuracy.Errors, looped: np.ndarray | None) -> Row:
    if job.row["status"] in NOT_BUILT:
        C, row = None, job.row
    else:
        C, row = by.multiply(job, A, B)
    row = row | {"sgemm_relative_error": sgemm.relative, "sgemm_worst_error": sgemm.worst}
    if C is None:
        return row | {"relative_error": None}
    own = accuracy.errors(C, A, B)
    known = {"relative_error": own.relative, "worst_error": own.worst} if not math.isnan(own.relative) else {}
    if looped is not None and not own.refused:
        known["loop_difference"] = accuracy.difference(fetched(C), looped)
    message = f"{own.refused} of {C.size} elements are NaN" if own.refused else ""
    return row | {"relative_error": None} | known | {"verdict": accuracy.verdict(own, sgemm), "message": message}
