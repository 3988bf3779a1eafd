"""What the microscope says is of use: what is wrong about a product, who should have come; and nothing misleads."""

import json

import pytest
from builders import trace
from test_microscope import kernel_of

from tilewise.__main__ import main
from tilewise.study import verify
from tilewise.study.kernel import Kernel, LaunchEntry

PRODUCT = """
template <typename T>
__global__ void mine(const T* A, const T* B, T* C, int n, int p, int m)
{{
    const int row = blockIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    if (row >= n || col >= m) return;
    T sum = 0;
    for (int k = {first}; k < {end}; ++k) sum += A[row * p + k] * B[k * m + col]{times};
    {store}
}}
"""
STORE = "C[row * m + col] = sum;"
WRONG = {  # what is changed of the product, and what is said of it
    "the last tile of k": ({"end": "p / 16 * 16"}, "of the sums over k the products from k = 64 on are missing"),
    "the first k": ({"first": "1"}, "of the sums over k the products of k = 0 are missing"),
    "a k in the middle": ({"times": " * (k != 17)"}, "of the sums over k the products of k = 17 are missing"),
    "two k added twice": ({"times": " * (k == 4 || k == 5 ? 2 : 1)"}, "the products of k = 4 to 5 are added twice"),
    "columns from 32 on": ({"store": f"if (col >= 32) sum = 0; {STORE}"}, "all elements of columns 32 on; they are 0"),
    "a corner": (
        {"store": f"if (col < 32 || row > 10) {STORE}"},
        "wrong are all elements of rows 0 to 10 and columns 32 on; nothing has written them",
    ),
    "a row": ({"store": f"if (row == 7) sum += 1; {STORE}"}, "wrong are all elements of row 7"),
    "transposed": ({"store": "C[col * n + row] = sum;"}, "C is transposed; it is right with --columns C of `tilewise"),
}


@pytest.mark.parametrize("changes, words", WRONG.values(), ids=WRONG)
def test_what_is_wrong_about_a_product(tmp_path, changes, words):
    code = {"first": "0", "end": "p", "times": "", "store": STORE} | changes
    (tmp_path / "mine.cu").write_text(PRODUCT.format(**code))
    launch = LaunchEntry("mine", ("dtype",), ("32",), grid=("ceil_div(m, 32)", "n"))
    kernel = Kernel("mine", "mine", "cuda", ("float",), "mine.cu", launches=(launch,), folder=tmp_path)
    for shape in ((33, 70, 35), (40, 70, 50)):
        _, [fault] = trace(kernel, "float", shape)
        assert fault.kind == "incorrect" and words in fault.text, fault.text


def test_all_digits_where_six_hide_the_difference():
    A, B = verify.operands(verify.np, "double", 1, 1, 1, 1)
    product, magnitude = verify.reference(A, B, "double")
    message = verify.check(product * (1 + 1e-12), product, magnitude, "double", 1).message
    held, right = message.split("is ")[1].split(", should be ")
    assert held != right and float(right) == product[0, 0]


def faults_of(folder, body, shape, threads, before=""):
    _, faults = trace(kernel_of(folder, body, before=before), "float", shape, block_x=threads, block_y=1)
    return faults


