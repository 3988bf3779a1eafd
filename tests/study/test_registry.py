"""The registry's entries, and the geometry that follows from them for any shape."""

import dataclasses
import itertools
import keyword
import re
import shutil

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope.launch import Array
from tilewise import KERNELS, UserError
from tilewise.study import columns, registry
from tilewise.study.device import EMULATED, Device
from tilewise.study.expressions import CONSTANTS, evaluate
from tilewise.study.points import Point, point
from tilewise.study.precision import PRECISIONS
from tilewise.study.sweeps import expand as points_of

REGISTRY = registry.load()
#: The kernels whose grid follows from `covers`, with few parameters; those of the ladder are launched in many ways.
CUDA = [kernel for kernel in REGISTRY.values() if kernel.kind == "cuda" and kernel.path.parent == KERNELS / "textbook"]
sizes = st.integers(1, 200_000)


@st.composite
def points(draw):
    """A CUDA kernel and a point of it at any shape, with parameters that its conditions allow."""
    kernel = draw(st.sampled_from(CUDA))
    values = {
        "block": st.sampled_from([(8, 128), (32, 32), (256, 4), (1, 1)]),
        "tile": st.sampled_from([1, 2, 8, 16, 32]),
        "ntb": st.integers(1, 16),
    }
    drawn = {name: draw(values[name]) for name in kernel.parameters}
    block = dict(zip(("block_x", "block_y"), drawn.pop("block", ())))
    n, p, m = draw(sizes), draw(sizes), draw(sizes)
    if kernel.requires:  # conditions are divisibility by the tile
        n, p, m = (size * drawn["tile"] for size in (n, p, m))
    return kernel, point("t", kernel.name, draw(st.sampled_from(kernel.dtypes)), n, p, m, **block, **drawn)


@given(points())
def test_the_grid_covers_c_and_no_block_more(kernel_and_point):
    kernel, at = kernel_and_point
    assert kernel.unmet(at) is None
    [entry], [launch] = kernel.launches, kernel.plan(at).launches
    rows, cols = (evaluate(e, kernel.variables(at)) for e in entry.covers)
    blocks_x, blocks_y, blocks_z = launch.grid
    assert (blocks_x - 1) * cols < at.m <= blocks_x * cols
    assert (blocks_y - 1) * rows < at.n <= blocks_y * rows
    assert blocks_z == 1


@given(points())
def test_threads_and_shared_memory_follow_from_the_parameters(kernel_and_point):
    kernel, at = kernel_and_point
    [launch] = kernel.plan(at).launches
    values = dict(at.parameters)
    if values:
        asked = (values["tile"],) * 2 if "tile" in values else (values["block_x"], values["block_y"])
        assert launch.block[:2] == asked
    else:
        assert kernel.faulty, "what a sweep may name has parameters"
    assert launch.threads <= 1024
    if kernel.name in ("multi_tile", "multi_tile_unbounded"):
        itemsize = PRECISIONS[at.dtype].itemsize
        assert launch.dynamic_shared_bytes == (1 + values["ntb"]) * values["tile"] ** 2 * itemsize
    assert launch.dynamic_shared_bytes >= 0


def test_instances_name_the_template_arguments():
    at = point("t", "multi_tile", "int32", 1, 1, 1, tile=16, ntb=3)
    assert REGISTRY["multi_tile"].plan(at).instances == ("multi_tile<int, 16, 3>",)


def test_a_broken_condition_names_the_entry():
    kernel = dataclasses.replace(REGISTRY["naive"], requires=("n / (block_x - 32) > 1",))
    with pytest.raises(UserError, match=r"registry.yaml: naive.requires: 'n / .*division by zero"):
        kernel.unmet(point("t", "naive", "float", 33, 35, 70, block_x=32, block_y=8))


@pytest.mark.parametrize("condition", ["'text'", "n", "n % 4", "none", "[1]"])
def test_a_condition_is_true_or_false(condition):
    kernel = dataclasses.replace(REGISTRY["naive"], requires=(condition,))
    with pytest.raises(UserError, match=r"registry.yaml: naive.requires: .* a condition is true or false, for example"):
        kernel.unmet(point("t", "naive", "float", 33, 35, 70, block_x=8, block_y=8))


