"""The best algorithm of cublasLt for a product, found by timing those that its heuristics propose."""

import ctypes
import functools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

from tilewise.nvidia.cublas import compute_types, turned_bytes
from tilewise.nvidia.emulation import Unsupported

try:
    from nvmath.bindings import cublasLt as lt
except ImportError as error:
    raise Unsupported(
        f"cublasLt's algorithms need the package nvmath-python of the GPU's requirements: {error}"
    ) from None

#: Algorithms that are asked for, and the bytes of workspace that they may use.
PROPOSALS, WORKSPACE_BYTES = 32, 64 << 20
#: All algorithms are timed in so many turns, in random order; the fastest of them in so many more.
FIRST_TURNS, FASTEST, FURTHER_TURNS = 3, 5, 10
#: Bytes written before each launch, more than an L2 cache holds; the pause after it, as a multiple of its time.
FLUSH_BYTES, PAUSES = 256 << 20, 3
#: The number of the fastest algorithm of a product: arrays at other addresses have the same one.
_found: dict[tuple, int] = {}
#: cublasOperation_t
_TRANSPOSED = 1
#: cublasLtReductionScheme_t: partial sums in the type of the computation, not in that of C, as the study's cuBLAS does.
_REDUCTIONS = 2


def best(
    dtype: str, n: int, p: int, m: int, A: Any, B: Any, C: Any, batch: int = 1
) -> tuple[Callable[[int], None], str]:
    """C = A B by the fastest algorithm as a function of a stream's address, and the name of the algorithm.

    The matrices lie row by row, those of a batch one below the other. Of bytes, B is turned before each product, which
    is part of its time. Raises Unsupported if cublasLt proposes no algorithm, or none that runs.
    """
    kind, compute, scalar_kind, scalar, result = compute_types(dtype)
    handle, operation = _handle(), lt.matmul_desc_create(compute, scalar_kind)
    before = None
    b_pitch, b_shape, b_at = m, (m, p), B.data.ptr
    if dtype == "int8":
        before, turned = turned_bytes(B)
        b_pitch, b_shape, b_at = turned.shape[1], (p, m), turned.data.ptr
        _set(lt.matmul_desc_set_attribute, operation, lt.MatmulDescAttribute.TRANSA, np.int32(_TRANSPOSED))
    # cublasLt counts columns first, so its C^T = B^T A^T is ours without a transposition.
    layouts = [
        _layout(kind, *b_shape, b_pitch, batch, p * m),
        _layout(kind, p, n, p, batch, n * p),
        _layout(result, m, n, m, batch, n * m),
    ]
    preference = lt.matmul_preference_create()
    wishes = lt.MatmulPreferenceAttribute
    _set(lt.matmul_preference_set_attribute, preference, wishes.MAX_WORKSPACE_BYTES, np.uint64(WORKSPACE_BYTES))
    _set(lt.matmul_preference_set_attribute, preference, wishes.REDUCTION_SCHEME_MASK, np.uint32(_REDUCTIONS))
    found, count = lt.MatmulHeuristicResult(PROPOSALS), np.zeros(1, np.int32)
    try:
        lt.matmul_algo_get_heuristic(
            handle, operation, *layouts, layouts[-1], preference, PROPOSALS, found.ptr, count.ctypes.data
        )
    except lt.cuBLASLtError as error:
        raise Unsupported(f"cublasLt proposes no algorithm for this product: {error}") from None
    lt.matmul_preference_destroy(preference)
    space = cupy.empty(WORKSPACE_BYTES, cupy.uint8)
    one, zero = scalar(1), scalar(0)
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
    kept = one, zero, space, found, A, B, C, before

    def launch(algorithm: int) -> Callable[[int], None]:
        at = found[algorithm].ptr

        def multiply(stream: int = 0, _kept: Any = kept) -> None:
            if before:
                before(stream)
            lt.matmul(
                *(handle, operation, alpha, b_at, layouts[0], A.data.ptr, layouts[1], beta),
                *(C.data.ptr, layouts[2], C.data.ptr, layouts[2], at, space.data.ptr, WORKSPACE_BYTES, stream),
            )

        return multiply

    candidates = [launch(number) for number in range(int(count[0]))]
    product = dtype, n, p, m, batch
    if product not in _found:
        _found[product] = _fastest(candidates)
    number = _found[product]
    return candidates[number], f"{number + 1} of {len(candidates)}: {_name(found[number])}"


@functools.cache
def _handle() -> int:
    """The handle of this process."""
    return lt.create()


def _fastest(candidates: Sequence[Callable[[int], None]]) -> int:
    """The index of the candidate with the least median time. Raises Unsupported if none runs."""
    running = []
    for index, launch in enumerate(candidates):
        try:
            launch(0)
        except lt.cuBLASLtError:  # a proposal that this library does not run
            continue
        running.append(index)
    if not running:
        raise Unsupported("cublasLt has no algorithm for this product")
    scratch = cupy.empty(FLUSH_BYTES, cupy.uint8)
    times: dict[int, list[float]] = {index: [] for index in running}
    for turns, most in ((FIRST_TURNS, len(running)), (FURTHER_TURNS, FASTEST)):
        running = sorted(running, key=lambda index: np.median(times[index] or [0]))[:most]
        for _ in range(turns):
            for index in random.sample(running, len(running)):
                scratch.fill(0)  # empties the L2 cache
                start, end = cupy.cuda.Event(), cupy.cuda.Event()
                start.record()
                candidates[index](0)
                end.record()
                end.synchronize()
                times[index].append(cupy.cuda.get_elapsed_time(start, end))
                time.sleep(PAUSES * times[index][-1] / 1000)  # so that power does not limit what comes next
    return min(running, key=lambda index: np.median(times[index]))


def _layout(kind: int, rows: int, columns: int, pitch: int, batch: int, stride: int) -> int:
    """The layout of a matrix whose columns lie one after the other, or of a batch of them."""
    layout = lt.matrix_layout_create(kind, rows, columns, pitch)
    if batch > 1:
        attributes = lt.MatrixLayoutAttribute
        _set(lt.matrix_layout_set_attribute, layout, attributes.BATCH_COUNT, np.int32(batch))
        _set(lt.matrix_layout_set_attribute, layout, attributes.STRIDED_BATCH_OFFSET, np.int64(stride))
    return layout


def _set(setter: Callable[..., None], described: int, attribute: int, value: Any) -> None:
    """Set an attribute to a NumPy scalar."""
    held = np.asarray([value])
    setter(described, attribute, held.ctypes.data, held.nbytes)


def _name(algorithm: Any) -> str:
    """An algorithm: its number, tile, stages and split, by cublasLt's names."""
    attributes = lt.MatmulAlgoConfigAttribute

    def value(attribute: int) -> int:
        held = np.zeros(1, lt.get_matmul_algo_config_attribute_dtype(attribute))
        written = np.zeros(1, np.uint64)
        at = algorithm.ptr  # the first member of a proposal is the algorithm
        lt.matmul_algo_config_get_attribute(at, attribute, held.ctypes.data, held.nbytes, written.ctypes.data)
        return int(held[0])

    def word(names: Any, attribute: int) -> str:
        number = value(attribute)  # a newer cublasLt has tiles without a name here
        return next((each.name.split("_", 1)[1].lower() for each in names if each == number), f"number {number}")

    tile, stages = word(lt.MatmulTile, attributes.TILE_ID), word(lt.MatmulStages, attributes.STAGES_ID)
    split = value(attributes.SPLITK_NUM)
    return f"algorithm {value(attributes.ID)}, tile {tile}, stages {stages}" + f", split {split}" * (split > 1)
