"""Multiply a caller's arrays by the kernel that `fastest` chooses, and copy first what `copies` says."""

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
from cupy.cuda import runtime

from kernelscope import cpp
from tilewise import UserError
from tilewise.compile import build
from tilewise.multiply import copies
from tilewise.multiply.arguments import DTYPES, Layout, check, result_type
from tilewise.multiply.fastest import Choice, fastest, recorded_times
from tilewise.nvidia import cublas, gpus
from tilewise.nvidia.launcher import CudaError, Product
from tilewise.nvidia.layout import is_column_major, pitch
from tilewise.study import registry
from tilewise.study.accuracy import Grade
from tilewise.study.device import Device
from tilewise.study.expressions import ceil_div
from tilewise.study.jobs import Job
from tilewise.study.points import point

#: DLPack's kinds of memory that a GPU reads: its own, and managed memory.
_GPU_MEMORY = (2, 13)
_WORKSPACE_UNIT = 256
#: A bound product has one stream at a time.
_ONE_AT_A_TIME = threading.Lock()
#: A function of A, B and C that makes C = A B on CuPy's current stream.
Multiply = Callable[[Any, Any, Any], None]


def multiply(A: Any, B: Any, out: Any, grade: str) -> Any:
    """Implement `tilewise.matmul`."""
    A, B = _array("A", A), _array("B", B)
    C = _array("out", out) if out is not None else None
    device = runtime.getDevice()
    own = _way(device, grade, Layout.of(A), Layout.of(B), None if C is None else Layout.of(C))
    _check_places(device, {"A": A, "B": B} | ({} if C is None else {"out": C}))
    if C is None:
        C = cupy.empty((A.shape[0], B.shape[1]), result_type(A.dtype))
    own(A, B, C)
    return C if out is None else out


def kernel_for(dtype: str, n: int, p: int, m: int, grade: str = Grade.A) -> str:
    """The name of the kernel that multiplies dense matrices of these sizes, "cublas" for the library's."""
    choice = _choice(runtime.getDevice(), dtype, copies.Sizes(n, p, m), Grade(grade))
    return choice.point.kernel if choice else "cublas"


@functools.lru_cache(1024)
def _way(device: int, grade: str, A: Layout, B: Layout, C: Layout | None) -> Multiply:
    """How matrices that lie so are multiplied; C is a new one if None. Raises UserError if they cannot be."""
    if grade not in list(Grade):
        raise UserError(f"matmul: there is no grade '{grade}'; there are {', '.join(Grade)}")
    check({"A": A, "B": B} | ({} if C is None else {"out": C}))
    C = C or Layout.in_rows(result_type(A.dtype), A.shape[0], B.shape[1])
    if not C.size or not A.size:
        return lambda A, B, C: C.fill(0)
    if is_column_major(C):  # C^T = B^T A^T
        turned = _way_to_rows(device, Grade(grade), B.T, A.T, C.T)
        return lambda A, B, C: turned(B.T, A.T, C.T)
    return _way_to_rows(device, Grade(grade), A, B, C)


def _way_to_rows(device: int, grade: Grade, *matrices: Layout) -> Multiply:
    """How A, B and C that lie so are multiplied, where each row of C is in one piece."""
    dtype = DTYPES[matrices[0].dtype]

    def times_as_fast(sizes: copies.Sizes) -> float | None:
        choice = _choice(device, dtype, sizes, grade)
        return choice.times_as_fast if choice else None

    way = copies.cheapest(matrices, times_as_fast)
    own: Multiply
    if way.own:
        what = (device, dtype, way.sizes, grade)
        own = functools.partial(_launch, what, _compiled(*what).workspace_bytes)
    else:
        own = functools.partial(cublas.multiply, dtype)
    return _with_copies(matrices, way.copies, own) if any(way.copies) else own


def _with_copies(matrices: Sequence[Layout], copied: Sequence[Layout | None], own: Multiply) -> Multiply:
    """`own` of copies with these layouts, None for those of A, B and C that are taken as they lie."""
    offsets, size = _offsets([copy.itemsize * copy.size if copy else 0 for copy in copied])
    padded = any(copy and copy.shape != each.shape for each, copy in zip(matrices[:2], copied))
    inner = [copy and copy._replace(shape=each.shape) for each, copy in zip(matrices, copied)]
    moves = [_move(each, part) if part else None for each, part in zip(matrices[:2], inner)]
    back = _move(inner[2], matrices[2]) if inner[2] else None

    def multiply(*arrays: Any) -> None:
        memory = cupy.cuda.alloc(size)
        if padded:  # what is beside A and B is multiplied, and what is beside C is dropped
            memory.memset_async(0, offsets[2], cupy.cuda.get_current_stream())
        taken = [
            cupy.ndarray(copy.shape, copy.dtype, memory + offset, copy.strides) if copy else array
            for array, copy, offset in zip(arrays, copied, offsets)
        ]
        for number in (0, 1):
            if move := moves[number]:
                move(arrays[number], taken[number])
        own(*taken)
        if back:
            back(taken[2], arrays[2])

    return multiply


