"""Kernels of other people agree on other things with those who call them: how matrices lie in memory, in which type
sums are kept, what a number is. The command is told, and says what it may not have been told."""

import pytest

from tilewise.__main__ import main

HEAD = '#include "cuda_fp16.h"\n'  # in quotes, as the compiler finds it too
KERNEL = """
__global__ void mine(const {T}* __restrict__ A, const {T}* __restrict__ B, {T}* C, int n, int p, int m{more})
{{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    {S} sum = 0;
    for (int k = 0; k < p; ++k) sum += {S}(A[{a}]) * {S}(B[{b}]);
    C[{c}] = sum{times};
}}
"""
ROWS = {"a": "row * p + k", "b": "k * m + col", "c": "row * m + col"}
COLUMNS = {"a": "k * n + row", "b": "col * p + k", "c": "col * n + row"}


def traced(folder, capsys, options, T="float", S="float", more="", times="", shape="20x128x20", **places):
    """The exit status of the command and what it says."""
    text = KERNEL.format(T=T, S=S, more=more, times=times, **ROWS | places)
    (folder / "mine.cu").write_text(HEAD + text)
    status = main(["trace", str(folder / "mine.cu"), "--block", "8x8", "--shape", shape, *options])
    said = capsys.readouterr()
    return status, said.out + said.err


@pytest.mark.parametrize("names", ["B", "A,C", "A,B,C"])
def test_matrices_in_columns(tmp_path, capsys, names):
    places = {name.lower(): COLUMNS[name.lower()] for name in names.split(",")}
    status, said = traced(tmp_path, capsys, [], **places)
    assert status == 1 and f"it is right with --columns {names} of `tilewise trace`" in said, said
    assert traced(tmp_path, capsys, ["--columns", names], **places)[0] == 0
    assert traced(tmp_path, capsys, ["--columns", names])[0] == 1, "of the kernel whose matrices lie in rows"


def test_an_element_is_named_as_it_lies(tmp_path, capsys):
    status, said = traced(tmp_path, capsys, ["--columns", "B"], shape="9x5x7", b="col * p + k + 1")
    assert status == 1 and "reads element 35 of B, which has 5 x 7 = 35" in said, said


def test_sums_of_half(tmp_path, capsys):
    status, said = traced(tmp_path, capsys, ["--dtype", "half"], T="half", S="half")
    assert status == 1 and "it is right with --short-sums" in said, said
    assert traced(tmp_path, capsys, ["--dtype", "half", "--short-sums"], T="half", S="half")[0] == 0
    wrong = traced(tmp_path, capsys, ["--dtype", "half", "--short-sums"], T="half", S="half", b="k * m")
    assert wrong[0] == 1 and "it is right" not in wrong[1]


def test_sums_that_may_be_anything(tmp_path, capsys):
    options = ["--dtype", "half", "--short-sums"]
    status, said = traced(tmp_path, capsys, options, T="half", S="half", shape="4x2048x4")
    assert status == 1 and "a sum of 2048 products kept in half may be wrong by any amount" in said, said


def test_numbers_of_half(tmp_path, capsys):
    options = ["--dtype", "half", "--arguments", "A,B,C,n,p,m,dtype:1.0"]
    assert traced(tmp_path, capsys, options, T="half", more=", half one", times=" * __half2float(one)")[0] == 0
    options[-1] = "A,B,C,n,p,m,float:1.0"
    status, said = traced(tmp_path, capsys, options, T="half", more=", half one", times=" * __half2float(one)")
    assert status == 2 and "argument 7 is a number of type float" in said, said


def test_no_such_matrix(tmp_path, capsys):
    with pytest.raises(SystemExit):
        traced(tmp_path, capsys, ["--columns", "B,D"])
    assert "list of matrices" in capsys.readouterr().err


UPDATE = """__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
    C[row * N + col] = alpha * sum + beta * C[row * N + col];
}
"""
SPLIT = """__global__ void mine(const float* A, const float* B, float* C, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = blockIdx.z; k < p; k += gridDim.z) sum += A[row * p + k] * B[k * m + col];
    atomicAdd(&C[row * m + col], sum);
}
"""
CALLED = "n,m,p,float:{},A,B,float:{},C"


def run(folder, capsys, text, *options):
    """The exit status of the command on a source and what it says."""
    (folder / "mine.cu").write_text(text)
    status = main(["trace", str(folder / "mine.cu"), "--block", "8x8", "--shape", "20x35x20", *options])
    said = capsys.readouterr()
    return status, said.out + said.err


