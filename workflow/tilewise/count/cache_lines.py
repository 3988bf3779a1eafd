"""Count the cache lines that the CPU loops fetch: the same loops run on elements that report their addresses.

kernels/emulator/cache.h explains how. Columns of cache_lines.csv beyond the kernel and the shape:

  element_bytes               size of an element; its type does not matter
  multiply_adds               how many multiply-adds were counted, after as many that filled the caches
  l1_lines, l2_lines          lines that they fetched into the first level from the second, and from beyond the second
"""

import ctypes
import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pandas as pd

from tilewise import UserError
from tilewise.build.build import symbol_of
from tilewise.build.cpp import compile_library
from tilewise.measure.backends.emulator import FOLDER
from tilewise.study.registry import DTYPES

KEYS = ["kernel", "element_bytes", "n", "p", "m", "tile"]
COLUMNS = [*KEYS, "multiply_adds", "l1_lines", "l2_lines"]


def count(points, kernels, model, folder):
    """Count the lines of points of CPU loops; returns (DataFrame of COLUMNS, one row per point; list of messages).

    `model` is the config's `trace.cache_lines`; the libraries are compiled into `folder`. A loop has no rows, but a
    message that says why, if it does more with its elements than read, write, add and multiply them, or if it leaves
    out products with zero.
    """
    rows, messages = [], []
    for name in dict.fromkeys(point.kernel for point in points):
        own = [point for point in points if point.kernel == name]
        try:
            # In a process of its own, so that a crash of a user's loop ends only that process.
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as child:
                rows += child.submit(_rows, kernels[name], own, model, Path(folder) / f"{name}.so").result()
        except BrokenProcessPool:
            messages.append(f"{name}: its cache lines cannot be counted: the loop ended its process")
        except (UserError, OSError) as error:
            messages.append(f"{name}: its cache lines cannot be counted: {error}")
    whole = dict.fromkeys([*KEYS[1:], *COLUMNS[len(KEYS) :]], "Int64")
    return pd.DataFrame(rows, columns=COLUMNS).astype(whole), messages


def _rows(kernel, points, model, output):
    library = _build(kernel, points, output)
    return [_count(library, kernel, point, model) for point in points]


def _build(kernel, points, output):
    lines = ['#include "cache.h"', f'#include "{kernel.path.resolve()}"']
    for instance in sorted({kernel.instance(point) for point in points}):
        element = re.search(r"<(\w+)", instance)[1]
        counted = instance.replace(f"<{element}", f"<cache::Counted<{element}>", 1)
        parameters = "int n, int p, int m, const cache::Size* levels, std::size_t how_many, std::uint64_t from, "
        parameters += "std::uint64_t until, std::uint64_t* fetched"
        call = f"return cache::count<{element}>(&{counted}, n, p, m, levels, how_many, from, until, fetched);"
        lines.append(f'extern "C" __attribute__((visibility("default"))) bool {symbol_of(instance)}({parameters})')
        lines.append(f"{{ {call} }}")
    compile_library("\n".join(lines) + "\n", output, [f"-I{FOLDER}"])
    return ctypes.CDLL(str(output))


def _count(library, kernel, point, model):
    work = point.n * point.p * point.m
    counted = min(model["multiply_adds"], max(1, work // 2))
    window = min(counted, work - counted), min(2 * counted, work)
    levels = np.array([[model[level]["bytes"], model[level]["ways"]] for level in ("l1", "l2")], np.uintp)
    fetched = np.zeros(2, np.uint64)
    count = library[symbol_of(kernel.instance(point))]
    count.restype = ctypes.c_bool
    begun = count(
        *(ctypes.c_int(size) for size in (point.n, point.p, point.m)),
        ctypes.c_void_p(levels.ctypes.data),
        ctypes.c_size_t(len(levels)),
        *(ctypes.c_uint64(edge) for edge in window),
        ctypes.c_void_p(fetched.ctypes.data),
    )
    if not begun:
        raise UserError(f"it makes at most {window[0]} of the {work} multiplications of {point.label()}")
    size = DTYPES[point.dtype][1].itemsize
    shape = {"n": point.n, "p": point.p, "m": point.m, "tile": point.tile}
    lines = {"multiply_adds": window[1] - window[0], "l1_lines": int(fetched[0]), "l2_lines": int(fetched[1])}
    return {"kernel": kernel.name, "element_bytes": size} | shape | lines
