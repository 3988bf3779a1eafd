"""Multiply a caller's arrays by the kernel that `fastest` chooses, and copy first what `copies` says."""

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
import pandas as pd
from cupy.cuda import runtime

from kernelscope import cpp
from tilewise import UserError
from tilewise.compile import build
from tilewise.multiply import copies
from tilewise.multiply.arguments import DTYPES, Layout, check, overlap, result_type
from tilewise.multiply.fastest import Choice, fastest, recorded_times
from tilewise.nvidia import cublas, gpus
from tilewise.nvidia.launcher import CudaError, Product
from tilewise.nvidia.layout import is_column_major, pitch
from tilewise.study import registry
from tilewise.study.accuracy import Grade
from tilewise.study.device import Device
from tilewise.study.expressions import ceil_div
from tilewise.study.jobs import Job
from tilewise.study.kernel import Kernel
from tilewise.study.points import point

#: DLPack's kinds of memory that a GPU reads: its own, and managed memory.
_GPU_MEMORY = (2, 13)
_WORKSPACE_UNIT = 256
#: A bound product has one stream at a time.
_ONE_AT_A_TIME = threading.Lock()
#: The largest pitch in bytes of a copy that the driver makes.
_MOST_PITCH = 2**31 - 1
#: A function of A, B and C that makes C = A B on CuPy's current stream.
_Product = Callable[[Any, Any, Any], None]


def multiply(A: Any, B: Any, out: Any, grade: str) -> Any:
    """Implement `tilewise.matmul`."""
    try:
        least = Grade(grade)
    except ValueError:
        raise UserError(f"matmul: there is no grade '{grade}'; there are {', '.join(Grade)}") from None
    given = {"A": _array("A", A), "B": _array("B", B)} | ({} if out is None else {"out": _array("out", out)})
    device, layouts = runtime.getDevice(), [Layout.of(each) for each in given.values()]
    _check_places(device, given, layouts)
    product = _product(device, least, *layouts)
    A, B = given["A"], given["B"]
    C = cupy.empty((A.shape[0], B.shape[1]), result_type(A.dtype)) if out is None else given["out"]
    product(A, B, C)
    return C if out is None else out


def kernel_for(dtype: str, n: int, p: int, m: int, grade: str = Grade.A) -> str:
    """The name of the kernel that multiplies dense matrices of these sizes, "cublas" for the library's."""
    [kind] = [kind for kind, name in DTYPES.items() if name == dtype]
    shapes = ((kind, n, p), (kind, p, m), (result_type(kind), n, m))
    device, least = runtime.getDevice(), Grade(grade)
    way = _way(device, least, [Layout.in_rows(*shape) for shape in shapes])
    choice = _choice(device, dtype, way.sizes, least) if way.own else None
    return choice.point.kernel if choice else "cublas"


@functools.lru_cache(1024)
def _product(device: int, grade: Grade, A: Layout, B: Layout, C: Layout | None = None) -> _Product:
    """How matrices that lie so are multiplied; C is a new one if None. Raises UserError if they cannot be."""
    check({"A": A, "B": B} | ({} if C is None else {"out": C}))
    C = C or Layout.in_rows(result_type(A.dtype), A.shape[0], B.shape[1])
    if not C.size or not A.size:
        return lambda *arrays: arrays[2].view(f"u{arrays[2].itemsize}").fill(0)
    if is_column_major(C):  # C^T = B^T A^T
        turned = _product_in_rows(device, grade, [B.T, A.T, C.T])
        return lambda *arrays: turned(arrays[1].T, arrays[0].T, arrays[2].T)
    return _product_in_rows(device, grade, [A, B, C])


def _product_in_rows(device: int, grade: Grade, matrices: Sequence[Layout]) -> _Product:
    """How A, B and C that lie so are multiplied, where each row of C is in one piece."""
    way, dtype = _way(device, grade, matrices), DTYPES[matrices[0].dtype]
    library: _Product = functools.partial(cublas.multiply, dtype)
    product = library
    if way.own:
        what = (device, dtype, way.sizes, grade)
        product = functools.partial(_launch, what, _compiled(*what).workspace_bytes)
    if any(way.copies):
        product = _of_copies(matrices, way.copies, product)
    if product is library or not copies.takes_all(matrices):
        return product

    def multiply_in_any_case(*arrays: Any) -> None:
        try:
            product(*arrays)
        except MemoryError:  # CuPy's, for workspaces or copies
            library(*arrays)

    return multiply_in_any_case


