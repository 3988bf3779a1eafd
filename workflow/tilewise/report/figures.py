"""The figures of the report: functions from evidence to a matplotlib Figure, drawn with seaborn.

Rates are in GFLOP/s: 2 n p m operations divided by the median time. A ring marks a point whose noise is above the
config's max_noise_percent; a cross on the axis marks a point that did not run. Colours are seaborn's colour-blind
palette, and every line has its own marker, so the figures can also be read in black and white.
"""

import functools
import io
import itertools
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.category import StrCategoryLocator
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter

from tilewise.files import replacing
from tilewise.report import tables
from tilewise.report.data import Evidence
from tilewise.report.tables import choice_text, shape_text
from tilewise.study import columns
from tilewise.study.columns import SHAPE

_STYLE = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("paper", font_scale=1.1),
    "svg.fonttype": "none",  # text stays text, so it can be searched, copied and read aloud
    "svg.hashsalt": "tilewise",  # the same figure gives the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "axes.edgecolor": "0.6",
    "grid.color": "0.88",
    "text.hinting": "none",  # letters as wide as a browser draws them
    "legend.frameon": False,
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
}
_GREY = "0.45"
_BLUE, _ORANGE = sns.color_palette("colorblind", 2)
#: Element types whose peak is that of the tensor cores.
_ON_TENSOR_CORES = {"half", "bfloat16", "tf32"}


def _styled(draw):
    @functools.wraps(draw)
    def styled(*arguments, **named):
        with matplotlib.rc_context(_STYLE), sns.color_palette("colorblind"):
            return draw(*arguments, **named)

    return styled


def svg(figure: Figure, name: str = "", title: str = "", description: str = "") -> str:
    """The figure as SVG text without a header; the same figure gives the same text.

    Every point and bar has a <title> with its values. With a `name`, which is unique on the page, it is made to stand
    inside an HTML page: with `title` and `description`, and with the page's variables for ink and paper, so that it
    follows its colour scheme.
    """
    _tell_all(figure)
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        layout = figure.get_layout_engine()
        if layout:
            layout.execute(figure)
            figure.set_layout_engine("none")
        insets = (inset.patch for axis in figure.axes for inset in axis.child_axes)
        for patch in (figure.patch, *(axis.patch for axis in figure.axes), *insets):
            patch.set(facecolor="none", edgecolor="none")
        # Not by savefig, which draws the whole figure twice if it ever had a layout.
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    root = _finished(ElementTree.fromstring(text))
    if name:
        root.set("role", "img")
        root.set("aria-labelledby", f"{name}-title")
        root.set("aria-describedby", f"{name}-desc")
        family = "'DejaVu Sans', Verdana, sans-serif"
        root.set("style", f"width: {round(100 * figure.get_figwidth())}px;font-family: {family}")
        said = [mark.text or "" for mark in root.iter(f"{_SVG}title")]
        if len(said) > _MOST_SAID:
            said = ["its table has the values of all points"]
        for number, (tag, words) in enumerate({"title": title, "desc": "; ".join([description, *said])}.items()):
            element = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{name}-{tag}"})
            element.text = words
            root.insert(number, element)
    text = ElementTree.tostring(root, encoding="unicode")
    names = list(dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', text)))
    kept = {each: f"{name}-{number}" if name else each for number, each in enumerate(names)}
    text = re.sub(r'(href="#|url\(#)([^")]+)', lambda found: found[1] + kept[found[2]], text)
    if name:
        kept |= {each: each for each in (f"{name}-title", f"{name}-desc")}
        text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), text)
        text = re.sub(r";font-family:[^;\"]*(?=;)", "", text)  # as in the style of the whole
        text = re.sub(r"\n\s*", "\n", text)
    # Other ids, such as axes_1, would occur twice on a page.
    return re.sub(r' id="([^"]*)"', lambda found: f' id="{kept[found[1]]}"' if found[1] in kept else "", text)


#: A description lists the values of so many points at most.
_MOST_SAID = 20
_SVG = "{http://www.w3.org/2000/svg}"
ElementTree.register_namespace("", _SVG[1:-1])
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
#: Greys of the style, and the variables of the page that stand for them.
_VARIABLES = {
    **dict.fromkeys(("#000000", "#262626"), "var(--ink)"),
    **dict.fromkeys(("#737373", "#808080", "#999999"), "var(--soft)"),
    **dict.fromkeys(("#e0e0e0", "#e6e6e6", "#cccccc"), "var(--line)"),
    "#fefefe": "var(--paper)",
}
#: A paper that follows the page's, for what hides a line behind a label; plain white stays white.
_PAPER = "#fefefe"
#: What a group of marks says, in the order of its marks, stands in its id until the figure is finished.
_TELLS, _NEXT = "tells:", "\u00b6"
_WITH_NUMBERS = ("d", "x", "y", "transform", "width", "height", "style")


def _tell(artist, words):
    """Let the marks of an artist say these words, one for each, when they are pointed at."""
    artist.set_gid(_TELLS + _NEXT.join(" ".join(word.split()) for word in words))


def _tell_all(figure):
    """Let the bars, points and lines of all panels say their values, unless a figure has told them what to say."""
    for axis in figure.axes:
        for container in axis.containers:
            for bar in getattr(container, "patches", ()):
                if bar.get_gid() is None:
                    horizontal = getattr(container, "orientation", "vertical") == "horizontal"
                    x, y = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
                    at = (bar.get_width(), y) if horizontal else (x, bar.get_height())
                    _tell(bar, [_said(axis, container.get_label(), *at)])
        for line in axis.lines:
            x, y = (np.ma.filled(np.ma.asarray(data, dtype="float64"), np.nan) for data in line.get_data(orig=False))
            if line.get_marker() not in (None, "", "None", "none", " ") and line.get_gid() is None:
                known = np.isfinite(x) & np.isfinite(y)
                _tell(line, [_said(axis, line.get_label(), a, b) for a, b in zip(x[known], y[known])])
        for points in axis.collections:
            places = np.ma.filled(np.ma.asarray(points.get_offsets(), dtype="float64"), np.nan)
            if points.get_gid() is None and len(places) and not isinstance(points, QuadMesh):
                _tell(points, [_said(axis, points.get_label(), *place) for place in places if np.isfinite(place).all()])


def _said(axis, series, x, y):
    """A mark in words: its series, and its place on both axes, that on an axis of names first."""
    named, numbers = [], []
    for ruler, value in ((axis.xaxis, x), (axis.yaxis, y)):
        words = " ".join(ruler.get_label_text().split())
        if isinstance(ruler.get_major_locator(), FixedLocator | StrCategoryLocator):
            places = ruler.get_majorticklocs()
            labels = dict(zip(places, ruler.get_major_formatter().format_ticks(places)))
            nearest = min(labels, key=lambda place: abs(place - value), default=None)
            named.append(f"{words} {labels.get(nearest, '')}".strip())
        else:
            numbers.append(f"{value:,.4g} {words}".strip())
    series = [] if str(series).startswith(("_child", "_container")) else [str(series).removeprefix("_")]
    return ", ".join([*series, *(words for words in named if words), *numbers])


def _short(number):
    return f"{float(number[0]):.2f}" if float(number[0]) > 0.1 else f"{float(number[0]):.4g}"


