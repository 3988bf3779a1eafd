"""The emulator: every kernel is right on ragged shapes, and it refuses a launch that every device would refuse."""

import time

import numpy as np
import pytest

from tilewise import UserError
from tilewise.build.cpp import compile_library
from tilewise.measure.backends.emulator import EMULATED_LIMITS, Emulator, LaunchError, build, check_launch
from tilewise.study.points import Point
from tilewise.study.registry import DTYPES, Geometry, Kernel, load

KERNELS = load()
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
    return Point("test", kernel, dtype, *shape, **choice)


def operands(dtype, n, p, m, seed=524):
    random = np.random.default_rng(seed)
    kind = DTYPES[dtype][1]
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
            KERNELS[name].instance(point(name, dtype, (1, 1, 1), **choice))
            for kernel, choice in CHOICES
            for dtype in DTYPES
            if kernel == name
        }
        built[name] = Emulator(build(KERNELS[name], sorted(instances), folder / f"{name}.so"))
    return built


@pytest.mark.parametrize("order", [{}, {"reverse": True}, {"seed": 7}], ids=["forward", "reverse", "random"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, choice", CHOICES, ids=str)
def test_product(emulators, name, choice, dtype, order):
    for shape in SHAPES:
        at, kernel = point(name, dtype, shape, **choice), KERNELS[name]
        A, B = operands(dtype, *shape)
        C = poisoned(A, B)
        emulators[name].launch(kernel.instance(at), kernel.geometry(at), A, B, C, *shape, **order)
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
    at, kernel = point(name, "float", shape, **choice), KERNELS[name]
    A, B = operands("float", *shape)
    C = poisoned(A, B)
    start = time.process_time()
    emulators[name].launch(kernel.instance(at), kernel.geometry(at), A, B, C, *shape)
    assert time.process_time() - start < 1
    assert within_bound(A, B, C)


def test_ucontext_gives_the_same(tmp_path):
    """The fallback for machines other than x86-64."""
    kernel, shape = KERNELS["tiled"], (33, 35, 70)
    at = point("tiled", "float", shape, tile=16)
    library = build(kernel, [kernel.instance(at)], tmp_path / "tiled.so", flags=["-DEMULATOR_UCONTEXT"])
    A, B = operands("float", *shape)
    C = poisoned(A, B)
    Emulator(library).launch(kernel.instance(at), kernel.geometry(at), A, B, C, *shape)
    assert within_bound(A, B, C)


@pytest.mark.parametrize(
    "geometry, static, error",
    [
        (Geometry((33, 32), (1, 1), 0), 0, "cudaErrorInvalidValue: a block of 33 x 32 = 1056 threads"),
        (Geometry((0, 32), (1, 1), 0), 0, "cudaErrorInvalidValue: a block of 0 x 32"),
        (Geometry((1, 1), (1, 65536), 0), 0, "cudaErrorInvalidValue: a grid of 65536 blocks along y"),
        (Geometry((1, 1), (1, 1), 232449), 0, "cudaErrorInvalidValue: 232449 B of shared memory"),
        (Geometry((1, 1), (1, 1), 232448), 4, "cudaErrorInvalidValue: 232452 B of shared memory"),
    ],
)
def test_refused_launch(geometry, static, error):
    with pytest.raises(LaunchError) as refusal:
        check_launch(geometry, static, EMULATED_LIMITS)
    assert str(refusal.value).startswith(error)


def test_largest_launch_is_taken():
    check_launch(Geometry((32, 32), (2147483647, 65535), 232448 - 4096), 4096, EMULATED_LIMITS)


def test_refused_launch_leaves_c_untouched(emulators):
    A, B = operands("float", 8, 8, 8)
    C = poisoned(A, B)
    with pytest.raises(LaunchError):
        emulators["tiled"].launch("tiled<float, 16>", Geometry((64, 64), (1, 1), 0), A, B, C, 8, 8, 8)
    assert np.isnan(C).all()


def a_kernel(folder, text, template=("dtype",), **entry):
    (folder / "mine.cu").write_text(text)
    return Kernel("mine", "mine", "cuda", ("float",), "mine.cu", template, folder=folder, **entry)


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
    """CUDA's vocabulary, and dynamic shared memory with the user's own name and element type."""
    kernel = a_kernel(tmp_path, MINE)
    emulator = Emulator(build(kernel, ["mine<float, 2>"], tmp_path / "mine.so"))
    assert emulator.static_shared_bytes == {"mine<float, 2>": 32}
    A, B = operands("float", 5, 100, 64)
    C = poisoned(A, B)
    emulator.launch("mine<float, 2>", Geometry((64, 1), (5, 1), 400), A, B, C, 5, 100, 64)
    assert within_bound(A, B, C)


def test_kernel_without_template(tmp_path):
    text = "__global__ void mine(const double* A, double* B, double* C, int n, int p, int m) { C[0] = A[0] * B[0]; }"
    emulator = Emulator(build(a_kernel(tmp_path, text), ["mine<>"], tmp_path / "mine.so"))
    A, B, C = np.full((1, 1), 3.0), np.full((1, 1), 4.0), np.zeros((1, 1))
    emulator.launch("mine<>", Geometry((1, 1), (1, 1), 0), A, B, C, 1, 1, 1)
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
