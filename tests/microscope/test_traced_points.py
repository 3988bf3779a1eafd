"""Traces of many points: in processes, after a kill, by a few blocks for all, in time and memory."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from builders import KERNELS, TWO, Here, kernel_of, trace, traced, two_launches
from clones import package_path
from pandas.testing import assert_frame_equal

from kernelscope.compile import build_traced
from tilewise import ROOT, UserError, files
from tilewise.files import processes
from tilewise.measure.journal import Journal
from tilewise.study import columns, points, registry
from tilewise.traced import traffic
from tilewise.traced.block_classes import block_classes
from tilewise.traced.traffic import missing_points, trace_points

PARAMETERS = registry.parameters(KERNELS)
COLUMNS = columns.column_names("traffic", PARAMETERS)
EXAMINED = [*columns.FAULTS, "unused_reads"]
SQUARE = (256, 256, 256)
ENVIRONMENT = os.environ | {"PYTHONPATH": package_path(ROOT)}


def test_trace_points(tmp_path):
    asked = [
        points.point("t", "naive", "float", 9, 5, 7, block_x=8, block_y=8),
        points.point("t", "multi_tile", "int32", 9, 5, 7, tile=8, ntb=2),
    ]
    frame, _, faults = traced(asked, [], tmp_path)
    assert not faults
    assert list(frame.columns) == COLUMNS
    assert list(frame.kernel) == ["naive", "multi_tile"]
    alone, _ = trace(KERNELS["multi_tile"], "int32", (9, 5, 7), tile=8, ntb=2)
    row = frame.iloc[1].to_dict()
    assert {name: row[name] for name in alone} == alone
    assert {row[name] for name in set(PARAMETERS) - {"tile", "ntb"}} == {None}, "parameters of others are empty"
    assert frame.to_csv(index=False).splitlines()[1].startswith("naive,float,9,5,7,8,8,,,")


def test_processes_that_share_the_kernels_find_the_same_in_the_same_order(tmp_path):
    kernels = KERNELS | {"mine": two_launches(tmp_path, text=TWO.replace("T sum = 0;", "T sum = nothing;"))}
    faulty = [points.point("t", name, "float", 33, 35, 70) for name, kernel in KERNELS.items() if kernel.faulty]
    asked = [
        points.point("t", "tiled", "float", 9, 5, 7, tile=8),
        *faulty,
        points.point("t", "mine", "float", 9, 5, 7),
        points.point("t", "naive", "float", 9, 5, 7, block_x=8, block_y=8),
        points.point("t", "tiled", "double", 8, 8, 8, tile=16),
    ]
    few = [*reversed(asked), points.point("t", "naive", "float", 40, 40, 40, block_x=8, block_y=8)]
    whole, counts, faults = traced(asked, few, tmp_path, kernels)
    with processes(2, "traced kernels") as pool:
        shared, counted, found = trace_points(asked, few, kernels, tmp_path / "libraries", 60, pool)
    assert_frame_equal(shared, whole)
    assert_frame_equal(counted, counts)
    assert found == faults
    assert any(faults) and "compile_error" in set(whole.status)


#: Traces four kernels, one after the other, with a journal.
KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from tilewise.files import processes
from tilewise.measure.journal import Journal
from tilewise.traced.traffic import trace_points
from tilewise.study import registry
from microscope.test_traced_points import FOUR
with Journal(Path(sys.argv[1], "trace.jsonl")) as journal, processes(1, "traced") as pool:
    trace_points(FOUR, FOUR[:1], registry.load(), sys.argv[1], 60, pool, journal)
"""
FOUR = [
    *(points.point("t", "tiled", "float", n, n, n, tile=8) for n in (9, 17)),
    *(points.point("t", name, "float", 33, 35, 70) for name, kernel in KERNELS.items() if kernel.faulty),
    points.point("t", "naive", "float", 40, 40, 40, block_x=8, block_y=8),
]


def test_a_trace_that_was_killed_traces_only_the_rest_and_finds_the_same(tmp_path, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path], cwd=ROOT, env=ENVIRONMENT)
    journal = tmp_path / "trace.jsonl"
    expected = Counter(point.kernel for point in [*FOUR, *FOUR[:1]])

    def finished():
        lines = journal.read_text().split("\n")[:-1] if journal.exists() else []  # the last may be torn
        found = Counter(json.loads(line)["row"]["kernel"] for line in lines if line.endswith("}}"))
        return {name for name, number in expected.items() if found[name] == number}

    while not finished():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    process.kill()
    process.wait()
    traced = finished()
    compiled = []

    def build(kernel, *rest):
        compiled.append(kernel.name)
        return build_traced(kernel, *rest)

    monkeypatch.setattr(traffic, "build_traced", build)
    with Journal(journal) as kept:
        resumed = trace_points(FOUR, FOUR[:1], KERNELS, tmp_path, 60, Here(), kept)
    assert compiled and set(compiled) == set(expected) - traced
    compiled.clear()
    with Journal(journal) as kept:
        again = trace_points(FOUR, FOUR[:1], KERNELS, tmp_path, 60, Here(), kept)
    assert not compiled, "all of it is in the journal"
    fresh = trace_points(FOUR, FOUR[:1], KERNELS, tmp_path, 60, Here())
    assert fresh[2], "there are faults"
    for found in (resumed, again):
        for table, expected in zip(found[:2], fresh[:2]):
            assert table.to_csv() == expected.to_csv()
        assert found[2] == fresh[2] and [*map(str, found[2])] == [*map(str, fresh[2])]
    changed = KERNELS | {"tiled": dataclasses.replace(KERNELS["tiled"], reads_c=True)}
    compiled.clear()
    with Journal(journal) as kept:
        trace_points(FOUR, [], changed, tmp_path, 60, Here(), kept)
    assert compiled == ["tiled"], "and only what changed is traced again"