def _move(of: Layout, to: Layout) -> Callable[[Any, Any], None]:
    """How a matrix that lies `of` so is copied, on CuPy's current stream, to another or a part of it that lies `to` so.

    CuPy's own kernel copies 2 x 10^11 elements/s on an H200, of any size; the driver copies rows at 1.6 TB/s.
    """
    size, across = of.itemsize, is_column_major(of) and is_column_major(to)
    if across:
        of, to = of.T, to.T
    height, width = of.shape
    apart = [pitch(each.shape, each.strides, size) for each in (of, to)]
    bits = f"u{size}"  # CuPy does not copy every type of ml_dtypes

    def elements(source: Any, target: Any) -> None:
        source, target = (each.T if across else each for each in (source, target))
        target[:height, :width].view(bits)[...] = source[:height, :width].view(bits)

    if size == 8 or None in apart:
        return elements
    of_pitch, to_pitch = (size * (each or 0) for each in apart)

    def in_rows(source: Any, target: Any) -> None:
        ends = (target.data.ptr, to_pitch, source.data.ptr, of_pitch)
        stream = cupy.cuda.get_current_stream().ptr
        runtime.memcpy2DAsync(*ends, size * width, height, runtime.memcpyDeviceToDevice, stream)

    return in_rows


def _offsets(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where pieces of so many bytes begin in one piece of memory, and the bytes of that."""
    ends = [0, *itertools.accumulate(ceil_div(max(1, size), _WORKSPACE_UNIT) * _WORKSPACE_UNIT for size in sizes)]
    return ends[:-1], ends[-1]


class _Compiled(NamedTuple):
    """What to launch for a product, where each workspace lies in one piece of memory, and the bytes of that."""

    job: Job
    offsets: dict[str, int]
    workspace_bytes: int


def _launch(what: tuple, workspace_bytes: int, A: Any, B: Any, C: Any) -> None:
    """C = A B, dense matrices, by the kernel that was chosen for `what`."""
    # The pool reuses this memory for no other array before the launch, and then only for later work of this stream.
    space = cupy.cuda.alloc(workspace_bytes)
    try:
        with _ONE_AT_A_TIME:
            _bound(what, A.data.ptr, B.data.ptr, C.data.ptr, space.ptr)(cupy.cuda.get_current_stream().ptr)
    except CudaError as error:
        raise UserError(f"matmul: the driver refuses {_compiled(*what).job.point.label()}: {error}") from None


@functools.lru_cache(1024)
def _choice(device: int, dtype: str, sizes: copies.Sizes, grade: Grade) -> Choice | None:
    """The kernel for a product of dense matrices; None if that is cuBLAS."""
    gpu, name, kernels, rows = _known(device)
    return fastest(rows, kernels, name, gpu.gpu["compute_capability"], point("", "", dtype, *sizes), grade)


@functools.lru_cache(1024)
def _compiled(device: int, dtype: str, sizes: copies.Sizes, grade: Grade) -> _Compiled:
    """What to launch for a product that a kernel was chosen for. Raises UserError."""
    gpu, _, kernels, _ = _known(device)
    choice = _choice(device, dtype, sizes, grade)
    assert choice
    kernel = kernels[choice.point.kernel]
    plan = kernel.plan(choice.point, gpu)
    entries = build.build({kernel.name: plan.instances}, kernels, gpu, cpp.cache_folder())[kernel.name]["instances"]
    wrong = next((entry["error"] for entry in entries.values() if "error" in entry), None)
    if wrong:
        raise UserError(f"matmul: {wrong}")
    files = {instance: (entry["file"], entry["symbol"]) for instance, entry in entries.items()}
    offsets, size = _offsets([space.bytes for space in plan.workspaces])
    places = {space.name: offset for space, offset in zip(plan.workspaces, offsets)}
    job = Job("", "cuda", kernel, choice.point, {}, plan.launches, plan.product, plan.workspaces, files)
    return _Compiled(job, places, size)


@functools.lru_cache(256)
def _bound(what: tuple, a: int, b: int, c: int, space: int) -> Product:
    """The launches of what was chosen, packed for the addresses of the arrays and of the workspaces."""
    compiled = _compiled(*what)
    addresses = {name: space + offset for name, offset in compiled.offsets.items()}
    return Product(compiled.job, {"A": a, "B": b, "C": c} | addresses)


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


def _check_places(device: int, given: dict[str, Any]) -> None:
    """UserError for arrays on another GPU than the current one, and for an `out` that overlaps A or B."""
    for name, each in given.items():
        if each.device.id != device:
            raise UserError(
                f"matmul: {name} is on GPU {each.device.id}, which is not the current one; call it in "
                f"`with cupy.cuda.Device({each.device.id}):`"
            )
    if (C := given.get("out")) is not None and any(cupy.may_share_memory(C, given[name]) for name in "AB"):
        raise UserError("matmul: out overlaps A or B, which are read while it is written; pass another array")
