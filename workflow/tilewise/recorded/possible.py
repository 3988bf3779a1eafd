"""Whether the numbers of a run can be: times in their order, and no rate above what the device can do."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pandas as pd

from tilewise.evidence import Platform
from tilewise.measure import roofs
from tilewise.measure.roofs import READING
from tilewise.measure.tensor_core import short_products
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status

#: Times and rates are written in full, so they agree to more digits than this.
ROUNDED = 1e-6
#: The board may take more than its limit for a moment.
OVER_THE_LIMIT = 1.1
#: A kernel may run at a higher clock than the probe of its roof.
OVER_THE_PROBE = 1.1


def wrong(platform: Platform, kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """What contradicts itself or exceeds a roof, a line each."""
    swept = [task for task, entry in platform.config["tasks"].items() if "method" not in entry]
    for row in platform.measurements.to_dict("records"):
        if row["status"] != Status.OK:
            continue
        if pd.isna(row["time_ms"]):
            if row["task"] in swept:  # other methods make launches that they do not time
                yield f"measurements.csv: {about(row)}: ok, but without a time"
            continue
        if not _ordered(row):
            yield f"measurements.csv: {about(row)}: its times contradict each other"
        rate = 2e-6 * row["n"] * row["p"] * row["m"] / row["time_ms"] if row["time_ms"] else math.inf
        if abs(row["gflops"] / rate - 1) > ROUNDED:
            yield f"measurements.csv: {about(row)}: {row['gflops']:.6g} GFLOP/s are not those of its time, {rate:.6g}"
    if not platform.has_gpu:
        return
    gpu = platform.device.gpu
    tables = {name: platform.facts[name] for name in ("energy", "sizes", "batches", "tune")}
    for name, table in ({"measurements.csv": platform.measurements} | tables).items():
        for row in table[table["gflops"].notna()].to_dict("records"):
            kernel = kernels.get(row["kernel"])
            roof = roofs.of_units(row, kernel, gpu) if kernel and kernel.on_gpu else None
            if roof and row["gflops"] > READING * roof.gflops:
                yield f"{name}: {about(row)}: {row['gflops']:,.0f} GFLOP/s are above the roof of {roof.gflops:,.0f}"
    yield from _of_facts(platform)
    yield from _slow_probes(platform, kernels)


def _ordered(row: Mapping[str, Any]) -> bool:
    """Whether the extremes, the quartiles and the median of a row's times are in order."""
    names = ["time_min_ms", "time_q1_ms", "time_ms", "time_q3_ms"], ["run_low_ms", "time_ms", "run_high_ms"]
    rows = ([row[name] for name in each if not pd.isna(row[name])] for each in names)
    return all(low <= high * (1 + ROUNDED) for each in rows for low, high in pairwise(each)) and row["time_ms"] > 0


def _of_facts(platform: Platform) -> Iterator[str]:
    """Bandwidths and rates above what clocks and units allow, and more power than the limit."""
    for row in platform.facts["bandwidth"].to_dict("records"):
        if row["measured"] > READING * row["datasheet"]:
            peak = f"{row['measured']:,.0f} {row['unit']} are above the peak of {row['datasheet']:,.0f}"
            yield f"bandwidth: {row['quantity']} {row['dtype']}: {peak}"
    limit = platform.device.gpu.get("power_limit_w")
    for row in platform.facts["energy"].to_dict("records"):
        if limit and row["watts"] > OVER_THE_LIMIT * limit:
            yield f"energy: {about(row)}: {row['watts']:.0f} W, with a limit of {limit:.0f}"


def _slow_probes(platform: Platform, kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """Measured roofs that a kernel exceeds: the probe of that type did not have the GPU for itself."""
    measured = platform.facts["bandwidth"].set_index(["dtype", "quantity"])["measured"]
    found: dict[str, Mapping[str, Any]] = {}
    for row in platform.measurements[platform.measurements["gflops"].notna()].to_dict("records"):
        if (multiplied := _multiplied(row, kernels)) is None:
            continue
        dtype, products = multiplied
        # A probe of the tensor cores that did not run has a row without a rate, which no kernel exceeds.
        quantity = "tensor_rate" if (dtype, "tensor_rate") in measured.index else "multiply_add_rate"
        roof = measured.get((dtype, quantity), math.nan)
        if row["gflops"] * products > OVER_THE_PROBE * roof:
            found.setdefault(f"bandwidth: {quantity} {dtype}: {roof:,.0f} GFLOP/s", row)
    for words, row in found.items():
        yield f"{words}, but {about(row)} reached {row['gflops']:,.0f}"


def _multiplied(row: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> tuple[str, float] | None:
    """The type that the units multiply for a row of a GPU, and how many products make one; None on a CPU."""
    kernel = kernels.get(row["kernel"])
    return short_products(row, kernel) if kernel and kernel.on_gpu else None


def about(row: Mapping[str, Any]) -> str:
    """A row in words: task, kernel, type, shape and parameters, as far as it has them."""
    words = [str(row[name]) for name in ("task", "kernel", "quantity", "dtype") if row.get(name)]
    words += ["x".join(str(row[name]) for name in SHAPE)] if "n" in row and not pd.isna(row["n"]) else []
    chosen = [name for name in columns.choice(columns.parameters_of(row)) if name in row and not pd.isna(row[name])]
    return " ".join([*words, *(f"{name}={row[name]}" for name in chosen)])
