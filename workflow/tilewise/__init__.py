"""Tilewise: a reproducible study of CUDA matrix multiplication.

The sub-packages follow the flow of the data: `study` reads the config and the registry and expands them into points,
`compile` builds kernels, `traced` runs them on the CPU by the package `kernelscope`, `measure` turns points into jobs
and jobs into rows, `explain` derives the reasons for a kernel's speed, and `report` renders the pages. `nvidia` wraps
CUDA's compilers, libraries and tools. `multiply` implements `matmul`, and `rules` serves Snakemake's rules.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelscope.errors import MachineError as MachineError
from kernelscope.errors import UserError


@contextlib.contextmanager
def exit_on_user_error() -> Iterator[None]:
    """End the process with the message of a UserError that the block raises, or of the system's refusal of a file."""
    try:
        yield
    except UserError as error:
        raise SystemExit(str(error)) from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise SystemExit(f"{place}{error.strerror or error}; make room, or correct the permissions") from None


ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
RECORDED = ROOT / "report" / "recorded"


def matmul(A: Any, B: Any, out: Any = None, *, grade: str = "A") -> Any:
    """A B of CuPy's arrays by the fastest kernel of a grade, or by cuBLAS where that is faster.

    A (n x p) and B (p x m) are matrices of one element type (float32, float64, float16, ml_dtypes.bfloat16 or int8) on
    the current GPU, of CuPy or of what exports DLPack; rows or columns are in one piece. C (n x m) is a new CuPy array,
    or `out`, which overlaps neither; it is of the same type, for int8 of int32. Runs asynchronously on CuPy's current
    stream. The grade is A, B, C or none (docs/matmul.md). Raises UserError for anything else.
    """
    try:
        from tilewise.multiply.matmul import multiply
    except ImportError as error:
        raise UserError(f"{error}: tilewise.matmul needs the packages for a GPU; run `pip install '.[gpu]'`") from None
    return multiply(A, B, out, grade)
