"""On a real GPU: a point that goes wrong ends only itself; launches of every kind, the tuner and energy."""

import dataclasses

import numpy as np
import pytest
from builders import work_of

from tilewise import UserError
from tilewise.measure.methods import METHODS
from tilewise.measure.methods.tune import Tune
from tilewise.study import registry
from tilewise.study.points import point

pytestmark = pytest.mark.gpu


@pytest.mark.gpu(alone=True)
def test_the_tuner_screens_all_variants_and_measures_the_best(tmp_path, gpu, config, kernels, built_for_gpu):
    points = [point("t", "tiled", "float", n, n, n, tile=tile) for tile in (2, 8, 16, 32) for n in (512, 500)]
    settings = config | {"tuning": config["tuning"] | {"finalists": 2}}
    found, rows = Tune().run(work_of(points, kernels, gpu, settings, tmp_path, built_for_gpu(points, kernels, gpu)))
    assert set(rows.status) == {"ok"} and (rows.screen_ms > 0).all() and (rows.registers > 0).all()
    assert rows.groupby("shape_class").time_ms.count().to_dict() == {"small": 2, "small_ragged": 2} and len(found) == 4
    assert (rows[rows.chosen].tile > 2).all() and len(rows[rows.chosen]) == 2
    both = rows[rows.time_ms.notna()]
    assert ((both.screen_ms / both.time_ms).between(0.5, 2)).all(), "a few runs tell about the same as NVBench"


@pytest.mark.gpu(alone=True)
def test_energy_on_the_gpu(gpu, config, kernels, tmp_path):
    shape = {"n": 2048, "p": 2048, "m": 2048}
    points = [point("t", "cublas", "float", **shape), point("t", "tiled", "float", **shape, tile=32)]
    _, rows = METHODS["energy"].run(work_of(points, kernels, gpu, config, tmp_path))
    assert set(rows.status) == {"ok"}, rows.message.tolist()
    assert (rows.energy_s >= config["energy"]["seconds"]).all() and (rows.counted_products > 10).all()
    assert rows.watts.between(50, 2000).all(), "a board takes hundreds of watts"
    assert rows.gflop_per_joule[0] > rows.gflop_per_joule[1]


def with_line(kernels, folder, line):
    """The registry with a naive kernel that has one more line."""
    text = kernels["naive"].path.read_text()
    old = "    C[static_cast"
    assert old in text
    (folder / "naive.cu").write_text(text.replace(old, f"    {line}\n{old}"))
    return kernels | {"naive": dataclasses.replace(kernels["naive"], folder=folder, source="naive.cu")}


def naive(n, block=(32, 8)):
    return point("t", "naive", "float", n, n, n, block_x=block[0], block_y=block[1])


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
    points = [point("t", "multi_tile", "double", 70, 40, 600, tile=32, ntb=ntb) for ntb in (8, 64)]
    rows = run(points)
    assert rows.status.tolist() == ["ok", "invalid_launch"]
    assert rows.shared_bytes[0] == 9 * 32 * 32 * 8


def test_memory_that_is_not_there_is_a_row(run):
    n = 400_000  # each matrix of floats takes 640 GB
    rows = run([naive(n), naive(64)])
    assert rows.status.tolist() == ["out_of_memory", "ok"]


TWO_LAUNCHES = """
#include "turned.cuh"
#include <cuda_bf16.h>

// A workspace, a tensor map, a cluster, numbers of three types and a grid of as many blocks as multiprocessors.
struct alignas(64) Tensor { char bytes[128]; };

template <typename T>
__global__ void turn(const T* B, T* turned, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < p && col < m) turned[static_cast<long long>(col) * p + row] = B[static_cast<long long>(row) * m + col];
}

template <typename T, int WIDTH>
__global__ void mine(float alpha, const T* A, const T* turned, const __grid_constant__ Tensor tensor, T* C, long long n,
                     int p, int m)
{
    if (reinterpret_cast<const unsigned long long*>(tensor.bytes)[0] == 0) return;  // a map has the array's address
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n * m; i += threads)
        C[i] = alpha * dot<T, WIDTH>(A + i / m * p, turned + i % m * p, p);
}
"""
TURNED = """
template <typename T, int WIDTH>
__device__ float dot(const T* a, const T* b, int p)
{
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += float(a[k]) * float(b[k]);
    return sum;
}
"""
MINE = """
mine:
  title: two launches
  kind: cuda
  source: mine.cu
  dtypes: [float, bfloat16]
  parameters: [width]
  needs: [tma, clusters]
  workspaces: {turned: {shape: [m, p], dtype: dtype}}
  launches:
    - {function: turn, template: [dtype], block: [32, 8], grid: ["ceil_div(m, 32)", "ceil_div(p, 8)"],
       arguments: [B, turned, p, m]}
    - {template: [dtype, width], block: [width], grid: [2 * sms], cluster: [2],
       arguments: [{float: 1.0}, A, turned, {tensor_map: A, box: [8, 8], swizzle: 32}, C, {int64: n}, p, m]}
"""


