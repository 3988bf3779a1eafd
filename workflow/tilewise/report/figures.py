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
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from kernelscope.files import atomic_path
from tilewise.evidence import Evidence
from tilewise.explain import by_size, grades, timings, traffic, tuned
from tilewise.explain import climb as climbing
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
    drawing = notes.attempt(str(path), lambda: svg(draw()), lambda note: svg(empty_figure(note)))
    with atomic_path(path) as temporary:
        temporary.write_text(drawing, encoding="utf-8")


# ---- Of the whole study ----------------------------------------------------------------------------------------------
@shows(tables.ladder, "No climb: no GPU was timed.", figure_rows.climb)
def climb(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Each kernel that is faster than all before it, and the library; floats of short numbers are hatched."""
    figure, parts = facets(rows, ["platform"], evidence, "title", width=4.4, height=1.0, line=0.42)
    for axis, part in parts:
        bars(axis, part, "tflops", "TFLOP/s", part["idea"], "short", "said", color=plots.COLOURS[0], height=0.72)
        limit(axis, part["library"].iloc[0], linestyle="-.")
        plots.write_beside(axis, part["tflops"].map(rounded))
    return figure


@shows(tables.ladder, "No rate against the peak: no GPU was timed.", figure_rows.peak)
def peak(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Every kernel at the largest square product, and the peak of its units; floats of short numbers are hatched."""
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", width=7.2, height=1.35, line=0.21)
    for axis, part in parts:
        part = part.sort_values(["anchor", "gflops"], kind="stable")
        shares = ["" if pd.isna(share) else f", {share:.0%}" for share in part["tflops"] / part["peak_tflops"]]
        bars(
            axis, part, "tflops", "TFLOP/s", part["kernel"], "short", "said", color=colours(part, evidence), height=0.7
        )
        limit(axis, part["peak_tflops"].iloc[0])
        plots.write_beside(axis, part["tflops"].map(rounded) + shares, f"TFLOP/s{', of the peak' * any(shares)}")
        axis.xaxis.set_major_formatter("{x:,.0f}")
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


@shows(traffic.traffic, "No roofline: no kernel was both counted and timed.", figure_rows.roofline)
def roofline(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Each float kernel at its counted FLOP per byte and its measured rate, under the roofs of memory and arithmetic.

    The counts are of what moves between a multiprocessor and its caches. So a kernel may lie above the memory's roof,
    if the caches served it.
    """
    figure, parts = facets(rows, ["platform"], evidence, height=5)
    for axis, part in parts:
        marks(axis, part, "intensity", "tflops", evidence, area=60)
        speeds, peak = figure_rows.roofs(part["platform"].iloc[0], evidence)
        top = peak or speeds["memory"] * part["intensity"].max()  # the memory's roof extends over all points
        x = np.geomspace(0.5 * min(0.25, part["intensity"].min()), 4 * top / speeds["memory"], 200)
        for name, speed in speeds.items():
            label = f"{name} {rounded(speed)} TB/s"
            axis.plot(x, np.minimum(top, speed * x), label=label, color="black", linewidth=1.2, zorder=0)
        if peak:
            plots.write_at(axis, f"vector peak\n{rounded(peak)} TFLOP/s", (1.02, peak), axis.get_yaxis_transform())
        axis.set(xlabel="FLOP per byte moved, counted by the emulator", ylabel="TFLOP/s, measured")
        log_scale(axis, part["intensity"])
        log_scale(axis, part["tflops"], "y")
        axis.set_ylim(top=2 * max(top, part["tflops"].max()))
    plots.write_along(figure, [line for axis, _ in parts for line in axis.lines])
    plots.label_points(figure, parts, "intensity", "tflops")
    return figure


@shows(tables.OVERVIEW["rungs"], "No ladder: no rung was timed.", figure_rows.beside_limits)
def rungs(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Every rung and its limits; a hatched bar is slower than a rung before it."""
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", width=6.4, height=1.5, line=0.3)
    for axis, part in parts:
        bars(axis, part, "tflops", "TFLOP/s", part["kernel"], "slower", color=colours(part, evidence), height=0.7)
        plots.write_beside(axis, part["tflops"].map(rounded), "TFLOP/s")
        first = part.iloc[0]
        said = [f"{kernel}: its instructions allow {{}} TFLOP/s" for kernel in part["kernel"]]
        plots.ticks(axis, part, "ceiling", first["ceiling_words"], said)
        for name, dashes in {"library": "-.", "alone": "-", "tensor": ":", "peak": "--"}.items():
            number = f": {rounded(first[name])}" if len(parts) == 1 else ""
            limit(axis, first[name], linestyle=dashes, label=first[f"{name}_words"] + number)
    legend(figure, 2)
    return figure


@shows(climbing.loops, "No machine code was read.", figure_rows.instructions)
def instructions(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """What the innermost loop of each kernel is made of."""
    figure, parts = facets(rows, ["units"], evidence, "units", width=8.8, height=0.702, line=0.21)
    mix = dict(zip(figure_rows.MIX, [*plots.COLOURS[:3], "#949494"], strict=True))
    for axis, part in parts:
        plots.stack(axis, part, mix, "% of the instructions", part["name"])
        plots.write_beside(axis, part["multiply-adds"].map("{:.0f} %".format), "multiply-adds")
        axis.set(xlim=(0, 100), xticks=[0, 20, 40, 60, 80])
    legend(figure, 4, mix)
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
@shows(tuned.variants, "No variant was timed: there is no GPU and no recorded run of the tuner.", figure_rows.ranked)
def tune(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rates of all variants by rank, in % of the best, the largest product in colour.

    A point says how many variants of a shape are as good as the best, and a cross marks variants that spill registers.
    """
    by = ["platform", "title"]
    figure, parts = facets(rows, by, evidence, "title", width=8.8, height=2.1, columns=4, sharey=True)
    for number, (axis, part) in enumerate(parts):
        for shape in (shapes := figure_rows.by_size(part)):
            line, large = part[part["shape"] == shape].sort_values("rank"), shape == shapes[-1]
            colour = look(part["kernel"].iloc[0], evidence)["color"] if large else "0.7"
            axis.plot(line["rank"], line["percent_of_best"], color=colour, linewidth=2 if large else 0.9)
            spilled = line[(line["spill_bytes"] > 0) & large]  # hundreds of words would say little
            axis.scatter(spilled["rank"], spilled["percent_of_best"], color=colour, marker="x", s=12)
            good = line[line["percent_of_best"] >= 100 * tuned.AS_GOOD]
            last = axis.scatter(*good[["rank", "percent_of_best"]].iloc[-1], color=colour, s=22, zorder=3, **plots.EDGE)
            set_tooltips(last, [f"{shape}: {len(good)} of {len(line)} variants are as good as the best"])
        axis.axhline(100 * tuned.AS_GOOD, color=plots.GREY, linewidth=0.8, linestyle="--")
        axis.set(xscale="log", ylim=(0, 103), ylabel="% of the best" * (number % 4 == 0))
        axis.set_xlabel("rank of the variant" * (number >= len(parts) - 4))  # below which there is no other
        axis.xaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())
    cross, line = (Line2D([], [], color="0.7", **style) for style in ({"marker": "x", "ls": "none"}, {"lw": 0.9}))
    plots.legend_of(figure, {"spills registers": cross, "other products": line}, 2)
    return figure


@shows(tables.accuracy, "No product was compared with SGEMM's.", figure_rows.accuracy)
def accuracy(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Errors as multiples of SGEMM's: what lies right of 1 fails; a kernel that refuses operands has no mark."""
    by, size = ["platform", "title"], {"width": 8.2, "height": 1.0, "line": 0.2}
    figure, parts = facets(rows, by, evidence, "title", "operands", columns=3, sharex=True, sharey=True, **size)
    for axis, part in parts:
        log_scale(axis, part["ratio"], steps=[1])
        marks(axis, part, "ratio", "operands", evidence)
        limit(axis, 1, linewidth=1)
        axis.set_xlabel("error / SGEMM's")
        axis.label_outer()
    plots.legend_of_areas(figure, rows, "p", "p, products in a sum")
    return figure


@shows(tables.energy, "No energy was measured: there is no GPU and no recorded run of this task.",
       lambda rows, _: rows.dropna(subset="gflop_per_joule"))  # fmt: skip
def energy(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Operations per joule."""
    figure, parts = facets(rows, ["platform"], evidence, height=1, line=0.3)
    for axis, part in parts:
        part = part.sort_values("gflop_per_joule")
        names, numbers = part["kernel"] + ", " + part["dtype"], part["gflop_per_joule"].map("{:,.0f}, ".format)
        bars(axis, part, "gflop_per_joule", "GFLOP/J", names, color=colours(part, evidence))
        plots.write_beside(axis, numbers + part["tflops"].map(rounded), "GFLOP/J, TFLOP/s")
    return figure


@shows(figure_rows.gauge, "")
def maximum_size(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The largest n in theory, allocated and timed, of the source and of each machine."""
    figure, [(axis, _)] = facets(rows, [], evidence, line=0.6)
    unit, both = "n of three n × n float matrices", zip(rows["allocated"], rows["in theory"])
    plots.stack(axis, rows, {"in theory": "0.8", "allocated": plots.COLOURS[0]}, unit, rows["who"], nested=True)
    plots.ticks(axis, rows, "timed", "timed", [f"timed, {who}: {{}} {unit}" for who in rows["who"]])
    plots.write_beside(axis, [f"{n:,.0f} of {most:,.0f}, {n / most:.1%}" for n, most in both], "n, allocated of theory")
    axis.xaxis.set(major_locator=MaxNLocator(5), major_formatter="{x:,.0f}")
    legend(figure, 3, ["in theory", "allocated"])
    return figure


@shows(tables.cold_start, "No call was timed: there is no GPU and no recorded run of this task.",
       figure_rows.cold_start)  # fmt: skip
def cold_start(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Where the time of a whole call goes."""
    figure, parts = facets(rows, ["platform"], evidence, height=3)
    colour = dict(zip(("context", "copies", "kernel", "everything else"), plots.COLOURS))
    for axis, part in parts:
        plots.stack(axis, part, colour, "ms of the whole call", part["name"])
    legend(figure, 4, colour)
    return figure


@shows(tables.bandwidth, "No roof was measured: there is no GPU and no recorded run of this task.",
       figure_rows.bandwidth)  # fmt: skip
def bandwidth(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The measured roofs in % of what clocks and units make, the machines side by side."""
    figure, [(axis, _)] = facets(rows, [], evidence, "title", height=1.2, line=0.35)
    unit = "% of the peak that clocks and units make"
    sns.barplot(rows, y="name", x="percent_of_computed", hue="machine", ax=axis, legend="full")
    for drawn, (_, own) in zip(axis.containers, rows.groupby("machine", sort=False), strict=True):
        for bar, name, share in zip(drawn, own["name"], own["percent_of_computed"], strict=True):
            set_tooltips(bar, [f"{name}: {rounded(share, '%')} {unit}"])
        inside = own["measured"].map("{:,.0f} ".format) + own["unit"]
        axis.bar_label(drawn, [*inside], label_type="center", color="white", fontsize="small")
    limit(axis, 100, linewidth=1, zorder=2)
    axis.set(xlabel=unit, ylabel="", xlim=(0, 110))
    axis.grid(axis="y", visible=False)
    legend(figure, 1 if rows["platform"].nunique() > 1 else 0)
    return figure


@shows(by_size.batches, "No batch was timed: there is no GPU, or the recorded run has no such task.")
def batches(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rates of batches, the largest batch first."""
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "dtype", width=9.4, height=1, line=0.24)
    for axis, part in parts:
        part = part.sort_values("gflops").sort_values("batch", ascending=False, kind="stable")
        names = part["batch_shape"] + ", " + part["kernel"] + " " + part["choice"]
        shares = ["" if pd.isna(share) else f", {rounded(share, '%')} %" for share in part["percent_of_anchor"]]
        bars(axis, part, "tflops", "TFLOP/s", names, color=colours(part, evidence))
        plots.write_beside(axis, part["tflops"].map(rounded) + shares, "TFLOP/s, %")
    return figure


@shows(tables.calls, "No call was timed: there is no GPU, or the recorded run has no such task.", figure_rows.calls)
def calls(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """Calls of tilewise.matmul compared with cupy.matmul's."""
    by = ["platform", "dtype"]
    figure, parts = facets(rows, by, evidence, "dtype", height=0.9, line=0.22, columns=2, sharex=True)
    for axis, part in parts:
        unit, names = "times as fast as cupy.matmul", part["n"].map("{:,}".format)
        bars(axis, part, "times_as_fast", unit, names, said="said", color=colours(part, evidence))
        limit(axis, 1, linewidth=1)
        plots.write_beside(axis, part["times_as_fast"].map(rounded) + ", " + part["kernel"])
        axis.set_ylabel("n")
    return figure


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
        top, roof, launch = (
            part["tflops"].max(),
            part["roof"].iloc[0],
            part.drop_duplicates("n").dropna(subset="launch"),
        )
        if roof > 0:
            axis.axhline(roof, color="black", linewidth=1, linestyle="--", label="the units alone, measured")
            top = max(top, roof)
        if len(launch):
            label = "a launch alone"
            axis.plot(launch["n"], launch["launch"], color="black", linewidth=1, linestyle=":", label=label)
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
