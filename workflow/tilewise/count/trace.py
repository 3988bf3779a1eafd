"""The memory microscope: what a kernel asks of memory, counted, and what it does wrong there, found, without a GPU.

kernels/emulator/tracer.cpp explains how; study/columns.py explains the columns of traffic.csv. All launches of a kernel
together are one point: their traffic is summed.
"""

import contextlib
import ctypes
import dataclasses
import math
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil

from tilewise import UserError
from tilewise.build import cpp, emulator
from tilewise.build.cpp import shown, tool, version
from tilewise.build.emulator import (
    FOLDER,
    RESERVED_SHARED_BYTES,
    WAITS,
    Emulator,
    LaunchError,
    SharedArray,
    fits_together,
    how_of,
)
from tilewise.measure import verify
from tilewise.study import columns, points, registry
from tilewise.study.expressions import evaluate
from tilewise.study.kernel import Kernel
from tilewise.study.launch import Launch, TensorMap, Three
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, Precision
from tilewise.study.sources import code_of

if TYPE_CHECKING:
    import pandas as pd

#: Bytes of a line of the GPU's L1 cache: four sectors.
LINE_BYTES = 128
#: Workers of these numbers and more are no threads, as runtime.h says.
THREADS = 1024

Shape = tuple[int, int, int]
Row = dict[str, Any]

#: A kernel whose blocks are not alike is run whole to be counted, if its product has at most this many multiply-adds.
MOST_COUNTED = 200_000_000

#: One access in the source is to be one access in the machine code, as nvcc has it: g++ must not join, split, copy or
#: vectorise them, nor drop them or move them to where a condition guards them or no longer does; test_microscope.py has
#: a kernel for each. Overflow wraps around, as it does on a GPU, and a loop without an end has none. Our own functions
#: stand in for the sanitizers' libraries. DWARF 4, since addr2line of binutils 2.40 takes version 5's file names for
#: those of the including file.
TRACED = [
    "-O2",
    "-gdwarf-4",
    "-g1",  # last: after -g1, -gdwarf-4 would ask for level 2, which describes variables and doubles g++'s time
    "-fsanitize=thread",
    "-fsanitize=bounds-strict",
    "-fsanitize=object-size",  # also of what a pointer to a variable of the thread's own leads to
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
    "-fno-tree-sink",  # a load goes into the `if` that uses it
    "-fno-tree-dce",  # a load that nobody uses goes
    "-fno-tree-dse",  # a store that a later one overwrites goes
    "-fno-tree-loop-im",  # a load of shared memory goes out of the `if` and the loop around it
    "-fno-hoist-adjacent-loads",  # both members are loaded where the source loads one
    "-fno-finite-loops",
    "-fno-aggressive-loop-optimizations",
    "-fwrapv",
    "-fno-tree-vectorize",
    "-fno-store-merging",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-sra",
    "-fno-ipa-sra",
    "-fno-thread-jumps",
    "-fno-crossjumping",
    "-fno-tree-tail-merge",
    "-fno-split-paths",
    "-fno-ipa-icf",
    "-fno-gcse",  # this and the next only cost time: they come after the calls of the tracer are placed
    "-fno-schedule-insns2",
]

#: A register that nobody set holds no 0 by chance. g++ 11 lacks the flag: there only what lies on a thread's stack is
#: marked, by cuda_emulator.cpp.
MARKED = "-ftrivial-auto-var-init=pattern"

#: The emulator's source that watches.
RUNTIME = "tracer.cpp"

#: How the threads of a block, and the blocks, are ordered between barriers: arguments of Emulator.launch.
SCHEDULES: dict[str, dict[str, Any]] = {"forward": {}, "reverse": {"reverse": True}, "random": {"seed": 524}}

#: Kind of a Fault -> column of the row. The first are what the tracer itself finds, numbered as in tracer.cpp.
KINDS = {
    "race": "races",
    "out_of_bounds": "out_of_bounds",
    "uninitialised": "uninitialised",
    "divergence": "divergence",
    "misaligned": "misaligned",
    "asynchrony": "asynchrony",
    "deadlock": "deadlocks",
    "trap": "traps",
    "order": "order_dependent",
    "incorrect": "incorrect",
    "stopped": "stopped",
    "unused": "unused_reads",
}
TITLES = {
    "race": "race",
    "out_of_bounds": "access out of bounds",
    "uninitialised": "read of what was never written",
    "divergence": "barrier that not all threads reach",
    "misaligned": "misaligned address",
    "asynchrony": "asynchronous work not waited for",
    "deadlock": "deadlock",
    "trap": "trap",
    "order": "result depends on the order of threads",
    "incorrect": "wrong product",
    "stopped": "run that does not come to its end",
    "unused": "read before it was written",
}

#: What shared memory holds before it is written, 4 bytes again and again. By the first, any value of a floating-point
#: type is not a number, and no integer is even or small. By the others it is 0, nearly 0 or the integer 1, and very
#: large or very small: a value that is used in a comparison or as a flag shows by one of these.
UNWRITTEN = (0x7FFD7FFD, 0, 1, 0x7F7F7F7F, 0xFF7FFF7F)


@dataclass(frozen=True)
class Fault:
    """Something that a kernel must not do, the first time it does it, and how often that happens at this line.

    `kind` is a key of TITLES; block and thread are (x, y), or (x, y, z) if the launch has more than one along z, or
    None if the fault has no single place. `by_effect`: a read of shared memory that was never written, which is a fault
    only if a result depends on it; of kind `unused` it is found to be none, and is told as a remark.
    """

    kind: str
    file: str
    line: int | None
    text: str
    block: tuple[int, ...] | None = None
    thread: tuple[int, ...] | None = None
    count: int = 1
    by_effect: bool = False

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        severity = "remark" if self.is_remark else "error"
        return f"{place}: {severity}: {TITLES[self.kind]}: {self.text}{times}"

    @property
    def is_remark(self) -> bool:
        return self.kind == "unused"


