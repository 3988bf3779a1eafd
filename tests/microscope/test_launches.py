"""Several launches, workspaces, headers, three dimensions, arguments and types of one's own under the microscope."""

import dataclasses

import pytest
from builders import KERNELS, TURN, TWO, kernel_of, memory_faults, trace, two_launches

from tilewise import UserError
from tilewise.study.kernel import Kernel, LaunchEntry


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_two_launches_are_one_point(tmp_path, dtype):
    """What one launch writes the next may read and write; their traffic is summed; the block is that of the product."""
    kernel = two_launches(tmp_path)
    row, faults = trace(kernel, dtype, (19, 21, 37))
    assert not faults, [str(fault) for fault in faults]
    assert (row["block_x"], row["block_y"]) == (8, 8)
    # turn: 3 blocks along m, in each 21 rows of 16, two per warp; mine: 5 blocks along m, 19 rows of 8, four per warp.
    assert row["global_store_requests"] == 3 * 11 + 5 * 5


MUTANTS_OF_TWO = [  # what is replaced by what, the kind of fault, a part of its message
    (
        "k < p && col < m",
        "k < p && col < m && !(k == 3 && col == 5)",
        "uninitialised",
        "thread (5, 0) of block (0, 0) reads turned[5, 3], which no thread has written",
    ),
    (
        TURN,
        TURN + " if (k == 0 && col == 0) turned[m * p - 1] = 0;",
        "race",
        "writes turned[36, 20] of global memory, which thread (0, 0) of block (0, 0) writes at line 6, and blocks",
    ),
    (
        "turned[col * p + k] = B",
        "turned[col * p + k + 1] = B",
        "out_of_bounds",
        "element 777 of turned, which has 37 x 21 = 777",
    ),
]


@pytest.mark.parametrize("old, new, kind, message", MUTANTS_OF_TWO, ids=[mutant[2] for mutant in MUTANTS_OF_TWO])
def test_mutants_of_two_launches(tmp_path, old, new, kind, message):
    assert TWO.count(old) == 1
    _, faults = trace(two_launches(tmp_path, TWO.replace(old, new)), "float", (19, 21, 37))
    found = [fault for fault in faults if fault.kind == kind]
    assert any(message in str(fault) for fault in found), [str(fault) for fault in faults]
    lines = TWO.splitlines()
    at = "sum += A" if kind == "uninitialised" else "turned[col * p + k]"
    assert all(at in lines[fault.line - 1] for fault in found)


def test_what_a_workspace_held_before_counts_for_nothing(tmp_path):
    """The first launch leaves out a row: it is unknown under every schedule, whatever the one before left there."""
    _, faults = trace(
        two_launches(tmp_path, TWO.replace("k < p && col < m", "k < p && col < m - 1")), "float", (9, 5, 7)
    )
    assert {fault.kind for fault in faults} == {"uninitialised"}
    assert "turned[6, 0]" in str(faults[0])


def test_a_launch_orders_what_blocks_do(tmp_path):
    """Blocks of one launch may not meet in one place; those of two launches may."""
    text = """
    __global__ void first(float* C) { C[0] = blockIdx.x; }
    __global__ void mine(const float* A, const float* B, float* C) { C[0] = C[0] + A[0] * B[0]; }
    """
    (tmp_path / "mine.cu").write_text(text)
    for blocks, clean in ((1, True), (2, False)):
        launches = (
            LaunchEntry("first", (), ("1",), (), (str(blocks),), arguments=("C",)),
            LaunchEntry("mine", (), ("1",), (), ("1",), arguments=("A", "B", "C")),
        )
        kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=launches, folder=tmp_path)
        _, faults = trace(kernel, "float", (1, 1, 1))
        assert ("race" not in {fault.kind for fault in faults}) == clean
        assert "uninitialised" not in {fault.kind for fault in faults}
        assert all(fault.line == 2 for fault in memory_faults(faults))


