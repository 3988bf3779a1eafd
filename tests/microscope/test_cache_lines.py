"""The model of a cache counts what a plain simulation of the same loop counts, and the loops need no change for it."""

import faulthandler
import itertools
from collections import OrderedDict

import pytest

from tilewise import RECORDED, UserError
from tilewise.evidence import load_evidence
from tilewise.explain import counts
from tilewise.rules import Study
from tilewise.study.kernel import Kernel, LaunchEntry
from tilewise.study.points import Point
from tilewise.traced import cache_lines

LINE, PAGE = 64, 4096
ORDERS = ["ijk", "ikj", "jik", "jki", "kij", "kji"]
SMALL = {"l1": {"bytes": 512, "ways": 2}, "l2": {"bytes": 2048, "ways": 4}}


@pytest.fixture(scope="module")
def count(kernels, tmp_path_factory):
    def count(points, **model):
        frame, messages = cache_lines.count(points, kernels, SMALL | model, tmp_path_factory.mktemp("lines"))
        assert not messages
        return frame.to_dict("records")

    return count


class Lru:
    """A cache of sets in the order of last use, in Python's own words."""

    def __init__(self, bytes, ways):
        self.ways = ways
        self.sets = [OrderedDict() for _ in range(bytes // LINE // ways)]
        self.fetched = 0

    def misses(self, line):
        lines = self.sets[line % len(self.sets)]
        known = line in lines
        lines[line] = None
        lines.move_to_end(line)
        if not known:
            self.fetched += 1
            if len(lines) > self.ways:
                lines.popitem(last=False)
        return not known


def simulated(row, width, model):
    """Lines that each level fetches in the window of a row of cache_lines.csv, by the accesses of its loop in order."""

    def pages(elements):
        return -(-elements * width // PAGE) * PAGE

    def touch(matrix, i, j, k):
        element = {"A": i * p + k, "B": k * m + j, "C": i * m + j}[matrix]
        at = starts[matrix] + element * width
        next((level for level in levels if not level.misses(at // LINE)), None)

    order, n, p, m = (row[name] for name in ("kernel", "n", "p", "m"))
    starts = {"A": 0, "B": pages(n * p), "C": pages(n * p) + pages(p * m)}
    levels = [Lru(**model[name]) for name in ("l1", "l2")]
    sizes = {"i": n, "j": m, "k": p}
    inner = order[2]
    fixed = {"i": "B", "j": "A", "k": "C"}[inner]  # does not depend on the innermost index
    if fixed != "C":
        for i, j in itertools.product(range(n), range(m)):
            touch("C", i, j, 0)  # C = 0
    for number, place in enumerate(itertools.product(*(range(sizes[name]) for name in order))):
        index = dict(zip(order, place, strict=True))
        if fixed != "C" and index[inner] == 0:
            touch(fixed, **index)  # read once, before the innermost loop
        if number == row["multiply_adds"]:
            before = [level.fetched for level in levels]
        if number == 2 * row["multiply_adds"]:
            break
        for matrix in {"i": "A", "j": "B", "k": "AB"}[inner]:
            touch(matrix, **index)
        if fixed != "C" or index[inner] == sizes[inner] - 1:
            touch("C", **index)  # a sum over the innermost index is written once, after it
    return [level.fetched - earlier for level, earlier in zip(levels, before, strict=True)]


@pytest.mark.slow
def test_the_model_counts_what_a_plain_simulation_counts(count):
    shapes = [(12, 12, 12), (16, 16, 16), (17, 5, 9), (4, 31, 8), (8, 9, 33), (1, 20, 20), (3, 3, 3), (2, 1, 1)]
    points = [Point("t", order, dtype, *shape) for order in ORDERS for shape in shapes for dtype in ("float", "double")]
    rows = count(points, multiply_adds=700)
    assert len(rows) == len(points)
    for row in rows:
        assert row["multiply_adds"] == min(700, row["n"] * row["p"] * row["m"] // 2)
        assert [row["l1_lines"], row["l2_lines"]] == simulated(row, row["element_bytes"], SMALL), row


def test_a_row_costs_a_sixteenth_of_a_line_and_a_column_a_whole_one(count):
    model = {"l1": {"bytes": 49152, "ways": 12}, "l2": {"bytes": 2097152, "ways": 16}, "multiply_adds": 2_000_000}
    rows = count([Point("t", name, "float", 800, 800, 800) for name in ("ikj", "ijk", "jki")], **model)
    lines = [row["l1_lines"] / row["multiply_adds"] for row in rows]
    assert lines == pytest.approx([1 / 16, 1 + 1 / 32, 2], rel=0.01)


def test_columns_a_power_of_two_apart_compete_for_few_sets(count):
    model = {"l1": {"bytes": 49152, "ways": 12}, "l2": {"bytes": 2097152, "ways": 16}, "multiply_adds": 2_000_000}
    near, far = (count([Point("t", "ijk", "float", n, n, n)], **model)[0]["l1_lines"] for n in (500, 512))
    assert far > 10 * near


@pytest.fixture
def no_dump():
    """A crash that a test provokes in a worker would print a dump, as if the tests had crashed."""
    faulthandler.disable()
    yield
    faulthandler.enable()


@pytest.mark.usefixtures("no_dump")
def test_a_loop_of_the_users_own_is_counted_or_named(kernels, tmp_path):
    text = """
        template <typename T> void {name}(const T* A, const T* B, T* C, int n, int p, int m)
        {{
            for (int i = 0; i < n; ++i)
                for (int j = 0; j < m; ++j) {{ T sum = 0; {body} C[i * m + j] = sum; }}
        }}"""
    own = {}
    for name, body in {
        "mine": "for (int k = 0; k < p; ++k) sum += A[i * p + k] * B[k * m + j];",
        "pointed": "T* at = &sum; static_cast<float*>(at); for (int k = 0; k < p; ++k) sum += A[k] * B[k];",
        "crash": "if (i == 3) *(volatile int*)0 = 1; for (int k = 0; k < p; ++k) sum += A[i * p + k] * B[k * m + j];",
        "sparse": "for (int k = 0; k < p; ++k) if (A[i * p + k] != 0) sum += A[i * p + k] * B[k * m + j];",
    }.items():
        (tmp_path / f"{name}.cpp").write_text(text.format(name=name, body=body))
        launches = (LaunchEntry(name, ("dtype",)),)
        own[name] = Kernel(name, name, "host", ("float",), f"{name}.cpp", launches=launches, folder=tmp_path)
    points = [Point("t", name, "float", 20, 20, 20) for name in own]
    frame, messages = cache_lines.count(points, own, SMALL | {"multiply_adds": 1000}, tmp_path)
    assert frame["kernel"].tolist() == ["mine"]
    names = ("pointed", "crash", "sparse")
    assert all(
        said.startswith(f"{name}: its cache lines cannot be") for said, name in zip(messages, names, strict=True)
    )
    assert "no more than 1000 of the 8000 multiplications" in messages[2], "operands are zeros"


def test_loops_are_counted_once_per_width_at_shapes_that_the_model_is_for(config):
    points = Study(config).loop_points()
    most = config["trace"]["cache_lines"]["largest_bytes"]
    assert {point.kernel for point in points} >= {*ORDERS, "blocked"}
    assert all(4 * (p.n * p.p + p.p * p.m + p.n * p.m) <= most for p in points)
    keys = [(p.kernel, p.n, p.p, p.m) for p in points]
    assert len(keys) == len(set(keys))


def test_names_that_mean_something_else_are_refused(config):
    with pytest.raises(UserError, match=r"tasks\.ladder: the study has a rule, a table or a folder of that name"):
        Study(config | {"tasks": {"ladder": config["tasks"]["task1a"]}}, reserved={"ladder"})
    with pytest.raises(UserError, match=r"tasks\.probe: "):
        Study(config | {"tasks": {"probe": config["tasks"]["task1a"]}})
    with pytest.raises(UserError, match=r"platforms\.nvidia-h200: a recorded run has that name"):
        Study(config | {"platforms": {"nvidia-h200": {"backend": "emulator"}}})


def test_a_cache_without_a_set_is_refused(config):
    broken = config["trace"]["cache_lines"] | {"l2": {"bytes": 512, "ways": 16}}
    with pytest.raises(UserError, match=r"trace\.cache_lines\.l2: 512 bytes do not hold"):
        Study(config | {"trace": config["trace"] | {"cache_lines": broken}})


def test_the_recorded_times_stand_beside_the_lines():
    evidence = load_evidence([RECORDED / "nvidia-h200"])
    table = counts.cache_lines(evidence)
    assert len(table) == 42
    assert table[["ns_per_multiply_add", "l1_lines_per_multiply_add"]].notna().all(axis=None)
    row = table[(table["kernel"] == "jki") & (table["shape"] == "(800, 800, 800)")].iloc[0]
    assert row["l1_lines_per_multiply_add"] == pytest.approx(2, rel=0.01)