def _finished(root):
    """The drawing with the words of its marks as titles, and without decimals that nobody sees."""
    for element in root.iter():
        for key in _WITH_NUMBERS:
            if key in element.attrib:
                element.set(key, re.sub(r"\d+\.\d{3,}", _short, element.get(key)))
        if "style" in element.attrib:  # as short as it can be said: there are thousands
            style = element.get("style").replace("; ", ";").replace(": ", ":")
            element.set("style", style.replace(";stroke-linejoin:miter", "").replace(";stroke-width:1;", ";"))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        told = element.get("id", "")
        if told.startswith(_TELLS):
            del element.attrib["id"]
            words = told.removeprefix(_TELLS).split(_NEXT)
            hidden = {id(child) for defs in element.iter(f"{_SVG}defs") for child in defs.iter()}
            marks = list(element.iter(f"{_SVG}use"))
            marks = marks or [path for path in element.iter(f"{_SVG}path") if id(path) not in hidden]
            if len(marks) == len(words):
                for mark, word in zip(marks, words):
                    ElementTree.SubElement(mark, f"{_SVG}title").text = word
    return root


def _panels(count, width=7.6, height=3.4, columns=2, **options):
    columns = min(count, columns)
    lines = -(-count // columns)
    figure = Figure(figsize=(width, height * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **options).ravel()
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


#: How the label of a figure begins that has nothing to show; the reason follows.
_NOTHING = "nothing: "


def missing(figure: Figure) -> str:
    """Why a figure has nothing to show; empty if it shows something."""
    label = str(figure.get_label())
    return label.removeprefix(_NOTHING) if label.startswith(_NOTHING) else ""


@_styled
def _nothing(message):
    """A figure that says why there is nothing to draw."""
    figure, (axis,) = _panels(1, height=1.2)
    figure.set_label(f"{_NOTHING}{message}")
    axis.set_axis_off()
    axis.text(0.5, 0.5, message, ha="center", va="center", color=_GREY)
    return figure


def _legend(axis, columns=1, title=None):
    """Put the legend below its panel, where it does not hide anything; each entry once."""
    handles, labels = axis.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    if axis.get_legend():
        axis.get_legend().remove()
    if entries:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18)}
        axis.legend(entries.values(), entries.keys(), title=title, ncols=columns, **place)


def _legend_of_all(figure, axes, columns, title=None):
    """Put one legend below all panels, each entry of the first panel once; remove the panels' own legends."""
    for axis in axes:
        if axis.get_legend():
            axis.get_legend().remove()
    handles, labels = axes[0].get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    place = {"loc": "outside lower center", "ncols": min(columns, len(entries))}
    figure.legend(entries.values(), entries.keys(), title=title, **place)


def _line(axis, rows, x, order, series, max_noise, y="gflops"):
    """Lines of y over the categories `order` of column x, one for each value of the column `series`."""
    names = _by_size(rows) if series == "shape" else list(dict.fromkeys(rows[series]))
    rows = rows.assign(place=[order.index(value) for value in rows[x]]).sort_values("place", kind="stable")
    ran, markers = rows[rows["status"] == "ok"], _markers(names)
    for name, colour in zip(names, _palette(names)):
        own = ran[ran[series] == name]
        look = {"color": colour, "marker": markers[name], "markersize": 6, "linewidth": 1.2}
        axis.plot(own["place"], own[y], label=name, markeredgecolor="white", markeredgewidth=0.5, **look)
    unstable = ran[ran["noise"] > max_noise]
    if len(unstable):
        ring = {"s": 110, "facecolors": "none", "edgecolors": "black", "zorder": 5}
        axis.scatter(unstable["place"], unstable[y], label=f"unstable: noise > {100 * max_noise:g} %", **ring)
    refused = rows[rows["status"] != "ok"]
    if len(refused):
        cross = {"marker": "x", "color": "black", "zorder": 5, "clip_on": False}
        axis.scatter(refused["place"], [0] * len(refused), label="did not run", **cross)
    axis.set_xticks(range(len(order)), [str(value) for value in order])
    axis.set_xlim(-0.4, len(order) - 0.6)
    axis.set_ylim(bottom=0)


def _by_size(rows):
    """The shapes of rows in words, the smallest product first."""
    work = rows[SHAPE].astype("float64").prod(axis=1)
    return list(dict.fromkeys(rows["shape"].loc[work.sort_values(kind="stable").index]))