UPDATES = {  # what it is called with, the options, and what is said; "" if it is right
    "alpha": ((2, 0), ["--reads-c"], "it is 2 A B, right with --alpha 2 of"),
    "alpha is said": ((2, 0), ["--reads-c", "--alpha", "2"], ""),
    "negative": ((-1.5, 0), ["--reads-c"], "it is -1.5 A B, right with --alpha -1.5 of"),
    "by name": (("alpha", "beta"), ["--alpha", "2", "--beta", "3"], ""),
    "beta": ((1, 3), ["--reads-c"], "C began as 3.40282e+38, which marks what was never written"),
    "beta is not said": (
        (1, 3),
        [],
        "if it adds to C, say --initial zeros or --beta; if it multiplies C by 0, --reads-c",
    ),
    "another beta": ((2, 0.5), ["--beta", "3"], "it is 2 A B + 0.5 C, right with --alpha 2 --beta 0.5 of"),
    "C is zeros": ((1, 1), ["--initial", "zeros"], ""),
}


@pytest.mark.parametrize("scalars, options, words", UPDATES.values(), ids=UPDATES)
def test_alpha_and_beta(tmp_path, capsys, scalars, options, words):
    status, said = run(tmp_path, capsys, UPDATE, "--arguments", CALLED.format(*scalars), *options)
    assert status == bool(words) and words in said and "twice" not in said, said


def test_sums_by_atomics_begin_at_zeros(tmp_path, capsys):
    status, said = run(tmp_path, capsys, SPLIT, "--grid", "3,3,2")
    assert status == 1 and "say --initial zeros" in said, said
    assert run(tmp_path, capsys, SPLIT, "--grid", "3,3,2", "--initial", "zeros")[0] == 0
    status, said = run(tmp_path, capsys, SPLIT.replace("sum);", "2 * sum);"), "--grid", "3,3,2", "--initial", "zeros")
    assert status == 1 and "it is 2 A B" in said, said


def test_the_marker_of_what_was_never_written(tmp_path, capsys):
    text = UPDATE.replace("row >= M", "row >= M - 1")
    status, said = run(tmp_path, capsys, text, "--arguments", CALLED.format(1, 0), "--reads-c")
    assert status == 1 and "row 19; nothing has written them" in said, said
    assert "they hold 3.40282e+38, which marks what was never written" in said, said


@pytest.mark.parametrize("inside, named", [("__float2bfloat16", "bfloat16"), ("__float2half", "half or TF32")])
def test_a_conversion_inside(tmp_path, capsys, inside, named):
    back = {"__float2bfloat16": "__bfloat162float", "__float2half": "__half2float"}[inside]
    times = "sum += A[row * p + k] * B[k * m + col]"
    text = '#include "cuda_bf16.h"\n#include "cuda_fp16.h"\n' + SPLIT.replace(
        "atomicAdd(&C[row * m + col], sum)", "C[row * m + col] = sum"
    )
    text = text.replace(times, f"sum += {back}({inside}(A[row * p + k])) * {back}({inside}(B[k * m + col]))")
    for shape in ("8x32x8", "8x4096x8"):
        status, said = run(tmp_path, capsys, text, "--shape", shape)
        assert status == 1 and f"as accurate as {named}: is there a conversion?" in said, said
        scheme = "half" if named != "bfloat16" else named
        assert run(tmp_path, capsys, text, "--shape", shape, "--scheme", scheme)[0] == 0


def test_a_parameter_with_the_name_of_an_option(tmp_path, capsys):
    text = SPLIT.replace("atomicAdd(&C[row * m + col], sum)", "C[row * m + col] = BLOCK * sum / 8")
    text = f"template <int BLOCK>\n{text}"
    status, said = run(tmp_path, capsys, text)
    assert status == 2 and "BLOCK of mine has the name of an option; give it another one by --template" in said, said
    assert run(tmp_path, capsys, text, "--template", "side", "--side", "8")[0] == 0


def test_a_batch_of_a_kernel_without_an_entry(tmp_path, capsys):
    text = SPLIT.replace("blockIdx.z; k < p; k += gridDim.z", "0; k < p; ++k")
    text = text.replace("A[", "A[blockIdx.z * n * p + ").replace("B[", "B[blockIdx.z * p * m + ")
    text = text.replace("atomicAdd(&C[row * m + col], sum)", "C[blockIdx.z * n * m + row * m + col] = sum")
    assert run(tmp_path, capsys, text, "--grid", "3,3,batch", "--batch", "3")[0] == 0


