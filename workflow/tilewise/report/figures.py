"""The figures of the report: each a function that draws a table with seaborn; FIGURES says which table.

A rate is 2 n p m operations divided by the median time.
"""

import functools
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from kernelscope.files import atomic_path
from tilewise.evidence import Evidence
from tilewise.explain import by_size, grades, timings
from tilewise.explain.climb import CLIMB, explained
from tilewise.explain.number_format import rounded
from tilewise.report import notes, plots, sweep_figures, tables
from tilewise.report.svg import empty_figure, missing_reason, set_tooltips, style, svg
from tilewise.report.tables import STUDY_FIGURES
from tilewise.study.device import WARP
from tilewise.study.kernel import LANGUAGES

__all__ = ["FIGURES", "OVERVIEW", "draw", "empty_figure", "missing_reason", "save", "svg", "task"]

#: The look of an upright line, which lies behind the bars, so that they cover it if they pass it.
_LIMIT: dict[str, Any] = {"color": "black", "linewidth": 1.3, "zorder": 0.9}


def draw(name: str, evidence: Evidence, table: pd.DataFrame | None = None) -> Figure:
    """Draw a figure of FIGURES by its name, from `table` if one is given."""
    make, function, empty = FIGURES[name]
    rows = plots.described(make(evidence) if table is None else table)
    try:
        with style():
            return function(rows, evidence)
    except plots.NothingToShow:
        return empty_figure(empty)


def task(name: str, evidence: Evidence) -> Figure:
    """The figure of a task; of a sweep, what it varies decides which."""
    own, method = evidence.select_tasks(name), evidence.method(name)
    if method in FIGURES:
        return draw(method, own)
    if method != "sweep":
        return empty_figure("This task has no figure; its table has its numbers.")
    timed = pd.concat([own.gpu, own.cpu], ignore_index=True)
    if timed["gflops"].isna().all():
        return empty_figure("Nothing of this task was timed; its table shows what was verified.")
    if timed["gflops"].notna().sum() == 1:
        return empty_figure("One point of this task was timed; its table has it.")
    with style():
        return sweep_figures.draw(timings.describe(timed, evidence), evidence)


#: The figures of the whole study, in addition to those of its tasks: file name -> function of the evidence.
OVERVIEW: dict[str, Callable[[Evidence], Figure]] = {name: functools.partial(draw, name) for name in STUDY_FIGURES}


def save(draw: Callable[[], Figure], path: Path | str) -> None:
    """Draw a figure and write it atomically as SVG; if drawing fails, write a figure with the note."""
    drawing = notes.attempt(str(path), lambda: svg(draw(), Path(path).stem), lambda note: svg(empty_figure(note)))
    with atomic_path(path) as temporary:
        temporary.write_text(drawing, encoding="utf-8")


def rungs_of_ladder(evidence: Evidence) -> pd.DataFrame:
    """The rows of `tables.ladder` of the float ladder alone, whose kernels took turns."""
    return tables.ladder(evidence.select_tasks(CLIMB))


