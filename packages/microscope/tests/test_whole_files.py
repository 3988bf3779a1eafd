"""Whole files as courses have them: two commands lead to a trace, the first of which proposes the second."""

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from kernelscope import Call, trace
from kernelscope.cli import main
from kernelscope.host_code import for_gpu

FOLDER = Path(__file__).with_name("whole")
#: The launches of each file: function, grid, block, and what some parameters are given.
LAUNCHED = {
    "vadd": [("vectorAdd", "196", "256", {"A": "float[50000]:random", "C": "float[50000]", "numElements": "50000"})],
    "reduction": [
        ("reduce_sum<float>", "128", "256", {"in": "float[65536]:random", "out": "float[128]", "n": "65536"})
    ],
    "matmul": [
        (
            "MatrixMulShared",
            "16x16",
            "16x16",
            {"A": "float[65536]:random", "C": "float[65536]", "M": "256", "K": "256"},
        ),
        ("MatrixMulNaive", "16x16", "16x16", {"B": "float[65536]:random", "N": "256"}),
    ],
    "histogram": [("histo_kernel", "4", "256", {"buffer": "unsigned char[51200]:random", "size": "51200"})],
    "stencil": [("stencil_1d", "32", "128", {"in": "float[4096]:random", "out": "float[4096]", "n": "4096"})],
    "guide": [("MatMulKernel", "4x4", "16x16", {"A.width": "64", "B.elements": "float[4096]:random"})],
    "saxpy": [("saxpy", "64", "256", {"n": "16384", "a": "2.0", "x": "float[65536]:random"})],
    "softmax": [
        ("softmax_kernel<128>", "128", "128", {"x": "float[65536]:random", "y": "float[65536]", "cols": "512"}),
        ("scale", "256", "256", {"y": "float[65536]:random", "n": "65536", "f": "0.5"}),
    ],
    "jacobi": [("jacobi<float, 32, 4>", "2x12", "32x4", {"norm": "float[1]:zero", "nx": "64", "ny": "48"})],
    "thrustsum": [("square", "8", "128", {"in": "float[1000]:random", "out": "float[1000]:random", "n": "1000"})],
    "bitonic": [("bitonic_sort_step", "32", "512", {"dev_values": "float[16384]:random", "j": "1", "k": "2"})],
    "mandel": [("mandelbrot", "20x13", "16x16", {"p.width": "320", "p.cy": "0.0", "image": "unsigned char[64000]"})],
    "pitch": [("blur", "7x4", "16x16", {"src": "unsigned char[30720]:random", "pitch": "512", "w": "100"})],
    "occupancy": [("reduceAll<int>", "4", "256", {"in": "int[62500]:zero", "n": "62500"})],
    "spmv": [("spmv_vector", "64", "128", {"m.rows": "256", "x": "double[256]:random", "y": "double[256]"})],
    "scan": [
        ("ops::scan<float, 128, ops::Plus<float>>", "128", "128", {"x": "float[16384]:random", "n": "16384"}),
        ("addBase<128>", "128", "128", {"sums": "float[128]:random"}),
    ],
}


def proposed(file, capsys, *options):
    """The command lines that the first command proposes, and all that it says."""
    assert main([str(file), *options]) == 2
    said = capsys.readouterr().err
    return [shlex.split(line) for line in re.findall(r"^  (kernelscope .*)$", said, re.MULTILINE)], said


def options_of(command, name):
    return [value for option, value in itertools.pairwise(command) if option == f"--{name}"]


@pytest.mark.slow
@pytest.mark.parametrize("name, launched", LAUNCHED.items(), ids=LAUNCHED)
def test_two_commands_lead_to_a_trace(name, launched, capsys):
    commands, said = proposed(FOLDER / f"{name}.cu", capsys)
    assert "code of the host is not run" in said
    for command, (function, grid, block, some) in zip(commands, launched, strict=True):
        given = dict(word.split("=", 1) for word in options_of(command, "arg"))
        assert [options_of(command, each) for each in ("function", "grid", "block")] == [[function], [grid], [block]]
        assert {key: given[key] for key in some} == some
        assert main(command[1:]) == 0, capsys.readouterr().out
        assert "no faults in forward" in capsys.readouterr().out


