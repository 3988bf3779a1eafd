"""Locks, flags and counters: what their fences and scopes order is clean, and what one of them lacks is named."""

import re
from pathlib import Path

import pytest

from kernelscope import Call, build, trace

FILE = Path(__file__).with_name("scopes.cu")
PARTS = re.findall(r"^__global__ void (\w+)\(([^)]*)\)(.*?)^}$", FILE.read_text(), re.MULTILINE | re.DOTALL)
#: What each parameter is given, by its name.
GIVEN = {
    "value": "int[64]:zero",
    "out": "int[128]",
    "sums": "float[128]:zero",
    "sum": "float[64]",
    **dict.fromkeys(("flag", "lock", "count", "found"), "unsigned[2]:zero"),
}
#: What is said of why there is no order, where it is not the usual.
BLOCK = ", of the scope of its block, orders nothing between blocks"
NARROW = "and one of the two atomic operations is of the scope of its block"
WHY = {
    "flag_unfenced": "does not order them without __threadfence() before it",
    "flag_fenced_for_its_block": "does not order them with only a __threadfence_block() before it",
    "flag_of_its_block": BLOCK,
    "flag_of_volatile": "before it; both are volatile or atomic, so it is no race, but either may come first",
    "flag_by_reference_relaxed": "does not order them without __threadfence() before it",
    "flag_by_reference_of_its_block": BLOCK,
    "flag_by_ptx_of_its_block": BLOCK,
    "lock_unfenced_when_taken": "does not order them without __threadfence() after it",
    "lock_fenced_for_its_block_when_taken": "does not order them with only a __threadfence_block() after it",
    "lock_unfenced_when_given_back": "does not order them without __threadfence() before it",
    "lock_of_its_block": NARROW,
    "lock_between_warps_unfenced": "does not order them without a fence (__threadfence_block(), or between blocks "
    "__threadfence()) before it",
    "lock_of_a_block_unfenced": "does not order them without __threadfence() after it",
    "in_turns_unfenced": "does not order them without __threadfence() before it",
    "in_turns_of_blocks_fenced_too_early": "does not order them without __threadfence() before it",
    "lock_by_reference_relaxed": "does not order them without __threadfence() after it",
    "counter_of_its_block": NARROW,
    "counter_by_reference_of_its_block": NARROW,
    "last_block_fenced_for_its_block": "does not order them with only a __threadfence_block() before it",
    "last_block_of_sums_unfenced": "does not order them without __threadfence() before it",
    "volatile_value_in_a_lock_unfenced_when_taken": "does not order them without __threadfence() after it",
    "volatile_value_in_a_lock_unfenced_when_given_back": "does not order them without __threadfence() before it",
    "flag_of_volatile_fenced_for_its_block": "does not order them with only a __threadfence_block() before it",
    "guess_and_read_again": "with no __syncthreads() between",
    "guess_and_read_the_sum": "and blocks run in any order",
    "one_value": "with no __syncthreads() between; both write the same value",
    "one_constant": "; both write the same value, whatever the data, so that nothing depends on who is last",
    "one_value_of_two_sizes": "with no __syncthreads() between",
    "two_values": "with no __syncthreads() between",
    "in_step": "a warp's lanes run in step only on GPUs before Volta; newer ones need a __syncwarp()",
}
REMARKS = {"flag_of_volatile": "unordered", "one_constant": "same_value"}


@pytest.fixture(scope="module")
def library():
    return build(FILE, *(name for name, _, _ in PARTS))


@pytest.mark.parametrize("name, parameters, body", PARTS, ids=[part[0] for part in PARTS])
def test_scope(name, parameters, body, library):
    names = re.findall(r"(\w+)(?:,|$)", parameters)
    report = trace(library, Call(name, 2, 64), {each: GIVEN[each] for each in names}, limit=60)
    text = FILE.read_text()
    first = text[: text.index(f"void {name}(")].count("\n") + 1
    wanted = [first + i for i, line in enumerate(body.split("\n")) if line.endswith(("// FAULT", "// REMARK"))]
    assert report.ok == (name not in WHY or name in REMARKS), str(report)
    if name not in WHY:
        assert not wanted and not report.faults, str(report)
    else:
        found = [f for f in report.faults if f.line in wanted]
        assert [f.kind for f in found] == [REMARKS.get(name, "race")], str(report)
        assert found[0].text.endswith(WHY[name])
