"""The accuracy gate: products of several kinds of operands beside those of cuBLAS's SGEMM, both against float64.

On a GPU they are measured. If a kernel's scheme has a model (`tilewise.measure.tensor_core`), they are also predicted,
on any machine, from a few rows and columns; the predicted SGEMM is a chain of fused multiply-adds.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilewise import UserError
from tilewise.measure import accuracy, tensor_core
from tilewise.measure.backends import Setting
from tilewise.measure.job import Job, Row
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.rows import failed
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.points import Point
from tilewise.study.registry import Kernel

MEASURED, PREDICTED = "measured", "predicted"


class Multiplier(Protocol):
    """What multiplies."""

    @property
    def origin(self) -> str:
        """MEASURED or PREDICTED."""

    @property
    def xp(self) -> Any:
        """The array module of its matrices."""

    def shape(self, point: Point) -> tuple[int, int, int]:
        """n, p and m of the product that stands for a point."""

    def sgemm(self, A: Any, B: Any) -> Any:
        """A B in float, as cuBLAS makes it."""

    def multiply(self, job: Job, A: Any, B: Any) -> tuple[Any, Row]:
        """A B as a job makes it, and its row; without a product (None) the row's status and message say why."""


class Model:
    """The models of the schemes: what they are off by does not depend on the number of rows and columns."""

    origin: str = PREDICTED
    xp: Any = np

    def shape(self, point: Point) -> tuple[int, int, int]:
        """As Multiplier says: a few rows and columns, more of short sums."""
        side = 64 if point.p <= 2048 else 32
        return min(side, point.n), point.p, min(side, point.m)

    def sgemm(self, A: Any, B: Any) -> Any:
        """As Multiplier says."""
        return tensor_core.chain(A, B)

    def multiply(self, job: Job, A: Any, B: Any) -> tuple[Any, Row]:
        """As Multiplier says."""
        scheme = job.kernel.accuracy.get("scheme")
        if scheme is None:
            return None, failed(job, "unsupported", "no GPU, and no model of what it rounds")
        return tensor_core.product(A, B, tensor_core.SCHEMES[scheme]), job.row | {"status": "ok", "message": ""}


class Accuracy(Method):
    """Nothing is timed, so measurements.csv gets no row."""

    name = "accuracy"
    emulators_shapes = False
    only_cuda = True
    points_per_point = 3

    def asks(self, kernel: Kernel) -> Any:
        """As Method says."""
        return kernel.accuracy

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Products of floats."""
        super().check(points, kernels, place)
        for point in points:
            if point.dtype != "float":
                raise UserError(f"{place}: accuracy compares with SGEMM, so it is for float, not for {point.dtype}")

    def run(self, work: Work) -> Tables:
        """As Method says; a row for each point and kind of operands."""
        jobs, seed = work.jobs(), work.config["seed"]
        if work.device["backend"] == "gpu":
            from tilewise.measure.backends.cuda import Backend

            measured = compare(jobs, Backend(Setting(work.device, work.config, work.samples)), seed)
            jobs = [job for job in jobs if "scheme" in job.kernel.accuracy]
            rows = [*measured, *compare(jobs, Model(), seed)]
        else:
            rows = compare(jobs, Model(), seed)
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name, work.parameters)


def compare(jobs: Iterable[Job], by: Multiplier, seed: int) -> list[Row]:
    """The rows of jobs of any shapes, each for every kind of operands."""
    rows = []
    for shape, some in itertools.groupby(
        sorted(jobs, key=lambda job: by.shape(job.point)), lambda job: by.shape(job.point)
    ):
        same = list(some)
        for kind in accuracy.OPERANDS:
            A, B = accuracy.operands(by.xp, kind, *shape, seed)
            sgemm = accuracy.errors(by.sgemm(A, B), A, B)
            rows += [_row(job, kind, by, A, B, sgemm) for job in same]
    return rows


def _row(job: Job, kind: str, by: Multiplier, A: Any, B: Any, sgemm: accuracy.Errors) -> Row:
    if by.origin == MEASURED and job.row["status"] in ("compile_error", "unsupported"):
        C, row = None, job.row
    else:
        C, row = by.multiply(job, A, B)
    row = row | dict(zip(columns.SHAPE, by.shape(job.point))) | {"operands": kind, "origin": by.origin}
    row |= {"claimed": job.kernel.claims_accuracy(kind, job.point.p)}
    row |= {"sgemm_relative_error": sgemm.relative, "sgemm_worst_error": sgemm.worst}
    if C is None:
        return row | {"relative_error": None}
    own = accuracy.errors(C, A, B)
    known = {"relative_error": own.relative, "worst_error": own.worst} if not math.isnan(own.relative) else {}
    message = f"{own.refused} of {C.size} elements are NaN" if own.refused else ""
    return row | {"relative_error": None} | known | {"verdict": accuracy.verdict(own, sgemm), "message": message}
