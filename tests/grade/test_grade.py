"""`tilewise grade`: verdicts and hints of the examples, and hand-ins that do harm."""

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewise import ROOT
from tilewise.__main__ import main

pytestmark = pytest.mark.usefixtures("without_gpu")

PLAIN = (ROOT / "examples/hand-ins/right_plain.cu").read_text(encoding="utf-8")


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text("any: {measures: {}}\n", encoding="utf-8")
    return path


def graded(folder: Path, task: str, output: Path, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    status = main(["grade", str(folder), "--task", task, "--output", str(output), *options])
    with (output / "grades.csv").open(encoding="utf-8") as file:
        return status, {row["student"]: row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_examples_have_their_verdicts_and_hints(tmp_path: Path, task: Path) -> None:
    status, rows = graded(ROOT / "examples/hand-ins", str(task), tmp_path / "out")
    assert status == 1
    assert {name: row["mistakes"] for name, row in rows.items()} == {
        "right_grid_by_rows": "",
        "right_plain": "",
        "right_template": "",
        "right_tiled_with_main": "",
        "wrong_barrier_after": "barrier_after",
        "wrong_barrier_before": "barrier_before",
        "wrong_early_return": "early_return",
        "wrong_edge": "edge_not_tested",
        "wrong_grid_division": "grid_division",
        "wrong_shared_larger_than_block": "shared_larger_than_block",
        "wrong_uninitialised_sum": "uninitialised_sum",
        "wrong_zero_fill": "zero_fill",
    }
    suite = ElementTree.parse(tmp_path / "out/junit.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("12", "8")
    assert (tmp_path / "out/students/wrong_edge.md").is_file()


CONSTANT = """#define TILE 16
SIZE
__global__ void mm(const float* A, const float* B, float* C) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < N / TILE; ++t) {
        As[threadIdx.y][threadIdx.x] = A[row * N + t * TILE + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(t * TILE + threadIdx.y) * N + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        BARRIER
    }
    C[row * N + col] = sum;
}
"""


def test_a_kernel_whose_sizes_are_constants_is_marked_at_one_size(tmp_path: Path, task: Path) -> None:
    hand_ins = tmp_path / "in"
    hand_ins.mkdir()
    sizes = {"macro": "#define N 4096", "shift": "const int N = 1 << 12;", "wrong": "#define N (1024)"}
    for name, size in sizes.items():
        text = CONSTANT.replace("SIZE", size).replace("BARRIER", "" if name == "wrong" else "__syncthreads();")
        (hand_ins / f"{name}.cu").write_text(text, encoding="utf-8")
    status, rows = graded(hand_ins, "tiled", tmp_path / "out")
    assert status == 1
    assert {name: row["mistakes"] for name, row in rows.items()} == {
        "macro": "",
        "shift": "",
        "wrong": "barrier_after",
    }


def test_the_index_down_a_column_misses_the_measure_in_the_teachers_words(tmp_path: Path) -> None:
    hand_ins = tmp_path / "in"
    hand_ins.mkdir()
    (hand_ins / "good.cu").write_text(PLAIN, encoding="utf-8")
    swapped = PLAIN.replace("threadIdx.y", "?").replace("threadIdx.x", "threadIdx.y").replace("?", "threadIdx.x")
    swapped = swapped.replace("blockIdx.y * blockDim.y", "blockIdx.x * blockDim.x", 1)
    swapped = swapped.replace("blockIdx.x * blockDim.x + threadIdx.y", "blockIdx.y * blockDim.y + threadIdx.y")
    (hand_ins / "down.cu").write_text(swapped, encoding="utf-8")
    (tmp_path / "hints.yaml").write_text("column_index: Spalte! {sectors}\n", encoding="utf-8")
    status, rows = graded(hand_ins, "naive", tmp_path / "out", "--hints", str(tmp_path / "hints.yaml"))
    assert status == 1
    assert rows["good"]["verdict"] == "passed"
    assert (rows["down"]["mistakes"], rows["down"]["hint"][:7]) == ("column_index", "Spalte!")


@pytest.mark.slow
def test_harmful_hand_ins_fail_alone(tmp_path: Path, task: Path) -> None:
    hand_ins = tmp_path / "in"
    (hand_ins / "nothing").mkdir(parents=True)
    begin = "    float sum = 0.0f;"
    given = begin.replace("    ", "        ")
    texts = {
        "good": PLAIN,
        "empty": "",
        "include": '#include "/etc/passwd"\n' + PLAIN,
        "spliced": '#inc\\\nlude "../other.cu"\n' + PLAIN,
        "endless": PLAIN.replace(given, given + " while (C != nullptr || n > 0) sum += 1;"),
        "prints": PLAIN.replace(given, given + ' for (int i = 0; i < 1000000; ++i) printf("%1000d", i);'),
        "forks": 'extern "C" __device__ int fork();\n' + PLAIN.replace(given, given + " while (fork() > 0) sum += 1;"),
    }
    for name, text in texts.items():
        (hand_ins / f"{name}.cu").write_text(text, encoding="utf-8")
    with (hand_ins / "huge.cu").open("wb") as file:
        file.truncate(100_000_000)
    _, rows = graded(hand_ins, str(task), tmp_path / "out", "--limit", "20")
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    refused = {name for name, row in rows.items() if row["mistakes"] == "refused"}
    assert verdicts["good"] == "passed"
    assert refused == {"nothing", "empty", "include", "spliced", "huge"}
    assert (verdicts["endless"], rows["endless"]["mistakes"]) == ("failed", "hangs")
    assert all(float(row["seconds"]) < 30 for row in rows.values())


ROW_OF_THREADS = """
template <int SIDE>
__global__ void product(int rows, int columns, int inner, float alpha, const float* left, const float* right,
                        float beta, float* out)
{
    const int row = blockIdx.x * SIDE + threadIdx.x / SIDE, column = blockIdx.y * SIDE + threadIdx.x % SIDE;
    if (row >= rows || column >= columns) return;
    float sum = 0;
    for (int k = 0; k < inner; ++k) sum += left[row * inner + k] * right[k * columns + column];
    out[row * columns + column] = alpha * sum + beta * out[row * columns + column];
}
"""
FIXED_SIZE = """
__global__ void product(float a[64][64], float b[64][64], float c[64][64])
{
    c[threadIdx.y][threadIdx.x] = a[threadIdx.y][0] * b[0][threadIdx.x];
}
"""


def test_a_row_of_threads_passes_and_a_kernel_of_literal_sizes_gets_a_question(tmp_path: Path) -> None:
    hand_ins = tmp_path / "in"
    hand_ins.mkdir()
    (hand_ins / "row.cu").write_text(ROW_OF_THREADS, encoding="utf-8")
    (hand_ins / "fixed.cu").write_text(FIXED_SIZE, encoding="utf-8")
    status, rows = graded(hand_ins, "naive", tmp_path / "out")
    assert status == 1
    assert rows["row"]["verdict"] == "passed"
    assert rows["fixed"]["mistakes"] == "question" and "// tilewise: arguments=" in rows["fixed"]["hint"]


@pytest.mark.slow
def test_an_index_of_32_bits_fails_at_the_largest_matrices_alone(tmp_path: Path) -> None:
    examples = ROOT / "examples/large-matrices"
    status, rows = graded(examples, str(examples / "task.yaml"), tmp_path / "out")
    assert status == 1
    assert {name: (row["mistakes"], row["lines"]) for name, row in rows.items()} == {
        "right_index_of_64_bits": ("", ""),
        "wrong_index_of_32_bits": ("overflow", "8"),
    }
    assert graded(examples, "naive", tmp_path / "small")[0] == 0


@pytest.mark.slow
def test_overflow_that_leaves_c_unwritten_is_found_in_any_order_of_blocks(tmp_path: Path) -> None:
    hand_ins = tmp_path / "in"
    hand_ins.mkdir()
    wide = PLAIN.replace("C[row * m + col]", "C[(size_t)row * m + col]")
    test = "if (row < n && col < m)"
    assert test in wide
    reversed_rows = PLAIN.replace("blockIdx.y *", "(gridDim.y - 1 - blockIdx.y) *")
    texts = {
        "right": wide,
        "right_reversed": wide.replace("blockIdx.y *", "(gridDim.y - 1 - blockIdx.y) *"),
        "right_unsigned": PLAIN.replace("int row", "unsigned row"),  # 3e9 elements need 32 bits
        "wrong_count": wide.replace(test, "int count = n * m;\n if (row < n && col < m && row * m + col < count)"),
        "wrong_reversed": reversed_rows,
    }
    for name, text in texts.items():
        (hand_ins / f"{name}.cu").write_text(text, encoding="utf-8")
    task = tmp_path / "own.yaml"
    task.write_text("large: {largest: 1000000x4x3000}\n", encoding="utf-8")
    _, rows = graded(hand_ins, str(task), tmp_path / "out")
    assert {name: row["mistakes"] for name, row in rows.items()} == {
        name: "overflow" if name.startswith("wrong") else "" for name in texts
    }


@pytest.mark.parametrize("size", ["50000x50000", "1000000x70000x2", "1000000x1x1000000"])
def test_a_largest_product_that_cannot_be_tried_is_refused(tmp_path: Path, capsys, size: str) -> None:
    (tmp_path / "own.yaml").write_text(f"large: {{largest: {size}}}\n", encoding="utf-8")
    assert main(["grade", str(ROOT / "examples/large-matrices"), "--task", str(tmp_path / "own.yaml")]) == 2
    said = capsys.readouterr().err
    assert "largest" in said and said.count("\n") == 1
