"""The config becomes points: all that source a asks for, and none that no device could run."""

import copy
import dataclasses
import itertools
import re

import pytest
import yaml

from kernelscope.yaml_input import read_yaml
from tilewise import KERNELS, UserError
from tilewise.rules import Study
from tilewise.study import registry, tuning
from tilewise.study.points import point
from tilewise.study.sweeps import Target, check_unswept, expand

SHAPES_OF_SOURCE_A = {  # (n, p, m); the source writes (n, m, p)
    (1024, 1024, 1024),
    (1024, 8192, 1024),
    (8192, 1024, 8192),
    (8192, 8192, 1024),
    (8192, 8192, 8192),
}


def shapes(points):
    return {(point.n, point.p, point.m) for point in points}


@pytest.mark.parametrize("task", ["cpu", "task1a", "task1b", "task2a", "task2b", "task3"])
def test_tasks_run_at_the_five_shapes(config, kernels, task):
    more = {(1100, 1100, 1100)} if task == "cpu" else set()  # the loop beside task4
    assert shapes(expand(config, kernels, task)) == SHAPES_OF_SOURCE_A | more


def test_task1a_is_every_block_at_every_shape(config, kernels):
    points = [p for p in expand(config, kernels, "task1a") if p.kernel == "naive"]
    assert len(points) == 40
    assert {tuple(dict(p.parameters).values()) for p in points} == {
        (8, 128),
        (16, 64),
        (32, 32),
        (64, 16),
        (128, 8),
        (256, 4),
        (512, 2),
        (1024, 1),
    }


def test_task3_is_every_ntb(config, kernels):
    points = [p for p in expand(config, kernels, "task3") if p.kernel == "multi_tile"]
    of_source = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16}
    assert {dict(p.parameters)["ntb"] for p in points if p.dtype == "float"} == of_source | {20, 24, 32}
    square = [p for p in points if p.n == p.p == p.m == 8192]
    assert len(square) == (11 + 3) * 2 * 2
    assert {p.dtype for p in points if p not in square} == {"float"}
    assert {dict(p.parameters)["tile"] for p in points if p not in square} == {32}


def test_a_sweep_that_is_only_timed_has_no_points_on_the_emulator(config, kernels):
    sweep = {"kernel": "naive", "dtype": "float", "shapes": "square", "block": "1024x1"}
    study = config | {
        "tasks": {"t": {"title": "t", "sweeps": [sweep | {"block": "8x8"}, sweep | {"only_timed": True}]}}
    }
    blocks = {
        how: {dict(p.parameters)["block_x"] for p in expand(study, kernels, "t", target)}
        for how, target in {
            "gpu": Target(),
            "emulator": Target("emulator"),
            "traced": Target(only_timed=False),
        }.items()
    }
    assert blocks == {"gpu": {8, 1024}, "emulator": {8}, "traced": {8}}


def test_a_faulty_kernel_is_traced_and_never_swept(config, kernels):
    faulty = {name for name, kernel in kernels.items() if kernel.faulty}
    assert faulty == {"without_barriers", "parallel_k"}
    traced = {p.kernel for p in Study(config).traced_points(config["trace"]["shapes"])}
    assert faulty <= traced
    sweep = {"kernel": "parallel_k", "dtype": "float", "shapes": "square"}
    with pytest.raises(UserError, match=r"tasks.t.sweeps.0.kernel: parallel_k has a fault on purpose"):
        expand(config | {"tasks": {"t": {"title": "t", "sweeps": [sweep]}}}, kernels, "t")


def test_every_gpu_task_has_cublas_beside_it(config, kernels):
    for task in ("task1a", "task1b", "task2a", "task2b", "task3"):
        points = expand(config, kernels, task)
        anchored = {(p.dtype, p.n, p.p, p.m) for p in points if p.kernel == "cublas"}
        assert anchored == {(p.dtype, p.n, p.p, p.m) for p in points if p.dtype != "int32"}


def test_a_point_asked_for_twice_is_one_point(config, kernels):
    twice = copy.deepcopy(config)
    twice["tasks"]["task2a"]["sweeps"] *= 2
    assert expand(twice, kernels, "task2a") == expand(config, kernels, "task2a")


def test_emulator_runs_cuda_kernels_at_its_own_shapes_and_cpu_loops_at_theirs(config, kernels):
    small = {(s["n"], s["p"], s["m"]) for s in config["emulator"]["shapes"]}
    assert shapes(expand(config, kernels, "task3", Target("emulator"))) == small
    assert shapes(expand(config, kernels, "cpu", Target("emulator"))) == SHAPES_OF_SOURCE_A | {(1100, 1100, 1100)}
    assert not [p for p in expand(config, kernels, "task3", Target("emulator")) if p.kernel == "cublas"]


def test_label_names_the_point():
    assert point("t", "tiled", "float", 3, 4, 5, tile=16).label() == "tiled float 3x4x5 tile=16"


