"""The memory microscope: it counts what an H200 counts, its rules are those of the hardware, and it is fast."""

import dataclasses
import os
import resource
import subprocess
import sys
import time

import pytest
from builders import TURN, TWO, Here, trace, traced, two_launches
from pandas.testing import assert_frame_equal

from tilewise import ROOT, UserError, files
from tilewise.__main__ import main
from tilewise.explain.counters import cross_check_points
from tilewise.files import processes
from tilewise.measure.journal import Journal
from tilewise.microscope import traffic
from tilewise.microscope.compile import build_traced
from tilewise.microscope.counts import block_classes
from tilewise.microscope.traffic import left_out, trace_points
from tilewise.nvidia.ncu import METRICS
from tilewise.study import columns, points, registry
from tilewise.study.device import EMULATED_LIMITS
from tilewise.study.kernel import Kernel, LaunchEntry
from tilewise.study.schema import read_yaml

KERNELS = registry.load()
PARAMETERS = registry.parameters(KERNELS)
COLUMNS = columns.of("traffic", PARAMETERS)
CROSS_CHECK = cross_check_points(read_yaml(ROOT / "config/config.yaml"), KERNELS)
SOURCE_A = ("naive", "tiled", "multi_tile")
EXAMINED = [*columns.FAULTS, "unused_reads"]
SQUARE = (256, 256, 256)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}


@pytest.fixture(scope="module")
def transposed(tmp_path_factory):
    """The naive kernel with threadIdx.x along the rows of C: the classic mistake."""
    folder = tmp_path_factory.mktemp("transposed")
    text = KERNELS["naive"].path.read_text()
    row, col = "blockIdx.y * blockDim.y + threadIdx.y", "blockIdx.x * blockDim.x + threadIdx.x"
    assert text.count(row) == text.count(col) == 1
    (folder / "naive.cu").write_text(text.replace(row, "ROW").replace(col, row).replace("ROW", col))
    return dataclasses.replace(KERNELS["naive"], folder=folder, source="naive.cu")


# ---- What ncu counted on an H200, float, 256 x 256 x 256 -------------------------------------------------------------

GOLDEN = [  # kernel, parameters, requests and sectors of global loads
    ("naive", {"block_x": 16, "block_y": 16}, 1048576, 2097152),
    ("naive", {"block_x": 32, "block_y": 32}, 1048576, 2621440),
    ("transposed", {"block_x": 16, "block_y": 16}, 1048576, 8912896),
    ("transposed", {"block_x": 32, "block_y": 32}, 1048576, 17301504),
    ("tiled", {"tile": 16}, 65536, 262144),
]


@pytest.mark.parametrize("name, choice, requests, sectors", GOLDEN, ids=str)
def test_golden_counts(transposed, name, choice, requests, sectors):
    row, faults = trace(KERNELS.get(name, transposed), "float", SQUARE, **choice)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (requests, sectors)
    assert row["sectors_per_request"] == sectors / requests
    assert not faults


@pytest.fixture(scope="module")
def beside_hardware(tmp_path_factory):
    """Counted and hardware (`_hw`) columns at the 252 points of counters.py, float and double, ragged shapes too."""
    return beside([at for at in CROSS_CHECK if at.kernel in SOURCE_A], tmp_path_factory.mktemp("hardware"))


def beside(asked, folder):
    """Counted and hardware (`_hw`) columns at points that the recorded counters.csv has."""
    hardware = columns.read(ROOT / "report/recorded/nvidia-h200/counters.csv", "counters", PARAMETERS)
    hardware = hardware[hardware.profiled_ns.isna()]  # else of full size
    assert not NEWER & set(hardware.kernel), "the record has them; compare them, too"
    _, counted, _ = traced([], asked, folder)
    keys = ["kernel", "dtype", *columns.SHAPE, *columns.choice(PARAMETERS)]
    # A key that a kernel lacks is empty on both sides, and so equal.
    joined = counted.astype({key: hardware[key].dtype for key in keys}).merge(hardware, on=keys, suffixes=("", "_hw"))
    assert len(joined) == len(asked)
    return joined


EXACT = [
    "global_load_requests",
    "global_load_sectors",
    "global_store_requests",
    "global_store_sectors",
    "shared_store_requests",
]


@pytest.mark.parametrize("column", EXACT)
def test_counts_are_the_hardwares(beside_hardware, column):
    assert list(beside_hardware[column]) == list(beside_hardware[f"{column}_hw"])


