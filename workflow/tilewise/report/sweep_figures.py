"""The figure of a task that sweeps: lines over what it varies, or the rates of its points.

A ring marks a point whose runs lie farther from its time than the config's max_noise_percent; a cross on the axis
marks a point that did not run.
"""

import collections
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.timings import choice_text, shape_text
from tilewise.report import figure_rows, plots
from tilewise.report.plots import MOST_ENTRIES, facets, look, marks
from tilewise.report.svg import set_tooltips
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status

#: A figure of curves has at most so many lines; more cannot be told apart.
_MOST_CURVES = 12
#: And the name of a line at most so many letters, for which its legend has room.
_LONGEST_NAME = 40
#: What the axis of a parameter says; another parameter's says its name.
_RULERS = {"tile": "tile: width in elements", "ntb": "ntb: tiles per block", "choice": "threads of a block, x × y"}
#: What parts lines of the same kernel.
_DASHES = ["-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2))]


def draw(timed: pd.DataFrame, evidence: Evidence) -> Figure:
    """The figure of the described rows of a sweep: over a parameter, over the shape of the block, or of its points."""
    chosen = timed[~timed["anchor"]]
    if x := _varied(chosen, evidence):
        chosen = chosen[chosen[x].notna()]
        chosen = chosen.assign(line=line_labels(chosen, x, evidence))
        lines = chosen["line"].nunique()
        if lines == 1 and not published_curves(chosen, x, evidence):
            return over_choices(figure_rows.described(chosen, evidence), x, evidence)
        if lines <= _MOST_CURVES and chosen["line"].str.len().max() <= _LONGEST_NAME:
            return curves(figure_rows.described(chosen, evidence), x, evidence)
    elif chosen["kernel"].nunique() == 1 and chosen[["block_x", "block_y"]].drop_duplicates().shape[0] > 1:
        return over_choices(figure_rows.described(chosen, evidence), "choice", evidence)
    return points(figure_rows.points(timed, evidence), evidence)


def _varied(rows: pd.DataFrame, evidence: Evidence) -> str | None:
    """The parameter that a figure of these rows runs over: the one with the most values; None if there is no such one.

    Every kernel has three values of it at one shape, so that there are curves to compare.
    """
    found = {}
    for name in evidence.parameters:
        values = rows.groupby(["kernel", "n", "p", "m"])[name].nunique().groupby("kernel").max()
        if len(values) and values.min() >= 3:
            found[name] = rows[name].nunique()
    return max(found, key=lambda name: found[name], default=None)


# ---- Points ----------------------------------------------------------------------------------------------------------
def points(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rates of many points, a row per kernel and choice, or of few kernels, a row per product."""
    groups, few = rows.groupby(["platform", "dtype"]).ngroups, isinstance(rows["label"].dtype, pd.CategoricalDtype)
    size: dict[str, Any] = {"height": 1.15 + 0.5 / groups, "line": 0.22, "width": 8.0}
    if few:
        rows, size = (
            rows.drop(columns="area"),
            {"height": 1.8, "line": 0.22, "width": 8.8, "columns": 3, "sharex": True},
        )
    elif groups > 1 and rows["label"].str.len().max() <= 24:  # names so short that two panels lie side by side
        size |= {"columns": 2, "height": 1.6, "line": 0.24}
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", "label", sharey=few, **size)
    for axis, part in parts:
        marks(axis, part, "rate", "label", evidence, area=40)
        axis.set_xlabel(rows["rate_unit"].iloc[0])
        if few:
            plots.log_scale(axis, part["rate"], steps=[1])
            axis.set_ylabel("(n, m, p)")
            axis.label_outer()
        else:
            axis.set_xlim(0, 1.05 * part["rate"].max())
            axis.xaxis.set(major_locator=MaxNLocator(4), major_formatter="{x:,.10g}")
    if few:
        plots.legend(figure, 4)
    else:
        plots.legend_of_areas(figure, rows, "shape", "(n, m, p)")
    return figure


# ---- Lines -----------------------------------------------------------------------------------------------------------
def over_choices(rows: pd.DataFrame, x: str, evidence: Evidence) -> Figure:
    """The rate of each product over the values of x, at equal distances."""
    rows, by = rows.assign(title=rows["kernel"] + ", " + rows["dtype"]), ["platform", "kernel", "dtype"]
    figure, parts = facets(rows, by, evidence, "title", columns=2, height=3.35)
    for axis, part in parts:
        axis.set(xlabel=_RULERS.get(x, x), ylabel=rows["rate_unit"].iloc[0])
        lines_in(axis, part, x, plots.order(rows[x]), "shape", evidence)
        name_lines(axis, "(n, m, p)", columns=3 if len(parts) == 1 else 1)
    return figure


def curves(rows: pd.DataFrame, x: str, evidence: Evidence) -> Figure:
    """The rate over the parameter x: at the largest shape, at the others, and the speed over its least value.

    One line per kernel, type and choice of the other parameters. Beside the speed stands what a source published over
    the same parameter.
    """
    values, names, unit = plots.order(rows[x]), rows["line"].nunique(), rows["rate_unit"].iloc[0]
    groups = [part for _, part in rows.groupby("platform", sort=False)]
    longest = max(5, len(rows[["line", *SHAPE]].drop_duplicates()) - names)
    count = 3 if len(rows[SHAPE].drop_duplicates()) > 1 else 2  # one shape has no other shapes
    size: tuple[float, float, int] = (3.5 * count, 3.75 + 0.17 * longest, count)
    if max(names, longest - 1) > MOST_ENTRIES:  # labels beside the lines need their own line
        size = (8.0, 2.6 + 0.08 * max(names, longest), 1)
    figure, axes = plots.panels(count * len(groups), *size)
    titles: list[str] = []
    for part, own in zip(groups, np.split(axes, len(groups))):
        drawn = _three_tables(part, x, values[0])
        drawn = drawn if count == 3 else {name: rows for name, rows in drawn.items() if "other" not in name}
        titles += drawn
        for axis, (title, table) in zip(own, drawn.items(), strict=True):
            y, words = ("speed", "times as fast") if title.startswith("speed") else ("rate", unit)
            axis.set(xlabel=_RULERS.get(x, x), ylabel=words)
            if len(table):
                lines_in(axis, table, x, values, "line", evidence, y)
        for (name, source), dashes in zip(published_curves(rows, x, evidence), itertools.cycle(["--", ":", "-."])):
            style = look(source["kernel"].iloc[0], evidence) | {"color": "black", "linestyle": dashes, "label": name}
            speed = source["value"].iloc[0] / source["value"]
            _line(own[-1], [values.index(value) for value in source[x]], speed, values, **style)
        own[-1].autoscale(axis="y")
        own[-1].set_ylim(bottom=0)
        for axis in own:
            name_lines(axis)
    platforms = [part["platform"].iloc[0] for part in groups for _ in range(count)]
    plots.titles(figure, axes, titles, platforms, evidence)
    return figure


def _three_tables(rows: pd.DataFrame, x: str, least: Any) -> dict[str, pd.DataFrame]:
    """Title -> rows of the largest shape, those of the others by their size, and the first with their `speed`."""
    work = rows[SHAPE].astype("float64").prod(axis=1)
    large = rows[(rows[SHAPE] == rows.loc[work.idxmax(), SHAPE]).all(axis=1)]
    other = rows.loc[work.drop(large.index).sort_values(kind="stable").index]
    other = other.assign(line=other["shape"].astype("str") + " " + other["line"])
    first = large[large[x] == least].groupby("line")["time_ms"].min()
    fast = large.assign(speed=large["line"].map(first) / large["time_ms"])
    shape = shape_text(large.iloc[0])
    return {shape: large, "other shapes, (n, m, p)": other, f"speed over {x} {least}, {shape}": fast}


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


def lines_in(
    axis: Any, rows: pd.DataFrame, x: str, values: list, series: str, evidence: Evidence, y: str = "rate"
) -> None:
    """Lines of y over the `values` of column x, one for each value of the column `series`.

    A line has the colour and the marker of its kernel; lines of the same kernel differ in their dashes, and in the size
    of their marks if their products do. The largest product's is solid.
    """
    shapes = figure_rows.by_size(rows)
    names = shapes if series == "shape" else list(dict.fromkeys(rows[series]))
    rows = rows.assign(place=[values.index(value) for value in rows[x]]).sort_values("place", kind="stable")
    ran = rows[(rows["status"] == Status.OK) & rows[y].notna()]
    sizes, drawn = dict(zip(shapes, figure_rows.areas(pd.Series(range(len(shapes)))))), collections.Counter[str]()
    for name in reversed(names) if len(sizes) > 1 else names:
        own = ran[ran[series] == name]
        kernel, shape = rows.loc[rows[series] == name, ["kernel", "shape"]].iloc[0]
        style = look(kernel, evidence) | {"markersize": 0.8 * math.sqrt(sizes[shape]), "linewidth": 1.2, "label": name}
        dashes, drawn[kernel] = _DASHES[drawn[kernel] % len(_DASHES)], drawn[kernel] + 1
        style |= {"linestyle": dashes, "markeredgecolor": "white", "markeredgewidth": 0.5}
        _line(axis, own["place"], own[y], values, **style)
    apart = ran[timings.range_percent(ran) > 100 * evidence.max_noise]
    refused = rows[rows["status"] != Status.OK].assign(**{y: 0.0})
    words = f"± more than {100 * evidence.max_noise:g} %", "did not run"
    ring = {"s": 110, "facecolors": "none", "edgecolors": "black"}
    cross = {"marker": "x", "color": "black", "clip_on": False}
    for label, own, style in zip(words, (apart, refused), (ring, cross)):
        if len(own):
            said = _said(axis, label, values, own["place"], own[y])
            set_tooltips(axis.scatter(own["place"], own[y], zorder=5, label=label, **style), said)
    # The words of a block are wider than the distance of two ticks.
    axis.set_xticks(range(len(values)), values, rotation=90 if any("×" in str(value) for value in values) else 0)
    axis.set_xlim(-0.4, len(values) - 0.6)
    axis.set_ylim(bottom=0)


def _line(axis: Any, x: Sequence[int], y: Sequence[float], values: list, **style: Any) -> None:
    """Plot a line with a tooltip on each mark; `x` are places in `values`."""
    [line] = axis.plot(x, y, **style)
    set_tooltips(line, _said(axis, style["label"], values, x, y))


def _said(axis: Any, label: str, values: list, x: Iterable[int], y: Iterable[float]) -> list[str]:
    across, up = axis.get_xlabel(), axis.get_ylabel()
    return [f"{label}, {across} {values[place]}, {height:,.4g} {up}" for place, height in zip(x, y)]


def name_lines(axis: Any, title: str = "", columns: int = 1) -> None:
    """Say what the lines of a panel are: in a legend below it, or, if they are many, beside the end of each."""
    named = [line for line in axis.lines if not str(line.get_label()).startswith("_") and len(line.get_xdata())]
    if len(named) <= MOST_ENTRIES:
        plots.own_legend(axis, columns, title)
        return
    named = sorted(named, key=lambda line: line.get_ydata()[-1])
    bottom, top = axis.get_ylim()
    gap, places = min(0.085, 0.95 / len(named)) * (top - bottom), list[float]()
    for line in named:
        places.append(max([line.get_ydata()[-1], *(place + gap for place in places[-1:])]))
    highest = top - 0.04 * (top - bottom)
    for number in reversed(range(len(places))):  # none above the panel
        places[number] = min(places[number], highest)
        highest = places[number] - gap
    leader = {"arrowstyle": "-", "linewidth": 0.8, "linestyle": ":", "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
    for line, place in zip(named, places):
        axis.annotate(
            line.get_label(), (line.get_xdata()[-1], line.get_ydata()[-1]), xytext=(1.03, place),
            textcoords=axis.get_yaxis_transform(), va="center", fontsize="small", annotation_clip=False,
            arrowprops=leader | {"color": line.get_color()},
        )  # fmt: skip
        line.set_label(f"_{line.get_label()}")
    plots.write_at(axis, title, (1.03, 1), va="bottom")
    plots.own_legend(axis, columns=2)
