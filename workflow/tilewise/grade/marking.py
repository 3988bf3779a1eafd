"""Mark one hand-in in this process: guess how its kernel is called, trace it, and name its mistakes."""

import contextlib
import dataclasses
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.compile import build_traced
from kernelscope.emulator import LaunchError
from kernelscope.errors import CompileError, NotEmulated
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault
from kernelscope.program import TooLarge
from kernelscope.tracer import Tracer
from tilewise import MachineError, UserError
from tilewise.grade.handin import HandIn, copy_device_code, kernels, plain, read_text, sizes
from tilewise.grade.jail import jailed, limit_process
from tilewise.grade.large import LargeProduct
from tilewise.grade.mistakes import add, add_faults, start_of, static_mistakes
from tilewise.grade.roles import Question, arrays_of, choose, constant_sizes, fields_of, set_constants, structs
from tilewise.grade.tasks import holds, names_of_measures
from tilewise.grade.ways import Call, calls
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.traced.multiplication import Multiplication

#: Seconds of computing of one trace.
LIMIT = 15.0
#: The shape at which the roles of parameters are tried: three sizes, of which every usual tile is a divisor.
TRIED = (64, 32, 96)
#: How many ways to call a kernel are tried.
MOST_TRIED = 36
#: The size of all matrices for a kernel whose sizes are constants of its file: theirs would take minutes.
CONSTANT = 64
#: The mistake that each error is, the first that fits.
NAMES: dict[type[Exception], str] = {
    Question: "question",
    LaunchError: "launch_refused",
    CompileError: "does_not_compile",
    NotEmulated: "not_emulated",
    MachineError: "not_marked",
    TooLarge: "not_marked",
    UserError: "refused",
}
TYPES = {"float": "float", "double": "double", "int": "int32", "T": "float"}


@dataclass
class Marker:
    """Traces of one kernel in one built library."""

    hand_in: HandIn
    path: Path
    dtype: str
    size: int = 0  # of all matrices, if it is a constant of the file

    def build(self, call: Call) -> Path:
        """The library of a call's instance, built once."""
        kernel = call.kernel(self.hand_in.qualified, self.path, self.dtype)
        [instance] = kernel.plan(self.point((16, 16, 16), call)).instances
        target = self.path.parent / f"{abs(hash(instance))}.so"
        if not target.exists():
            build_traced(kernel, [instance], target)
        return target

    def point(self, shape: Sequence[int], call: Call) -> Point:
        n, p, m = (self.size or shape[0],) * 3 if call.equal else shape
        return Point("grade", self.hand_in.name, self.dtype, n, p, m, ())

    def tracer(self, call: Call, limit: float) -> tuple[Tracer, Kernel]:
        """A tracer whose launches run in the jail, and the kernel of a call."""
        kernel = call.kernel(self.hand_in.qualified, self.path, self.dtype)
        tracer = Tracer(self.build(call), kernel, limit, "the time of a hand-in")
        tracer.emulator.launch = jailed(tracer.emulator.launch)  # type: ignore[method-assign]
        return tracer, kernel

    def trace(self, call: Call, shape: Sequence[int], limit: float = LIMIT) -> tuple[dict[str, Any], list[Fault]]:
        """The counts and the faults of a call at a shape, run in the jail; beside faults the remark that threads had
        ended at a barrier, which explains them."""
        tracer, kernel = self.tracer(call, limit)
        row, faults = tracer.trace(Multiplication(kernel, self.point(shape, call)))
        wrong = [fault for fault in faults if not fault.is_remark]
        return row, wrong and [*(fault for fault in faults if fault.kind == FaultKind.ENDED), *wrong]

    def trace_ends(self, call: Call, shape: Sequence[int]) -> Fault | None:
        """The first fault of the first and the last blocks at a shape beyond the memory; None if there is none, if the
        time does not suffice, or if these blocks do not compute the first and the last element of C."""
        small = [3 * 64 + size % 64 for size in shape]
        for blocks in (1, 4):
            found = self._faults_of_ends(call, shape, blocks)
            if not any(fault.kind == FaultKind.INCORRECT for fault in found):
                return found[0] if found else None
            if not self._faults_of_ends(call, small, blocks):
                return found[0]
        return None

    def _faults_of_ends(self, call: Call, shape: Sequence[int], blocks: int) -> list[Fault]:
        tracer, kernel = self.tracer(call, LIMIT)
        program = LargeProduct(kernel, self.point(shape, call))
        found = tracer.run_blocks(program, program.end_blocks(blocks))
        return [] if (tracer.emulator.stopped() or [""])[0] == "time" else found


