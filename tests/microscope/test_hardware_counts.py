"""The microscope counts what an H200 counts."""

import dataclasses

import pytest
from builders import KERNELS, trace, traced

from kernelscope.limits import EMULATED_LIMITS
from kernelscope.yaml_input import read_yaml
from tilewise import ROOT
from tilewise.measure.counters import cross_check_points
from tilewise.nvidia.ncu import METRICS
from tilewise.study import columns, registry

PARAMETERS = registry.parameters(KERNELS)
CROSS_CHECK = cross_check_points(read_yaml(ROOT / "config/config.yaml"), KERNELS)
SOURCE_A = ("naive", "tiled", "multi_tile")
SQUARE = (256, 256, 256)


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


@pytest.mark.slow
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
    "dmma_ring": (  # three stores of a note for five, issued at every step, mostly without a lane; loads wait for TMA
        "shared_load_requests",
        "shared_load_wavefronts",
        "shared_bank_conflicts",
        "shared_store_requests",
        "shared_store_wavefronts",
    ),
    "double_always": ("shared_store_requests", "shared_store_wavefronts"),  # as dmma_ring
    "double_from_int8": ("shared_store_requests", "shared_store_wavefronts", "shared_bank_conflicts"),  # nvcc joins
    "wgmma_tf32": ("shared_load_wavefronts",),  # as float_from_half
    "dmma_split": ("shared_load_requests",),  # as dmma_pipelined
    "mma_split": ("shared_load_requests",),  # as mma_sync
    "wgmma_split": ("shared_load_requests",),  # loads from other blocks are no LDS
    "clusters": ("shared_store_requests",),  # stmatrix
    "wgmma_turns": ("shared_store_requests",),  # as clusters
    "split_sums": (  # loads as pipelined; its copies of 4 bytes conflict, which the hardware counts as no store
        "shared_load_requests",
        "shared_store_wavefronts",
        "shared_bank_conflicts",
    ),
    "float_from_half": ("shared_load_wavefronts", "shared_store_requests"),  # loads wait for wgmma
    "float_always": (  # as float_from_half
        "shared_load_requests",
        "shared_load_wavefronts",
        "shared_store_requests",
        "shared_store_wavefronts",
    ),
}
#: What atomic operations write, in requests and sectors: the microscope counts them as stores, the hardware does not.
ATOMIC = {"float_always": (8, 8), "double_from_int8": (1024, 1024)}


@pytest.fixture(scope="module")
def rungs(tmp_path_factory):
    """Counted and hardware columns of every kernel of the ladder."""
    asked = [at for at in CROSS_CHECK if at.kernel not in SOURCE_A]
    ladder = {name for name, kernel in KERNELS.items() if kernel.path.parent.name == "ladder"}
    assert {at.kernel for at in asked} == ladder | {"naive_transposed"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EMULATED_LIMITS, "sms", 132)  # as an H200 has: stream_k cuts its work into so many shares
        return beside(asked, tmp_path_factory.mktemp("rungs"))


@pytest.mark.slow
def test_the_ladders_counts_are_the_hardwares(rungs):
    compared = 0
    for _, row in rungs.iterrows():
        counted, measured = ({column: row[column + end] for column in METRICS} for end in ("", "_hw"))
        for way in ("load", "store"):
            for unit in ("requests", "sectors"):  # TMA does not pass the pipeline of loads and stores
                counted[f"global_{way}_{unit}"] -= row[f"tma_{way}_{unit}"]
        for unit, atomic in zip(("requests", "sectors"), ATOMIC.get(row.kernel, (0, 0))):
            counted[f"global_store_{unit}"] -= atomic
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
