"""The figures of the report: each a function that draws a table of rows.

`shows` names the table, what of it is drawn and the words that stand for an empty figure. A rate is 2 n p m operations
divided by the median time.
"""

import functools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kernelscope.files import atomic_path
from tilewise.evidence import Evidence
from tilewise.explain import by_size, grades, timings, traffic
from tilewise.explain.number_format import rounded
from tilewise.report import figure_rows, notes, plots, sweep_figures, tables
from tilewise.report.plots import bars, colours, facets, heat, legend, limit, log_scale, look, marks
from tilewise.report.svg import empty_figure, missing_reason, set_tooltips, style, svg
from tilewise.report.template_context import STUDY_FIGURES

__all__ = ["OVERVIEW", "draw", "empty_figure", "missing_reason", "save", "svg", "task"]

_Draw = Callable[[pd.DataFrame, Evidence], Figure]
_Prepare = Callable[[pd.DataFrame, Evidence], pd.DataFrame]
#: Name -> the function that makes its table, what of it is drawn, what draws it, and what stands for an empty figure.
_FIGURES: dict[str, tuple[Callable[[Evidence], pd.DataFrame], _Prepare, _Draw, str]] = {}


def shows(
    table: Callable[[Evidence], pd.DataFrame], empty: str, prepare: _Prepare = lambda rows, _: rows, name: str = ""
) -> Callable[[_Draw], _Draw]:
    """Make a figure of a function, under its name or another one.

    It gets the `table` after `figure_rows.described` and `prepare`; if there are no rows, `empty` stands for it. The
    figure of a task has the name of the task's method.
    """

    def registered(function: _Draw) -> _Draw:
        _FIGURES[name or function.__name__] = table, prepare, function, empty
        return function

    return registered


def draw(name: str, evidence: Evidence, table: pd.DataFrame | None = None) -> Figure:
    """Draw a figure by its name, from `table` if one is given."""
    make, prepare, function, empty = _FIGURES[name]
    rows = prepare(figure_rows.described(make(evidence) if table is None else table, evidence), evidence)
    if rows.empty:
        return empty_figure(empty)
    with style():
        return function(rows, evidence)


def task(name: str, evidence: Evidence) -> Figure:
    """The figure of a task; of a sweep, what it varies decides which."""
    own, method = evidence.select_tasks(name), evidence.method(name)
    if method in _FIGURES:
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


