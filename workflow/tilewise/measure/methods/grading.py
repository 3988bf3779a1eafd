"""Grade every kernel of floats and doubles on operands that reveal inaccurate schemes."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tilewise import UserError
from tilewise.measure import grading
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.grading import TESTS
from tilewise.measure.methods.accuracy import Multiplier
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.result_rows import failed_row, message_of
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.accuracy import CURVE, SPREAD, WIDE
from tilewise.study.jobs import Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.sweeps import Reading

#: n of the first test, of the fourth, and its exponents.
CURVE_SIZES = tuple(2**e for e in range(4, 13))
SPREAD_SIZE = 1024
EXPONENTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
#: How wide the exponents of doubles are spread.
PHIS = (0, 1, 2, 3, 4)


class Case(NamedTuple):
    """A test at a shape: `number` is the size of the first test, the exponent of the fourth, or phi."""

    test: str
    shape: tuple[int, int, int]
    number: int | None = None


def cases(shape: tuple[int, int, int], dtype: str) -> Iterator[Case]:
    """All tests of a kernel, for products of this shape."""
    yield from (Case(test, shape) for test in TESTS)
    yield from (Case(WIDE, shape, phi) for phi in PHIS if dtype == "double")
    yield from (Case(CURVE, (n, n, n), n) for n in CURVE_SIZES)
    most, n = grading.widest(dtype, SPREAD_SIZE), SPREAD_SIZE
    yield from (Case(SPREAD, (n, n, n), e) for e in (*(e for e in EXPONENTS if e < most), most))


class Grading(Method):
    """Nothing is timed, so measurements.csv gets no row."""

    name = "grading"
    reading = Reading(emulators_shapes=False)
    points_per_point = 3  # each test is one short product and a reference in double

    def entry_conditions(self, kernel: Kernel) -> Any:
        return kernel.accuracy

    def launched(self, point: Point, kernel: Kernel) -> Iterable[Point]:
        """The point at the shapes of the tests."""
        return (at for _, at in _tested(point, kernel))

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError for points that are not of floats or doubles, too."""
        super().check(points, kernels, place)
        for point in points:
            if point.dtype not in ("float", "double") or not kernels[point.kernel].on_gpu:
                raise UserError(f"{place}: grades are for floats and doubles of a GPU, not for {point.label()}")

    def run(self, work: Work) -> Tables:
        """Facts: a row per point and test, on the emulator none."""
        rows: list[Row] = []
        if work.device.backend == "gpu":
            rows = grade_points(
                work, work.points, open_backend("cuda", Setting(work.device, work.config, work.samples))
            )
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name, work.parameters)


def grade_points(work: Work, points: Sequence[Point], by: Multiplier) -> list[Row]:
    """The rows of some points of a task, test by test, so that its operands are made once."""
    asked: dict[tuple[str, Case], list[Point]] = {}
    for point in points:
        for case, at in _tested(point, work.kernels[point.kernel]):
            asked.setdefault((point.dtype, case), []).append(at)
    return [row for (dtype, case), some in asked.items() for row in _rows(work, some, dtype, case, by)]


def _tested(point: Point, kernel: Kernel) -> Iterator[tuple[Case, Point]]:
    """The tests of a point, each with the point at its shape; without shapes that the kernel does not take."""
    for case in cases((point.n, point.p, point.m), point.dtype):
        n, p, m = case.shape
        at = dataclasses.replace(point, n=n, p=p, m=m)
        if kernel.unmet(at) is None:
            yield case, at


def _rows(work: Work, points: Sequence[Point], dtype: str, case: Case, by: Multiplier) -> Iterator[Row]:
    seed = work.config["seed"]
    if case.test == SPREAD:
        A, B = grading.spread(by.xp, dtype, case.shape[0], case.number or 0, seed)
    else:
        A, B = grading.operands(by.xp, dtype, case.test, *case.shape, seed, case.number)
    right = grading.Reference(A, B, dtype, seed)
    for job in work.jobs(points):
        about = {"test": case.test, "number": case.number}
        about["claimed_grade"] = job.kernel.accuracy.get("grade", "")
        if job.row["status"] in NOT_BUILT:
            yield job.row | about
            continue
        try:
            C, row = by.multiply(job, A, B)
            found = {} if C is None else _found(C, right, case)
        except Exception as error:  # whatever it is: other tests and kernels are graded in this process too
            row, found = failed_row(job, Status.ERROR, message_of(error)), {}
        yield row | found | about


def _found(C: Any, right: grading.Reference, case: Case) -> Row:
    found = right.quotients(C)
    terms = 10 * case.shape[1] if case.test == SPREAD else case.shape[1]  # the field allows ten times as much there
    said = f"{found.lost} of {C.size} results are finite or not, and should not be" if found.lost else ""
    quotients = {name: getattr(found, name) for name in ("componentwise", "rowwise", "normwise")}
    return quotients | {"grade": found.grade(terms), "message": said}
