"""Prepare the rows of figures: which rows of a table a figure shows, and the further columns that it needs."""

import textwrap
from typing import Any

import numpy as np
import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.climb import CLIMB, explained
from tilewise.explain.number_format import rounded
from tilewise.report import tables
from tilewise.study.columns import SHAPE
from tilewise.study.device import WARP
from tilewise.study.kernel import LANGUAGES


# ---- For all figures -------------------------------------------------------------------------------------------------
def described(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with the further columns that all figures have.

    `said` is the tooltip of a row: its kernel, choice, type, product and rate, as far as it has them. With rates come
    `tflops`, and `rate` in `rate_unit`, which is GFLOP/s for CPU loops and TFLOP/s otherwise. The categories of `shape`
    begin with the smallest product.
    """
    named = rows[[name for name in ("kernel", "choice", "dtype", "shape") if name in rows]].astype("object").fillna("")
    said = [", ".join(filter(None, row)) for row in named.to_numpy()]
    added: dict[str, Any] = {}
    if "gflops" in rows:
        unit, large = ("TFLOP/s", 1000) if rows["gflops"].max() >= 100 else ("GFLOP/s", 1)  # no CPU loop is that fast
        added |= {"tflops": rows["gflops"] / 1000, "rate": rows["gflops"] / large, "rate_unit": unit}
        said = [f"{words}: {rounded(rate)} {unit}" for words, rate in zip(said, added["rate"].astype("float64"))]
    if {"shape", *SHAPE} <= {*rows}:
        added["shape"] = pd.Categorical(rows["shape"], by_size(rows))
    return rows.assign(**added, said=pd.Series(said, rows.index, dtype="object"))


def by_size(rows: pd.DataFrame) -> list[str]:
    """The shapes of rows as text, the smallest product first."""
    work = rows[SHAPE].astype("float64").prod(axis=1)
    return list(dict.fromkeys(rows["shape"].loc[work.sort_values(kind="stable").index]))


def _written(column: pd.Series) -> pd.Series:
    """Numbers as words, also if there are none."""
    return pd.Series([rounded(number) for number in column], column.index, dtype="object")


def _titled(rows: pd.DataFrame, first: pd.Series | str, dashed: pd.Series | str, tflops: str) -> pd.DataFrame:
    """Rows with a `title`, which also says what the dashed line is, if the rate in that column is known."""
    second = (dashed + ", " + _written(rows[tflops]) + " TFLOP/s").where(rows[tflops] > 0, "")
    return rows.assign(title=(first + second).str.strip())


def _ranked(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Rows with a `rank` for the largest of each kernel on each platform."""
    best = rows.sort_values(by, ascending=False).drop_duplicates(["platform", "kernel"])
    return rows.assign(rank=pd.Series(range(len(best)), index=best.index))


# ---- Of the whole study ----------------------------------------------------------------------------------------------
def rungs_of_ladder(evidence: Evidence) -> pd.DataFrame:
    """The rows of `tables.ladder` of the float ladder alone, whose kernels took turns."""
    return tables.ladder(evidence.select_tasks(CLIMB))


def climb(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The kernels that beat all kernels before them in the registry, at the largest square product; with each kernel's
    `idea` in words and the rate of the `library`."""
    rows = timings.by_kernel(timings.largest_square(rows[rows["gflops"].notna()]), evidence)
    own = rows[~rows["anchor"]]
    kept = own[own["gflops"] == own.groupby("platform")["gflops"].cummax()]
    words = (evidence.kernels[name].title.replace(" x ", " × ") for name in kept["kernel"])
    words = (title if len(title) < 35 else title.partition(",")[0] for title in words)  # two lines at most
    library = kept["platform"].map(rows[rows["anchor"]].groupby("platform")["tflops"].max())
    kept = kept.assign(idea=[textwrap.fill(title, 26) for title in words], library=library)
    return _titled(kept, "", "dash-dotted: cuBLAS", "library")


def accuracy_and_rate(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The largest square products of our kernels and of libraries, with `group`, by which doubles have their own panel;
    libraries are named first, then the fastest and slowest of a type."""
    rows = timings.largest_square(rows)
    others = [name for name, kernel in evidence.kernels.items() if kernel.kind in LANGUAGES]
    rows = rows[~rows["kernel"].isin(others)]
    rows = rows[(rows["relative_error"] > 0) & (rows["gflops"] > 0)].sort_values("gflops", ascending=False)
    types = rows.groupby(["platform", "dtype"])
    middle = types.cumcount().ne(0) & types.cumcount(ascending=False).ne(0)
    first = rows.assign(own=~rows["anchor"], middle=middle).sort_values(["own", "middle"], kind="stable").index
    double = rows["dtype"] == "double"
    floats = rows[rows["dtype"] == "float"].groupby("platform")["peak_gflops"].first()
    rows = rows.assign(
        rank=pd.Series(range(len(rows)), index=first),
        group=double.map({True: "double", False: "float and shorter numbers"}),
        float_peak=rows["platform"].map(floats).where(~double) / 1000,
        said=rows["said"] + ", error " + _written(rows["relative_error"]),
    )
    titles = rows["group"] + ", " + rows["shape"].astype("str")
    return _titled(rows, titles, "\ndashed: the peak of the float units", "float_peak").sort_index()


def counted_and_timed(evidence: Evidence) -> pd.DataFrame:
    """The fastest timed float product of each kernel whose loads the emulator counted."""
    rows = explained(evidence.gpu[evidence.gpu["dtype"] == "float"], evidence)
    rows = timings.fastest_first(rows[rows["sectors_per_100"] > 0]).drop_duplicates(timings.CASE)
    return rows.sort_values("gflops").drop_duplicates(["platform", "kernel"], keep="last")


def roofline(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Kernels with their `intensity`: FLOP per byte loaded, at any size; a sector has 32 bytes."""
    intensity = 2 * WARP / (32 * rows["sectors_per_100"] / 100)
    said = rows["said"] + " at " + _written(intensity) + " FLOP per byte"
    return _ranked(rows.assign(intensity=intensity, said=said), "gflops").sort_values("kernel", kind="stable")


def roofs(platform: str, evidence: Evidence) -> tuple[dict[str, float], float]:
    """The roofs of a GPU for floats: the memory's and the caches' in TB/s, and the peak in TFLOP/s, 0 if not known."""
    gpu = evidence.device(platform).gpu
    measured = {name: speed for (name, dtype), speed in evidence.roofs(platform).items() if dtype == "float"}
    speeds = {"memory": measured.get("memory_bandwidth", gpu["memory_bandwidth_gb_s"])}
    speeds |= {f"L{n}": measured[f"l{n}_bandwidth"] for n in (2, 1) if f"l{n}_bandwidth" in measured}
    peak = (gpu["peak_gflops"] or {}).get("float") or 0
    return {name: speed / 1000 for name, speed in speeds.items()}, peak / 1000


def beside_limits(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rungs with their bounds and the limits of their chip in TFLOP/s; LIMIT_words says what a limit is."""
    slower = (rows["gain"] < 1) & ~rows["as_fast"].fillna(False).astype(bool)
    titles = rows["dtype"] + ", " + rows["shape"].astype("str")
    rows, found = rows.assign(bound=rows["bound_gflops"] / 1000, slower=slower, title=titles), []
    for (platform, dtype), part in rows.groupby(["platform", "dtype"], sort=False):
        gpu = evidence.device(platform).gpu
        roofs, own = evidence.roofs(platform), part[~part["anchor"]]
        mma = own["multiply_add"].fillna("").str.contains("MMA").any()
        units = " on the vector units" if mma else ""
        limits: dict[str, tuple[float | None, str]] = {
            "library": (part.loc[part["anchor"], "gflops"].max(), "cuBLAS"),
            "alone": (roofs.get(("multiply_add_rate", dtype)), f"multiply-adds alone{units}, measured"),
            "tensor": (roofs.get(("tensor_rate", dtype)) if mma else None, "tensor cores alone, measured"),
            "peak": ((gpu["peak_gflops"] or {}).get(dtype), f"peak at {gpu['sm_clock_mhz']:,} MHz{units}"),
        }
        for name, (rate, words) in limits.items():
            own = own.assign(**{name: np.nan if rate is None else rate / 1000, f"{name}_words": words})
        # Five kinds of lines and marks would be too many for a legend; the caption tells of the mark.
        found.append(own.assign(bound_words="" if mma else "upper bound"))
    return pd.concat(found) if found else rows


def cache_lines(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Loops that were both timed and counted; the slowest point of each kernel is named."""
    lines, time = rows["l1_lines_per_multiply_add"], rows["ns_per_multiply_add"]
    rows = rows.assign(said=rows["said"] + ": " + _written(time) + " ns, " + _written(lines) + " lines")
    rows = _ranked(rows[lines.notna() & time.notna()], "ns_per_multiply_add")
    return rows.sort_values("kernel", kind="stable")


# ---- Of tasks and of the page ----------------------------------------------------------------------------------------
def areas(sizes: pd.Series) -> pd.Series:
    """The area of a mark for each of these sizes in square points, from the smallest to the largest."""
    places = sizes.rank(method="dense") - 1
    most = places.max() if places.notna().any() else 0
    return 22 * (90 / 22) ** (places / most) if most else places + 42


def squares(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Square products by their size, with the `roof` of their units and that of a `launch` in TFLOP/s, if known.

    The library is there with its default call: that of its best algorithm can hardly be told apart.
    """
    rows = timings.cubes(rows).sort_values("n", kind="stable")
    searched = [name for name, kernel in evidence.kernels.items() if kernel.searched]
    rows = rows[~rows["kernel"].isin(searched)]
    limits = {name: rows.get(f"{name}_gflops", pd.Series(np.nan, rows.index)) / 1000 for name in ("roof", "launch")}
    return rows.assign(**limits)


def shape_map(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Products of the same `c`, in words, with several sums: the rate as a multiple of the library's."""
    several = rows.groupby(["platform", "dtype", "n", "m"])["p"].transform("nunique") > 1
    oblong = rows["n"] != rows["m"]
    rows = rows[several & rows["friendly"] & rows["dtype"].isin(rows.loc[oblong, "dtype"])]
    rows = rows.sort_values(["n", "m"], key=lambda sizes: sizes.astype("float64"), kind="stable")
    words = [f"{n} × {m}" for n, m in zip(rows["n"], rows["m"])]
    c = pd.Categorical(words, list(dict.fromkeys(words)))
    title = rows["dtype"] + ": times as fast as the library"
    return rows.assign(ratio=rows["percent_of_anchor"] / 100, c=c, title=title)
