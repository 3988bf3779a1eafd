"""The class of an error follows from its cause."""

import pytest

from kernelscope import build
from kernelscope.errors import CompileError, NotEmulated

KERNEL = "__global__ void f(float* out) {{ {} }}\n"
WRONG = {
    "undefined name": KERNEL.format("out[0] = nowhere;"),
    "words of a refusal": KERNEL.format('static_assert(sizeof(int) == 3, "the emulator has no file"); out[0] = 0;'),
    "name of the host": KERNEL.format("out[0] = rand();"),
    "unknown header": "#include <absent.h>\n" + KERNEL.format("out[0] = 0;"),
    "missing file": '#include "absent.h"\n' + KERNEL.format("out[0] = 0;"),
    "variable of the host": "float held;\n" + KERNEL.format("out[0] = held;"),
    "too much shared memory": KERNEL.format("__shared__ float a[20000]; a[threadIdx.x] = 0; out[0] = a[threadIdx.x];"),
    "no definition": "__device__ float held();\n" + KERNEL.format("out[0] = held();"),
}
LACKING = {
    "heap": KERNEL.format("out[0] = *new float(1);"),
    "header": "#include <cuda_absent.h>\n" + KERNEL.format("out[0] = 0;"),
    "operand of asm": KERNEL.format('asm volatile("mov.f32 %0, 1.0;" : "=Q"(out[0]));'),
}


@pytest.mark.parametrize(
    ("kind", "text"),
    [*((CompileError, text) for text in WRONG.values()), *((NotEmulated, text) for text in LACKING.values())],
    ids=[*WRONG, *LACKING],
)
def test_a_refusal_has_the_class_of_its_cause(tmp_path, kind, text):
    (tmp_path / "kernel.cu").write_text(text)
    with pytest.raises(kind) as raised:
        build(tmp_path / "kernel.cu", "f")
    assert raised.type is kind