def _label_lines(axis, title):
    """Write beside each line's end what it is, in place of a legend; entries that are not lines keep theirs."""
    lines = [line for line in axis.lines if not str(line.get_label()).startswith("_") and len(line.get_xdata())]
    bottom, top = axis.get_ylim()
    gap, places = 0.085 * (top - bottom), []
    lines = sorted(lines, key=lambda line: line.get_ydata()[-1])
    for line in lines:
        places.append(max([line.get_ydata()[-1], *(place + gap for place in places[-1:])]))
    for number in reversed(range(len(places))):  # none above the panel
        highest = top - 0.04 * (top - bottom) if number == len(places) - 1 else places[number + 1] - gap
        places[number] = min(places[number], highest)
    leader = {"arrowstyle": "-", "linewidth": 1, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
    for line, place in zip(lines, places):
        end = (line.get_xdata()[-1], line.get_ydata()[-1])
        axis.annotate(
            line.get_label(), end, xytext=(1.03, place), textcoords=axis.get_yaxis_transform(), va="center",
            fontsize="small", annotation_clip=False,
            arrowprops=leader | {"color": line.get_color()},
        )  # fmt: skip
        line.set_label(f"_{line.get_label()}")
    axis.annotate(title, (1.03, 1), xycoords="axes fraction", va="bottom", fontsize="small", color=_GREY)
    _legend(axis, columns=2)


#: A legend has so many entries at most; more lines are labelled where they end.
_MOST_ENTRIES = 4


def _title(words, platform, evidence):
    """The panel's title; the label of a recorded platform has a line break, to fit a narrow panel."""
    return f"{words}\n{evidence.labels[platform]}".strip().replace(", recorded", "\nrecorded")


def _palette(names):
    return sns.color_palette("colorblind", len(names))


def _markers(names):
    return dict(zip(names, itertools.cycle(["o", "s", "D", "^", "v", "P", "X", "<", ">", "*"])))


#: Colours that can be told apart by colour-blind readers, on white and on black.
_COLOURS = "#0173b2 #c46a00 #029e73 #d0507a #8a6fd1 #8c6d3f #1f9fc4 #b04a2f #6f8f1f #7a7a7a".split()
#: What parts points that lie on each other.
_EDGE = {"edgecolor": "white", "linewidth": 0.5}
_MARKERS = ["o", "s", "D", "^", "v", "P", "X", "<", ">", "*"]


def _look(kernel, evidence):
    """The colour and the marker of a kernel, the same in every figure; libraries are grey stars."""
    if kernel in evidence.libraries:
        return {"color": _GREY, "marker": "*"}
    place = list(evidence.kernels).index(kernel) if kernel in evidence.kernels else len(evidence.kernels)
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKERS[(place + place // len(_COLOURS)) % len(_MARKERS)],
    }


#: A figure of curves has at most so many lines, and one of bars so many bars; more cannot be told apart.
_MOST_CURVES = 12
_MOST_BARS = 40
#: A bar's label has a line break after at most so many letters.
_LABEL = 60


@_styled
def sweep(rows: pd.DataFrame, x: str, label: str, evidence: Evidence) -> Figure:
    """GFLOP/s over what the sweep chose (column x): one panel per platform, kernel and dtype, one line per shape."""
    rows = rows[rows[x].notna()]
    order = list(dict.fromkeys(rows[x]))
    order = order if x == "choice" else sorted(order)
    groups = list(rows.groupby(["platform", "kernel", "dtype"], sort=False))
    figure, axes = _panels(len(groups), height=3.35)
    for axis, ((platform, kernel, dtype), part) in zip(axes, groups, strict=True):
        _line(axis, part, x, order, "shape", evidence.max_noise)
        axis.set(title=_title(f"{kernel}, {dtype}", platform, evidence), xlabel=label, ylabel="GFLOP/s")
        if part["shape"].nunique() > _MOST_ENTRIES:
            _label_lines(axis, "(n, m, p)")
        else:
            _legend(axis, columns=3 if len(groups) == 1 else 1, title="(n, m, p)")
    return figure


def _series(rows, x, evidence):
    """Words for the line on which each row lies in a figure over the parameter x: its type and what else was chosen."""
    words = [(row["dtype"], choice_text(row, evidence.kernels, without=(x,))) for row in rows.to_dict("records")]
    names = [", ".join(part for part in parts if part) for parts in words]
    return names if rows["kernel"].nunique() < 2 else [f"{k} {name}" for k, name in zip(rows["kernel"], names)]


def _published_curves(rows, x, evidence, published):
    """The published times of the same kernels over the parameter x: (label, rows in the order of x) for each curve."""
    if x not in published:
        return []
    others = [name for name in columns.choice(columns.parameters_of(published)) if name != x]
    values = sorted(set(rows[x].dropna()))
    times = published[(published["quantity"] == "time") & (published["unit"] == "ms") & published[x].isin(values)]
    times = times[times["kernel"].isin(rows["kernel"])]
    found = []
    for (device, *_), part in times.groupby(["device", "kernel", "dtype", *SHAPE, *others], sort=False, dropna=False):
        part = part.sort_values(x).drop_duplicates(x)
        if len(part) > 1 and part[x].iloc[0] == values[0]:
            found.append((f"{device}: {_series(part, x, evidence)[0]}", part))
    return found


@_styled
def curves(rows: pd.DataFrame, x: str, evidence: Evidence, published: pd.DataFrame) -> Figure:
    """GFLOP/s over the parameter x: at the largest shape, at the others, and the speed over its least value.

    One line per kernel, type and choice of the other parameters. Beside the speed stands what a source published over
    the same parameter.
    """
    rows = rows[rows[x].notna()]
    rows = rows.assign(_series=_series(rows, x, evidence))
    order = sorted(set(rows[x]))
    groups = list(rows.groupby("platform", sort=False))
    lines = rows[["_series", *SHAPE]].drop_duplicates()
    longest_legend = max(5, len(lines) - lines["_series"].nunique())
    panels = 3 if len(rows[SHAPE].drop_duplicates()) > 1 else 2  # one shape has no other shapes
    options = {"width": 3.2 * panels, "height": 3.75 + 0.17 * longest_legend, "columns": panels}
    figure, axes = _panels(panels * len(groups), **options)
    for number, (platform, part) in enumerate(groups):
        own = list(axes[panels * number : panels * (number + 1)])
        left, right = own[0], own[-1]
        largest = part.loc[part[SHAPE].astype("float64").prod(axis=1).idxmax(), SHAPE]
        large = part[(part[SHAPE] == largest).all(axis=1)]
        _line(left, large, x, order, "_series", evidence.max_noise)
        left.set(title=_title(shape_text(large.iloc[0]), platform, evidence), xlabel=x, ylabel="GFLOP/s")
        for middle in own[1:-1]:
            other = part.drop(large.index)
            if len(other):
                names = [f"{shape_text(row)} {row['_series']}" for row in other.to_dict("records")]
                _line(middle, other.assign(_series=names), x, order, "_series", evidence.max_noise)
            middle.set(title="other shapes\n(n, m, p)", xlabel=x, ylabel="GFLOP/s")
        first = large[large[x] == order[0]].groupby("_series")["time_ms"].min()
        ratio = large.assign(_speed=large["_series"].map(first) / large["time_ms"])
        _line(right, ratio, x, order, "_series", evidence.max_noise, y="_speed")
        for (label, source), dashes in zip(
            _published_curves(rows, x, evidence, published), itertools.cycle(["--", ":", "-."])
        ):
            speed = source["value"].iloc[0] / source["value"]
            places = [order.index(value) for value in source[x]]
            right.plot(places, speed, color="black", linestyle=dashes, marker="*", label=label)
        right.set(title=f"speed over {x} {order[0]}\nat the largest shape", xlabel=x, ylabel="times faster")
        right.autoscale(axis="y")
        right.set_ylim(bottom=0)
        for axis in own:
            _legend(axis)
    return figure


def _labelled(rows):
    """The rows with kernel and choice as one label."""
    return rows.assign(_label=[f"{kernel} {choice}".strip() for kernel, choice in zip(rows["kernel"], rows["choice"])])


@_styled
def rates(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """GFLOP/s of every point on a logarithmic axis: one panel per platform and dtype, one line per shape."""
    rows = _labelled(rows)
    groups = list(rows.groupby(["platform", "dtype"], sort=False))
    names, shapes = list(dict.fromkeys(rows["_label"])), _by_size(rows)
    kernels = dict(zip(rows["_label"], rows["kernel"]))
    looks = {name: _look(kernels[name], evidence) for name in names}
    for kernel in set(kernels.values()):  # the choices of one kernel share its colour
        choices = [name for name in names if kernels[name] == kernel]
        for name, marker in list(zip(choices, itertools.cycle(_MARKERS)))[: len(choices) if len(choices) > 1 else 0]:
            looks[name] = looks[name] | {"marker": marker}
    figure, axes = _panels(len(groups), height=1.8 + 0.22 * len(shapes), columns=3, width=8.8, sharey=True, sharex=True)
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        part = part.assign(_place=[shapes.index(shape) for shape in part["shape"]])
        for name in names:
            own = part[(part["_label"] == name) & part["gflops"].notna()]
            axis.scatter(own["gflops"], own["_place"], s=40, label=name, **_EDGE, **looks[name])
        words = {"va": "center", "fontsize": "x-small", "color": _GREY, "transform": axis.get_yaxis_transform()}
        for place, missing in part[part["status"] != "ok"].groupby("_place"):
            causes = dict.fromkeys(f"{row.kernel}: {row.status}" for row in missing.itertuples())
            axis.text(0.03, place, ", ".join(causes), **words)
        axis.set(title=_title(dtype, platform, evidence), xlabel="GFLOP/s", ylabel="(n, m, p)")
        axis.set_yticks(range(len(shapes)), shapes)
        if (part["gflops"] > 0).any():
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
    _legend_of_all(figure, axes, columns=4)
    axes[0].set_ylim(len(shapes) - 0.5, -0.5)
    return figure


@_styled
def bars(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """GFLOP/s of every point as bars: one panel per platform and dtype, one bar per choice and shape.

    Of a sweep with very many choices only the fastest are shown, and the title says so.
    """
    rows = _labelled(rows)
    rows = rows.assign(_label=rows["_label"].map(lambda label: textwrap.fill(label, _LABEL)))
    groups = list(rows.groupby(["platform", "dtype"], sort=False))
    shapes = _by_size(rows)
    heights = [min(_MOST_BARS, part["_label"].nunique()) + 2 for _, part in groups]
    options = {"hue_order": shapes, "palette": _palette(shapes), "errorbar": None, "orient": "h", "legend": "full"}
    each = 0.18 + 0.06 * len(shapes)
    if rows["_label"].str.contains("\n").any():  # long labels leave no room for a panel beside them
        stacked = {"columns": 1, "height": 0.4 + each * sum(heights) / len(heights), "height_ratios": heights}
        figure, axes = _panels(len(groups), width=8.8, **stacked)
    else:
        figure, axes = _panels(len(groups), width=8.8, height=1.6 + each * (max(heights) - 2))
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        title, count = dtype, part["_label"].nunique()
        if count > _MOST_BARS:
            fastest = part.groupby("_label", sort=False)["gflops"].max().nlargest(_MOST_BARS).index
            part, title = part[part["_label"].isin(fastest)], f"{dtype}, the fastest {_MOST_BARS} of {count}"
        sns.barplot(part, y="_label", x="gflops", hue="shape", ax=axis, **options)
        axis.set(title=_title(title, platform, evidence), xlabel="GFLOP/s", ylabel="")
    _legend_of_all(figure, axes, columns=4, title="(n, m, p)")
    return figure


@_styled
def gauge(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """The maximum-size gauge: the n that fits in theory, the n that was allocated, and the n that was timed."""
    source = published.set_index("quantity")["value"]
    sizes = {name: source[name] for name in ("theoretical_n", "allocatable_n")}
    entries = [("RTX 2080 Ti, published", sizes | {"timed_n": sizes["allocatable_n"]})]
    names = {gpu.name for gpu in evidence.gpus}
    probes = evidence.facts["maximum_size"][evidence.facts["maximum_size"]["platform"].isin(names)]
    entries += [(_title("", probe["platform"], evidence), probe) for probe in probes.to_dict("records")]
    figure, (axis,) = _panels(1, height=1.3 + 0.6 * len(entries))
    colours = sns.color_palette("colorblind")
    for place, (_, sizes) in enumerate(entries):
        axis.barh(place, sizes["theoretical_n"], height=0.62, color="0.9", edgecolor="0.6", label="in theory")
        axis.barh(place, sizes["allocatable_n"], height=0.38, color=colours[0], label="allocated")
        axis.plot([sizes["timed_n"]] * 2, [place - 0.31, place + 0.31], color=colours[1], linewidth=3, label="timed")
        share = sizes["allocatable_n"] / sizes["theoretical_n"]
        text = f"  {sizes['allocatable_n']:,.0f} of {sizes['theoretical_n']:,.0f} ({share:.1%})"
        axis.text(sizes["theoretical_n"], place, text, va="center", fontsize="small")
    axis.set_yticks(range(len(entries)), [label for label, _ in entries])
    axis.set_xlim(0, 1.55 * max(sizes["theoretical_n"] for _, sizes in entries))
    axis.set_xlabel("n of three n × n float matrices")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    _legend_of_all(figure, [axis], columns=3)
    return figure


@_styled
def speedup(ladder: pd.DataFrame, evidence: Evidence) -> Figure:
    """The map of shapes and kernels: how many times faster the best of each is than the best naive kernel; float."""
    rows = ladder[(ladder["dtype"] == "float") & ladder["speedup_over_naive"].notna()]
    if rows.empty:
        return _nothing("No speed-up: the naive kernel was not timed.")
    groups = list(rows.groupby("platform", sort=False))
    most = max(part["kernel"].nunique() for _, part in groups)
    figure, axes = _panels(len(groups), columns=1, width=7.6, height=1.5 + 0.27 * most)
    order = {name: place for place, name in enumerate(evidence.kernels)}
    for axis, (platform, part) in zip(axes, groups, strict=True):
        kernels = sorted(part["kernel"].unique(), key=lambda name: (name in evidence.libraries, order.get(name, 999)))
        values = part.pivot_table(index="kernel", columns="shape", values="speedup_over_naive", aggfunc="max")
        values = values.reindex(index=kernels, columns=_by_size(part))
        shown = np.log10(values.to_numpy(dtype="float64"))
        far = max(0.3, np.nanmax(np.abs(shown)))
        axis.imshow(shown, aspect="auto", cmap="PuOr_r", vmin=-far, vmax=far)
        for (row, column), value in np.ndenumerate(values.to_numpy(dtype="float64")):
            if np.isfinite(value):
                # White on what is dark, which follows from the colour map's ends.
                colour = "white" if abs(np.log10(value)) > 0.62 * far else "#010101"
                axis.text(column, row, f"{value:.2g}", ha="center", va="center", fontsize="small", color=colour)
        axis.set_yticks(range(len(kernels)), kernels)
        axis.set_xticks(range(len(values.columns)), [shape.replace(", ", ",\n") for shape in values.columns])
        axis.set(title=_title("times faster than naive", platform, evidence), xlabel="(n, m, p)")
        axis.grid(visible=False)
    return figure


@_styled
def peak(ladder: pd.DataFrame, evidence: Evidence) -> Figure:
    """The best rate of each kernel at the largest square shape, compared with cuBLAS and the chip's vector peak."""
    square = ladder[(ladder["n"] == ladder["p"]) & (ladder["n"] == ladder["m"]) & (ladder["status"] == "ok")]
    square = square[square["n"] == square["n"].max()]
    if square.empty:
        return _nothing("No rate against the peak: no GPU was timed.")
    groups = list(square.groupby(["platform", "dtype"], sort=False))
    figure, axes = _panels(len(groups), height=3, width=8.8)
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        part = part.sort_values(["anchor", "gflops"])
        labels = [f"{row['kernel']}\n{row['choice']}".strip() for row in part.to_dict("records")]
        colours = ["0.6" if anchor else _palette(labels)[0] for anchor in part["anchor"]]
        bars = axis.barh(labels, part["gflops"], color=colours)
        top = part["peak_gflops"].iloc[0]
        shares = [f" {rate:,.0f}" + (f" ({rate / top:.0%})" if pd.notna(top) else "") for rate in part["gflops"]]
        axis.bar_label(bars, shares, fontsize="small")
        if pd.notna(top):
            axis.axvline(top, color="black", linestyle="--", linewidth=1, zorder=0)
            words = {"rotation": 90, "va": "top", "fontsize": "small", "textcoords": "offset points"}
            name = "tensor-core peak" if dtype in _ON_TENSOR_CORES else "vector peak"
            axis.annotate(name, (top, 1), xycoords=("data", "axes fraction"), xytext=(3, -4), **words)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set_xlim(0, 1.5 * np.nanmax([top, part["gflops"].max()]))
        axis.set(title=_title(f"{dtype}, {shape_text(part.iloc[0])}", platform, evidence), xlabel="GFLOP/s")
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    return figure


@_styled
def past_the_peak(ladder: pd.DataFrame, evidence: Evidence) -> Figure:
    """The float ladder at the largest square product, on past the rate of the chip's float units.

    One bar per kernel, the slowest first; those whose floats are made of short numbers stand out, libraries are grey.
    """
    rows = tables.largest_square(ladder)
    rows = rows[rows["dtype"] == "float"]
    if rows.empty:
        return _nothing("No ladder: no GPU was timed.")
    groups = list(rows.groupby("platform", sort=False))
    most = max(len(part) for _, part in groups)
    figure, axes = _panels(len(groups), columns=1, height=1.3 + 0.26 * most)
    plain, made = sns.color_palette("colorblind", 2)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        part = part.sort_values("gflops", kind="stable")
        kinds = zip(part["anchor"], tables.made_of_short(part, evidence))
        colours = ["0.6" if anchor else made if short else plain for anchor, short in kinds]
        bars = axis.barh(part["kernel"], part["gflops"] / 1000, color=colours)
        white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # where the line of the peak passes
        axis.bar_label(bars, [f"{r / 1000:,.3g}" for r in part["gflops"]], fontsize="small", padding=3, bbox=white)
        peak = part["peak_gflops"].iloc[0]
        if pd.notna(peak):
            axis.axvline(peak / 1000, color="black", linestyle="--", linewidth=1, zorder=0)
            words = {"ha": "left", "va": "top", "fontsize": "small", "textcoords": "offset points"}
            place = {"xy": (peak / 1000, 1), "xycoords": ("data", "axes fraction"), "xytext": (4, -4)}
            axis.annotate(f"peak of the float units, {peak / 1000:.3g}", **place, **words)
        axis.set(title=_title(f"float, {shape_text(part.iloc[0])}", platform, evidence), xlabel="TFLOP/s")
        axis.set_xlim(0, 1.12 * np.nanmax([peak / 1000, part["gflops"].max() / 1000]))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    shown = {"on the CUDA cores": plain, "made of short numbers on the tensor cores": made, "library": "0.6"}
    handles = [Patch(color=colour, label=words) for words, colour in shown.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


@_styled
def accuracy_and_rate(ladder: pd.DataFrame, evidence: Evidence) -> Figure:
    """Error over rate of every kernel and type at the largest square product, both logarithmic; libraries are stars.

    The error is that of the verification: in the Frobenius norm, operands of both signs.
    """
    rows = tables.largest_square(ladder)
    rows = rows[rows["relative_error"] > 0]
    if rows.empty:
        return _nothing("No accuracy against rate: no GPU was timed.")
    groups = list(rows.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), columns=1, height=5.2)
    types = list(dict.fromkeys(rows["dtype"]))
    for axis, (platform, part) in zip(axes, groups, strict=True):
        axis.set(xscale="log", yscale="log", title=_title(shape_text(part.iloc[0]), platform, evidence))
        options = {"x": "gflops", "y": "relative_error", "hue": "dtype", "hue_order": types, "palette": _palette(types)}
        sns.scatterplot(part[~part["anchor"]], s=55, ax=axis, **options)
        sns.scatterplot(part[part["anchor"]], s=170, marker="*", ax=axis, legend=False, edgecolor="black", **options)
        for marks, own in zip(axis.collections, (part[~part["anchor"]], part[part["anchor"]])):
            rates = [f"{row.kernel}, {row.dtype}: {row.gflops:,.4g} GFLOP/s, error " for row in own.itertuples()]
            _tell(marks, [f"{rate}{error:.2g}" for rate, error in zip(rates, own["relative_error"])])
        # A label stands above its point or, if another is near there, below; the libraries' come first.
        said: dict[str, list[tuple[float, float]]] = {"above": [], "below": []}
        for row in part.sort_values(["anchor", "gflops"], ascending=False).to_dict("records"):
            x, y = row["gflops"], row["relative_error"]
            for side, near in said.items():
                if all(abs(np.log10(x / a)) > 0.5 or abs(np.log10(y / b)) > 0.5 for a, b in near):
                    place = {"xytext": (-6, 7 if side == "above" else -13), "textcoords": "offset points"}
                    axis.annotate(row["kernel"], (x, y), ha="right", fontsize="x-small", **place)
                    near.append((x, y))
                    break
        axis.set_xlim(left=0.25 * part["gflops"].min())
        peak = part.loc[part["dtype"] == "float", "peak_gflops"].dropna()
        if len(peak):
            axis.axvline(peak.iloc[0], color="black", linestyle="--", linewidth=1, zorder=0)
            words = {"rotation": 90, "va": "bottom", "fontsize": "small", "textcoords": "offset points"}
            place = {"xy": (peak.iloc[0], 0), "xycoords": ("data", "axes fraction"), "xytext": (3, 6)}
            axis.annotate("peak of the float units", **place, **words)
        axis.set(xlabel="GFLOP/s: faster to the right", ylabel="relative error: more accurate below")
    _legend_of_all(figure, axes, columns=6)
    return figure


@_styled
def roofline(evidence: Evidence) -> Figure:
    """Each float kernel at its counted FLOP per byte and its measured rate, under the roofs of memory and arithmetic.

    The counts are of what moves between a multiprocessor and its caches. So a kernel may lie above the memory's roof,
    if the caches served it.
    """
    counted = tables.traffic(evidence)
    keys = ["kernel", "dtype", *evidence.choice]
    measured = evidence.gpu[(evidence.gpu["status"] == "ok") & evidence.gpu["gflops"].notna()]
    counted = counted.rename(columns={name: f"counted_{name}" for name in SHAPE})
    rows = measured.merge(
        counted[[*keys, *(f"counted_{n}" for n in SHAPE), *tables.MOVED, "flop_per_byte_moved"]], on=keys
    )
    rows["flop_per_byte_moved"] = [tables.intensity(row, evidence) for row in rows.to_dict("records")]
    rows = rows[(rows["dtype"] == "float") & (rows["flop_per_byte_moved"] > 0)]
    rows = rows.sort_values("gflops").drop_duplicates(["platform", *keys], keep="last")
    if rows.empty:
        return _nothing("No roofline: no kernel was both counted and timed.")
    groups = list(rows.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), columns=1, height=4.4)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        gpu = next(gpu.device["gpu"] for gpu in evidence.gpus if gpu.name == platform)
        # If the peak is not known, the memory's roof extends over all points.
        peak = (gpu["peak_gflops"] or {}).get("float")
        roofs = _memory_roofs(platform, gpu, evidence)
        bandwidth = roofs[0][1]
        top = peak or bandwidth * part["flop_per_byte_moved"].max()
        names = sorted(part["kernel"].unique())
        described = tables.describe(part, evidence)
        for name in names:
            own = described[described["kernel"] == name]
            marks = axis.scatter(
                own["flop_per_byte_moved"], own["gflops"], s=60, label=name, **_EDGE,
                **_look(name, evidence),
            )  # fmt: skip
            rates = [f"{row.kernel} {row.choice}, {row.gflops:,.4g} GFLOP/s at " for row in own.itertuples()]
            _tell(marks, [f"{rate}{x:.3g} FLOP per byte" for rate, x in zip(rates, own["flop_per_byte_moved"])])
        small = {"fontsize": "small", "textcoords": "offset points"}
        # The fastest of each kernel and first parameter is labelled, unless a faster label is near.
        said: list[tuple[float, float]] = []
        part = tables.describe(part, evidence)
        part = part.assign(_first=part["choice"].str.split(", ").str[0])
        for row in part.drop_duplicates(["kernel", "_first"], keep="last").iloc[::-1].to_dict("records"):
            x, y = row["flop_per_byte_moved"], row["gflops"]
            if all(abs(np.log10(x / a)) > 0.45 or abs(np.log10(y / b)) > 0.12 for a, b in said):
                axis.annotate(row["choice"], (x, y), xytext=(8, -3), **small)
                said.append((x, y))
        intensity = np.geomspace(0.5 * min(0.25, part["flop_per_byte_moved"].min()), 4 * top / bandwidth, 200)
        for name, gb_s in roofs:
            axis.plot(intensity, np.minimum(top, gb_s * intensity), color="black", linewidth=1.2, zorder=0)
            words, place = f"{name} {gb_s / 1000:.2f} TB/s", intensity[40]
            if gb_s * place < top:
                axis.annotate(words, (place, gb_s * place), xytext=(8, -10), **small)
        if peak:
            words = f"vector peak {peak / 1000:.1f} TFLOP/s"
            axis.annotate(words, (intensity[-1], peak), xytext=(0, 5), ha="right", **small)
        axis.set(xscale="log", yscale="log", title=evidence.labels[platform], ylabel="GFLOP/s, measured")
        axis.set_xlabel("FLOP per byte moved, counted by the emulator")
        axis.set_ylim(top=2 * max(top, part["gflops"].max()))
        axis.legend(title=None, loc="lower right")
    return figure


def _memory_roofs(platform: str, gpu: Mapping[str, Any], evidence: Evidence) -> list[tuple[str, float]]:
    """What memory and the caches deliver in GB/s, lowest first: as measured; of memory else what the datasheet says."""
    measured = evidence.facts["bandwidth"]
    measured = measured[(measured["platform"] == platform) & measured["measured"].notna()].set_index("quantity")[
        "measured"
    ]
    found = [("memory", measured.get("memory_bandwidth", gpu["memory_bandwidth_gb_s"]))]
    found += [(f"L{level}", measured[f"l{level}_bandwidth"]) for level in (2, 1) if f"l{level}_bandwidth" in measured]
    return found


@_styled
def cache_lines(evidence: Evidence) -> Figure:
    """Time of a multiply-add over the lines that it fetches: one panel per machine, one point per loop and shape."""
    table = tables.cache_lines(evidence)
    if table.empty:
        return _nothing("No CPU loop was both timed and counted.")
    groups = list(table.groupby("platform", sort=False))
    names = sorted(table["kernel"].unique())
    figure, axes = _panels(len(groups), sharex=True, sharey=True)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        axis.set(xscale="log", yscale="log", title=_title("", platform, evidence))
        for name in names:
            own = part[part["kernel"] == name]
            x, y = own["l1_lines_per_multiply_add"], own["ns_per_multiply_add"]
            marks = axis.scatter(x, y, s=45, label=name, **_EDGE, **_look(name, evidence))
            words = [f"{row.kernel} {row.choice}, {row.dtype}, {row.shape}" for row in own.itertuples()]
            _tell(marks, [f"{said}: {b:.3g} ns, {a:.3g} lines" for said, a, b in zip(words, x, y)])
        axis.set(xlabel="lines into the first cache per multiply-add", ylabel="ns per multiply-add")
        for ruler in (axis.xaxis, axis.yaxis):
            ruler.set(
                major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}", minor_formatter=NullFormatter()
            )
    _legend_of_all(figure, axes, columns=6)
    return figure


@_styled
def tuning(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """How flat is the optimum: the rates of all variants by rank, in % of the best; one line per shape.

    One panel per platform, kernel and element type. A cross marks variants that spill registers.
    """
    table = tables.variants(evidence)
    table = table[table["rank"].notna()]
    if table.empty:
        return _nothing("No variant was timed: there is no GPU and no recorded run of the tuner.")
    groups = list(table.groupby(["platform", "kernel", "dtype"], sort=False))
    shapes = list(dict.fromkeys(table["shape"]))
    colours = dict(zip(shapes, _palette(shapes), strict=True))
    figure, axes = _panels(len(groups), height=2.6, columns=3, width=8.8, sharey=True)
    for axis, ((platform, kernel, dtype), part) in zip(axes, groups, strict=True):
        for shape, line in part.sort_values("rank").groupby("shape", sort=False):
            axis.plot(line["rank"], line["percent_of_best"], color=colours[shape], linewidth=1.2)
            spilled = line[line["spill_bytes"] > 0]
            axis.scatter(spilled["rank"], spilled["percent_of_best"], color=colours[shape], marker="x", s=12)
        axis.axhline(100 * tables.AS_GOOD, color=_GREY, linewidth=0.8, linestyle="--")
        axis.set(title=_title(f"{kernel}, {dtype}", platform, evidence), xlabel="rank of the variant", xscale="log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(0, 103)
    for axis in axes[::3]:
        axis.set_ylabel("% of the best")
    lines = [Line2D([], [], color=colours[shape], label=shape) for shape in shapes]
    lines.append(Line2D([], [], color=_GREY, marker="x", linestyle="none", label="spills registers"))
    figure.legend(handles=lines, loc="outside lower center", ncols=4, title="(n, m, p)")
    return figure


@_styled
def cold_start(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """Whole calls in a fresh process, stacked by step: one panel per platform, one bar per call."""
    table = tables.cold_start(evidence, published)
    if table.empty:
        return _nothing("No call was timed: there is no GPU and no recorded run of this task.")
    groups = list(table.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), height=3, columns=1)
    steps = [name for name in tables.steps(evidence) if name != "total_ms"]
    for axis, (platform, part) in zip(axes, groups, strict=True):
        names = [f"{row.kernel}, call {row.position} of\n{row.order}" for row in part.itertuples()]
        left = np.zeros(len(part))
        for step, colour in zip(steps, sns.color_palette("colorblind", len(steps)), strict=True):
            width = part[step].fillna(0).to_numpy()
            axis.barh(names, width, left=left, color=colour, label=step.removesuffix("_ms").replace("_", " "))
            left += width
        axis.set(title=_title("", platform, evidence), xlabel="ms of the whole call")
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
    _legend_of_all(figure, axes, columns=len(steps))
    return figure


@_styled
def launch_limits(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """Each launch against the device's limit: the percentage of the allowed threads or bytes that a block asks for."""
    table = tables.launch_limits(evidence, published)
    if table.empty:
        return _nothing("No launch was tried.")
    table = table.assign(label=[f"{r.block}, {r.shared_bytes:,} B" for r in table.itertuples()])
    groups = list(table.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), height=3.2, width=8.8)
    colours = dict(zip(("launched", "refused"), sns.color_palette("colorblind"), strict=False))
    for axis, (platform, part) in zip(axes, groups, strict=True):
        sns.barplot(part, y="label", x="percent_of_limit", hue="outcome", palette=colours, ax=axis, orient="h")
        axis.axvline(100, color="black", linestyle="--", linewidth=1)
        axis.set(title=_title("", platform, evidence), xlabel="% of the limit", ylabel="threads, shared memory")
        axis.get_legend().remove()
    handles = [Patch(color=colour, label=outcome) for outcome, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


@_styled
def bandwidth(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """Measured rates as a percentage of the datasheet's: memory bandwidth and multiply-add rates."""
    table = tables.bandwidth(evidence, published)
    table = table[table["percent_of_datasheet"].notna() & ~table["quantity"].str.startswith("ceiling")]
    if table.empty:
        return _nothing("No roof was measured: there is no GPU and no recorded run of this task.")
    names = [f"{row.quantity.replace('_', ' ')}, {row.dtype}" for row in table.itertuples()]
    figure, (axis,) = _panels(1, height=1.2 + 0.35 * len(table))
    labels = [evidence.labels[platform] for platform in table["platform"]]
    sns.barplot(y=names, x=table["percent_of_datasheet"], hue=labels, ax=axis, orient="h")
    for bars, rows in zip(axis.containers, (part for _, part in table.groupby("platform", sort=False)), strict=True):
        words = [f"{row.measured:,.0f} {row.unit}" for row in rows.itertuples()]
        axis.bar_label(bars, words, label_type="center", color="white", fontsize="small")
    axis.axvline(100, color="black", linestyle="--", linewidth=1)
    axis.set(xlabel="% of the datasheet", ylabel="", xlim=(0, 110))
    _legend_of_all(figure, [axis], columns=1)
    return figure


@_styled
def accuracy(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """Errors as multiples of SGEMM's on the same operands, in both measures; one line of panels per machine and origin.

    What lies right of the line at 1 fails the gate; a kernel that refuses operands has no mark.
    """
    table = tables.accuracy(evidence, published)
    if table["relative_error"].isna().all():
        return _nothing("No product was compared with SGEMM's.")
    kinds, kernels = list(dict.fromkeys(table["operands"])), list(dict.fromkeys(table["kernel"]))
    sums = sorted(set(table["p"]))
    options = {
        "hue": "kernel",
        "hue_order": kernels,
        "palette": [_look(kernel, evidence)["color"] for kernel in kernels],
    }
    options |= {"style": "p", "style_order": sums}
    groups = list(table.groupby(["platform", "origin"], sort=False))
    figure, axes = _panels(2 * len(groups), height=1.2 + 0.3 * len(kinds), width=8.8, sharex=True, sharey=True)
    measures = {"relative_error": "in the Frobenius norm", "worst_error": "in the worst element"}
    for number, ((platform, origin), part) in enumerate(groups):
        part = part.assign(_place=[kinds.index(kind) for kind in part["operands"]])
        for axis, (measure, words) in zip(axes[2 * number :], measures.items()):
            points = part.assign(_ratio=part[measure] / part[f"sgemm_{measure}"])
            sns.scatterplot(points, x="_ratio", y="_place", markers=_markers(sums), s=40, ax=axis, **options)
            known = points[points["_ratio"].notna()]
            if len(known):
                said = [f"{row.kernel}, {row.operands}, p = {row.p:,}: " for row in known.itertuples()]
                _tell(axis.collections[0], [f"{a}{b:.3g} times SGEMM's" for a, b in zip(said, known["_ratio"])])
            axis.axvline(1, color="black", linestyle="--", linewidth=1)
            axis.set(xscale="log", title=_title(f"{words}, {origin}", platform, evidence))
            axis.set(xlabel="error / SGEMM's error", ylabel="")
            axis.set_yticks(range(len(kinds)), kinds)
    axes[0].set_ylim(len(kinds) - 0.5, -0.5)
    _legend_of_all(figure, axes, columns=8)
    return figure


@_styled
def energy(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """10⁹ operations per joule, a bar for each kernel and type with its rate; libraries in grey."""
    table = tables.energy(evidence, published)
    table = table[table["gflop_per_joule"].notna()]
    if table.empty:
        return _nothing("No energy was measured: there is no GPU and no recorded run of this task.")
    groups = list(table.groupby("platform", sort=False))
    most = max(len(part) for _, part in groups)
    figure, axes = _panels(len(groups), columns=1, height=1 + 0.3 * most)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        part = part.sort_values("gflop_per_joule", kind="stable")
        names = [f"{row.kernel}, {row.dtype}" for row in part.itertuples()]
        colours = ["0.6" if kernel in evidence.libraries else _palette(names)[0] for kernel in part["kernel"]]
        bars = axis.barh(names, part["gflop_per_joule"], color=colours)
        words = [f" {row.gflop_per_joule:,.0f} ({row.gflops / 1000:,.3g} TFLOP/s)" for row in part.itertuples()]
        axis.bar_label(bars, words, fontsize="small")
        axis.set(xlabel="GFLOP/J", title=_title("", platform, evidence), xlim=(0, 1.4 * part["gflop_per_joule"].max()))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    return figure


#: What the loops are drawn of: words -> columns of instructions.csv.
_MIX = {
    "multiply-adds": ["multiply_add_instructions"],
    "shared loads": ["shared_loads_128", "shared_loads_64", "shared_loads_32", "matrix_loads"],
    "global loads, copies": [
        *("global_loads_128", "global_loads_64", "global_loads_32", "async_copies", "tensor_copies")
    ],
    "stores": ["shared_stores", "global_stores", "spills"],
    "addresses, conditions": ["integer"],
    "moves": ["moves"],
    "other arithmetic": ["arithmetic"],
    "barriers": ["synchronisation"],
    "branches, others": ["control", "other"],
}
_MIX_COLOURS = dict(
    zip(
        _MIX,
        "#0173b2 #de8f05 #029e73 #d55e00 #949494 #ca9161 #cc78bc #ece133 #56b4e9".split(),
    )
)


def _mix(axis, rows, labels):
    """Stacked bars: of what each row's loop is made, in percent; the share of multiply-adds is written into its bar."""
    left = np.zeros(len(rows))
    for words, names in _MIX.items():
        width = (100 * rows[names].sum(axis=1) / rows["instructions"]).astype("float64").to_numpy()
        if width.any():
            axis.barh(labels, width, left=left, color=_MIX_COLOURS[words], label=words, height=0.72)
        if words == "multiply-adds":
            for place, share in enumerate(width):
                inside = {"x": share / 2, "ha": "center", "color": "white"}
                beside = {"x": share + 1, "ha": "left", "color": "black"}
                axis.text(
                    y=place, s=f"{share:.0f} %", va="center", fontsize="small", **(inside if share > 9 else beside)
                )
        left += width
    axis.set(xlim=(0, 100), xticks=range(0, 100, 20), xlabel="% of the instructions of the loop")
    axis.grid(axis="y", visible=False)
    axis.invert_yaxis()


def _beside_all(figure, axes, columns):
    """One legend below all panels, of every entry of any of them."""
    entries = {}
    for axis in axes:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    order = [words for words in (*_MIX, *entries) if words in entries]
    handles = {words: entries[words] for words in order}
    place = {"loc": "outside lower center", "ncols": min(columns, len(handles)), "columnspacing": 1.2}
    figure.legend(handles.values(), handles.keys(), handlelength=1.5, **place)


@_styled
def instructions(loops: pd.DataFrame, evidence: Evidence) -> Figure:
    """What the multiply-add loops are made of: one bar per kernel and element type, by the share of multiply-adds."""
    loops = loops[loops["instructions"].notna()]
    if loops.empty:
        return _nothing("No machine code was read.")
    tensor = loops["multiply_add"].str.contains("MMA")
    parts = {"on the CUDA cores": loops[~tensor], "on the tensor cores": loops[tensor]}
    parts = {title: part for title, part in parts.items() if len(part)}
    heights = [1.2 + len(part) for part in parts.values()]
    stacked = {"columns": 1, "height": 0.45 + 0.21 * sum(heights) / len(parts), "height_ratios": heights}
    figure, axes = _panels(len(parts), width=8.8, **stacked)
    several = loops["platform"].nunique() > 1
    for axis, (title, part) in zip(axes, parts.items(), strict=True):
        part = part.sort_values("multiply_add_share", kind="stable")
        names = [f"{row.kernel}, {row.dtype}" for row in part.itertuples()]
        if several:
            names = [f"{name}, {where}" for name, where in zip(names, part["platform"])]
        _mix(axis, part, names)
        axis.set_title(title)
        if axis is not axes[-1]:
            axis.set_xlabel("")
    _beside_all(figure, axes, columns=3)
    return figure


def _ceilings(axis, rows, places):
    """A mark at the rate that each row's loop allows."""
    known = rows["ceiling_gflops"].notna().to_numpy()
    if known.any():
        at = np.array(places)[known]
        mark = {"marker": "|", "s": 190, "color": "black", "linewidth": 1.8, "zorder": 4}
        axis.scatter(rows["ceiling_gflops"][known] / 1000, at, label="ceiling of the loop", **mark)


@_styled
def rungs(rungs: pd.DataFrame, evidence: Evidence) -> Figure:
    """The ladder: the rate of every rung, and as lines the library, multiply-adds alone, and the datasheet's peak."""
    if rungs.empty:
        return _nothing("No ladder: no rung was timed.")
    groups = list(rungs.groupby(["platform", "dtype"], sort=False))
    most = max((~part["anchor"]).sum() for _, part in groups)
    figure, axes = _panels(len(groups), columns=1, width=6.4, height=1.5 + 0.3 * most)
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        own = part[~part["anchor"]]
        colours = [_ORANGE if gain < 1 else _BLUE for gain in own["gain"].fillna(1)]
        bars = axis.barh(own["kernel"], own["gflops"] / 1000, color=colours, height=0.7)
        words = [f"{rate / 1000:.1f}" for rate in own["gflops"]]
        axis.bar_label(bars, words, fontsize="small", label_type="center", color="white")
        _ceilings(axis, own, range(len(own)))
        gpu = next(gpu.device["gpu"] for gpu in evidence.gpus if gpu.name == platform)
        roofs = evidence.facts["bandwidth"]
        roofs = roofs[(roofs["platform"] == platform) & (roofs["dtype"] == dtype)]
        alone, tensor = (
            roofs.loc[roofs["quantity"] == name, "measured"].max() for name in ("multiply_add_rate", "tensor_rate")
        )
        units = " on the vector units" if own["multiply_add"].fillna("").str.contains("MMA").any() else ""
        lines = {
            "cuBLAS": (part.loc[part["anchor"], "gflops"].max(), "-.", "black"),
            f"multiply-adds alone{units}, measured": (alone, "-", "black"),
            "tensor cores alone, measured": (tensor if units else None, (0, (1, 1)), "black"),
            f"the datasheet's peak{units}": ((gpu["peak_gflops"] or {}).get(dtype), "--", "black"),
        }
        for name, (rate, dashes, colour) in lines.items():
            if pd.notna(rate):
                label = f"{name}: {rate / 1000:.1f}" if len(groups) == 1 else name
                axis.axvline(rate / 1000, color=colour, linestyle=dashes, linewidth=1.3, label=label)
        axis.set(title=_title(f"{dtype}, {own['shape'].iloc[0]}", platform, evidence), xlabel="TFLOP/s", xlim=(0, None))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    _beside_all(figure, axes, columns=2)
    return figure


@_styled
def platforms(ladder: pd.DataFrame, evidence: Evidence) -> Figure:
    """The float kernels of several GPUs at the largest square product that all have: a mark per GPU on each line."""
    rows = ladder[(ladder["dtype"] == "float") & (ladder["status"] == "ok") & (ladder["n"] == ladder["p"])]
    rows = rows[rows["n"] == rows["m"]]
    shared = rows.groupby("n")["platform"].nunique()
    rows = rows[rows["n"] == shared[shared == rows["platform"].nunique()].index.max()]
    if rows["platform"].nunique() < 2:
        return _nothing("No two GPUs have timed the same product.")
    order = {name: place for place, name in enumerate(evidence.kernels)}
    kernels = sorted(
        rows["kernel"].unique(), key=lambda name: (name in evidence.libraries, order.get(name, len(order)))
    )
    figure, (axis,) = _panels(1, width=7.2, height=1.4 + 0.24 * len(kernels))
    for kernel, part in rows.groupby("kernel"):
        rates = part["gflops"] / 1000
        axis.plot([rates.min(), rates.max()], [kernels.index(kernel)] * 2, color="0.8", linewidth=3, zorder=1)
    for (platform, part), colour, marker in zip(rows.groupby("platform", sort=False), _COLOURS, _MARKERS):
        places = [kernels.index(kernel) for kernel in part["kernel"]]
        label = evidence.labels[platform]
        look = {"color": colour, "marker": marker, "s": 45, "zorder": 2, **_EDGE}
        axis.scatter(part["gflops"] / 1000, places, label=label, **look)
    axis.set_yticks(range(len(kernels)), kernels)
    axis.set(xlabel="TFLOP/s", xlim=(0, None), title=f"float, {rows['shape'].iloc[0]}")
    axis.invert_yaxis()
    _legend_of_all(figure, [axis], columns=1)
    return figure


@_styled
def rung(rungs: pd.DataFrame, kernel: str, evidence: Evidence) -> Figure:
    """One rung beside the fastest one before it: what their loops are made of, and their rates."""
    own = rungs[~rungs["anchor"]]
    groups = [
        (platform, part[part["kernel"].isin([kernel, part.loc[part["kernel"] == kernel, "before"].iloc[0]])], part)
        for platform, part in own.groupby("platform", sort=False)
        if (part["kernel"] == kernel).any()
    ]
    height = 1.3 + 0.3 * max(len(pair) for _, pair, _ in groups)
    figure, axes = _panels(2 * len(groups), width=8.8, height=height, width_ratios=[3, 2])
    for number, (platform, pair, part) in enumerate(groups):
        left, right = axes[2 * number : 2 * number + 2]
        _mix(left, pair.fillna({"instructions": 1}), pair["kernel"])
        colours = [_BLUE if name == kernel else "0.5" for name in pair["kernel"]]
        bars = right.barh(pair["kernel"], pair["gflops"] / 1000, color=colours, height=0.72)
        right.bar_label(
            bars,
            [f"{rate / 1000:.3g}" for rate in pair["gflops"]],
            label_type="center",
            fontsize="small",
            color="white",
        )
        _ceilings(right, pair, range(len(pair)))
        library = rungs.loc[rungs["anchor"] & (rungs["platform"] == platform), "gflops"].max()
        if pd.notna(library):
            right.axvline(library / 1000, color="black", linestyle="-.", linewidth=1.3, label="cuBLAS")
        largest = np.nanmax([part["gflops"].max(), part["ceiling_gflops"].max(), library])
        right.set(xlim=(0, 1.05 * largest / 1000), xlabel="TFLOP/s")
        right.set_yticklabels([])
        right.invert_yaxis()
        right.grid(axis="y", visible=False)
        if len(groups) > 1:
            left.set_title(_title("", platform, evidence))
    _beside_all(figure, axes, columns=5)
    return figure


_OF_METHOD = {
    "tune": tuning,
    "accuracy": accuracy,
    "energy": energy,
    "maximum_size": gauge,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
}
#: The figures of the whole study, in addition to those of its tasks: file name -> function of evidence and published.
OVERVIEW = {
    "peak": lambda evidence, published: peak(tables.ladder(evidence, published), evidence),
    "speedup": lambda evidence, published: speedup(tables.ladder(evidence, published), evidence),
    "past_the_peak": lambda evidence, published: past_the_peak(tables.ladder(evidence, published), evidence),
    "accuracy_and_rate": lambda evidence, published: accuracy_and_rate(tables.ladder(evidence, published), evidence),
    "roofline": lambda evidence, published: roofline(evidence),
    "rungs": lambda evidence, published: rungs(tables.OVERVIEW["rungs"](evidence, published), evidence),
    "instructions": lambda evidence, published: instructions(tables.loops(evidence), evidence),
    "cache_lines": lambda evidence, published: cache_lines(evidence),
}


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure as SVG, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(svg(figure))


def task(name: str, evidence: Evidence, published: pd.DataFrame) -> Figure:
    """The figure of a task; what its sweep varies decides which: a parameter, the block, or the rates of its points."""
    own, method = evidence.of(name), evidence.method(name)
    if method != "sweep":
        return _OF_METHOD[method](own, published)
    rows = pd.concat([own.gpu, own.cpu], ignore_index=True)
    if rows["gflops"].isna().all():
        return _nothing("Nothing of this task was timed; its table shows what was verified.")
    if rows["gflops"].notna().sum() == 1:
        return _nothing("One point of this task was timed; its table has it.")
    rows = tables.describe(rows, evidence)
    chosen = rows[~rows["anchor"]]
    x = _varied(chosen, evidence)
    if x:
        lines = len(set(_series(chosen, x, evidence)))
        if lines == 1 and not _published_curves(chosen, x, evidence, published):
            return sweep(chosen, x, x, evidence)
        if lines <= _MOST_CURVES:
            return curves(chosen, x, evidence, published)
    elif chosen["kernel"].nunique() == 1 and chosen[["block_x", "block_y"]].drop_duplicates().shape[0] > 1:
        return sweep(chosen, "choice", "threads of a block, x × y", evidence)
    if len(chosen[["kernel", *evidence.choice]].drop_duplicates()) > 3:
        return bars(rows, evidence)
    return rates(rows, evidence)


def _varied(rows, evidence):
    """The parameter that a figure of these rows runs over: the one with the most values; None if there is no such one.

    One kernel has to have two values of it, and of several kernels each has to have three, so that there is a curve to
    compare.
    """
    found = {}
    for name in evidence.parameters:
        values = rows.groupby("kernel")[name].nunique()
        if len(values) and values.min() >= (2 if len(values) == 1 else 3):
            found[name] = rows[name].nunique()
    return max(found, key=found.get, default=None)
