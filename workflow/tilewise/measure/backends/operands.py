"""Arrays of a product on a GPU: operands, workspaces, and their verification."""

from collections.abc import Callable, Sequence
from typing import Any

import cupy
from cupy.cuda import runtime

from tilewise.measure.perturbation import BLANK, Arrays, Change, Perturbed
from tilewise.measure.result_rows import shares, verification_columns
from tilewise.nvidia import cublas, emulation
from tilewise.nvidia.launcher import Product
from tilewise.study import verify
from tilewise.study.jobs import Job, Row

#: There are arrays at other addresses if so many times their bytes are free.
ROOM = 16
#: Workspaces begin at multiples of so many bytes, as arrays do.
ALIGNMENT = 512


class Operands(Arrays):
    """The arrays of a GPU."""

    def __init__(self, config: Any):
        super().__init__(
            cupy,
            config,
            config["verification"]["full_limit_gflop"]["gpu"],
            room=lambda size: runtime.memGetInfo()[0] > ROOM * size,
            free=lambda: cupy.get_default_memory_pool().free_all_blocks(),
        )


class Arena:
    """Memory for the workspaces of several jobs, of which one at a time is launched."""

    def __init__(self, size: int):
        self.memory = cupy.empty(max(1, size), cupy.uint8)

    def take(self, job: Job) -> dict[str, Any]:
        """The workspaces of a job by name, BLANK."""
        found, at = {}, 0
        for space in job.workspaces:
            found[space.name] = self.memory[at : at + max(1, space.bytes)]
            at += -(-space.bytes // ALIGNMENT) * ALIGNMENT
        self.memory.fill(BLANK)
        return found


def bound(job: Job, A: Any, B: Any, C: Any, arena: Arena | None = None) -> tuple[Callable[[int], None], Row, list[Any]]:
    """A job as a function of a stream's address, the columns that the loaded kernel reports, and its workspaces, which
    lie in `arena` or are made."""
    if job.kernel.library:
        point = job.point
        sizes = point.n, point.p, point.m
        if job.kernel.emulation:
            return emulation.gemm(*sizes, A, B, C), {}, []
        if job.kernel.searched:
            from tilewise.nvidia import cublaslt  # of a package that only duels need

            launch, algorithm = cublaslt.best(point.dtype, *sizes, A, B, C, point.batch)
            return launch, {"algorithm": algorithm}, []
        return cublas.gemm(point.dtype, *sizes, A, B, C, point.batch), {}, []
    spaces = (arena or Arena(room_of(job))).take(job)
    arrays = {"A": A, "B": B, "C": C} | spaces
    lie = all(
        lying == verify.ROWS or array.strides == lying.strides(array)
        for array, lying in zip((A, B, C), job.kernel.lying(job.point).values())
    )
    product = Product(job, {name: array.data.ptr for name, array in arrays.items()}, lie=lie)
    return with_initial(product, C, job), product.facts(job), list(spaces.values())


def with_initial(launch: Callable[[int], None], C: Any, job: Job) -> Callable[[int], None]:
    """A launch that first copies the initial C on its stream, so that the copy is part of the product's time."""
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


def room_of(job: Job) -> int:
    """The bytes that the workspaces of a job need."""
    return sum(-(-space.bytes // ALIGNMENT) * ALIGNMENT or 1 for space in job.workspaces)


def verified(
    job: Job, operands: Operands, arena: Arena | None = None
) -> tuple[Callable[[int], None], Row, bool, list[Any]]:
    """A job run once: its launch, its row, whether the product is right, and its workspaces, which must be kept as long
    as it is launched.

    It is the copy of C that is checked, made on the stream of the launch: what another stream writes comes too late.
    """
    point = job.point
    lying = tuple(job.kernel.lying(point).values())
    shape = point.dtype, point.n, point.p, point.m, point.batch
    operands.prepare(*shape, lying=lying, wanted=job.kernel.wanted)
    launch, facts, spaces = bound(job, operands.A, operands.B, operands.C, arena)
    verify.poison(operands.C, point.dtype, job.kernel.reads_c)
    runtime.deviceSynchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        launch(stream.ptr)
        operands.see()
        stream.synchronize()
    found = operands.check_seen()
    also = shares(job.kernel, dict(zip((space.name for space in job.workspaces), spaces)))
    return launch, job.row | facts | verification_columns(job, found, also=also), found.ok, spaces


def perturbed(
    job: Job, launch: Callable[[int], None], operands: Operands, spaces: Sequence[Any], arena: Arena | None = None
) -> Perturbed:
    """A launch with perturbations, which a second stream makes and which end before the next run begins. Workspaces for
    the second addresses lie in `arena` or are made."""
    launches, rooms = [launch], [spaces]
    if len(operands.places) > 1:
        try:
            elsewhere, _, others = bound(job, *operands.places[1], arena)
        except cupy.cuda.memory.OutOfMemoryError:
            del operands.places[1:]
        else:
            launches.append(elsewhere)
            rooms.append(others)
            elsewhere(0)  # a library may load something for arrays that it has not seen, for which NVBench cannot wait

    second = cupy.cuda.Stream(non_blocking=True)

    def perturb(change: Change) -> None:
        with second:
            operands.perturb(change, rooms, job.kernel.reads_c)
        runtime.deviceSynchronize()

    def check() -> verify.Check:
        found = operands.check_lines()
        runtime.deviceSynchronize()
        return found

    runtime.deviceSynchronize()
    for space in spaces:
        space.fill(BLANK)
    runtime.deviceSynchronize()
    return Perturbed(lambda stream: launches[operands.place](stream), perturb, check)


def final_check(run: Perturbed, operands: Operands) -> verify.Check:
    """The check of all that was timed: the first product that was wrong, or else the whole of one more product."""
    found = run.finish(runtime.deviceSynchronize)
    if found is None:
        operands.restore()
        run.launch(0)
        runtime.deviceSynchronize()
        found = operands.check()
    return found
