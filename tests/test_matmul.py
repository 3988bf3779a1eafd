"""`tilewise.matmul`: which kernel it chooses, which matrices it takes, and, on a GPU, what it computes.

Without a GPU, NumPy plays CuPy, cuBLAS is read by its manual, and a launch is noted.
"""

import ctypes
import importlib
import itertools
import re
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pandas as pd
import pytest

import tilewise
from kernelscope import cpp
from tilewise import UserError
from tilewise.multiply import copies
from tilewise.multiply.arguments import DTYPES, Layout, check
from tilewise.multiply.fastest import STATES, back_to_back, fastest, recorded_times
from tilewise.nvidia.layout import is_column_major
from tilewise.study import verify
from tilewise.study.accuracy import Grade
from tilewise.study.device import Device
from tilewise.study.points import point
from tilewise.study.precision import PRECISIONS, result_of

H200 = ("nvidia-h200", "9.0")
#: float16 and bfloat16 keep 11 and 8 bits.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-13, np.float16: 2e-3, ml_dtypes.bfloat16: 2e-2, np.int8: 0}
LAYOUTS = ("rows", "columns", "cut rows", "cut columns")


# ---- The choice ----------------------------------------------------------------------------------------------------


def rows(*timed):
    """Rows of (kernel, dtype, n, p, m, ms alone, in a batch, under load) as a run records them, or without the last."""
    table = pd.DataFrame(timed, columns=["kernel", "dtype", "n", "p", "m", *STATES[::-1]][: len(timed[0])])
    return table.reindex(columns=["kernel", "dtype", "n", "p", "m", *STATES]).assign(platform="nvidia-x1")


#: A kernel made of short numbers without a grade, one with the grade A, one that computes in float, and the library.
RANKED = rows(
    ("float_from_half", "float", 1024, 1024, 1024, 1.0),
    ("float_always", "float", 1024, 1024, 1024, 2.0),
    ("stream_k", "float", 1024, 1024, 1024, 3.0),
    ("pipelined", "float", 1024, 1024, 1024, 4.0),
    ("cublas", "float", 1024, 1024, 1024, 5.0),
    ("stream_k", "float", 4096, 4096, 4096, 5.0),
    ("cublas", "float", 4096, 4096, 4096, 4.0),
    ("naive", "float", 1024, 1024, 1088, 9.0),
    ("cublas", "float", 1024, 1024, 1088, 5.0),
    ("cublas_best", "float", 1024, 1024, 1088, 1.0),
    ("cublas_bf16", "bfloat16", 1024, 1024, 1024, 5.0),
    ("clusters", "bfloat16", 1024, 1024, 1024, 4.0),
    ("a_kernel_of_once", "bfloat16", 1024, 1024, 1024, 3.0),
    ("clusters", "half", 1024, 1024, 1024, 3.0),
)


def chosen(kernels, dtype, shape, grade="A", timed=RANKED, gpu="nvidia-h200", capability="9.0"):
    """The name of the kernel for a shape (n, p, m); None for the library."""
    found = fastest(timed, kernels, gpu, capability, point("", "", dtype, *shape), Grade(grade))
    return found and found.point.kernel


@pytest.mark.parametrize(
    "dtype, shape, grade, kernel",
    [
        ("float", (1024, 1024, 1024), "none", "float_from_half"),
        ("float", (1024, 1024, 1024), "B", "float_always"),
        ("float", (1024, 1024, 1024), "A", "float_always"),
        ("float", (512, 2048, 576), "A", "float_always"),  # alike
        ("float", (1024, 1024, 1088), "A", "float_always"),  # where only a kernel without tuned parameters was timed
        ("float", (512, 2064, 576), "A", None),  # more than twice the size
        ("float", (1024, 1022, 1024), "A", None),  # of another kind of rows
        ("float", (1025, 1024, 1024), "A", None),  # of another class
        ("float", (4096, 4096, 4096), "none", None),  # the library is the fastest
        ("bfloat16", (1024, 1024, 1024), "A", "clusters"),
        ("half", (1024, 1024, 1024), "A", None),  # nobody timed the library
        ("double", (1024, 1024, 1024), "A", None),
    ],
)
def test_the_fastest_kernel_of_the_grade_is_chosen_or_the_library(kernels, dtype, shape, grade, kernel):
    assert chosen(kernels, dtype, shape, grade) == kernel