# ---- Of the whole study ----------------------------------------------------------------------------------------------
@shows(figure_rows.rungs_of_ladder, "No climb: no GPU was timed.", figure_rows.climb)
def climb(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Each rung that is faster than all before it, and the library."""
    figure, parts = facets(rows, ["platform"], evidence, "title", width=4.4, height=1.0, line=0.42)
    for axis, part in parts:
        bars(axis, part, "tflops", "TFLOP/s", part["idea"], said="said", color=plots.COLOURS[0], height=0.72)
        limit(axis, part["library"].iloc[0], linestyle="-.")
        plots.write_beside(axis, part["tflops"].map(rounded))
    return figure


@shows(tables.ladder, "No accuracy against rate: no GPU was timed.", figure_rows.accuracy_and_rate)
def accuracy_and_rate(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The error of each kernel's verification, in the Frobenius norm of operands of both signs, over its rate."""
    figure, parts = facets(rows, ["platform", "group"], evidence, "title", height=3.3)
    for axis, part in parts:
        part = part.sort_values(["anchor", "gflops"], ascending=[True, False])  # libraries above the others
        rate, error = part["tflops"], part["relative_error"]
        axis.set(xlabel="TFLOP/s: faster to the right", ylabel="relative error: more accurate below")
        log_scale(axis, rate)
        log_scale(axis, error, "y", [1])
        axis.set(xlim=(0.4 * rate.min(), 3 * rate.max()), ylim=(error.min() / 6, 6 * error.max()))
        marks(axis, part, "tflops", "relative_error", evidence, area=50)
        limit(axis, part["float_peak"].iloc[0], linewidth=1)
        axis.xaxis.set_major_formatter("{x:,g}")
        bottom, top = np.log10(axis.get_ylim())
        place = -math.inf  # of the words beside the panel: the element type at each height
        for dtype, height in np.log10(error.groupby(part["dtype"]).median()).sort_values().items():
            place = max((height - bottom) / (top - bottom), place + 0.045)
            plots.write_at(axis, str(dtype), (1.02, place))
    plots.label_points(figure, parts, "tflops", "relative_error")
    return figure


@shows(figure_rows.counted_and_timed, "No roofline: no kernel was both counted and timed.", figure_rows.roofline)
def roofline(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Each float kernel at its counted FLOP per byte and its measured rate, under the roofs of memory and arithmetic.

    The counts are of what a multiprocessor loads from its caches. So a kernel may lie above the memory's roof,
    if the caches served it.
    """
    figure, parts = facets(rows, ["platform"], evidence, height=5)
    for axis, part in parts:
        marks(axis, part, "intensity", "tflops", evidence, area=60)
        speeds, peak = figure_rows.roofs(part["platform"].iloc[0], evidence)
        top = peak or speeds["memory"] * part["intensity"].max()  # the memory's roof extends over all points
        x = np.geomspace(0.5 * min(0.25, part["intensity"].min()), 4 * top / speeds["memory"], 200)
        for name, speed in speeds.items():
            axis.plot(x, np.minimum(top, speed * x), color="black", linewidth=1.2, zorder=0)
            along = {"rotation": math.degrees(math.atan(speed)), "rotation_mode": "anchor", "va": "bottom"}
            words = f"{name} {rounded(speed)} TB/s"
            axis.text(x[0], 1.1 * speed * x[0], words, fontsize="small", transform_rotates_text=True, **along)
        if peak:
            plots.write_at(axis, f"vector peak\n{rounded(peak)} TFLOP/s", (1.02, peak), axis.get_yaxis_transform())
        axis.set(xlabel="FLOP per byte loaded, counted by the emulator", ylabel="TFLOP/s, measured")
        log_scale(axis, part["intensity"])
        log_scale(axis, part["tflops"], "y")
        axis.set_ylim(top=2 * max(top, part["tflops"].max()))
    plots.label_points(figure, parts, "intensity", "tflops")
    return figure


@shows(tables.rungs_double, "No ladder: no rung was timed.", figure_rows.beside_limits, name="rungs_double")
@shows(tables.OVERVIEW["rungs"], "No ladder: no rung was timed.", figure_rows.beside_limits)
def rungs(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Every rung and its limits; a hatched bar is slower than a rung before it."""
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", width=6.4, height=1.5, line=0.3)
    for axis, part in parts:
        bars(axis, part, "tflops", "TFLOP/s", part["kernel"], "slower", color=colours(part, evidence), height=0.7)
        plots.write_beside(axis, part["tflops"].map(rounded), "TFLOP/s")
        first = part.iloc[0]
        said = [f"{kernel}: upper bound {{}} TFLOP/s" for kernel in part["kernel"]]
        plots.ticks(axis, part, "bound", first["bound_words"], said)
        for name, dashes in {"library": "-.", "alone": "-", "tensor": ":", "peak": "--"}.items():
            number = f": {rounded(first[name])}" if len(parts) == 1 else ""
            limit(axis, first[name], linestyle=dashes, label=first[f"{name}_words"] + number)
    legend(figure, 2)
    return figure


@shows(traffic.cache_lines, "No CPU loop was both timed and counted.", figure_rows.cache_lines)
def cache_lines(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The time of a multiply-add on the CPU over the cache lines that it fetches."""
    x, y = "l1_lines_per_multiply_add", "ns_per_multiply_add"
    figure, parts = facets(rows, ["platform"], evidence, height=4.2, columns=2, sharex=True, sharey=True)
    for axis, part in parts:
        marks(axis, part, x, y, evidence)
        log_scale(axis, part[x], "x", [1])
        log_scale(axis, part[y], "y", [1, 2, 5])
        axis.set(xlabel="lines into the first cache per multiply-add", ylabel="ns per multiply-add")
        axis.label_outer()
    plots.label_points(figure, parts, x, y)
    return figure


# ---- Of tasks, each named after its method ---------------------------------------------------------------------------
_NO_SIZES = "No rate over the size: there is no GPU and no recorded run of this task."


@shows(by_size.below_roofs, _NO_SIZES, figure_rows.squares, name="rate_over_size")
@shows(by_size.over_size, _NO_SIZES, figure_rows.squares)
def sizes(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rate of each kernel over the size; if known, below two roofs: the rate of the units, and a launch alone.

    Lines join sizes that divide by 16; other sizes are hollow marks.
    """
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "dtype", width=8.8, height=2.9, columns=2)
    for axis, part in parts:
        for kernel, own in part.groupby("kernel", sort=False):
            colour, marker = look(kernel, evidence).values()
            line = own[own["friendly"]]
            axis.plot(line["n"], line["tflops"], color=colour, linewidth=1, zorder=2)
            for points, face, label in ((line, colour, kernel), (own[~own["friendly"]], "none", f"_{kernel}")):
                style = {"marker": marker, "facecolor": face, "edgecolor": colour, "s": 20, "zorder": 3, "label": label}
                set_tooltips(axis.scatter(points["n"], points["tflops"], **style), points["said"])
        top, roof = part["tflops"].max(), part["roof"].iloc[0]
        line = {"color": "black", "linewidth": 1}
        if roof > 0:
            axis.axhline(roof, **line, linestyle="--", label="the units alone, measured")
            top = max(top, roof)
        launch = part.drop_duplicates("n").dropna(subset="launch")
        if len(launch):
            axis.plot(launch["n"], launch["launch"], **line, linestyle=":", label="a launch alone")
        axis.set(xlabel="n of n × n matrices", ylabel="TFLOP/s", yscale="log", ylim=(part["tflops"].min() / 2, 2 * top))
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter("{x:,.0f}")
    legend(figure, 4)
    return figure


# ---- Of the page -----------------------------------------------------------------------------------------------------
@shows(by_size.at_every_size, "No map of shapes: there is no GPU and no recorded run of the task sizes.",
       figure_rows.shape_map)  # fmt: skip
def shape_map(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """How many times as fast as the library the fastest kernel is at each shape."""
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", "c", height=1.5, line=0.3)
    for axis, part in parts:
        heat(axis, part, "c", "p", "ratio", "p; the rows are C, n × m")
    return figure


@shows(grades.spread_of_exponents, "No errors over the spread of exponents: no product of doubles was graded.")
def spread_of_exponents(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The largest error of doubles made of bytes, over the spread of their exponents."""
    rows = rows.assign(title="largest error / ε |A||B|")
    figure, parts = facets(rows, ["platform"], evidence, "title", "variant", height=1.2, line=0.26)
    for axis, part in parts:
        heat(axis, part, "variant", "number", "componentwise", "φ; blank: refused")
    return figure