def test_a_process_that_ends_while_it_traces_is_named(tmp_path):
    asked = [points.point("t", "naive", "float", 9, 5, 7, block_x=8, block_y=8)]
    message = "^a process ended while it traced kernels, perhaps for want of memory; run again$"
    with pytest.raises(UserError, match=message), processes(1, "traced kernels") as pool:
        pool.submit(os._exit, 1)
        trace_points(asked, [], KERNELS, tmp_path, 60, pool)


def test_the_last_process_that_ends_is_named_too(tmp_path):
    asked = [points.point("t", "naive", "float", 9, 5, 7, block_x=8, block_y=8)]
    with pytest.raises(UserError, match="a process ended while it traced"), processes(1, "traced kernels") as pool:
        trace_points(asked, [], KERNELS, tmp_path, 60, pool)
        pool.submit(os._exit, 1).result()


def test_a_machine_whose_processes_share_no_memory_is_named(monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "ProcessPoolExecutor", refused)
    message = r"^/dev/shm: .*Permission denied; make the folder writable$"
    with pytest.raises(UserError, match=message), processes(1, "traced kernels"):
        pass


WHOLE = [  # shapes whose blocks lie differently within sectors, and which blocks do not divide
    ((64, 64, 64), "float"),
    ((70, 33, 101), "float"),
    ((100, 36, 148), "double"),
    ((41, 1, 130), "int32"),
]


@pytest.mark.parametrize("shape, dtype", WHOLE)
def test_a_few_blocks_count_for_all(tmp_path, shape, dtype):
    asked = [
        points.point("t", "naive", dtype, *shape, block_x=16, block_y=8),
        points.point("t", "tiled", dtype, *shape, tile=8),
        points.point("t", "multi_tile", dtype, *shape, tile=8, ntb=3),
    ]
    whole, few, _ = traced(asked, asked, tmp_path)
    assert few[EXAMINED].isna().all(axis=None)
    counted = [column for column in COLUMNS if column not in EXAMINED]
    assert few[counted].to_dict("records") == whole[counted].to_dict("records")


def test_what_is_not_alike_in_every_block_is_counted_whole(tmp_path, monkeypatch):
    kernel = two_launches(tmp_path)
    asked = [points.point("t", "mine", "float", *shape) for shape in ((19, 21, 37), (40, 8, 9))]
    kernels = KERNELS | {"mine": kernel}
    whole, counted, _ = traced(asked, asked, tmp_path, kernels)
    same = [column for column in COLUMNS if column not in EXAMINED]
    assert counted[same].to_dict("records") == whole[same].to_dict("records")
    monkeypatch.setattr("tilewise.traced.traffic.MOST_MULTIPLY_ADDS", 40 * 8 * 9)
    assert traced([], asked, tmp_path, kernels)[1].n.tolist() == [40]


def test_a_kernel_that_is_not_emulated_says_so(tmp_path):
    kernel = dataclasses.replace(two_launches(tmp_path), emulated=False, reason="it uses wgmma")
    kernel.path.write_text(TWO.replace("T sum = 0;", "T sum = wgmma();"))
    kernels = KERNELS | {"mine": kernel}
    asked = [
        points.point("t", "mine", "float", 9, 5, 7),
        points.point("t", "naive", "float", 9, 5, 7, block_x=8, block_y=8),
    ]
    frame, counted, faults = traced(asked, asked, tmp_path, kernels)
    assert (list(frame.status), faults) == (["unsupported", "ok"], [])
    assert frame.message[0] == "the emulator does not run it: it uses wgmma"
    assert frame.loc[0, [*columns.FAULTS, "global_load_requests"]].isna().all(), "not one fault is not known to be none"
    assert missing_points(frame) == ["mine float 9x5x7 was not traced: the emulator does not run it: it uses wgmma"]
    assert list(counted.kernel) == ["naive"]
    with pytest.raises(UserError, match="mine cannot be traced: the emulator does not run it: it uses wgmma"):
        trace(kernel, "float", (9, 5, 7))


