"""On a real GPU: every kernel is verified and timed, and a point that goes wrong ends only itself."""

import dataclasses
import json

import numpy as np
import pytest
from builders import work_of

from tilewise import UserError
from tilewise.measure import grading, probe, residues
from tilewise.measure import task as measure
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.methods import METHODS
from tilewise.measure.methods.tune import Tune
from tilewise.study import columns, registry
from tilewise.study.points import Point, point
from tilewise.study.sweeps import Reading, Target, expand

pytestmark = pytest.mark.gpu
BATCHED = Reading(batches=True)
LIBRARIES = [
    ("cublas", "float"),
    ("cublas", "double"),
    ("cublas_tf32", "tf32"),
    ("cublas_bf16", "bfloat16"),
    ("cublas_half", "half"),
]


@pytest.fixture(scope="module")
def gpu():
    """device.json of this machine."""
    return probe.capture("here", "gpu")


@pytest.fixture
def work(tmp_path, gpu, config, kernels, built_for_gpu):
    """A function that builds the kernels of some points and returns the Work of measuring them quickly."""

    def work(points, registry=kernels, limit_s=60, **settings):
        timing = config["timing"] | {"min_time_s": 0.01, "min_samples": 3, "point_limit_s": limit_s, "timeout_s": 0.5}
        everything = config | {"timing": timing} | settings
        builds = built_for_gpu(points, registry, gpu)
        return work_of(points, registry, gpu, everything, tmp_path, builds)

    return work


@pytest.fixture
def run(work):
    """A function that builds the kernels of some points, measures the points and returns their rows."""

    def measured(*arguments, **options):
        return measure.measure_task(work(*arguments, **options))[0]

    return measured


def test_every_kernel_and_dtype_is_right_on_ragged_shapes(run, config, kernels):
    shapes = {"ragged": config["emulator"]["shapes"]}
    points = []
    for task in config["tasks"]:
        if config["tasks"][task].get("method", "sweep") == "sweep":
            expanded = expand(config | shapes, kernels, task, Target("emulator"))
            points += [p for p in expanded if kernels[p.kernel].kind == "cuda"]
    points = list({dataclasses.replace(p, task="t"): None for p in points})[::7]
    rows = run(points)
    assert set(rows.status) == {"ok"}, rows[rows.status != "ok"].message.tolist()
    assert (rows.time_ms > 0).all() and (rows.samples >= 3).all() and (rows.sm_clock_mhz > 100).all()
    assert (rows.batch_ms > 0).all() and (rows.registers > 0).all()
    assert (rows.time_min_ms <= rows.time_q1_ms).all() and (rows.time_q1_ms <= rows.time_ms).all()


#: No size is a multiple of any tile; rows of 4, 8, 16 B and of none of these; one row, one column, short and long sums.
RUNG_SHAPES = [
    (1, 1, 1),
    (1, 37, 1),
    (1, 1021, 259),
    (1031, 64, 1),
    (1021, 1, 1031),
    (263, 2, 521),
    (33, 35, 70),
    (127, 129, 131),
    (129, 65, 257),
    (257, 24, 1100),
    (1100, 36, 1100),
    (97, 1100, 103),
    (300, 200, 520),
    (4100, 20, 3076),
    (997, 1009, 1013),
]
#: Parts of 22 bits, or sums of bfloat16 parts, are not within float's bound for sums of so few products.
FLOAT_FROM_SHORT = {"float_from_half": 4, "float_from_bf16": 3, "three_tf32": 4}


def test_every_rung_is_right_on_ragged_shapes_as_it_is_tuned(work, config, kernels):
    """They are verified and run a few times, as the tuner screens them: a shape with all its kernels in a row."""
    tuned = {}
    for task, entry in config["tasks"].items():
        if entry.get("method", "sweep") == "sweep":
            for at in expand(config, kernels, task):
                if kernels[at.kernel].path.parent.name == "ladder":
                    tuned[at.kernel, at.dtype, at.parameters] = at
    assert {name for name, _, _ in tuned} == {
        name for name, kernel in kernels.items() if kernel.path.parent.name == "ladder"
    }
    points = [dataclasses.replace(at, task="t", n=n, p=p, m=m) for n, p, m in RUNG_SHAPES for at in tuned.values()]
    points.sort(key=lambda at: (at.n, at.p, at.m, at.dtype))  # so that the operands are the same for as long as can be
    asked = work(points)
    answers = dict(measure.run_jobs(asked.jobs(), asked.device, asked.config, asked.samples, "screen"))
    rows = columns.frame(list(answers.values()), "measurements", asked.parameters)
    assert len(rows) == len(points)
    too_short = rows.p < rows.kernel.map(FLOAT_FROM_SHORT).where(rows.dtype == "float").fillna(0)
    too_short |= (rows.moduli == 13) & (rows.p < 32)  # each operand keeps 48 bits or so, which only long sums hide
    wrong = rows[(rows.status != "ok") & ~too_short]
    assert wrong.empty, wrong[["kernel", "dtype", "n", "p", "m", "status", "message"]].to_string()
    assert set(rows.status[too_short]) <= {"ok", "incorrect"}
    assert set(rows.status[too_short & (rows.n == 1021)]) == {"incorrect"}, "a million sums of one product"