def sweep(task, **change):
    def apply(config):
        config["tasks"][task]["sweeps"][0] |= change

    return apply


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.update(sed=1), ["sed", "'seed'"]),
        (lambda c: c["shapes"]["square"][0].update(n=-1), ["shapes.square.0.n", "at least 1"]),
        (lambda c: c["shapes"]["square"][0].update(n=0), ["shapes.square.0.n", "at least 1"]),
        (lambda c: c["timing"].update(min_samples="ten"), ["timing.min_samples", "for example 10"]),
        (sweep("task1a", kernel="nave"), ["tasks.task1a.sweeps.0.kernel", "'naive'"]),
        (sweep("task1a", dtype="quad"), ["tasks.task1a.sweeps.0.dtype", "double"]),
        (sweep("task1a", dtype="half"), ["tasks.task1a.sweeps.0.dtype", "not for half", "double"]),
        (sweep("task1a", block="64x32"), ["2048 threads", "32x32"]),
        (sweep("task1a", block="64"), ["tasks.task1a.sweeps.0.block", "32x8"]),
        (sweep("task1a", tile=16), ["does not take 'tile'", "block"]),
        (sweep("task2a", tile=64), ["4096 threads", "1024"]),
        (sweep("task2a", tile=0), ["tasks.task2a.sweeps.0.tile", "at least 1"]),
        (sweep("task2a", shapes="sqare"), ["tasks.task2a.sweeps.0.shapes", "'square'"]),
        (sweep("task2a", tils=8), ["'tils'", "'tile'"]),
        (lambda c: c["tasks"]["task3"]["sweeps"][0].pop("ntb"), ["needs 'ntb'"]),
        (lambda c: c["tasks"]["task3"]["sweeps"][0].pop("shapes"), ["'shapes' is missing"]),
        (lambda c: c["tasks"]["task3"].pop("title"), ["tasks.task3", "title"]),
        (sweep("task1c", dtype=["float", "double"]), ["tasks.task1c", "one dtype and choice of naive, not 2"]),
        (
            sweep("launch_limits", kernel="kij"),
            ["tasks.launch_limits.sweeps.0.kernel", "one, such as naive; `tilewise list"],
        ),
        (sweep("cold_start", shapes="square_4096"), ["tasks.cold_start", "one shape and dtype"]),
    ],
)
def test_bad_config_names_the_place_and_the_remedy(config, kernels, change, says):
    bad = copy.deepcopy(config)
    change(bad)
    with pytest.raises(UserError) as error:
        Study(bad)
    for words in says:
        assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_sweep_leaves_out_what_a_kernel_does_not_take(config, kernels):
    kernel = dataclasses.replace(kernels["tiled"], requires=("n % tile == 0",))
    registry = kernels | {"tiled": kernel}
    study = copy.deepcopy(config)
    study["shapes"]["mine"] = [{"n": 24, "p": 5, "m": 7}]
    sweep = {"kernel": "tiled", "dtype": "float", "shapes": "mine", "tile": [8, 16, 24]}
    study["tasks"]["mine"] = {"title": "mine", "sweeps": [sweep]}
    assert [dict(p.parameters)["tile"] for p in expand(study, registry, "mine")] == [8, 24]
    sweep["tile"] = 16
    with pytest.raises(UserError, match=r"tasks.mine.sweeps.0: tiled float 24x5x7 tile=16: tiled requires n % tile"):
        expand(study, registry, "mine")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"grid": ("n // (tile - tile)",), "covers": ()}, "tiled.grid: .*by zero"),
        ({"block": (-4,)}, "tiled.block: '-4' is -4"),
        ({"dynamic_shared_bytes": "tile * 'a'"}, r"tiled.dynamic_shared_bytes: .*'\*' is for numbers"),
        ({"template": ("tile[0]",)}, "tiled.template: .*not subscriptable"),
    ],
)
def test_an_entry_that_no_sweep_names_is_evaluated_when_the_study_is_read(kernels, change, says):
    [launch] = kernels["tiled"].launches
    tiled = dataclasses.replace(kernels["tiled"], launches=(dataclasses.replace(launch, **change),))
    broken = {"naive": kernels["naive"], "tiled": tiled}
    with pytest.raises(UserError, match=rf"registry.yaml: {says}"):
        check_unswept(broken, ())
    check_unswept(broken, ["tiled"])


def test_a_study_evaluates_the_entries_that_it_leaves_out(config, tmp_path):
    for name in ("naive", "lonely"):
        (tmp_path / f"{name}.cu").write_text(f"template <typename T> __global__ void {name}(T* C) {{}}")
    entries = {
        "naive": {"title": "x", "kind": "cuda", "source": "naive.cu", "dtypes": ["float"], "template": ["dtype"]}
    }
    entries["naive"] |= {"parameters": ["block"], "block": ["block_x", "block_y"], "covers": ["block_y", "block_x"]}
    entries["lonely"] = entries["naive"] | {"source": "lonely.cu", "covers": ["block_y // 0", "block_x"]}
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump(entries))
    sweep = {"kernel": "naive", "dtype": "float", "shapes": "square", "block": "8x8"}
    study = config | {"tasks": {"t": {"title": "t", "sweeps": [sweep]}}, "counters": {"sweeps": [sweep]}}
    with pytest.raises(UserError, match=r"lonely.covers: 'block_y // 0': .*division"):
        Study(study, folder=tmp_path)