def test_what_cannot_be_traced_costs_its_own_row(tmp_path):
    """A kernel that does not compile, one that no shape suits, and a launch that every device refuses."""
    broken = two_launches(tmp_path, text=TWO.replace("T sum = 0;", "T sum = nothing;"))
    wide = dataclasses.replace(KERNELS["tiled"], requires=("n % 128 == 0",))
    kernels = KERNELS | {"mine": broken, "tiled": wide}
    asked = [
        points.point("t", "mine", "float", 9, 5, 7),
        points.point("t", "tiled", "float", 33, 35, 70, tile=8),
        points.point("t", "tiled", "float", 128, 8, 8, tile=8),
        points.point("t", "multi_tile", "double", 9, 5, 7, tile=32, ntb=32),
        points.point("t", "naive", "float", 9, 5, 7, block_x=8, block_y=8),
    ]
    frame, counted, _ = traced(asked, asked, tmp_path, kernels)
    assert list(frame.status) == ["compile_error", "unsupported", "ok", "invalid_launch", "ok"]
    assert "'nothing' was not declared" in frame.message[0]
    assert (
        frame.message[1] == "it requires n % 128 == 0, which 33x35x70 is not; add a shape that it takes to trace.shapes"
    )
    assert "shared memory per block" in frame.message[3]
    assert (frame.block_x[1], frame.block_x[2], frame.block_x[3]) == (8, 8, 32), "the columns of a choice agree"
    assert frame.races.isna().tolist() == [True, True, False, True, False]
    assert counted.kernel.tolist() == ["tiled", "naive"]


def test_a_row_has_the_faults_of_every_schedule(tmp_path):
    """Thread 1 reads what thread 0 writes later: only the reverse order shows it out of bounds."""
    body = """    __shared__ int at;
    if (threadIdx.x == 0) at = 0;
    __syncthreads();
    if (threadIdx.x == 0) at = 1 << 20;
    C[threadIdx.x] = threadIdx.x == 1 && at == 0 ? A[1 << 20] : 0;"""
    row, faults = trace(kernel_of(tmp_path, body), "float", (1, 1, 32), block_x=32, block_y=1)
    assert {"race", "out_of_bounds"} <= {fault.kind for fault in faults}
    assert row["out_of_bounds"] > 0 and row["stopped"] == 0


def test_parameters_are_columns_in_the_order_of_the_registry(tmp_path):
    text = KERNELS["tiled"].path.read_text().replace("void tiled(", "void mine(")
    (tmp_path / "mine.cu").write_text(text)
    [entry] = KERNELS["tiled"].launches
    entry = dataclasses.replace(
        entry, function="mine", template=("dtype", "width"), block=("width",) * 2, covers=("width",) * 2
    )
    fields = {"name": "mine", "source": "mine.cu", "parameters": ("width",), "launches": (entry,), "folder": tmp_path}
    kernels = KERNELS | {"mine": dataclasses.replace(KERNELS["tiled"], **fields)}
    asked = [points.point("t", "mine", "float", 9, 5, 7, width=4), points.point("t", "tiled", "float", 9, 5, 7, tile=8)]
    frame, _, faults = traced(asked, [], tmp_path, kernels)
    assert not faults
    assert list(frame.columns) == columns.column_names("traffic", [*PARAMETERS, "width"])
    assert frame.to_csv(index=False).splitlines()[1].startswith(f"mine,float,9,5,7,4,4,{',' * len(PARAMETERS)}4,")


def test_large_shapes_take_few_blocks():
    point = points.point("t", "tiled", "float", 8192, 8192, 8192, tile=16)
    blocks = block_classes(KERNELS["tiled"], point)
    assert len(blocks) == 6, "tiles begin at two places of a cache line, or are the last"
    assert sum(blocks.values()) == 512 * 512


@pytest.mark.parametrize(("x", "lines"), [(8, 5), (16, 3), (32, 2), (128, 2), (1024, 2)])
def test_a_block_of_few_columns_looks_up_more_lines(x, lines, tmp_path_factory):
    """Per pair of loads: one of B, and one of A for each row that a warp covers."""
    asked = [points.point("t", "naive", "float", 256, 256, 256, block_x=x, block_y=1024 // x)]
    _, found, _ = traced([], asked, tmp_path_factory.mktemp("lines"))
    [row] = found.to_dict("records")
    assert row["global_load_lines"] == lines * row["global_load_requests"] / 2


@pytest.mark.parametrize("shape, seconds", [((64, 64, 64), 0.3), (SQUARE, 6)])
def test_speed(tmp_path, shape, seconds):
    library = build_traced(KERNELS["tiled"], ["tiled<float, 16>"], tmp_path / "tiled.so")
    start = time.process_time()
    trace(KERNELS["tiled"], "float", shape, library=library, tile=16)
    assert time.process_time() - start < seconds


def test_memory():
    """Below 1 GiB at 256 x 256 x 256, the compiler included."""
    arguments = ["kernels/textbook/naive.cu", "--shape", "256x256x256", "--block", "32x32"]
    command = [sys.executable, "-m", "tilewise", "trace", *arguments]
    # RUSAGE_CHILDREN of this process also counts the children of earlier tests.
    most = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    measured = [sys.executable, "-c", most, *command]
    kib = subprocess.run(measured, cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout
    assert 2**15 < int(kib) < 2**20
