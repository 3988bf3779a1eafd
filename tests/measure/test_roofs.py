"""A rate that cannot be is not `ok`: above what the units of a GPU do, or what its memory lets through."""

import pytest

from tilewise import RECORDED
from tilewise.files import read_json
from tilewise.measure import roofs
from tilewise.study.points import Point, point

GPU = read_json(RECORDED / "nvidia-h200/device.json")["gpu"]


@pytest.fixture
def row(kernels):
    """A function that makes the row of a product that took some ms, as `possible` leaves it."""

    def made(at: Point, measured, gpu=GPU):
        return roofs.reject_impossible({"status": "ok", "message": ""}, measured, kernels[at.kernel], at, gpu)

    return made


def at_rate(at, gflops):
    return {"time_ms": 2e-6 * at.multiply_adds / gflops, "gflops": gflops}


#: A kernel, its type, what decides its roof, and that in GFLOP/s, of an H200.
ROOFS = [
    (point("t", "naive", "float", 8192, 8192, 8192), 66_908, "the peak of float"),
    (point("t", "cublas", "double", 8192, 8192, 8192), 66_908, "the peak of double"),
    (point("t", "cublas_half", "half", 8192, 8192, 8192), 1_070_531, "the peak of half"),
    (point("t", "float_from_half", "float", 8192, 8192, 8192), 356_844, "half, 3 products for one of float"),
    (point("t", "float_from_bf16", "float", 8192, 8192, 8192), 178_422, "bfloat16, 6 products for one of float"),
    (point("t", "three_tf32", "float", 8192, 8192, 8192), 178_422, "tf32, 3 products for one of float"),
    (point("t", "double_from_int8", "double", 8192, 8192, 8192, moduli=15), 142_737, "int8, 15 products for one of do"),
    (point("t", "cublas_emulated", "double", 8192, 8192, 8192), 133_816, "int8, 16 products for one of double"),
    (Point("t", "batched_wgmma", "bfloat16", 128, 16, 128, (), 4096), 98_597, "the memory"),
    (point("t", "cublas_bf16", "bfloat16", 16384, 16, 16384), 87_061, "the memory"),
]


@pytest.mark.parametrize(("at", "gflops", "words"), ROOFS, ids=[at.kernel for at, *_ in ROOFS])
def test_a_rate_above_the_roof_is_incorrect(row, at, gflops, words):
    below = row(at, at_rate(at, 1.005 * gflops))
    assert (below["status"], below["message"]) == ("ok", "") and below["gflops"] == 1.005 * gflops
    above = row(at, at_rate(at, 1.02 * gflops))
    assert above["status"] == "incorrect" and "time_ms" not in above and "gflops" not in above
    assert f"are above the roof of {gflops:,d}, " in above["message"] and words in above["message"], above["message"]


def test_a_roof_that_is_too_low_calls_a_right_kernel_wrong_and_a_margin_does_not(row):
    at = point("t", "tiled", "float", 4096, 4096, 4096)
    peaks = GPU["peak_gflops"]
    for share, status in ((1.0, "ok"), (0.995, "ok"), (0.9, "incorrect")):
        slower = GPU | {"peak_gflops": peaks | {"float": share * peaks["float"]}}
        assert row(at, at_rate(at, peaks["float"]), slower)["status"] == status
    unknown = GPU | {"peak_gflops": None}
    assert row(at, at_rate(at, 10 * peaks["float"]), unknown)["status"] == "ok", "whose units nobody knows"
    assert row(at, at_rate(at, 100 * peaks["float"]), unknown)["status"] == "incorrect", "but its memory"


@pytest.mark.parametrize(
    "measured",
    [
        {"time_ms": 20.0, "gflops": 54_976.0, "batch_ms": 1.0},
        {"screen_ms": 1.0, "samples": 3},
        {"gflops": 1e6, "joules": 1},
    ],
    ids=["a batch", "the tuner's few runs", "energy"],
)
def test_every_time_counts(row, measured):
    found = row(point("t", "naive", "float", 8192, 8192, 8192), measured)
    assert found["status"] == "incorrect" and not set(measured) & set(found)


@pytest.mark.parametrize("n", [256, 1024, 4096, 8192])
def test_what_reads_a_b_and_c_instead_of_multiplying_is_above_the_roof(row, n):
    """From a size on: at the memory's bandwidth n^3 operations take longer than to read 3 n^2 numbers."""
    at = point("t", "naive", "float", n, n, n)
    read_ms = 1e-6 * 12 * n**2 / GPU["memory_bandwidth_gb_s"]
    assert row(at, {"time_ms": read_ms})["status"] == "incorrect"


def test_on_a_cpu_there_is_no_roof(kernels, row):
    assert roofs.units_roof({"dtype": "float"}, kernels["naive"], {}) is None