def test_shared_loads_differ_from_the_hardwares_by_what_nvcc_joins(beside_hardware):
    """nvcc joins the loads of tile_a along k into loads of 16 bytes, each one request and two wavefronts."""
    rows = beside_hardware[beside_hardware.kernel != "naive"]
    ntb, words = rows.ntb.fillna(1), rows.dtype.map({"float": 1, "double": 2})
    steps = rows.shared_load_requests / (ntb + 1)  # of k, in every warp: one load of tile_a and ntb of tiles_b
    joined = rows.shared_load_requests_hw == steps * (ntb + words / 4)
    others = {tuple(row) for row in rows[~joined][["dtype", "tile", "ntb"]].to_numpy()}
    assert others == {("float", 16, 8), ("float", 32, 16)}
    wavefronts = rows.shared_load_wavefronts_hw / (steps * (ntb * words + words / 2))
    assert wavefronts.between(1, 1.01).all()


def test_conflicts_of_the_hardware_are_contention(beside_hardware):
    """No kernel of the study has a bank conflict. Sometimes, in the largest products only, the hardware counts accesses
    that had to wait for others."""
    assert (beside_hardware.shared_bank_conflicts == 0).all()
    disturbed = beside_hardware.shared_store_wavefronts != beside_hardware.shared_store_wavefronts_hw
    disturbed |= beside_hardware.shared_bank_conflicts_hw > 0
    assert set(beside_hardware[disturbed].n) <= {256}
    assert disturbed.sum() <= 12


# The rungs of the ladder, at 256 x 256 x 256 with the parameters of the recorded run. docs/microscope.md explains what
# the hardware counts otherwise.

#: What else differs, and why: the columns of each kernel that are not compared.
OTHERWISE = {
    "stream_k": ("shared_load_requests", "shared_store_requests"),  # nvcc issues some that no lane needs
    "register_tile": ("shared_load_requests", "shared_load_wavefronts", "shared_bank_conflicts"),  # nvcc joins loads
    "async_copies": ("shared_load_requests", "shared_load_wavefronts", "global_load_sectors"),  # joined; unexplained
    "pipelined": ("shared_load_requests",),  # nvcc issues loads that no lane needs
    "dmma_pipelined": ("shared_load_requests",),  # nvcc splits loads of 16 bytes
    "mma_sync": ("shared_load_requests",),  # see there
    "clusters": ("shared_store_requests",),  # stmatrix
    "float_from_half": ("shared_load_wavefronts", "shared_store_requests"),  # loads wait for wgmma
}

#: Rungs that are newer than the recorded run, so that it has no counts of them.
NEWER = {"wgmma_int8", "double_from_int8", "float_always"}


@pytest.fixture(scope="module")
def rungs(tmp_path_factory):
    """Counted and hardware columns of every kernel of the ladder."""
    asked = [at for at in CROSS_CHECK if at.kernel not in {*SOURCE_A, *NEWER}]
    ladder = {name for name, kernel in KERNELS.items() if kernel.path.parent.name == "ladder"}
    assert {at.kernel for at in asked} | NEWER >= ladder
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EMULATED_LIMITS, "sms", 132)  # as an H200 has: stream_k cuts its work into so many shares
        return beside(asked, tmp_path_factory.mktemp("rungs"))


def test_the_ladders_counts_are_the_hardwares(rungs):
    compared = 0
    for _, row in rungs.iterrows():
        counted, measured = ({column: row[column + end] for column in METRICS} for end in ("", "_hw"))
        for way in ("load", "store"):
            for unit in ("requests", "sectors"):  # TMA does not pass the pipeline of loads and stores
                counted[f"global_{way}_{unit}"] -= row[f"tma_{way}_{unit}"]
        counted["shared_load_requests"] -= row.matrix_load_requests  # ldmatrix is another instruction
        if row.async_load_requests:  # what cp.async writes is no store, also if it writes zeros and loads nothing
            copies = counted["shared_store_requests"] - measured["shared_store_requests"]
            assert row.async_load_requests <= copies <= 1.2 * row.async_load_requests
            counted["shared_store_requests"] -= copies
            counted["shared_store_wavefronts"] -= 4 * copies  # of 16 bytes per lane
        for column in counted.keys() - OTHERWISE.get(row.kernel, ()):
            compared += 1
            disturbed = "shared" in column and "requests" not in column  # an access that waited is one wavefront more
            spare = max(0.015 * row.shared_store_wavefronts_hw, 0.015 * row.shared_load_wavefronts_hw, 500) * disturbed
            assert counted[column] <= measured[column] <= counted[column] + spare, (row.kernel, row.dtype, column)
    assert compared > 100


def test_claims_of_source_d():
    """0.25 FLOP/B for the naive kernel, 4 with 16 x 16 tiles: the loads asked for fall to 1/16."""
    naive, _ = trace(KERNELS["naive"], "float", (64, 64, 64), block_x=16, block_y=16)
    tiled, _ = trace(KERNELS["tiled"], "float", (64, 64, 64), tile=16)
    assert (naive["flop_per_byte"], tiled["flop_per_byte"]) == (0.25, 4.0)
    assert naive["global_load_requests"] == 16 * tiled["global_load_requests"]


# ---- The rules, on kernels made for them -----------------------------------------------------------------------------