@dataclass(frozen=True)
class Convention:
    """What a kernel agrees on with those who call it: which of A, B and C lie in memory column after column, and
    whether it keeps its sums in the type of the elements where others keep them in float."""

    columns: tuple[str, ...] = ()
    short_sums: bool = False

    def order(self, name: str) -> Literal["C", "F"]:
        """How NumPy calls the order in memory of a matrix."""
        return "F" if name in self.columns else "C"

    def __str__(self) -> str:
        """As options of `tilewise trace`."""
        columns = [f"--columns {','.join(self.columns)}"] if self.columns else []
        return " ".join(columns + ["--short-sums"] * self.short_sums) or "neither --columns nor --short-sums"


# ---- Tracing ---------------------------------------------------------------------------------------------------------


def trace(
    kernel: Kernel,
    dtype: str,
    shape: Shape,
    library: Path | str | None = None,
    seed: int = 524,
    blocks: Iterable[Three] = (),
    stop: bool = False,
    limit: float = 0,
    convention: "Convention | None" = None,
    **parameters: int,
) -> tuple[Row, list[Fault]]:
    """Run a kernel at a shape (n, p, m) under every schedule; returns (row of traffic.csv as a dict, list of Faults).

    `parameters` are the kernel's own; for `block` they are block_x and block_y. `library` is its library made by
    `build`; without one it is compiled. `blocks`, triples (x, y, z), restricts every launch to these blocks: then the
    operands are zeros that take no memory until they are read, so that shapes far beyond this machine's memory can be
    tried, and the product is not checked. `stop` ends a run at its first fault, `limit` the whole after that many
    seconds of computing (0: never). `convention` is what a kernel that is not of this study agrees on. Raises UserError
    if the kernel does not compile or cannot be emulated, or if this machine has not enough memory, LaunchError if a
    device would refuse a launch.
    """
    point = points.point("trace", kernel.name, dtype, *shape, **parameters)
    return trace_point(kernel, point, library, seed, blocks, stop, limit, convention)


def trace_point(
    kernel: Kernel,
    point: Point,
    library: Path | str | None = None,
    seed: int = 524,
    blocks: Iterable[Three] = (),
    stop: bool = False,
    limit: float = 0,
    convention: "Convention | None" = None,
) -> tuple[Row, list[Fault]]:
    """The same for a Point."""
    if not kernel.emulated:
        raise UserError(f"{kernel.name} cannot be traced: the emulator does not run it: {kernel.reason}")
    if library is None:
        with tempfile.TemporaryDirectory() as folder:
            library = build(kernel, kernel.plan(point).instances, Path(folder, f"{kernel.name}.so"))
            return Tracer(library, kernel, limit, convention).trace(point, seed, blocks, stop)
    return Tracer(library, kernel, limit, convention).trace(point, seed, blocks, stop)


def _traced(point: Point, kernel: Kernel, tracer: "Tracer | UserError | None") -> tuple[Row, list[Fault]]:
    """A point's row of traffic.csv and its Faults, whatever becomes of it."""
    if not kernel.emulated:
        status, message = "unsupported", f"the emulator does not run it: {kernel.reason}"
    elif unmet := kernel.unmet(point):
        n, p, m = point.shape.values()
        status = "unsupported"
        message = f"it requires {unmet}, which {n}x{p}x{m} is not; add a shape that it takes to trace.shapes"
    elif isinstance(tracer, Tracer):
        try:
            return tracer.trace(point)
        except LaunchError as error:
            status, message = "invalid_launch", str(error)
        except UserError as error:
            status, message = "error", str(error)
    else:
        status, message = "compile_error", str(tracer)
    return _about(kernel, point) | {"status": status, "message": message}, []


def trace_points(
    examined: Sequence[Point],
    counted: Sequence[Point],
    kernels: Mapping[str, Kernel],
    folder: Path | str,
    limit: float,
    pool: Executor,
) -> tuple["pd.DataFrame", "pd.DataFrame", list[Fault]]:
    """Trace the points `examined` of CUDA kernels, and count the traffic of those `counted` by a few blocks each.

    Returns (table of traffic.csv of the former, of the latter, list of Faults). `kernels` is the registry, whose
    parameters are columns. A process of the pool compiles a kernel, into `folder`, and runs all its points; kernels of
    many points come first. `limit` as in Tracer. Of the points examined, one that cannot be traced is a row without
    counts, whose status and message say why; of those counted it is left out, and the columns of faults are blank: what
    was not run was not examined.
    """
    futures = {}
    for source in (RUNTIME, "ptx.cpp"):  # that no process waits while another compiles what all need
        pool.submit(emulator.own_object, source)
    for name, _ in Counter(point.kernel for point in [*examined, *counted]).most_common():
        whole, few = ([point for point in points if point.kernel == name] for points in (examined, counted))
        futures[name] = pool.submit(_of_kernel, whole, few, kernels[name], folder, limit)
    found = {name: future.result() for name, future in futures.items()}
    traced = [found[point.kernel][0][point] for point in examined]
    rows = [found[point.kernel][1][point] for point in counted]
    parameters = registry.parameters(kernels)
    return (
        columns.frame([row for row, _ in traced], "traffic", parameters),
        columns.frame(filter(None, rows), "traffic", parameters),
        [fault for _, faults in traced for fault in faults],
    )


