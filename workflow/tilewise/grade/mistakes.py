"""Name the mistakes that explain the faults of a kernel."""

import math
import re
from collections.abc import Mapping, Sequence
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


def add_faults(
    findings: dict[str, Any], hand_in: HandIn, call: Call, found: Mapping[tuple[int, ...], list[Fault]]
) -> None:
    """Add the mistakes that explain the faults of all shapes."""
    lines = hand_in.text.split("\n")
    threads = math.prod(call.block)
    even = next(iter(found.values()))
    everything = [fault for faults in found.values() for fault in faults]
    kinds = {fault.kind for fault in everything}

    def first(kind: FaultKind, pattern: str = "") -> Fault | None:
        return next((f for f in everything if f.kind == kind and re.search(pattern, f.text)), None)

    if fault := first(FaultKind.STOPPED):
        add(findings, "hangs", fault.line, fault.text)
        return
    if fault := first(FaultKind.ENDED):
        before = "\n".join(lines[start_of(hand_in) - 1 : fault.line])
        name = "early_return" if re.search(r"\breturn\b", before) else "barrier_in_condition"
        add(findings, name, fault.line, fault.text)
        return
    if fault := first(FaultKind.DIVERGENCE):
        add(findings, "barrier_in_condition", fault.line, fault.text)
        return
    unwritten = first(FaultKind.UNINITIALISED, r"no thread of the block")
    is_larger = any(tile * tile > threads for tile in tiles_of(hand_in)[:1])
    if unwritten and is_larger and any(f.kind == FaultKind.UNINITIALISED and "of the block" in f.text for f in even):
        add(findings, "shared_larger_than_block", unwritten.line, unwritten.text)
        return
    races = [f for f in everything if f.kind == FaultKind.RACE and "shared memory" in f.text]
    for fault in races:
        for name in _barriers(fault, lines):
            add(findings, name, fault.line, fault.text)
    if races:
        return
    if fault := first(FaultKind.UNINITIALISED, r" reads C\["):
        add(findings, "uninitialised_sum", fault.line, fault.text)
        if race := next((f for f in even if f.kind == FaultKind.RACE), None):
            add(findings, "race", race.line, race.text)
        return
    sum_line = _unset_sum(hand_in)
    if kinds & {FaultKind.INCORRECT, FaultKind.ORDER} and sum_line and even:
        add(findings, "uninitialised_sum", sum_line, "")
        return
    guarded = _loads_are_guarded(hand_in)
    if unwritten:
        add(findings, "zero_fill", unwritten.line, unwritten.text)
        if not first(FaultKind.OUT_OF_BOUNDS):
            return
    if fault := first(FaultKind.OUT_OF_BOUNDS):
        add(
            findings,
            "edge_not_tested" if not even or fault.line else "other_fault",
            fault.line,
            fault.text,
        )
        return
    if fault := first(FaultKind.RACE):
        add(
            findings,
            "race" if any(f.kind == FaultKind.RACE for f in even) else "edge_not_tested",
            fault.line,
            fault.text,
        )
        return
    if fault := first(FaultKind.INCORRECT):
        dividing = _divides_tiles(hand_in)
        if not even and dividing:
            add(findings, "tiles_division", dividing, fault.text)
        elif not even and "__shared__" in hand_in.body:
            add(findings, "zero_fill" if guarded else "edge_not_tested", _store_line(hand_in), fault.text)
        elif "nothing has written" in fault.text and not even:
            add(findings, "not_written", fault.line, fault.text)
        else:
            add(findings, "wrong_product", fault.line, fault.text)
        return
    for fault in everything:
        add(findings, "other_fault", fault.line, f"{fault.kind.words}: {fault.text}")


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
