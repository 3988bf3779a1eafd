"""On a real GPU: every kernel is verified and timed, and a point that goes wrong ends only itself."""

import dataclasses
import json

import pytest

from tilewise.build import build
from tilewise.measure import probe
from tilewise.measure import task as measure
from tilewise.study.points import Point, expand

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu(config):
    """device.json of this machine."""
    return probe.capture("here", "gpu", config)


@pytest.fixture
def run(tmp_path, gpu, config, kernels):
    """A function that builds the kernels of some points, measures the points and returns their rows."""

    def measured(points, registry=kernels, limit_s=60, **settings):
        builds = {}
        for name in {point.kernel for point in points if registry[point.kernel].source}:
            builds[name] = tmp_path / "build" / name
            instances = sorted({registry[name].instance(p) for p in points if p.kernel == name})
            build.build(registry[name], instances, gpu, builds[name])
        timing = config["timing"] | {"min_time_s": 0.01, "min_samples": 3, "point_limit_s": limit_s, "timeout_s": 0.5}
        everything = config | {"timing": timing} | settings
        return measure.measure_task(
            points, registry, builds, gpu, everything, tmp_path / "samples", tmp_path / "journal"
        )

    return measured


def test_every_kernel_and_dtype_is_right_on_ragged_shapes(run, config, kernels):
    shapes = {"ragged": config["emulator"]["shapes"]}
    points = []
    for task in config["tasks"]:
        if config["tasks"][task].get("method", "sweep") == "sweep":
            points += [
                p for p in expand(config | shapes, kernels, task, "emulator") if kernels[p.kernel].kind == "cuda"
            ]
    points = list({dataclasses.replace(p, task="t"): None for p in points})[::7]
    rows = run(points)
    assert set(rows.status) == {"ok"}, rows[rows.status != "ok"].message.tolist()
    assert (rows.time_ms > 0).all() and (rows.samples >= 3).all() and (rows.sm_clock_mhz > 100).all()
    assert (rows.batch_ms > 0).all() and (rows.registers > 0).all()
    assert (rows.time_min_ms <= rows.time_q1_ms).all() and (rows.time_q1_ms <= rows.time_ms).all()


def test_cublas_is_verified_and_timed(run, tmp_path):
    rows = run([Point("t", "cublas", dtype, 100, 101, 103) for dtype in ("float", "double")])
    assert rows.status.tolist() == ["ok", "ok"]
    assert (rows.bound_ratio < 1).all()
    [benchmark] = json.loads((tmp_path / "samples/nvbench-0.json").read_text())["benchmarks"]
    assert len(benchmark["states"]) == 2


def test_whole_rows_are_checked_where_the_reference_is_too_dear(run, config):
    limits = {"verification": {"rows": 5, "full_limit_gflop": {"gpu": 1e-9, "cpu": 1}}}
    rows = run([Point("t", "tiled", "float", 200, 100, 300, 16, 16, 16)], **limits)
    assert rows.status[0] == "ok" and rows.message[0] == "5 of 200 rows checked"


def with_line(kernels, folder, line):
    """The registry with a naive kernel that has one more line."""
    text = kernels["naive"].path.read_text()
    old = "    C[static_cast"
    assert old in text
    (folder / "naive.cu").write_text(text.replace(old, f"    {line}\n{old}"))
    return kernels | {"naive": dataclasses.replace(kernels["naive"], folder=folder)}


def naive(n, block=(32, 8)):
    return Point("t", "naive", "float", n, n, n, *block)


def test_a_sticky_error_ends_only_its_own_point(run, kernels, tmp_path):
    broken = with_line(kernels, tmp_path, "if (n == 65) *reinterpret_cast<volatile int*>(16) = 1;")
    rows = run([naive(64), naive(65), naive(66)], broken)
    assert rows.status.tolist() == ["ok", "error", "ok"]
    assert "ILLEGAL" in rows.message[1].upper()


def test_a_hang_is_a_timeout_and_ends_only_its_own_point(run, kernels, tmp_path):
    broken = with_line(kernels, tmp_path, "for (volatile int i = 0; n == 65; ++i) {}")
    rows = run([naive(64), naive(65), naive(66)], broken, limit_s=15)
    assert rows.status.tolist() == ["ok", "timeout", "ok"]


def test_a_wrong_product_is_never_timed(run, kernels, tmp_path):
    broken = with_line(kernels, tmp_path, "if (n == 65 && row == 3) sum += 1;")
    rows = run([naive(64), naive(65), naive(66)], broken)
    assert rows.status.tolist() == ["ok", "incorrect", "ok"]
    assert rows.time_ms.isna().tolist() == [False, True, False]
    assert "C[3, " in rows.message[1]


def test_a_refused_launch_carries_cudas_name(run):
    rows = run([naive(64, (64, 32)), naive(64)])
    assert rows.status.tolist() == ["invalid_launch", "ok"]
    assert rows.message[0].startswith("CUDA_ERROR_")


def test_shared_memory_past_the_default_is_asked_for(run, gpu, kernels):
    points = [Point("t", "multi_tile", "double", 70, 40, 600, 32, 32, 32, ntb) for ntb in (8, 64)]
    rows = run(points)
    assert rows.status.tolist() == ["ok", "invalid_launch"]
    assert rows.shared_bytes[0] == 9 * 32 * 32 * 8


def test_memory_that_is_not_there_is_a_row(run):
    n = 400_000  # each matrix of floats takes 640 GB
    rows = run([Point("t", "naive", "float", n, n, n, 32, 8), naive(64)])
    assert rows.status.tolist() == ["out_of_memory", "ok"]