def test_what_differs_from_the_file_is_said(capsys):
    commands, said = proposed(FOLDER / "reduction.cu", capsys)
    assert options_of(commands[0], "shared") == ["1024"] and "N 65536 instead of 1048576" in said
    commands, said = proposed(FOLDER / "histogram.cu", capsys)
    assert "no constants for them: blocks * 2)" in said
    commands, said = proposed(FOLDER / "stencil.cu", capsys)
    assert options_of(commands[0], "variable") == ["c_coef=float[7]:random"]
    commands, said = proposed(FOLDER / "matmul.cu", capsys, "--function", "MatrixMulNaive")
    assert [options_of(each, "function") for each in commands] == [["MatrixMulNaive"]]


def test_a_proposal_is_an_entry_for_programs(capsys):
    assert main([str(FOLDER / "vadd.cu"), "--format", "json"]) == 2
    entry = json.loads(capsys.readouterr().out)["refused"]
    assert entry["line"] == 42 and entry["file"].endswith("vadd.cu")


def test_a_fault_in_a_whole_file_is_at_its_line(tmp_path):
    text = (FOLDER / "reduction.cu").read_text()
    barrier = "        __syncthreads();\n"
    assert text.count(barrier) == 1
    (tmp_path / "mine.cu").write_text(text.replace(barrier, "\n"))
    given = {"in": "float[512]:random", "out": "float[1]", "n": 512}
    report = trace(tmp_path / "mine.cu", Call("reduce_sum<float>", 1, 256, shared=1024), given)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "tid < s" in line)
    assert {(Path(fault.file).name, fault.line) for fault in report.faults} == {("mine.cu", line)}


KERNEL = "__global__ void f(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }\n"
SIZES = {  # what the host has before and in its main, and grid, block and shared memory of the proposal
    "dim3 grid(4, 2), block(32); f<<<grid, block, 64>>>(x, n);": ("4x2", "32", ["64"]),
    "dim3 block = dim3(8, 4, 2); f<<<dim3(2), block>>>(x, n);": ("2", "8x4x2", []),
    "dim3 block{8, 4}; dim3 grid; grid.x = n / block.x; grid.y = 3; f<<<grid, block>>>(x, n);": ("12x3", "8x4", []),
    "auto t = dim3(16); f<<<{2, 3}, t>>>(x, n);": ("2x3", "16", []),
    "const int t = 1 << 5; f<<<(n + t - 1) / t, t, 2 * t * sizeof(double)>>>(x, n);": ("3", "32", ["512"]),
    "int b = (int)ceil((float)n / 64); f<<<b, 64>>>(x, n);": ("2", "64", []),
    "int b = std::min(div_up(n, 16), 5); f<<<b, 16>>>(x, n);": ("5", "16", []),
    "f<<<CEIL(n, 10), 10>>>(x, n);": ("10", "10", []),
    "for (int i = 0; i < 2; i++) { dim3 t(32); f<<<2, t>>>(x, n); }": ("2", "32", []),
    "launch(x, n, 64);": ("2", "64", []),
    "f << <3, n >> >(x, n);": ("3", "96", []),
}


@pytest.mark.parametrize("body, wanted", SIZES.items())
def test_sizes_that_are_constants(body, wanted, tmp_path, capsys):
    host = "#define CEIL(a, b) (((a) + (b) - 1) / (b))\nint div_up(int a, int b) { return (a + b - 1) / b; }\n"
    host += "void launch(float* y, int m, int t) { f<<<div_up(m, t), t>>>(y, m); }\n" if "launch" in body else ""
    allocated = "int n = 96; float *x; cudaMalloc(&x, n * sizeof(*x));"
    (tmp_path / "mine.cu").write_text(f"{KERNEL}{host}int main() {{ {allocated} {body} }}\n")
    commands, said = proposed(tmp_path / "mine.cu", capsys)
    found = [options_of(commands[0], name) for name in ("grid", "block", "shared")]
    assert found == [[wanted[0]], [wanted[1]], wanted[2]], said


