"""Planted mistakes in every kernel of the study: the tracer reports each with its line, and none in clean kernels.

A mutant is the text of a kernel in which one string is replaced.
"""

import dataclasses

import pytest
from builders import KERNELS, trace

from kernelscope.compile import build_traced
from kernelscope.fault_kinds import FaultKind
from tilewise.study import points

#: A shape (n, p, m) that no tile divides, with more than one block along each dimension.
RAGGED = (19, 21, 37)
CHOICES = {"naive": {"block_x": 8, "block_y": 4}, "tiled": {"tile": 8}, "multi_tile": {"tile": 8, "ntb": 3}}

# Parts of the kernels' texts that are replaced below.
A = "A[static_cast<long long>(row) * p + start + tx]"
B = "B[static_cast<long long>(start + ty) * m + col]"
A_COLUMN = "A[static_cast<long long>(start + tx) * p + row]"
B_COLUMN = "B[static_cast<long long>(col) * m + start + ty]"
NAIVE_B = "static_cast<long long>(k) * m + col"
NAIVE_C = "static_cast<long long>(row) * m + col"
FILL_TILED, FILL_MULTI = "tile_a[ty][tx] =", "tile_a[ty * TILE + tx] ="
FILL_CONDITION = "row < n && start + tx < p"
BARRIERS = {
    "tiled": ("__syncthreads();  // both tiles", "__syncthreads();  // every thread"),
    "multi_tile": ("__syncthreads();  // all tiles", "__syncthreads();  // every thread"),
}


def unfilled(target, but=""):
    """The code that fills a tile, as it is, and without the zeros beyond the edge, or without what `but` excludes."""
    return f"{target} {FILL_CONDITION} ? {A} : T(0);", f"if ({FILL_CONDITION}{but}) {target} {A};"


# The kernel, the old text, the new text, the kind of fault, and a part of the line at which it must be found.
MUTANTS = [
    ("naive", "row >= n", "row > n", "out_of_bounds", "sum += a[k]"),
    ("naive", "col >= m", "col > m", "out_of_bounds", "sum += a[k]"),
    ("naive", "k < p", "k <= p", "out_of_bounds", "sum += a[k]"),
    ("naive", "if (row >= n || col >= m) return;", "", "out_of_bounds", "C[static"),
    ("naive", NAIVE_C, "static_cast<long long>(col) * m + row", "out_of_bounds", "C[static"),
    ("naive", NAIVE_B, "static_cast<long long>(col) * m + k", "out_of_bounds", "sum += a[k]"),
    ("naive", "T sum = 0;", f"T sum = C[{NAIVE_C}];", "uninitialised", "T sum"),
    ("naive", "blockIdx.x * blockDim.x", "blockIdx.x * (blockDim.x - 1)", "race", "C[static"),
    ("naive", "threadIdx.x;", "threadIdx.x / 2;", "race", "C[static"),
    ("naive", "T sum = 0;", "T sum = 0; if (col % 2) __syncthreads(); else __syncthreads();", "divergence", "T sum"),
    ("naive", "= sum;", "= sum + threadIdx.x;", "incorrect", None),
    ("tiled", A, A_COLUMN, "out_of_bounds", FILL_TILED),
    ("tiled", B, B_COLUMN, "out_of_bounds", "tile_b[ty][tx] ="),
    ("tiled", f"{NAIVE_C}] = sum", "static_cast<long long>(col) * m + row] = sum", "out_of_bounds", "= sum;"),
    ("tiled", "tile_a[ty][k] *", "tile_a[k][ty] *", "incorrect", None),
    ("tiled", "row < n && start", "row <= n && start", "out_of_bounds", FILL_TILED),
    ("tiled", "start + tx < p", "start + tx <= p", "out_of_bounds", FILL_TILED),
    ("tiled", "start + ty < p", "start + ty <= p", "out_of_bounds", "tile_b[ty][tx] ="),
    ("tiled", "col < m ?", "col <= m ?", "out_of_bounds", "tile_b[ty][tx] ="),
    ("tiled", "if (row < n", "if (row <= n", "out_of_bounds", "= sum;"),
    ("tiled", "col < m) C", "col <= m) C", "race", "= sum;"),
    ("tiled", "T tile_a[TILE][TILE]", "T tile_a[TILE - 1][TILE]", "out_of_bounds", FILL_TILED),
    ("tiled", "T tile_b[TILE][TILE]", "T tile_b[TILE - 1][TILE]", "out_of_bounds", "tile_b[ty][tx] ="),
    ("tiled", *unfilled(FILL_TILED), "unused", "sum +="),  # rows beyond the edge, whose sums nobody stores
    ("tiled", *unfilled(FILL_TILED, " && tx + ty != 9"), "uninitialised", "sum +="),
    ("multi_tile", A, A_COLUMN, "out_of_bounds", FILL_MULTI),
    ("multi_tile", B, B_COLUMN, "out_of_bounds", "B[static"),
    ("multi_tile", "m + col] = sums[t]", "m + row] = sums[t]", "race", "= sums[t];"),
    ("multi_tile", "tile_a[ty * TILE + k]", "tile_a[k * TILE + ty]", "incorrect", None),
    ("multi_tile", "row < n && start", "row <= n && start", "out_of_bounds", FILL_MULTI),
    ("multi_tile", "start + tx < p", "start + tx <= p", "out_of_bounds", FILL_MULTI),
    ("multi_tile", "start + ty < p", "start + ty <= p", "out_of_bounds", "B[static"),
    ("multi_tile", "col < m ?", "col <= m ?", "out_of_bounds", "B[static"),
    ("multi_tile", "if (row < n", "if (row <= n", "out_of_bounds", "= sums[t];"),
    ("multi_tile", "col < m) C", "col <= m) C", "race", "= sums[t];"),
    ("multi_tile", "tile_a + TILE * TILE;", "tile_a + TILE * (TILE - 1);", "race", FILL_MULTI),
    ("multi_tile", *unfilled(FILL_MULTI), "unused", "const T a ="),
    ("multi_tile", *unfilled(FILL_MULTI, " && tx + ty != 9"), "uninitialised", "const T a ="),
]
for _name, _barriers in BARRIERS.items():
    for _barrier in _barriers:
        _comment = _barrier[_barrier.index("//") :]
        MUTANTS += [
            (_name, _barrier, _comment, "race", None),
            (_name, _barrier, f"if (row < n) {_barrier}", "divergence", "if (row < n) __sync"),
        ]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The clean kernels, compiled for the tracer, in every element type."""
    folder = tmp_path_factory.mktemp("libraries")
    built = {}
    for name, choice in CHOICES.items():
        own = [points.point("t", name, dtype, 1, 1, 1, **choice) for dtype in ("float", "double", "int32")]
        instances = [instance for point in own for instance in KERNELS[name].plan(point).instances]
        built[name] = build_traced(KERNELS[name], instances, folder / f"{name}.so")
    return built


def mutant(folder, name, old, new):
    """The registry's kernel with `old` replaced by `new` in its text."""
    kernel = KERNELS[name]
    text = kernel.path.read_text()
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {kernel.path}"
    (folder / "mutant.cu").write_text(text.replace(old, new))
    return dataclasses.replace(kernel, folder=folder, source="mutant.cu")


