"""Figures of rates outside the four kinds of charts: roofline, curves, sizes, tuning; figures.yaml names their rows."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from tilewise.evidence import Evidence
from tilewise.explain import tuned
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import choice_text, shape_text
from tilewise.report import charts, panels
from tilewise.report.charts import look
from tilewise.report.figure_rows import by_size, fill_rows
from tilewise.report.panels import EDGE, MOST_ENTRIES
from tilewise.report.specs import Spec
from tilewise.report.svg import GREY, set_tooltips
from tilewise.study import columns
from tilewise.study.columns import SHAPE


# ---- Roofline --------------------------------------------------------------------------------------------------------
def roofline(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """Each float kernel at its counted FLOP per byte and its measured rate, under the roofs of memory and arithmetic.

    The counts are of what moves between a multiprocessor and its caches. So a kernel may lie above the memory's roof,
    if the caches served it.
    """
    figure, parts = charts.make_panels(rows, spec, evidence)
    drawn = []
    for axis, part in parts:
        platform = part["platform"].iloc[0]
        gpu = next(gpu.device.gpu for gpu in evidence.gpus if gpu.name == platform)
        roofs = evidence.roofs(platform)
        speeds = {"memory": roofs.get(("memory_bandwidth", "float"), gpu["memory_bandwidth_gb_s"])}
        speeds |= {f"L{n}": roofs[f"l{n}_bandwidth", "float"] for n in (2, 1) if (f"l{n}_bandwidth", "float") in roofs}
        speeds = {name: speed / 1000 for name, speed in speeds.items()}  # in TB/s
        # If the peak is not known, the memory's roof extends over all points.
        peak = ((gpu["peak_gflops"] or {}).get("float") or 0) / 1000
        top = peak or speeds["memory"] * part["intensity"].max()
        charts.points_in(axis, part.assign(_y=part["tflops"]), spec, evidence)
        x = np.geomspace(0.5 * min(0.25, part["intensity"].min()), 4 * top / speeds["memory"], 200)
        for speed in speeds.values():
            axis.plot(x, np.minimum(top, speed * x), color="black", linewidth=1.2, zorder=0)
        if peak:
            panels.write_beside(axis, [peak], [f"vector peak\n{rounded(peak)} TFLOP/s"])
        axis.set(xscale="log", yscale="log", xlabel=spec.unit, ylabel=spec.y_unit)
        axis.set_ylim(top=2 * max(top, part["tflops"].max()))
        drawn.append((x[0], speeds))
    panels.settle(figure)
    for (axis, part), (x, speeds) in zip(parts, drawn, strict=True):
        for name, speed in speeds.items():
            (x0, y0), (x1, y1) = axis.transData.transform([(x, speed * x), (2 * x, speed * 2 * x)])
            along = {"rotation": math.degrees(math.atan2(y1 - y0, x1 - x0)), "rotation_mode": "anchor"}
            at = {"xytext": (-2, 3), "textcoords": "offset points", "fontsize": "small"}
            axis.annotate(f"{name} {rounded(speed)} TB/s", (1.05 * x, speed * 1.05 * x), **at, **along)
        charts.label_points(figure, axis, part, spec)
    return figure


# ---- Curves ----------------------------------------------------------------------------------------------------------
def line_labels(rows: pd.DataFrame, x: str, evidence: Evidence) -> list[str]:
    """Words for the line on which each row lies in a figure over the parameter x: its type and what else was chosen."""
    words = [(row["dtype"], choice_text(row, evidence.kernels, without=(x,))) for row in rows.to_dict("records")]
    names = [", ".join(part for part in parts if part) for parts in words]
    return names if rows["kernel"].nunique() < 2 else [f"{k} {name}" for k, name in zip(rows["kernel"], names)]


def published_curves(rows: pd.DataFrame, x: str, evidence: Evidence) -> list[tuple[str, pd.DataFrame]]:
    """The published times of the same kernels over the parameter x: (label, rows in the order of x) for each curve."""
    source = evidence.published
    if x not in source:
        return []
    others = [name for name in columns.choice(columns.parameters_of(source)) if name != x]
    values = sorted(set(rows[x].dropna()))
    times = source[(source["quantity"] == "time") & (source["unit"] == "ms") & source[x].isin(values)]
    times = times[times["kernel"].isin(rows["kernel"])]
    found = []
    for (device, *_), part in times.groupby(["device", "kernel", "dtype", *SHAPE, *others], sort=False, dropna=False):
        part = part.sort_values(x).drop_duplicates(x)
        if len(part) > 1 and part[x].iloc[0] == values[0]:
            found.append((f"{device}: {line_labels(part, x, evidence)[0]}", part))
    return found


def curves(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """The rate over the parameter x: at the largest shape, at the others, and the speed over its least value.

    One line per kernel, type and choice of the other parameters. Beside the speed stands what a source published over
    the same parameter.
    """
    x, order, names = spec.x, charts.values(rows[spec.x]), rows["line"].nunique()
    groups = [part for _, part in rows.groupby("platform", sort=False)]
    longest_legend = max(5, len(rows[["line", *SHAPE]].drop_duplicates()) - names)
    count = 3 if len(rows[SHAPE].drop_duplicates()) > 1 else 2  # one shape has no other shapes
    options = {"width": 3.5 * count, "height": 3.75 + 0.17 * longest_legend, "columns": count}
    if max(names, longest_legend - 1) > MOST_ENTRIES:  # labels beside the lines need their own line
        options = {"width": 8.0, "height": 2.6 + 0.08 * max(names, longest_legend), "columns": 1}
    figure, axes = panels.panels(count * len(groups), **options)
    titles: list[str] = []
    for part, own in zip(groups, np.split(axes, len(groups))):
        largest = part.loc[part[SHAPE].astype("float64").prod(axis=1).idxmax(), SHAPE]
        large = part[(part[SHAPE] == largest).all(axis=1)]
        other = part.drop(large.index)
        other = other.assign(line=other["shape"].astype("str") + " " + other["line"])
        work = other[SHAPE].astype("float64").prod(axis=1)
        first = large[large[x] == order[0]].groupby("line")["time_ms"].min()
        fast = large.assign(_speed=large["line"].map(first) / large["time_ms"])
        shape, right = shape_text(large.iloc[0]), own[-1]
        drawn = {shape: (large, "rate", rows["rate_unit"].iloc[0])}
        if count == 3:
            by_work = other.loc[work.sort_values(kind="stable").index]
            drawn["other shapes, (n, m, p)"] = (by_work, "rate", rows["rate_unit"].iloc[0])
        drawn[f"speed over {x} {order[0]}, {shape}"] = (fast, "_speed", "times as fast")
        titles += drawn
        for axis, (table, y, words) in zip(own, drawn.values(), strict=True):
            axis.set(xlabel=spec.unit, ylabel=words)
            if len(table):
                charts.lines_in(axis, table, x, order, "line", evidence, y)
        for (name, source), dashes in zip(published_curves(rows, x, evidence), itertools.cycle(["--", ":", "-."])):
            marker = look(source["kernel"].iloc[0], evidence)["marker"]
            places = [order.index(value) for value in source[x]]
            speed = source["value"].iloc[0] / source["value"]
            charts.plot(right, places, speed, order, color="black", linestyle=dashes, marker=marker, label=name)
        right.autoscale(axis="y")
        right.set_ylim(bottom=0)
        for axis in own:
            if len(axis.lines) > MOST_ENTRIES:
                charts.label_lines(axis, "")
            else:
                panels.own_legend(axis)
    platforms = [part["platform"].iloc[0] for part in groups for _ in range(count)]
    panels.titles(figure, axes, titles, platforms, evidence)
    return figure


# ---- Over the size ---------------------------------------------------------------------------------------------------
def sizes(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """The rate of each kernel over the size; if known, below two roofs: the rate of the units, and a launch alone.

    Lines join sizes that divide by 16; other sizes are hollow marks.
    """
    figure, parts = charts.make_panels(rows, spec, evidence)
    for axis, part in parts:
        for kernel, own in part.sort_values(spec.x, kind="stable").groupby("kernel", sort=False):
            style, line, odd = look(kernel, evidence), own[own["friendly"]], own[~own["friendly"]]
            axis.plot(line[spec.x], line[spec.y], color=style["color"], linewidth=1, zorder=2)
            for rows_of, face in ((line, style["color"]), (odd, "none")):
                drawn = {"marker": style["marker"], "facecolor": face, "edgecolor": style["color"], "zorder": 3}
                name = kernel if rows_of is line else f"_{kernel}"
                set_tooltips(
                    axis.scatter(rows_of[spec.x], rows_of[spec.y], s=20, label=name, **drawn),
                    fill_rows(spec.hover, rows_of),
                )
        top = part[spec.y].max()
        if "roof_gflops" in part and (roof := part["roof_gflops"].iloc[0] / 1000) > 0:
            axis.axhline(roof, color="black", linewidth=1, linestyle="--", label="the units alone, measured")
            top = max(top, roof)
        if "launch_gflops" in part and part["launch_gflops"].notna().any():
            launch = part.drop_duplicates(spec.x).sort_values(spec.x)
            below = launch["launch_gflops"] / 1000
            axis.plot(launch[spec.x], below, color="black", linewidth=1, linestyle=":", label="a launch alone")
        axis.set_xscale("log", base=2)
        axis.set(yscale="log", xlabel=spec.unit, ylabel=spec.y_unit)
        axis.set_ylim(0.5 * part[spec.y].min(), 2 * top)
        axis.xaxis.set_major_formatter("{x:,.0f}")
    panels.legend(figure, [axis for axis, _ in parts], spec.legend)
    return figure


# ---- The others ------------------------------------------------------------------------------------------------------
def tuning(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """The flatness of the optimum: the rates of all variants by rank, in % of the best, of the largest product in
    colour.

    One panel per platform, kernel and element type. Other shapes are grey. A point says how many variants of a shape
    are as good as the best, and a cross marks variants that spill registers.
    """
    figure, parts = charts.make_panels(rows, spec, evidence)
    for number, (axis, part) in enumerate(parts):
        for shape in (shapes := by_size(part)):
            line, large = part[part["shape"] == shape].sort_values("rank"), shape == shapes[-1]
            colour = look(part["kernel"].iloc[0], evidence)["color"] if large else "0.7"
            axis.plot(line["rank"], line["percent_of_best"], color=colour, linewidth=2 if large else 0.9)
            spilled = line[(line["spill_bytes"] > 0) & large]  # hundreds of words would say little
            axis.scatter(spilled["rank"], spilled["percent_of_best"], color=colour, marker="x", s=12)
            good = line[line["percent_of_best"] >= 100 * tuned.AS_GOOD]
            mark = axis.scatter(*good[["rank", "percent_of_best"]].iloc[-1], color=colour, s=22, zorder=3, **EDGE)
            set_tooltips(mark, [f"{shape}: {len(good)} of {len(line)} variants are as good as the best"])
        axis.axhline(100 * tuned.AS_GOOD, color=GREY, linewidth=0.8, linestyle="--")
        axis.set(xscale="log", ylim=(0, 103), ylabel=spec.y_unit if number % spec.columns == 0 else "")
        axis.set_xlabel(spec.unit if number >= len(parts) - spec.columns else "")  # below which there is no other
        axis.xaxis.set(major_formatter="{x:g}", minor_locator=NullLocator())
    entries: dict[str, dict[str, Any]] = {
        "spills registers": {"marker": "x", "linestyle": "none"},
        "other products": {"linewidth": 0.9},
    }
    panels.legend_of(figure, {words: Line2D([], [], color="0.7", **style) for words, style in entries.items()}, 2)
    return figure