def test_a_gpu_gets_what_it_can_run_with_its_own_parameters(kernels):
    assert chosen(kernels, "float", (1024, 1024, 1024), capability="8.0") == "pipelined"
    assert chosen(kernels, "bfloat16", (1024, 1024, 1024), capability="8.0") is None
    wanted = point("", "", "float", 1088, 1024, 1024)
    found, times_as_fast = fastest(RANKED, kernels, *H200, wanted, Grade.A)
    tuned = kernels["float_always"].tuned["nvidia-h200"]["float"]["small"]
    assert dict(found.parameters) == tuned and times_as_fast == 2.5
    assert found.shape == wanted.shape and found.dtype == "float"
    timed = kernels["float_always"].tuned["nvidia-h200"]["float"]["large"]
    there = RANKED.assign(platform="nvidia-h200").assign(**timed)
    assert dict(fastest(there, kernels, *H200, wanted, Grade.A).point.parameters) == timed != tuned


def test_kernels_are_ranked_back_to_back(kernels):
    """Under load if the library and a kernel have such a time, else in a batch; never one state with another."""
    none = float("nan")
    shape = (1024, 1024, 1024)
    alone = [("stream_k", "float", *shape, 1.0), ("cublas", "float", *shape, 2.0)]
    assert chosen(kernels, "float", shape, timed=rows(*alone)) == "stream_k"
    in_a_batch = [(*alone[0], 3.0), (*alone[1], 2.5)]
    assert chosen(kernels, "float", shape, timed=rows(*in_a_batch)) is None
    under_load = [(*in_a_batch[0], 3.5), (*in_a_batch[1], 4.0)]
    assert chosen(kernels, "float", shape, timed=rows(*under_load)) == "stream_k"
    half_known = [(*in_a_batch[0], 1.0), (*in_a_batch[1], none)]
    assert chosen(kernels, "float", shape, timed=rows(*half_known)) is None
    doubles = [("cublas_emulated", "double", *shape, 1.0), ("double_always", "double", *shape, 2.0)]
    assert chosen(kernels, "double", shape, timed=rows(*doubles)) is None, "emulation is not what would be called"
    doubles.append(("cublas", "double", *shape, 3.0))
    assert chosen(kernels, "double", shape, timed=rows(*doubles)) == "double_always"
    ranked = back_to_back(rows(*under_load, ("pipelined", "float", *shape, 0.1, none, none)), kernels)
    assert ranked.set_index("kernel")["ms"].to_dict() == {"stream_k": 3.5, "cublas": 4.0}


@pytest.mark.slow
def test_what_was_recorded_is_never_slower_than_the_library(kernels):
    """At every recorded product with a time of the library."""
    timed = recorded_times("nvidia-h200", kernels)
    called = {
        name for name, kernel in kernels.items() if kernel.library and not kernel.searched and not kernel.emulation
    }
    own = 0
    for (dtype, *shape), there in timed[timed["dtype"].isin(DTYPES.values())].groupby(["dtype", "n", "p", "m"]):
        ranked = back_to_back(there, kernels).set_index("kernel")
        if ranked.empty:
            continue
        for grade in Grade:
            found = fastest(timed, kernels, *H200, point("", "", dtype, *map(int, shape)), grade)
            if found is None:
                continue
            at, row = found.point, ranked.loc[found.point.kernel]
            assert found.times_as_fast == ranked.loc[[*called & {*ranked.index}], "ms"].min() / row["ms"] > 1
            assert dict(at.parameters) == {name: row[name] for name in dict(at.parameters)}
            assert kernels[at.kernel].plan(at, Device.from_capability("9.0", 132)).launches
            own += 1
    assert own > 20, "and own kernels are chosen at all"


def test_an_unknown_gpu_takes_the_first_recorded_run(kernels):
    assert recorded_times("nvidia-x1", kernels).equals(recorded_times("nvidia-h100-80gb-hbm3", kernels))


def test_without_a_recorded_run_the_message_says_so(kernels, tmp_path):
    with pytest.raises(UserError, match="no run is recorded there"):
        recorded_times("nvidia-h200", kernels, tmp_path)


def test_a_kernel_has_grade_a_if_it_computes_in_its_own_type(kernels):
    grades = {name: kernels[name].grade for name in ("stream_k", "multi_tile", "clusters", "float_always")}
    assert set(grades.values()) == {"A"}
    assert {kernels[name].grade for name in ("float_from_half", "three_tf32", "double_from_int8")} == {"none"}


# ---- The matrices --------------------------------------------------------------------------------------------------


class Memory(SimpleNamespace):
    """An address, as CuPy's memory has it."""

    def __add__(self, size):
        return Memory(ptr=self.ptr + size)

    def memset_async(self, value, size, stream):
        assert stream.ptr == 77
        ctypes.memset(self.ptr, value, size)