def test_a_fault_in_a_header_is_named_there(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/load.cuh").write_text(
        "// The last element is one too far.\ntemplate <typename T>\n__device__ T load(const T* from, int index)\n"
        "{\n    return from[index + 1];\n}\n"
    )
    (tmp_path / "parts/all.cuh").write_text('#include "load.cuh"\n')
    kernel = kernel_of(tmp_path, "    C[threadIdx.x] = load(A, threadIdx.x);")
    kernel.path.write_text('#include "parts/all.cuh"\n' + kernel.path.read_text())
    _, faults = trace(kernel, "float", (1, 32, 32), block_x=32, block_y=1)
    [fault] = memory_faults(faults)
    assert (fault.kind, fault.file, fault.line) == ("out_of_bounds", str(tmp_path / "parts/load.cuh"), 5)
    assert "thread (31, 0) of block (0, 0) reads element 32 of A, which has 1 x 32 = 32" in str(fault)


def test_a_race_with_a_header_names_both_files(tmp_path):
    (tmp_path / "fill.cuh").write_text(
        "template <typename T>\n__device__ void fill(T* s, T v) { s[threadIdx.x] = v; }\n"
    )
    body = "    __shared__ T s[32]; fill(s, A[0]); C[threadIdx.x] = s[31 - threadIdx.x];"
    kernel = kernel_of(tmp_path, body)
    kernel.path.write_text('#include "fill.cuh"\n' + kernel.path.read_text())
    _, faults = trace(kernel, "float", (1, 1, 32), block_x=32, block_y=1)
    race = next(fault for fault in faults if fault.kind == "race")
    assert {race.file, str(race).split(" of ")[-1].split(",")[0]} <= {str(tmp_path / "fill.cuh"), str(kernel.path)}


def test_three_dimensions(tmp_path):
    """Threads and blocks along z are told apart, and named by x, y and z."""
    text = """__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.z * 2 + threadIdx.z, col = blockIdx.x * 4 + threadIdx.x;
    if (row >= n || col >= m || threadIdx.y) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * p + k] * B[k * m + col];
    C[row * m + col] = sum;
}
"""
    launch = LaunchEntry("mine", (), ("4", "3", "2"), (), ("ceil_div(m, 4)", "1", "ceil_div(n, 2)"))
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    kernel.path.write_text(text)
    row, faults = trace(kernel, "float", (7, 5, 9))
    assert not faults
    assert (row["block_x"], row["block_y"]) == (4, 3)
    kernel.path.write_text(text.replace("row >= n || ", ""))
    _, faults = trace(kernel, "float", (7, 5, 9))
    bounds = [fault for fault in faults if fault.kind == "out_of_bounds"]
    assert {(fault.block, fault.thread) for fault in bounds} == {((0, 0, 3), (0, 0, 1))}
    assert "thread (0, 0, 1) of block (0, 0, 3) reads element 35 of A, which has 7 x 5 = 35" in str(bounds[0])
    kernel.path.write_text(text.replace(" || threadIdx.y", ""))
    _, faults = trace(kernel, "float", (7, 5, 9))
    assert any("which thread (0, 0, 0) writes at line 7, with no __sync" in str(f) for f in faults if f.kind == "race")


SGEMM = """
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
{
    const uint row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + BETA;
}
"""


@pytest.mark.parametrize(
    "beta, kinds",
    [("(beta == 0 ? 0 : beta * C[row * N + col])", set()), ("beta * C[row * N + col]", {"uninitialised"})],
)
def test_arguments_of_ones_own(tmp_path, beta, kinds):
    """A kernel that multiplies what C held by 0 reads what nobody wrote."""
    launch = LaunchEntry(
        "mine", (), ("16", "8"), (), ("ceil_div(n, 16)", "ceil_div(m, 8)"),
        arguments=("n", "m", "p", {"float": "1.0"}, "A", "B", {"float": "0.0"}, "C"),
    )  # fmt: skip
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    kernel.path.write_text(SGEMM.replace("BETA", beta))
    _, faults = trace(kernel, "float", (33, 35, 70))
    assert {fault.kind for fault in faults} == kinds, [str(fault) for fault in faults]


