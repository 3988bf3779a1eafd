"""Make traffic.csv: trace each point, or count a few of its blocks, in a pool of processes."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, as_completed
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import kernelscope
from kernelscope import cpp
from kernelscope.compile import build_traced, own_object
from kernelscope.counts import Row
from kernelscope.emulator import LaunchError
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault, Other
from kernelscope.files import digest
from kernelscope.sources import emulator_files
from kernelscope.tracer import Tracer
from tilewise import MachineError, UserError
from tilewise.study import columns, registry
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.status import Status
from tilewise.traced.block_classes import block_classes, covers, point_columns
from tilewise.traced.multiplication import Multiplication
from tilewise.traced.product import MOST_MULTIPLY_ADDS

if TYPE_CHECKING:
    import pandas as pd


class Journal(Protocol):
    """The part of `tilewise.measure.journal.Journal` that a trace needs."""

    rows: dict[str, Row]

    def add(self, key: str, row: Row, lasting: bool = True) -> None: ...


def _traced(point: Point, kernel: Kernel, tracer: "Tracer | UserError | None") -> tuple[Row, list[Fault]]:
    """A point's row of traffic.csv and its Faults, whatever becomes of it."""
    if not kernel.emulated:
        status, message = Status.UNSUPPORTED, f"the emulator does not run it: {kernel.reason}"
    elif unmet := kernel.unmet(point):
        n, p, m = point.shape.values()
        status = Status.UNSUPPORTED
        message = f"it requires {unmet}, which {n}x{p}x{m} is not; add a shape that it takes to trace.shapes"
    elif isinstance(tracer, Tracer):
        try:
            return tracer.trace(Multiplication(kernel, point))
        except LaunchError as error:
            status, message = Status.INVALID_LAUNCH, str(error)
        except MachineError:
            raise
        except UserError as error:
            status, message = Status.ERROR, str(error)
    else:
        status, message = Status.COMPILE_ERROR, str(tracer)
    return point_columns(kernel, point) | {"status": status, "message": message}, []


def trace_points(
    examined: Sequence[Point],
    counted: Sequence[Point],
    kernels: Mapping[str, Kernel],
    folder: Path | str,
    limit: float,
    pool: Executor,
    journal: Journal | None = None,
) -> tuple["pd.DataFrame", "pd.DataFrame", list[Fault]]:
    """Trace the points `examined` of CUDA kernels, and count the traffic of those `counted` by a few blocks each.

    Returns (table of traffic.csv of the former, of the latter, list of Faults). `kernels` is the registry, whose
    parameters are columns. A process of the pool compiles a kernel, into `folder`, and runs all its points; kernels of
    many points come first. `limit` as in Tracer. Of the points examined, one that cannot be traced is a row without
    counts, whose status and message say why; of those counted it is left out, and the columns of faults are blank: what
    was not run was not examined. A kernel that is done goes into the journal; points that it holds are not run again.
    """
    whole = {point: _key("examined", point, kernels[point.kernel], limit) for point in examined}
    few = {point: _key("counted", point, kernels[point.kernel], limit) for point in counted}
    known = journal.rows if journal else {}
    traced = {point: _restored(known[key]) for point, key in whole.items() if key in known}
    counts: dict[Point, Row | None] = {point: known[key]["traffic"] for point, key in few.items() if key in known}
    rest = [point for point in whole if point not in traced], [point for point in few if point not in counts]
    futures = []
    for part in ("runtime", "tracer", "ptx") if any(rest) else ():  # that no process waits while another compiles them
        pool.submit(own_object, part)
    for name, _ in Counter(point.kernel for each in rest for point in each).most_common():
        examine, count = ([point for point in each if point.kernel == name] for each in rest)
        futures.append(pool.submit(_of_kernel, examine, count, kernels[name], folder, limit))
    for future in as_completed(futures):
        found, rows = future.result()
        traced |= found
        counts |= rows
        if journal:
            for point, (row, faults) in found.items():
                journal.add(whole[point], _entry(point, row, faults), lasting=False)
            for point in filter(rows.get, rows):
                journal.add(few[point], _entry(point, rows[point] or {}), lasting=False)
    parameters = registry.parameters(kernels)
    return (
        columns.frame([traced[point][0] for point in examined], "traffic", parameters),
        columns.frame(filter(None, (counts[point] for point in counted)), "traffic", parameters),
        [fault for point in examined for fault in traced[point][1]],
    )


def _key(how: str, point: Point, kernel: Kernel, limit: float) -> str:
    """The key of a point that is traced in some way: the hash of all that its row depends on."""
    entry = dataclasses.replace(kernel, title="", reason="", tuned={}, accuracy={})
    return digest(
        [
            how,
            dataclasses.asdict(point),
            limit,
            repr(entry),
            kernel.code,
            _tracer(" ".join(cpp.compiler()), cpp.version()),
        ]
    )


