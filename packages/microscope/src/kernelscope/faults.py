"""Faults of a kernel and their messages, from the records of the tracer."""

import ctypes
import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelscope.cpp import display_path
from kernelscope.emulator import Stopped, thread_of
from kernelscope.fault_kinds import FaultKind
from kernelscope.launch import Launch
from kernelscope.places import Places
from kernelscope.program import Operand
from kernelscope.shared_memory import SharedArray
from kernelscope.sources import EMULATOR

#: Workers of these numbers and more are no threads, as in_words of the tracer has it.
THREADS = 1024
#: The cases of a race by a load and a later store, both volatile or atomic.
LOST_UPDATES = ("lost_update", "lost_swap")
#: What is wrong with an access to a register of a product, by the case.
REGISTERS = {
    "sum": "a sum of {product}; nothing has waited for it",
    "fragment": "a register of A's fragment, which {product} still reads; nothing has waited for it",
    "unfenced_register": "a register that {product} uses, with no wgmma.fence between",
}
#: How the tracer writes the place of an instruction into a text.
_OFFSET = re.compile(r"\x01([0-9a-f]+)\x01")


@dataclass(frozen=True)
class Other:
    """The other side of a fault, such as of a race: its place, who it is if it is a thread, and whether it writes."""

    file: str
    line: int | None
    block: tuple[int, ...]
    thread: tuple[int, ...] | None
    writes: bool


@dataclass(frozen=True)
class Fault:
    """Something that a kernel must not do, the first time it does it, and how often that happens at this line.

    `block` and `thread` are (x, y), or (x, y, z) if the launch has more than one along z, or None if the fault has no
    single place. `by_effect`: a read of shared memory that was never written, which is a fault only if a result depends
    on it; of kind `unused` it is found to be none, and is shown as a remark. `other` is the other side of a race.
    `again`: it is of a second launch. `allowed` is what allows it; "" if nothing does.
    """

    kind: FaultKind
    file: str
    line: int | None
    text: str
    block: tuple[int, ...] | None = None
    thread: tuple[int, ...] | None = None
    count: int = 1
    by_effect: bool = False
    other: Other | None = None
    again: bool = False
    allowed: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{place}: {self.severity}: {self.kind.words}: {self.text}{times}{self.allowed and f' ({self.allowed})'}"

    @property
    def severity(self) -> str:
        """The word "allowed", "remark" or "error"."""
        return "allowed" if self.allowed else "remark" if self.kind.is_remark else "error"

    @property
    def is_remark(self) -> bool:
        """Whether it is none that counts: a remark, or allowed."""
        return self.kind.is_remark or bool(self.allowed)

    @property
    def less_than_a_race(self) -> bool:
        """Whether a race reported on the same line makes this fault redundant."""
        return self.by_effect or self.kind in (FaultKind.SAME_VALUE, FaultKind.UNORDERED)

    @property
    def key(self) -> tuple[str, str, int | None]:
        """The key under which equal faults are merged."""
        return self.kind, self.file, self.line

    def unused(self) -> "Fault":
        """A read of what was never written as a remark: no result depends on it."""
        return dataclasses.replace(self, kind=FaultKind.UNUSED, text=f"{self.text}; no result depends on it")


_NUMBERS = "kind which space write other_write same_value size array launch".split()


