"""What people write in CUDA C++: each construct in a clean kernel, and in a faulty one that is found at its line."""

import re
from pathlib import Path

import pytest
import sanitizer

from kernelscope.compile import build_traced
from kernelscope.tracer import Tracer
from tilewise.study import points
from tilewise.study.kernel import Kernel, LaunchEntry
from tilewise.traced.multiplication import Multiplication

FILES = [
    Path(__file__).with_name(f"{name}.cu") for name in ("constructs", "asynchrony", "clusters", "library", "hostile")
]
NAMES = {name: file for file in FILES for name in re.findall(r"^KERNEL\((\w+)\)", file.read_text(), re.MULTILINE)}
CLEAN = [name for name in NAMES if name.startswith("clean")]
FAULTY = [name for name in NAMES if name.startswith("faulty")]
#: What is no wonder in kernels that compute no product.
UNINTERESTING = sanitizer.UNINTERESTING
KIND = {  # of the fault, by words in the kernel's name
    "shuffle_lane": "divergence",
    "lane_outside": "divergence",
    "mask": "divergence",
    "vote": "divergence",
    "counting": "divergence",
    "not_begun": "uninitialised",
    "load": "out_of_bounds",
    "address": "out_of_bounds",
    "assertion": "trap",
    "trap": "trap",
    "barrier_count": "deadlock",
    "mbarrier": "asynchrony",
    "mbarrier_count": "deadlock",
    "mbarrier_bytes": "deadlock",
    "mbarrier_too_many": "invalid",
    "mbarrier_not_made": "invalid",
    "mbarrier_of_another": "invalid",
    "copy_not": "asynchrony",
    "store_without": "asynchrony",
    "some_lanes": "divergence",
    "misaligned": "misaligned",
    "neighbour_may": "asynchrony",
    "multicast": "asynchrony",
    "two_copies": "asynchrony",
    "store_twice": "asynchrony",
    "tile_not_fenced": "unfenced_reuse",
    "read_back": "asynchrony",
    "source_of": "asynchrony",
    "was_not_shown": "asynchrony",
}


def kind_of(name):
    """The kind of fault that a kernel's name promises: that of the longest word in it, or a race."""
    return KIND[max((word for word in KIND if word in name), key=len)] if any(w in name for w in KIND) else "race"


def kernel_of(name):
    cluster = ("2",) if NAMES[name].stem == "clusters" else ()
    launch = LaunchEntry(
        function=name,
        template=("dtype",),
        block=("64",),
        grid=("m // 64",),
        cluster=cluster,
        cooperative="_grid_" in name,
    )
    return Kernel(
        name=name,
        title=name,
        kind="cuda",
        dtypes=("float",),
        source=NAMES[name].name,
        launches=(launch,),
        folder=NAMES[name].parent,
        reads_c=False,
    )


def built(folder):
    """All files, each compiled once with all its kernels."""
    libraries = {}
    for file in FILES:
        names = [name for name, own in NAMES.items() if own == file]
        instances = [f"{name}<float>" for name in names]
        libraries[file] = build_traced(kernel_of(names[0]), instances, folder / f"{file.stem}.so")
    return libraries


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return built(tmp_path_factory.mktemp("constructs"))


def point_of(name):
    blocks = 2 if "last_block" in name or "between_blocks" in name or NAMES[name].stem == "clusters" else 1
    return points.point("t", name, "float", 2, 128, 64 * blocks)


def traced(name, libraries):
    kernel = kernel_of(name)
    row, faults = Tracer(libraries[NAMES[name]], kernel).trace(Multiplication(kernel, point_of(name)))
    return row, [fault for fault in faults if fault.kind not in UNINTERESTING]


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, libraries):
    _, faults = traced(name, libraries)
    assert not faults, [str(fault) for fault in faults]
    assert sanitizer.recorded(NAMES[name].name, name) == sanitizer.CLEAN


@pytest.mark.parametrize("name", FAULTY)
def test_faulty(name, libraries):
    _, faults = traced(name, libraries)
    lines = NAMES[name].read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line == f"KERNEL({name})" or line.startswith(f"KERNEL({name}) "))
    wanted = next(i for i, line in enumerate(lines[begin:], begin + 1) if "// FAULT" in line)
    said = [str(fault) for fault in faults]
    assert faults, "no fault"
    assert sanitizer.recorded(NAMES[name].name, name) == sanitizer.kinds(faults), said
    # A fault in a function that the kernel calls names the line of the call, too.
    assert any(f.kind == kind_of(name) and (f.line == wanted or f":{wanted}" in f.text) for f in faults), said