def _of_kernel(
    examined: Sequence[Point], counted: Sequence[Point], kernel: Kernel, folder: Path | str, limit: float
) -> tuple[dict[Point, tuple[Row, list[Fault]]], dict[Point, Row | None]]:
    """What becomes of each point of one kernel, which is compiled once, with all instances."""
    taken = [point for point in (*examined, *counted) if kernel.emulated and not kernel.unmet(point)]
    instances = sorted({instance for point in taken for instance in kernel.plan(point).instances})
    tracer: Tracer | UserError | None = None
    if instances:
        try:
            tracer = Tracer(build(kernel, instances, Path(folder) / f"{kernel.name}.so"), kernel, limit)
        except UserError as error:
            tracer = error
    return (
        {point: _traced(point, kernel, tracer) for point in examined},
        {point: _counted(point, kernel, tracer) for point in counted},
    )


def left_out(traced: "pd.DataFrame") -> list[str]:
    """A line for each point that should have been examined and was not traced."""
    rows = traced[traced["status"] != "ok"]
    named = (f"{row['kernel']} {row['dtype']} {row['n']}x{row['p']}x{row['m']}" for row in rows.to_dict("records"))
    return [f"{name} was not traced: {message}" for name, message in zip(named, rows["message"])]


def _counted(point: Point, kernel: Kernel, tracer: "Tracer | UserError | None") -> Row | None:
    """A point's row of traffic.csv without faults, or None if it cannot be counted.

    Two blocks touch as many sectors and lines if neither is at the end of the grid and their tiles of A, B and C lie
    alike within a cache line, and if the kernel does the same in every block, as a matrix product does. So one block of
    each kind is run and counts for all. This is for kernels of one launch that say what a block `covers`; any other is
    run whole, or left out if that takes too long.
    """
    small = _covers(kernel) or point.multiply_adds <= MOST_COUNTED
    if isinstance(tracer, Tracer) and not kernel.unmet(point) and small:
        with contextlib.suppress(LaunchError, UserError):
            return tracer.count(point)
    return None


def _covers(kernel: Kernel) -> tuple:
    """The rows and columns of C of a block, if the kernel is one launch whose grid follows from them; else nothing."""
    [*others, entry] = kernel.launches
    return () if others or entry.grid else entry.covers


def block_classes(kernel: Kernel, point: Point) -> dict[Three, int]:
    """The kinds of blocks that `_counted` tells apart: a dict from one block (x, y, z) of each to their number."""
    [launch] = kernel.plan(point).launches
    itemsize = PRECISIONS[point.dtype].itemsize
    height, width = (int(evaluate(size, kernel.variables(point))) for size in _covers(kernel))
    across: dict[tuple, list[int]] = {}  # along x a tile begins at a column of B and C
    down: dict[tuple, list[int]] = {}  # along y at a row of A and C
    for x in range(launch.grid[0]):
        across.setdefault((x * width * itemsize % LINE_BYTES, x == launch.grid[0] - 1), []).append(x)
    for y in range(launch.grid[1]):
        begin = y * height * itemsize
        down.setdefault(
            (begin * point.p % LINE_BYTES, begin * point.m % LINE_BYTES, y == launch.grid[1] - 1), []
        ).append(y)
    return {(xs[0], ys[0], 0): len(xs) * len(ys) for xs in across.values() for ys in down.values()}


def build(kernel: Kernel, instances: Sequence[str], output: Path | str) -> Path:
    """Compile a kernel so that it can be traced: `emulator.build` with every access to memory watched."""
    flags = [*TRACED, *([MARKED] if cpp.takes(MARKED) else [])]
    return emulator.build(kernel, instances, output, flags=flags, runtime=RUNTIME)


def lacking() -> list[str]:
    """What traces with this compiler may miss, in a line; usually nothing."""
    if cpp.takes(MARKED):
        return []
    return [
        f"{version().splitlines()[0]} lacks {MARKED}: a read of a variable that nobody set may be missed; set CXX to "
        "g++ 12 or newer to find it"
    ]


#: How tracer.cpp writes the place of an instruction into a text.
_OFFSET = re.compile(r"\x01([0-9a-f]+)\x01")


class _Traffic(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("requests", "units", "more", "bytes")]


#: The ways of an access that tracer.cpp tells apart, in its order: cp.async, ldmatrix, TMA, to the shared memory of
#: another block of the cluster, and what TMA brings to further blocks.
WAYS = ("copy", "matrix", "tma", "block", "multicast")
#: How many _Traffic tracer.cpp counts: loads and stores of both memories, and of each way.
COUNTED = 4 + 2 * len(WAYS)


class _Fault(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "space", "write", "other_write", "size", "array", "launch")),
        ("offset", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("address", "pc", "other_pc")),
        ("file", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("line", "other_line")),
        ("block", ctypes.c_uint32 * 3),
        ("other_block", ctypes.c_uint32 * 3),
        ("home", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("thread", "other_thread")),
        ("count", ctypes.c_uint64),
        ("text", ctypes.c_char * 600),
    ]


@dataclass(frozen=True)
class _Operand:
    """An array in global memory: A, B, C, a workspace, or a __device__ variable, whose elements may be of any type.
    `order` is "C" if it lies there row after row, "F" if column after column."""

    name: str
    precision: Precision
    shape: tuple[int, ...]
    written_by_host: bool
    order: Literal["C", "F"] = "C"

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.precision.itemsize


def _operands(kernel: Kernel, point: Point, columns: Collection[str] = ()) -> list[_Operand]:
    n, p, m = point.n, point.p, point.m
    own = [("A", (n, p), True), ("B", (p, m), True), ("C", (n, m), kernel.reads_c)]
    found = [
        _Operand(name, PRECISIONS[point.dtype], shape, written, "F" if name in columns else "C")
        for name, shape, written in own
    ]
    for workspace in kernel.plan(point).workspaces:
        found.append(_Operand(workspace.name, PRECISIONS[workspace.dtype], workspace.shape, False))
    return found


