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