class Array(np.ndarray):
    """NumPy's, with what CuPy's arrays have in addition."""

    def __new__(cls, shape, dtype, memory, strides):
        size = sum((each - 1) * stride for each, stride in zip(shape, strides)) + dtype.itemsize
        return super().__new__(cls, shape, dtype, (ctypes.c_char * size).from_address(memory.ptr), 0, strides)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data, device_id=getattr(self, "gpu", 0))


def aligned(shape, dtype):
    """A new array that begins at a multiple of 16 bytes, as all of CuPy's do."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    space = np.empty(size + 16, np.uint8)
    begin = -space.ctypes.data % 16
    return space[begin : begin + size].view(dtype).reshape(shape)


def laid(numbers, layout, empty=aligned):
    """A matrix with these numbers that lies in memory in one of LAYOUTS."""
    (n, m), cut = numbers.shape, layout.startswith("cut")
    if layout.endswith("rows"):
        found = empty((n, m + 3 * cut), numbers.dtype)[:, cut : m + cut]
    else:
        found = empty((m, n + 3 * cut), numbers.dtype)[:, cut : n + cut].T
    found[...] = numbers
    return found


@pytest.mark.parametrize(
    "matrix, lies",
    [
        (np.ones((3, 4)), False),
        (np.ones((3, 4)).T, True),
        (np.ones((3, 8))[:, 2:6], False),
        (np.ones((3, 8))[:, ::2], None),
        (np.ones((6, 8))[::2], False),
        (np.ones((3, 8))[:, ::2].T, None),
        (np.ones((3, 8))[:, :1], False),
        (np.ones((1, 8))[:, ::2], True),
        (np.ones((3, 4))[::-1], None),
        (np.broadcast_to(np.ones((1, 4)), (3, 4)), None),
        (np.broadcast_to(np.ones((1, 1)), (1, 1)), False),
    ],
)
def test_blas_takes_rows_or_columns_in_one_piece(matrix, lies):
    assert is_column_major(matrix) is lies


@pytest.mark.parametrize(
    "given, message",
    [
        ({"A": np.ones((3, 4)), "B": np.ones((4, 5), "f")}, "A float64[3, 4], B float32[4, 5]; A and B must be of the"),
        ({"A": np.ones((3, 4), int), "B": np.ones((4, 5), int)}, "float32, float64, float16, bfloat16, int8"),
        (dict.fromkeys(("A", "B", "out"), np.ones((3, 3), np.int8)), "out must be of the type int32"),
        ({"A": np.ones(3), "B": np.ones((3, 4))}, "A float64[3], B float64[3, 4]; all must be matrices"),
        ({"A": np.ones((3, 4)), "B": np.ones((5, 4))}, "A must be n x p, B p x m and out n x m"),
        ({"A": np.ones((3, 4)), "B": np.ones((4, 5)), "out": np.ones((3, 4))}, "out float64[3, 4]; A must be"),
        ({"A": np.ones((3, 8))[:, ::2], "B": np.ones((4, 5))}, "A has strides of 64 and 16 B; rows or columns must"),
        (
            {"A": np.lib.stride_tricks.as_strided(np.ones(1), (2, 1), (2**34, 8)), "B": np.ones((1, 2))},
            "A has strides of 17179869184 and 8 B; pass a copy, with less between its rows",
        ),
    ],
)
def test_a_matrix_that_does_not_fit_is_named_in_one_message(given, message):
    with pytest.raises(UserError, match=re.escape(message)):
        check({name: Layout(each.dtype, each.shape, each.strides) for name, each in given.items()})


def shapes(n, p, m):
    """Those of A, B and C."""
    return (n, p), (p, m), (n, m)


def lying(shape, dtype, layout):
    """Where a matrix in one of LAYOUTS lies, as `laid` makes it."""
    rows, columns = shape if layout.endswith("rows") else shape[::-1]
    cut, size = layout.startswith("cut"), dtype.itemsize
    lies = Layout(dtype, (rows, columns), (size * (columns + 3 * cut), size), size * cut)
    return lies if layout.endswith("rows") else lies.T


@pytest.mark.parametrize(
    "dtype, n, p, m, layouts, times_as_fast, way",
    [
        ("half", 4096, 4096, 4096, ("rows", "rows", "rows"), None, "cublas"),
        ("half", 4096, 4096, 4096, ("cut rows", "rows", "rows"), None, "cublas A"),
        ("half", 4096, 4096, 4096, ("rows", "cut columns", "cut rows"), None, "cublas BC"),
        ("half", 4095, 4095, 4095, ("rows", "rows", "rows"), None, "cublas ABC"),  # though it is dense
        ("half", 20000, 512, 301, ("cut rows", "rows", "rows"), None, "cublas"),  # too few products per element
        ("half", 65536, 65536, 1, ("rows", "cut rows", "rows"), None, "cublas"),  # the copy of C has eight columns
        ("half", 1100, 1100, 1100, ("cut rows", "rows", "rows"), None, "cublas"),  # too few products for a copy
        ("half", 1700, 1701, 1702, ("rows", "rows", "rows"), None, "cublas"),  # and for three
        ("float", 4096, 4096, 4096, ("cut rows", "cut rows", "cut rows"), None, "cublas"),
        ("float", 4096, 4096, 4096, ("cut rows", "cut rows", "cut rows"), 3.5, "own ABC"),
        ("float", 4096, 4096, 4096, ("columns", "rows", "rows"), 3.5, "own A"),  # cuBLAS takes it as well as rows
        ("float", 4096, 4096, 4096, ("columns", "rows", "rows"), 1.02, "cublas"),
        ("float", 64, 64, 64, ("rows", "rows", "rows"), 1.02, "own"),
        ("double", 4096, 4096, 4096, ("cut rows", "columns", "rows"), None, "cublas A"),
        ("double", 8191, 8191, 8191, ("rows", "rows", "rows"), 1.4, "own ABC"),  # as fast as it is with uneven rows
        ("int8", 20, 20, 20, ("columns", "rows", "rows"), None, "cublas AB"),  # cuBLAS does not take them
        ("int8", 64, 64, 68, ("rows", "rows", "rows"), None, "cublas"),  # B is turned, and C is of int32
        ("int8", 64, 64, 66, ("rows", "rows", "rows"), None, "cublas BC"),
        ("int8", 32, 32, 32, ("rows", "cut rows", "rows"), None, "cublas B"),
        ("int8", 32, 32, 32, ("rows", "columns", "rows"), None, "cublas"),  # both along k
        ("int8", 32, 32, 32, ("columns", "columns", "rows"), None, "cublas A"),
        ("int8", 1100, 1100, 1100, ("rows", "rows", "rows"), 1.4, "own"),
        ("int8", 32, 32, 32, ("rows", "rows", "rows"), None, "cublas"),
    ],
)
def test_the_cheapest_way_copies_what_saves_time(dtype, n, p, m, layouts, times_as_fast, way):
    stored, result = (PRECISIONS[name].stored for name in (dtype, result_of(dtype).name))
    matrices = [*map(lying, shapes(n, p, m), (stored, stored, result), layouts)]
    own, sizes, made = copies.cheapest(matrices, lambda sizes: times_as_fast)
    letters = "".join(itertools.compress("ABC", made))
    assert f"{'own' if own else 'cublas'} {letters}".strip() == way
    dense = own or dtype == "int8"
    assert all(copy.is_dense if dense else copy.is_even for copy in made if copy)
    assert sizes == (n, p, m) or sizes[1] % (16 // stored.itemsize) == sizes[2] % (16 // result.itemsize) == 0


def test_copies_of_columns_stay_columns_for_cublas_and_are_rows_for_our_kernels():
    half = PRECISIONS["half"].stored
    matrices = [*map(lying, shapes(4001, 4000, 4000), [half] * 3, ("cut columns", "rows", "rows"))]
    padded = Layout(half, (4008, 4000), (2, 8016)), None, Layout(half, (4008, 4000), (8000, 2))
    assert copies.cheapest(matrices, lambda sizes: None) == (False, (4008, 4000, 4000), padded)
    dense = Layout(half, (4001, 4000), (8000, 2)), None, None
    assert copies.cheapest(matrices, lambda sizes: 9) == (True, (4001, 4000, 4000), dense)


# ---- The call, with CuPy played by NumPy ---------------------------------------------------------------------------


def _matrix(address, dtype, rows, columns, pitch):
    """A matrix of BLAS at an address: its columns are in one piece."""
    size = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * (size * (pitch * (columns - 1) + rows))).from_address(address)
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, dtype), (rows, columns), (size, size * pitch))


def _gemm(left, dtype, m, n, k, ops, a, pitch_a, b, pitch_b, c, pitch_c):
    """C = op(A) op(B), as cuBLAS's manual has it; of bytes, C is of int32."""
    assert pitch_a >= (k if ops[0] else m) and pitch_b >= (n if ops[1] else k) and pitch_c >= m
    A = _matrix(a, dtype, *((k, m) if ops[0] else (m, k)), pitch_a)
    B = _matrix(b, dtype, *((n, k) if ops[1] else (k, n)), pitch_b)
    made = np.int32 if dtype is np.int8 else dtype
    A, B = (each.T if op else each for each, op in zip((A, B), ops))
    _matrix(c, made, m, n, pitch_c)[...] = A.astype(made, copy=False) @ B.astype(made, copy=False)
    size, of_c = np.dtype(dtype).itemsize, np.dtype(made).itemsize
    left.uneven.append(any(place % 16 for place in (a, b, c, pitch_a * size, pitch_b * size, pitch_c * of_c)))
    if dtype is np.int8:
        assert not any(each % 4 for each in (m, k, a, b, c, pitch_a, pitch_b, pitch_c)), "the manual's demands"
    left.calls.append("cublas")


