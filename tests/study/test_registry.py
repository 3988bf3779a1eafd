"""The registry's entries, and the geometry that follows from them for any shape."""

import dataclasses

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tilewise import KERNELS, UserError
from tilewise.study import registry
from tilewise.study.points import Point
from tilewise.study.registry import DTYPES

REGISTRY = registry.load()
CUDA = [kernel for kernel in REGISTRY.values() if kernel.kind == "cuda"]
sizes = st.integers(1, 200_000)


@st.composite
def points(draw):
    """A CUDA kernel and one of its points, at any shape, with parameters that its conditions allow."""
    kernel = draw(st.sampled_from(CUDA))
    tile = draw(st.sampled_from([1, 2, 8, 16, 32])) if "tile" in kernel.parameters else None
    ntb = draw(st.integers(1, 16)) if "ntb" in kernel.parameters else None
    x, y = (
        draw(st.sampled_from([(8, 128), (32, 32), (256, 4), (1, 1)])) if "block" in kernel.parameters else (None, None)
    )
    n, p, m = draw(sizes), draw(sizes), draw(sizes)
    if kernel.requires:  # conditions are divisibility by the tile
        n, p, m = n * tile, p * tile, m * tile
    return kernel, Point("t", kernel.name, draw(st.sampled_from(kernel.dtypes)), n, p, m, x, y, tile, ntb)


@given(points())
def test_the_grid_covers_c_and_no_block_more(kernel_and_point):
    kernel, point = kernel_and_point
    assert kernel.unmet(point) is None
    geometry = kernel.geometry(point)
    rows, columns = (registry.evaluate(e, kernel.variables(point)) for e in kernel.covers)
    blocks_x, blocks_y = geometry.grid
    assert (blocks_x - 1) * columns < point.m <= blocks_x * columns
    assert (blocks_y - 1) * rows < point.n <= blocks_y * rows


@given(points())
def test_threads_and_shared_memory_follow_from_the_parameters(kernel_and_point):
    kernel, point = kernel_and_point
    geometry = kernel.geometry(point)
    expected = (point.tile, point.tile) if point.tile else (point.block_x, point.block_y)
    assert geometry.block == expected
    assert geometry.threads <= 1024
    if kernel.name == "multi_tile":
        itemsize = DTYPES[point.dtype][1].itemsize
        assert geometry.dynamic_shared_bytes == (1 + point.ntb) * point.tile**2 * itemsize
    assert geometry.dynamic_shared_bytes >= 0


def test_instances_name_the_template_arguments():
    point = Point("t", "multi_tile", "int32", 1, 1, 1, 16, 16, 16, 3)
    assert REGISTRY["multi_tile"].instance(point) == "multi_tile<int, 16, 3>"


def test_a_broken_condition_names_the_entry():
    kernel = dataclasses.replace(REGISTRY["naive"], requires=("n / (block_x - 32) > 1",))
    with pytest.raises(UserError, match=r"registry.yaml: naive.requires: 'n / .*division by zero"):
        kernel.unmet(Point("t", "naive", "float", 33, 35, 70, 32, 8))


def test_a_condition_that_a_point_breaks_is_named():
    kernel = dataclasses.replace(REGISTRY["tiled"], requires=("n % tile == 0", "p % tile == 0"))
    assert kernel.unmet(Point("t", "tiled", "float", 32, 33, 32, 16, 16, 16)) == "p % tile == 0"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"kind": "library", "dtypes": ["float"]}, "title"),
        ({"title": "x", "kind": "cuda", "dtypes": ["float"]}, "source"),
        ({"title": "x", "kind": "gpu", "dtypes": ["float"]}, "cuda, host or library"),
        ({"title": "x", "kind": "library", "dtypes": ["half"]}, "float, double and int32"),
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
        ("covers", ("block_y", "block_x / 0"), "naive.covers: 'block_x / 0': division by zero"),
        ("block", ("block_x", "block_y * 'a'"), "naive.block: .* must be a whole number of at least 1"),
        ("dynamic_shared_bytes", "-4", "naive.dynamic_shared_bytes: '-4' is -4"),
    ],
)
def test_a_launch_that_is_no_launch_names_the_entry(key, value, says):
    kernel = dataclasses.replace(REGISTRY["naive"], **{key: value})
    with pytest.raises(UserError, match=says):
        kernel.geometry(Point("t", "naive", "float", 33, 35, 70, 32, 8))


def test_every_source_has_an_entry():
    sources = {kernel.path for kernel in REGISTRY.values() if kernel.source}
    assert set(KERNELS.glob("*.cu")) | set(KERNELS.glob("host/*.cpp")) == sources


def test_an_expression_with_an_unknown_name_says_which_there_are():
    with pytest.raises(UserError, match="width"):
        registry.evaluate("2 * width", {"tile": 2})
