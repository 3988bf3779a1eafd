"""Four kinds of charts, `bars`, `scatter`, `lines` and `heat`, each drawn from rows by an entry of figures.yaml.

A ring marks a point whose runs lie farther from its time than the config's max_noise_percent; a cross on the axis
marks a point that did not run.
"""

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.number_format import rounded
from tilewise.report import panels
from tilewise.report.figure_rows import by_size, fill, fill_rows
from tilewise.report.panels import COLOURS, EDGE, MARKERS, MOST_ENTRIES
from tilewise.report.specs import LOOKS, Spec
from tilewise.report.svg import GREY, PAPER, set_tooltips
from tilewise.study.status import Status

#: What parts lines of the same kernel.
_DASHES = ["-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2))]
#: A star is slim: its area is so many times that of another mark.
_STAR = 2.2


def look(kernel: str, evidence: Evidence) -> dict[str, Any]:
    """The colour and the marker of a kernel, the same in every figure; libraries are grey stars."""
    return panels.look(kernel, evidence, LOOKS)


def values(column: pd.Series) -> list[Any]:
    """The values of a column in their order: that of its categories, that of numbers, or in which they occur."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.cat.categories)
    return sorted(column.unique()) if pd.api.types.is_numeric_dtype(column) else list(dict.fromkeys(column))


def make_panels(rows: pd.DataFrame, spec: Spec, evidence: Evidence, lines: Callable[[pd.DataFrame], int] = len) -> Any:
    """A figure with a panel for each group of rows, high enough for so many `lines`, and the panels with their rows."""
    groups = [part for _, part in rows.groupby(list(spec.panel), sort=False)] if spec.panel else [rows]
    names, up = [name.removeprefix("-") for name in spec.sort], [not name.startswith("-") for name in spec.sort]
    groups = [part.sort_values(names, ascending=up, kind="stable") for part in groups] if names else groups
    counts = [lines(part) for part in groups]
    options: dict[str, Any] = {f"share{name}": True for name in spec.share}
    if spec.columns == 1:
        options["height_ratios"] = [0.25 + spec.row_height * count for count in counts]
    most = sum(counts) / len(counts) if spec.columns == 1 else max(counts)
    height = spec.height + spec.row_height * most
    figure, axes = panels.panels(len(groups), spec.width, height, spec.columns, **options)
    words = [fill(spec.title, part.iloc[0]) for part in groups]
    platforms = [part["platform"].iloc[0] for part in groups] if "platform" in spec.panel else []
    panels.titles(figure, axes, words, platforms, evidence)
    for axis in axes if spec.small_titles else ():
        axis.title.set_fontsize("small")
    return figure, list(zip(axes, groups, strict=True))


def _finish(axis: Any, part: pd.DataFrame, spec: Spec) -> None:
    """Lines, words, limits and ticks of a panel."""
    for line in spec.line:
        at = part[line["x"]].iloc[0] if isinstance(line["x"], str) else line["x"]
        if pd.notna(at):
            named = {"label": fill(line["label"], part.iloc[0])} if "label" in line else {}
            drawn = {name: value for name, value in line.items() if name not in ("x", "label")}
            # Behind the bars: those that pass it cover it.
            axis.axvline(at, **{"color": "black", "linewidth": 1.3, "linestyle": "--", "zorder": 0.9} | drawn | named)
    axis.set(xlabel=spec.unit, ylabel=spec.y_unit)
    if spec.limits:
        axis.set_xlim(*spec.limits)
    for name, (low, high) in spec.room.items():
        known = part[getattr(spec, name)].dropna()
        if len(known) and known.max() > 0:
            axis.set(**{f"{name}lim": (low * known.min(), high * known.max())})
    if isinstance(spec.ticks, int) and spec.ticks:
        axis.xaxis.set_major_locator(MaxNLocator(spec.ticks))
    elif spec.ticks:
        axis.set_xticks(spec.ticks)
    for name, steps in spec.steps.items():
        getattr(axis, f"{name}axis").set(major_locator=LogLocator(subs=steps), minor_formatter=NullFormatter())
    for name, words in spec.format.items():
        getattr(axis, f"{name}axis").set_major_formatter(words)


# ---- Bars ------------------------------------------------------------------------------------------------------------
def bars(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """Horizontal bars, one per row; with several columns as x they are stacked."""
    figure, parts = make_panels(rows, spec, evidence)
    for axis, part in parts:
        bars_in(axis, part, spec, evidence)
        if spec.unit_once and axis is not parts[-1][0]:
            axis.set_xlabel("")
    if spec.legend and (not spec.hue or spec.colours or rows[spec.hue].nunique() > 1):
        order = spec.x if isinstance(spec.x, Mapping) else ()
        panels.legend(figure, [axis for axis, _ in parts], spec.legend, order, columnspacing=1.2, handlelength=1.5)
    return figure


def bars_in(axis: Any, part: pd.DataFrame, spec: Spec, evidence: Evidence) -> None:
    """The bars of one panel, with what stands on them and beside them."""
    names = fill_rows(spec.y, part)
    if spec.hue:
        hues = [name for name in spec.colours or part[spec.hue].unique() if (part[spec.hue] == name).any()]
        palette = {name: spec.colours[name] for name in hues} if spec.colours else None
        drawn = {"hue": spec.hue, "hue_order": hues, "palette": palette, "orient": "h"}
        sns.barplot(part.assign(_name=names), y="_name", x=spec.x, ax=axis, **drawn)
        axis.get_legend().remove()
    else:
        _stack(axis, part, names, spec, evidence)
        axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    groups = [part[part[spec.hue] == name] for name in hues] if spec.hue else [part]
    for container, own in zip(axis.containers, groups):
        if spec.hue:
            _tell_bars(container, own, spec)
        if spec.inside:
            axis.bar_label(container, fill_rows(spec.inside, own), label_type="center", color="white", fontsize="small")
    if spec.numbers:
        panels.write_beside(axis, range(len(part)), fill_rows(spec.numbers, part), fill(spec.heading, part.iloc[0]))
    if spec.mark:
        known = part.assign(_place=range(len(part))).explode(spec.mark["x"]).dropna(subset=spec.mark["x"])
        tick = {"marker": "|", "s": 190, "color": "black", "linewidth": 1.8, "zorder": 4}
        if len(known):
            label = fill(spec.mark["label"], part.iloc[0])
            ticks = axis.scatter(known[spec.mark["x"]], known["_place"], label=label, **tick)
            set_tooltips(ticks, fill_rows(spec.mark["hover"], known))
    _finish(axis, part, spec)


def _tell_bars(drawn: Iterable[Any], rows: pd.DataFrame, spec: Spec) -> None:
    for bar, words in zip(drawn, fill_rows(spec.hover, rows), strict=True):
        set_tooltips(bar, [words])


def _stack(axis: Any, part: pd.DataFrame, names: Sequence[str], spec: Spec, evidence: Evidence) -> None:
    """One bar per row in the colour of its kernel, or several bars, each in the colour of its column.

    These stand behind each other, or, if they are nested, within each other.
    """
    left, thickness = np.zeros(len(part)), spec.thickness
    stacked = isinstance(spec.x, Mapping)
    for (label, column), colour in zip((spec.x if stacked else {"": spec.x}).items(), spec.colours or [""]):
        width = part[column].to_numpy(dtype="float64")
        if stacked and not width.any():
            continue
        colours = colour or [look(kernel, evidence)["color"] for kernel in part["kernel"]]
        series = {"left": left, "label": label} if stacked else {}
        drawn = axis.barh(names, width, color=colours, height=thickness, **series)
        said = part.assign(series=label, width=width, words=part.get(f"{column}_words", ""))
        _tell_bars(drawn, said, spec)
        for bar, hatch in zip(drawn, part[spec.hatch]) if spec.hatch else ():
            bar.set(hatch="///" if hatch else "", edgecolor="white", linewidth=0)
        left, thickness = (left, 0.6 * thickness) if spec.nested else (left + width, thickness)


# ---- Points ----------------------------------------------------------------------------------------------------------
def scatter(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """Marks in the colour of their kernel; y is a number, or a name, which has its own row."""
    named = not pd.api.types.is_numeric_dtype(rows[spec.y])
    sizes = panels.areas(values(rows[spec.size])) if spec.size else {}

    def lines_of_text(part: pd.DataFrame) -> int:
        return sum(1 + name.count("\n") for name in values(part[spec.y])) if named else 0

    figure, parts = make_panels(rows, spec, evidence, lines_of_text)
    for axis, part in parts:
        names = values(part[spec.y]) if named else []
        places = [names.index(name) for name in part[spec.y]] if named else part[spec.y]
        axis.set(**{f"{name}scale": "log" for name in spec.log if (part[getattr(spec, name)] > 0).any()})
        points_in(axis, part.assign(_y=places), spec, evidence, sizes)
        _finish(axis, part, spec)
        if named:
            axis.set_yticks(range(len(names)), names)
            axis.set_ylim(len(names) - 0.5, -0.5)
        if spec.share:
            axis.label_outer()
        if spec.beside:
            _words_beside(axis, part, spec)
    if spec.legend:
        panels.legend(figure, [axis for axis, _ in parts], spec.legend)
    if len(sizes) > 1:
        panels.legend_of_sizes(figure, sizes, spec.size_title)
    elif sizes:
        figure.supxlabel(f"{spec.size_title} = {next(iter(sizes))}", fontsize="small", color=GREY)
    if spec.label:
        panels.settle(figure)
        for axis, part in parts:
            label_points(figure, axis, part, spec)
    return figure


def label_points(figure: Any, axis: Any, part: pd.DataFrame, spec: Spec) -> None:
    """Name the kernels of those points that have a `rank`, the first first."""
    first = part[part["rank"].notna()].sort_values("rank")
    panels.label_points(figure, axis, list(zip(first[spec.x], first[spec.y], first["kernel"])))


def points_in(
    axis: Any, part: pd.DataFrame, spec: Spec, evidence: Evidence, sizes: Mapping[Any, float] = MappingProxyType({})
) -> None:
    """The marks of one panel, of which the small ones lie upon the large ones, and the causes where there are none."""
    seen = part[part[spec.x].notna()]
    for place, own in seen.groupby("_y") if spec.span else ():
        axis.plot([own[spec.x].min(), own[spec.x].max()], [place] * 2, color="0.8", linewidth=3, zorder=1)
    hue, keys = spec.hue or "kernel", [spec.hue or "kernel"]
    if sizes:
        seen, keys = seen.sort_values(spec.size, ascending=False, kind="stable"), [spec.size, hue]
    hues = values(part[hue])
    for key, own in seen.groupby(keys, sort=False, observed=True):
        style = _mark(own, hues.index(key[-1]), hue, evidence)
        area = sizes.get(key[0], spec.area) * (_STAR if style["marker"] == "*" else 1)
        set_tooltips(
            axis.scatter(own[spec.x], own["_y"], s=area, zorder=3, label=key[-1], **style), fill_rows(spec.hover, own)
        )
    words = {"va": "center", "fontsize": "x-small", "color": GREY, "transform": axis.get_yaxis_transform()}
    words["bbox"] = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}  # it hides the grid behind it
    for place, own in part[part[spec.cause] != ""].groupby("_y") if spec.cause else ():
        axis.text(0.03, place, ", ".join(dict.fromkeys(own[spec.cause])), **words)


def _mark(own: pd.DataFrame, number: int, hue: str, evidence: Evidence) -> dict[str, Any]:
    """What the marks of one colour look like: that of their kernel, whose choices are filled, hollow and pale."""
    if hue != "kernel":
        return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], **EDGE}
    style: dict[str, Any] = look(own["kernel"].iloc[0], evidence)
    if "fill" in own and own["fill"].iloc[0] < 1:
        colour = style.pop("color")
        return style | {"facecolor": to_rgba(colour, own["fill"].iloc[0]), "edgecolor": colour, "linewidth": 0.8}
    return style | EDGE


def _words_beside(axis: Any, part: pd.DataFrame, spec: Spec) -> None:
    """Write right of the panel which element type the marks at that height have."""
    bottom, top = np.log10(axis.get_ylim())
    heights = np.log10(part.groupby(spec.beside, sort=False)[spec.y].median()).sort_values()
    place = -math.inf
    for words, height in heights.items():
        place = max((height - bottom) / (top - bottom), place + 0.045)
        at = {"xycoords": "axes fraction", "va": "center", "fontsize": "small", "color": GREY}
        axis.annotate(words, (1.02, place), annotation_clip=False, **at)


# ---- Lines -----------------------------------------------------------------------------------------------------------
def lines(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """Lines over the values of x, at equal distances: one per value of the column `hue`."""
    order = values(rows[spec.x])
    figure, parts = make_panels(rows, spec, evidence)
    for axis, part in parts:
        axis.set(xlabel=spec.unit, ylabel=spec.y_unit)
        lines_in(axis, part, spec.x, order, spec.hue, evidence)
        if part[spec.hue].nunique() > MOST_ENTRIES:
            label_lines(axis, spec.size_title)
        else:
            panels.own_legend(axis, columns=3 if len(parts) == 1 else 1, title=spec.size_title)
    return figure


def lines_in(
    axis: Any, rows: pd.DataFrame, x: str, order: list, series: str, evidence: Evidence, y: str = "rate"
) -> None:
    """Lines of y over the values `order` of column x, one for each value of the column `series`.

    A line has the colour and the marker of its kernel; lines of the same kernel differ in their dashes, and in the size
    of their marks if their products do. The largest product's is solid.
    """
    shapes = by_size(rows)
    names = shapes if series == "shape" else list(dict.fromkeys(rows[series]))
    rows = rows.assign(place=[order.index(value) for value in rows[x]]).sort_values("place", kind="stable")
    ran = rows[(rows["status"] == Status.OK) & rows[y].notna()]
    sizes, drawn = panels.areas(shapes), collections.Counter[str]()
    for name in reversed(names) if len(sizes) > 1 else names:
        own = ran[ran[series] == name]
        kernel, shape = rows.loc[rows[series] == name, ["kernel", "shape"]].iloc[0]
        style = look(kernel, evidence) | {"markersize": 0.8 * math.sqrt(sizes[shape]), "linewidth": 1.2}
        style["linestyle"] = _DASHES[drawn[kernel] % len(_DASHES)]
        drawn[kernel] += 1
        plot(axis, own["place"], own[y], order, label=name, markeredgecolor="white", markeredgewidth=0.5, **style)
    apart = ran[timings.range_percent(ran) > 100 * evidence.max_noise]
    if len(apart):
        ring = {"s": 110, "facecolors": "none", "edgecolors": "black", "zorder": 5}
        words = f"± more than {100 * evidence.max_noise:g} %"
        rings = axis.scatter(apart["place"], apart[y], label=words, **ring)
        set_tooltips(rings, _said(axis, words, order, apart["place"], apart[y]))
    refused = rows[rows["status"] != Status.OK]
    if len(refused):
        cross = {"marker": "x", "color": "black", "zorder": 5, "clip_on": False}
        crosses = axis.scatter(refused["place"], [0] * len(refused), label="did not run", **cross)
        set_tooltips(crosses, _said(axis, "did not run", order, refused["place"], [0] * len(refused)))
    # The words of a block are wider than the distance of two ticks.
    axis.set_xticks(range(len(order)), [str(value).replace(" × ", "\n×\n") for value in order])
    axis.set_xlim(-0.4, len(order) - 0.6)
    axis.set_ylim(bottom=0)


def plot(axis: Any, x: Sequence[int], y: Sequence[float], order: list, label: str, **style: Any) -> None:
    """Plot a line with a tooltip on each mark; `x` are places in `order`."""
    [line] = axis.plot(x, y, label=label, **style)
    set_tooltips(line, _said(axis, label, order, x, y))


def _said(axis: Any, label: str, order: list, x: Iterable[int], y: Iterable[float]) -> list[str]:
    across, up = axis.get_xlabel(), axis.get_ylabel()
    return [f"{label}, {across} {order[place]}, {height:,.4g} {up}" for place, height in zip(x, y)]


def label_lines(axis: Any, title: str) -> None:
    """Write beside each line's end what it is, in place of a legend; entries that are not lines keep theirs."""
    named = [line for line in axis.lines if not str(line.get_label()).startswith("_") and len(line.get_xdata())]
    named = sorted(named, key=lambda line: line.get_ydata()[-1])
    bottom, top = axis.get_ylim()
    gap, places = min(0.085, 0.95 / max(1, len(named))) * (top - bottom), list[float]()
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
    axis.annotate(title, (1.03, 1), xycoords="axes fraction", va="bottom", fontsize="small", color=GREY)
    panels.own_legend(axis, columns=2)


# ---- Maps ------------------------------------------------------------------------------------------------------------
def heat(rows: pd.DataFrame, spec: Spec, evidence: Evidence) -> Figure:
    """A map of x and y, whose colour is the logarithm of a value and whose words are the value."""
    figure, parts = make_panels(rows, spec, evidence, lambda part: part[spec.y].nunique())
    for axis, part in parts:
        table = part.pivot_table(index=spec.y, columns=spec.x, values=spec.value, aggfunc="max", observed=True)
        # pivot_table leaves out a row without numbers.
        down, across = ([each for each in values(part[name]) if each in set(part[name])] for name in (spec.y, spec.x))
        table = table.reindex(index=down, columns=across)
        numbers = table.to_numpy(dtype="float64")
        shown = np.log10(numbers)
        far = max(0.3, np.nanmax(np.abs(shown)))
        axis.imshow(shown, aspect="auto", cmap="PuOr_r", vmin=-far, vmax=far)
        for (row, column), number in np.ndenumerate(numbers):
            if np.isfinite(number):
                # White on what is dark, which follows from the colour map's ends.
                colour = "white" if abs(np.log10(number)) > 0.62 * far else "#010101"
                axis.text(column, row, rounded(number), ha="center", va="center", fontsize="small", color=colour)
        axis.set_yticks(range(len(table)), list(table.index))
        axis.set_xticks(range(len(table.columns)), [str(name).replace(", ", ",\n") for name in table.columns])
        axis.set(xlabel=spec.unit)
        axis.grid(visible=False)
    return figure
