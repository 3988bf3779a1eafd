"""The memory microscope: what a kernel asks of memory, counted, and what it does wrong there, found, without a GPU.

kernels/emulator/tracer.cpp explains how. Columns of traffic.csv beyond the point's own (KEYS):

  global_load_requests, global_load_sectors     requests of warps, and the 32-byte sectors that they touch
  global_store_sectors
  sectors_per_request                           of global loads
  shared_load_wavefronts                        passes that shared memory needs for the loads
  shared_bank_conflicts                         wavefronts of loads and stores beyond the fewest possible
  flop_per_byte                                 2nmp FLOP for each byte that global loads ask for
  races, out_of_bounds                          accesses that are faults
  global_store_requests, shared_load_requests, shared_store_requests, shared_store_wavefronts
  flop_per_byte_moved                           2nmp FLOP for each byte of the sectors loaded and stored
  uninitialised, divergence                     reads of what was never written; barriers that not all threads reach
  misaligned                                    accesses at an address that their size does not divide
"""

import atexit
import contextlib
import ctypes
import dataclasses
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from tilewise import UserError
from tilewise.build.cpp import FLAGS, run_compiler, shown, tool
from tilewise.count.counters import KEYS
from tilewise.measure import verify
from tilewise.measure.backends import emulator
from tilewise.measure.backends.emulator import FOLDER, Emulator, LaunchError
from tilewise.study.points import Point
from tilewise.study.registry import DTYPES, evaluate

COLUMNS = [
    *KEYS,
    "global_load_requests",
    "global_load_sectors",
    "global_store_sectors",
    "sectors_per_request",
    "shared_load_wavefronts",
    "shared_bank_conflicts",
    "flop_per_byte",
    "races",
    "out_of_bounds",
    "global_store_requests",
    "shared_load_requests",
    "shared_store_requests",
    "shared_store_wavefronts",
    "flop_per_byte_moved",
    "uninitialised",
    "divergence",
    "misaligned",
]

#: One access in the source is to be one access in the machine code, as nvcc has it: g++ must not join, split, copy or
#: vectorise them. Overflow wraps around, as it does on a GPU. Our own functions stand in for the sanitizers' libraries.
#: DWARF 4, since addr2line of binutils 2.40 takes version 5's file names for those of the including file.
TRACED = [
    "-g1",
    "-gdwarf-4",
    "-fsanitize=thread",
    "-fsanitize=bounds-strict",
    "--param=tsan-instrument-func-entry-exit=0",
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
    "-nodefaultlibs",
    "-lstdc++",
    "-lm",
    "-lgcc_s",
    "-lgcc",
    "-lc",
]

#: How the threads of a block, and the blocks, are ordered between barriers: arguments of Emulator.launch.
SCHEDULES = {"forward": {}, "reverse": {"reverse": True}, "random": {"seed": 524}}

#: What the tracer itself finds, numbered as in tracer.cpp: kind of a Fault -> column of the row.
KINDS = {
    "race": "races",
    "out_of_bounds": "out_of_bounds",
    "uninitialised": "uninitialised",
    "divergence": "divergence",
    "misaligned": "misaligned",
}
TITLES = {
    "race": "race",
    "out_of_bounds": "access out of bounds",
    "uninitialised": "read of what was never written",
    "divergence": "barrier that not all threads reach",
    "misaligned": "misaligned address",
    "order": "result depends on the order of threads",
    "incorrect": "wrong product",
}


@dataclass(frozen=True)
class Fault:
    """Something that a kernel must not do, the first time it does it, and how often that happens at this line.

    `kind` is a key of TITLES; block and thread are (x, y), None where the fault has no single place.
    """

    kind: str
    file: str
    line: int | None
    text: str
    block: tuple | None = None
    thread: tuple | None = None
    count: int = 1

    def __str__(self):
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{place}: error: {TITLES[self.kind]}: {self.text}{times}"


# ---- Tracing ---------------------------------------------------------------------------------------------------------


def trace(kernel, dtype, shape, library=None, seed=524, blocks=(), stop=False, **choice):
    """Run a kernel at a shape (n, p, m) under every schedule; returns (row of COLUMNS as a dict, list of Faults).

    `choice` holds its parameters: block_x, block_y, tile, ntb. `library` is its library made by `build`; without one it
    is compiled. `blocks`, pairs (x, y), restricts the run to these blocks: then the operands are zeros that take no
    memory until they are read, so that shapes far beyond this machine's memory can be tried, and the product is not
    checked. `stop` ends a run at its first fault. Raises UserError where the kernel does not compile, LaunchError where
    a device would refuse the launch.
    """
    point = Point("trace", kernel.name, dtype, *shape, **choice)
    if library is None:
        with tempfile.TemporaryDirectory() as folder:
            library = build(kernel, [kernel.instance(point)], Path(folder, f"{kernel.name}.so"))
            return Tracer(library, kernel).trace(point, seed, blocks, stop)
    return Tracer(library, kernel).trace(point, seed, blocks, stop)


