"""The tuner tries every variant, keeps the ones that fail as rows, measures the best few, and resumes."""

import contextlib
import dataclasses
import importlib
import random
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tilewise import UserError
from tilewise.compile import build
from tilewise.measure import task
from tilewise.measure.backends import Setting
from tilewise.measure.methods import tune
from tilewise.measure.methods.tune import Tune
from tilewise.measure.task import Work
from tilewise.rules import Study
from tilewise.study import columns, registry, tuning
from tilewise.study.sweeps import Reading, expand
from tilewise.study.verify import Check

KERNEL = """
template <typename T, int TILE, int MODE>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{
    static_assert(MODE != 2, "this variant does not compile");
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    if (row >= n || col >= m) return;
    T sum = MODE == 1 ? 1 : 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    C[row * m + col] = sum;
}
"""
ENTRY = """
mine:
  title: mine
  kind: cuda
  source: mine.cu
  template: [dtype, tile, mode]
  dtypes: [float]
  parameters: [tile, mode]
  least: {mode: 0}
  block: [tile, tile]
  covers: [tile, tile]
  dynamic_shared_bytes: 300000 if mode == 3 else 0
  space:   # 0 is right, 1 is wrong, 2 does not compile, 3 needs more shared memory than there is
    tile: [2, 4, 8]
    mode: [0, 1, 2, 3]
    requires: [mode == 0 or tile == 8]
"""
SHAPES = {"few": [{"n": 5, "p": 6, "m": 7}, {"n": 9, "p": 3, "m": 4}]}


@pytest.fixture
def study(tmp_path, config):
    """A Study of one tuning, on the emulator and on an H200, with a kernel of its own."""
    (tmp_path / "mine.cu").write_text(KERNEL)
    (tmp_path / "registry.yaml").write_text(ENTRY)
    (tmp_path / "tuned.yaml").write_text("nvidia-h200: {mine: {float: {large: {tile: 2, mode: 0}}}}\n")
    sweep = {"kernel": "mine", "dtype": "float", "shapes": "few"}
    asked = {
        "tasks": {"tune": {"title": "tune", "method": "tune", "sweeps": [sweep]}},
        "shapes": SHAPES,
        "emulator": config["emulator"] | {"shapes": SHAPES["few"]},
        "platforms": {"emulator": {"backend": "emulator"}, "nvidia-h200": {"backend": "gpu"}},
        "tuning": config["tuning"] | {"finalists": 1},
        "counters": {"sweeps": [sweep | {"tile": 2, "mode": 0}]},
    }
    return Study(config | asked, folder=tmp_path)


def work_of(study, device, folder, **changes):
    """The Work of the tuning, with all variants built."""
    points = study.points_on(device.platform, "tune")
    wanted = build.instances(points, study.kernels)
    builds = build.build(wanted, study.kernels, device, folder / "variants", workers=2)
    work = Work("tune", points, study.kernels, builds, device, study.config, folder / "samples", folder / "journal")
    return work._replace(**changes)


@pytest.fixture
def ran(monkeypatch):
    """The jobs that are run, as (what was done with it, parameters, n), in order."""
    jobs, run_jobs = [], task.run_jobs

    def spied(waiting, device, config, samples, how):
        for key, row in run_jobs(waiting, device, config, samples, how):
            jobs.append((how, *(row[name] for name in ("tile", "mode", "n"))))
            yield key, row

    monkeypatch.setattr(task, "run_jobs", spied)
    return jobs


def test_every_variant_is_a_row_also_the_ones_that_fail(study, device, tmp_path):
    found, rows = Tune().run(work_of(study, device, tmp_path))
    assert list(rows.columns) == columns.column_names("tune", ["tile", "mode"])
    assert len(rows) == 12 and found.empty, "six variants at two shapes; without a clock nothing is measured"
    status = {(row.tile, row.mode): {row.status} for row in rows.itertuples()}
    right = {(2, 0), (4, 0), (8, 0)}
    assert {key for key, values in status.items() if values == {"ok"}} == right
    assert status[8, 1] == {"incorrect"} and status[8, 2] == {"compile_error"} and status[8, 3] == {"invalid_launch"}
    words = rows.set_index("mode").message
    assert "should be" in words[1].iloc[0] and "does not compile" in words[2].iloc[0]
    assert "needs 300000 B of shared memory per block; the device allows 232448" in words[3].iloc[0]
    assert not rows.chosen.any() and rows[["gflops", "screen_ms", "time_ms"]].isna().all(axis=None)
    assert set(rows.shape_class) == {"small_ragged"} and set(rows[rows.registered].tile) == {2}


