"""Kinds of faults in several shapes: each faulty kernel of kinds.cu is named at its line, its right twin is clean."""

import re
from pathlib import Path

import pytest

from kernelscope import build, trace

FILE = Path(__file__).with_name("kinds.cu")
LINES = FILE.read_text().splitlines()
PARTS = re.findall(r"^__global__ void (\w+)\(([^)]*)\)", FILE.read_text(), re.MULTILINE)
#: What each parameter is given, by its name.
GIVEN = {
    "in": "float[64]:ramp",
    "out": "float[64]",
    "found": "int[64]",
    "tiles": "half[4096]:zero",
    "sums": "float[128]",
    "wide": "double[64]",
    "total": "float[1]:zero",
    "count": "int[1]:zero",
    "lock": "int[1]:zero",
    "flag": "unsigned[1]:zero",
}
#: Words of a message, and the kind, by a word in a kernel's name; else the fault is a lost update.
UNSET = "depend on the local variable"
KINDS = dict.fromkeys(("sum_of_floats", "count_of", "element_of"), ("uninitialised", UNSET))
KINDS |= {
    "barrier_0": ("invalid", "others wait at __syncthreads(), which is barrier 0 of all threads"),
    "exit_before": ("ended", "has ended; a GPU does not wait for it"),
    "wgmma_of_copies": ("asynchrony", "with no fence.proxy.async between"),
    "wgmma_waited_for": ("asynchrony", "a sum of the product (wgmma)"),
    "wgmma_of_all_warps": ("divergence", "a product is one operation of the four warps of a group"),
}


@pytest.fixture(scope="module")
def library():
    return build(FILE, *(name for name, _ in PARTS))


@pytest.mark.parametrize("name, parameters", PARTS, ids=[name for name, _ in PARTS])
def test_kind(name, parameters, library):
    names = re.findall(r"(\w+)(?:,|$)", parameters)
    kind, words = next((KINDS[word] for word in KINDS if word in name), ("race", "that update is lost"))
    blocks, threads = 1 if kind == "uninitialised" else 2, 128 if "wgmma" in name else 64
    report = trace(library, name, blocks, threads, {each: GIVEN[each] for each in names}, limit=60)
    if not name.endswith("_faulty"):
        assert not report.faults, str(report)
        return
    begin = next(number for number, line in enumerate(LINES) if f" {name}(" in line)
    wanted = next(number for number, line in enumerate(LINES[begin:], begin + 1) if line.endswith(("FAULT", "REMARK")))
    found = [fault for fault in report.faults if fault.kind == kind and words in fault.text]
    assert found and report.ok == LINES[wanted - 1].endswith("REMARK"), str(report)
    assert any(fault.line == wanted or f"line {wanted})" in fault.text for fault in found), str(report)