#: A batch and its ragged shape; rows of 16 B and of others, tiles that end in the middle of a matrix.
BATCHES = [
    (1, 33, 35, 70),
    (3, 33, 35, 70),
    (7, 130, 40, 200),
    (5, 129, 65, 257),
    (300, 1, 16, 8),
    (8, 1024, 1024, 1024),
]


def test_every_product_of_a_batch_is_right_on_ragged_shapes(work, config, kernels):
    asked = {(at.kernel, at.dtype, at.parameters): at for at in expand(config, kernels, "batches", reading=BATCHED)}
    short = [("batched_wgmma", "half", at.parameters) for at in asked.values() if at.kernel == "batched_wgmma"]
    every = [*asked, *short, ("cublas", "double", ()), ("cublas_half", "half", ())]
    points = [
        Point("t", kernel, dtype, n, p, m, parameters, batch)
        for batch, n, p, m in BATCHES
        for kernel, dtype, parameters in every
    ]
    points.sort(key=lambda at: (at.batch, at.n, at.p, at.m, at.dtype))
    work = work(points)
    rows = [row for _, row in measure.run_jobs(work.jobs(), work.device, work.config, work.samples, "screen")]
    assert len(rows) == len(points)
    wrong = [(row["kernel"], row["dtype"], row["message"]) for row in rows if row["status"] != "ok"]
    assert not wrong, wrong


def test_doubles_of_bytes_are_right_at_200_random_shapes(work):
    rng = np.random.default_rng()
    chosen = {"moduli": 15, "tile_m": 128, "stages": 6, "cluster_blocks": 1, "band": 16}
    sides = [(int(n), int(p), int(m)) for n, p, m in rng.integers([1, 24, 1], [700, 1500, 700], size=(200, 3))]
    points = [
        point("t", "double_from_int8", "double", *shape, accurate=number % 2, **chosen)
        for number, shape in enumerate(sides)
    ]
    asked = work(points)
    rows = [row for _, row in measure.run_jobs(asked.jobs(), asked.device, asked.config, asked.samples, "screen")]
    wrong = [(row["n"], row["p"], row["m"], row["message"]) for row in rows if row["status"] != "ok"]
    assert len(rows) == 200 and not wrong, wrong


def test_doubles_of_bytes_are_the_models_to_the_last_bit(work, gpu, config, tmp_path):
    """Of operands whose exponents are spread by exp(phi x), which few moduli refuse in part."""
    rng = np.random.default_rng()
    points = [
        point("t", "double_from_int8", "double", n, p, m, moduli=moduli, accurate=accurate, **chosen)
        for n, p, m in ((1, 40, 3), (24, 130, 17), (70, 64, 9))
        for moduli in range(13, 19)
        for accurate in (0, 1)
        for chosen in ({"tile_m": 128, "stages": 6, "cluster_blocks": 1, "band": 16},)
    ]
    backend = open_backend("cuda", Setting(gpu, config, tmp_path))
    for job in work(points).jobs():
        at, (phi, seed) = job.point, rng.integers([0, 0], [5, 2**32])
        shape, chosen = (at.n, at.p, at.m), dict(at.parameters)
        A, B = grading.operands(np, "double", grading.WIDE, *shape, int(seed), int(phi))
        C, row = backend.multiply(job, backend.xp.asarray(A), backend.xp.asarray(B))
        wanted = residues.product(A, B, chosen["moduli"], bool(chosen["accurate"]))
        assert row["status"] == "ok" and np.array_equal(C.get(), wanted, equal_nan=True), (at.label(), phi, seed)


