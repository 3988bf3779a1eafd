"""Lines of code, which are counted in every language by one rule."""

import pytest

from tilewise.study import registry
from tilewise.study.sources import lines_of_code, without_comments

PYTHON = '''"""What it does,
in two lines."""

import os
from os import (
    path,
)

HALF = 2  # counts, the comment does not


# alone
def kernel(A, B):
    """Its docstring."""
    total = (
        A
    )

    return total
'''
CPP = """// What it does
#pragma once
#include "mma.cuh"
  #include <cuda_bf16.h>

/* a comment
   of several lines */
template <typename T>
__global__ void kernel(T* A) {  // the same line
    /* here */ A[0] = 1;
    // no code
#pragma unroll
}
"""


@pytest.mark.parametrize(("name", "text", "lines"), [("k.py", PYTHON, 6), ("k.cu", CPP, 5), ("k.cu", "", 0)])
def test_lines_hold_code_without_comments_docstrings_and_imports(tmp_path, name, text, lines):
    (tmp_path / name).write_text(text)
    assert lines_of_code([tmp_path / name]) == lines


def test_comments_are_blanks_and_what_is_in_quotes_is_no_comment():
    text = """a; // one "two
/* three
   // four */ b("//five", '"', "\\"/*", 1'000, '/');  /**/ c   // six"""
    assert (
        without_comments(text)
        == """a;

 b("//five", '"', "\\"/*", 1'000, '/');   c"""
    )


def test_headers_of_ours_count_and_every_kernel_has_lines():
    kernels = registry.load()
    stream_k = kernels["stream_k"]
    assert lines_of_code(stream_k.files) > lines_of_code([stream_k.path]) > 0
    assert all(lines_of_code(kernel.files) > 0 for kernel in kernels.values() if kernel.source)
