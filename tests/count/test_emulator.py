"""The emulator: every kernel is right on ragged shapes, and a launch that no device would take is refused."""

import time

import numpy as np
import pytest

from tilewise import UserError
from tilewise.build.cpp import compile_library
from tilewise.build.emulator import Emulator, LaunchError, build, check_launch, product
from tilewise.study import points
from tilewise.study.device import EMULATED_LIMITS
from tilewise.study.launch import Array, Launch, Number, TensorMap
from tilewise.study.precision import PRECISIONS
from tilewise.study.registry import Kernel, LaunchEntry, load

KERNELS = load()
DTYPES = ("float", "double", "int32")
SHAPES = [(1, 1, 1), (1, 37, 1), (33, 1, 70), (15, 15, 15), (17, 17, 17), (33, 35, 70), (64, 64, 64)]
CHOICES = [
    ("naive", {"block_x": 32, "block_y": 32}),
    ("naive", {"block_x": 8, "block_y": 128}),
    ("naive", {"block_x": 7, "block_y": 3}),
    ("tiled", {"tile": 8}),
    ("tiled", {"tile": 16}),
    ("tiled", {"tile": 32}),
    ("multi_tile", {"tile": 16, "ntb": 1}),
    ("multi_tile", {"tile": 16, "ntb": 3}),
    ("multi_tile", {"tile": 8, "ntb": 7}),
    ("multi_tile", {"tile": 32, "ntb": 16}),  # 139,264 B of shared memory in double
]


def point(kernel, dtype, shape, **choice):
    return points.point("test", kernel, dtype, *shape, **choice)


def launched(instance, block, grid, n, p, m, dynamic_shared_bytes=0):
    """A launch with the arguments that a kernel is called with unless its entry says otherwise."""
    arguments = (*map(Array, "ABC"), *(Number("int", size) for size in (n, p, m)))
    return Launch(instance, (*block, 1, 1)[:3], (*grid, 1, 1)[:3], arguments, dynamic_shared_bytes)


def operands(dtype, n, p, m, seed=524):
    random = np.random.default_rng(seed)
    kind = PRECISIONS[dtype].stored
    if kind.kind == "i":
        return random.integers(-9, 10, (n, p), kind), random.integers(-9, 10, (p, m), kind)
    return random.uniform(-1, 1, (n, p)).astype(kind), random.uniform(-1, 1, (p, m)).astype(kind)


def within_bound(A, B, C):
    """|C - AB| <= gamma |A||B| elementwise in float64; exact for integers; NaN fails."""
    a, b = A.astype(np.float64), B.astype(np.float64)
    if C.dtype.kind == "i":
        return np.array_equal(C, a @ b)
    p, u = A.shape[1], np.finfo(C.dtype).eps / 2
    gamma = p * u / (1 - p * u)
    if C.dtype == np.float64:
        gamma *= 2  # the reference itself has rounding errors of this size
    return bool((np.abs(C - a @ b) <= gamma * (np.abs(a) @ np.abs(b))).all())


def poisoned(A, B):
    fill = np.nan if A.dtype.kind == "f" else -(2**31)
    return np.full((A.shape[0], B.shape[1]), fill, A.dtype)


@pytest.fixture(scope="module")
def emulators(tmp_path_factory):
    """One library per kernel with all instances of CHOICES, as the pipeline builds them."""
    folder = tmp_path_factory.mktemp("emulators")
    built = {}
    for name in ("naive", "tiled", "multi_tile"):
        instances = {
            instance
            for kernel, choice in CHOICES
            for dtype in DTYPES
            if kernel == name
            for instance in KERNELS[name].instances(point(name, dtype, (1, 1, 1), **choice))
        }
        built[name] = Emulator(build(KERNELS[name], sorted(instances), folder / f"{name}.so"))
    return built


