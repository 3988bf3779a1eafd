"""Name the mistakes that explain the faults of a kernel."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelscope.expressions import split
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault
from kernelscope.host_values import Expression
from kernelscope.limits import EMULATED_LIMITS
from tilewise.grade.handin import HandIn
from tilewise.grade.ways import TILE, Call, tiles_of


def add(findings: dict[str, Any], name: str, line: int | None, words: str) -> None:
    """Add a mistake to the findings, once."""
    if name not in [each["name"] for each in findings["mistakes"]]:
        findings["mistakes"].append({"name": name, "line": line, "words": words})


@dataclass(frozen=True)
class Seen:
    """The faults of a hand-in's kernel at all shapes, and those at the first, which its tiles divide evenly."""

    hand_in: HandIn
    call: Call
    faults: Sequence[Fault]
    even: Sequence[Fault]

    def first(self, kind: FaultKind, pattern: str = "") -> Fault | None:
        """The first fault of a kind whose text has a pattern."""
        return next((f for f in self.faults if f.kind == kind and re.search(pattern, f.text)), None)

    def has_even(self, kind: FaultKind, words: str = "") -> bool:
        """Whether there is a fault of a kind with some words in its text at the even shape."""
        return any(f.kind == kind and words in f.text for f in self.even)


#: The name of a mistake, its line, and the words of the fault that it explains.
Mistake = tuple[str, int | None, str]


def add_faults(
    findings: dict[str, Any], hand_in: HandIn, call: Call, found: Mapping[tuple[int, ...], list[Fault]]
) -> None:
    """Add the mistakes that explain the faults of all shapes: those of the first rule that finds any."""
    everything = [fault for faults in found.values() for fault in faults]
    seen = Seen(hand_in, call, everything, next(iter(found.values())))
    for rule in (_of_ends, _of_large_tiles, _of_barriers, _of_sums, _of_edges, _of_results):
        if mistakes := list(rule(seen)):
            for each in mistakes:
                add(findings, *each)
            return
    for fault in everything:
        add(findings, "other_fault", fault.line, f"{fault.kind.words}: {fault.text}")


def _of_ends(seen: Seen) -> Iterator[Mistake]:
    """Threads that wait for ever, and barriers that not all threads reach."""
    if fault := seen.first(FaultKind.STOPPED):
        yield "hangs", fault.line, fault.text
    elif fault := seen.first(FaultKind.ENDED):
        before = "\n".join(seen.hand_in.text.split("\n")[start_of(seen.hand_in) - 1 : fault.line])
        name = "early_return" if re.search(r"\breturn\b", before) else "barrier_in_condition"
        yield name, fault.line, fault.text
    elif fault := seen.first(FaultKind.DIVERGENCE):
        yield "barrier_in_condition", fault.line, fault.text


def _of_large_tiles(seen: Seen) -> Iterator[Mistake]:
    """A tile with more elements than the block has threads."""
    unwritten = seen.first(FaultKind.UNINITIALISED, r"no thread of the block")
    is_larger = any(tile * tile > math.prod(seen.call.block) for tile in tiles_of(seen.hand_in)[:1])
    if unwritten and is_larger and seen.has_even(FaultKind.UNINITIALISED, "of the block"):
        yield "shared_larger_than_block", unwritten.line, unwritten.text


def _of_barriers(seen: Seen) -> Iterator[Mistake]:
    """Races in shared memory."""
    lines = seen.hand_in.text.split("\n")
    for fault in seen.faults:
        if fault.kind == FaultKind.RACE and "shared memory" in fault.text:
            yield from ((name, fault.line, fault.text) for name in _barriers(fault, lines))


def _of_sums(seen: Seen) -> Iterator[Mistake]:
    """Sums without a first value, in C or in a variable."""
    if fault := seen.first(FaultKind.UNINITIALISED, r" reads C\["):
        yield "uninitialised_sum", fault.line, fault.text
        if race := next((f for f in seen.even if f.kind == FaultKind.RACE), None):
            yield "race", race.line, race.text
        return
    wrong = seen.first(FaultKind.INCORRECT) or seen.first(FaultKind.ORDER)
    if wrong and seen.even and (line := _unset_sum(seen.hand_in)):
        yield "uninitialised_sum", line, ""


def _of_edges(seen: Seen) -> Iterator[Mistake]:
    """Tiles that reach beyond a matrix."""
    if fault := seen.first(FaultKind.UNINITIALISED, r"no thread of the block"):
        yield "zero_fill", fault.line, fault.text
    if fault := seen.first(FaultKind.OUT_OF_BOUNDS):
        yield "edge_not_tested" if not seen.even or fault.line else "other_fault", fault.line, fault.text


