"""Upper bounds of a product's rate on a GPU; a faster result cannot have been computed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewise.study.jobs import Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import bytes_of_product
from tilewise.study.status import Status

#: A clock is read with some error: by this a rate may exceed what follows from it.
READING = 1.01
#: The peak of doubles is that of the CUDA cores; the tensor cores of some GPUs do twice as much.
TENSOR_DOUBLES = 2
#: The columns of a product's times.
TIMES = ("time_ms", "batch_ms", "screen_ms", "test_ms")


class Roof(NamedTuple):
    """An upper bound of the rate of a kind of product, in GFLOP/s, and its cause."""

    gflops: float
    words: str


def units_roof(row: Mapping[str, Any], kernel: Kernel, gpu: Mapping[str, Any]) -> Roof | None:
    """The upper bound by the units of a GPU at its highest clock, for the type that a kernel multiplies and the
    products that its scheme needs for one; None for a GPU with unknown units.

    A measured roof would be lower where its probe did not have the GPU for itself, and is not there when the first
    rows are made; it is never higher.
    """
    dtype, products = kernel.short_products(row)
    peak = (gpu.get("peak_gflops") or {}).get(dtype)
    if peak is None or products != products:
        return None
    peak *= TENSOR_DOUBLES if dtype == "double" else 1
    words = f"of {dtype}" + f", {products:g} products for one of {row['dtype']}" * (products != 1)
    return Roof(peak / products, f"the peak {words}")


def memory_roof(point: Point, gpu: Mapping[str, Any]) -> Roof | None:
    """The upper bound by the memory of a GPU: A, B and C pass once through it, except what the L2 cache holds; None
    where that holds all."""
    size = point.batch * bytes_of_product(point.dtype, point.n, point.p, point.m) - gpu["l2_bytes"]
    if size <= 0:
        return None
    return Roof(2 * point.multiply_adds * gpu["memory_bandwidth_gb_s"] / size, "what the memory allows for A, B and C")


def reject_impossible(row: Row, measured: Row, kernel: Kernel, point: Point, gpu: Mapping[str, Any]) -> Row:
    """A row with what was measured of it; `incorrect`, without that, if it is faster than the GPU can be."""
    times_ms = [measured[name] for name in TIMES if measured.get(name)]
    rates = [2 * point.multiply_adds / time_ms / 1e6 for time_ms in times_ms] or [measured["gflops"]]
    roofs = [units_roof(point.columns() | row, kernel, gpu), memory_roof(point, gpu)]
    lowest = min((roof for roof in roofs if roof), default=None)
    if lowest is None or max(rates) <= READING * lowest.gflops:
        return row | measured
    message = (
        f"{max(rates):,.0f} GFLOP/s are above the roof of {lowest.gflops:,.0f}, {lowest.words}: this product was not "
        "computed, or not in this type; a kernel that multiplies in a shorter one names its scheme in the registry, "
        "under accuracy"
    )
    return row | {"status": Status.INCORRECT, "message": message}