def kernel_of(folder, body, name="mine", **entry):
    """A kernel for float with this body and one block of (block_x, block_y) threads for all of C."""
    signature = f"__global__ void {name}(const T* A, const T* B, T* C, int n, int p, int m)"
    (folder / f"{name}.cu").write_text(f"template <typename T>\n{signature}\n{{\n{body}\n}}\n")
    launch = LaunchEntry(
        **{"function": name, "template": ("dtype",), "block": ("block_x", "block_y"), "covers": ("n", "m"), **entry}
    )
    return Kernel(
        name=name,
        title=name,
        kind="cuda",
        dtypes=("float", "double", "int32"),
        source=f"{name}.cu",
        parameters=("block",),
        launches=(launch,),
        folder=folder,
    )


def memory_faults(faults):
    """The faults except wrong products, which most of these little kernels compute."""
    return [fault for fault in faults if fault.kind not in ("incorrect", "order")]


SHARED = [  # one warp loads shared[index]; wavefronts and conflicts by element type
    ("threadIdx.x", "float", 1, 0),
    ("0", "float", 1, 0),  # a broadcast is free
    ("threadIdx.x * 2", "float", 2, 1),
    ("threadIdx.x * 32", "float", 32, 31),
    ("threadIdx.x * 33", "float", 1, 0),
    ("threadIdx.x", "double", 2, 0),  # one half-warp at a time
    ("threadIdx.x * 16", "double", 32, 30),
    ("threadIdx.x * 17", "double", 2, 0),
    ("threadIdx.x / 2", "double", 1, 0),  # but a whole warp if pairs of lanes read the same element
    ("threadIdx.x % 16", "double", 2, 0),
]


@pytest.mark.parametrize("index, dtype, wavefronts, conflicts", SHARED)
def test_shared_wavefronts(tmp_path, index, dtype, wavefronts, conflicts):
    body = f"""    __shared__ T shared[1056];
    for (int i = threadIdx.x; i < 1056; i += 32) shared[i] = A[0];
    __syncthreads();
    C[threadIdx.x] = shared[{index}];"""
    row, faults = trace(kernel_of(tmp_path, body), dtype, (1, 1, 32), block_x=32, block_y=1)
    assert (row["shared_load_requests"], row["shared_load_wavefronts"]) == (1, wavefronts)
    stores = row["shared_store_wavefronts"]
    assert stores == 33 * (2 if dtype == "double" else 1)
    assert row["shared_bank_conflicts"] == conflicts
    assert not memory_faults(faults)