def _way(device: int, grade: Grade, matrices: Sequence[Layout]) -> copies.Way:
    """The cheapest way to multiply A, B and C that lie so, where each row of C is in one piece."""

    def times_as_fast(sizes: copies.Sizes) -> float | None:
        choice = _choice(device, DTYPES[matrices[0].dtype], sizes, grade)
        return choice.times_as_fast if choice else None

    return copies.cheapest(matrices, times_as_fast)


def _of_copies(matrices: Sequence[Layout], copied: Sequence[Layout | None], product: _Product) -> _Product:
    """A product of copies with these layouts, None for those of A, B and C that are taken as they lie."""
    offsets, size = _offsets([copy.itemsize * copy.size if copy else 0 for copy in copied])
    padded = any(copy and copy.shape != each.shape for each, copy in zip(matrices[:2], copied))
    inside = [copy and copy._replace(shape=each.shape) for each, copy in zip(matrices, copied)]
    moves = [_move(each, part) if part else None for each, part in zip(matrices[:2], inside)]
    back = _move(inside[2], matrices[2]) if inside[2] else None

    def copy_and_multiply(*arrays: Any) -> None:
        memory = cupy.cuda.alloc(size)  # is the stream's, as in `_launch`
        if padded:  # what is beside A and B is multiplied, and what is beside C is dropped
            memory.memset_async(0, offsets[2], cupy.cuda.get_current_stream())
        taken = [
            cupy.ndarray(copy.shape, copy.dtype, memory + offset, copy.strides) if copy else array
            for array, copy, offset in zip(arrays, copied, offsets)
        ]
        for move, array, copy in zip(moves, arrays, taken):
            if move:
                move(array, copy)
        product(*taken)
        if back:
            back(taken[2], arrays[2])

    return copy_and_multiply


def _move(source: Layout, target: Layout) -> Callable[[Any, Any], None]:
    """A function that copies a matrix with the layout `source` to one with the layout `target`, or to the first rows
    and columns of a larger one, on CuPy's current stream.

    On an H200 the driver copies rows at 1.6 TB/s, and CuPy's own kernel 2 x 10^11 elements/s of any size: it is the
    faster for doubles.
    """
    size, across = source.itemsize, is_column_major(source) and is_column_major(target)
    if across:
        source, target = source.T, target.T
    height, width = source.shape
    pitches = [size * (pitch(each.shape, each.strides, size) or _MOST_PITCH) for each in (source, target)]
    bits = f"u{size}"  # CuPy does not copy every type of ml_dtypes

    def copy_elements(of: Any, to: Any) -> None:
        of, to = (each.T if across else each for each in (of, to))
        to[:height, :width].view(bits)[...] = of[:height, :width].view(bits)

    def copy_rows(of: Any, to: Any) -> None:
        ends = (to.data.ptr, pitches[1], of.data.ptr, pitches[0])
        stream = cupy.cuda.get_current_stream().ptr
        runtime.memcpy2DAsync(*ends, size * width, height, runtime.memcpyDeviceToDevice, stream)

    return copy_elements if size == 8 or max(pitches) >= _MOST_PITCH else copy_rows


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
def _known(device: int) -> tuple[Device, str, dict[str, Kernel], pd.DataFrame]:
    """A GPU by CUDA's number, the name of its platform, the kernels, and what was timed on it."""
    facts = runtime.getDeviceProperties(device)
    name = gpus.model(facts["name"].decode())
    gpu = Device.from_capability(f"{facts['major']}.{facts['minor']}", facts["multiProcessorCount"])
    kernels = registry.load()
    return gpu, name, kernels, recorded_times(name, kernels)


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


def _check_places(device: int, given: dict[str, Any], layouts: Sequence[Layout]) -> None:
    """UserError for arrays on another GPU than the current one, and for an `out` that overlaps A or B."""
    for name, each in given.items():
        if (there := each.data.device_id) != device:
            raise UserError(
                f"matmul: {name} is on GPU {there}, which is not the current one; call it in "
                f"`with cupy.cuda.Device({there}):`"
            )
    *operands, last = zip(layouts, (each.data.ptr for each in given.values()))
    if "out" in given and any(overlap(*last, *operand) for operand in operands):
        raise UserError("matmul: out overlaps A or B, which are read while it is written; pass another array")