SCALED = """#define LENGTH 4194304
typedef double real;
const int side = 256;
__global__ void own(real* x) { if (threadIdx.x < LENGTH) x[threadIdx.x] = 1; }
__global__ void given(real* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }
__global__ void cube(const real* x, int nx, int ny, int nz) {}
__global__ void inside(real* x) { x[threadIdx.x] = 1; }
__global__ void alone(void) {}
int main() {
    int N = 1 << 24, long_side = 1 << 10;
    real *a, *b, *c;
    cudaMalloc(&a, LENGTH * sizeof(real)); cudaMalloc(&b, N * sizeof(b[0]));
    cudaMalloc(&c, side * side * long_side * sizeof(real)); cudaMalloc(&d, 1 << 10);
    LAUNCH
}
"""
LAUNCHES = {  # what is launched; the grid and the arguments of the proposal, and words of the message
    "own<<<4, 64>>>(a);": ("4", ["x=double[4194304]"], "make LENGTH smaller in the file"),
    "given<<<N / 256, 256>>>(b, N);": ("256", ["x=double[65536]", "n=65536"], "N 65536 instead of 16777216"),
    "cube<<<side * side * long_side / 256, 256>>>(c, side, side, long_side);": (
        "128",
        ["x=double[32768]:random", "nx=32", "ny=32", "nz=32"],
        "side 32 instead of 256",
    ),
    "inside<<<1, 64>>>(d + 8);": ("1", ["x=double[128]"], "the array's begin, which is d + 8"),
    "given<<<1, 64>>>(e, 20000);": ("1", ["x=double[20000]:random", "n=20000"], "the size of e"),
    "alone<<<2, 64>>>();": ("2", [], "alone"),
}


@pytest.mark.parametrize("launch, wanted", LAUNCHES.items())
def test_a_proposal_is_smaller_only_where_its_sizes_still_agree(launch, wanted, tmp_path, capsys):
    (tmp_path / "mine.cu").write_text(SCALED.replace("LAUNCH", launch))
    grid, given, words = wanted
    [command], said = proposed(tmp_path / "mine.cu", capsys)
    assert (options_of(command, "grid"), options_of(command, "arg")) == ([grid], given) and words in said, said


def test_the_second_command_of_a_kernel_without_parameters_traces_it(tmp_path, capsys):
    (tmp_path / "mine.cu").write_text(SCALED.replace("LAUNCH", "alone<<<2, 64>>>();"))
    [command], _ = proposed(tmp_path / "mine.cu", capsys)
    assert main(command[1:]) == 0


def test_what_the_host_calls_a_type_is_one(tmp_path, capsys):
    (tmp_path / "mine.cu").write_text(SCALED.replace("LAUNCH", "inside<<<1, 64>>>(d);"))
    [command], _ = proposed(tmp_path / "mine.cu", capsys)
    assert main(command[1:]) == 0, capsys.readouterr().out


def test_enumerators_and_macros_are_sizes(tmp_path, capsys):
    host = "enum Sizes : int { SMALL = 4, NEXT, WIDE = 1 << 6 };\n#define TWICE(x) (2 * (x))\n"
    body = "float* x; cudaMalloc(&x, TWICE(WIDE) * sizeof(float)); f<<<NEXT, WIDE>>>(x, (int)pow(2, SMALL));"
    (tmp_path / "mine.cu").write_text(f"{KERNEL}{host}int main() {{ {body} }}\n")
    [command], said = proposed(tmp_path / "mine.cu", capsys)
    found = [options_of(command, name) for name in ("grid", "block", "arg")]
    assert found == [["5"], ["64"], ["x=float[128]", "n=16"]], said