def test_the_tuner_screens_all_variants_and_measures_the_best(tmp_path, gpu, config, kernels, built_for_gpu):
    points = [point("t", "tiled", "float", n, n, n, tile=tile) for tile in (2, 8, 16, 32) for n in (512, 500)]
    settings = config | {"tuning": config["tuning"] | {"finalists": 2}}
    found, rows = Tune().run(work_of(points, kernels, gpu, settings, tmp_path, built_for_gpu(points, kernels, gpu)))
    assert set(rows.status) == {"ok"} and (rows.screen_ms > 0).all() and (rows.registers > 0).all()
    assert rows.groupby("shape_class").time_ms.count().to_dict() == {"small": 2, "small_ragged": 2} and len(found) == 4
    assert (rows[rows.chosen].tile > 2).all() and len(rows[rows.chosen]) == 2
    both = rows[rows.time_ms.notna()]
    assert ((both.screen_ms / both.time_ms).between(0.5, 2)).all(), "a few runs tell about the same as NVBench"


def test_the_accuracy_gate_on_the_gpu(gpu, config, kernels, tmp_path, built_for_gpu):
    """What the registry claims holds, one accumulator fails, and the model predicts the errors within a factor of 2."""
    method = METHODS["accuracy"]
    points = [at for at in expand(config, kernels, "accuracy_gate") if at.p == 1024]
    _, rows = method.run(work_of(points, kernels, gpu, config, tmp_path, built_for_gpu(points, kernels, gpu)))
    measured, predicted = (rows[rows.origin == origin] for origin in ("measured", "predicted"))
    assert set(measured.status) == {"ok"}, measured.message.tolist()
    assert set(measured.verdict[measured.claimed]) == {"passes"}
    assert set(measured.verdict[measured.kernel == "three_tf32"]) == {"fails"}
    refused = measured[(measured.kernel == "float_from_half") & (measured.operands == "steep_along_k")]
    assert set(refused.verdict) == {"refuses"}
    both = measured.merge(predicted, on=["kernel", "p", "operands"], suffixes=("", "_model"))
    both = both[both.relative_error.notna()]
    factor = both.relative_error / both.relative_error_model
    asked = both.groupby("kernel").size()
    assert len(asked) == 4 and asked.min() >= 6 and factor.between(0.5, 2).all(), both.assign(factor=factor).to_string()


def test_energy_on_the_gpu(gpu, config, kernels, tmp_path):
    shape = {"n": 2048, "p": 2048, "m": 2048}
    points = [point("t", "cublas", "float", **shape), point("t", "tiled", "float", **shape, tile=32)]
    _, rows = METHODS["energy"].run(work_of(points, kernels, gpu, config, tmp_path))
    assert set(rows.status) == {"ok"}, rows.message.tolist()
    assert (rows.energy_s >= config["energy"]["seconds"]).all() and (rows.counted_products > 10).all()
    assert rows.watts.between(50, 2000).all(), "a board takes hundreds of watts"
    assert rows.gflop_per_joule[0] > rows.gflop_per_joule[1]


def test_cublas_is_verified_and_timed(run, tmp_path):
    rows = run(
        [point("t", name, dtype, n, 101, m) for name, dtype in LIBRARIES for n, m in ((100, 103), (1, 1), (1, 64))]
    )
    assert set(rows.status) == {"ok"}, rows.message.tolist()
    assert (rows.bound_ratio < 1).all() and (rows.time_ms > 0).all()
    [benchmark] = json.loads((tmp_path / "samples/nvbench-0.json").read_text())["benchmarks"]
    assert len(benchmark["states"]) == len(rows) == 15


def test_whole_rows_are_checked_where_the_reference_is_too_dear(run, config):
    limits = {"verification": {"rows": 5, "full_limit_gflop": {"gpu": 1e-9, "cpu": 1}}}
    rows = run([point("t", "tiled", "float", 200, 100, 300, tile=16)], **limits)
    assert rows.status[0] == "ok" and rows.message[0] == "5 of 200 rows checked"


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
  capability: "9.0"
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
  parameters: [blocks]
  workspaces: {turned: {shape: [m, p], dtype: dtype}}
  function: mine
  template: []
  cooperative: true
  block: [256]
  grid: [blocks]
  arguments: [A, B, C, turned, n, p, m]
"""


def test_a_cooperative_launch_meets_as_one_grid_and_is_refused_if_it_is_larger_than_the_card(run, gpu, tmp_path):
    (tmp_path / "mine.cu").write_text(ONE_GRID)
    (tmp_path / "registry.yaml").write_text(ONE_GRID_ENTRY)
    kernels = registry.load(tmp_path)
    rows = run(
        [point("t", "mine", "float", 137, 64, 141, blocks=count) for count in (gpu.numbers()["sms"], 4096)], kernels
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
    from tilewise.nvidia.backend import Samples

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
