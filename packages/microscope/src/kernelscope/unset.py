"""Find elements of results that depend on local variables without a value.

g++ marks such variables with bytes 0xFE, or with zeros in a second library of the same functions. What differs between
the results of the two depends on one of them.
"""

import mmap
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kernelscope.cpp import display_path
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault
from kernelscope.program import Program
from kernelscope.sources import EMULATOR
from kernelscope.tracer import Tracer

#: Room for the arena of a tracer (66 GB around each array), so that a further one lies elsewhere.
_ELSEWHERE, _NO_RESERVE = 80 << 30, 0x4000


def faults_of_variables(
    tracer: Tracer, other: Path, make: Callable[[Tracer], Program], names: Sequence[str]
) -> list[Fault]:
    """A Fault for each array of `names` whose elements depend on a variable without a value.

    `tracer` has traced the program; `other` is the library whose variables begin as zeros; `make` makes the program
    for a Tracer.
    """
    zeroed = Tracer(other, tracer.source, tracer.limit, tracer.limited_by)
    zeroed.emulator.seconds_left = tracer.emulator.seconds_left
    first, second = tracer.results, zeroed.run_once(make(zeroed), tracer)
    depends = {name: _differs(first[name], second[name]) for name in names if name in second}
    if not any(differ.any() for differ in depends.values()):
        return []
    # Results that depend on where arrays lie, or on a clock, differ from run to run.
    with mmap.mmap(-1, _ELSEWHERE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE):
        again = tracer.run_once(make(tracer), tracer)
    functions = {launch.instance.split("<")[0].rsplit("::", 1)[-1] for launch in make(tracer).launches}
    found = []
    for name, differ in depends.items():
        if name not in again:
            continue
        differ &= ~_differs(first[name], again[name])
        if differ.any():
            found.append(_fault(tracer, functions, name, first[name], differ))
    return found


def _differs(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which elements differ in their bits; of structs what pads them does not count."""
    if one.dtype.names:
        return np.asarray(np.logical_or.reduce([_differs(one[field], other[field]) for field in one.dtype.names]))
    bytes_of = (np.ascontiguousarray(each).view(np.uint8).reshape(*each.shape, -1) for each in (one, other))
    differ = np.not_equal(*bytes_of)
    return np.asarray(differ.reshape(*one.shape, -1).any(axis=-1))


def _fault(tracer: Tracer, functions: set[str], name: str, held: np.ndarray, differ: np.ndarray) -> Fault:
    at = np.unravel_index(int(differ.argmax()), differ.shape)
    launched = re.compile(rf"\b(?:{'|'.join(re.escape(function) for function in functions)})\b")
    # Not those of asm statements and headers, nor g++'s own.
    named = [
        variable
        for variable in tracer.unset
        if not re.match(r"emulator_|\w+\.", variable[0]) and not Path(variable[1]).is_relative_to(EMULATOR)
    ]
    own = [variable for variable in named if launched.search(variable[4])] or named or tracer.unset
    variables = sorted(own, key=lambda variable: not variable[3])
    said = [f"{variable} (line {line})" for variable, _, line, *_ in variables[:3]]
    more = f" or {len(variables) - 3} others" if len(variables) > 3 else ""
    element = f"{name}[{', '.join(str(int(i)) for i in at)}]"
    text = (
        f"{int(differ.sum())} of {held.size} elements of {name} depend on the local variable "
        f"{' or '.join(said)}{more}, which has no value where it is read; {element} is {held[at]!s}, the mark of such "
        "variables or a number made from it"
    )
    file, line = (display_path(variables[0][1]), variables[0][2]) if variables else ("", None)
    return Fault(FaultKind.UNINITIALISED, file, line, text)