def test_a_stopped_run_goes_on_where_it_was(study, device, tmp_path, ran, monkeypatch):
    work = work_of(study, device, tmp_path)
    spied = task.run_jobs

    def killed(*arguments):
        for count, answer in enumerate(spied(*arguments)):
            if count == 3:
                raise KeyboardInterrupt
            yield answer

    with monkeypatch.context() as context:
        context.setattr(task, "run_jobs", killed)
        with pytest.raises(KeyboardInterrupt):
            Tune().run(work)
    before = ran[:3]  # the fourth had run, but its row was never written
    ran.clear()
    _, rows = Tune().run(work)
    assert len(before) == 3 and len(ran) == 8 - 3, "eight of the twelve can be launched"
    assert not set(before) & set(ran)
    ran.clear()
    _, again = Tune().run(work)
    assert ran == [] and again.equals(rows)
    Tune().run(work._replace(config=work.config | {"tuning": work.config["tuning"] | {"runs": 9}}))
    assert len(ran) == 8, "other runs are another measurement"


def test_variants_are_built_once_and_what_a_kill_left_is_used(study, device, tmp_path):
    built = work_of(study, device, tmp_path).builds
    folder = tmp_path / "variants/mine"
    libraries = {path: path.stat().st_mtime_ns for path in folder.glob("*.so")}
    assert len(libraries) == 5, "one of the six does not compile"
    lost = next(iter(libraries))
    lost.with_suffix(".json").write_text('{"file":')
    assert work_of(study, device, tmp_path).builds == built
    assert {path for path, time in libraries.items() if path.stat().st_mtime_ns != time} == {lost}
    (tmp_path / "mine.cu").write_text(KERNEL + "constexpr int edited = 1;")
    edited = {name: dataclasses.replace(kernel) for name, kernel in study.kernels.items()}
    study.kernels = edited
    work_of(study, device, tmp_path)
    assert len(list(folder.glob("*.so"))) == 10


@pytest.fixture
def h200(device):
    """A GPU, as far as the tuner needs it."""
    gpu = {"name": "NVIDIA H200", "compute_capability": "9.0", "sms": 132, "driver": "580"}
    limits = device.limits | {"registers_per_sm": 65536}
    return dataclasses.replace(device, platform="nvidia-h200", backend="gpu", gpu=gpu, limits=limits)


@pytest.fixture
def clock(monkeypatch):
    """A GPU in place of the workers': the time of a variant follows from its tile, that of few runs is not the same."""
    calls = []

    def run_jobs(jobs, device, config, samples, how):
        calls.append((how, [job.point for job in jobs], config["timing"]))
        for job in jobs:
            chosen = dict(job.point.parameters)
            row = job.row | {"status": "incorrect" if chosen["mode"] == 1 else "ok", "samples": 3}
            if row["status"] == "ok" and how == "screen":
                row |= {"screen_ms": {2: 3.0, 4: 1.0, 8: 2.0}[chosen["tile"]]}
            elif row["status"] == "ok":
                row |= {"time_ms": {2: 0.5, 4: 1.0, 8: 2.0}[chosen["tile"]], "gflops": 1.0, "noise": 0.01}
            yield job.key, row

    monkeypatch.setattr(task, "run_jobs", lambda jobs, *rest: run_jobs(jobs, *rest) if jobs else [])
    return calls