@pytest.mark.slow
@pytest.mark.parametrize("name, old, new, kind, where", MUTANTS, ids=[f"{m[0]}-{m[3]}-{m[2][:40]}" for m in MUTANTS])
def test_mutant(tmp_path, name, old, new, kind, where):
    kernel = mutant(tmp_path, name, old, new)
    row, faults = trace(kernel, "float", RAGGED, **CHOICES[name])
    found = [fault for fault in faults if fault.kind == kind]
    assert found, f"no {kind} among {[str(fault) for fault in faults]}"
    if where:
        lines = kernel.path.read_text().splitlines()
        assert all(fault.file == str(kernel.path) for fault in found)
        assert any(fault.line and where in lines[fault.line - 1] for fault in found), [str(fault) for fault in found]
    if kind in list(FaultKind):
        assert row[FaultKind(kind).column] > 0


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
@pytest.mark.parametrize("name", CHOICES)
def test_clean_kernels_have_no_fault(name, dtype, libraries):
    for shape in [RAGGED, (1, 1, 1), (8, 8, 24), (1, 21, 1), (16, 5, 25)]:
        _, faults = trace(KERNELS[name], dtype, shape, library=libraries[name], **CHOICES[name])
        assert not faults, [str(fault) for fault in faults]


# ---- Shapes of over 2^31 elements. This machine does not need memory for them: only one relevant block runs -------

HUGE = {  # name of the operand whose index exceeds 2^31: shape (n, p, m)
    "A": (3, 2**30, 1),
    "B": (1, 3, 2**30),
    "C": (3, 1, 2**30),
}
ROW_OF_A, ROW_OF_C = "static_cast<long long>(row) * p", "static_cast<long long>(row) * m"
INDEX = {
    "naive": {"A": ROW_OF_A, "B": "static_cast<long long>(k) * m", "C": ROW_OF_C},
    "tiled": {"A": ROW_OF_A, "B": "static_cast<long long>(start + ty) * m", "C": ROW_OF_C},
}
INDEX["multi_tile"] = INDEX["tiled"]


@pytest.mark.parametrize("operand", HUGE)
@pytest.mark.parametrize("name", CHOICES)
def test_32_bit_index(tmp_path, name, operand):
    index = INDEX[name][operand]
    kernel = mutant(tmp_path, name, index, index.replace("static_cast<long long>", ""))
    # The naive kernel has blocks of one row, and only the last block runs, because row 0 would take too long.
    choice, block = ({"block_x": 8, "block_y": 1}, HUGE[operand][0] - 1) if name == "naive" else (CHOICES[name], 0)
    _, faults = trace(kernel, "float", HUGE[operand], blocks=[(0, block, 0)], stop=True, **choice)
    assert faults[0].kind == "out_of_bounds"
    assert f"element -{2**31} of {operand}" in str(faults[0])


@pytest.mark.parametrize("operand", ["B", "C"])  # for A, one thread would have to walk along 2^30 elements
@pytest.mark.parametrize("name", CHOICES)
def test_64_bit_index_is_right(name, operand, libraries):
    row, faults = trace(
        KERNELS[name], "float", HUGE[operand], library=libraries[name], blocks=[(0, 0, 0)], **CHOICES[name]
    )
    assert not faults
    assert row["global_store_sectors"] > 0


def test_dynamic_shared_memory_one_row_short():
    one_row_less = "(1 + ntb) * tile * tile * itemsize - tile * itemsize"
    [launch] = KERNELS["multi_tile"].launches
    launch = dataclasses.replace(launch, dynamic_shared_bytes=one_row_less)
    kernel = dataclasses.replace(KERNELS["multi_tile"], launches=(launch,))
    _, faults = trace(kernel, "double", RAGGED, **CHOICES["multi_tile"])
    assert {fault.kind for fault in faults} == {"out_of_bounds"}
    # Tile and NTB are 8 and 3: 4 tiles of 64 elements; the launch gave memory for 248 of them.
    assert "shared_memory[248], past its end" in str(faults[0])
