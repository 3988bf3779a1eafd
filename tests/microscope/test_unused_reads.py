"""A read of shared memory that was never written is judged by its effect: a remark if no result depends on it."""

import pytest
from builders import trace, traced

from tilewise.study import columns, points
from tilewise.study.kernel import Kernel, LaunchEntry

#: Each panel of 8 of k is a stage, filled one ahead. The loop reads the next stage's first row ahead, also at its end.
TEXT = """
#define FILL(panel)                                                                                 \\
    for (int k = 0; k < 8; ++k)                                                                     \\
        stages[(panel) % 2][k][col] = (panel) * 8 + k < p && col < m ? B[((panel) * 8 + k) * m + col] : T(0);
template <typename T>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{
    __shared__ T stages[2][8][16];
    __shared__ int flag;
    const int col = threadIdx.x, row = blockIdx.y, panels = (p + 7) / 8;
    T sum = 0, ahead = 0;
    FILL(0)
    for (int panel = 0; panel < panels; ++panel) {
        if (panel + 1 < panels) FILL(panel + 1)
        __syncthreads();
        for (int k = 0; k < 8 && panel * 8 + k < p; ++k) sum += A[row * p + panel * 8 + k] * stages[panel % 2][k][col];
        ahead = stages[(panel + 1) % 2][0][col];  // AHEAD
        __syncthreads();
    }
    // USE
    if (col < m) C[row * m + col] = sum;
}
"""
#: With one panel the second stage is never filled. What uses what was read there, and whether a result depends on it.
USES = {
    "nothing": ("float", "", False),
    "nothing, of integers": ("int32", "", False),
    "a sum of no effect": ("float", "ahead = ahead + sum;", False),
    "one element": ("float", "if (row == 2 && col == 7) sum += 0 * ahead;", True),
    "one element of doubles": ("double", "if (row == 2 && col == 7) sum += 0 * ahead;", True),
    "one element of integers": ("int32", "if (row == 2 && col == 7) sum += ahead * A[row * p];", True),
    "one bit of an integer": ("int32", "if (row == 2 && col == 7) sum += ahead & 4;", True),
    "a maximum": ("float", "if (row == 2 && col == 7) sum = fmaxf(sum, ahead);", True),
    "a minimum": ("float", "if (row == 2 && col == 7) sum = fminf(sum, ahead);", True),
    "a comparison": ("float", "if (ahead > 1) sum = 0;", True),
    "a comparison the other way": ("float", "if (ahead < -1) sum = 0;", True),
    "a flag that is not 0": ("float", "if (!flag) sum = 0;", True),
    "a flag that is 1": ("float", "if (flag == 1) sum = 0;", True),
    "a condition that changes nothing": ("float", "if (flag) ahead = sum;", False),
}


def kernel_of(folder, use, text=TEXT, dtypes=("float",)):
    (folder / "mine.cu").write_text(text.replace("// USE", use))
    launch = LaunchEntry("mine", ("dtype",), ("16",), ("1", "16"))
    return Kernel("mine", "mine", "cuda", dtypes, "mine.cu", launches=(launch,), folder=folder)


@pytest.mark.parametrize("dtype, use, depends", USES.values(), ids=USES)
def test_a_read_of_what_was_never_written_is_judged_by_its_effect(tmp_path, dtype, use, depends):
    row, found = trace(kernel_of(tmp_path, use, dtypes=(dtype,)), dtype, (4, 8, 13))
    said = [str(fault) for fault in found]
    at = f"{tmp_path}/mine.cu:{next(i for i, line in enumerate(TEXT.splitlines(), 1) if 'AHEAD' in line)}: "
    reads = next(text for text in said if text.startswith(at))
    assert "reads stages[128], which no thread of the block has written" in reads
    if depends:
        assert row["uninitialised"] >= 4 * 16 and not row["unused_reads"], said
        assert " error: read of what was never written: " in reads and not any(fault.is_remark for fault in found)
    else:
        assert all(row[column] == 0 for column in columns.FAULTS) and row["unused_reads"] >= 4 * 16, said
        assert " remark: read before it was written: " in reads and "; no result depends on it (" in reads
        assert all(fault.is_remark for fault in found)


def test_an_index_that_was_never_written_is_a_fault(tmp_path):
    row, found = trace(kernel_of(tmp_path, "if (flag < 0) sum += A[flag];"), "float", (4, 8, 13))
    assert row["uninitialised"] and "uninitialised" in {fault.kind for fault in found}


def test_with_more_panels_nothing_unwritten_is_read(tmp_path):
    row, found = trace(kernel_of(tmp_path, ""), "float", (4, 16, 13))
    assert found == [] and row["unused_reads"] == 0


def test_what_is_not_checked_is_a_fault(tmp_path):
    """Of a part of the blocks no product is known, and a wrong product may come from what was read."""
    row, found = trace(kernel_of(tmp_path, ""), "float", (4, 8, 13), blocks=[(0, 1, 0)])
    assert row["uninitialised"] == 16 and not any(fault.is_remark for fault in found)
    row, found = trace(kernel_of(tmp_path, "if (row == 3) sum *= 2;"), "float", (4, 8, 13))
    assert row["uninitialised"] and not any(fault.is_remark for fault in found)


def test_beside_another_fault_it_is_one(tmp_path):
    race = "if (col < m) C[row * m] = sum;"
    row, _ = trace(kernel_of(tmp_path, race), "float", (4, 8, 13))
    assert row["races"] and row["uninitialised"] and row["unused_reads"] == 0


def test_data_under_way_are_a_fault_whatever_becomes_of_them(tmp_path):
    fetch = "__shared__ T late[16]; if (sizeof(T) == 4) __pipeline_memcpy_async(&late[col], B, 4); ahead = late[col];"
    text = "#include <cuda_pipeline.h>\n" + TEXT
    row, _ = trace(kernel_of(tmp_path, fetch, text), "float", (4, 16, 13))
    assert row["asynchrony"] and not row["unused_reads"]


RING = {"tile_n": 128, "tile_m": 256, "tile_k": 16, "stages": 3, "walk": 69}
HALF = {"tile_n": 64, "tile_m": 64, "tile_k": 64, "warp_n": 32, "warp_m": 64, "stages": 3, "blocks_per_sm": 1}


@pytest.mark.parametrize(
    "name, dtype, shape, choice",
    [
        ("tma_ring", "float", (67, 20, 70), RING),
        ("transposing_ring", "float", (67, 20, 70), RING),
        ("stream_k", "float", (67, 20, 70), RING | {"band": 4}),
        ("mma_sync", "half", (67, 40, 72), HALF),
    ],
)
def test_rungs_with_fewer_panels_than_stages_are_clean(name, dtype, shape, choice, tmp_path):
    """They read ahead from a stage that nothing has filled, and do not use it: counted, and no fault in any table."""
    point = points.point("trace", name, dtype, *shape, **choice)
    table, _, found = traced([point], [], tmp_path)
    assert table.loc[0, "status"] == "ok" and (table.loc[0, list(columns.FAULTS)] == 0).all()
    assert found and all(fault.is_remark for fault in found) and table.loc[0, "unused_reads"] > 0
