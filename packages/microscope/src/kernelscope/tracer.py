"""Trace a kernel: run it in several orders of threads, count its memory accesses, and find what is wrong with them.

cuda/tracer/ explains how. The traffic of all
launches of a program is summed.
"""

import contextlib
import ctypes
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope.compile import assignments, declarations_of, unused_exchanges
from kernelscope.counts import Row, Traffic, counts
from kernelscope.cpp import display_path
from kernelscope.emulator import ASCENDING, Emulator, Order, fits_together, stop_message
from kernelscope.errors import UserError
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import LOST_UPDATES, Fault, RawFault, Words, offsets_in
from kernelscope.launch import Three
from kernelscope.places import Places
from kernelscope.program import Arrays, Operand, Program, check_memory
from kernelscope.shared_memory import RESERVED_SHARED_BYTES, places_of
from kernelscope.sources import CudaFile

#: The seed of the operands.
SEED = 524

#: How the threads of a block, and the blocks, are ordered between barriers: arguments of Emulator.launch. In the last
#: order shared arrays do not lie where a GPU has them, but apart: an index that goes from one into the next is found.
SCHEDULES = {"forward": ASCENDING, "reverse": Order(reverse=True), "random": Order(seed=SEED, guarded=True)}

#: The faults that do not make a product wrong here, so that it is checked all the same.
LEAVE_THE_PRODUCT = (FaultKind.MISALIGNED, FaultKind.DIVERGENCE)

#: What shared memory holds before it is written, 4 bytes again and again. By the first, any value of a floating-point
#: type is not a number, and no integer is even or small. By the others it is 0, nearly 0 or the integer 1, and very
#: large or very small: a value that is used in a comparison or as a flag shows by one of these.
UNWRITTEN = (0x7FFD7FFD, 0, 1, 0x7F7F7F7F, 0xFF7FFF7F)


@dataclasses.dataclass(frozen=True)
class Watching:
    """What a run is for: `counting` traffic, `watching` for faults, or both; `stop` ends it at its first fault.

    Shared memory that is watched holds the 4 bytes `unwritten` everywhere when a block begins. With `again` the
    kernel's variables are as the last run left them.
    """

    counting: bool = False
    watching: bool = True
    stop: bool = False
    unwritten: int = UNWRITTEN[0]
    again: bool = False