def test_vectors_are_one_access(tmp_path):
    body = """    __shared__ float4 shared[32];
    shared[threadIdx.x] = reinterpret_cast<const float4*>(A)[threadIdx.x];
    __syncthreads();
    const float4 mine = shared[31 - threadIdx.x];
    C[threadIdx.x] = mine.x + mine.y + mine.z + mine.w;"""
    row, faults = trace(kernel_of(tmp_path, body), "float", (1, 128, 32), block_x=32, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (1, 16)
    assert (row["shared_load_requests"], row["shared_load_wavefronts"], row["shared_bank_conflicts"]) == (1, 4, 0)
    assert not memory_faults(faults)


def test_structs_are_copied_in_pieces(tmp_path):
    """float3 as three loads of 4 bytes, like a GPU: all three touch the same 12 sectors."""
    body = """    struct Row { T x, y, z; };
    const Row row = reinterpret_cast<const Row*>(A)[threadIdx.x];
    C[threadIdx.x] = row.x + row.y + row.z;"""
    row, faults = trace(kernel_of(tmp_path, body), "float", (1, 96, 32), block_x=32, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (3, 36)
    assert not memory_faults(faults)


def test_a_misaligned_warp_touches_one_sector_more(tmp_path):
    row, _ = trace(
        kernel_of(tmp_path, "    C[threadIdx.x] = A[threadIdx.x + 1];"), "float", (1, 33, 32), block_x=32, block_y=1
    )
    assert (row["global_load_requests"], row["global_load_sectors"], row["global_store_sectors"]) == (1, 5, 4)


def test_a_partial_warp_is_a_request(tmp_path):
    body = "    if (threadIdx.x % 2) C[threadIdx.x] = A[threadIdx.x];"
    row, _ = trace(kernel_of(tmp_path, body), "float", (1, 40, 40), block_x=40, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (2, 5)


FAULTS = [  # body, kind, a part of the message
    (
        "C[0] = A[0];",
        "race",
        "thread (1, 0) of block (0, 0) writes C[0, 0] of global memory, which thread (0, 0) writes at line 4",
    ),
    ("if (threadIdx.x == 0) C[1] = C[0] = A[0]; else if (threadIdx.x == 5) C[2] = C[1];", "race", "reads C[0, 1]"),
    (
        "C[threadIdx.x] = C[threadIdx.x] + 1;",
        "uninitialised",
        "thread (0, 0) of block (0, 0) reads C[0, 0], which no thread has written",
    ),
    ("C[threadIdx.x] = A[1 << 20];", "out_of_bounds", "reads element 1048576 of A, which has 1 x 1 = 1"),
    (
        "C[threadIdx.x] = reinterpret_cast<const T*>(64)[threadIdx.x];",
        "out_of_bounds",
        "reads address 0x40, which is no part of any array",
    ),
    (
        "__shared__ T s[64]; C[threadIdx.x] = s[threadIdx.x];",
        "uninitialised",
        "reads s[0], which no thread of the block has written",
    ),
    (
        "__shared__ T s[64]; s[threadIdx.x] = A[0]; C[threadIdx.x] = s[63 - threadIdx.x];",
        "race",
        "thread (32, 0) of block (0, 0) writes s[32] of shared memory, which thread (31, 0) reads at line 4, "
        "with no __syncthreads() between",
    ),
    (
        "__shared__ T s[63]; s[threadIdx.x] = A[0]; __syncthreads(); C[threadIdx.x] = s[threadIdx.x / 2];",
        "out_of_bounds",
        "thread (63, 0) of block (0, 0) uses index 63 of an array of type 'float [63]'",
    ),
    (
        "__shared__ T s[63]; T* t = s; t[threadIdx.x + p - 1] = A[0]; C[threadIdx.x] = t[threadIdx.x];",
        "out_of_bounds",
        "writes s[63], past its end",
    ),
    (
        "extern __shared__ T ours[]; ours[threadIdx.x] = A[0]; C[threadIdx.x] = ours[threadIdx.x];",
        "out_of_bounds",
        "thread (0, 0) of block (0, 0) writes ours[0], past its end",
    ),
    (
        "__shared__ T s[64]; T* t = s; t[-(int)threadIdx.x] = A[0]; C[threadIdx.x] = 0;",
        "out_of_bounds",
        "writes s[-1], before its begin",
    ),
    (
        "const float2 pair = *reinterpret_cast<const float2*>(A + threadIdx.x); C[threadIdx.x] = pair.x + pair.y;",
        "misaligned",
        "thread (1, 0) of block (0, 0) reads A[0, 1] as 8 bytes, whose address must be a multiple of that",
    ),
    (
        "if (threadIdx.x < 32) __syncthreads(); C[threadIdx.x] = 0;",
        "divergence",
        "thread (0, 0) of block (0, 0) waits here, thread (63, 0) has ended",
    ),
    (
        "if (threadIdx.x < 32)\n__syncthreads(); else\n__syncthreads(); C[threadIdx.x] = 0;",
        "divergence",
        "waits here, thread (32, 0) waits at line 6",
    ),
]


@pytest.mark.parametrize("body, kind, message", FAULTS, ids=[f"{f[1]}-{i}" for i, f in enumerate(FAULTS)])
def test_fault(tmp_path, body, kind, message):
    _, faults = trace(
        kernel_of(tmp_path, body), "float", (1, 4 if kind == "misaligned" else 1, 64), block_x=64, block_y=1
    )
    assert kind in {fault.kind for fault in memory_faults(faults)}
    assert any(message in str(fault) for fault in faults), [str(fault) for fault in faults]
    first = memory_faults(faults)[0]
    assert (first.file, first.block) == (str(tmp_path / "mine.cu"), (0, 0))
    assert first.line in (4, 5)


BLOCKS = [  # what each of two blocks of one thread does; whether it is a race
    ("C[blockIdx.x] = A[0];", None),
    ("C[0] = A[0];", "block (1, 0) writes C[0, 0] of global memory, which thread (0, 0) of block (0, 0) writes"),
    ("if (blockIdx.x) C[1] = C[0]; else C[0] = A[0];", "block (1, 0) reads C[0, 0] of global memory, which thread"),
    ("const_cast<T*>(A)[0] = n; C[blockIdx.x] = 2;", "block (1, 0) writes A[0, 0]"),
    (
        "if (blockIdx.x) const_cast<T*>(A)[0] = 1; C[blockIdx.x] = A[0];",
        "block (1, 0) writes A[0, 0] of global memory, which thread (0, 0) of block (0, 0) reads",
    ),
]


@pytest.mark.parametrize("body, message", BLOCKS)
def test_race_between_blocks(tmp_path, body, message):
    kernel = kernel_of(tmp_path, f"    {body}", covers=(1, 1))
    _, faults = trace(kernel, "float", (1, 1, 2), block_x=1, block_y=1)
    if message is None:
        assert not memory_faults(faults)
    else:
        assert any(f.kind == "race" and message in str(f) and "blocks run in any order" in str(f) for f in faults), (
            faults
        )


WARPS = "__shared__ T s[64]; s[threadIdx.x] = A[0]; {} C[threadIdx.x] = s[threadIdx.x ^ {}];"


@pytest.mark.parametrize(
    "barrier, other, clean",
    [("", 1, False), ("__syncwarp();", 1, True), ("__syncwarp();", 32, False), ("__syncthreads();", 32, True)],
)
def test_barrier_of_a_warp(tmp_path, barrier, other, clean):
    """__syncwarp() orders the lanes of a warp, not the warps of a block."""
    _, faults = trace(kernel_of(tmp_path, WARPS.format(barrier, other)), "float", (1, 1, 64), block_x=64, block_y=1)
    assert ("race" in {fault.kind for fault in faults}) != clean


def test_order_of_threads(tmp_path):
    """A result that depends on the order is reported, even if the tracer finds nothing wrong with the accesses."""
    body = "    const_cast<T*>(A)[0] = threadIdx.x; __syncthreads(); C[threadIdx.x] = A[0];"
    _, faults = trace(kernel_of(tmp_path, body), "float", (1, 1, 64), block_x=64, block_y=1)
    assert {"race", "order"} <= {fault.kind for fault in faults}
    assert any("C[0, 0] is 63.0 in ascending and 0.0 in reverse order" in str(fault) for fault in faults)


def test_wrong_product(tmp_path):
    _, faults = trace(kernel_of(tmp_path, "    C[threadIdx.x] = 7;"), "float", (1, 1, 64), block_x=64, block_y=1)
    assert [fault.kind for fault in faults] == ["incorrect"]
    assert "C[0, " in str(faults[0])
    assert "is 7, should be" in str(faults[0])


# ---- Several launches, workspaces, headers, three dimensions, other types --------------------------------------------


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_two_launches_are_one_point(tmp_path, dtype):
    """What one launch writes the next may read and write; their traffic is summed; the block is that of the product."""
    kernel = two_launches(tmp_path)
    row, faults = trace(kernel, dtype, (19, 21, 37))
    assert not faults, [str(fault) for fault in faults]
    assert (row["block_x"], row["block_y"]) == (8, 8)
    # turn: 3 blocks along m, in each 21 rows of 16, two per warp; mine: 5 blocks along m, 19 rows of 8, four per warp.
    assert row["global_store_requests"] == 3 * 11 + 5 * 5


MUTANTS_OF_TWO = [  # what is replaced by what, the kind of fault, a part of its message
    (
        "k < p && col < m",
        "k < p && col < m && !(k == 3 && col == 5)",
        "uninitialised",
        "thread (5, 0) of block (0, 0) reads turned[5, 3], which no thread has written",
    ),
    (
        TURN,
        TURN + " if (k == 0 && col == 0) turned[m * p - 1] = 0;",
        "race",
        "writes turned[36, 20] of global memory, which thread (0, 0) of block (0, 0) writes at line 6, and blocks",
    ),
    (
        "turned[col * p + k] = B",
        "turned[col * p + k + 1] = B",
        "out_of_bounds",
        "element 777 of turned, which has 37 x 21 = 777",
    ),
]


@pytest.mark.parametrize("old, new, kind, message", MUTANTS_OF_TWO, ids=[mutant[2] for mutant in MUTANTS_OF_TWO])
def test_mutants_of_two_launches(tmp_path, old, new, kind, message):
    assert TWO.count(old) == 1
    _, faults = trace(two_launches(tmp_path, TWO.replace(old, new)), "float", (19, 21, 37))
    found = [fault for fault in faults if fault.kind == kind]
    assert any(message in str(fault) for fault in found), [str(fault) for fault in faults]
    lines = TWO.splitlines()
    at = "sum += A" if kind == "uninitialised" else "turned[col * p + k]"
    assert all(at in lines[fault.line - 1] for fault in found)


def test_what_a_workspace_held_before_counts_for_nothing(tmp_path):
    """The first launch leaves out a row: it is unknown under every schedule, whatever the one before left there."""
    _, faults = trace(
        two_launches(tmp_path, TWO.replace("k < p && col < m", "k < p && col < m - 1")), "float", (9, 5, 7)
    )
    assert {fault.kind for fault in faults} == {"uninitialised"}
    assert "turned[6, 0]" in str(faults[0])


def test_a_launch_orders_what_blocks_do(tmp_path):
    """Blocks of one launch may not meet in one place; those of two launches may."""
    text = """
    __global__ void first(float* C) { C[0] = blockIdx.x; }
    __global__ void mine(const float* A, const float* B, float* C) { C[0] = C[0] + A[0] * B[0]; }
    """
    (tmp_path / "mine.cu").write_text(text)
    for blocks, clean in ((1, True), (2, False)):
        launches = (
            LaunchEntry("first", (), ("1",), (), (str(blocks),), arguments=("C",)),
            LaunchEntry("mine", (), ("1",), (), ("1",), arguments=("A", "B", "C")),
        )
        kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=launches, folder=tmp_path)
        _, faults = trace(kernel, "float", (1, 1, 1))
        assert ("race" not in {fault.kind for fault in faults}) == clean
        assert "uninitialised" not in {fault.kind for fault in faults}
        assert all(fault.line == 2 for fault in memory_faults(faults))


def test_a_fault_in_a_header_is_named_there(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/load.cuh").write_text(
        "// The last element is one too far.\ntemplate <typename T>\n__device__ T load(const T* from, int index)\n"
        "{\n    return from[index + 1];\n}\n"
    )
    (tmp_path / "parts/all.cuh").write_text('#include "load.cuh"\n')
    kernel = kernel_of(tmp_path, "    C[threadIdx.x] = load(A, threadIdx.x);")
    kernel.path.write_text('#include "parts/all.cuh"\n' + kernel.path.read_text())
    _, faults = trace(kernel, "float", (1, 32, 32), block_x=32, block_y=1)
    [fault] = memory_faults(faults)
    assert (fault.kind, fault.file, fault.line) == ("out_of_bounds", str(tmp_path / "parts/load.cuh"), 5)
    assert "thread (31, 0) of block (0, 0) reads element 32 of A, which has 1 x 32 = 32" in str(fault)


def test_a_race_with_a_header_names_both_files(tmp_path):
    (tmp_path / "fill.cuh").write_text(
        "template <typename T>\n__device__ void fill(T* s, T v) { s[threadIdx.x] = v; }\n"
    )
    body = "    __shared__ T s[32]; fill(s, A[0]); C[threadIdx.x] = s[31 - threadIdx.x];"
    kernel = kernel_of(tmp_path, body)
    kernel.path.write_text('#include "fill.cuh"\n' + kernel.path.read_text())
    _, faults = trace(kernel, "float", (1, 1, 32), block_x=32, block_y=1)
    race = next(fault for fault in faults if fault.kind == "race")
    assert {race.file, str(race).split(" of ")[-1].split(",")[0]} <= {str(tmp_path / "fill.cuh"), str(kernel.path)}


def test_three_dimensions(tmp_path):
    """Threads and blocks along z are told apart, and named by x, y and z."""
    text = """__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.z * 2 + threadIdx.z, col = blockIdx.x * 4 + threadIdx.x;
    if (row >= n || col >= m || threadIdx.y) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    C[row * m + col] = sum;
}
"""
    launch = LaunchEntry("mine", (), ("4", "3", "2"), (), ("ceil_div(m, 4)", "1", "ceil_div(n, 2)"))
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    kernel.path.write_text(text)
    row, faults = trace(kernel, "float", (7, 5, 9))
    assert not faults
    assert (row["block_x"], row["block_y"]) == (4, 3)
    kernel.path.write_text(text.replace("row >= n || ", ""))
    _, faults = trace(kernel, "float", (7, 5, 9))
    bounds = [fault for fault in faults if fault.kind == "out_of_bounds"]
    assert {(fault.block, fault.thread) for fault in bounds} == {((0, 0, 3), (0, 0, 1))}
    assert "thread (0, 0, 1) of block (0, 0, 3) reads element 35 of A, which has 7 x 5 = 35" in str(bounds[0])
    kernel.path.write_text(text.replace(" || threadIdx.y", ""))
    _, faults = trace(kernel, "float", (7, 5, 9))
    assert any("which thread (0, 0, 0) writes at line 7, with no __sync" in str(f) for f in faults if f.kind == "race")


SGEMM = """
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
{
    const uint row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + BETA;
}
"""


@pytest.mark.parametrize(
    "beta, kinds",
    [("(beta == 0 ? 0 : beta * C[row * N + col])", set()), ("beta * C[row * N + col]", {"uninitialised"})],
)
def test_arguments_of_ones_own(tmp_path, beta, kinds):
    """A kernel that multiplies what C held by 0 reads what nobody wrote."""
    launch = LaunchEntry(
        "mine", (), ("16", "8"), (), ("ceil_div(n, 16)", "ceil_div(m, 8)"),
        arguments=("n", "m", "p", {"float": "1.0"}, "A", "B", {"float": "0.0"}, "C"),
    )  # fmt: skip
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    kernel.path.write_text(SGEMM.replace("BETA", beta))
    _, faults = trace(kernel, "float", (33, 35, 70))
    assert {fault.kind for fault in faults} == kinds, [str(fault) for fault in faults]


def test_a_wrong_number_of_arguments_is_refused(tmp_path):
    kernel = kernel_of(tmp_path, "    C[0] = 1;", arguments=("A", "B", "C", "n"))
    with pytest.raises(UserError, match=r"mine\.cu: mine: mine<float>: the function has 6 parameters, but .* 4 arg"):
        trace(kernel, "float", (1, 1, 1), block_x=1, block_y=1)


SMALL = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T, int TILE>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int start = 0; start < p; start += TILE) {
        tile_a[ty][tx] = row < n && start + tx < p ? A[row * p + start + tx] : T(0);
        tile_b[ty][tx] = start + ty < p && col < m ? B[(start + ty) * m + col] : T(0);
        __syncthreads();  // both tiles
        for (int k = 0; k < TILE; ++k) sum += float(tile_a[ty][k]) * float(tile_b[k][tx]);
        __syncthreads();  // every thread
    }
    if (row < n && col < m) C[row * m + col] = T(sum);
}
"""


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_elements_of_two_bytes(tmp_path, dtype):
    """They are counted as such, and a race between neighbouring elements is not one."""
    launch = LaunchEntry("mine", ("dtype", "tile"), ("tile", "tile"), ("tile", "tile"))
    fields = {"dtypes": (dtype,), "source": "mine.cu", "parameters": ("tile",), "launches": (launch,)}
    kernel = Kernel("mine", "mine", "cuda", folder=tmp_path, **fields)
    kernel.path.write_text(SMALL)
    row, faults = trace(kernel, dtype, (64, 64, 64), tile=16)
    assert not faults, [str(fault) for fault in faults]
    assert (
        row["global_load_requests"]
        == trace(KERNELS["tiled"], "float", (64, 64, 64), tile=16)[0]["global_load_requests"]
    )
    assert row["sectors_per_request"] == 2  # 16 elements of 2 bytes from each of two rows
    assert row["flop_per_byte"] == 8
    for barrier, line in (("__syncthreads();  // both tiles", 14), ("__syncthreads();  // every thread", 11)):
        kernel.path.write_text(SMALL.replace(barrier, ""))
        _, faults = trace(kernel, dtype, (19, 21, 37), tile=8)
        assert any(fault.kind == "race" and fault.line == line for fault in faults), [str(fault) for fault in faults]
    kernel.path.write_text(SMALL.replace("row < n && start", "row <= n && start"))
    _, faults = trace(kernel, dtype, (19, 21, 37), tile=8)
    assert any("reads element 399 of A, which has 19 x 21 = 399" in str(fault) for fault in faults)


def test_a_vector_of_halves_is_one_access(tmp_path):
    body = """    __shared__ __half2 pairs[32];
    pairs[threadIdx.x] = reinterpret_cast<const __half2*>(A)[threadIdx.x];
    __syncthreads();
    const __half2 sum = pairs[threadIdx.x] + pairs[31 - threadIdx.x];
    union { float4 all; __half one[8]; } many;
    many.all = reinterpret_cast<const float4*>(A)[threadIdx.x / 4];
    C[threadIdx.x] = T(sum.x) + __high2half(sum) + many.one[0];"""
    kernel = dataclasses.replace(kernel_of(tmp_path, body), dtypes=("half",))
    kernel.path.write_text("#include <cuda_fp16.h>\n" + kernel.path.read_text())
    row, faults = trace(kernel, "half", (1, 64, 32), block_x=32, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (2, 8)
    assert (row["shared_load_requests"], row["shared_bank_conflicts"]) == (2, 0)
    assert not memory_faults(faults), [str(fault) for fault in faults]


# ---- Many points, speed, memory --------------------------------------------------------------------------------------


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
from tilewise.microscope.traffic import trace_points
from tilewise.study import registry
from microscope.test_trace import FOUR
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
    while not (journal.exists() and journal.read_text().count("}}\n") >= 3):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    process.kill()
    process.wait()
    compiled = []

    def build(kernel, *rest):
        compiled.append(kernel.name)
        return build_traced(kernel, *rest)

    monkeypatch.setattr(traffic, "build_traced", build)
    with Journal(journal) as kept:
        resumed = trace_points(FOUR, FOUR[:1], KERNELS, tmp_path, 60, Here(), kept)
    assert compiled and "tiled" not in compiled, "tiled has the most points: it was the first"
    compiled.clear()
    with Journal(journal) as kept:
        again = trace_points(FOUR, FOUR[:1], KERNELS, tmp_path, 60, Here(), kept)
    assert not compiled, "all of it is in the journal"
    fresh = trace_points(FOUR, FOUR[:1], KERNELS, tmp_path, 60, Here())
    assert fresh[2], "there are faults"
    for found in (resumed, again):
        for table, expected in zip(found[:2], fresh[:2]):
            assert table.to_csv() == expected.to_csv()
        assert found[2] == fresh[2]
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
    monkeypatch.setattr("tilewise.microscope.traffic.MOST_MULTIPLY_ADDS", 40 * 8 * 9)
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
    assert left_out(frame) == ["mine float 9x5x7 was not traced: the emulator does not run it: it uses wgmma"]
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
    assert list(frame.columns) == columns.of("traffic", [*PARAMETERS, "width"])
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
    subprocess.run([sys.executable, "-m", "tilewise", "trace", *arguments], cwd=ROOT, env=ENVIRONMENT, check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2**20  # KiB


# ---- The command -----------------------------------------------------------------------------------------------------


def test_command_on_a_clean_kernel(capsys):
    assert main(["trace", str(KERNELS["tiled"].path), "--shape", "64x64x64", "--tile", "16"]) == 0
    output = capsys.readouterr().out
    assert "sectors per request                           4.00" in output
    assert "no faults in forward, reverse, random order" in output


def test_command_on_a_kernel_of_ones_own(tmp_path, capsys):
    text = KERNELS["tiled"].path.read_text().replace("void tiled(", "void mine(")
    (tmp_path / "mine.cu").write_text(text)
    assert main(["trace", str(tmp_path / "mine.cu"), "--tile", "8", "--dtype", "int32"]) == 0
    line = 1 + text[: text.index("__syncthreads();  // every")].count("\n")
    (tmp_path / "mine.cu").write_text(text.replace("__syncthreads();  // every", "// every"))
    assert main(["trace", str(tmp_path / "mine.cu"), "--tile", "8"]) == 1
    first = capsys.readouterr().out.split("no faults")[1].splitlines()[1]
    assert first.startswith(
        f"{tmp_path}/mine.cu:{line - 1}: error: race: thread (1, 0) of block (0, 0) reads tile_a[0]"
    )


def test_command_takes_the_parameters_of_the_template(tmp_path, capsys):
    """Any integer of the template is an option, with its default if it has one; grid and arguments are options too."""
    text = """
    // A __global__ function that nobody calls; it must not confuse.
    template <const int TILE_K, int STAGES = 2, bool TWICE = false>
    __global__ void __launch_bounds__(TILE_K * 4, STAGES)
    mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
    {
        const int row = blockIdx.x, col = blockIdx.y * TILE_K + threadIdx.x;
        if (col >= N || threadIdx.x >= TILE_K) return;
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = TWICE ? 2 * sum : STAGES == 3 ? alpha * sum : 0;
    }"""
    (tmp_path / "mine.cu").write_text(text)
    words = ["trace", str(tmp_path / "mine.cu"), "--shape", "5x6x40", "--block", "32x1"]
    words += ["--arguments", "n,m,p,float:1.0,A,B,float:0.0,C", "--grid", "n,ceil_div(m,tile_k)", "--tile_k", "16"]
    assert main([*words, "--stages", "3"]) == 0
    assert "mine float 5x6x40, blocks of 32x1 threads" in capsys.readouterr().out
    assert main(words) == 1, "the default of STAGES multiplies by 0"
    assert main([*words, "--stages=3", "--twice", "1"]) == 1
    assert main([*words, "--template", "stages,3,0", "--stages", "8"]) == 2
    assert "--tile_k: mine does not take it; it takes --stages" in capsys.readouterr().err
    assert main([*words, "--template", "tile_k,stages + 1,0", "--stages", "2"]) == 0


MISUSE = [
    ("{naive}", "naive needs --block, for example --block 32x8"),
    ("{naive} --block 64x32", "--block: 64x32 is more than 1024 threads"),
    ("{naive} --block 32y8", "argument --block: invalid size (wanted: 64x64) value: '32y8'"),
    ("{tiled} --shape 0x1x1 --tile 8", "argument --shape"),
    ("{tiled} --tile 64", "kernels/textbook/tiled.cu:19: static assertion failed: a block has at most 1024 threads"),
    ("{tiled}x --tile 8", "did you mean"),
    ("{mine} --name other --block 8x8", "there is no __global__ function 'other'; it has mine; name one with --name"),
    ("{mine} --block 8x8", "mine.cu: mine needs --width, for example --width 16"),
    ("{mine} --block 8x8 --widht 4", "--widht: mine does not take it; it takes --width"),
    ("{mode}", "what is the template argument 'width' of mode? Say it with --template"),
    ("{mine} --block 8x8 --width x", "argument --width: invalid whole number value: 'x'"),
    ("{mine} --block 8x8 --width 4 --grid wide", "--grid: 'wide': 'wide' is undefined; there are"),
    ("{mine} --block 8x8 --width 4 --arguments A,B,C", "mine<float, 4>: the function has 6 parameters, but the launch"),
    ("{naive} --block 32x8 --grid 4,4", "--grid: naive has it from kernels/registry.yaml; change it there"),
    ("{tiled} --tile 8 --block 8x8", "--block: tiled does not take it; its block follows from its other parameters"),
]


@pytest.mark.parametrize("arguments, message", MISUSE)
def test_misuse(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(ROOT)
    mine = tmp_path / "mine.cu"
    mine.write_text(
        "template <typename T, int WIDTH>\n__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m) {}"
    )
    mode = tmp_path / "mode.cu"
    mode.write_text("enum Mode { A }; " + mine.read_text().replace("int WIDTH", "Mode WIDTH").replace("mine", "mode"))
    words = arguments.format(
        mine=mine, mode=mode, **{name: f"kernels/textbook/{name}.cu" for name in ("naive", "tiled")}
    ).split()
    try:
        status = main(["trace", *words])
    except SystemExit as end:  # argparse exits in this way
        status = end.code
    assert status == 2
    assert message in capsys.readouterr().err
