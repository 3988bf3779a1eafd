"""Kernels in the style of people's CUDA: what is wrong is found at its line, and what is right is not accused."""

import functools
import re
from pathlib import Path

import pytest
import sanitizer

from kernelscope.compile import MARKED, TRACED, build, build_traced
from kernelscope.cpp import accepts_flag
from kernelscope.fault_kinds import FaultKind
from kernelscope.tracer import Tracer
from tilewise.study import points
from tilewise.study.kernel import Kernel, LaunchEntry
from tilewise.traced.multiplication import Multiplication

FILE = Path(__file__).with_name("people.cu")
LINES = FILE.read_text().splitlines()
#: Each kernel's name, which begins with the kind of its fault, and its first line.
BEGINS = {found[1]: line for line, text in enumerate(LINES, 1) if (found := re.fullmatch(r"KERNEL\((\w+)\)", text))}
CLEAN = [name for name in BEGINS if name.startswith("clean")]
FAULTY = [name for name in BEGINS if name not in CLEAN]

#: Those in which threads exit before a barrier at which others wait, which is a remark.
EXITS = "return_before_barrier trip_count_per_thread barrier_in_a_loop_over_own_rows syncthreads_in_warps".split()


def kernel_of(name):
    dynamic = 16 * 16 * 4 if name == "out_of_bounds_dynamic_memory" else 0
    grid = ("ceil_div(m, 16)", "ceil_div(n, 16)")
    launch = LaunchEntry(function=name, block=("16", "16"), grid=grid, dynamic_shared_bytes=dynamic)
    return Kernel(name, name, "cuda", ("float",), FILE.name, launches=(launch,), folder=FILE.parent)


def built(folder):
    return build_traced(kernel_of(CLEAN[0]), list(BEGINS), folder / "people.so")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("people"))


def point_of(name):
    return points.point("t", name, "float", 33, 35, 70)


@functools.cache  # the test of levels compares with what the others have traced
def traced(name, library):
    limit = 1 if name == "race_flag_of_thread_0" else 100
    return Tracer(library, kernel_of(name), limit).trace(Multiplication(kernel_of(name), point_of(name)))[1]


#: Its sum begins with what a register holds, which a compiler without the flag MARKED leaves as it is.
IN_A_REGISTER = "incorrect_accumulator_not_cleared"


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, library):
    faults = traced(name, library)
    assert not faults, [str(fault) for fault in faults]
    assert sanitizer.recorded(FILE.name, name) == sanitizer.CLEAN


@pytest.mark.parametrize("name", FAULTY)
def test_faulty(name, library):
    if name == IN_A_REGISTER and not accepts_flag(MARKED):
        pytest.skip("this g++ lacks -ftrivial-auto-var-init: what a register holds decides whether the fault is seen")
    faults = traced(name, library)
    said = [str(fault) for fault in faults]
    assert not any("<stdin>" in text for text in said), said
    kind = next(kind for kind in FaultKind if name.startswith(kind))
    if name.removeprefix("divergence_") in EXITS:
        kind = FaultKind.ENDED
    found = [fault for fault in faults if fault.kind == kind]
    assert found, said
    assert sanitizer.recorded(FILE.name, name) == sanitizer.kinds(faults), said
    end = min((line for line in BEGINS.values() if line > BEGINS[name]), default=len(LINES) + 1)
    marked = [line for line in range(BEGINS[name], end) if "// FAULT" in LINES[line - 1]]
    if marked:
        assert any(fault.line == marked[0] or re.search(rf"\bline {marked[0]}\b", fault.text) for fault in found), said


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O3", pytest.param("-O1", marks=pytest.mark.exhaustive)])
def test_the_verdicts_do_not_depend_on_the_level_of_optimisation(level, library, tmp_path):
    flags = [level if flag == "-O2" else flag for flag in TRACED] + [MARKED] * accepts_flag(MARKED)
    other = build(kernel_of(CLEAN[0]), list(BEGINS), tmp_path / "other.so", flags, watched=True)
    for name in BEGINS:
        assert {f.key for f in traced(name, library)} == {f.key for f in traced(name, other)}, name