def test_a_condition_that_a_point_breaks_is_named():
    kernel = dataclasses.replace(REGISTRY["tiled"], requires=("n % tile == 0", "p % tile == 0"))
    assert kernel.unmet(point("t", "tiled", "float", 32, 33, 32, tile=16)) == "p % tile == 0"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"kind": "library", "dtypes": ["float"]}, "title"),
        ({"title": "x", "kind": "cuda", "dtypes": ["float"]}, "source"),
        ({"title": "x", "kind": "gpu", "dtypes": ["float"]}, "cuda, triton, gluon, numba, .* host or library"),
        ({"title": "x", "kind": "library", "dtypes": ["quad"]}, "float, double, int32, int8, half, bfloat16 and tf32"),
        ({"title": "x", "kind": "library", "dtypes": ["float"], "tiles": 1}, "'tiles'"),
        ({"title": "x", "kind": "library", "dtypes": ["float"]}, "the libraries are cublas and numpy"),
        (
            {"title": "x", "kind": "library", "dtypes": ["float"], "source": "other.cpp"},
            '"other.cpp" does not belong here',
        ),
        (
            {"title": "x", "kind": "host", "dtypes": ["float"], "source": "other.cpp", "template": []},
            "mine.template: dtype is missing",
        ),
        (
            {"title": "x", "kind": "host", "dtypes": ["float"], "source": "other.cpp", "template": ["dtype", "tile"]},
            "mine.template: tile is none of its parameters",
        ),
        (
            {"title": "x", "kind": "host", "dtypes": ["float"], "source": "gone.cpp", "template": ["dtype"]},
            "there is no file",
        ),
        (
            {"title": "x", "kind": "host", "dtypes": ["float"], "source": "other.cpp", "template": ["dtype"]},
            "defines no function 'mine'",
        ),
    ],
)
def test_a_bad_entry_names_the_place_and_the_remedy(tmp_path, entry, says):
    (tmp_path / "other.cpp").write_text("template <typename T> void yours() {}")
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump({"mine": entry}))
    with pytest.raises(UserError, match=says):
        registry.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("covers", ("block_y // 64", "block_x"), "naive.covers: 'block_y // 64' is 0"),
        ("covers", ("block_y / 3", "block_x"), "naive.covers: 'block_y / 3' is 2.66"),
        ("covers", ("block_y", "block_x / 0"), "naive.covers: 'block_x / 0': division by zero"),
        ("covers", ("9 ** 9 ** 9", "1"), "naive.covers: .*too large"),
        ("covers", ("width", "1"), "naive.covers: 'width': .*there are .*block_x"),
        ("block", ("block_x", "block_y * 'a'"), "naive.block: .*for numbers"),
        ("block", ("block_x", "1e999"), "naive.block: .*not an expression"),
        ("dynamic_shared_bytes", "-4", "naive.dynamic_shared_bytes: '-4' is -4"),
        ("cluster", (4, 8), "naive.cluster: 32 blocks .*at most 16"),
        ("cluster", (2,), "naive.cluster: a grid of 3 x 5 x 1 blocks is not a multiple .*round the grid up"),
        ("template", ("dtype", "sms"), "naive.template: 'sms'"),
        ("when", "sms > 2", "naive.when: 'sms"),
        ("when", "'text'", "naive.when: ''text'' is 'text' for .*; a condition is true or false"),
        ("when", "n % 4", "naive.when: 'n % 4' is 1 for .*; a condition is true or false"),
        ("when", "n > 1000", "naive.launches: none serves naive float 33x35x70"),
        ("arguments", ("A", "B", "C", "q"), "naive.arguments: 'q': .*there are"),
        ("arguments", ("A", "B", "C", {"dtype": "n"}, {"int64": "n / 2"}), "naive.arguments: 'n / 2' is 16.5"),
        ("arguments", ({"tensor_map": "Q", "box": (8, 8)},), "naive.arguments: a tensor map of 'Q'.*A, B, C"),
        ("arguments", ({"tensor_map": "A", "box": (8,)},), "naive.arguments: the box of A has 1 sizes"),
        (
            "arguments",
            ({"tensor_map": "A", "box": (8, 8), "swizzle": 48},),
            "naive.arguments.swizzle: 48; TMA has 0, 32",
        ),
    ],
)
def test_a_launch_that_cannot_be_names_the_entry(key, value, says):
    [launch] = REGISTRY["naive"].launches
    kernel = dataclasses.replace(REGISTRY["naive"], launches=(dataclasses.replace(launch, **{key: value}),))
    with pytest.raises(UserError, match=rf"registry.yaml: {says}"):
        kernel.plan(point("t", "naive", "float", 33, 35, 70, block_x=32, block_y=8))


