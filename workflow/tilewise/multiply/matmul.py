"""Multiply a caller's arrays: compile, bind and launch the kernel that `fastest` chooses."""

import functools
import threading
from typing import Any, NamedTuple

import cupy
from cupy.cuda import runtime

from kernelscope import cpp
from tilewise import UserError
from tilewise.compile import build
from tilewise.multiply.arguments import DTYPES, check
from tilewise.multiply.fastest import fastest, recorded_times
from tilewise.nvidia import cublas, gpus
from tilewise.nvidia.launcher import CudaError, Product
from tilewise.nvidia.layout import is_column_major
from tilewise.study import registry
from tilewise.study.accuracy import Grade
from tilewise.study.device import Device
from tilewise.study.expressions import ceil_div
from tilewise.study.jobs import Job
from tilewise.study.points import point

#: DLPack's kinds of memory that a GPU reads: its own, and managed memory.
_GPU_MEMORY = (2, 13)
#: Our kernels load 16 bytes at a time, and TMA takes no other addresses; CuPy's own arrays begin at multiples of 512.
_ALIGNED, _WORKSPACE_UNIT = 16, 256
#: A bound product has one stream at a time.
_ONE_AT_A_TIME = threading.Lock()


def multiply(A: Any, B: Any, out: Any, grade: str) -> Any:
    """Implement `tilewise.matmul`."""
    if grade not in list(Grade):
        raise UserError(f"matmul: there is no grade '{grade}'; there are {', '.join(Grade)}")
    A, B = _array("A", A), _array("B", B)
    C = _array("out", out) if out is not None else None
    _check(A, B, C)
    if C is None:
        C = cupy.empty((A.shape[0], B.shape[1]), A.dtype)
    if not C.size or not A.size:
        C.fill(0)
    elif is_column_major(C):  # C^T = B^T A^T
        _launch(B.T, A.T, C.T, Grade(grade))
    else:
        _launch(A, B, C, Grade(grade))
    return C if out is None else out


def kernel_for(dtype: str, n: int, p: int, m: int, grade: str = Grade.A) -> str:
    """The name of the kernel that multiplies dense matrices of these sizes, "cublas" for the library's."""
    chosen = _chosen(runtime.getDevice(), dtype, n, p, m, Grade(grade))
    return chosen.job.kernel.name if chosen else "cublas"


def _launch(A: Any, B: Any, C: Any, grade: Grade) -> None:
    """C = A B, where each row of C is in one piece."""
    (n, p), m, dtype = A.shape, B.shape[1], DTYPES[A.dtype]
    places = [each.data.ptr for each in (A, B, C)]
    dense = all(each.flags.c_contiguous for each in (A, B, C)) and not any(place % _ALIGNED for place in places)
    what = (runtime.getDevice(), dtype, n, p, m, grade)
    chosen = _chosen(*what) if dense else None
    if chosen is None:
        cublas.multiply(dtype, A, B, C)
        return
    # The pool reuses this memory for no other array before the launch, and then only for later work of this stream.
    space = cupy.cuda.alloc(chosen.workspace_bytes)
    try:
        with _ONE_AT_A_TIME:
            _bound(what, *places, space.ptr)(cupy.cuda.get_current_stream().ptr)
    except CudaError as error:
        raise UserError(f"matmul: the driver refuses {chosen.job.point.label()}: {error}") from None


class _Chosen(NamedTuple):
    """What to launch for a product, where each workspace lies in one piece of memory, and the bytes of that."""

    job: Job
    offsets: dict[str, int]
    workspace_bytes: int


@functools.lru_cache(1024)
def _chosen(device: int, dtype: str, n: int, p: int, m: int, grade: Grade) -> _Chosen | None:
    """What to launch for a product, compiled; None if that is cuBLAS. Raises UserError."""
    gpu, name, kernels, rows = _known(device)
    wanted = point("", "", dtype, n, p, m)
    found = fastest(rows, kernels, name, gpu.gpu["compute_capability"], wanted, grade)
    if found is None:
        return None
    kernel = kernels[found.kernel]
    plan = kernel.plan(found, gpu)
    entries = build.build({kernel.name: plan.instances}, kernels, gpu, cpp.cache_folder())[kernel.name]["instances"]
    wrong = next((entry["error"] for entry in entries.values() if "error" in entry), None)
    if wrong:
        raise UserError(f"matmul: {wrong}")
    files = {instance: (entry["file"], entry["symbol"]) for instance, entry in entries.items()}
    offsets, end = {}, 0
    for space in plan.workspaces:
        offsets[space.name] = end
        end += ceil_div(max(1, space.bytes), _WORKSPACE_UNIT) * _WORKSPACE_UNIT
    return _Chosen(
        Job("", "cuda", kernel, found, {}, plan.launches, plan.product, plan.workspaces, files), offsets, end
    )


@functools.lru_cache(256)
def _bound(what: tuple, a: int, b: int, c: int, space: int) -> Product:
    """The launches of what was chosen, packed for the addresses of the arrays and of the workspaces."""
    chosen = _chosen(*what)
    assert chosen
    addresses = {name: space + offset for name, offset in chosen.offsets.items()}
    return Product(chosen.job, {"A": a, "B": b, "C": c} | addresses)


@functools.cache
def _known(device: int) -> tuple[Device, str, dict[str, Any], Any]:
    """A GPU by CUDA's number, the name of its platform, the kernels, and what was timed on it."""
    facts = runtime.getDeviceProperties(device)
    name = gpus.model(facts["name"].decode())
    gpu = Device.from_capability(f"{facts['major']}.{facts['minor']}", facts["multiProcessorCount"])
    return gpu, name, registry.load(), recorded_times(name)


def _array(name: str, given: Any) -> Any:
    """An argument as a CuPy array of the same memory."""
    if isinstance(given, cupy.ndarray):
        return given
    if not hasattr(given, "__dlpack_device__"):
        raise UserError(f"matmul: {name} is of {type(given).__name__}; it must be an array of CuPy or export DLPack")
    if given.__dlpack_device__()[0] not in _GPU_MEMORY:
        raise UserError(f"matmul: {name} is not in the memory of a GPU; pass cupy.asarray({name})")
    try:
        return cupy.from_dlpack(given)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:  # each library has its own
        raise UserError(f"matmul: {name} does not export its memory: {error}") from None


def _check(A: Any, B: Any, C: Any) -> None:
    """UserError for arrays that cannot be multiplied; C may be None."""
    given = {"A": A, "B": B} | ({} if C is None else {"out": C})
    check(given)
    for name, each in given.items():
        if each.device.id != runtime.getDevice():
            raise UserError(
                f"matmul: {name} is on GPU {each.device.id}, which is not the current one; call it in "
                f"`with cupy.cuda.Device({each.device.id}):`"
            )
    if C is not None and any(cupy.may_share_memory(C, each) for each in (A, B)):
        raise UserError("matmul: out overlaps A or B, which are read while it is written; pass another array")
