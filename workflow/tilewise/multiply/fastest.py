"""Choose the fastest kernel for a product from recorded timings and tuned parameters.

Data in, a point out: nothing here needs a GPU.
"""

import math
from collections.abc import Iterable, Mapping
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
#: The times of a row, those of many products back to back first, as a program computes them: under load, in a batch.
STATES = ("sustained_ms", "batch_ms", "time_ms")


def recorded_times(gpu: str, folder: Path = RECORDED) -> pd.DataFrame:
    """Recorded times of a GPU, or of the first recorded one if it has none: kernel, dtype, n, p, m, and STATES.

    `gpu` is named as its platform is, such as `nvidia-h200`.
    """
    runs = {path.parent.name: path.parent for path in sorted(folder.glob("*/measurements.csv"))}
    if not runs:
        raise UserError(f"{folder}: no run is recorded there, by which kernels are chosen; restore the folder")
    run = tuning.nearest(runs, gpu)
    files = {"measurements": run / "measurements.csv", "sizes": run / "facts" / "sizes.csv"}
    tables = [columns.read(path, file) for file, path in files.items()]
    wanted = ["kernel", "dtype", *SHAPE, "status", *STATES]
    rows = pd.concat([table.reindex(columns=wanted) for table in tables if len(table)])
    return rows[(rows["status"] == Status.OK) & rows["time_ms"].notna()].drop(columns="status")


def fastest(
    rows: pd.DataFrame, kernels: Mapping[str, Kernel], gpu: str, capability: str, wanted: Point, grade: Grade
) -> Point | None:
    """The point of the fastest kernel of a grade, or of a better one, for the product of `wanted`.

    `rows` are from `recorded_times`. The ranking is that of the most similar product with times of the library and of a
    kernel with tuned parameters: of the same class, whose rows are multiples of FRIENDLY elements if those of `wanted`
    are, and no size of which is more than MOST_APART times that of the other; by the times of `back_to_back`. None if
    there is no such product, or if the library is the fastest.
    """
    rows = rows[rows["dtype"] == wanted.dtype]
    timed: dict[tuple[int, ...], set[str]] = {}
    for kernel, *shape in rows[["kernel", *SHAPE]].itertuples(index=False):
        timed.setdefault(tuple(shape), set()).add(kernel)
    anchored = [dict(zip(SHAPE, shape)) for shape, names in timed.items() if _are_ranked(names, kernels)]
    similar = {tuple(shape.values()): apart for shape in anchored if (apart := _apart(shape, wanted.shape)) is not None}
    if not similar:
        return None
    n, p, m = min(similar, key=lambda shape: similar[shape])
    for name in back_to_back(rows[(rows["n"] == n) & (rows["p"] == p) & (rows["m"] == m)], kernels).index:
        kernel = kernels.get(name)
        if kernel and kernel.library_call == "default":
            return None
        # It was removed after the run, makes something else, or is a way to call the library that is not taken.
        if kernel is None or not kernel.makes_ab or kernel.library:
            continue
        if list(Grade).index(Grade(kernel.grade)) > list(Grade).index(grade) or kernel.cannot_run(capability):
            continue
        if point := tuned_point(kernel, wanted.dtype, wanted.shape, gpu):
            return point
    return None


def back_to_back(there: pd.DataFrame, kernels: Mapping[str, Kernel]) -> pd.Series:
    """Times in ms of the kernels at one product, the fastest first, in the first of STATES that ranks them.

    Times of several states are never compared: a kernel without a time in this state is left out.
    """
    for state in STATES:
        known = there[there[state].notna()]
        if _are_ranked(known["kernel"], kernels):
            return known.groupby("kernel")[state].min().sort_values(kind="stable")
    return pd.Series(dtype="float64")


def _are_ranked(names: Iterable[str], kernels: Mapping[str, Kernel]) -> bool:
    """Whether a call of the library and a kernel with tuned parameters are among these kernels."""
    known = [kernels[name] for name in names if name in kernels]
    return any(kernel.library_call == "default" for kernel in known) and any(kernel.tuned for kernel in known)


def _apart(known: Mapping[str, int], wanted: Mapping[str, int]) -> float | None:
    """How far two products are from each other, as a sum of logarithms; None if they are not alike."""
    factors = [abs(math.log2(wanted[name] / known[name])) for name in SHAPE]
    friendly = [shape["p"] % FRIENDLY == 0 and shape["m"] % FRIENDLY == 0 for shape in (known, wanted)]
    classes = [tuning.shape_class(shape) for shape in (known, wanted)]
    same = friendly[0] == friendly[1] and classes[0] == classes[1]
    return sum(factors) if same and max(factors) <= math.log2(MOST_APART) else None