def _of_results(seen: Seen) -> Iterator[Mistake]:
    """Races outside shared memory, and wrong products."""
    if fault := seen.first(FaultKind.RACE):
        yield "race" if seen.has_even(FaultKind.RACE) else "edge_not_tested", fault.line, fault.text
    elif fault := seen.first(FaultKind.INCORRECT):
        dividing = _divides_tiles(seen.hand_in)
        if not seen.even and dividing:
            yield "tiles_division", dividing, fault.text
        elif not seen.even and "__shared__" in seen.hand_in.body:
            name = "zero_fill" if _loads_are_guarded(seen.hand_in) else "edge_not_tested"
            yield name, _store_line(seen.hand_in), fault.text
        elif not seen.even and "nothing has written" in fault.text:
            yield "not_written", fault.line, fault.text
        else:
            yield "wrong_product", fault.line, fault.text


def start_of(hand_in: HandIn) -> int:
    """The line of the kernel's first character."""
    return hand_in.text.count("\n", 0, hand_in.text.find(hand_in.body)) + 1


def _barriers(fault: Fault, lines: Sequence[str]) -> list[str]:
    """Which barriers are missing at a race of a tile: before its use, after it, or both."""
    other = re.search(r"at (?:\S+:|line )(\d+)", fault.text)
    if not other or fault.line is None:
        return ["barrier_before"]
    low, high = sorted((fault.line, int(other[1])))
    if "writes" in fault.text.split("which")[0] and "writes" in fault.text.split("which")[-1]:
        return ["race"]
    if not any("__syncthreads" in line for line in lines[low - 1 : high]):
        return ["barrier_before"] + ["barrier_after"] * ("__syncthreads" not in "".join(lines))
    return ["barrier_after"]


def _unset_sum(hand_in: HandIn) -> int | None:
    """The line of a number, or of an array of numbers, that is added to and was declared without a value."""
    for m in re.finditer(r"^[ \t]*(?:float|double|int|T|\w+)\s+(\w[^;(){}]*);", hand_in.body, re.MULTILINE):
        for declared in split(m[1]):
            name = re.fullmatch(r"(\w+)\s*(?:\[[^\]]*\]\s*)*", declared)
            rest = hand_in.body[m.end() :]
            use = name and re.search(rf"\b{name[1]}\s*(?:\[[^\]]*\]\s*)*(\+=|=(?!=)\s*([^;]*))", rest)
            if name and use and (use[1] == "+=" or re.search(rf"\b{name[1]}\b", use[2] or "")):
                return start_of(hand_in) + hand_in.body.count("\n", 0, m.start(1))
    return None


def _shared_names(hand_in: HandIn) -> set[str]:
    return {
        name
        for m in re.finditer(r"__shared__\s+\w+([^;]*);", hand_in.body)
        for name in re.findall(r"(\w+)\s*\[", re.sub(r"\[[^\]]*\]", "[", m[1]))
    }


def _store_line(hand_in: HandIn) -> int | None:
    for name in _shared_names(hand_in):
        if m := re.search(rf"\b{name}\s*(?:\[[^;=]*?\])+\s*=(?!=)", hand_in.body):
            return start_of(hand_in) + hand_in.body.count("\n", 0, m.start())
    return None


def _loads_are_guarded(hand_in: HandIn) -> bool:
    """Whether a load into shared memory stands in an `if` without `else`."""
    for name in _shared_names(hand_in):
        for m in re.finditer(
            rf"\bif\s*\(([^;{{]*)\)\s*\{{?\s*{name}\s*(?:\[[^;=]*?\])+\s*=[^;]*;\s*\}}?\s*(\w*)", hand_in.body
        ):
            if m[2] != "else":
                return True
    return False


def _divides_tiles(hand_in: HandIn) -> int | None:
    """The line of a loop, or of a number, of tiles that are counted by a division without rounding up."""
    for m in re.finditer(r"(?:<=?|=)\s*\(?\s*(\w+)\s*/\s*([\w.]+)\s*\)?\s*;", hand_in.body):
        if m[2] in hand_in.numbers or TILE.search(m[2]) or m[2].isdigit() or "blockDim" in m[2]:
            return start_of(hand_in) + hand_in.body.count("\n", 0, m.start())
    return None


def static_mistakes(findings: dict[str, Any], hand_in: HandIn) -> None:
    """Add what the launch in the host's code shows: a block of too many threads, a grid that is not rounded up."""
    most = EMULATED_LIMITS["max_threads_per_block"]
    for launch in hand_in.launches:
        threads = math.prod(map(hand_in.value, hand_in.extents(launch, 1)))
        if threads > most:
            words = f"A block has {threads} threads; a GPU allows {most}."
            add(findings, "launch_refused", launch.line, words)
            return
        for each in hand_in.extents(launch, 0):
            written = hand_in.written(each)
            text = re.sub(r"\(\s*(?:float|double)\s*\)", "1.0*", written.text)
            m = re.fullmatch(r"\(*\s*(?:\(int\)\s*)?(?:ceil\w*\s*\(\s*)?(\w+)\s*/\s*(\w+(?:\.[xy])?)[\s)]*", text)
            if not m or m[1] == "1":
                continue
            size, tile = (hand_in.value(Expression(part, written.scope, written.at)) for part in m.groups())
            if size and tile and size % tile == 0:
                continue
            add(findings, "grid_division", launch.line, each.text)
            return