def test_the_best_few_and_the_registrys_choice_are_measured(study, h200, tmp_path, clock):
    found, rows = Tune().run(work_of(study, h200, tmp_path))
    (screen, _, _), (duel, points, timing) = clock
    assert (screen, duel) == ("screen", "duel")
    assert timing == study.config["timing"] | {"point_limit_s": study.config["tuning"]["limit_s"]}
    assert {dict(point.parameters)["tile"] for point in points} == {4, 2}, "one finalist, and the registry's"
    assert sorted(found.tile.unique()) == [2, 4] and len(found) == 4
    best = rows[rows.chosen]
    assert set(best.tile) == {2} and len(best) == 2, "the measurement decides, not the few runs"
    by_tile = rows[(rows.n == 5) & (rows["mode"] == 0)].set_index("tile")
    assert by_tile.gflops[8] == pytest.approx(2e-6 * 5 * 6 * 7 / 2.0), "only screened"
    assert by_tile.gflops[2] == pytest.approx(2e-6 * 5 * 6 * 7 / 0.5)
    assert by_tile.time_ms.isna()[8] and by_tile.screen_ms[2] == 3.0
    # NVRTC told registers and spills of what was built for an H200, without one.
    assert (by_tile.registers > 0).all() and (by_tile.spill_bytes == 0).all()
    assert rows[rows["mode"] == 2].message.str.contains("static assertion failed").all()


def test_a_variant_counts_only_if_it_is_right_at_all_shapes_of_its_class(study, h200, tmp_path, clock):
    jobs = work_of(study, h200, tmp_path).jobs()
    rows = {job.key: job.row | {"status": "ok", "time_ms": 1.0 + dict(job.point.parameters)["tile"]} for job in jobs}
    assert tune.fastest_variants(jobs, rows) == {("mine", "float", "small_ragged"): (("tile", 2), ("mode", 0))}
    wrong = next(job.key for job in jobs if dict(job.point.parameters) == {"tile": 2, "mode": 0})
    rows[wrong] |= {"status": "incorrect"}
    assert tune.fastest_variants(jobs, rows) == {("mine", "float", "small_ragged"): (("tile", 4), ("mode", 0))}


def test_registers_and_threads_are_checked_before_a_launch(study, h200, tmp_path):
    work = work_of(study, h200, tmp_path)
    job = next(job for job in work.jobs() if dict(job.point.parameters) == {"tile": 8, "mode": 0})
    [launch] = job.launches

    def refused(**entry):
        found = tune._refused(job, {"mine": {launch.instance: entry}}, h200.limits)
        return found and found["message"]

    assert refused(registers=255, shared_bytes=1000) is None, "64 threads may have 255"
    large = dataclasses.replace(launch, block=(32, 16, 1))
    job = dataclasses.replace(job, launches=(large,))
    assert refused(registers=128, shared_bytes=0) is None
    assert "needs 69632 registers per block; the device allows 65536" in refused(registers=129, shared_bytes=0)
    assert "needs 232449 B of shared memory" in refused(registers=32, shared_bytes=232449)
    job = dataclasses.replace(job, launches=(dataclasses.replace(launch, block=(64, 32, 1)),))
    assert "needs 2048 threads" in refused(registers=16, shared_bytes=0)


def test_the_choices_are_kept_in_the_registry(study, h200, tmp_path, clock, monkeypatch, capsys):
    from tilewise import __main__ as command

    _, rows = Tune().run(work_of(study, h200, tmp_path))
    results = tmp_path / "results/nvidia-h200"
    (results / "tune").mkdir(parents=True)
    monkeypatch.setattr(command, "KERNELS", tmp_path)
    monkeypatch.setattr(command.registry, "load", lambda: study.kernels)
    assert command.main(["tuned", str(results)]) == 2
    assert "the tuner has chosen nothing here" in capsys.readouterr().err
    columns.set_types(rows).to_csv(results / "tune/mine.csv", index=False)
    assert command.main(["tuned", str(results)]) == 0
    shown = "nvidia-h200:\n  mine:\n    float:\n      small_ragged: {tile: 2, mode: 0}\n"
    assert capsys.readouterr().out == shown
    (tmp_path / "tuned.yaml").write_text("# why\n\nother-gpu: {mine: {float: {large: {tile: 8, mode: 0}}}}\n")
    assert command.main(["tuned", str(results), "--write"]) == 0
    text = (tmp_path / "tuned.yaml").read_text()
    assert text.startswith("# why\n\nother-gpu:\n  mine:\n    float:\n      large: {tile: 8, mode: 0}\n")
    assert text.endswith(shown)
    monkeypatch.undo()
    kernel = registry.load(tmp_path)["mine"]
    assert kernel.tuned["nvidia-h200"]["float"] == {"small_ragged": {"tile": 2, "mode": 0}}