@pytest.mark.parametrize(
    ("argument", "shape", "says"),
    [
        (
            {"tensor_map": "A", "box": (8, 8)},
            (33, 35, 70),
            "rows of a multiple of 16 B for its tensor map of A, not of 140",
        ),
        ({"tensor_map": "B", "box": (8, 2)}, (33, 36, 72), "a box of rows of a multiple of 16 B .* not of 8 B"),
        ({"tensor_map": "B", "box": (8, 64), "swizzle": 128}, (33, 36, 72), "at most the swizzle's 128 B"),
        ({"tensor_map": "C", "box": (257, 4)}, (33, 36, 72), "at most 256 elements"),
    ],
)
def test_what_tma_refuses_is_a_condition_of_the_kernel(argument, shape, says):
    [launch] = REGISTRY["naive"].launches
    kernel = dataclasses.replace(REGISTRY["naive"], launches=(dataclasses.replace(launch, arguments=(argument,)),))
    assert re.search(says, kernel.unmet(point("t", "naive", "float", *shape, block_x=32, block_y=8)))


def test_a_workspace_of_negative_size_names_the_entry():
    spaces = {"sums": {"shape": ("n - 40", "m"), "dtype": "float"}}
    kernel = dataclasses.replace(REGISTRY["naive"], workspaces=spaces)
    with pytest.raises(UserError, match=r"naive.workspaces.sums.shape: 'n - 40' is -7 .*at least 1"):
        kernel.plan(point("t", "naive", "float", 33, 35, 70, block_x=32, block_y=8))


@pytest.mark.parametrize("capability, blocks", [("9.0", 16), ("10.0", 16), ("12.0", 8)])
def test_few_tiles_are_cut_into_as_many_parts_as_a_cluster_of_the_device_takes(capability, blocks):
    values = {"tile_n": 32, "tile_m": 32, "tile_k": 16, "thread_n": 4, "thread_m": 4, "stages": 4, "walk": 0}
    at = point("t", "split_sums", "float", 128, 8192, 128, **values)
    [launch] = REGISTRY["split_sums"].plan(at, Device.from_capability(capability, sms=132)).launches
    assert launch.cluster == (1, 1, blocks)


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True).filter(lambda name: name not in TAKEN)
TAKEN = {
    *columns.COLUMNS,
    *EMULATED.numbers(),
    "n",
    "p",
    "m",
    "itemsize",
    "dtype",
    "min",
    "max",
    "ceil_div",
    "block",
    "max_grid",
    *keyword.kwlist,
    *CONSTANTS,
}