DEADLOCKS = {  # what the threads do, and the three lines
    "ended": (
        'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");',
        ["thread (0, 0) and 31 others wait at ", "for barrier 1, to which 32 of 64", "but 32 threads have ended"],
    ),
    "elsewhere": (
        'if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); else __syncthreads();',
        ["thread (0, 0) and 31 others wait", "for barrier 1", "but thread (32, 0) and 31 others wait at line 5 for"],
    ),
    "here": (
        "__shared__ cuda::barrier<cuda::thread_scope_block> b; if (threadIdx.x == 0) init(&b, 65);\n__syncthreads();\n"
        "b.arrive_and_wait();",
        ["thread (0, 0) and 63 others wait at ", "1 of 65 arrivals are missing", "but all threads wait here"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("body, lines", DEADLOCKS.values(), ids=DEADLOCKS)
def test_a_deadlock_in_three_lines(tmp_path, body, lines):
    [fault] = faults_of(tmp_path, body + " C[threadIdx.x] = 0;", (1, 1, 64), 64, "#include <cuda/barrier>")
    said = fault.text.split("\n")
    assert fault.kind == "deadlock" and len(said) == 3, fault
    assert all(words in line for words, line in zip(lines, said)), said
    assert fault.file == str(tmp_path / "mine.cu") and "emulator/" not in str(fault), "of a header: the kernel's line"


@pytest.mark.parametrize(
    "body, kind",
    [
        ("const float2 v =\n*reinterpret_cast<const float2*>(B + 1);\nC[threadIdx.x] = v.x;", "misaligned"),
        ("if (threadIdx.x < 16) __syncthreads(); else\n__syncthreads(); C[threadIdx.x] = 0;", "divergence"),
    ],
)  # fmt: skip
def test_beside_an_alignment_or_a_barrier_the_product_is_checked(tmp_path, body, kind):
    faults = faults_of(tmp_path, body, (1, 1, 32), 32)
    assert {fault.kind for fault in faults} >= {kind, "incorrect"} and "order" not in {f.kind for f in faults}, faults


def test_what_a_kernel_prints_is_shown_and_not_obeyed(tmp_path, capfd):
    body = r"""    if (threadIdx.x < 2) printf("%d\x1b[2J\r\xc2\x9b \u00e4 %.1f\n", threadIdx.x, 2.5f);
    if (threadIdx.x == 2) printf("no faults in forward, reverse, random order of threads");
    C[threadIdx.x] = A[0] * B[threadIdx.x];"""
    assert not faults_of(tmp_path, body, (1, 1, 32), 32)
    said = capfd.readouterr().out.splitlines()
    shown = [rf"mine prints: {number}\x1b[2J\r\x9b ä 2.5" for number in (0, 1)]
    assert said == [*shown, "mine prints: no faults in forward, reverse, random order of threads"], (
        "once, of three runs"
    )


FAULTY = """template <int TILE>
__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    __shared__ float s[32];
    if (threadIdx.x == 0) printf("printed\\n");
    s[threadIdx.x] = A[0];
    C[threadIdx.x] = s[31 - threadIdx.x] * B[threadIdx.x];
}
"""


def command(folder, *options):
    (folder / "mine.cu").write_text(FAULTY)
    return main(["trace", str(folder / "mine.cu"), "--shape", "1x1x32", "--tile", "1", "--block", "32x1", *options])


def test_as_json(tmp_path, capsys):
    assert command(tmp_path, "--format", "json") == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    fault = next(fault for fault in found["faults"] if fault["kind"] == "race" and fault["line"] == 6)
    assert (fault["kind"], fault["severity"], fault["line"]) == ("race", "error", 6)
    assert fault["file"] == str(tmp_path / "mine.cu") and fault["count"] == 16 and fault["thread"] == [16, 0]
    assert found["point"] | {"kernel": "mine", "n": 1, "m": 32} == found["point"]
    assert found["traffic"]["global_load_requests"] == 2 and said.err == "mine prints: printed\n"


def test_as_annotations(tmp_path, capsys):
    assert command(tmp_path, "--format", "github") == 1
    said = capsys.readouterr().out.splitlines()
    place = f"::error file={tmp_path}/mine.cu,line="
    assert any(line.startswith(f"{place}6,title=race::thread (16, 0) of block (0, 0) writes s[16]") for line in said), (
        said
    )
    assert said[-1] == "3 faults in forward, reverse, random order of threads"


def test_a_name_chooses_among_the_entries_of_a_source(tmp_path, capsys):
    body = "{ C[threadIdx.x] = A[0] * B[threadIdx.x] * %s; }"
    head = "__global__ void %s(const float* A, const float* B, float* C, int n, int p, int m) "
    (tmp_path / "both.cu").write_text("".join(head % name + body % by for name, by in (("right", 1), ("wrong", 2))))
    entry = "{title: t, kind: cuda, dtypes: [float], source: both.cu, block: [32], grid: [1]}"
    (tmp_path / "registry.yaml").write_text(f"right: {entry}\nwrong: {entry}\n")
    command = ["trace", str(tmp_path / "both.cu"), "--shape", "1x1x32"]
    assert main([*command, "--name", "right"]) == 0
    assert main([*command, "--name", "wrong"]) == 1
    assert capsys.readouterr().out.count("wrong float 1x1x32") == 1
    assert main(command) == 2
    assert "the registry has right, wrong of it; name one with --name" in capsys.readouterr().err