@pytest.mark.parametrize("order", [{}, {"reverse": True}, {"seed": 7}], ids=["forward", "reverse", "random"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, choice", CHOICES, ids=str)
def test_product(emulators, name, choice, dtype, order):
    for shape in SHAPES:
        A, B = operands(dtype, *shape)
        C = poisoned(A, B)
        product(KERNELS[name], point(name, dtype, shape, **choice), emulators[name], A, B, C, **order)
        assert within_bound(A, B, C), shape


def test_bound_rejects():
    A, B = operands("float", 17, 9, 5)
    C = A @ B
    assert within_bound(A, B, C)
    for row, column, wrong in [(0, 0, np.nan), (16, 4, C[16, 4] + 1e-4)]:
        changed = C.copy()
        changed[row, column] = wrong
        assert not within_bound(A, B, changed)


@pytest.mark.parametrize("name, choice", [("naive", {"block_x": 16, "block_y": 16}), ("tiled", {"tile": 16})])
def test_speed(emulators, name, choice):
    shape = (256, 256, 256)
    A, B = operands("float", *shape)
    C = poisoned(A, B)
    start = time.process_time()
    product(KERNELS[name], point(name, "float", shape, **choice), emulators[name], A, B, C)
    assert time.process_time() - start < 1
    assert within_bound(A, B, C)


def test_ucontext_gives_the_same(tmp_path):
    """The fallback for machines other than x86-64."""
    kernel, shape = KERNELS["tiled"], (33, 35, 70)
    at = point("tiled", "float", shape, tile=16)
    library = build(kernel, kernel.instances(at), tmp_path / "tiled.so", flags=["-DEMULATOR_UCONTEXT"])
    A, B = operands("float", *shape)
    C = poisoned(A, B)
    product(kernel, at, Emulator(library), A, B, C)
    assert within_bound(A, B, C)


@pytest.mark.parametrize(
    "block, grid, dynamic, static, error",
    [
        ((33, 32), (1, 1), 0, 0, "cudaErrorInvalidValue: a block of 33 x 32 = 1056 threads"),
        ((0, 32), (1, 1), 0, 0, "cudaErrorInvalidValue: a block of 0 x 32"),
        ((16, 16, 5), (1, 1), 0, 0, "cudaErrorInvalidValue: a block of 16 x 16 x 5 = 1280 threads"),
        ((1, 1, 65), (1, 1), 0, 0, "cudaErrorInvalidValue: a block of 65 threads along z; the device allows 64"),
        ((1, 1), (1, 65536), 0, 0, "cudaErrorInvalidValue: a grid of 65536 blocks along y"),
        ((1, 1), (1, 1, 65536), 0, 0, "cudaErrorInvalidValue: a grid of 65536 blocks along z"),
        ((1, 1), (1, 1), 232449, 0, "cudaErrorInvalidValue: 232449 B of shared memory"),
        ((1, 1), (1, 1), 232448, 4, "cudaErrorInvalidValue: 232452 B of shared memory"),
    ],
)
def test_refused_launch(block, grid, dynamic, static, error):
    with pytest.raises(LaunchError) as refusal:
        check_launch(launched("f", block, grid, 1, 1, 1, dynamic), static, EMULATED_LIMITS)
    assert str(refusal.value).startswith(error)


def test_largest_launch_is_taken():
    check_launch(launched("f", (32, 32), (2147483647, 65535, 65535), 1, 1, 1, 232448 - 4096), 4096, EMULATED_LIMITS)


def test_refused_launch_leaves_c_untouched(emulators):
    A, B = operands("float", 8, 8, 8)
    C = poisoned(A, B)
    with pytest.raises(LaunchError):
        launch = launched("tiled<float, 16>", (64, 64), (1, 1), 8, 8, 8)
        emulators["tiled"].launch(launch, {"A": A, "B": B, "C": C})
    assert np.isnan(C).all()


def a_kernel(folder, text, *entries, dtypes=("float",), **fields):
    """A kernel of the file mine.cu in `folder`, with these launches."""
    (folder / "mine.cu").write_text(text)
    entries = entries or (LaunchEntry("mine", ("dtype",), ("block_x", "block_y"), ("block_y", "block_x")),)
    return Kernel("mine", "mine", "cuda", dtypes, "mine.cu", launches=entries, folder=folder, **fields)


MINE = """
extern "C++" {
#include <cmath>
}
struct __align__(8) Pair { float a, b; };
__device__ __forceinline__ float madd(float a, float b, float c) { return fmaf(a, b, c); }
template <typename T, int UNUSED>
__global__ void __launch_bounds__(64) mine(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C,
                                           int n, int p, int m)
{
    extern __shared__ T a_row_of_mine[];
    __shared__ float4 one[2];
    const int row = blockIdx.x / max(m / 64, 1), col = threadIdx.x + 64 * (blockIdx.x % max(m / 64, 1));
    for (int k = threadIdx.x; k < p; k += blockDim.x) a_row_of_mine[k] = __ldg(A + row * p + k);
    if (threadIdx.x < 2) one[threadIdx.x] = make_float4(1, 1, 1, 1);
    if (threadIdx.x < 32) __syncwarp();
    __syncthreads();
    T sum = 0;
    for (int k = 0; k < p; ++k) sum = madd(a_row_of_mine[k], B[k * m + col] * one[k % 2].w, sum);
    C[row * m + col] = sum;
}
"""


def test_what_a_user_may_write(tmp_path):
    """Vocabulary of CUDA, and dynamic shared memory under a name of the user's own, with his element type."""
    kernel = a_kernel(tmp_path, MINE)
    emulator = Emulator(build(kernel, ["mine<float, 2>"], tmp_path / "mine.so"))
    assert emulator.static_shared_bytes == {"mine<float, 2>": 32}
    A, B = operands("float", 5, 100, 64)
    C = poisoned(A, B)
    emulator.launch(launched("mine<float, 2>", (64, 1), (5, 1), 5, 100, 64, 400), {"A": A, "B": B, "C": C})
    assert within_bound(A, B, C)


def test_kernel_without_template(tmp_path):
    text = "__global__ void mine(const double* A, double* B, double* C, int n, int p, int m) { C[0] = A[0] * B[0]; }"
    emulator = Emulator(build(a_kernel(tmp_path, text), ["mine<>"], tmp_path / "mine.so"))
    A, B, C = np.full((1, 1), 3.0), np.full((1, 1), 4.0), np.zeros((1, 1))
    emulator.launch(launched("mine<>", (1, 1), (1, 1), 1, 1, 1), {"A": A, "B": B, "C": C})
    assert C == 12


def test_too_much_static_shared_memory(tmp_path):
    with pytest.raises(UserError, match=r"mine<float> .* 65536 B where CUDA allows 49152"):
        text = """template <typename T> __global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
        { __shared__ T large[16384]; large[n] = A[0]; __syncthreads(); C[0] = large[p]; }"""
        build(a_kernel(tmp_path, text), ["mine<float>"], tmp_path / "mine.so")
    assert not (tmp_path / "mine.so").exists()


def test_error_names_file_and_line(tmp_path):
    text = (
        "template <typename T>\n__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)\n{ C[0] = D; }"
    )
    with pytest.raises(UserError, match=r"mine\.cu:3: 'D' was not declared"):
        build(a_kernel(tmp_path, text), ["mine<float>"], tmp_path / "mine.so")


def test_failed_compilation_keeps_the_old_library(tmp_path):
    output = compile_library("int f() { return 1; }", tmp_path / "f.so")
    before = output.read_bytes()
    with pytest.raises(UserError):
        compile_library("int f() {", output)
    assert output.read_bytes() == before
    assert list(tmp_path.iterdir()) == [output]


def test_missing_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        UserError, match=r"there is no C\+\+ compiler 'no-such-compiler'; install one .*apt install g\+\+"
    ):
        compile_library("", tmp_path / "f.so")