@st.composite
def entries(draw):
    """An entry with parameters of any name and value, workspaces and several launches, and the values."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    spaces = draw(st.lists(NAMES.filter(lambda name: name not in names), max_size=2, unique=True))
    values = {name: draw(st.integers(1, 64)) for name in names}
    term = st.sampled_from([*names, "n", "p", "m", "itemsize", "2", "7"])
    expression = st.builds("{} * {} + {}".format, term, term, term)
    argument = st.one_of(
        st.sampled_from(["A", "B", "C", *spaces]),
        expression,
        st.builds(lambda kind, e: {kind: e}, st.sampled_from(["int64", "float", "double", "unsigned"]), expression),
    )
    launch = st.fixed_dictionaries(
        {
            "function": st.just("mine"),
            "template": st.lists(st.sampled_from(names), max_size=4).map(lambda some: ["dtype", *some]),
            "block": st.lists(st.sampled_from(names), min_size=1, max_size=3),
            "grid": st.lists(st.builds("ceil_div({}, {}) * sms".format, term, term), min_size=1, max_size=3),
            "arguments": st.lists(argument, max_size=8),
            "dynamic_shared_bytes": expression,
        }
    )
    entry = {"title": "mine", "kind": "cuda", "source": "mine.cu", "dtypes": ["float", "bfloat16"], "parameters": names}
    entry["workspaces"] = {name: {"shape": [draw(expression), draw(term)], "dtype": "dtype"} for name in spaces}
    return entry | {"launches": draw(st.lists(launch, min_size=1, max_size=3))}, values


@settings(max_examples=60)
@given(entries(), st.tuples(sizes, sizes, sizes))
def test_any_entry_becomes_launches(tmp_path_factory, entry_and_values, shape):
    entry, values = entry_and_values
    folder = tmp_path_factory.mktemp("any")
    (folder / "mine.cu").write_text("template <typename T> __global__ void mine(T* C) {}")
    (folder / "registry.yaml").write_text(yaml.safe_dump({"mine": entry}))
    kernels = registry.load(folder)
    kernel, at = kernels["mine"], point("t", "mine", "bfloat16", *shape, **values)
    numbers_of = kernel.variables(at) | {"sms": 4}
    launches = kernel.plan(at).launches
    assert len(launches) == len(entry["launches"])
    for launch, said in zip(launches, entry["launches"]):
        words = [str(values[name]) for name in said["template"][1:]]
        assert launch.instance == f"mine<{', '.join(['__nv_bfloat16', *words])}>"
        assert launch.block == tuple([*(values[name] for name in said["block"]), 1, 1][:3])
        assert launch.grid == tuple([*(evaluate(e, numbers_of) for e in said["grid"]), 1, 1][:3])
        assert len(launch.arguments) == len(said["arguments"])
        for argument, words in zip(launch.arguments, said["arguments"]):
            if isinstance(argument, Array):
                assert argument.name == words
            else:
                [(kind, e)] = words.items() if isinstance(words, dict) else [("int", words)]
                assert (argument.type, argument.value) == (kind, evaluate(e, numbers_of))
    for space in kernel.plan(at).workspaces:
        assert space.bytes == 2 * space.shape[0] * space.shape[1]
    assert registry.parameters(kernels) == entry["parameters"]
    row = columns.frame([at.columns()], "measurements", entry["parameters"]).iloc[0]
    assert {name: row[name] for name in values} == values
    assert all(f"{name}={value}" in at.label() for name, value in values.items())


@pytest.mark.parametrize("name", ["time_ms", "n", "sms", "ceil_div", "A", "source", "lambda", "true"])
def test_a_parameter_cannot_have_a_name_that_is_taken(tmp_path, name):
    entry = {"title": "x", "kind": "cuda", "source": "mine.cu", "dtypes": ["float"], "block": [32], "covers": [1, 32]}
    (tmp_path / "mine.cu").write_text("__global__ void mine(float* C) {}")
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump({"mine": entry | {"parameters": [name]}}))
    with pytest.raises(UserError, match=rf"mine.*'?{name}'? (is .* already|does not match)|lower case"):
        registry.load(tmp_path)


def test_a_header_that_is_missing_is_named_with_the_line_that_asks_for_it(tmp_path):
    (tmp_path / "mine.cu").write_text('#include "one.cuh"\n__global__ void mine(float* C) {}')
    (tmp_path / "one.cuh").write_text('// the first\n  #include "two.cuh"\n')
    entry = {"title": "x", "kind": "cuda", "source": "mine.cu", "dtypes": ["float"], "block": [32], "covers": [1, 32]}
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump({"mine": entry}))
    with pytest.raises(UserError, match=r"one\.cuh:2: #include \"two.cuh\": there is no such file"):
        registry.load(tmp_path)
    (tmp_path / "two.cuh").write_text('#include "one.cuh"\n#include <cuda_bf16.h>\n')
    [kernel] = registry.load(tmp_path).values()
    assert [path.name for path in kernel.files] == ["mine.cu", "one.cuh", "two.cuh"]


def test_a_registry_is_loaded_as_its_files_are(tmp_path):
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder)
    first = registry.load(folder)
    assert first["naive"].code
    code = folder / "textbook/naive.cu"
    code.write_text(f"// mine\n{code.read_text()}")
    assert registry.load(folder)["naive"].code != first["naive"].code
    entries = folder / "registry.yaml"
    text = entries.read_text()
    entries.write_text(text.replace("textbook/naive.cu", "absent.cu", 1))
    with pytest.raises(UserError, match="absent"):
        registry.load(folder)
    entries.write_text(text)
    assert registry.load(folder)["naive"].source == "textbook/naive.cu"


def test_a_dependent_kernel_without_a_wait_is_refused(tmp_path):
    entry = {"title": "mine", "kind": "cuda", "source": "mine.cu", "dtypes": ["float"], "block": [32], "grid": [1]}
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump({"mine": entry | {"dependent": True}}))
    source = "__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m) {{ {} }}"
    for wait in ('asm volatile("griddepcontrol.wait;" ::: "memory");', "cudaGridDependencySynchronize();"):
        (tmp_path / "mine.cu").write_text(source.format(wait))
        assert registry.load(tmp_path)["mine"].dependent
    (tmp_path / "mine.cu").write_text(source.format(""))
    with pytest.raises(UserError, match=r"mine\.dependent: .* never waits for earlier launches"):
        registry.load(tmp_path)


def test_every_source_has_an_entry():
    sources = {kernel.path for kernel in REGISTRY.values() if kernel.source}
    patterns = ("textbook/*.cu", "ladder/*.cu", "batched/*.cu", "host/*.cpp", "languages/*/*.py")
    assert {path for pattern in patterns for path in KERNELS.glob(pattern)} == sources


def test_every_header_is_included_by_a_kernel():
    included = {path for kernel in REGISTRY.values() for path in kernel.files}
    assert set(KERNELS.glob("include/*.cuh")) <= included


@pytest.mark.parametrize("name", [name for name, kernel in REGISTRY.items() if kernel.path.parent.name == "ladder"])
def test_a_rung_has_launches_at_every_shape(name, config):
    """Whatever the pitches, C is covered, and no workspace that is not needed is large."""
    kernel = REGISTRY[name]
    chosen = {(p.dtype, p.parameters) for task in config["tasks"] for p in tuned(config, task, name)}
    assert chosen
    for (dtype, parameters), shape in itertools.product(chosen, RAGGED):
        at = Point("t", name, dtype, *shape, parameters=parameters)
        assert kernel.unmet(at) is None, at.label()
        assert re.match(rf"{kernel.path.stem}(_exact)?<", kernel.plan(at, DEVICE).product.instance)
        assert all(launch.threads <= 1024 for launch in kernel.plan(at, DEVICE).launches)
        operands = sum(a * b for a, b in itertools.combinations(shape, 2)) * PRECISIONS[dtype].itemsize
        spaces = sum(space.bytes for space in kernel.plan(at, DEVICE).workspaces if space.name != "shares")
        assert spaces <= 3 * operands + 2**21  # residues of C have 64 columns at least


RAGGED = [(1, 1, 1), (1, 1021, 1031), (1031, 1, 7), (997, 1009, 1013), (1100, 1100, 1100), (4096, 4096, 4096)]
DEVICE = Device.from_capability("9.0", sms=132)


def tuned(config, task, name):
    """The points of a task at which it measures a kernel."""
    method = config["tasks"][task].get("method", "sweep")
    return [p for p in points_of(config, REGISTRY, task) if p.kernel == name] if method == "sweep" else []


def test_workspaces_may_follow_from_the_device():
    spaces = {"shares": {"shape": ("sms", "n"), "dtype": "float"}}
    kernel = dataclasses.replace(REGISTRY["naive"], workspaces=spaces)
    [space] = kernel.plan(point("t", "naive", "float", 33, 35, 70, block_x=32, block_y=8), DEVICE).workspaces
    assert (space.shape, space.bytes) == ((132, 33), 4 * 132 * 33)
