"""Trace a point of the study: its launches over A, B and C, and the check of C."""

import dataclasses
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from kernelscope.compile import build_traced
from kernelscope.counts import Row
from kernelscope.declarations import uses
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault
from kernelscope.launch import Array, Launch, TensorMap, Three
from kernelscope.program import Arrays, Program, TooLarge
from kernelscope.tracer import SEED, Tracer
from tilewise import UserError
from tilewise.study import verify
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS, result_of
from tilewise.study.status import Status
from tilewise.traced.block_classes import point_columns
from tilewise.traced.diagnosis import Cause, diagnosis
from tilewise.traced.product import Convention, check, operands, shapes

#: Of a program that is too large to be traced one block more than this many is tried.
SPREAD = 8


class Multiplication(Program):
    """A point of a kernel. `convention` is what a kernel that is not of this study agrees on."""

    kind = FaultKind.INCORRECT
    repeats = True

    def __init__(self, kernel: Kernel, point: Point, convention: Convention | None = None) -> None:
        self.kernel, self.point = kernel, point
        self.convention = convention or Convention(kernel.column_major, kernel.wanted, bool(kernel.ld))
        self.plan = kernel.plan(point)
        own = operands(kernel, point, self.convention.columns)
        launches = map(self._as_stored, self.plan.launches)
        super().__init__(point.label(), tuple(launches), own, PRECISIONS[point.dtype].itemsize)
        self._factors: list[np.ndarray] = []

    @property
    def multiply_adds(self) -> int:
        return self.point.multiply_adds

    @property
    def factors(self) -> list[np.ndarray]:
        """A and B."""
        if not self._factors:
            point = self.point
            self._factors = verify.operands(np, point.dtype, point.n, point.p, point.m, SEED, point.batch)
            if PRECISIONS[point.dtype].exact:
                for matrix in self._factors:
                    matrix[matrix == 0] = 1  # times 0 a wrong factor would not show
        return self._factors

    def about(self) -> dict[str, Any]:
        return point_columns(self.kernel, self.point)

    def fill(self, arrays: Arrays) -> None:
        for name, factor in zip("AB", self.factors):
            arrays[name].view(f"i{factor.itemsize}").fill(verify.GAP)
            self.matrix(arrays, name)[...] = factor
        self.clear(arrays)
        for workspace in self.plan.workspaces:
            arrays[workspace.name].view(np.uint8).fill(0xFF)

    def clear(self, arrays: Arrays) -> None:
        """Make C what a launch finds there."""
        verify.poison(arrays["C"], self.point.dtype)
        verify.begin(self.matrix(arrays, "C"), self.point.dtype, self.kernel.wanted)

    def matrix(self, arrays: Arrays, name: str) -> np.ndarray:
        """A, B or C without the gaps behind its rows or columns."""
        rows, columns = shapes(self.point)[name]
        return arrays[name][:rows, :columns]

    def changed(self, arrays: Arrays) -> list[str]:
        """The operands, A or B, that a run has changed."""
        factors = zip("AB", self.factors)
        return [name for name, factor in factors if self.matrix(arrays, name).tobytes() != factor.tobytes()]

    def results(self, arrays: Arrays) -> dict[str, np.ndarray]:
        rows, columns = shapes(self.point)["C"]
        return {
            "C": self.matrix(arrays, "C").copy(),
            "right": arrays["C"][:, columns:].copy(),
            "below": arrays["C"][rows:].copy(),
        }

    def wrong(self, results: Arrays) -> str:
        if wrong := self._is_wrong(results):
            return wrong
        gaps = results["right"], results["below"]
        if all(verify.is_untouched(gap, self.point.dtype) for gap in gaps):
            return ""
        return "elements between the rows or columns of C, which its leading dimension leaves out, are written"

    def _is_wrong(self, results: Arrays) -> str:
        found = check(self.point, self.convention, self.convention, self.factors, results["C"])
        return "" if found.ok else found.message

    def why(self, results: Arrays) -> tuple[str, int | None]:
        if not self._is_wrong(results):
            return "", None
        cause = diagnosis(self.point, self.convention, self.factors, results["C"])
        return locate_cause(cause, self.kernel.path, self.plan.launches)

    def differs(self, order: str, first: Arrays, results: Arrays) -> tuple[FaultKind, str, int] | None:
        one, other = first["C"], results["C"]
        if one.tobytes() == other.tobytes():
            return None
        differ = one.view(f"V{one.itemsize}") != other.view(f"V{other.itemsize}")
        row, column = (int(i) for i in np.argwhere(differ)[0])
        before, after = (result_of(self.point.dtype).wide(np, array)[row, column] for array in (one, other))
        text = f"C[{row}, {column}] is {before} in ascending and {after} in {order} order"
        return FaultKind.ORDER, text, int(differ.sum())

    def _as_stored(self, launch: Launch) -> Launch:
        """A launch whose tensor maps describe the arrays as they lie: one that lies column after column is, for a
        tensor map, the rows of its transpose."""
        arguments = tuple(
            dataclasses.replace(argument, shape=argument.shape[::-1])
            if isinstance(argument, TensorMap)
            and (argument.array in self.convention.columns) != (argument.array in self.kernel.column_major)
            else argument
            for argument in launch.arguments
        )
        return dataclasses.replace(launch, arguments=arguments)


