"""Tiles of 64 to 512 threads: their results, and each faulty kernel of tiles.cu named at its line."""

import re
from pathlib import Path

import numpy as np
import pytest

from kernelscope import Call, build, trace

FILE = Path(__file__).with_name("tiles.cu")
#: The kernels of blocks of 256 threads: name, type of the elements, and the fault, if it has one.
KERNELS = re.findall(
    r"^__global__ void (\w+)\(const ([\w ]+)\* in, \2\* out\)\n(?:(?!^}).*\n)*", FILE.read_text(), re.MULTILINE
)
SIZES = 64, 128, 256, 512


@pytest.fixture(scope="module")
def library():
    return build(FILE, *(name for name, _ in KERNELS), *(f"collectives<{size}>" for size in SIZES))


@pytest.mark.parametrize("size", SIZES)
def test_collectives(library, size):
    x = np.random.default_rng(size).integers(0, 100, 1024, np.int32)
    tiles, rank = x.reshape(-1, size), np.arange(1024)
    votes = (tiles > 97).any(1) + 2 * (tiles >= 2).all(1)
    of_tiles = [tiles.sum(1), tiles[:, 45], votes, tiles[:, 0]]
    sums, sources, votes, firsts = (np.repeat(each, size) for each in of_tiles)
    largest, before = np.maximum.accumulate(tiles, 1).ravel(), (tiles.cumsum(1) - tiles).ravel()
    places, small = rank // size * 1000 + rank % size, rank % size // 16 + 100 * (size // 16)
    right = np.stack([sums, largest, before, sources, votes, places, firsts, small], 1).astype(np.int32)
    given = {"in": x, "out": "int[8192]", "sums": "double[1024]"}
    expected = {"out": right.ravel(), "sums": sums * 0.5}
    found = trace(library, Call(f"collectives<{size}>", 1, 1024), given, expect=expected)
    assert found.ok, str(found)


@pytest.mark.parametrize("name, dtype", KERNELS)
def test_kernel(library, name, dtype):
    text = FILE.read_text()
    begin = text.index(f"void {name}(")
    fault = re.search(r"// FAULT: (\w+): (.*)", text[begin : text.index("\n}", begin)])
    found = trace(library, Call(name, 1, 256), {"in": f"{dtype}[256]:ramp", "out": f"{dtype}[256]"})
    if not fault:
        assert name.endswith("_right") and not found.faults, str(found)
        return
    line = text[: begin + fault.start()].count("\n") + 1
    said = [each.text for each in found.faults if (each.kind, each.line) == (fault[1], line)]
    assert said and fault[2] in said[0], str(found)


def test_a_tile_that_the_block_does_not_fill(library):
    found = trace(library, Call("some_tiles_right", 1, 224), {"in": "int[224]:ramp", "out": "int[224]"})
    assert [fault.kind for fault in found.faults] == ["deadlock"], str(found)
    assert "reduce() of a tile of 64 threads, to which 32 have come" in found.faults[0].text