def test_a_tuning_runs_only_if_it_is_named(study, config):
    assert study.tasks == [] and study.tunings == ["tune"] and study.tuned["tune"] == ["mine"]
    whole = Study(config | {"platforms": {"here": {"backend": "gpu"}}})
    assert "tune" not in whole.tasks and whole.tunings == ["tune"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kernel": "min"}, "did you mean 'mine'"),
        ({"dtype": "double"}, "mine is not for double"),
        ({"tilt": 4}, "did you mean 'tile'"),
        ({"mode": -1}, "whole numbers of at least 0"),
        ({"shapes": "none"}, "there is no 'none'"),
        ({"tuned": True}, "looks for the choice"),
    ],
)
def test_a_mistake_in_a_tuning_is_found_before_anything_is_built(study, tmp_path, change, message):
    sweep = {"kernel": "mine", "dtype": "float", "shapes": "few"} | change
    asked = {"tune": {"title": "tune", "method": "tune", "sweeps": [sweep]}}
    with pytest.raises(UserError, match=message):
        Study(study.config | {"tasks": asked}, folder=tmp_path)


def test_a_kernel_without_a_space_needs_its_parameters(study, tmp_path):
    text = (tmp_path / "registry.yaml").read_text()
    (tmp_path / "registry.yaml").write_text(text[: text.index("  space:")])
    with pytest.raises(UserError, match=r"needs 'tile'.*or give its entry in .* a `space`"):
        Study(study.config, folder=tmp_path)
    sweep = {"kernel": "mine", "dtype": "float", "shapes": "few", "tile": [2, 4], "mode": 0}
    asked = {"tune": {"title": "tune", "method": "tune", "sweeps": [sweep]}}
    assert len(Study(study.config | {"tasks": asked}, folder=tmp_path).points_on("nvidia-h200", "tune")) == 4


def test_a_kernel_is_tuned_by_one_task(study, tmp_path):
    tasks = study.config["tasks"] | {"more": study.config["tasks"]["tune"]}
    with pytest.raises(UserError, match=r"tasks\.more: mine is tuned by tune already"):
        Study(study.config | {"tasks": tasks}, folder=tmp_path)


# ---- The few runs on a GPU, with a GPU that is not there -------------------------------------------------------------


@pytest.fixture
def jobs(study, h200, tmp_path):
    """The tuning's jobs for an H200 by parameters, at one shape."""
    found = work_of(study, h200, tmp_path).jobs()
    return {tuple(dict(job.point.parameters).values()): job for job in found if job.point.n == 5}


@pytest.fixture
def screen(monkeypatch, study, h200, tmp_path, jobs):
    """A function that screens the tuning's jobs on CUDA's backend, whose launches and clock are invented.

    It takes the times in ms that the clock shows, in the order in which it is read, and returns the rows and what was
    done: "operands", "launch", "change", "flush", "verify".
    """
    cupy = MagicMock()
    for name in ("cupy", "cupy.cuda", "cuda.bindings", *MODULES):
        monkeypatch.setitem(sys.modules, name, cupy)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name)
    cuda, arrays = (importlib.import_module(f"tilewise.measure.backends.{name}") for name in ("cuda", "operands"))
    done: list[str] = []

    class Operands:
        shape = A = B = C = None
        chance = random.Random()

        def __init__(self, config):
            pass

        def prepare(self, *shape, **_):
            if shape != self.shape:
                done.append("operands")
            self.shape = shape

        def see(self):
            pass

        def check_seen(self):
            return Check(self.right, 1e-7, 0.01 if self.right else 9.0, "" if self.right else "C[0, 0] is wrong")

    def run(jobs, times, settings):
        clock = iter(times)

        @contextlib.contextmanager
        def elapsed():
            found = []
            yield found
            found.append(next(clock))

        def bound(job, A, B, C, arena=None):
            Operands.right = dict(job.point.parameters)["mode"] != 1
            return lambda stream: done.append("launch"), {"registers": 40}, []

        cupy.empty.return_value.fill.side_effect = lambda value: done.append("flush")

        def perturbed(job, launch, operands, spaces):
            def verified():
                done.append("verify")
                return Check(True, 1e-7, 0.01)

            return SimpleNamespace(launch=launch, perturb=lambda change: done.append("change"), verified=verified)

        for name, value in (
            ("Operands", Operands),
            ("elapsed", elapsed),
            ("uuid", lambda: "GPU-1"),
            ("perturbed", perturbed),
        ):
            monkeypatch.setattr(cuda, name, value)
        monkeypatch.setattr(arrays, "bound", bound)
        monkeypatch.setattr(cuda.verify, "poison", lambda *_: None)
        rows: list[dict] = []
        device = dataclasses.replace(h200, gpu=h200.gpu | {"l2_bytes": 1000, "memory_bandwidth_gb_s": 1000})
        config = study.config | {"tuning": study.config["tuning"] | settings}
        cuda.Backend(Setting(device, config, tmp_path)).screen(jobs, rows.append)
        assert next(clock, None) is None
        return rows, done

    yield run
    for name in MODULES:
        sys.modules.pop(name, None)


