"""Choose the fastest kernel for a product from recorded timings and tuned parameters.

Data in, a point out: nothing here needs a GPU.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tilewise import RECORDED, UserError
from tilewise.study import columns, tuning
from tilewise.study.accuracy import Grade
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.status import Status
from tilewise.study.sweeps import tuned_point

#: A product is like one that was timed if no size is more than so many times the other's.
MOST_APART = 2
#: Rows that are multiples of this many elements are copied by TMA and by vectors; others take further launches.
FRIENDLY = 16


def recorded_times(gpu: str, folder: Path = RECORDED) -> pd.DataFrame:
    """Recorded times of a GPU, or of the first recorded one if it has none: kernel, dtype, n, p, m, time_ms.

    `gpu` is named as its platform is, such as `nvidia-h200`.
    """
    runs = {path.parent.name: path.parent for path in sorted(folder.glob("*/measurements.csv"))}
    if not runs:
        raise UserError(f"{folder}: no run is recorded there, by which kernels are chosen; restore the folder")
    run = tuning.nearest(runs, gpu)
    files = {"measurements": run / "measurements.csv", "sizes": run / "facts" / "sizes.csv"}
    tables = [columns.read(path, file) for file, path in files.items()]
    wanted = ["kernel", "dtype", *SHAPE, "status", "time_ms"]
    rows = pd.concat([table[wanted] for table in tables if len(table)])
    return rows[(rows["status"] == Status.OK) & rows["time_ms"].notna()].drop(columns="status")


def fastest(
    rows: pd.DataFrame, kernels: Mapping[str, Kernel], gpu: str, capability: str, wanted: Point, grade: Grade
) -> Point | None:
    """The point of the fastest kernel of a grade, or of a better one, for the product of `wanted`.

    `rows` are from `recorded_times`. The ranking is that of the most similar product with times of the library and of a
    kernel with tuned parameters: of the same class, whose rows are multiples of FRIENDLY elements if those of `wanted`
    are, and no size of which is more than MOST_APART times that of the other. None if there is no such product, or if
    the library is the fastest.
    """
    rows = rows[rows["dtype"] == wanted.dtype]
    libraries = {name for name, kernel in kernels.items() if kernel.library and not kernel.searched}
    ranked = {name for name, kernel in kernels.items() if kernel.tuned}
    timed = rows.groupby(SHAPE)["kernel"].agg(set)
    anchored = [dict(zip(SHAPE, shape)) for shape, names in timed.items() if names & libraries and names & ranked]
    similar = {tuple(shape.values()): apart for shape in anchored if (apart := _apart(shape, wanted.shape)) is not None}
    if not similar:
        return None
    n, p, m = min(similar, key=lambda shape: similar[shape])
    there = rows[(rows["n"] == n) & (rows["p"] == p) & (rows["m"] == m)].sort_values("time_ms", kind="stable")
    for name in there["kernel"]:
        kernel = kernels.get(name)
        # It was removed after the run, makes something else, or needs a search before the product.
        if kernel is None or not kernel.makes_ab or kernel.searched:
            continue
        if kernel.library:
            return None
        if list(Grade).index(Grade(kernel.grade)) > list(Grade).index(grade) or kernel.cannot_run(capability):
            continue
        if point := tuned_point(kernel, wanted.dtype, wanted.shape, gpu):
            return point
    return None


def _apart(known: Mapping[str, int], wanted: Mapping[str, int]) -> float | None:
    """How far two products are from each other, as a sum of logarithms; None if they are not alike."""
    factors = [abs(math.log2(wanted[name] / known[name])) for name in SHAPE]
    friendly = [shape["p"] % FRIENDLY == 0 and shape["m"] % FRIENDLY == 0 for shape in (known, wanted)]
    classes = [tuning.shape_class(shape) for shape in (known, wanted)]
    same = friendly[0] == friendly[1] and classes[0] == classes[1]
    return sum(factors) if same and max(factors) <= math.log2(MOST_APART) else None
