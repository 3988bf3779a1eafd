"""One wrong index of a kernel is found from its numbers, with the lines where it may be; what no pattern explains, is
not explained."""

import pytest
from builders import trace

from tilewise.study.kernel import Kernel, LaunchEntry

TILED = """template <int TILE>
__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int start = 0; start < p; start += TILE) {
        As[ty][tx] = row < n && start + tx < p ? A[row * p + start + tx] : 0;
        Bs[ty][tx] = start + ty < p && col < m ? B[(start + ty) * m + col] : 0;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < n && col < m) C[row * m + col] = sum;
}
"""
BOTH = "(line 9 reads A, line 12 reads the copy, line 10 reads B)"
PATTERNS = {  # what is changed, the line of the fault, and what is said
    "B's tile": (
        ("Bs[k][tx]", "Bs[tx][k]"),
        12,
        "tiles of B of 16 x 16 are read, or stored, transposed (line 10 reads B, line 12 reads the copy)",
    ),
    "A's tile": (("As[ty][k]", "As[k][ty]"), 12, "tiles of A of 16 x 16 are read, or stored, transposed (line 9"),
    "A's tile, stored": (("As[ty][tx]", "As[tx][ty]"), 12, "tiles of A of 16 x 16 are read, or stored, transposed"),
    "the first tile": (
        ("row * p + start + tx", "row * p + tx"),
        9,
        "each tile of A along k is the first one, k = 0 to 15 (line 9 reads A)",
    ),
    "tiles skipped": (
        ("start < p; start += TILE", "start < p; start += 2 * TILE"),
        None,
        "of the sums over k the products of k = 16 to 31 and from k = 48 on are missing",
    ),
    "a tile counted twice": (
        ("As[ty][k] *", "(start == 16 || start == 48 ? 2 : 1) * As[ty][k] *"),
        None,
        "of the sums over k the products of k = 16 to 31 and from k = 48 on are added twice",
    ),
    "k and k ^ 1": (("As[ty][tx]", "As[ty][tx ^ 1]"), 9, f"A or B is read at k ^ 1 for k {BOTH}"),
    "backwards": (
        ("As[ty][k]", "As[ty][TILE - 1 - k]"),
        9,
        f"A or B is read backwards along k, within tiles of 16 {BOTH}",
    ),
    "rows": (
        ("As[ty][tx]", "As[ty ^ 1][tx]"),
        9,
        "rows of A, or of C, are swapped or read again: row 0 of C is that of row 1 (line 9 reads A, line 12 reads the "
        "copy, line 15 writes C)",
    ),
    "one row for all": (
        ("A[row * p", "A[blockIdx.y * TILE * p"),
        9,
        "rows of A, or of C, are swapped or read again: row 1 of C is that of row 0",
    ),
    "columns": (
        ("Bs[ty][tx]", "Bs[ty][tx ^ 2]"),
        10,
        "columns of B, or of C, are swapped or read again: column 0 of C",
    ),
    "rows of n": (
        ("A[row * p", "A[row * n"),
        9,
        "A is read as if its rows had n = 40 elements, not 64 (line 9 reads A)",
    ),
    "tiles of C transposed": (
        ("C[row * m + col]", "C[(row - ty + tx) * m + col - tx + ty]"),
        15,
        "each tile of C of 16 x 16 is stored transposed (line 15 writes C)",
    ),
    "blocks": (
        ("C[row * m + col]", "C[(blockIdx.x * TILE + ty) * m + blockIdx.y * TILE + tx]"),
        15,
        "tiles of C of 16 x 16 are stored at the place of others, rows and columns of tiles swapped (line 15 writes C)",
    ),
}


def fault_of(folder, text, shape, block=(16, 16), covers=None, **parameters):
    (folder / "mine.cu").write_text(text)
    launch = LaunchEntry("mine", tuple(parameters), block, covers=covers or block)
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", (*parameters,), launches=(launch,), folder=folder)
    _, [fault] = trace(kernel, "float", shape, **parameters)
    assert fault.kind == "incorrect", fault
    return fault


@pytest.mark.parametrize("name", PATTERNS)
def test_one_index_pattern_is_named_with_its_lines(tmp_path, name):
    (old, new), line, words = PATTERNS[name]
    assert TILED.count(old) == 1
    square = name in ("tiles of C transposed", "blocks")  # else it would be out of bounds
    fault = fault_of(tmp_path, TILED.replace(old, new), (48, 64, 48) if square else (40, 64, 48), tile=16)
    assert words in fault.text and fault.line == line, fault


def test_a_tile_is_found_where_it_does_not_divide_the_matrices(tmp_path):
    for old, new, words in (
        ("Bs[k][tx]", "Bs[tx][k]", "tiles of B of 8 x 8 are read"),
        ("As[ty][tx]", "As[ty ^ 1][tx]", "row 0 of C is that of row 1"),
    ):
        fault = fault_of(tmp_path, TILED.replace(old, new), (33, 35, 70), (8, 8), tile=8)
        assert words in fault.text, fault


def test_elements_of_the_other_sign(tmp_path):
    fault = fault_of(tmp_path, TILED.replace("= sum;", "= row % 3 ? sum : -sum;"), (40, 64, 48), tile=16)
    assert "they are -1 times what they should be" in fault.text, fault


def test_results_that_are_stored_over_each_other(tmp_path):
    text = """
__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = 4 * threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    for (int i = 0; i < 4; ++i) {
        float sum = 0;
        for (int k = 0; k < p; ++k) sum += A[(row + i) * p + k] * B[k * m + col];
        C[row * m + col] = sum;
    }
}
"""
    fault = fault_of(tmp_path, text, (20, 35, 40), (8, 8), (32, 8))
    assert (
        "nothing has written 600 of them, and the others are wrong; they hold the results of 3 rows down" in fault.text
    )
    assert fault.line == 9


@pytest.mark.parametrize("change", ["sum + 0.01f", "sum * sum", "sum + A[row] * B[col]", "row % 3 ? sum : sum * sum"])
def test_what_no_pattern_explains_has_no_cause(tmp_path, change):
    fault = fault_of(tmp_path, TILED.replace("= sum;", f"= {change};"), (40, 64, 48), tile=16)
    assert fault.line is None and fault.text.count(";") == 1, fault