MODULES = [f"tilewise.{name}" for name in ("nvidia.launcher", "nvidia.cublas")]
MODULES += [f"tilewise.measure.backends.{name}" for name in ("cuda", "operands")]


def test_a_slow_variant_is_not_run_again_and_a_wrong_one_not_timed(jobs, screen):
    order = [jobs[2, 0], jobs[8, 1], jobs[4, 0], jobs[8, 0]]
    rows, done = screen(order, [2.0, 3.0, 2.5, 3.8, 1.0, 2.0, 1.5], {"runs": 3, "give_up": 1.5})
    # 2: three runs; 8 wrong: none; 4: 3.8 is more than 1.5 * 2.5; 8: three runs, and the best from then on.
    assert [row["status"] for row in rows] == ["ok", "incorrect", "ok", "ok"]
    assert [row.get("screen_ms") for row in rows] == [2.5, None, 3.8, 1.5]
    assert [row["samples"] for row in rows] == [3, 0, 1, 3]
    assert {row["gpu_uuid"] for row in rows} == {"GPU-1"}
    once, timed = ["launch"], ["change", "flush", "launch"]
    but_checks = [what for what in done if what != "verify"]
    assert but_checks == ["operands", *once, *timed * 3, *once, *once, *timed, *once, *timed * 3]
    assert done.count("verify") == 3, "one product of each that is timed"
    assert done.count("launch") == 4 + 7 and done.count("flush") == 7 and done.count("operands") == 1


# ---- The study's own spaces and choices ------------------------------------------------------------------------------

AT = {
    "huge": (16384, 16384, 16384),
    "large": (8192, 8192, 8192),
    "medium": (4096, 4096, 4096),
    "narrow": (8192, 8192, 1024),
    "small": (1024, 1024, 1024),
    "small_ragged": (1100, 1100, 1100),
    "long": (1024, 8192, 1024),
}


def test_every_shape_has_the_class_that_its_name_says():
    assert {name: tuning.shape_class(dict(zip("npm", shape))) for name, shape in AT.items()} == {n: n for n in AT}
    assert tuning.shape_class({"n": 1, "p": 1, "m": 1}) == "small_ragged"
    assert tuning.shape_class({"n": 8192, "p": 1024, "m": 8192}) == "large"


def test_every_choice_of_the_registry_is_a_variant_that_the_tuner_tries(kernels):
    choices = tuning.load(registry.KERNELS)
    assert "nvidia-h200" in choices
    for name, types in choices["nvidia-h200"].items():
        kernel = kernels[name]
        for dtype, classes in types.items():
            for word, choice in classes.items():
                assert all(value in kernel.space[key] for key, value in choice.items()), (name, dtype, word)
                n, p, m = AT[word]
                sweep = {"kernel": name, "dtype": dtype, "shapes": "at", **choice}
                asked = {"tasks": {"t": {"sweeps": [sweep]}}, "shapes": {"at": [{"n": n, "p": p, "m": m}]}}
                assert len(expand(asked, kernels, "t", reading=Reading(space=True))) == 1, (name, dtype, word)


def test_the_ladder_and_the_languages_that_have_sizes_are_tuned(kernels, config):
    rungs = {name for name, kernel in kernels.items() if "ladder/" in (kernel.source or "")}
    rungs |= {name for name, kernel in kernels.items() if "languages/" in (kernel.source or "") and kernel.space}
    study = Study(config | {"platforms": {"here": {"backend": "gpu"}}})
    assert set(study.tuned["tune"]) == rungs
    for name in rungs:
        assert set(kernels[name].space) == set(kernels[name].parameters)