class RawFault(ctypes.Structure):
    """A fault as the tracer reports it: Fault of tracer/faults.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in _NUMBERS),
        ("offset", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("address", "pc", "other_pc", "meeting_pc", "load_pc")),
        ("file", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("line", "other_line")),
        ("block", ctypes.c_uint32 * 3),
        ("other_block", ctypes.c_uint32 * 3),
        ("home", ctypes.c_uint32 * 3),
        *((name, ctypes.c_uint32) for name in ("thread", "other_thread")),
        ("count", ctypes.c_uint64),
        ("text", ctypes.c_char * 1200),
    ]


@dataclass(frozen=True)
class Words:
    """The words for what the numbers of a RawFault refer to, in a launch with these operands and shared arrays, whose
    elements are taken for `itemsize` bytes; `cases` are the names of each `which`."""

    launch: Launch
    operands: list[Operand]
    shared: list[SharedArray]
    places: Places
    cases: Sequence[str]
    itemsize: int = 4

    def fault(self, raw: RawFault, kind: FaultKind) -> Fault:
        """A Fault of this kind; `places` must have looked up the offsets_in it."""
        file, line = (display_path(raw.file.decode()), raw.line) if raw.file else self.places.lines[raw.pc]
        if raw.pc and file.startswith(display_path(EMULATOR)):  # of a header of CUDA's: where the kernel calls it
            file, line = self.places.lines[raw.pc]
        said = _OFFSET.sub(lambda told: self.places.named(int(told[1], 16)), raw.text.decode(errors="replace"))
        text = said or getattr(self, kind)(raw)
        if raw.pc in self.places.callers:
            text += f" (called at {self.places.callers[raw.pc]})"
        by_effect = kind == FaultKind.UNINITIALISED and bool(raw.space)
        other = self.other(raw) if raw.other_pc else None
        return Fault(kind, file, line, text, self.cut(raw.block), self.thread(raw.thread), raw.count, by_effect, other)

    def other(self, raw: RawFault) -> Other:
        """The other side of a fault that has one."""
        thread = self.thread(raw.other_thread) if raw.other_thread < THREADS else None
        return Other(*self.places.lines[raw.other_pc], self.cut(raw.other_block), thread, bool(raw.other_write))

    def case(self, fault: RawFault) -> str:
        return self.cases[fault.which]

    def race(self, fault: RawFault) -> str:
        at = self.places.at(fault.other_pc, self.places.lines[fault.pc][0])
        if self.case(fault) == "read_only":
            return f"{self.access(fault)} as what no thread writes (__ldg, ld.global.nc), and {at} writes it"
        if self.case(fault) == "marked" and fault.space:
            return f"{self.access(fault)} of shared memory, where the mbarrier made at {at} is still in use"
        if self.case(fault) == "marked":
            return f"{self.access(fault)}, which {at} reads as what no thread writes (__ldg, ld.global.nc)"
        if self.case(fault) in LOST_UPDATES:
            own = self.places.at(fault.meeting_pc, self.places.lines[fault.pc][0])
            memory = "shared" if fault.space else "global"
            other = f"{self.name_thread(fault.other_thread)} of {self.name_block(fault.other_block)}"
            return (
                f"{self.access(fault)} of {memory} memory after the load at {own}, and {other}, which nothing orders, "
                f"writes it at {at} in between: that update is lost; use one atomic operation, or a lock"
            )
        other, why = self.name_worker(fault.other_thread), "with no __syncthreads() between"
        if fault.other_thread >= THREADS:
            why = "and nothing waits for that"
        if tuple(fault.other_block) != tuple(fault.block):
            other = f"{other} of {self.name_block(fault.other_block)}"
            why = "with no barrier of the cluster between" if fault.space else "and blocks run in any order"
        why = self.lacking(fault) or why
        verb = "writes" if fault.other_write else "reads"
        memory = "shared" if fault.space else "global"
        values = "; both write the same value" if fault.same_value else ""
        return f"{self.access(fault)} of {memory} memory, which {other} {verb} at {at}, {why}{values}"

    def same_value(self, fault: RawFault) -> str:
        return f"{self.race(fault)}, whatever the data, so that nothing depends on who is last"

    def unordered(self, fault: RawFault) -> str:
        if self.case(fault) in LOST_UPDATES:
            return (
                f"{self.access(fault)} after a load: another thread may write it in between, whose update is then lost;"
                " the grid is too large to try that"
            )
        return f"{self.race(fault)}; both are volatile or atomic, so it is no race, but either may come first"

    def lacking(self, fault: RawFault) -> str:
        """What would order the two sides of a race and is not there; "" if no instruction is to do it."""
        other = tuple(fault.other_block) != tuple(fault.block)
        fence = "__threadfence()" if other else "__threadfence_block()"
        if not other and not fault.space:
            fence = "a fence (__threadfence_block(), or between blocks __threadfence())"
        atomic = f"the atomic operation at {self.places.at(fault.meeting_pc, self.places.lines[fault.pc][0])}"
        if self.case(fault) == "narrow":
            return "and one of the two atomic operations is of the scope of its block"
        if self.case(fault) == "meets_narrow":
            return f"and {atomic}, of the scope of its block, orders nothing between blocks"
        if self.case(fault) == "unfenced":
            return f"and {atomic} does not order them without {fence} before it"
        if self.case(fault) == "fenced_narrow":
            return f"and {atomic} does not order them with only a __threadfence_block() before it"
        if self.case(fault) == "taken_unfenced":
            return f"and {atomic} does not order them without {fence} after it"
        if self.case(fault) == "taken_narrow":
            return f"and {atomic} does not order them with only a __threadfence_block() after it"
        if self.case(fault) == "told_early":
            return "and the flag between comes before the copy's cp.async.bulk.wait_group, without .read"
        if self.case(fault) == "lanes":
            return (
                "with no __syncthreads() between; a warp's lanes run in step only on GPUs before Volta; newer ones "
                "need a __syncwarp()"
            )
        return ""

    def out_of_bounds(self, fault: RawFault) -> str:
        if self.case(fault) == "below_frame":
            verb = "writes" if fault.write else "reads"
            return f"{self.who(fault)} {verb} before the start of a local variable (registers, local memory)"
        if self.case(fault) == "no_index":
            verb = "writes" if fault.write else "reads"
            what = f"a value of type {fault.type.decode()} outside a local variable (registers, local memory)"
            return f"{self.who(fault)} {verb} {what}"
        if fault.type:
            return f"{self.who(fault)} uses index {fault.offset} of an array of type {fault.type.decode()}"
        if self.starts_inside(fault):
            return f"{self.access(fault)} as {fault.size} bytes, past the end of {self.extent(fault)}"
        return f"{self.access(fault)}, {self.extent(fault)}"

    def uninitialised(self, fault: RawFault) -> str:
        writer = "no thread of the block" if fault.space else "no thread"
        # An atomic operation, which is a write elsewhere, reads too.
        return f"{self.who(fault)} reads {self.element(fault)}, which {writer} has written"

    def misaligned(self, fault: RawFault) -> str:
        return f"{self.access(fault)} as {fault.size} bytes, whose address must be a multiple of that"

    def asynchrony(self, fault: RawFault) -> str:
        if self.case(fault) == "not_started":
            return f"{self.access(fault)}, which may not have started; the cluster must have met at a barrier before"
        if self.case(fault) == "may_have_ended":
            return f"{self.access(fault)}, which may have ended; the cluster must meet at a barrier after it"
        at = self.places.at(fault.other_pc, self.places.lines[fault.pc][0])
        if register := REGISTERS.get(self.case(fault)):
            does = f"{self.who(fault)} {'writes' if fault.write else 'reads'}"
            return f"{does} {register.format(product=f'the product (wgmma) at {at}')}"
        if self.case(fault) == "no_proxy_fence":
            memory = " of shared memory" if fault.space else ""
            what = f"{self.element(fault)}{memory}, which {self.name_thread(fault.other_thread)}"
            unit, thread = "overwrites" if fault.write else "reads", "writes" if fault.other_write else "reads"
            return f"the asynchronous unit {unit} {what} {thread} at {at}, with no fence.proxy.async between"
        if self.case(fault) == "destination":
            still = "is going to write; wait for that by cp.async.bulk.wait_group, without .read"
            return f"{self.access(fault)}, which the copy that {at} started {still}"
        return f"{self.access(fault)} of shared memory while the copy that {at} started is under way"

    def unfenced_reuse(self, fault: RawFault) -> str:
        return (
            f"{self.asynchrony(fault)}; without it, GPUs keep this order only if the access is over, its value "
            "used, when the copy starts"
        )

    def divergence(self, fault: RawFault) -> str:
        where = f"waits at line {fault.other_line}" if fault.other_line else "has ended"
        if self.case(fault) == "same_line":
            where = "at another barrier of this line"
        if self.case(fault) == "other_round":
            where = "in another round of a loop around it"
        waiting = f"{self.name_thread(fault.other_thread)} of {self.name_block(fault.block)}"
        return f"{waiting} waits here, {self.name_thread(fault.thread)} {where}"

    def ended(self, fault: RawFault) -> str:
        return f"{self.divergence(fault)}; a GPU does not wait for it, CUDA's rules require all threads"

    def cut(self, place: Iterable[int]) -> tuple[int, ...]:
        """(x, y, z) of a block or a thread; (x, y) if nothing of the launch differs along z."""
        flat = self.launch.block[2] == self.launch.grid[2] == 1
        return tuple(place)[: 2 if flat else 3]

    def thread(self, number: int) -> tuple[int, ...]:
        return self.cut(thread_of(number, self.launch))

    def name_thread(self, number: int) -> str:
        return f"thread {self.thread(number)}"

    def name_worker(self, number: int) -> str:
        """A thread, or an asynchronous unit, numbered as by the tracer."""
        if number < THREADS:
            return self.name_thread(number)
        number -= THREADS
        if number < 32:
            return f"the product (wgmma) of warp {number}"
        return "an asynchronous copy" if number < 32 + 64 else "a copy to global memory"

    def name_block(self, block: Iterable[int]) -> str:
        return f"block {self.cut(block)}"

    def who(self, fault: RawFault | Stopped) -> str:
        return f"{self.name_thread(fault.thread)} of {self.name_block(fault.block)}"

    def access(self, fault: RawFault) -> str:
        verb = "writes" if fault.write else "reads"
        return f"{self.who(fault)} {verb} {self.element(fault)}"

    def element(self, fault: RawFault) -> str:
        if fault.array < 0:
            return f"address {fault.address:#x}" if not fault.space else "shared memory"
        if fault.space:
            # Nothing says what size a shared array's elements have.
            size = min(self.itemsize, max(1, fault.size))
            where = "" if tuple(fault.home) == tuple(fault.block) else f" of {self.name_block(fault.home)}"
            name = self.shared[fault.array].name
            element = f"byte {fault.offset} of {name}" if fault.offset % size else f"{name}[{fault.offset // size}]"
            return f"{element}{where}"
        operand = self.operands[fault.array]
        index = fault.offset // operand.dtype.itemsize
        if not operand.shape:
            return operand.name
        if 0 <= index < math.prod(operand.shape):
            place = np.unravel_index(index, operand.shape, operand.order)
            return f"{operand.name}[{', '.join(str(int(i)) for i in place)}]"
        return f"element {index} of {operand.name}"

    def starts_inside(self, fault: RawFault) -> bool:
        """Whether the first byte of an access is in a global array."""
        return not fault.space and fault.array >= 0 and 0 <= fault.offset < self.operands[fault.array].bytes

    def extent(self, fault: RawFault) -> str:
        if fault.array < 0:
            return "which is no part of any array" if not fault.space else "where the kernel has no array"
        if fault.space:
            return "before its begin" if fault.offset < 0 else "past its end"
        shape = self.operands[fault.array].shape
        size = f" = {math.prod(shape)}" if len(shape) > 1 else ""
        which = f"{self.operands[fault.array].name}, " if self.starts_inside(fault) else ""
        return f"{which}which has {' x '.join(map(str, shape))}{size}"


def offsets_in(raw: RawFault) -> set[int]:
    """The instructions that a RawFault is about."""
    return {
        raw.pc,
        raw.other_pc,
        raw.meeting_pc,
        *(int(offset, 16) for offset in _OFFSET.findall(raw.text.decode(errors="replace"))),
    }