def mark(path: Path, root: Path, task_name: str, task: Mapping[str, Any], naive: Mapping[str, int]) -> dict[str, Any]:
    """The findings of a hand-in: its kernel, its numbers, and its mistakes, each with a name, a line and words."""
    work = Path.cwd()
    copy_device_code(path, root, work)
    copied = work / path.resolve().relative_to(root.resolve())
    text = read_text(path, root)
    found = kernels(text)
    if not found and (named := re.search(r"__global__\s+void\s+(\w+)", plain(text))):
        # It may have errors that hide where the kernel begins or ends: the compiler names them.
        kernel = Call((), False, (), (16, 16), (16, 16)).kernel(named[1], copied, "float")
        build_traced(kernel, [named[1]], work / "kernel.so")
    hand_in = choose(found, task_name)
    findings: dict[str, Any] = {"kernel": hand_in.name, "mistakes": []}
    arrays = arrays_of(hand_in)
    kinds = {each.type for each in hand_in.parameters if each.pointer} or {
        " ".join(f.replace("*", " ").split()[:-1])
        for kind in structs(hand_in)
        for f in fields_of(hand_in.text, kind)
        if "*" in f
    }
    types = {each.name for each in hand_in.template if each.type in ("typename", "class")}
    dtype = next((TYPES[kind] for kind in kinds if kind in TYPES), "float" if kinds & types else "")
    if not dtype:
        raise Question(f"What is the element type {', '.join(sorted(kinds))}? Use float, double or int.")
    marker = Marker(hand_in, copied, dtype)
    numbers = (each.type for each in hand_in.parameters if not each.pointer)
    has_numbers = any(re.search(r"int|long|size_t|unsigned|short", kind) for kind in numbers)
    is_open = not has_numbers and not structs(hand_in) and "arguments" not in hand_in.options
    constants = constant_sizes(hand_in) if is_open else []
    if constants:
        marker.size = CONSTANT
        set_constants(work, constants, CONSTANT)
    best: tuple[float, list[Call]] | None = None
    for made in itertools.islice(calls(hand_in, arrays, task, dtype), MOST_TRIED):
        try:
            _, faults = marker.trace(made[-1], TRIED if not made[-1].equal else (64,), 5.0)
        except LaunchError as error:
            faults = [Fault(FaultKind.STOPPED, "", None, str(error))]
        hung = any(f.kind == FaultKind.STOPPED for f in faults)
        wild = sum(f.count for f in faults if f.kind == FaultKind.OUT_OF_BOUNDS)
        twice = sum(f.count for f in faults if f.kind == FaultKind.RACE and "global memory" in f.text)
        wrong = sum(_share(f.text) for f in faults if f.kind == FaultKind.INCORRECT)
        score = 4.0 * hung + 2.0 * bool(wild) + min(1.0, wild / 1e6) + 1.0 * bool(twice) + wrong + 0.01 * len(faults)
        if best is None or score < best[0] - 1e-9:
            best = score, made
        if not faults or hung:
            break
    assert best is not None
    for call in best[1]:
        examine(findings, marker, call, task, naive.get(dtype, 0))
        if findings["mistakes"]:
            break
    static_mistakes(findings, hand_in)
    called = {"function": hand_in.qualified, "dtype": dtype, "constants": constants, "equal": best[1][0].equal}
    return findings | called | {"calls": [dataclasses.asdict(call) for call in best[1]]}


def _share(text: str) -> float:
    m = re.search(r"(\d+) of (\d+) elements", text)
    return int(m[1]) / int(m[2]) if m else 1.0


def examine(findings: dict[str, Any], marker: Marker, call: Call, task: Mapping[str, Any], naive_sectors: int) -> None:
    """Add to the findings what the shapes and the measures of the task show."""
    shapes = [sizes(each) for each in task["shapes"]]
    per_shape: dict[tuple[int, ...], list[Fault]] = {}
    measured = sizes(task["measured"])
    if marker.size:
        shapes = [measured]
    for shape in dict.fromkeys([measured, *shapes]):
        row, faults = marker.trace(call, shape)
        per_shape[shape] = faults
        if shape == measured:
            findings.update(
                {
                    name: row.get(name)
                    for name in ("global_load_sectors", "sectors_per_request", "shared_bank_conflicts")
                }
            )
            measured_row = row
    add_faults(findings, marker.hand_in, call, per_shape)
    if not findings["mistakes"]:
        names = names_of_measures(measured_row, marker.dtype, naive_sectors)
        for name, condition in task["measures"].items():
            try:
                is_met = holds(condition, names)
            except UserError as error:  # a column that is 0 in this kernel alone
                add(findings, "not_marked", None, f"The task's measures.{name} has no value for it: {error}")
                break
            if not is_met:
                add(findings, name, None, f"{condition} does not hold")
                break
    has_largest = "largest" in task and not findings["mistakes"] and not marker.size
    if has_largest and (fault := marker.trace_ends(call, sizes(task["largest"]))):
        add(findings, "overflow", fault.line or start_of(marker.hand_in), f"At {task['largest']}, {fault.text}.")


def findings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The findings of `mark`, or the error that it raises as the only mistake."""
    try:
        return mark(Path(given["file"]), Path(given["root"]), given["name"], given["task"], given["naive"])
    except Exception as error:  # whatever it is, the row of this hand-in has it, and the others are marked
        name = next((name for kind, name in NAMES.items() if isinstance(error, kind)), "")
        words = str(error) if name else f"A defect of Tilewise: {type(error).__name__}: {error}"
        line = re.search(r":(\d+):", words) if name else None
        return {"mistakes": [{"name": name or "not_marked", "line": int(line[1]) if line else None, "words": words}]}


def main() -> None:
    """Mark the hand-in that the standard input describes; the findings go to the standard output."""
    given = json.load(sys.stdin)
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    limit_process()
    with contextlib.redirect_stdout(open(os.devnull, "w", encoding="utf-8")):
        findings = findings_of(given)
    os.write(answer, json.dumps(findings, default=str).encode())


if __name__ == "__main__":
    main()