class Played(SimpleNamespace):
    """What the calls left.

    `calls` are "cublas" or (point, addresses, stream), `mode` is that of cuBLAS's handle, and `uneven` says of each
    call of cuBLAS whether an address or a pitch was no multiple of 16 bytes.
    """


@pytest.fixture
def played(monkeypatch, tmp_path):
    """A CuPy of NumPy's arrays on an H200, where the library is the slowest at 64 x 64 x 64."""
    properties = {"name": b"NVIDIA H200", "major": 9, "minor": 0, "multiProcessorCount": 132}
    left = Played(calls=[], mode=5, spaces=[], uneven=[])

    def routine(dtype):
        def gemm(handle, op_a, op_b, m, n, k, alpha, a, pitch_a, b, pitch_b, beta, c, pitch_c):
            _gemm(left, dtype, m, n, k, (op_a, op_b), a, pitch_a, b, pitch_b, c, pitch_c)

        return gemm

    def gemm_ex(
        handle, op_a, op_b, m, n, k, alpha, a, kind, pitch_a, b, kind_b, pitch_b, beta, c, kind_c, pitch_c, *how
    ):
        if kind == 3:
            assert (kind_b, kind_c, how, left.mode, op_a, op_b) == (3, 10, (72, -1), 0, 1, 0)
        else:
            assert kind == kind_b == kind_c and how == (68, -1) and left.mode == 16
        dtype = {2: np.float16, 3: np.int8, 14: ml_dtypes.bfloat16}[kind]
        _gemm(left, dtype, m, n, k, (op_a, op_b), a, pitch_a, b, pitch_b, c, pitch_c)

    cublas = SimpleNamespace(
        CUBLAS_OP_N=0,
        CUBLAS_OP_T=1,
        sgemm=routine(np.float32),
        dgemm=routine(np.float64),
        gemmEx=gemm_ex,
        setMathMode=lambda handle, mode: setattr(left, "mode", mode),
        getMathMode=lambda handle: left.mode,
    )

    def turn(grid, block, arguments):
        B, turned, p, m, pitch = arguments
        assert B.flags.c_contiguous and B.shape == (p, m) and turned.shape == (m, pitch)
        turned[...] = np.pad(B.T, ((0, 0), (0, pitch - p)))

    def memcpy_2d(to, pitch_to, of, pitch_of, width, rows, kind, stream):
        assert kind == 3 and stream == 77 and width <= min(pitch_to, pitch_of)
        for row in range(rows):
            ctypes.memmove(to + row * pitch_to, of + row * pitch_of, width)

    def alloc(size):
        left.spaces.append(np.full(size + 256, 0x7F, np.uint8).view(Array))
        return Memory(ptr=left.spaces[-1].ctypes.data)

    cuda = SimpleNamespace(
        Stream=None,
        cublas=cublas,
        alloc=alloc,
        device=SimpleNamespace(get_cublas_handle=lambda: 1),
        get_current_stream=lambda: SimpleNamespace(ptr=77),
        runtime=SimpleNamespace(
            memcpyDeviceToDevice=3,
            memcpy2DAsync=memcpy_2d,
            CUDA_R_32F=0,
            CUDA_R_16F=2,
            CUDA_R_16BF=14,
            getDevice=lambda: 0,
            getDeviceProperties=lambda gpu: properties,
        ),
    )
    cupy = SimpleNamespace(
        cuda=cuda,
        ndarray=Array,
        empty=lambda shape, dtype: aligned(shape, dtype).view(Array),
        from_dlpack=lambda given: np.from_dlpack(given.array).view(Array),
        RawModule=lambda **_: SimpleNamespace(get_function=lambda _: turn),
        int8=np.int8,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setattr(cpp, "cache_folder", lambda: tmp_path / "tilewise")
    names = ["tilewise.nvidia.cublas", "tilewise.nvidia.launcher", "tilewise.multiply.matmul"]
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    own = importlib.import_module("tilewise.multiply.matmul")
    timed = rows(("dmma_pipelined", "double", 64, 64, 64, 1.0), ("cublas", "double", 64, 64, 64, 2.0))
    monkeypatch.setattr(own, "recorded_times", lambda gpu, kernels: timed if gpu == "nvidia-h200" else None)

    class Product:
        def __init__(self, job, addresses):
            self.job, self.addresses = job, addresses

        def __call__(self, stream):
            left.calls.append((self.job, self.addresses, stream))

    monkeypatch.setattr(own, "Product", Product)
    yield left
    for name in names:
        sys.modules.pop(name, None)
        if hasattr(tilewise.nvidia, name.rpartition(".")[2]):
            delattr(tilewise.nvidia, name.rpartition(".")[2])


def random(shape, dtype, layout="rows"):
    """Random numbers in a layout."""
    numbers = np.random.default_rng(sum(shape)).standard_normal(shape)
    return laid((numbers * (30 if np.dtype(dtype).kind == "i" else 1)).astype(dtype), layout).view(Array)


@pytest.mark.parametrize("dtype", [*TOLERANCE][:4], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("n, p, m", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
def test_cublas_gets_every_layout_as_it_lies(played, dtype, n, p, m):
    for of_a, of_b, of_c in itertools.product(LAYOUTS, LAYOUTS, (None, *LAYOUTS)):
        A, B = random((n, p), dtype, of_a), random((p, m), dtype, of_b)
        out = None if of_c is None else random((n, m), dtype, of_c)
        found = tilewise.matmul(A, B, out)
        assert out is None or found is out
        exact = A.astype(np.float64) @ B.astype(np.float64)
        assert np.abs(found.astype(np.float64) - exact).max() <= TOLERANCE[dtype] * (4 + np.abs(exact).max())
    assert played.calls == 80 * ["cublas"] and played.mode == 5, "CuPy's handle is as it was"


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("n, p, m", [(3, 4, 5), (16, 16, 16), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
def test_copies_have_even_rows_and_the_numbers_of_the_matrices(played, monkeypatch, dtype, n, p, m):
    monkeypatch.setattr(copies, "COSTS", dict.fromkeys(copies.COSTS, copies.Costs(float("inf"), 1, 1)))
    for of_a, of_b, of_c in itertools.product(LAYOUTS, LAYOUTS, (None, *LAYOUTS)):
        A, B = random((n, p), dtype, of_a), random((p, m), dtype, of_b)
        out = None if of_c is None else random((n, m), np.int32 if dtype is np.int8 else dtype, of_c)
        found = tilewise.matmul(A, B, out)
        exact = A.astype(np.float64) @ B.astype(np.float64)
        assert np.abs(found.astype(np.float64) - exact).max() <= TOLERANCE[dtype] * (4 + np.abs(exact).max())
    assert len(played.calls) == 80 and not any(played.uneven)


def test_dense_matrices_are_launched_on_the_current_stream_from_a_cubin_that_stays(played, tmp_path):
    A, B, out = (random((64, 64), np.float64) for _ in range(3))
    tilewise.matmul(A, B, out)
    [(job, addresses, stream)] = played.calls
    assert job.point.kernel == "dmma_pipelined" and stream == 77
    assert {name: addresses[name] for name in "ABC"} == dict(zip("ABC", (x.data.ptr for x in (A, B, out))))
    [(file, _)] = job.files.values()
    [kept] = tmp_path.glob("tilewise/dmma_pipelined/*.cubin")
    assert str(kept) == file
    tilewise.matmul(A, B, out)
    assert played.calls[1][0] is job, "it is chosen and compiled once"
    tilewise.matmul(A.T, B.T, out.T)
    assert [played.calls[2][1][name] for name in "AB"] == [addresses[name] for name in "BA"], "C^T = B^T A^T"
    before = len(played.calls)
    shifted = np.empty(64 * 64 + 1)[1:].reshape(64, 64).view(Array)
    for other in (A.T, laid(A, "cut rows").view(Array), shifted):
        tilewise.matmul(other, B, out)
    assert played.calls[before:] == 3 * ["cublas"], "these are not dense, or begin between two multiples of 16 B"


def test_workspaces_lie_apart_in_memory_of_the_call(played, monkeypatch):
    own = sys.modules["tilewise.multiply.matmul"]
    timed = rows(("float_from_half", "float", 256, 256, 256, 1.0), ("cublas", "float", 256, 256, 256, 2.0))
    monkeypatch.setattr(own, "recorded_times", lambda gpu, kernels: timed)
    A, B = (random((256, 256), np.float32) for _ in range(2))
    C = tilewise.matmul(A, B, grade="none")
    assert C.shape == (256, 256) and C.dtype == np.float32
    [(job, addresses, _)] = played.calls
    [space] = played.spaces
    places = sorted((addresses[each.name] - space.data.ptr, each.bytes) for each in job.workspaces)
    assert len(places) == 4 and places[0][0] == 0
    ends = [start + size for start, size in places]
    assert all(start % 256 == 0 for start, _ in places)
    assert all(end <= following for end, (following, _) in zip(ends, [*places[1:], (space.size - 256, 0)]))


def test_without_memory_for_workspaces_or_copies_cublas_multiplies(played, monkeypatch):
    own = sys.modules["tilewise.multiply.matmul"]

    def alloc(size):
        raise MemoryError

    monkeypatch.setattr(own.cupy.cuda, "alloc", alloc)
    A, B = (random((64, 64), np.float64) for _ in range(2))
    assert np.allclose(tilewise.matmul(A, B), np.asarray(A) @ np.asarray(B)) and played.calls == ["cublas"]
    with pytest.raises(MemoryError):  # uneven bytes are not multiplied without copies
        tilewise.matmul(*(random((7, 7), np.int8) for _ in range(2)))


def test_without_elements_nothing_is_launched(played):
    for n, p, m in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        found = tilewise.matmul(random((n, p), np.float32), random((p, m), np.float32))
        assert found.shape == (n, m) and not found.any()
    assert played.calls == []


def test_other_libraries_arrays_come_by_dlpack(played):
    class Foreign:
        def __init__(self, array, where):
            self.array, self.where = array, where

        def __dlpack_device__(self):
            return self.where, 0

    A, B, out = (random((3, 3), np.float32) for _ in range(3))
    foreign = Foreign(out, 2)
    assert tilewise.matmul(Foreign(A, 2), Foreign(B, 13), foreign) is foreign
    assert np.allclose(out, np.asarray(A) @ np.asarray(B))
    with pytest.raises(UserError, match=re.escape("B is not in the memory of a GPU; pass cupy.asarray(B)")):
        tilewise.matmul(A, np.asarray(B))


def test_parts_of_one_array_may_lie_side_by_side_but_not_overlap(played):
    W = random((64, 192), np.float32)
    A, B, out = W[:, :64], W[:, 64:128], W[:, 128:]
    exact = np.asarray(A) @ np.asarray(B)
    assert np.allclose(tilewise.matmul(A, B, out), exact, atol=1e-4)
    for other in (W[:, 127:191], W[:, 1:65], W[:, :64]):
        with pytest.raises(UserError, match="out overlaps A or B"):
            tilewise.matmul(A, B, other)


def test_a_call_that_cannot_be_served_ends_in_one_message(played):
    A = random((3, 3), np.float32)
    elsewhere = random((3, 3), np.float32)
    elsewhere.gpu = 1
    for arguments, named, message in (
        ((A, A, A), {}, "out overlaps A or B"),
        ((A, A), {"grade": "D"}, "there is no grade 'D'; there are A, B, C, none"),
        ((A, A), {"grade": []}, "there is no grade '[]'"),
        ((A, 3), {}, "B is of int; it must be an array of CuPy or export DLPack"),
        ((A, elsewhere), {}, "B is on GPU 1, which is not the current one"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            tilewise.matmul(*arguments, **named)
    assert played.calls == []


def test_without_the_packages_for_a_gpu_the_message_names_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "tilewise.multiply.matmul", raising=False)
    with pytest.raises(UserError, match=re.escape("pip install '.[gpu]'")):
        tilewise.matmul(1, 1)


# ---- On a GPU ------------------------------------------------------------------------------------------------------


OWN = [
    *(("float", 1024), ("float", 1100), ("double", 1024), ("double", 1100), ("bfloat16", 1100), ("bfloat16", 8192)),
    *(("half", 4096), ("half", 4095), ("int8", 1100), ("int8", 1001)),
]
NUMPY = {name: dtype.type for dtype, name in DTYPES.items()}


def on_gpu(shape, dtype, layout="rows"):
    """Random numbers on the GPU in a layout."""
    import cupy

    numbers = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)
    numbers = (numbers * (30 if np.dtype(dtype).kind == "i" else 1)).astype(dtype)
    stored = PRECISIONS[DTYPES[numbers.dtype]].stored if numbers.dtype in DTYPES else numbers.dtype
    return laid(cupy.asarray(numbers.view(stored)), layout, cupy.empty).view(dtype)


def right(C, A, B):
    """Whether C = A B within the bound that every product of the study has to keep."""
    import cupy

    dtype = DTYPES[A.dtype]
    A, B = (cupy.ascontiguousarray(each.view(PRECISIONS[dtype].stored)) for each in (A, B))
    C = cupy.ascontiguousarray(C.view(result_of(dtype).stored))
    return verify.check(C, *verify.reference(A, B, dtype), dtype, A.shape[1]).ok


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NUMPY)
def test_on_a_gpu_every_layout_is_right(dtype):
    made = np.int32 if dtype == "int8" else NUMPY[dtype]
    for n, p, m in ((300, 200, 520), (1, 37, 65), (65, 1, 33), (127, 129, 1), (1700, 1701, 1702)):
        for of_a, of_b, of_c in itertools.product(LAYOUTS, LAYOUTS, (None, *LAYOUTS)):
            A, B = on_gpu((n, p), NUMPY[dtype], of_a), on_gpu((p, m), NUMPY[dtype], of_b)
            out = None if of_c is None else on_gpu((n, m), made, of_c)
            C = tilewise.matmul(A, B, out)
            assert (out is None or C is out) and right(C, A, B), (n, p, m, of_a, of_b, of_c)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, size", OWN)
@pytest.mark.parametrize("grade", ["A", "none"])
def test_on_a_gpu_own_kernels_follow_what_the_stream_did_before(dtype, size, grade):
    """The stream waits for nobody but itself, and the operands are ready only after what it did before."""
    import cupy

    A, B = (on_gpu((size, size), NUMPY[dtype]) for _ in range(2))
    late, out = cupy.zeros_like(A), cupy.zeros((size, size), np.int32 if dtype == "int8" else A.dtype)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(50):
            cupy.copyto(late, A)
        assert tilewise.matmul(late, B, out, grade=grade) is out
        after = out.copy()
    stream.synchronize()
    assert right(after, A, B)


@pytest.mark.gpu
def test_on_a_gpu_a_call_waits_for_nothing():
    """CUDA refuses to wait, and to allocate, while a stream is captured into a graph."""
    import cupy

    A, B = (on_gpu((1024, 1024), np.float32) for _ in range(2))
    out = cupy.zeros_like(A)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        tilewise.matmul(A, B, out)  # compiles, loads, and leaves the pool the memory of its workspaces
        out.fill(0)
        stream.begin_capture()
        tilewise.matmul(A, B, out)
        graph = stream.end_capture()
        assert not out.any()
        graph.launch()
        stream.synchronize()
    assert right(out, A, B)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, size", [("float", 1100), ("half", 2047), ("int8", 1001)])
def test_on_a_gpu_two_streams_do_not_share_a_workspace_or_a_copy(dtype, size):
    import cupy

    A, B = (on_gpu((size, size), NUMPY[dtype]) for _ in range(2))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    outs = [cupy.zeros(A.shape, np.int32 if dtype == "int8" else A.dtype) for _ in range(20)]
    cupy.cuda.Device().synchronize()
    for number, out in enumerate(outs):
        with streams[number % 2]:
            tilewise.matmul(A, B, out)
    cupy.cuda.Device().synchronize()
    assert all(right(out, A, B) for out in outs)


@pytest.mark.gpu
def test_on_a_gpu_other_libraries_arrays_come_by_dlpack():
    class Foreign:
        def __init__(self, array):
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    for name, dtype in NUMPY.items():
        A, B = (on_gpu((64, 64), dtype) for _ in range(2))
        out = on_gpu((64, 64), np.int32 if name == "int8" else dtype)
        foreign = Foreign(out)
        assert tilewise.matmul(Foreign(A), Foreign(B), foreign) is foreign and right(out, A, B)


@pytest.mark.gpu(alone=True)
def test_on_a_gpu_large_products_are_as_fast_as_cupys(record_property):
    """In 20 calls one after the other, as a user's program makes them."""
    import cupy

    def per_call_ms(multiply, A, B, out):
        multiply(A, B, out=out)
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(20):
            multiply(A, B, out=out)
        end.record()
        end.synchronize()
        return cupy.cuda.get_elapsed_time(start, end) / 20

    for dtype, size, layout in (
        *(("float", 4096, "rows"), ("float", 1100, "rows"), ("double", 1024, "rows"), ("bfloat16", 8192, "rows")),
        *(("half", 8192, "rows"), ("half", 4095, "rows"), ("half", 3000, "cut rows"), ("half", 4096, "cut columns")),
        *(("bfloat16", 2048, "cut rows"), ("double", 3000, "rows"), ("double", 3000, "cut rows")),
        *(("float", 3000, "cut rows"), ("float", 4096, "cut columns")),
    ):
        matrices = [on_gpu((size, size), NUMPY[dtype], layout) for _ in range(3)]
        ratios = [per_call_ms(cupy.matmul, *matrices) / per_call_ms(tilewise.matmul, *matrices) for _ in range(5)]
        ratio = float(np.median(ratios))
        record_property(
            "note", f"tilewise.matmul of {dtype} at {size}, {layout}: {ratio:.3f} times as fast as cupy.matmul"
        )
        assert ratio > 0.95, (dtype, size, layout, ratios)