def test_launches_with_a_workspace_a_tensor_map_and_a_cluster(run, tmp_path):
    (tmp_path / "mine.cu").write_text(TWO_LAUNCHES)
    (tmp_path / "turned.cuh").write_text(TURNED)
    (tmp_path / "registry.yaml").write_text(MINE)
    kernels = registry.load(tmp_path)
    rows = run([point("t", "mine", dtype, 37, 64, 41, width=64) for dtype in ("float", "bfloat16")], kernels)
    assert rows.status.tolist() == ["ok", "ok"], rows.message.tolist()
    assert (rows.time_ms > 0).all() and rows.gpu_uuid.str.startswith("GPU-").all()


ONE_GRID = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// The first half of the grid's work is read by other blocks after the whole grid has met.
__global__ void mine(const float* A, const float* B, float* C, float* turned, int n, int p, int m)
{
    const cg::grid_group grid = cg::this_grid();
    for (int i = grid.thread_rank(); i < p * m; i += grid.size()) turned[i % m * p + i / m] = B[i];
    grid.sync();
    for (int i = grid.thread_rank(); i < n * m; i += grid.size()) {
        float sum = 0;
        for (int k = 0; k < p; ++k) sum += A[i / m * p + k] * turned[i % m * p + k];
        C[i] = sum;
    }
}
"""
ONE_GRID_ENTRY = """
mine:
  title: one grid
  kind: cuda
  source: mine.cu
  dtypes: [float]
  parameters: [wave]
  workspaces: {turned: {shape: [m, p], dtype: dtype}}
  function: mine
  template: []
  cooperative: true
  block: [256]
  grid: [wave]
  arguments: [A, B, C, turned, n, p, m]
"""


def test_a_cooperative_launch_meets_as_one_grid_and_is_refused_if_it_is_larger_than_the_card(run, gpu, tmp_path):
    (tmp_path / "mine.cu").write_text(ONE_GRID)
    (tmp_path / "registry.yaml").write_text(ONE_GRID_ENTRY)
    kernels = registry.load(tmp_path)
    rows = run(
        [point("t", "mine", "float", 137, 64, 141, wave=count) for count in (gpu.numbers()["sms"], 4096)], kernels
    )
    assert rows.status.tolist() == ["ok", "invalid_launch"], rows.message.tolist()
    assert rows.time_ms[0] > 0 and "COOPERATIVE_LAUNCH_TOO_LARGE" in rows.message[1]


def test_arguments_that_are_not_the_functions_are_a_row(run, tmp_path):
    (tmp_path / "mine.cu").write_text(TWO_LAUNCHES)
    (tmp_path / "turned.cuh").write_text(TURNED)
    (tmp_path / "registry.yaml").write_text(MINE.replace("{int64: n}", "n"))
    rows = run(
        [point("t", "mine", "float", 37, 64, 41, width=64), point("t", "mine", "float", 8, 8, 8, width=64)],
        registry.load(tmp_path),
    )
    assert set(rows.status) == {"error"}
    assert "mine.arguments" in rows.message[0] and "takes" in rows.message[0]


def test_a_point_without_a_sample_of_its_own_is_no_other_points_time(tmp_path):
    from tilewise.measure.backends.cuda import Samples

    samples = Samples(tmp_path / "nvbench-0.json")
    for kind in ("bin", "freqs-bin"):
        (tmp_path / f"nvbench-0.json-{kind}").mkdir()
    with pytest.raises(UserError, match="no sample"):
        samples.last()
    for kind, value in (("bin", 0.001), ("freqs-bin", 1.98e9)):
        np.array([value], "<f4").tofile(tmp_path / f"nvbench-0.json-{kind}" / "0.bin")
    assert samples.last()["times_ms"] == [pytest.approx(1)]
    with pytest.raises(UserError, match="no sample"):
        samples.last()
    for number in (1, 2):  # a run may have several timers
        for kind, value in (("bin", 0.001 * (1 + number)), ("freqs-bin", 1.98e9)):
            np.array([value], "<f4").tofile(tmp_path / f"nvbench-0.json-{kind}" / f"{number}.bin")
    assert samples.last()["times_ms"] == [pytest.approx(3)]


def test_code_of_an_older_family_loads_as_ptx(tmp_path, kernels):
    """As on a GPU that is newer than every toolkit. A driver before 550 does not say the sizes of parameters."""
    from tilewise.nvidia import launcher, nvrtc

    code, entry = nvrtc.cubin_of(kernels["naive"].path, "naive.cu", "naive<float>", "compute_80")
    (tmp_path / "naive.ptx").write_bytes(code)
    function = launcher.load(str(tmp_path / "naive.ptx"), entry["symbol"])
    assert function.registers > 0 and function.parameter_bytes in ((8, 8, 8, 4, 4, 4), ())