def test_definitions_that_double_are_unknown(tmp_path, capsys):
    chain = "".join(f"#define A{k + 1} (A{k} + A{k})\n" for k in range(39))
    (tmp_path / "mine.cu").write_text(f"#define A0 1\n{chain}{KERNEL}int main() {{ f<<<A39, 64>>>(x, 1 << A39); }}\n")
    [command], said = proposed(tmp_path / "mine.cu", capsys)
    assert options_of(command, "grid") == ["4"] and "A39" in said


LEFT = {  # what the host has, and what stays of it
    "std::string s = \"<<<\"; int counted[4]; static double t;": "",
    "const std::vector<int> sizes = {1, 2};": "",
    "const int WIDTH = 4; __device__ int twice() { return 2 * WIDTH; }": "const int WIDTH = 4; __device__",
    "struct Timer { std::string name; void stop() {} };": "",
    "struct P { P(int); int x; __device__ int f() { return x; } };": "int x; __device__ int f()",
    "template <class T> void run(T* x) { f<<<1, 1>>>(x, 1); }": "",
    "template <class T> __device__ T id(T x) { return x; }": "__device__ T id(T x) { return x; }",
    "using namespace std; namespace chr = std::chrono;": "",
    "namespace a { void g() {} __device__ int h() { return 1; } }": "__device__ int h() { return 1; }",
    "extern \"C\" void g(); extern \"C\" { int k() { return 1; } }": "",
    "// main() <<<\nint k = 1;": "// main() <<<",
}  # fmt: skip


@pytest.mark.parametrize("text, stays", LEFT.items())
def test_what_stays_for_a_gpu(text, stays):
    [kept] = for_gpu(f"{text}\nint main() {{}}\n")
    assert kept.count("\n") == text.count("\n") + 2 and "main() {" not in kept
    plain = " ".join(kept.split())
    assert stays in plain if stays else not re.search(r"\w\w", plain.replace('extern "C"', "")), plain


def test_a_header_keeps_what_the_kernels_of_another_file_use(tmp_path, capsys):
    header = "const int TILE = 16;\nstruct Matrix { int width; float* data; };\nstruct Log { std::string name; };\n"
    kernel = "__global__ void f(Matrix m) { if (threadIdx.x < TILE) m.data[threadIdx.x] = m.width; }\n"
    host = "void print(Log log) {}\nint main() { Matrix m; m.width = 4; cudaMalloc(&m.data, 64); f<<<1, 16>>>(m); }\n"
    (tmp_path / "common.h").write_text(header)
    (tmp_path / "mine.cu").write_text(f'#include "common.h"\n{kernel}{host}')
    [command], _ = proposed(tmp_path / "mine.cu", capsys)
    assert options_of(command, "arg") == ["m.width=4", "m.data=float[16]"]
    assert main(command[1:]) == 0, capsys.readouterr()


def test_a_header_that_was_left_out_is_named(tmp_path, capsys):
    text = "#include <cub/cub.cuh>\n__global__ void f(int* x) { x[0] = cub::sum(1); }\nint main() { f<<<1, 1>>>(p); }\n"
    (tmp_path / "mine.cu").write_text(text)
    assert main([str(tmp_path / "mine.cu"), "--block", "1", "--arg", "x=int[1]"]) == 2
    said = capsys.readouterr().err
    assert "mine.cu:2: 'cub' has not been declared; the emulator has no <cub/cub.cuh>; for a trace, replace" in said


def test_a_missing_argument_has_an_example_of_its_type(tmp_path, capsys):
    text = "template <typename T> __global__ void f(const T* in, half h, unsigned long long n, float2 v, bool b) {}\n"
    (tmp_path / "mine.cu").write_text(f"#include <cuda_fp16.h>\n{text}")
    assert main([str(tmp_path / "mine.cu"), "--function", "f<double>", "--block", "1"]) == 2
    said = capsys.readouterr().err
    example = shlex.split(said.partition("for example ")[2])
    assert example[1::2] == ["in=double[64]:random", "h=half:1", "n=64", "v=float2:1,1", "b=true"]
    assert main([str(tmp_path / "mine.cu"), "--function", "f<double>", "--block", "1", *example]) == 0