def test_every_kernel_has_a_choice_at_which_it_is_evaluated(kernels):
    check_unswept(kernels, ())


# Sweeps that take their parameters from the registry.

CHOICES = """
nvidia-h200:
  tiled: {float: {large: {tile: 32}, small: {tile: 8}}}
other-gpu:
  tiled: {float: {large: {tile: 16}}, int32: {large: {tile: 4}}}
"""


@pytest.fixture(scope="module")
def entries():
    """The entries of two kernels."""
    entries = read_yaml(KERNELS / "registry.yaml")
    return {name: entries[name] for name in ("naive", "tiled")}


@pytest.fixture
def tuned(tmp_path, config, entries):
    """A function that expands one sweep with `tuned: true` for a platform."""
    (tmp_path / "textbook").mkdir()
    for path in (KERNELS / "textbook/tiled.cu", KERNELS / "textbook/naive.cu"):
        (tmp_path / "textbook" / path.name).symlink_to(path)
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump(entries))
    (tmp_path / "tuned.yaml").write_text(CHOICES)
    kernels = registry.load(tmp_path)

    def points(gpu="nvidia-h200", backend="gpu", **sweep):
        asked = {"kernel": "tiled", "dtype": "float", "shapes": ["square", "square_1024", "square_1100"], "tuned": True}
        task = {"title": "t", "sweeps": [asked | sweep]}
        return expand(config | {"tasks": {"t": task}}, kernels, "t", Target(backend, gpu))

    return points


def tiles(points):
    return {point.n: dict(point.parameters)["tile"] for point in points}


def test_a_sweep_takes_what_was_tuned_for_the_gpu_and_the_class_of_each_shape(tuned):
    assert tiles(tuned()) == {8192: 32, 1024: 8, 1100: 32}, "a class that is not there takes the first"
    assert tiles(tuned("other-gpu")) == {8192: 16, 1024: 16, 1100: 16}
    assert tiles(tuned("third-gpu")) == tiles(tuned()), "a GPU that is not there takes the first"
    assert tiles(tuned(dtype="int32")) == {8192: 4, 1024: 4, 1100: 4}, (
        "a GPU without the type takes the first that has it"
    )
    assert tiles(tuned(tile=4)) == {8192: 4, 1024: 4, 1100: 4}, "what the sweep names comes first"


def test_every_gpu_that_was_tuned_runs_the_whole_study(config):
    kernels = registry.load()
    tasks = {
        name for name, task in config["tasks"].items() if any(each.get("tuned") for each in task.get("sweeps", []))
    }
    for gpu, task in itertools.product(tuning.load(KERNELS), tasks):
        assert expand(config, kernels, task, Target("gpu", gpu))


def test_the_emulator_verifies_the_choices_of_all_shapes(tuned, config):
    points = tuned(backend="emulator")
    at = {(shape["n"], shape["p"], shape["m"]) for shape in config["emulator"]["shapes"]}
    assert {(p.n, p.p, p.m) for p in points} == at
    for shape in at:
        assert {dict(p.parameters)["tile"] for p in points if (p.n, p.p, p.m) == shape} == {8, 32}


def test_a_choice_that_the_registry_lacks_is_named(tuned):
    with pytest.raises(UserError, match=r"tasks.t.sweeps.0.tuned: .*tuned.yaml has no choice of tiled for double"):
        tuned(dtype="double")
    with pytest.raises(UserError, match=r"no choice of naive for float; name the parameters here \(block\)"):
        tuned(kernel="naive")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nvidia-h200: {tilde: {float: {large: {tile: 8}}}}", "there is no kernel 'tilde'"),
        ("nvidia-h200: {tiled: {half: {large: {tile: 8}}}}", "nvidia-h200.tiled.half: the kernel takes float, double"),
        ("nvidia-h200: {tiled: {float: {large: {tilt: 8}}}}", "large: 'tilt' is not one of its parameters"),
        ("nvidia-h200: {tiled: {float: {large: {}}}}", "large: 'tile' is missing"),
        ("nvidia-h200: {tiled: {float: {vast: {tile: 8}}}}", "a class of shapes: long, small"),
        (
            "nvidia-h200: {tiled: {float: {large: {tile: 1.5}}}}",
            "1.5 is not right; expected a whole number, or a block",
        ),
    ],
)
def test_a_mistake_in_tuned_yaml_is_named(tuned, tmp_path, text, message):
    (tmp_path / "tuned.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        registry.load(tmp_path)


def test_a_kernel_that_no_small_shape_suits_keeps_its_points_on_the_emulator(config, kernels):
    """They are at the sweep's own shape, which is not run: a row says so."""
    large = dataclasses.replace(kernels["naive"], requires=("n > 1000",))
    points = expand(config, kernels | {"naive": large}, "task1b", Target("emulator"))
    assert points and shapes(points) == {(1024, 1024, 1024)}
    assert len({p.parameters for p in points}) == len(
        {p.parameters for p in expand(config, kernels, "task1b", Target("emulator"))}
    )
