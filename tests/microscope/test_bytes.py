"""Products of bytes on the emulator's tensor cores: NumPy's integers, and the same faults as of other types."""

from pathlib import Path

import numpy as np
import pytest

from kernelscope import Call, build, trace
from kernelscope.errors import UserError
from tilewise.study.sources import INCLUDE

FILE = Path(__file__).with_name("bytes.cu")
TYPES = {"signed char": np.int8, "unsigned char": np.uint8}
PAIRS = [(a, b) for a in TYPES for b in TYPES]
RNG = np.random.default_rng(524)
ALL, FENCE, PROXY, WAIT = 7, 1, 2, 4


@pytest.fixture(scope="module")
def library():
    pairs = [f"{a}, {b}" for a, b in PAIRS]
    missing = [f"wgmma<signed char, unsigned char, {ALL - step}>" for step in (FENCE, PROXY, WAIT)]
    names = [f"mma<{pair}>" for pair in pairs] + [f"wgmma<{pair}, {ALL}>" for pair in pairs] + missing
    names += ["mma_of_half_the_depth", "mma_without_some_lanes", "wgmma_of_registers"]
    return build(FILE, *names, "mma_of_what_others_copy<true>", "mma_of_what_others_copy<false>", includes=[INCLUDE])


def operands(rows, columns, types=("signed char", "signed char"), depth=32, kind="random"):
    """A, B as rows of its columns, and what C holds before."""
    found = []
    for count, name in zip((rows, columns), types):
        ends = np.iinfo(TYPES[name])
        matrix = RNG.integers(ends.min, ends.max + 1, (count, depth)).astype(TYPES[name])
        found.append(np.full_like(matrix, ends.min or ends.max) if kind == "largest" else matrix)
    C = RNG.integers(-(2**31), 2**31, (rows, columns)).astype(np.int32)  # sums pass the ends of the range
    return {"rows": found[0], "columns": found[1], "C": C}


def product(arrays, add=True):
    exact = arrays["rows"].astype(np.int64) @ arrays["columns"].astype(np.int64).T
    return (exact + (arrays["C"] if add else 0)).astype(np.int32)


@pytest.mark.parametrize("kind", ["random", "largest"])
@pytest.mark.parametrize("types", PAIRS, ids=" x ".join)
def test_mma_sync_is_numpys_product(library, types, kind):
    arrays = operands(16, 8, types, kind=kind)
    report = trace(library, Call(f"mma<{', '.join(types)}>", 1, 32), arrays, expect={"C": product(arrays)})
    assert report.ok, report.faults


def test_mma_sync_of_sixteen_of_k_is_numpys_product(library):
    arrays = operands(16, 8, depth=16)
    expected = {"C": product(arrays, add=False)}
    assert trace(library, Call("mma_of_half_the_depth", 1, 32), arrays, expect=expected).ok


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("kind", ["random", "largest"])
@pytest.mark.parametrize("types", PAIRS, ids=" x ".join)
def test_wgmma_is_numpys_product(library, types, kind, add):
    arrays = operands(64, 16, types, kind=kind)
    call = Call(f"wgmma<{', '.join(types)}, {ALL}>", 1, 128)
    report = trace(library, call, arrays | {"add": int(add)}, expect={"C": product(arrays, add)})
    assert report.ok, report.faults


def test_wgmma_takes_rows_from_registers(library):
    arrays = operands(64, 16)
    expected = {"C": product(arrays, add=False)}
    report = trace(library, Call("wgmma_of_registers", 1, 128), arrays, expect=expected)
    assert report.ok, report.faults


@pytest.mark.parametrize(
    "step, words",
    [
        (FENCE, "multiplies (wgmma.mma_async) before its warp's first wgmma.fence"),
        (PROXY, "with no fence.proxy.async between"),
        (WAIT, "reads a sum of the product (wgmma)"),
    ],
)
def test_wgmma_without_a_fence_or_a_wait_is_found(library, step, words):
    arrays = operands(64, 16, ("signed char", "unsigned char")) | {"add": 1}
    report = trace(library, Call(f"wgmma<signed char, unsigned char, {ALL - step}>", 1, 128), arrays)
    assert [fault.kind for fault in report.faults] == ["asynchrony"]
    assert words in str(report.faults[0]) and FILE.name in str(report.faults[0])


def test_mma_sync_without_some_lanes_is_found(library):
    report = trace(library, Call("mma_without_some_lanes", 1, 32), operands(16, 8))
    words = "thread (0, 0) waits here for lane 31 of its warp, but thread (31, 0) waits at line 47 in another call"
    assert {fault.kind for fault in report.faults} >= {"divergence"}, report.faults
    assert [fault.line for fault in report.faults if words in fault.text] == [26], report.faults


@pytest.mark.parametrize("waits", [True, False])
def test_mma_sync_of_what_others_copy_needs_a_barrier(library, waits):
    arrays = operands(16, 8)
    report = trace(library, Call(f"mma_of_what_others_copy<{str(waits).lower()}>", 1, 64), arrays)
    assert {fault.kind for fault in report.faults} == (set() if waits else {"race"}), report.faults
    expected = {"C": product(arrays)}
    assert not waits or trace(library, Call("mma_of_what_others_copy<true>", 1, 64), arrays, expect=expected).ok


@pytest.mark.parametrize(
    "old, new",
    [
        ("m64n16k32.s32.", "m64n16k16.s32."),
        ("m64n16k32.s32.", "m64n16k32.satfinite.s32."),
        ("m16n8k32", "m16n8k64"),
    ],
)
def test_what_no_unit_has_is_refused(tmp_path, old, new):
    text = FILE.read_text().replace('"ptx.cuh"', f'"{FILE.with_name("ptx.cuh")}"')
    assert old in text
    path = tmp_path / "other.cu"
    path.write_text(text.replace(old, new))
    name = "mma<signed char, signed char>" if "m16" in old else f"wgmma<signed char, signed char, {ALL}>"
    given = operands(64, 16) | ({} if "m16" in old else {"add": 1})
    with pytest.raises(UserError, match="mma"):
        trace(build(path, name, includes=[INCLUDE]), Call(name, 1, 128), given)
