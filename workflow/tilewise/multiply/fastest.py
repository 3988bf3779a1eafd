"""Choose the fastest kernel for a product from recorded timings.

Data in, a choice out: nothing here needs a GPU.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from tilewise import RECORDED, UserError
from tilewise.multiply.arguments import ALIGNED
from tilewise.study import columns, tuning
from tilewise.study.accuracy import Grade
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.status import Status
from tilewise.study.sweeps import recorded_point, tuned_point

#: A product is like one that was timed if no size is more than so many times the other's.
MOST_APART = 2
#: The times of a row, those of many products back to back first, as a program computes them: under load, in a batch.
STATES = ("sustained_ms", "batch_ms", "time_ms")


class Choice(NamedTuple):
    """The point to launch, and the library's time as a multiple of the kernel's at the recorded product."""

    point: Point
    times_as_fast: float


def recorded_times(gpu: str, kernels: Mapping[str, Kernel], folder: Path = RECORDED) -> pd.DataFrame:
    """Recorded rows of a GPU, or of the first recorded one if it has none, that are right and timed: platform, kernel,
    dtype, n, p, m, STATES, and the parameters of the kernels.

    `gpu` is named as its platform is, such as `nvidia-h200`. Raises UserError if no run is recorded.
    """
    runs = {path.parent.name: path.parent for path in sorted(folder.glob("*/measurements.csv"))}
    if not runs:
        raise UserError(f"{folder}: no run is recorded there, by which kernels are chosen; restore the folder")
    run = tuning.nearest(runs, gpu)
    files = {"measurements": run / "measurements.csv", "sizes": run / "facts" / "sizes.csv"}
    rows = pd.concat([table for file, path in files.items() if len(table := columns.read(path, file))])
    parameters = (name for kernel in kernels.values() for name in kernel.columns)
    # A choice selects among the rows, which would take twice as long with all columns.
    wanted = [*dict.fromkeys(["platform", "kernel", "dtype", *SHAPE, *STATES, *parameters])]
    return rows[(rows["status"] == Status.OK) & rows["time_ms"].notna()].reindex(columns=wanted).reset_index(drop=True)


def fastest(
    rows: pd.DataFrame, kernels: Mapping[str, Kernel], gpu: str, capability: str, wanted: Point, grade: Grade
) -> Choice | None:
    """The fastest kernel of a grade, or of a better one, for the product of `wanted`.

    `rows` are from `recorded_times`. The ranking is that of the most similar product with times of the library and of a
    kernel with tuned parameters: of the same class, whose rows are multiples of ALIGNED bytes if those of `wanted` are,
    and no size of which is more than MOST_APART times that of the other; by the times of `back_to_back`. The parameters
    are those of the recorded row, or, on a GPU without a recorded run, its tuned ones. None if there is no such
    product, or if the library is the fastest.
    """
    rows = rows[rows["dtype"] == wanted.dtype]
    timed: dict[tuple[int, ...], set[str]] = {}
    for kernel, *shape in rows[["kernel", *SHAPE]].itertuples(index=False):
        timed.setdefault(tuple(shape), set()).add(kernel)
    anchored = [dict(zip(SHAPE, shape)) for shape, names in timed.items() if _are_ranked(names, kernels)]
    unit = ALIGNED // PRECISIONS[wanted.dtype].itemsize
    apart = {tuple(shape.values()): _apart(shape, wanted.shape, unit) for shape in anchored}
    similar = {shape: distance for shape, distance in apart.items() if distance is not None}
    if not similar:
        return None
    n, p, m = min(similar, key=lambda shape: similar[shape])
    ranked = back_to_back(rows[(rows["n"] == n) & (rows["p"] == p) & (rows["m"] == m)], kernels)
    default = [name for name, kernel in kernels.items() if kernel.library_call == "default"]
    library = ranked[ranked["kernel"].isin(default)]["ms"].min()
    for row in ranked[ranked["ms"] < library].to_dict("records"):
        kernel = kernels.get(row["kernel"])
        # It was removed after the run, makes something else, or is a way to call the library that is not taken.
        if kernel is None or not kernel.makes_ab or kernel.library:
            continue
        if list(Grade).index(Grade(kernel.grade)) > list(Grade).index(grade) or kernel.cannot_run(capability):
            continue
        if row["platform"] == gpu and (timed_point := recorded_point(row, kernel)):
            point: Point | None = replace(wanted, kernel=kernel.name, parameters=timed_point.parameters)
        else:
            point = tuned_point(kernel, wanted.dtype, wanted.shape, gpu)
        if point and not kernel.unmet(point):
            return Choice(point, float(library / row["ms"]))
    return None


def back_to_back(there: pd.DataFrame, kernels: Mapping[str, Kernel]) -> pd.DataFrame:
    """The fastest row of each kernel at one product, the fastest kernel first, with its time as `ms`, in the first of
    STATES that ranks them; without rows if none does.

    Times of several states are never compared: a kernel without a time in this state is left out.
    """
    for state in STATES:
        known = there[there[state].notna()]
        if _are_ranked(known["kernel"], kernels):
            ordered = known.assign(ms=known[state]).sort_values("ms", kind="stable")
            return ordered.drop_duplicates("kernel")
    return there.assign(ms=math.nan).head(0)


def _are_ranked(names: Iterable[str], kernels: Mapping[str, Kernel]) -> bool:
    """Whether a call of the library and a kernel with tuned parameters are among these kernels."""
    known = [kernels[name] for name in names if name in kernels]
    return any(kernel.library_call == "default" for kernel in known) and any(kernel.tuned for kernel in known)


def _apart(known: Mapping[str, int], wanted: Mapping[str, int], unit: int) -> float | None:
    """How far two products are from each other, as a sum of logarithms; None if they are not alike.

    ALIGNED bytes, of which TMA and vectors take multiples, are a `unit` of elements; other rows take further launches.
    """
    factors = [abs(math.log2(wanted[name] / known[name])) for name in SHAPE]
    if max(factors) > math.log2(MOST_APART):
        return None
    even = [shape["p"] % unit == 0 and shape["m"] % unit == 0 for shape in (known, wanted)]
    classes = [tuning.shape_class(shape) for shape in (known, wanted)]
    return sum(factors) if even[0] == even[1] and classes[0] == classes[1] else None