def test_a_wrong_number_of_arguments_is_refused(tmp_path):
    kernel = kernel_of(tmp_path, "    C[0] = 1;", arguments=("A", "B", "C", "n"))
    with pytest.raises(UserError, match=r"mine\.cu: mine: mine<float>: the function has 6 parameters, but .* 4 arg"):
        trace(kernel, "float", (1, 1, 1), block_x=1, block_y=1)


SMALL = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T, int TILE>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{
    __shared__ T tile_a[TILE][TILE];
    __shared__ T tile_b[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int start = 0; start < p; start += TILE) {
        tile_a[ty][tx] = row < n && start + tx < p ? A[row * p + start + tx] : T(0);
        tile_b[ty][tx] = start + ty < p && col < m ? B[(start + ty) * m + col] : T(0);
        __syncthreads();  // both tiles
        for (int k = 0; k < TILE; ++k) sum += float(tile_a[ty][k]) * float(tile_b[k][tx]);
        __syncthreads();  // every thread
    }
    if (row < n && col < m) C[row * m + col] = T(sum);
}
"""


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_elements_of_two_bytes(tmp_path, dtype):
    """They are counted as such, and a race between neighbouring elements is not one."""
    launch = LaunchEntry("mine", ("dtype", "tile"), ("tile", "tile"), ("tile", "tile"))
    fields = {"dtypes": (dtype,), "source": "mine.cu", "parameters": ("tile",), "launches": (launch,)}
    kernel = Kernel("mine", "mine", "cuda", folder=tmp_path, **fields)
    kernel.path.write_text(SMALL)
    row, faults = trace(kernel, dtype, (64, 64, 64), tile=16)
    assert not faults, [str(fault) for fault in faults]
    assert (
        row["global_load_requests"]
        == trace(KERNELS["tiled"], "float", (64, 64, 64), tile=16)[0]["global_load_requests"]
    )
    assert row["sectors_per_request"] == 2  # 16 elements of 2 bytes from each of two rows
    assert row["flop_per_byte"] == 8
    for barrier, line in (("__syncthreads();  // both tiles", 14), ("__syncthreads();  // every thread", 11)):
        kernel.path.write_text(SMALL.replace(barrier, ""))
        _, faults = trace(kernel, dtype, (19, 21, 37), tile=8)
        assert any(fault.kind == "race" and fault.line == line for fault in faults), [str(fault) for fault in faults]
    kernel.path.write_text(SMALL.replace("row < n && start", "row <= n && start"))
    _, faults = trace(kernel, dtype, (19, 21, 37), tile=8)
    assert any("reads element 399 of A, which has 19 x 21 = 399" in str(fault) for fault in faults)


def test_a_vector_of_halves_is_one_access(tmp_path):
    body = """    __shared__ __half2 pairs[32];
    pairs[threadIdx.x] = reinterpret_cast<const __half2*>(A)[threadIdx.x];
    __syncthreads();
    const __half2 sum = pairs[threadIdx.x] + pairs[31 - threadIdx.x];
    union { float4 all; __half one[8]; } many;
    many.all = reinterpret_cast<const float4*>(A)[threadIdx.x / 4];
    C[threadIdx.x] = T(sum.x) + __high2half(sum) + many.one[0];"""
    kernel = dataclasses.replace(kernel_of(tmp_path, body), dtypes=("half",))
    kernel.path.write_text("#include <cuda_fp16.h>\n" + kernel.path.read_text())
    row, faults = trace(kernel, "half", (1, 64, 32), block_x=32, block_y=1)
    assert (row["global_load_requests"], row["global_load_sectors"]) == (2, 8)
    assert (row["shared_load_requests"], row["shared_bank_conflicts"]) == (2, 0)
    assert not memory_faults(faults), [str(fault) for fault in faults]