def test_options_that_cannot_be(tmp_path, capsys):
    for options, words in (
        (["--scheme", "residues"], "--scheme residues: it is one of double, not of float"),
        (["--dtype", "int32", "--alpha", "0.5"], "a product of int32 takes whole numbers"),
    ):
        status, said = run(tmp_path, capsys, SPLIT, *options)
        assert status == 2 and words in said and "Traceback" not in said, said


LEADING = """__global__ void mine(
    const float* A, int lda, const float* B, int ldb, float* C, int ldc, int n, int p, int m)
{
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= m) return;
    float sum = 0;
    for (int k = 0; k < p; ++k) sum += A[row * lda + k] * B[k * ldb + col];
    C[row * ldc + col] = sum;
}
"""
CUT = "C[row * ldc + col] = sum;"
LEADINGS = {  # what changes, what it is called with, the options, and what is said; "" if it is right
    "all": ("", "A,p+5,B,m+1,C,m+2,n,p,m", ["--ld", "A=p+5,B=m+1,C=m+2"], ""),
    "with alpha and beta": (
        CUT.replace("= sum", "= 2 * sum + C[row * ldc + col]"),
        "A,p,B,m,C,24,n,p,m",
        ["--ld", "C=24", "--alpha", "2", "--beta", "1"],
        "",
    ),
    "of columns": (
        "",
        "A,p,B,m,C,m,n,p,m",
        ["--ld", "A=n+3", "--columns", "A"],
        "NaN between the rows or columns of A",
    ),
    "another": ("", "A,p,B,m,C,m,n,p,m", ["--ld", "A=p+5"], "NaN between the rows or columns of A or B is a part of"),
    "written beyond": (
        CUT + " if (col == m - 1) C[row * ldc + m] = 0;",
        "A,p,B,m,C,m+2,n,p,m",
        ["--ld", "C=m+2"],
        "elements between the rows or columns of C, which its leading dimension leaves out, are written",
    ),
    "shorter than a row": ("", "A,p,B,m,C,m,n,p,m", ["--ld", "A=p-5"], "--ld.A: 'p-5' is 30"),
    "of nothing": ("", "A,p,B,m,C,m,n,p,m", ["--ld", "D=64"], "write for example --ld A=64"),
}


@pytest.mark.parametrize("store, arguments, options, words", LEADINGS.values(), ids=LEADINGS)
def test_leading_dimensions(tmp_path, capsys, store, arguments, options, words):
    text = LEADING.replace(CUT, store or CUT)
    status, said = run(tmp_path, capsys, text, "--arguments", arguments, *options)
    assert status == (2 if "write for" in words or "--ld.A" in words else bool(words)) and words in said, said


def test_a_leading_dimension_of_columns(tmp_path, capsys):
    text = LEADING.replace("A[row * lda + k]", "A[k * lda + row]")
    options = ["--arguments", "A,n+3,B,m,C,m,n,p,m", "--columns", "A"]
    assert run(tmp_path, capsys, text, *options, "--ld", "A=n+3")[0] == 0


@pytest.mark.parametrize("index, status", [("row * m + col", 1), ("(long long)row * m + col", 2)])
def test_an_index_of_32_bits_that_overflows(tmp_path, capsys, index, status):
    text = SPLIT.replace("atomicAdd(&C[row * m + col], sum)", f"C[{index}] = sum")
    found, said = run(tmp_path, capsys, text, "--shape", "200000x1x200000")
    assert found == status, said
    overflows = "of C, which has 200000 x 200000 = 40000000000; the index is too large for 32 bits"
    assert (overflows if status == 1 else "the blocks that were tried have no fault") in said, said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tile", "16"], "--tile: there is no such option; template arguments are a part of --function 'f<16>'"),
        (["--shape", "4x4x4"], "--shape is for products of A and B; take it out"),
    ],
)
def test_options_of_a_product_are_refused_for_any_other_kernel(options, words, tmp_path, capsys):
    (tmp_path / "mine.cu").write_text("__global__ void mine(float* x) { x[threadIdx.x] = 1; }")
    call = ["--function", "mine", "--block", "4", "--arg", "x=float[4]"]
    assert main(["trace", str(tmp_path / "mine.cu"), *call]) == 0
    capsys.readouterr()
    assert main(["trace", str(tmp_path / "mine.cu"), *call, *options]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1 and err.startswith("tilewise: "), err
