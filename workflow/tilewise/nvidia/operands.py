"""The arrays of a product on a GPU: operands that change, workspaces, and what is verified of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cupy
from cupy.cuda import runtime

from tilewise.measure.job import Job, Row
from tilewise.measure.rows import outcome, shares
from tilewise.measure.surprises import Surprises
from tilewise.nvidia import cublas, emulation
from tilewise.nvidia.launcher import Product
from tilewise.study import verify
from tilewise.study.precision import result_of

#: What an array that holds no result yet is filled with: NaN in every floating-point type.
BLANK = 0xFF


class Operands:
    """A, B, C and what C should be, for the shape and dtype at hand; jobs that share them come in a row.

    There are two sets of values for A and B, and `use` writes one of them into the arrays. `seen` is a copy of C.
    """

    def __init__(self, config: Any):
        self.settings = config["verification"]
        self.seed = config["seed"]
        self.shape: tuple | None = None
        #: How A, B and C are to lie in memory, and how they do.
        self.lying: Sequence[verify.Lying] = (verify.ROWS,) * 3
        self.laid: Sequence[verify.Lying] = ()
        self.sets: list[tuple[Any, Any]] = []
        self.references: list[tuple[Any, Any]] = []
        self.wanted = verify.Wanted()  # what the kernel at hand is to compute

    def prepare(self, dtype: str, n: int, p: int, m: int, batch: int = 1) -> None:
        """Make the operands of a shape, unless they are there; A and B have the first set. Those of a batch, whose
        products are checked whole, lie one below the other."""
        if self.shape != (dtype, n, p, m, batch) or self.laid != self.lying:
            self.shape = self.A = self.B = self.C = self.seen = None
            self.sets, self.references = [], []
            cupy.get_default_memory_pool().free_all_blocks()
            for seed in (self.seed, self.seed + 1):
                A, B = verify.operands(cupy, dtype, n, p, m, seed, batch)
                self.sets.append((A, B))
            self.A, self.B = (cupy.empty_like(matrix) for matrix in self.sets[0])
            self.C, self.seen = (cupy.empty((batch * n, m), result_of(dtype).stored) for _ in range(2))
            if batch > 1 or 2 * n * p * m <= self.settings["full_limit_gflop"]["gpu"] * 1e9:
                self.references = [verify.reference(A, B, dtype, batch) for A, B in self.sets]
            self.A, self.B, self.C = (verify.laid(*each) for each in zip((self.A, self.B, self.C), self.lying))
            self.shape, self.laid = (dtype, n, p, m, batch), self.lying
        self.use(0)

    def use(self, number: int) -> None:
        """Write a set of values into A and B."""
        self.number = number
        for matrix, values in zip((self.A, self.B), self.sets[number]):
            cupy.copyto(matrix, values)

    def see(self) -> None:
        """Copy C as it is now."""
        cupy.copyto(self.seen, self.C)
        self.seen_number = self.number

    def check(self) -> verify.Check:
        """Verify C as it is now."""
        return self._check(self.C, self.number)

    def check_seen(self) -> verify.Check:
        """Verify the copy of C."""
        return self._check(self.seen, self.seen_number)

    def _check(self, C: Any, number: int) -> verify.Check:
        assert self.shape
        dtype, _, p, _, _ = self.shape
        runtime.deviceSynchronize()
        if self.references:
            product, magnitude = self.references[number]
            return verify.check(C, product, magnitude, dtype, p, self.wanted)
        A, B = self.sets[number]
        return verify.check_rows(A, B, C, dtype, self.settings["rows"], self.seed, self.wanted)


def bound(job: Job, A: Any, B: Any, C: Any) -> tuple[Callable[[int], None], Row, list[Any]]:
    """A job as a function of a stream's address, the columns that the loaded kernel reports, and its workspaces."""
    if job.kernel.library:
        point = job.point
        sizes = point.n, point.p, point.m
        if job.kernel.emulation:
            return emulation.gemm(*sizes, A, B, C), {}, []
        return cublas.gemm(point.dtype, *sizes, A, B, C, point.batch), {}, []
    spaces = {space.name: cupy.full(max(1, space.bytes), BLANK, cupy.uint8) for space in job.workspaces}
    arrays = {"A": A, "B": B, "C": C} | spaces
    lie = all(
        lying == verify.ROWS or array.strides == lying.strides(array)
        for array, lying in zip((A, B, C), job.kernel.lying(job.point).values())
    )
    product = Product(job, {name: array.data.ptr for name, array in arrays.items()}, lie=lie)
    return with_initial(product, C, job), product.facts(job), list(spaces.values())


def with_initial(launch: Callable[[int], None], C: Any, job: Job) -> Callable[[int], None]:
    """A launch that first makes C what its kernel begins with, on its stream: that time is part of the product's."""
    wanted = job.kernel.wanted
    if not wanted.begins:
        return launch
    held = cupy.empty(C.shape, C.dtype)
    verify.begin(held, job.point.dtype, wanted)

    def begun(stream: int) -> None:
        with cupy.cuda.ExternalStream(stream):
            cupy.copyto(C, held)
        launch(stream)

    return begun


def verified(job: Job, operands: Operands) -> tuple[Callable[[int], None], Row, bool, list[Any]]:
    """A job run once: its launch, its row, whether the product is right, and its workspaces, which must be kept as long
    as it is launched.

    It is the copy of C that is checked, made on the stream of the launch: what another stream writes comes too late.
    """
    point = job.point
    operands.wanted, operands.lying = job.kernel.wanted, tuple(job.kernel.lying(point).values())
    operands.prepare(point.dtype, point.n, point.p, point.m, point.batch)
    launch, facts, spaces = bound(job, operands.A, operands.B, operands.C)
    verify.poison(operands.C, point.dtype, job.kernel.reads_c)
    runtime.deviceSynchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        launch(stream.ptr)
        operands.see()
        stream.synchronize()
    found = operands.check_seen()
    also = shares(job.kernel, dict(zip((space.name for space in job.workspaces), spaces)))
    return launch, job.row | facts | outcome(job, found, also=also), found.ok, spaces


def surprised(
    job: Job, launch: Callable[[int], None], operands: Operands, spaces: Sequence[Any], scratch: Any
) -> Surprises:
    """A launch with surprises, which come by a separate stream: while NVBench holds the timed one, until all of a
    run is launched, they cost the run no time. They allocate nothing, for which CUDA would wait.

    `scratch` is written last, and large enough to leave nothing of the arrays in the L2 cache.
    """
    aside, event = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(disable_timing=True)

    def look() -> None:
        with aside:
            operands.see()
        aside.synchronize()

    def spoil(changed: bool) -> None:
        with aside:
            verify.poison(operands.C, job.point.dtype, job.kernel.reads_c)
            if changed:
                operands.use(1 - operands.number)
            else:
                for space in spaces:
                    space.fill(BLANK)
            scratch.fill(0)
        aside.synchronize()

    runtime.deviceSynchronize()
    spoil(False)  # CUDA loads now what it would load, and wait for, later
    return Surprises(launch, lambda stream: runtime.eventRecord(event.ptr, stream), lambda: event.done, look, spoil)


def checks_after(run: Surprises, operands: Operands) -> Iterator[verify.Check]:
    """The checks of what was timed: of the last product, of the one that was kept, and of one more after each kind of
    surprise, which a few runs may not have met."""
    yield operands.check()
    yield operands.check_seen()
    for changed in (True, False):
        run.spoil(changed)
        run.launch(0)
        yield operands.check()