#: What a byte of the operands takes beside itself: in the tracer, per 4 bytes, and in NumPy, which checks the product.
CELL_BYTES = 32
CHECK_BYTES = 6


def _check_memory(kernel: Kernel, point: Point) -> None:
    """Raise UserError if a point needs more memory than this machine, or this process's share of it, has left."""
    operands = _operands(kernel, point)
    unit = min(4, *(operand.precision.itemsize for operand in operands))
    needed = sum(operand.bytes for operand in operands) * (1 + CELL_BYTES / unit + CHECK_BYTES)
    left = psutil.virtual_memory().available
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # a container's own limit, if it has one
            allowed, taken = (int(Path("/sys/fs/cgroup", name).read_text()) for name in (limit, used))
            left = min(left, allowed - taken)
    if needed > left:
        raise UserError(
            f"{point.label()}: tracing it needs about {needed / 1e9:,.1f} GB of memory, and {left / 1e9:,.1f} GB are "
            "free here; choose smaller sizes"
        )


class Tracer:
    """A library made by `build`, ready to trace points of its kernel."""

    def __init__(
        self, library: Path | str, kernel: Kernel, limit: float = 0, convention: "Convention | None" = None
    ) -> None:
        """`limit` is how many seconds of computing a point may take; 0: as many as it likes."""
        self.kernel = kernel
        self.limit = limit
        self.convention = convention or Convention()
        self.launched = 0  # the launch that began last
        self.plan = cache(kernel.plan)
        self.unit = 4  # bytes that a cell of the tracer stands for
        self.together = False  # whether the blocks of a point wait for each other, so that they run at the same time
        self.path = Path(library)
        self.emulator = Emulator(library)
        constants = set(re.findall(r"__constant__[^;=(){}]*?(\w+)\s*[\[=;{]", "\n".join(map(code_of, kernel.files))))
        # Of constant memory nothing is counted, and nobody writes it.
        self.variables = [v for v in self.emulator.variables if v.name.rsplit("::", 1)[-1] not in constants]
        self.lines: dict[int, tuple[str, int | None]] = {0: (shown(kernel.path), None)}  # by offset of an instruction
        self.callers: dict[int, str] = {}  # where the kernel calls the function that has an instruction
        self.emulator.library.tracer_traffic.restype = ctypes.POINTER(_Traffic)
        self.emulator.library.tracer_faults.restype = ctypes.POINTER(_Fault)

    def trace(
        self, point: Point, seed: int = 524, blocks: Iterable[Three] = (), stop: bool = False
    ) -> tuple[Row, list[Fault]]:
        """As `trace` says."""
        blocks = list(blocks)
        if not blocks:
            _check_memory(self.kernel, point)
        unit = 4
        while True:  # once more if there are accesses of fewer bytes than were told apart
            self.emulator.seconds_left = self.limit or None
            row, faults, finest = self._trace(point, seed, blocks, stop, unit)
            if finest >= unit:
                return row, faults
            unit = finest

    def _trace(
        self, point: Point, seed: int, blocks: Sequence[Three], stop: bool, unit: int
    ) -> tuple[Row, list[Fault], int]:
        """The same with cells of up to `unit` bytes, and the bytes of the smallest access; if it is smaller than a
        cell, row and faults are worth nothing."""
        n, p, m = point.n, point.p, point.m
        with self._allocated(point, unit) as arrays:
            self.together = False
            operands = None if blocks else verify.operands(np, point.dtype, n, p, m, seed)
            if operands and PRECISIONS[point.dtype].exact:
                for matrix in operands:
                    matrix[matrix == 0] = 1  # times 0 a wrong factor would not show
            C, first = arrays["C"], None
            row: Row = {}
            faults: dict[Any, Fault] = dict(self._too_aligned(point))
            for name, order in SCHEDULES.items():
                self._run_in_some_order(point, arrays, operands, blocks, counting=not row, stop=stop, **order)
                finest = self.emulator.library.tracer_finest()
                if finest < self.unit:
                    return row, [], finest
                found, stopped = self._faults(point), self._stopped(point)
                for fault in found:
                    faults.setdefault((fault.kind, fault.file, fault.line), fault)
                if stopped:  # what was counted up to there says nothing
                    status, faults["stopped"] = stopped
                    row = _about(self.kernel, point) | {"status": status, "message": str(faults["stopped"])}
                    break
                if not row:
                    row = self._row(point, self._traffic())
                if operands and first is None:
                    first = C.copy()
                elif first is not None and C.tobytes() != first.tobytes():
                    faults.setdefault("order", self._order_fault(name, point.dtype, first, C))
            # What is written at the same time is not yet written in some order of the threads.
            races = {(fault.file, fault.line) for fault in faults.values() if fault.kind == "race"}
            late = [key for key, fault in faults.items() if fault.by_effect and (fault.file, fault.line) in races]
            for key in late:
                del faults[key]
            if operands and first is not None and all(fault.by_effect for fault in faults.values()):
                check = self._check(point, operands, first, self.convention)
                if check.ok and faults and not self._depends(point, arrays, operands, first, set(faults)):
                    faults = {key: _unused(fault) for key, fault in faults.items()}
                elif not check.ok and not faults:
                    text = check.message + self._hint(point, operands, first)
                    faults["incorrect"] = Fault("incorrect", shown(self.kernel.path), None, text)
        found = list(faults.values())
        by_kind = {column: sum(f.count for f in found if f.kind == kind) for kind, column in KINDS.items()}
        return row | by_kind, found, unit

    def count(self, point: Point) -> Row:
        """The row of a point by one block of each kind, or by all blocks, as `_counted` says."""
        self.emulator.seconds_left = self.limit or None
        total = np.zeros((COUNTED, len(_Traffic._fields_)), np.int64)
        classes = block_classes(self.kernel, point) if _covers(self.kernel) else {None: 1}
        with self._allocated(point) as arrays:
            for block, number in classes.items():
                self._run(point, arrays, [block] if block else [], counting=True, watching=False)
                if stopped := self._stopped(point):
                    raise UserError(str(stopped[1]))
                total += number * self._traffic()
        return self._row(point, total)

    def _check(
        self, point: Point, operands: Sequence[np.ndarray], C: np.ndarray, convention: "Convention"
    ) -> verify.Check:
        """Whether C is the product of these operands, if what lies in the memory of the three is read by `convention`
        in place of the tracer's own."""
        A, B, result = (
            matrix.ravel(order=self.convention.order(name)).reshape(matrix.shape, order=convention.order(name))
            for name, matrix in zip("ABC", (*operands, C))
        )
        product = verify.reference(A, B, point.dtype)
        return verify.check(result, *product, point.dtype, point.p, convention.short_sums)

    def _hint(self, point: Point, operands: Sequence[np.ndarray], C: np.ndarray) -> str:
        """By which other convention a wrong product is the right one, in words; "" if there is none."""
        has_short_sums = PRECISIONS[point.dtype].has_short_sums
        for names in (self.convention.columns, "", "B", "A", "C", "BC", "AB", "AC", "ABC"):
            for short_sums in {self.convention.short_sums, has_short_sums}:
                other = Convention(tuple(names), short_sums)
                if point.multiply_adds <= MOST_COUNTED and self._check(point, operands, C, other).ok:
                    return f"; it is right with {other} of `tilewise trace`"
        return ""

    def _fill(self, point: Point, arrays: Mapping[str, np.ndarray], operands: Sequence[np.ndarray]) -> None:
        """Make the arrays what a run begins with."""
        arrays["A"][:], arrays["B"][:] = operands
        verify.poison(arrays["C"], point.dtype, self.kernel.reads_c)
        for workspace in self.plan(point).workspaces:
            arrays[workspace.name].view(np.uint8).fill(0xFF)

    def _depends(
        self,
        point: Point,
        arrays: Mapping[str, np.ndarray],
        operands: Sequence[np.ndarray],
        first: np.ndarray,
        known: set[Any],
    ) -> bool:
        """Whether a product or a fault depends on what shared memory holds before it is written.

        `first` is the product by UNWRITTEN[0], in ascending order, `known` the kind, file and line of what was found.
        """
        for unwritten in UNWRITTEN[1:]:
            self._run_in_some_order(point, arrays, operands, [], counting=False, unwritten=unwritten)
            found = {(fault.kind, fault.file, fault.line) for fault in self._faults(point)}
            if self._stopped(point) or not found <= known or arrays["C"].tobytes() != first.tobytes():
                return True
        return False

    def _stopped(self, point: Point) -> tuple[str, Fault] | None:
        """Status and Fault of the last run, if a thread could not go on or the time was up."""
        stopped = self.emulator.stopped()
        if not stopped:
            return None
        self._look_up({stopped.pc, stopped.last})
        places = [self.lines[stopped.pc], self.lines[stopped.last]]
        if stopped.file and not stopped.pc:
            places.insert(0, (shown(stopped.file.decode()), stopped.line))
        # Not every one has a line: what overflows a stack may be the emulator itself.
        file, line = next((at for at in places if at[1]), (shown(self.kernel.path), None))
        place = _Place(self.plan(point).launches[self.launched], [], [])
        text = f"{place.name_thread(stopped.thread)} of {place.name_block(stopped.block)} {how_of(stopped)}"
        if stopped.how == 1:
            text += f" after {self.limit:g} s of computing (--limit, trace.limit_s)"
        fault = Fault("stopped", file, line, text, place.cut(stopped.block), place.thread(stopped.thread))
        return "timeout" if stopped.how == 1 else "error", fault

    @contextlib.contextmanager
    def _allocated(self, point: Point, unit: int = 4) -> Iterator[dict[str, np.ndarray]]:
        """All arrays by name in the tracer's memory, zeroed, with a cell per `unit` bytes or per element if that is
        smaller, for a `with` statement."""
        operands = _operands(self.kernel, point, self.convention.columns)
        for launch in self.plan(point).launches:
            self.emulator.check(launch)
            self.emulator.check_elements(launch, {operand.name: operand.precision.cpp for operand in operands})
        number = len(operands)
        self.unit = min(unit, *(operand.precision.itemsize for operand in operands))
        addresses = (ctypes.c_void_p * number)()
        try:
            failed = self.emulator.library.tracer_allocate(
                ctypes.c_int(number),
                (ctypes.c_uint64 * number)(*(operand.bytes for operand in operands)),
                (ctypes.c_int * number)(*(operand.written_by_host for operand in operands)),
                ctypes.c_int(self.unit),
                addresses,
            )
            integers = ctypes.c_uint64 * len(self.variables)
            failed |= self.emulator.library.tracer_variables(
                ctypes.c_int(len(self.variables)),
                integers(*(variable.offset for variable in self.variables)),
                integers(*(variable.size for variable in self.variables)),
            )
            if failed:
                raise UserError(f"{point.label()}: not enough memory on this machine to trace it; choose smaller sizes")
            arrays = {}
            for operand, address in zip(operands, addresses):
                buffer = memoryview((ctypes.c_char * operand.bytes).from_address(address))
                flat = np.frombuffer(buffer, operand.precision.stored)
                arrays[operand.name] = flat.reshape(operand.shape, order=operand.order)
            yield arrays
        finally:
            self.emulator.library.tracer_free()

    def _run_in_some_order(
        self,
        point: Point,
        arrays: Mapping[str, np.ndarray],
        operands: Sequence[np.ndarray] | None,
        blocks: Sequence[Three],
        reverse: bool = False,
        **order: Any,
    ) -> None:
        """One run from `operands` on, as `_run` has it; if a block waits for one that would run after it, once more
        with the blocks in the other order, and then with all of them at the same time."""
        ways: list[dict[str, bool]] = [{"blocks_reversed": reverse}, {"blocks_reversed": not reverse}]
        if all(map(fits_together, self.plan(point).launches)) and not blocks:
            ways = [{"together": True}] if self.together else [*ways, {"together": True}]
        for way in ways:
            self.together = "together" in way
            if operands:
                self._fill(point, arrays, operands)
            self._run(point, arrays, blocks, reverse=reverse, **way, **order)
            stopped = self.emulator.stopped()
            if not stopped or stopped.how != WAITS:
                return

    def _run(
        self,
        point: Point,
        arrays: Mapping[str, np.ndarray],
        blocks: Sequence[Three],
        counting: bool,
        watching: bool = True,
        stop: bool = False,
        unwritten: int = UNWRITTEN[0],
        **order: Any,
    ) -> None:
        """One run of all launches: `counting` traffic, `watching` for faults, or both. Shared memory that is watched
        holds the 4 bytes `unwritten` everywhere when a block begins."""
        self.emulator.library.tracer_prepare(*map(int, (counting, watching, stop)), ctypes.c_uint32(unwritten))
        for number, launch in enumerate(self.plan(point).launches):
            self.launched = number
            shared = self.emulator.shared_of(launch)
            integers = ctypes.c_uint64 * len(shared)
            self.emulator.library.tracer_launch(
                integers(*emulator.places_of(shared)),
                integers(*(array.size or launch.dynamic_shared_bytes for array in shared)),
                ctypes.c_int(len(shared)),
            )
            if not self.emulator.launch(self._as_stored(launch), arrays, **order, blocks=blocks):
                return

    def _as_stored(self, launch: Launch) -> Launch:
        """A launch whose tensor maps describe the arrays as they lie: one that lies column after column is, for a
        tensor map, the rows of its transpose."""
        arguments = tuple(
            dataclasses.replace(argument, shape=argument.shape[::-1])
            if isinstance(argument, TensorMap) and argument.array in self.convention.columns
            else argument
            for argument in launch.arguments
        )
        return dataclasses.replace(launch, arguments=arguments)

    def _traffic(self) -> np.ndarray:
        """What the last run counted: loads and stores of global, then of shared memory, then by each of WAYS, by the
        fields of _Traffic."""
        counted = self.emulator.library.tracer_traffic()
        return np.array([[getattr(counted[i], field[0]) for field in _Traffic._fields_] for i in range(COUNTED)])

    def _row(self, point: Point, traffic: np.ndarray) -> Row:
        """The row of a point that causes this `traffic`, without faults."""
        return _about(self.kernel, point) | _counts(point, traffic) | {"status": "ok", "message": ""}

    def _order_fault(self, schedule: str, dtype: str, first: np.ndarray, C: np.ndarray) -> Fault:
        differ = first.view(f"V{first.itemsize}") != C.view(f"V{C.itemsize}")
        row, column = (int(i) for i in np.argwhere(differ)[0])
        before, after = (PRECISIONS[dtype].wide(np, array)[row, column] for array in (first, C))
        text = f"C[{row}, {column}] is {before} in ascending and {after} in {schedule} order"
        return Fault("order", shown(self.kernel.path), None, text, count=int(differ.sum()))

    def _too_aligned(self, point: Point) -> Iterator[tuple[str, Fault]]:
        """A Fault by name for each shared array that asks for more alignment than the device gives."""
        for launch in self.plan(point).launches:
            for array in self.emulator.shared_of(launch):
                if array.alignment > RESERVED_SHARED_BYTES:
                    text = (
                        f"{array.name} asks for an address that is a multiple of {array.alignment}; a GPU gives "
                        f"{RESERVED_SHARED_BYTES}: a block's arrays begin that many bytes into its shared memory"
                    )
                    file, line = _declaration(self.kernel, array.name)
                    yield array.name, Fault("misaligned", file, line, text)

    # ---- Faults in words --------------------------------------------------------------------------------------------

    def _faults(self, point: Point) -> list[Fault]:
        """The Faults of the last run, those of one kind and line joined."""
        launches, operands = self.plan(point).launches, _operands(self.kernel, point, self.convention.columns)
        precision = PRECISIONS[point.dtype]
        for variable in self.variables:
            shape = (-(-variable.size // precision.itemsize),) if variable.size > precision.itemsize else ()
            # One of a function is called `f(float*)::count`.
            operands.append(_Operand(variable.name.rsplit("::", 1)[-1], precision, shape, True))
        number = ctypes.c_int()
        pointer = self.emulator.library.tracer_faults(ctypes.byref(number))
        raw = pointer[: number.value] if number.value else []
        told = {int(offset, 16) for fault in raw for offset in _OFFSET.findall(fault.text.decode(errors="replace"))}
        self._look_up({offset for fault in raw for offset in (fault.pc, fault.other_pc)} | told)
        found: dict[Any, Fault] = {}
        for fault in raw:
            kind = list(KINDS)[fault.kind]
            file, line = (shown(fault.file.decode()), fault.line) if fault.file else self.lines[fault.pc]
            if (kind, file, line) in found:
                joined = found[kind, file, line]
                found[kind, file, line] = dataclasses.replace(joined, count=joined.count + fault.count)
                continue
            launch = launches[fault.launch]
            place = _Place(launch, operands, self.emulator.shared_of(launch))
            said = _OFFSET.sub(lambda told: self._named(int(told[1], 16)), fault.text.decode(errors="replace"))
            text = said or getattr(self, f"_{kind}")(fault, place)
            if fault.pc in self.callers:
                text += f" (called at {self.callers[fault.pc]})"
            found[kind, file, line] = Fault(
                kind,
                file,
                line,
                text,
                place.cut(fault.block),
                place.thread(fault.thread),
                fault.count,
                by_effect=kind == "uninitialised" and bool(fault.space),
            )
        return list(found.values())

    def _look_up(self, offsets: set[int]) -> None:
        """Learn file and line of instructions from the debug information."""
        unknown = sorted(offsets - set(self.lines))
        if not unknown:
            return
        command = [tool("addr2line"), "-a", "-i", "-f", "-e", str(self.path), *map(hex, unknown)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for chunk in re.split(r"^0x", answer, flags=re.MULTILINE)[1:]:
            offset, *frames = chunk.splitlines()
            # Innermost first: what the emulator's headers define was called from the kernel.
            places = [
                (name, *frame.split(" (")[0].rsplit(":", 1))
                for name, frame in zip(frames[::2], frames[1::2], strict=True)
            ]
            # <stdin> is the text around a kernel that has inline PTX.
            emulators = (shown(place[1]).startswith(shown(FOLDER)) or place[1].endswith("<stdin>") for place in places)
            own = [place for place, is_not in zip(places, emulators) if not is_not] or places[-1:]
            _, file, line = own[0]
            self.lines[int(offset, 16)] = shown(file), int(line) if line.isdigit() else None
            # The kernel is the outermost of its functions; g++ may have cut it in two, of the same name.
            _, outer, at = next(place for place in own if place[0] == own[-1][0])
            if (outer, at) != (file, line):
                self.callers[int(offset, 16)] = f"{shown(outer)}:{at}"

    def _named(self, offset: int) -> str:
        """The line of an instruction in words: of the kernel, and of the function that it calls."""
        file, line = self.lines[offset]
        own = f"{file}:{line}"
        return f"{self.callers[offset]} ({own})" if offset in self.callers else own

    def _at(self, offset: int, file: str) -> str:
        """The same as seen from a line of `file`."""
        own, line = self.lines[offset]
        at = f"line {line}" if own == file else f"line {line} of {own}"
        return f"{at} (called at {self.callers[offset]})" if offset in self.callers else at

    def _race(self, fault: Any, place: "_Place") -> str:
        other, why = place.name_worker(fault.other_thread), "with no __syncthreads() between"
        if fault.other_thread >= THREADS:
            why = "and nothing waits for that"
        if tuple(fault.other_block) != tuple(fault.block):
            other = f"{other} of {place.name_block(fault.other_block)}"
            why = "with no barrier of the cluster between" if fault.space else "and blocks run in any order"
        at = self._at(fault.other_pc, self.lines[fault.pc][0])
        verb = "writes" if fault.other_write else "reads"
        memory = "shared" if fault.space else "global"
        return f"{place.access(fault)} of {memory} memory, which {other} {verb} at {at}, {why}"

    def _out_of_bounds(self, fault: Any, place: "_Place") -> str:
        if fault.type and fault.other_write:
            verb = "writes" if fault.write else "reads"
            what = f"a value of type {fault.type.decode()} outside a variable of its own (registers, local memory)"
            return f"{place.who(fault)} {verb} {what}"
        if fault.type:
            return f"{place.who(fault)} uses index {fault.offset} of an array of type {fault.type.decode()}"
        if place.starts_inside(fault):
            return f"{place.access(fault)} as {fault.size} bytes, past the end of {place.extent(fault)}"
        return f"{place.access(fault)}, {place.extent(fault)}"

    def _uninitialised(self, fault: Any, place: "_Place") -> str:
        writer = "no thread of the block" if fault.space else "no thread"
        # An atomic operation, which is a write elsewhere, reads too.
        return f"{place.who(fault)} reads {place.element(fault)}, which {writer} has written"

    def _misaligned(self, fault: Any, place: "_Place") -> str:
        return f"{place.access(fault)} as {fault.size} bytes, whose address must be a multiple of that"

    def _asynchrony(self, fault: Any, place: "_Place") -> str:
        if fault.other_write == 2:
            return f"{place.access(fault)}, which may not have started; the cluster must have met at a barrier before"
        if fault.other_write == 3:
            return f"{place.access(fault)}, which may have ended; the cluster must meet at a barrier after it"
        at = self._at(fault.other_pc, self.lines[fault.pc][0])
        if fault.other_write:  # by a thread, and now by a unit
            what = f"{place.element(fault)} of shared memory, which {place.name_thread(fault.other_thread)}"
            unit, thread = ("overwrites", "reads") if fault.write else ("reads", "writes")
            return f"the asynchronous unit {unit} {what} {thread} at {at}, with no fence.proxy.async between"
        return f"{place.access(fault)} of shared memory while the copy that {at} started is under way"

    def _divergence(self, fault: Any, place: "_Place") -> str:
        where = f"waits at line {fault.other_line}" if fault.other_line else "has ended"
        waiting = f"{place.name_thread(fault.other_thread)} of {place.name_block(fault.block)}"
        return f"{waiting} waits here, {place.name_thread(fault.thread)} {where}"


def _unused(fault: Fault) -> Fault:
    """A read of what was never written as a remark: no result depends on it."""
    return dataclasses.replace(fault, kind="unused", text=f"{fault.text}; no result depends on it")


def _counts(point: Point, traffic: np.ndarray) -> Row:
    (loads, load_sectors, load_lines, load_bytes), (stores, store_sectors, _, _) = traffic[:2].tolist()
    (shared_loads, load_wavefronts, load_conflicts, _), (shared_stores, store_wavefronts, conflicts, _) = traffic[
        2:4
    ].tolist()
    ways = {way: traffic[4 + 2 * number : 6 + 2 * number].tolist() for number, way in enumerate(WAYS)}
    flop = 2 * point.multiply_adds
    moved = 32 * (load_sectors + store_sectors)
    return {
        "global_load_requests": loads,
        "global_load_sectors": load_sectors,
        "global_load_lines": load_lines,
        "global_store_requests": stores,
        "global_store_sectors": store_sectors,
        "sectors_per_request": load_sectors / loads if loads else None,
        "shared_load_requests": shared_loads,
        "shared_load_wavefronts": load_wavefronts,
        "shared_store_requests": shared_stores,
        "shared_store_wavefronts": store_wavefronts,
        "shared_bank_conflicts": load_conflicts + conflicts,
        "flop_per_byte": flop / load_bytes if load_bytes else None,
        "flop_per_byte_moved": flop / moved if moved else None,
        "async_load_requests": ways["copy"][0][0],
        "async_load_sectors": ways["copy"][0][1],
        "matrix_load_requests": ways["matrix"][0][0],
        "tma_load_requests": ways["tma"][0][0],
        "tma_load_sectors": ways["tma"][0][1],
        "tma_store_requests": ways["tma"][1][0],
        "tma_store_sectors": ways["tma"][1][1],
        "multicast_sectors": ways["multicast"][0][1],
        "cluster_load_sectors": ways["block"][0][1],
        "cluster_store_sectors": ways["block"][1][1],
    }


def _declaration(kernel: Kernel, name: str) -> tuple[str, int | None]:
    """File and line of a shared array's declaration, as far as the text tells it."""
    for path in kernel.files:
        for number, line in enumerate(code_of(path).splitlines(), 1):
            if "__shared__" in line and re.search(rf"\b{name}\b", line):
                return shown(path), number
    return shown(kernel.path), None


def _about(kernel: Kernel, point: Point) -> Row:
    """The columns of a row that name its point; without a block if the point has no launch."""
    row = {name: value for name, value in point.columns().items() if name != "task"}
    with contextlib.suppress(UserError):
        product = kernel.plan(point).product
        assert product is not None  # a CUDA kernel has one
        row |= {"block_x": product.block[0], "block_y": product.block[1]}
    return row


def _numbers(values: Iterable[int]) -> str:
    return f"({', '.join(map(str, values))})"


@dataclass(frozen=True)
class _Place:
    """What the numbers of a raw fault refer to."""

    launch: Launch
    operands: list[_Operand]
    shared: list[SharedArray]

    def cut(self, place: Iterable[int]) -> tuple[int, ...]:
        """(x, y, z) of a block or a thread; (x, y) if nothing of the launch differs along z."""
        flat = self.launch.block[2] == self.launch.grid[2] == 1
        return tuple(place)[: 2 if flat else 3]

    def thread(self, number: int) -> tuple[int, ...]:
        x, y, _ = self.launch.block
        return self.cut((number % x, number // x % y, number // (x * y)))

    def name_thread(self, number: int) -> str:
        return f"thread {_numbers(self.thread(number))}"

    def name_worker(self, number: int) -> str:
        """A thread, or a unit that works beside the threads, numbered as in runtime.h."""
        if number < THREADS:
            return self.name_thread(number)
        number -= THREADS
        if number < 32:
            return f"the product (wgmma) of warp {number}"
        return "an asynchronous copy" if number < 32 + 64 else "a copy to global memory"

    def name_block(self, block: Iterable[int]) -> str:
        return f"block {_numbers(self.cut(block))}"

    def who(self, fault: Any) -> str:
        return f"{self.name_thread(fault.thread)} of {self.name_block(fault.block)}"

    def access(self, fault: Any) -> str:
        verb = "writes" if fault.write else "reads"
        return f"{self.who(fault)} {verb} {self.element(fault)}"

    def element(self, fault: Any) -> str:
        if fault.array < 0:
            return f"address {fault.address:#x}" if not fault.space else "shared memory"
        if fault.space:
            # A shared array does not tell the size of its elements: those of C are meant, or the access if smaller.
            size = min(self.operands[2].precision.itemsize, max(1, fault.size))
            where = "" if tuple(fault.home) == tuple(fault.block) else f" of {self.name_block(fault.home)}"
            return f"{self.shared[fault.array].name}[{fault.offset // size}]{where}"
        operand = self.operands[fault.array]
        index = fault.offset // operand.precision.itemsize
        if not operand.shape:
            return operand.name
        if 0 <= index < math.prod(operand.shape):
            place = np.unravel_index(index, operand.shape, operand.order)
            return f"{operand.name}[{', '.join(str(int(i)) for i in place)}]"
        return f"element {index} of {operand.name}"

    def starts_inside(self, fault: Any) -> bool:
        """Whether the first byte of an access is in a global array."""
        return not fault.space and fault.array >= 0 and 0 <= fault.offset < self.operands[fault.array].bytes

    def extent(self, fault: Any) -> str:
        if fault.array < 0:
            return "which is no part of any array" if not fault.space else "where the kernel has no array"
        if fault.space:
            return "past its end"
        shape = self.operands[fault.array].shape
        size = f" = {math.prod(shape)}" if len(shape) > 1 else ""
        which = f"{self.operands[fault.array].name}, " if self.starts_inside(fault) else ""
        return f"{which}which has {' x '.join(map(str, shape))}{size}"