def tracers(points, kernels, folder):
    """A Tracer for each kernel among the points, by name: compiled once, with all instances, into `folder`."""
    instances = {}
    for point in points:
        instances.setdefault(point.kernel, set()).add(kernels[point.kernel].instance(point))
    return {
        name: Tracer(build(kernels[name], sorted(wanted), Path(folder) / f"{name}.so"), kernels[name])
        for name, wanted in instances.items()
    }


def trace_points(points, tracers):
    """Trace the points of CUDA kernels; returns (DataFrame of COLUMNS with a row a point, list of Faults).

    `tracers` is what the function of that name makes of these points. A launch that a device would refuse has no row.
    """
    rows, faults = [], []
    for point in points:
        with contextlib.suppress(LaunchError):
            row, found = tracers[point.kernel].trace(point)
            rows.append(row)
            faults += found
    return _frame(rows), faults


def count_points(points, tracers):
    """Count the traffic of points of any size by a few blocks each; returns a DataFrame of COLUMNS with a row a point.

    Two blocks move the same number of sectors where neither is at the end of the grid and their tiles of A, B and C lie
    alike within a sector, if the kernel does the same in every block, as a matrix product does. So one block of each
    kind is run and counts for all. The columns of faults are blank: what was not run was not examined.
    """
    rows = []
    for point in points:
        with contextlib.suppress(LaunchError):
            rows.append(tracers[point.kernel].count(point))
    return _frame(rows)


def _frame(rows):
    whole = [name for name in COLUMNS[2:] if not name.startswith(("sectors_per", "flop_per"))]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(whole, "Int64"))


def block_classes(kernel, point):
    """The kinds of blocks that `count_points` tells apart: a dict from one block (x, y) of each to their number."""
    geometry, itemsize = kernel.geometry(point), DTYPES[point.dtype][1].itemsize
    rows, columns = (int(evaluate(size, kernel.variables(point))) for size in kernel.covers)
    across, down = {}, {}  # along x a tile begins at a column of B and C; along y at a row of A and C
    for x in range(geometry.grid[0]):
        across.setdefault((x * columns * itemsize % 32, x == geometry.grid[0] - 1), []).append(x)
    for y in range(geometry.grid[1]):
        begin = y * rows * itemsize
        down.setdefault((begin * point.p % 32, begin * point.m % 32, y == geometry.grid[1] - 1), []).append(y)
    return {(xs[0], ys[0]): len(xs) * len(ys) for xs in across.values() for ys in down.values()}


def build(kernel, instances, output):
    """Compile a kernel so that it can be traced: `emulator.build` with every access to memory watched."""
    return emulator.build(kernel, instances, output, flags=TRACED, runtime=_runtime())


@cache
def _runtime():
    """The scheduler with the tracer in it, as an object file: compiled once a process, and not instrumented."""
    folder = tempfile.TemporaryDirectory(prefix="tilewise-")
    atexit.register(folder.cleanup)
    output = Path(folder.name, "tracer.o")
    run_compiler([*(flag for flag in FLAGS if flag != "-shared"), "-c", FOLDER / "tracer.cpp", "-o", output])
    return output


class _Traffic(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("requests", "units", "conflicts", "bytes")]


class _Fault(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("kind", "space", "write", "other_write", "size", "array")),
        ("offset", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("address", "pc", "other_pc")),
        ("file", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("line", "other_line")),
        ("block", ctypes.c_uint32 * 2),
        ("other_block", ctypes.c_uint32 * 2),
        *((name, ctypes.c_uint32) for name in ("thread", "other_thread")),
        ("count", ctypes.c_uint64),
    ]


