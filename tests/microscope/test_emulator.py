"""The emulator: every kernel is right on ragged shapes, and it refuses a launch that every device would refuse."""

import time

import numpy as np
import pytest
from builders import KERNELS, a_kernel, product, two_launches

from kernelscope.compile import build
from kernelscope.cpp import compile_library
from kernelscope.emulator import Emulator, LaunchError, Order, check_launch
from kernelscope.launch import Array, Launch, Number
from kernelscope.limits import EMULATED_LIMITS
from tilewise import UserError
from tilewise.__main__ import main
from tilewise.study import points, verify
from tilewise.study.kernel import Kernel, LaunchEntry
from tilewise.study.precision import PRECISIONS

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
            for instance in KERNELS[name].plan(point(name, dtype, (1, 1, 1), **choice)).instances
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


def seconds(work):
    """Seconds of a processor that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def count_in_python():
    for _ in range(4_000_000):
        pass


@pytest.mark.parametrize(
    "name, choice, millions", [("naive", {"block_x": 16, "block_y": 16}, 20), ("tiled", {"tile": 16}, 100)]
)
def test_speed(emulators, name, choice, millions):
    """16 million multiply-adds, and in tiled 2 million waits at barriers, take less time than Python needs to count to
    so many millions on the same machine; a tenth and a fifth was seen. Of a few turns each the best one is taken, which
    other work disturbs least."""
    shape = (256, 256, 256)
    A, B = operands("float", *shape)
    C = poisoned(A, B)
    at = point(name, "float", shape, **choice)
    turns = [
        (seconds(lambda: product(KERNELS[name], at, emulators[name], A, B, C)), seconds(count_in_python))
        for _ in range(3)
    ]
    emulated, counted = map(min, zip(*turns))
    assert emulated < millions / 4 * counted, turns
    assert within_bound(A, B, C)


def test_ucontext_gives_the_same(tmp_path):
    """The fallback for machines other than x86-64."""
    kernel, shape = KERNELS["tiled"], (33, 35, 70)
    at = point("tiled", "float", shape, tile=16)
    library = build(kernel, kernel.plan(at).instances, tmp_path / "tiled.so", flags=["-DEMULATOR_UCONTEXT"])
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


SGEMM = """
template <int TILE>
__global__ void __launch_bounds__(TILE * TILE, 1)
mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
{
    const uint row = blockIdx.x * TILE + threadIdx.x / TILE, col = blockIdx.y * TILE + threadIdx.x % TILE;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + (beta == 0 ? 0 : beta * C[row * N + col]);
}
"""
SGEMM_ARGUMENTS = ("n", "m", "p", {"float": "1.0"}, "A", "B", {"float": "0.0"}, "C")


def sgemm(folder, arguments=SGEMM_ARGUMENTS):
    grid = ("ceil_div(n, tile)", "ceil_div(m, tile)")
    return a_kernel(folder, SGEMM, LaunchEntry("mine", ("tile",), ("tile * tile",), (), grid, arguments=arguments))


def test_arguments_of_ones_own(tmp_path):
    kernel, at = sgemm(tmp_path), point("mine", "float", (33, 35, 70), tile=8)
    emulator = Emulator(build(kernel, kernel.plan(at).instances, tmp_path / "mine.so"))
    A, B = operands("float", 33, 35, 70)
    C = poisoned(A, B)
    product(kernel, at, emulator, A, B, C)
    assert within_bound(A, B, C)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (SGEMM_ARGUMENTS[:7], "mine<8>: the function has 8 parameters, but the launch gives it 7 arguments; correct"),
        (
            ("A", "B", "C", "n", "p", "m", "n", "p"),
            "argument 1 is the array A, but the function takes an integer of 4 B",
        ),
        (
            ("n", "m", "p", {"double": "1"}, *SGEMM_ARGUMENTS[4:]),
            "argument 4 is a number of type double, but the function takes a floating-point number of 4 B there",
        ),
        (
            ("n", "m", {"int64": "p"}, *SGEMM_ARGUMENTS[3:]),
            "argument 3 is a number of type int64, but the function takes an integer of 4 B there",
        ),
        (
            ("n", "m", "p", "1", *SGEMM_ARGUMENTS[4:]),
            "argument 4 is a number of type int, but the function takes a floating-point number of 4 B there",
        ),
        (
            (*SGEMM_ARGUMENTS[:7], "n"),
            "argument 8 is a number of type int, but the function takes a pointer of 8 B there",
        ),
        (
            (*SGEMM_ARGUMENTS[:7], {"tensor_map": "C", "box": ("1", "4")}),
            "argument 8 is a tensor map, but the function takes a pointer of 8 B there",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_runs(tmp_path, arguments, message):
    kernel, at = sgemm(tmp_path, arguments), point("mine", "float", (4, 4, 4), tile=8)
    emulator = Emulator(build(kernel, kernel.plan(at).instances, tmp_path / "mine.so"))
    A, B = operands("float", 4, 4, 4)
    C = poisoned(A, B)
    with pytest.raises(UserError, match=r"mine\.cu: mine") as refusal:
        product(kernel, at, emulator, A, B, C)
    assert message in str(refusal.value)
    assert np.isnan(C).all()


SHARING = """
__global__ void __cluster_dims__(2, 3) mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    __shared__ float sums[8];
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int row = blockIdx.y, first = blockIdx.x / 2 * 16 + threadIdx.x, own = rank % 2, column = first + 8 * own;
    float sum = 0;
    for (int k = 0; k < p && column < m; ++k) sum += A[row * p + k] * B[k * m + column];
    sums[threadIdx.x] = sum;
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
    // Each block stores what its neighbour along x has summed.
    const float* theirs = static_cast<const float*>(__cluster_map_shared_rank(sums, rank ^ 1));
    const int other = first + 8 * (1 - own);
    if (other < m) C[row * m + other] = theirs[threadIdx.x];
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}
"""


def test_blocks_of_a_cluster_reach_each_others_shared_memory(tmp_path):
    (tmp_path / "mine.cu").write_text(SHARING)
    launch = LaunchEntry("mine", (), ("8",), (), ("2 * ceil_div(m, 16)", "n"), ("2", "3"))
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    at = point("mine", "float", (6, 5, 37))
    emulator = Emulator(build(kernel, kernel.plan(at).instances, tmp_path / "mine.so"))
    A, B = operands("float", 6, 5, 37)
    for order in ({}, {"reverse": True}, {"seed": 3}):
        C = poisoned(A, B)
        product(kernel, at, emulator, A, B, C, **order)
        assert verify.check(C, *verify.reference(A, B, "float"), "float", 5).ok


def test_the_command_takes_clusters_from_the_file(tmp_path, capsys):
    (tmp_path / "mine.cu").write_text(SHARING)
    words = ["trace", str(tmp_path / "mine.cu"), "--block", "8x1", "--shape", "6x5x37"]
    assert main([*words, "--grid", "2 * ceil_div(m, 16),n"]) == 0, capsys.readouterr()
    assert main([*words, "--grid", "ceil_div(m, 8),n"]) == 2
    assert "is not a multiple of clusters of 2 x 3 x 1" in capsys.readouterr().err
    assert main([*words, "--grid", "2 * ceil_div(m, 16),n", "--cluster", "2"]) == 2  # CUDA fixes it when it compiles
    assert "has __cluster_dims__(2, 3), and the launch is for clusters of 2 x 1 x 1" in capsys.readouterr().err


def test_launch_bounds_hold(tmp_path, capsys):
    (tmp_path / "mine.cu").write_text(
        "template <typename T, int TILE> __global__ void __launch_bounds__(TILE * TILE / 2)\n"
        "mine(const T* A, const T* B, T* C, int n, int p, int m) {}\n"
    )
    assert main(["trace", str(tmp_path / "mine.cu"), "--tile", "8"]) == 2
    assert "a block of 64 threads; the kernel's __launch_bounds__ allow 32" in capsys.readouterr().err


def test_blocks_and_grids_of_three_dimensions(tmp_path):
    """Every thread notes its own number and its block's at the place that these name."""
    text = """__global__ void mine(float* C, int m)
    {
        const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        C[block * m + thread] += 100 * block + thread;
    }"""
    emulator = Emulator(build(a_kernel(tmp_path, text), ["mine"], tmp_path / "mine.so"))
    launch = Launch("mine", (4, 3, 2), (3, 2, 5), (Array("C"), Number("int", 24)))
    expected = 100 * np.arange(30)[:, None] + np.arange(24)
    for order in ({}, {"reverse": True}, {"seed": 3}):
        C = np.zeros((30, 24), np.float32)
        assert emulator.launch(launch, {"C": C}, order=Order(**order))
        assert np.array_equal(C, expected)
    C = np.zeros((30, 24), np.float32)
    emulator.launch(launch, {"C": C}, blocks=[(2, 1, 3), (0, 0, 4)])
    assert np.flatnonzero(C.any(axis=1)).tolist() == [2 + 3 * (1 + 2 * 3), 3 * 2 * 4]


