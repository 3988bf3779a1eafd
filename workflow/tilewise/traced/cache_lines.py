"""Count the cache lines that the CPU loops fetch, by running them on elements that report their addresses.

kernels/cpu_cache/cache.h explains how; study/columns.yaml explains the columns of cache_lines.csv.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernelscope.cpp import compile_library, include_options
from tilewise import KERNELS, UserError
from tilewise.files import processes
from tilewise.study import columns, registry
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.sources import INCLUDE


def count(
    points: Sequence[Point], kernels: Mapping[str, Kernel], model: Mapping[str, Any], folder: Path | str
) -> tuple[pd.DataFrame, list[str]]:
    """Count the lines of points of CPU loops; returns (table of cache_lines.csv, one row per point, and messages).

    `kernels` is the registry, whose parameters are columns; `model` is the config's `trace.cache_lines`; the libraries
    are compiled into `folder`. A loop that does more with its elements than to read, write, add and multiply them, or
    that leaves out products with zero, has no rows but a message that says why.
    """
    rows: list[dict[str, Any]] = []
    messages = []
    for name in dict.fromkeys(point.kernel for point in points):
        own = [point for point in points if point.kernel == name]
        try:
            # In a separate process: whatever a user's loop does ends only that.
            with processes(1, "ran the loop", "mend the loop if it ends so each time") as child:
                rows += child.submit(_rows, kernels[name], own, model, Path(folder) / f"{name}.so").result()
        except (UserError, OSError) as error:
            messages.append(f"{name}: its cache lines cannot be counted: {error}")
    return columns.frame(rows, "cache_lines", registry.parameters(kernels)), messages


def _rows(kernel: Kernel, points: Sequence[Point], model: Mapping[str, Any], output: Path) -> list[dict[str, Any]]:
    instances = dict.fromkeys(kernel.plan(point).instances[0] for point in points)
    symbols = {instance: f"count_{number}" for number, instance in enumerate(instances)}
    library = _build(kernel, symbols, output)
    return [_count(library[symbols[kernel.plan(point).instances[0]]], kernel, point, model) for point in points]


def _build(kernel: Kernel, symbols: Mapping[str, str], output: Path) -> ctypes.CDLL:
    lines = ['#include "cache.h"', f'#include "{kernel.path.name}"']
    for instance, symbol in symbols.items():
        element = instance.split("<")[1].split(",")[0].rstrip(">")  # dtype is the first template argument of a loop
        counted = instance.replace(f"<{element}", f"<cache::Counted<{element}>", 1)
        parameters = "int n, int p, int m, const cache::Size* levels, std::size_t how_many, std::uint64_t from, "
        parameters += "std::uint64_t until, std::uint64_t* fetched"
        call = f"return cache::count<{element}>(&{counted}, n, p, m, levels, how_many, from, until, fetched);"
        lines.append(f'extern "C" __attribute__((visibility("default"))) bool {symbol}({parameters})')
        lines.append(f"{{ {call} }}")
    compile_library(
        "\n".join(lines) + "\n", output, [*include_options(kernel.path), f"-I{INCLUDE}", f"-I{KERNELS}/cpu_cache"]
    )
    return ctypes.CDLL(str(output))


def _count(count: Any, kernel: Kernel, point: Point, model: Mapping[str, Any]) -> dict[str, Any]:
    work = point.multiply_adds
    counted = min(model["multiply_adds"], max(1, work // 2))
    window = min(counted, work - counted), min(2 * counted, work)
    levels = np.array([[model[level]["bytes"], model[level]["ways"]] for level in ("l1", "l2")], np.uintp)
    fetched = np.zeros(2, np.uint64)
    count.restype = ctypes.c_bool
    begun = count(
        *(ctypes.c_int(size) for size in (point.n, point.p, point.m)),
        ctypes.c_void_p(levels.ctypes.data),
        ctypes.c_size_t(len(levels)),
        *(ctypes.c_uint64(edge) for edge in window),
        ctypes.c_void_p(fetched.ctypes.data),
    )
    if not begun:
        raise UserError(f"it makes no more than {window[0]} of the {work} multiplications of {point.label()}")
    size = PRECISIONS[point.dtype].itemsize
    lines = {"multiply_adds": window[1] - window[0], "l1_lines": int(fetched[0]), "l2_lines": int(fetched[1])}
    return {"kernel": kernel.name, "element_bytes": size} | point.shape | dict(point.parameters) | lines