class Tracer:
    """A library made by `build`, ready to trace points of its kernel."""

    def __init__(self, library, kernel):
        self.kernel = kernel
        self.path = Path(library)
        self.emulator = Emulator(library)
        self.lines = {0: (shown(kernel.path), None)}  # file and line by offset of an instruction
        self.emulator.library.tracer_traffic.restype = ctypes.POINTER(_Traffic)
        self.emulator.library.tracer_faults.restype = ctypes.POINTER(_Fault)

    def trace(self, point, seed=524, blocks=(), stop=False):
        """As `trace` says."""
        shape = (point.n, point.p, point.m)
        with self._allocated(point) as (A, B, C):
            operands = None if blocks else verify.operands(np, point.dtype, *shape, seed)
            if operands:
                A[:], B[:] = operands
            row, faults, first = None, {}, None
            for name, order in SCHEDULES.items():
                if operands:
                    verify.poison(C)
                self._run(point, (A, B, C), blocks, counting=row is None, stop=stop, **order)
                found = self._faults(point)
                for fault in found:
                    faults.setdefault((fault.kind, fault.line), fault)
                if row is None:
                    found_by_kind = {c: sum(f.count for f in found if f.kind == kind) for kind, c in KINDS.items()}
                    row = _row(point, self.kernel.geometry(point), self._traffic()) | found_by_kind
                if operands and first is None:
                    first = C.copy()
                elif operands and C.tobytes() != first.tobytes():
                    faults.setdefault("order", self._order_fault(name, first, C))
            if operands and not faults:
                check = verify.check(first, *verify.reference(*operands), point.dtype, point.p)
                if not check.ok:
                    faults["incorrect"] = Fault("incorrect", shown(self.kernel.path), None, check.message)
        return row, list(faults.values())

    def count(self, point):
        """The row of a point by one block of each kind, as `count_points` says."""
        total = np.zeros((4, len(_Traffic._fields_)), np.int64)
        with self._allocated(point) as arrays:
            for block, number in block_classes(self.kernel, point).items():
                self._run(point, arrays, [block], counting=True, watching=False)
                total += number * self._traffic()
        return _row(point, self.kernel.geometry(point), total)

    @contextlib.contextmanager
    def _allocated(self, point):
        """A, B and C as arrays in the tracer's memory, zeroed, for a `with` statement."""
        kind = DTYPES[point.dtype][1]
        shapes = (point.n, point.p), (point.p, point.m), (point.n, point.m)
        sizes = [rows * columns * kind.itemsize for rows, columns in shapes]
        addresses = (ctypes.c_void_p * 3)()
        try:
            if self.emulator.library.tracer_allocate((ctypes.c_uint64 * 3)(*sizes), addresses):
                raise UserError(f"{point.label()}: not enough memory on this machine to trace it; choose smaller sizes")
            buffers = ((ctypes.c_char * size).from_address(address) for size, address in zip(sizes, addresses))
            yield [np.frombuffer(buffer, kind).reshape(shape) for buffer, shape in zip(buffers, shapes)]
        finally:
            self.emulator.library.tracer_free()

    def _arrays(self, instance):
        return emulator.arrays_of(self.emulator.shared, instance, self.emulator.instances)

    def _run(self, point, operands, blocks, counting, watching=True, stop=False, **order):
        """One run: `counting` traffic, `watching` for faults, or both."""
        geometry, instance = self.kernel.geometry(point), self.kernel.instance(point)
        arrays = self._arrays(instance)
        integers = ctypes.c_uint64 * len(arrays)
        self.emulator.library.tracer_prepare(
            integers(*(array.offset for array in arrays)),
            integers(*(array.size or geometry.dynamic_shared_bytes for array in arrays)),
            *map(int, (len(arrays), counting, watching, stop)),
        )
        self.emulator.launch(instance, geometry, *operands, point.n, point.p, point.m, **order, blocks=blocks)

    def _traffic(self):
        """What the last run counted: loads and stores of global, then of shared memory, by the fields of _Traffic."""
        counted = self.emulator.library.tracer_traffic()
        return np.array([[getattr(counted[i], name) for name, _ in _Traffic._fields_] for i in range(4)])

    def _order_fault(self, schedule, first, C):
        differ = first.view(f"V{first.itemsize}") != C.view(f"V{C.itemsize}")
        row, column = (int(i) for i in np.argwhere(differ)[0])
        text = f"C[{row}, {column}] is {first[row, column]} in ascending and {C[row, column]} in {schedule} order"
        return Fault("order", shown(self.kernel.path), None, text, count=int(differ.sum()))

    # ---- Faults in words --------------------------------------------------------------------------------------------

    def _faults(self, point):
        """The Faults of the last run, those of one kind and line joined."""
        geometry, arrays = self.kernel.geometry(point), self._arrays(self.kernel.instance(point))
        number = ctypes.c_int()
        pointer = self.emulator.library.tracer_faults(ctypes.byref(number))
        raw = pointer[: number.value] if number.value else []
        self._look_up({offset for fault in raw for offset in (fault.pc, fault.other_pc)})
        found = {}
        for fault in raw:
            kind = list(KINDS)[fault.kind]
            file, line = (shown(fault.file.decode()), fault.line) if fault.file else self.lines[fault.pc]
            if (kind, file, line) in found:
                joined = found[kind, file, line]
                found[kind, file, line] = dataclasses.replace(joined, count=joined.count + fault.count)
                continue
            text = getattr(self, f"_{kind}")(fault, _Place(point, geometry, arrays))
            block, thread = tuple(fault.block), _thread(fault.thread, geometry)
            found[kind, file, line] = Fault(kind, file, line, text, block, thread, fault.count)
        return list(found.values())

    def _look_up(self, offsets):
        """Learn file and line of instructions from the debug information."""
        unknown = sorted(offsets - set(self.lines))
        if not unknown:
            return
        command = [tool("addr2line"), "-a", "-i", "-e", self.path, *map(hex, unknown)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for chunk in re.split(r"^0x", answer, flags=re.MULTILINE)[1:]:
            offset, *frames = chunk.splitlines()
            # Innermost first: what the header defines was called from the kernel.
            places = [frame.split(" (")[0].rsplit(":", 1) for frame in frames]
            file, line = next((p for p in places if not p[0].startswith(str(FOLDER))), places[-1])
            self.lines[int(offset, 16)] = shown(file), int(line) if line.isdigit() else None

    def _race(self, fault, place):
        other = f"{_name_thread(fault.other_thread, place.geometry)} of block {_pair(fault.other_block)}"
        if tuple(fault.other_block) == tuple(fault.block):
            other, why = _name_thread(fault.other_thread, place.geometry), "with no __syncthreads() between"
        else:
            why = "and blocks run in any order"
        line = self.lines[fault.other_pc][1]
        verb = "writes" if fault.other_write else "reads"
        memory = "shared" if fault.space else "global"
        return f"{place.access(fault)} of {memory} memory, which {other} {verb} at line {line}, {why}"

    def _out_of_bounds(self, fault, place):
        if fault.type:
            return f"{place.who(fault)} uses index {fault.offset} of an array of type {fault.type.decode()}"
        return f"{place.access(fault)}, {place.extent(fault)}"

    def _uninitialised(self, fault, place):
        writer = "no thread of the block" if fault.space else "no thread"
        return f"{place.access(fault)}, which {writer} has written"

    def _misaligned(self, fault, place):
        return f"{place.access(fault)} as {fault.size} bytes, whose address must be a multiple of that"

    def _divergence(self, fault, place):
        where = f"waits at line {fault.other_line}" if fault.other_line else "has ended"
        other = _name_thread(fault.other_thread, place.geometry)
        return f"{other} of block {_pair(fault.block)} waits here, {_name_thread(fault.thread, place.geometry)} {where}"


def _row(point, geometry, traffic):
    """The row of COLUMNS, without faults, of a point that causes this `traffic`."""
    (loads, load_sectors, _, load_bytes), (stores, store_sectors, _, _) = traffic[:2].tolist()
    (shared_loads, load_wavefronts, load_conflicts, _), (shared_stores, store_wavefronts, conflicts, _) = traffic[
        2:
    ].tolist()
    flop = 2 * point.n * point.p * point.m
    moved = 32 * (load_sectors + store_sectors)
    row = {name: getattr(point, name) for name in KEYS} | dict(zip(("block_x", "block_y"), geometry.block))
    return row | {
        "global_load_requests": loads,
        "global_load_sectors": load_sectors,
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
    }


def _thread(number, geometry):
    return number % geometry.block[0], number // geometry.block[0]


def _pair(numbers):
    return f"({numbers[0]}, {numbers[1]})"


def _name_thread(number, geometry):
    return f"thread {_pair(_thread(number, geometry))}"


@dataclass(frozen=True)
class _Place:
    """What the numbers of a raw fault refer to."""

    point: Point
    geometry: object
    shared: list

    def who(self, fault):
        return f"{_name_thread(fault.thread, self.geometry)} of block {_pair(fault.block)}"

    def access(self, fault):
        verb = "writes" if fault.write else "reads"
        return f"{self.who(fault)} {verb} {self.element(fault)}"

    def element(self, fault):
        itemsize = DTYPES[self.point.dtype][1].itemsize
        if fault.array < 0:
            return f"address {fault.address:#x}" if not fault.space else "shared memory"
        index = fault.offset // itemsize
        if fault.space:
            return f"{self.shared[fault.array].name}[{index}]"
        rows, columns = self.shape(fault)
        if 0 <= index < rows * columns:
            return f"{'ABC'[fault.array]}[{index // columns}, {index % columns}]"
        return f"element {index} of {'ABC'[fault.array]}"

    def extent(self, fault):
        if fault.array < 0:
            return "which is no part of any array" if not fault.space else "where the kernel has no array"
        if fault.space:
            return "past its end"
        rows, columns = self.shape(fault)
        return f"which has {rows} x {columns} = {rows * columns}"

    def shape(self, fault):
        n, p, m = self.point.n, self.point.p, self.point.m
        return ((n, p), (p, m), (n, m))[fault.array]