def _entry(point: Point, row: Row, faults: Sequence[Fault] = ()) -> Row:
    """The journal's row of a traced point: its name and status, its row of traffic.csv and its faults."""
    names = {"kernel": point.kernel, "dtype": point.dtype, **point.shape}
    said = {"status": row.get("status", Status.OK), "message": row.get("message", "")}
    return {**names, **said, "traffic": row, "faults": [dataclasses.asdict(fault) for fault in faults]}


@cache
def _tracer(compiler: str, version: str) -> str:
    """The hash of the tracer: its sources in C++, the modules of kernelscope and of this package, and the compiler."""
    folders = Path(__file__).parent, Path(kernelscope.__file__).parent
    files = [*emulator_files(), *sorted({path for folder in folders for path in folder.rglob("*.py")})]
    texts = [path.read_text(encoding="utf-8") for path in files]
    return digest([texts, compiler, version])


def _restored(entry: Row) -> tuple[Row, list[Fault]]:
    """A point's row of traffic.csv and its Faults, as `_entry` wrote them; JSON has neither tuples nor FaultKinds."""

    def with_tuples(side: Row) -> Row:
        return side | {name: side[name] and tuple(side[name]) for name in ("block", "thread")}

    faults = []
    for fault in entry["faults"]:
        other = Other(**with_tuples(fault["other"])) if fault["other"] else None
        faults.append(Fault(**(with_tuples(fault) | {"kind": FaultKind[fault["kind"].upper()], "other": other})))
    return entry["traffic"], faults


def _of_kernel(
    examined: Sequence[Point], counted: Sequence[Point], kernel: Kernel, folder: Path | str, limit: float
) -> tuple[dict[Point, tuple[Row, list[Fault]]], dict[Point, Row | None]]:
    """What becomes of each point of one kernel, which is compiled once, with all instances, if they go together."""
    taken = [point for point in (*examined, *counted) if kernel.emulated and not kernel.unmet(point)]
    instances = {point: tuple(kernel.plan(point).instances) for point in taken}
    together = tuple(sorted({name for names in instances.values() for name in names}))
    tracers: dict[tuple[str, ...], Tracer | UserError] = {}

    def tracer_of(point: Point) -> "Tracer | UserError | None":
        if point not in instances:
            return None
        # What does not compile together may do so alone, as a GPU's compiler takes it.
        for names in (together, instances[point]):
            if names not in tracers:
                tracers[names] = _built(kernel, names, Path(folder, f"{kernel.name}-{len(tracers)}.so"), limit)
            if isinstance(tracers[names], Tracer):
                break
        return tracers[names]

    return (
        {point: _traced(point, kernel, tracer_of(point)) for point in examined},
        {point: _counted(point, kernel, tracer_of(point)) for point in counted},
    )


def _built(kernel: Kernel, instances: Sequence[str], library: Path, limit: float) -> "Tracer | UserError":
    """A Tracer of some instances, compiled into `library`, or why there is none."""
    try:
        return Tracer(build_traced(kernel, instances, library), kernel, limit, "trace.limit_s")
    except MachineError:  # the kernel is not to blame
        raise
    except UserError as error:
        return error


def missing_points(traced: "pd.DataFrame") -> list[str]:
    """A line for each point that should have been examined and was not traced."""
    rows = traced[traced["status"] != Status.OK]
    named = (f"{row['kernel']} {row['dtype']} {row['n']}x{row['p']}x{row['m']}" for row in rows.to_dict("records"))
    return [f"{name} was not traced: {message}" for name, message in zip(named, rows["message"])]


def _counted(point: Point, kernel: Kernel, tracer: "Tracer | UserError | None") -> Row | None:
    """A point's row of traffic.csv without faults, or None if it cannot be counted.

    Two blocks touch as many sectors and lines if neither is at the end of the grid and their tiles of A, B and C lie
    alike within a cache line, and if the kernel does the same in every block, as a matrix product does. So one block of
    each kind is run and counts for all. This is for kernels of one launch that say what a block `covers`; any other is
    run whole, or left out if that takes too long.
    """
    small = covers(kernel) or point.multiply_adds <= MOST_MULTIPLY_ADDS
    if isinstance(tracer, Tracer) and not kernel.unmet(point) and small:
        try:
            kinds = block_classes(kernel, point) if covers(kernel) else {}
            return tracer.count(Multiplication(kernel, point), kinds)
        except MachineError:
            raise
        except (LaunchError, UserError):
            pass
    return None