def climb(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Each rung of the largest square product that is faster than all before it in the registry, and the library."""
    rows = timings.by_kernel(timings.largest_square(rows[rows["gflops"].notna()]), evidence)
    library = rows["tflops"].where(rows["anchor"]).groupby(rows["platform"]).transform("max")
    words = [f"dash-dotted: cuBLAS, {rounded(rate)} TFLOP/s" if rate > 0 else "" for rate in library]
    rows = rows.assign(library=library, words=words)[~rows["anchor"]]
    rows = rows[rows["gflops"] == rows.groupby("platform")["gflops"].cummax()]
    figure, parts = plots.facets(rows, ["platform", "words"], evidence, "kernel", width=4.4, height=1.0, line=0.42)
    for axis, part in parts:
        plots.bars(axis, part, color=plots.COLOURS[0])
        axis.axvline(part["library"].iloc[0], linestyle="-.", **_LIMIT)
        titles = [evidence.kernels[name].title.replace(" x ", " × ") for name in part["kernel"]]
        titles = [title if len(title) < 35 else title.partition(",")[0] for title in titles]  # two lines at most
        axis.set_yticks(range(len(part)), [textwrap.fill(title, 26) for title in titles])
    return figure


def accuracy_and_rate(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The error of each kernel at the largest square product, in the Frobenius norm of operands of both signs, over its
    rate; other languages are left out."""
    others = [name for name, kernel in evidence.kernels.items() if kernel.kind in LANGUAGES]
    rows = timings.largest_square(rows).sort_values("anchor", kind="stable")  # libraries above the others
    rows = rows[~rows["kernel"].isin(others) & (rows["relative_error"] > 0) & (rows["gflops"] > 0)]
    peaks = (rows["peak_gflops"].where(rows["dtype"] == "float") / 1000).groupby(rows["platform"]).transform("max")
    floats = ["float and shorter numbers" + f"; dashed: {rounded(peak)} TFLOP/s" * (peak > 0) for peak in peaks]
    rows = rows.assign(group=np.where(rows["dtype"] == "double", "double", floats))
    figure, parts = plots.facets(rows, ["platform", "group", "shape"], evidence, height=3.7)
    for axis, part in parts:
        rate, error = part["tflops"], part["relative_error"]
        said = part["said"] + ", error " + error.map(rounded)
        plots.marks(axis, part.assign(said=said), "tflops", "relative_error", s=50, **plots.looks(part, evidence))
        peak = part.loc[part["dtype"] == "float", "peak_gflops"].max() / 1000
        axis.axvline(peak, linestyle="--", label="the peak of the float units" if peak > 0 else "", **_LIMIT)
        plots.log_scale(axis, "x", "y")
        axis.set(xlim=(0.3 * rate.min(), 4 * rate.max()), xlabel="TFLOP/s: faster to the right")
        axis.set(ylim=(error.min() / 6, 6 * error.max()), ylabel="relative error: more accurate below")
        heights = np.log10(error.groupby(part["dtype"]).median().sort_values())
        apart = 0.07 * np.diff(np.log10(axis.get_ylim())) * range(len(heights))  # so that no two names overlap
        plots.write_beside(axis, 10 ** ((heights - apart).cummax() + apart), heights.index)
    plots.legend(figure, evidence, 4)
    return figure


def counted_and_timed(evidence: Evidence) -> pd.DataFrame:
    """The fastest timed float product of each kernel whose loads the emulator counted, with their `intensity`: FLOP per
    byte loaded, at any size; a sector has 32 bytes."""
    rows = explained(evidence.gpu[evidence.gpu["dtype"] == "float"], evidence)
    rows = timings.fastest_first(rows[rows["sectors_per_100"] > 0]).drop_duplicates(timings.CASE)
    rows = rows.sort_values("gflops").drop_duplicates(["platform", "kernel"], keep="last")
    return rows.assign(intensity=2 * WARP / (32 * rows["sectors_per_100"] / 100)).sort_values("platform", kind="stable")


def roofline(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Each float kernel at its counted FLOP per byte and its measured rate, under the roofs of memory and arithmetic.

    The counts are of what a multiprocessor loads from its caches. So a kernel may lie above the memory's roof,
    if the caches served it.
    """
    figure, parts = plots.facets(rows, ["platform"], evidence, height=5.4)
    for axis, part in parts:
        said = part["said"] + " at " + part["intensity"].map(rounded) + " FLOP per byte"
        plots.marks(axis, part.assign(said=said), "intensity", "tflops", s=60, **plots.looks(part, evidence))
        speeds, peak = _roofs(part["platform"].iloc[0], evidence)
        top = peak or speeds["memory"] * part["intensity"].max()  # the memory's roof extends over all points
        x = np.geomspace(0.5 * min(0.25, part["intensity"].min()), 4 * top / speeds["memory"], 200)
        for name, speed in speeds.items():
            axis.plot(x, np.minimum(top, speed * x), color="black", linewidth=1.2, zorder=0)
            along = {"rotation": math.degrees(math.atan(speed)), "rotation_mode": "anchor", "va": "bottom"}
            words = f"{name} {rounded(speed)} TB/s"
            axis.text(x[0], 1.1 * speed * x[0], words, fontsize="small", transform_rotates_text=True, **along)
        if peak:
            plots.write_beside(axis, [peak], [f"vector peak\n{rounded(peak)} TFLOP/s"])
        plots.log_scale(axis, "x", "y")
        axis.set(xlabel="FLOP per byte loaded, counted by the emulator", ylabel="TFLOP/s, measured")
        axis.set_ylim(top=2 * max(top, part["tflops"].max()))
    plots.legend(figure, evidence, 4)
    return figure


def _roofs(platform: str, evidence: Evidence) -> tuple[dict[str, float], float]:
    """The roofs of a GPU for floats: the memory's and the caches' in TB/s, and the peak in TFLOP/s, 0 if not known."""
    gpu = evidence.device(platform).gpu
    measured = {name: speed for (name, dtype), speed in evidence.roofs(platform).items() if dtype == "float"}
    speeds = {"memory": measured.get("memory_bandwidth", gpu["memory_bandwidth_gb_s"])}
    speeds |= {f"L{n}": measured[f"l{n}_bandwidth"] for n in (2, 1) if f"l{n}_bandwidth" in measured}
    peak = (gpu["peak_gflops"] or {}).get("float") or 0
    return {name: speed / 1000 for name, speed in speeds.items()}, peak / 1000


def rungs(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Every rung and its limits; a hatched bar is slower than a rung before it."""
    slower = (rows["gain"] < 1) & ~rows["as_fast"].fillna(False).astype(bool)
    library = rows["gflops"].where(rows["anchor"]).groupby([rows["platform"], rows["dtype"]]).transform("max")
    rows = rows.assign(slower=slower, library=library, bound=rows["bound_gflops"] / 1000)
    by = ["platform", "dtype", "shape"]
    figure, parts = plots.facets(rows[~rows["anchor"]], by, evidence, "kernel", width=6.4, height=1.5, line=0.3)
    for axis, part in parts:
        colours = [plots.look(name, evidence)["color"] for name in part["kernel"]]
        said = part["kernel"] + ": " + part["tflops"].map(rounded) + " TFLOP/s"
        plots.bars(axis, part.assign(said=said), hue="kernel", palette=colours, legend=False)
        for bar, slower in zip(axis.patches, part["slower"]):
            bar.set(hatch="///" if slower else "", edgecolor="white", linewidth=0)
        limits = _limits(part, evidence)
        for dashes, (words, rate) in limits.items():
            number = f": {rounded(rate)}" if len(parts) == 1 else ""
            axis.axvline(rate, linestyle=dashes, label=words + number, **_LIMIT)
        known = part[part["bound"].notna()]
        words = "upper bound" if len(limits) < 4 else ""  # five entries would be too many
        ticks = axis.scatter(known["bound"], known["kernel"], marker="|", s=190, color="black", label=words)
        said = zip(known["kernel"], known["bound"])
        set_tooltips(ticks, [f"{name}: upper bound {rounded(rate)} TFLOP/s" for name, rate in said])
    plots.legend(figure, evidence, 2)
    return figure


def _limits(rungs: pd.DataFrame, evidence: Evidence) -> dict[str, tuple[str, float]]:
    """The limits of the rungs of an element type on a GPU that are known: style of its line -> words, TFLOP/s."""
    platform, dtype, library = rungs[["platform", "dtype", "library"]].iloc[0]
    gpu, roofs = evidence.device(platform).gpu, evidence.roofs(platform)
    mma = rungs["multiply_add"].fillna("").str.contains("MMA").any()
    units = " on the vector units" if mma else ""
    limits = {
        "-.": ("cuBLAS", library),
        "-": (f"multiply-adds alone{units}, measured", roofs.get(("multiply_add_rate", dtype))),
        "--": (f"peak at {gpu['sm_clock_mhz']:,} MHz{units}", (gpu["peak_gflops"] or {}).get(dtype)),
        ":": ("tensor cores alone, measured", roofs.get(("tensor_rate", dtype)) if mma else None),
    }
    return {dashes: (words, rate / 1000) for dashes, (words, rate) in limits.items() if pd.notna(rate)}


def sizes(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rate of each kernel over the size of square products; below two roofs, if known: the rate of the units, and a
    launch alone.

    Lines join sizes that divide by 16; other sizes are hollow marks. The library is there with its default call: that
    of its best algorithm can hardly be told apart.
    """
    searched = [name for name, kernel in evidence.kernels.items() if kernel.searched]
    rows = timings.cubes(rows[~rows["kernel"].isin(searched) & rows["tflops"].notna()]).sort_values("n", kind="stable")
    rows = rows.reindex(columns=list(dict.fromkeys([*rows, "roof_gflops", "launch_gflops"])))
    figure, parts = plots.facets(rows, ["platform", "dtype"], evidence, width=8.8, height=2.9, columns=2)
    for axis, part in parts:
        shown = plots.looks(part, evidence)
        plots.marks(axis, part, "n", "tflops", s=28, **shown)
        plots.hollow(axis, ~part["friendly"])
        once = {"estimator": None, "errorbar": None, "dashes": False, "markers": False, "legend": False, "linewidth": 1}
        if part["friendly"].any():
            sns.lineplot(part[part["friendly"]], x="n", y="tflops", ax=axis, **shown | once)
        roof, launch = part["roof_gflops"].max() / 1000, part.drop_duplicates("n").dropna(subset="launch_gflops")
        if roof > 0:
            axis.axhline(roof, color="black", linewidth=1, linestyle="--", label="the units alone, measured")
        if len(launch):
            axis.plot(launch["n"], launch["launch_gflops"] / 1000, "k:", linewidth=1, label="a launch alone")
        top = np.nanmax([part["tflops"].max(), roof])
        axis.set(xlabel="n of n × n matrices", ylabel="TFLOP/s", yscale="log", ylim=(part["tflops"].min() / 2, 2 * top))
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:,.0f}")
    plots.legend(figure, evidence, 4)
    return figure


def shape_map(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """How many times as fast as the library the fastest kernel is at each shape of C with several sums."""
    several = rows.groupby(["platform", "dtype", "n", "m"])["p"].transform("nunique") > 1
    rows = rows[several & rows["friendly"] & rows["dtype"].isin(rows.loc[rows["n"] != rows["m"], "dtype"])]
    rows = rows.sort_values(["n", "m"], key=lambda sizes: sizes.astype("float64"), kind="stable")
    rows = rows.assign(
        c=rows["n"].astype("str") + " × " + rows["m"].astype("str"),
        title=rows["dtype"] + ": times as fast as the library",
        ratio=rows["percent_of_anchor"] / 100,
    )
    figure, parts = plots.facets(rows, ["platform", "title"], evidence, "c", height=1.5, line=0.3)
    for axis, part in parts:
        plots.heat(axis, part, "c", "p", "ratio")
        axis.set_xlabel("p; the rows are C, n × m")
    return figure


def spread_of_exponents(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The largest error of doubles made of bytes, over the spread of their exponents."""
    rows = rows.assign(title="largest error / ε |A||B|")
    figure, parts = plots.facets(rows, ["platform", "title"], evidence, "variant", height=1.2, line=0.26)
    for axis, part in parts:
        plots.heat(axis, part, "variant", "number", "componentwise")
        axis.set_xlabel("φ; blank: refused")
    return figure


_NO_RUNGS = "No ladder: no rung was timed."
_NO_SIZES = "No rate over the size: there is no GPU and no recorded run of this task."
_NO_MAP = "No map of shapes: there is no GPU and no recorded run of the task sizes."
_NO_ERRORS = "No errors over the spread of exponents: no product of doubles was graded."
#: Name -> the function that makes its table, the one that draws it, and what stands for an empty figure. A task's
#: figure has the name of the task's method.
FIGURES: dict[str, tuple[Callable[[Evidence], pd.DataFrame], Callable[[pd.DataFrame, Evidence], Figure], str]] = {
    "climb": (rungs_of_ladder, climb, "No climb: no GPU was timed."),
    "accuracy_and_rate": (tables.ladder, accuracy_and_rate, "No accuracy against rate: no GPU was timed."),
    "roofline": (counted_and_timed, roofline, "No roofline: no kernel was both counted and timed."),
    "rungs": (tables.OVERVIEW["rungs"], rungs, _NO_RUNGS),
    "rungs_double": (tables.TABLES["rungs_double"], rungs, _NO_RUNGS),
    "sizes": (by_size.over_size, sizes, _NO_SIZES),
    "rate_over_size": (by_size.below_roofs, sizes, _NO_SIZES),
    "shape_map": (by_size.at_every_size, shape_map, _NO_MAP),
    "spread_of_exponents": (grades.spread_of_exponents, spread_of_exponents, _NO_ERRORS),
}