def locate_cause(cause: Cause, path: Path, launches: Iterable[Launch]) -> tuple[str, int | None]:
    """The words for a cause, and the line of the source where it is, if the array is read or written in one only."""
    text, launches = path.read_text(encoding="utf-8"), list(launches)
    said: dict[str, int] = {}
    for array in cause.arrays:
        found = [
            uses(text, launch.instance.split("<")[0], number)
            for launch in launches
            for number, argument in enumerate(launch.arguments)
            if argument == Array(array)
        ]
        lines = found[0].writes if array == "C" else found[0].reads if found else frozenset()
        if len(found) != 1 or len(lines) != 1:
            return cause.text, None
        said[f"line {min(lines)} {'writes' if array == 'C' else 'reads'} {array}"] = min(lines)
        if array != "C" and not cause.direct and len(found[0].copies) == 1:
            said[f"line {min(found[0].copies)} reads the copy"] = min(found[0].copies)
    if not said:
        return cause.text, None
    return f"{cause.text} ({', '.join(said)})", list(said.values())[-1 if len(cause.arrays) == 1 else 0]


def trace_point(
    kernel: Kernel,
    point: Point,
    library: Path | str | None = None,
    blocks: Iterable[Three] = (),
    stop: bool = False,
    limit: float = 0,
    convention: Convention | None = None,
) -> tuple[Row, list[Fault]]:
    """Run a point of a kernel under every schedule; returns (row of traffic.csv as a dict, list of Faults).

    `library` is what `build_traced` made of the kernel; without one it is compiled. `blocks`, `stop` and `limit` are
    as of a Tracer. Raises UserError if the kernel does not compile or cannot be emulated, or if this machine has not
    enough memory, LaunchError if a device would refuse a launch.
    """
    if not kernel.emulated:
        raise UserError(f"{kernel.name} cannot be traced: the emulator does not run it: {kernel.reason}")
    with tempfile.TemporaryDirectory() as folder:
        if library is None:
            library = build_traced(kernel, kernel.plan(point).instances, Path(folder, f"{kernel.name}.so"))
        tracer, program = Tracer(library, kernel, limit), Multiplication(kernel, point, convention)
        try:
            row, found = tracer.trace(program, blocks, stop)
        except TooLarge as error:
            row, found = _of_a_few_blocks(tracer, program, error)
        return row, [_with_hint(fault, point) for fault in found]


def _of_a_few_blocks(tracer: Tracer, program: Multiplication, error: TooLarge) -> tuple[Row, list[Fault]]:
    """The faults of a few blocks, from the first to the last, of a program that is too large to be traced: of an index
    that overflows, for example. Raises the error if they have none, or run in clusters."""
    grids = {launch.grid for launch in program.launches}
    if len(grids) > 1 or any(launch.cluster != (1, 1, 1) for launch in program.launches):
        raise error
    [(x, y, z)] = grids
    parts = [number / SPREAD for number in range(SPREAD + 1)]
    blocks = {(int(part * (x - 1)), int(part * (y - 1)), int(part * (z - 1))) for part in parts}
    _, found = tracer.trace(program, sorted(blocks))
    if all(fault.is_remark for fault in found):
        raise TooLarge(f"{error}; the blocks that were tried have no fault") from None
    return program.about() | {"status": Status.ERROR, "message": str(error)}, found


def _with_hint(fault: Fault, point: Point) -> Fault:
    """A fault with the option by which it would be none, or its cause."""
    text = fault.text
    if fault.kind == FaultKind.UNINITIALISED and " reads C[" in text:
        text += "; if it adds to C, say --initial zeros or --beta; if it multiplies C by 0, --reads-c"
    if (
        fault.kind == FaultKind.OUT_OF_BOUNDS
        and "element -" in text
        and max(map(math.prod, shapes(point).values())) >= 2**31
    ):
        text += "; the index is too large for 32 bits"
    return dataclasses.replace(fault, text=text)