class Tracer:
    """A library made by `build_traced`, ready to trace programs of its kernels."""

    def __init__(self, library: Path | str, source: CudaFile, limit: float = 0, limited_by: str = "--limit") -> None:
        """`limit` is how many seconds of computing a program may take, 0: any number; `limited_by` is what sets it."""
        self.source = source
        self.limit, self.limited_by = limit, limited_by
        self.launched = 0  # the launch that began last
        self.ended = False  # whether the last run came to its end
        self.results: Arrays = {}  # what the first run of the last trace left, if it came to its end
        self.unit = 4  # bytes that a cell of the tracer stands for
        self.together = False  # whether the blocks of a program wait for each other, so that they run at the same time
        self.way = ASCENDING  # how the last run was ordered
        self.emulator = Emulator(library)
        # Constant memory is not counted, and no kernel writes it.
        self.variables = self.emulator.written
        self.places = Places(library, source.path)
        kinds, self.cases, self.ways = (self.emulator.text(f"tracer_{n}").split() for n in ("kinds", "cases", "ways"))
        self.kinds = [FaultKind[name.upper()] for name in kinds]
        #: Local variables without a value: name, file, line, whether a register holds it, and the function.
        self.unset: list[list[Any]] = json.loads(self.emulator.text("emulator_unset"))
        self.emulator.library.tracer_traffic.restype = ctypes.POINTER(Traffic)
        self.emulator.library.tracer_faults.restype = ctypes.POINTER(RawFault)

    @cached_property
    def _assignments(self) -> dict[tuple[str, int | None], bool]:
        return {(file, line): alike for (file, line), alike in assignments(self.source).items()}

    @cached_property
    def _unused_exchanges(self) -> set[tuple[str, int]]:
        return unused_exchanges(self.source)

    def trace(self, program: Program, blocks: Iterable[Three] = (), stop: bool = False) -> tuple[Row, list[Fault]]:
        """Run a program under every schedule; returns (row of traffic.csv as a dict, list of Faults).

        `blocks`, triples (x, y, z), restricts every launch to these blocks: then the arrays are zeros that take no
        memory until they are read, so that shapes far beyond this machine's memory can be tried, and the result is not
        checked. `stop` ends a run at its first fault. Raises UserError if the program cannot be emulated, or if this
        machine has not enough memory, LaunchError if a device would refuse a launch.
        """
        blocks = list(blocks)
        if not blocks:
            check_memory(program.label, program.operands)
        unit = 4
        self.emulator.silent = False  # of several runs, the first one prints
        self.emulator.seconds_left = self.limit or None
        while True:  # once more if there are accesses of fewer bytes than a cell has
            row, faults, finest = self._trace(program, blocks, stop, unit)
            if finest >= unit:
                return row, faults
            unit = finest

    def _trace(self, program: Program, blocks: Sequence[Three], stop: bool, unit: int) -> tuple[Row, list[Fault], int]:
        """Row and faults of a program, traced in cells of up to `unit` bytes, and the bytes of its smallest access.

        If that is smaller than a cell, row and faults are worth nothing.
        """
        with self._allocated(program, unit) as arrays:
            self.together = False
            self.results = {}
            again: list[Fault] = []
            row: Row = {}
            suspected: dict[Any, Fault] = {}
            faults: dict[Any, Fault] = dict(self._too_aligned(program))
            for name, order in SCHEDULES.items():
                self._run_in_some_order(program, arrays, order, Watching(counting=not row, stop=stop), blocks)
                finest = self.emulator.library.tracer_finest()
                if finest < self.unit:
                    return row, [], finest
                found, stopped = self._faults(program), self._stopped(program)
                suspected |= {fault.key: fault for fault in self._faults(program, updates=True)}
                for fault in found:
                    faults.setdefault(fault.key, fault)
                if stopped:  # what was counted up to there says nothing
                    status, faults[FaultKind.STOPPED] = stopped
                    row = program.about() | {"status": status, "message": str(faults[FaultKind.STOPPED])}
                    break
                if not row:
                    row = self._row(program, self._traffic())
                if not self.ended or blocks:
                    continue  # the result is not whole
                if not self.results:
                    self.results = program.results(arrays)
                    again = self._again(program, arrays, {fault.key for fault in found}) if program.repeats else []
                elif differs := program.differs(name, self.results, program.results(arrays)):
                    if order.guarded and any(fault.kind == FaultKind.OUT_OF_BOUNDS for fault in found):
                        continue  # outside a shared array there is something else where the arrays lie apart
                    kind, text, count = differs
                    faults.setdefault(kind, Fault(kind, display_path(self.source.path), None, text, count=count))
            if suspected and self.results:
                suspected = self._updates(program, arrays, suspected)
                faults = suspected | faults
            faults |= {fault.key: fault for fault in again if fault.key not in faults}
            # What is written at the same time is not yet written in some order of the threads, nor always one value.
            races = {(fault.file, fault.line) for fault in faults.values() if fault.kind == FaultKind.RACE}
            faults = {key: f for key, f in faults.items() if not f.less_than_a_race or (f.file, f.line) not in races}
            if self.results:
                faults = self._judged(program, arrays, faults)
        found = list(faults.values())
        by_kind = dict.fromkeys((kind.column for kind in FaultKind), 0)
        for fault in found:
            by_kind[fault.kind.column] += fault.count
        by_kind.pop("")
        return row | by_kind, found, unit

    def _judged(self, program: Program, arrays: Arrays, faults: dict[Any, Fault]) -> dict[Any, Fault]:
        """The faults with what the result of the first run shows, as far as they do not explain it themselves."""
        others = [f for f in faults.values() if not f.is_remark and f.kind not in LEAVE_THE_PRODUCT]
        if not all(fault.by_effect for fault in others):
            return faults
        wrong = program.wrong(self.results)
        if wrong and not others:
            why, line = program.why(self.results)
            return faults | {program.kind: Fault(program.kind, display_path(self.source.path), line, wrong + why)}
        if not wrong and others and not self._depends(program, arrays, set(faults)):
            return {key: fault.unused() if fault.by_effect else fault for key, fault in faults.items()}
        return faults

    def _updates(self, program: Program, arrays: Arrays, suspected: dict[Any, Fault]) -> dict[Any, Fault]:
        """The Faults of a run in which all blocks run at the same time, and each thread lets the others run before it
        stores what it may have made of an earlier load. If the grid is too large for that, what is `suspected`."""
        if not all(map(fits_together, program.launches)):
            return suspected
        self.emulator.library.tracer_interleave(ctypes.c_int(1))
        program.fill(arrays)
        self._run(program, arrays, Order(together=True), Watching())
        self.emulator.library.tracer_interleave(ctypes.c_int(0))
        return {fault.key: fault for fault in self._faults(program, updates=True)}

    def _again(self, program: Program, arrays: Arrays, known: set[Any]) -> list[Fault]:
        """The Faults of a second launch, which finds what the run before left in the program's arrays and the kernel's
        variables; none if it left all as it was. `known` are the keys of what was found there."""
        left = program.changed(arrays)
        for number, variable in enumerate(self.variables):
            if self.emulator.library.tracer_changed(ctypes.c_int(number)):
                left.append(variable.name.rsplit("::", 1)[-1])
        if not left:
            return []
        because = f", when it is launched a second time; the first time changed {', '.join(left)}"
        program.clear(arrays)
        self._run(program, arrays, self.way, Watching(again=True))
        found = [
            dataclasses.replace(f, text=f.text + because, again=True)
            for f in self._faults(program)
            if f.key not in known
        ]
        if stopped := self._stopped(program):
            return [*found, dataclasses.replace(stopped[1], text=stopped[1].text + because, again=True)]
        wrong = program.wrong(program.results(arrays))
        if not wrong or found or program.wrong(self.results):
            return found
        return [Fault(program.kind, display_path(self.source.path), None, wrong + because, again=True)]

    def run_once(self, program: Program, like: "Tracer") -> Arrays:
        """What a run in ascending order leaves, with cells and blocks as those of the last trace by `like`; empty if
        it does not come to its end."""
        self.emulator.silent = True
        self.together = like.together
        with self._allocated(program, like.unit) as arrays:
            self._run_in_some_order(program, arrays, ASCENDING, Watching())
            return program.results(arrays) if self.ended else {}

    def run_blocks(self, program: Program, blocks: Sequence[Three]) -> list[Fault]:
        """The accesses out of bounds, as Faults, of one run of some blocks of a program that may be larger than the
        memory; else its wrong result. What the program does not fill is zero and takes no memory.
        """
        self.emulator.seconds_left = self.limit or None
        with self._allocated(program) as arrays:
            program.fill(arrays)
            self._run(program, arrays, ASCENDING, Watching(watching=False, stop=True), blocks)
            if stopped := self._stopped(program):
                return [stopped[1]]
            faults = [fault for fault in self._faults(program) if not fault.is_remark]
            wrong = "" if faults else program.wrong(program.results(arrays))
            return [Fault(program.kind, display_path(self.source.path), None, wrong)] if wrong else faults

    def count(self, program: Program, kinds: Mapping[Three, int]) -> Row:
        """The row of a program by one block of each of its `kinds`, a dict from the block to their number; by all
        blocks without them."""
        self.emulator.seconds_left = self.limit or None
        counted = []
        with self._allocated(program) as arrays:
            for blocks, number in [([block], number) for block, number in kinds.items()] or [([], 1)]:
                self._run(program, arrays, ASCENDING, Watching(counting=True, watching=False), blocks)
                if stopped := self._stopped(program):
                    raise UserError(str(stopped[1]))
                counted.append(number * self._traffic())
        return self._row(program, np.sum(counted, axis=0))

    def _depends(self, program: Program, arrays: Arrays, known: set[Any]) -> bool:
        """Whether the result or a fault depends on what shared memory holds before it is written.

        The first result was by UNWRITTEN[0], in ascending order; `known` are the kind, file and line of what was found.
        """
        for unwritten in UNWRITTEN[1:]:
            self._run_in_some_order(program, arrays, ASCENDING, Watching(unwritten=unwritten))
            found = {fault.key for fault in self._faults(program)}
            if self._stopped(program) or not found <= known:
                return True
            others = program.results(arrays)
            if any(array.tobytes() != others[name].tobytes() for name, array in self.results.items()):
                return True
        return False

    def _stopped(self, program: Program) -> tuple[str, Fault] | None:
        """Status and Fault of the last run, if a thread could not go on or the time was up."""
        found = self.emulator.stopped()
        if not found:
            return None
        how, stopped = found
        self.places.look_up({stopped.pc, stopped.last})
        places = [self.places.lines[stopped.pc], self.places.lines[stopped.last]]
        if stopped.file and not stopped.pc:
            places.insert(0, (display_path(stopped.file.decode()), stopped.line))
        # Not every one has a line: what overflows a stack may be the emulator itself.
        file, line = next((at for at in places if at[1]), (display_path(self.source.path), None))
        words = Words(program.launches[self.launched], [], [], self.places, self.cases)
        text = f"{words.who(stopped)} {stop_message(how, stopped)}"
        if how == "time":
            text += f" after {self.limit:g} s of computing ({self.limited_by})"
        fault = Fault(FaultKind.STOPPED, file, line, text, words.cut(stopped.block), words.thread(stopped.thread))
        return "timeout" if how == "time" else "error", fault

    @contextlib.contextmanager
    def _allocated(self, program: Program, unit: int = 4) -> Iterator[dict[str, np.ndarray]]:
        """All arrays by name in the tracer's memory, zeroed, with a cell per `unit` bytes or per element if that is
        smaller, for a `with` statement."""
        own = program.operands
        for launch in program.launches:
            self.emulator.check(launch)
            self.emulator.check_elements(launch, {operand.name: operand.cpp for operand in own})
        number = len(own)
        self.unit = min([unit, *(operand.dtype.itemsize for operand in own)])
        addresses = (ctypes.c_void_p * number)()
        try:
            failed = self.emulator.library.tracer_allocate(
                ctypes.c_int(number),
                (ctypes.c_uint64 * number)(*(operand.bytes for operand in own)),
                (ctypes.c_int * number)(*(operand.written_by_host for operand in own)),
                ctypes.c_int(self.unit),
                addresses,
            )
            places = {operand.name: address or 0 for operand, address in zip(own, addresses)}
            for variable, at, array in program.pointers_in_variables:
                self.emulator.variable(variable)[at : at + 8] = places[array].to_bytes(8, "little")
            integers = ctypes.c_uint64 * len(self.variables)
            failed |= self.emulator.library.tracer_variables(
                ctypes.c_int(len(self.variables)),
                integers(*(variable.offset for variable in self.variables)),
                integers(*(variable.size for variable in self.variables)),
            )
            if failed:
                raise UserError(f"{program.label}: not enough memory on this machine to trace it; choose smaller sizes")
            arrays = {}
            for operand, address in zip(own, addresses):
                buffer = memoryview((ctypes.c_char * operand.bytes).from_address(address))
                flat = np.frombuffer(buffer, operand.dtype)
                arrays[operand.name] = flat.reshape(operand.shape, order=operand.order)
            yield arrays
        finally:
            self.emulator.library.tracer_free()

    def _run_in_some_order(
        self, program: Program, arrays: Arrays, order: Order, watching: "Watching", blocks: Sequence[Three] = ()
    ) -> None:
        """One run, as `_run` has it, of the whole program from its beginning, or of some blocks; if a block waits for
        one that would run after it, once more with the blocks in the other order, and then with all of them at the same
        time."""
        ways = [dataclasses.replace(order, blocks_reversed=each) for each in (order.reverse, not order.reverse)]
        if all(map(fits_together, program.launches)) and not blocks:
            together = dataclasses.replace(order, together=True)
            ways = [together] if self.together else [*ways, together]
        for way in ways:
            self.together, self.way = way.together, way
            if not blocks:
                program.fill(arrays)
            self._run(program, arrays, way, watching, blocks)
            stopped = self.emulator.stopped()
            if not stopped or stopped[0] != "waits":
                return

    def _run(
        self,
        program: Program,
        arrays: Arrays,
        order: Order,
        watching: "Watching",
        blocks: Sequence[Three] = (),
    ) -> None:
        """One run of all launches, or of some blocks."""
        how = (watching.counting, watching.watching, watching.stop, watching.again)
        self.emulator.library.tracer_prepare(*map(int, how), ctypes.c_uint32(watching.unwritten))
        for number, launch in enumerate(program.launches):
            self.launched = number
            shared = self.emulator.shared_of(launch)
            integers = ctypes.c_uint64 * len(shared)
            self.emulator.library.tracer_launch(
                integers(*places_of(shared, order.guarded)),
                integers(*(array.size or launch.dynamic_shared_bytes for array in shared)),
                ctypes.c_int(len(shared)),
            )
            self.ended = self.emulator.launch(launch, arrays, order=order, blocks=blocks)
            if not self.ended:
                break
        self.emulator.silent = True

    def _traffic(self) -> np.ndarray:
        """What the last run counted: loads and stores of global, then of shared memory, then of each of `ways`, by the
        fields of Traffic."""
        counted = self.emulator.library.tracer_traffic()[: 4 + 2 * len(self.ways)]
        return np.array([[getattr(each, field[0]) for field in Traffic._fields_] for each in counted])

    def _row(self, program: Program, traffic: np.ndarray) -> Row:
        """The row of a program that causes this `traffic`, without faults."""
        counted = counts(program.multiply_adds, traffic, self.ways)
        return program.about() | counted | {"status": "ok", "message": ""}

    def _too_aligned(self, program: Program) -> Iterator[tuple[str, Fault]]:
        """A Fault by name for each shared array that asks for more alignment than the device gives."""
        for launch in program.launches:
            for array in self.emulator.shared_of(launch):
                if array.alignment > RESERVED_SHARED_BYTES:
                    text = (
                        f"{array.name} asks for an address that is a multiple of {array.alignment}; a GPU gives "
                        f"{RESERVED_SHARED_BYTES}: a block's arrays begin that many bytes into its shared memory"
                    )
                    places = (
                        (display_path(v.file), v.line)
                        for v in declarations_of(self.source).variables
                        if (v.space, v.name) == ("__shared__", array.name)
                    )
                    file, line = next(places, (display_path(self.source.path), None))
                    yield array.name, Fault(FaultKind.MISALIGNED, file, line, text)

    def _faults(self, program: Program, updates: bool = False) -> list[Fault]:
        """The Faults of the last run, those of one kind and line joined: of lost `updates`, or all others."""
        arrays, bits = list(program.operands), np.dtype(f"V{program.itemsize}")
        for variable in self.variables:
            shape = (-(-variable.size // bits.itemsize),) if variable.size > bits.itemsize else ()
            # One of a function is called `f(float*)::count`.
            arrays.append(Operand(variable.name.rsplit("::", 1)[-1], "", bits, shape, True))
        number = ctypes.c_int()
        pointer = self.emulator.library.tracer_faults(ctypes.byref(number))
        reported = (
            [raw for raw in pointer[: number.value] if (self.cases[raw.which] in LOST_UPDATES) == updates]
            if number.value
            else []
        )
        self.places.look_up({offset for raw in reported for offset in offsets_in(raw)})
        found: dict[Any, Fault] = {}
        for raw in reported:
            launch = program.launches[raw.launch]
            words = Words(launch, arrays, self.emulator.shared_of(launch), self.places, self.cases, program.itemsize)
            fault = words.fault(raw, self.kinds[raw.kind])
            if self.cases[raw.which] == "lost_swap" and (fault.file, fault.line) not in self._unused_exchanges:
                continue
            # Nothing is lost by a flag that all set alike.
            if updates and raw.same_value and self._assignments.get((fault.file, fault.line), True):
                continue
            if raw.same_value and self._assignments.get((fault.file, fault.line)):
                fault = words.fault(raw, FaultKind.SAME_VALUE)
            first = found.setdefault(fault.key, fault)
            if first is not fault:
                found[fault.key] = dataclasses.replace(first, count=first.count + fault.count)
        return list(found.values())