def test_several_functions_and_what_a_launch_does_not_use(tmp_path):
    """Shared memory belongs to the function that declares it; a kernel that is never launched has none."""
    text = """
    template <unsigned N, bool B> __global__ void mine(float* C)
    { __shared__ float own[N]; own[0] = N; __syncthreads(); C[0] = own[0]; }
    __global__ void twice(float* C) { __shared__ double own[2]; own[1] = C[0]; __syncthreads(); C[0] = 2 * own[1]; }
    __global__ void unused(float* C) { __shared__ float large[16384]; large[0] = C[0]; C[0] = large[9]; }
    """
    names = ["mine<3, 1>", "mine<5, true>", "twice"]
    emulator = Emulator(build(a_kernel(tmp_path, text), names, tmp_path / "mine.so"))
    assert emulator.static_shared_bytes == {"mine<3, 1>": 12, "mine<5, true>": 20, "twice": 16}
    C = np.zeros(1, np.float32)
    for name in ("mine<5, true>", "twice"):
        emulator.launch(Launch(name, (1, 1, 1), (1, 1, 1), (Array("C"),)), {"C": C})
    assert C[0] == 10


def test_two_launches_with_a_workspace(tmp_path):
    kernel = two_launches(tmp_path, dtypes=DTYPES)
    for dtype in DTYPES:
        at = point("mine", dtype, (19, 21, 37))
        A, B = operands(dtype, 19, 21, 37)
        C = poisoned(A, B)
        product(kernel, at, Emulator(build(kernel, kernel.plan(at).instances, tmp_path / f"{dtype}.so")), A, B, C)
        assert within_bound(A, B, C)


def test_a_header_and_values_of_another_type(tmp_path):
    """What a kernel includes is found, and an array may be read as another type, as CUDA code does everywhere."""
    (tmp_path / "four.cuh").write_text(
        "__device__ void four(float* to, const float* from)\n"
        "{ *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(from); }\n"
    )
    text = """#include <cuda_runtime.h>
    #include "four.cuh"
    __global__ void mine(const float* A, float* C)
    {
        __shared__ float s[4];
        s[0] = s[1] = s[2] = s[3] = 1;
        four(s, A);
        C[0] = s[0] + s[1] + s[2] + s[3];
    }"""
    emulator = Emulator(build(a_kernel(tmp_path, text), ["mine"], tmp_path / "mine.so"))
    A, C = np.array([1, 2, 3, 4], np.float32), np.zeros(1, np.float32)
    emulator.launch(Launch("mine", (1, 1, 1), (1, 1, 1), (Array("A"), Array("C"))), {"A": A, "C": C})
    assert C[0] == 10


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
