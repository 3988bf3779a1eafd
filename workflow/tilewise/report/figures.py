"""The figures of the report: functions from evidence to a matplotlib Figure, drawn with seaborn.

Rates are in GFLOP/s: 2 n p m operations divided by the median time. A ring marks a point whose noise is above the
config's max_noise_percent; a cross on the axis marks a point that did not run. One visual language: a kernel keeps its
colour and its marker in every figure, a larger mark is a larger product, and libraries are grey stars. The colours can
be told apart by colour-blind readers, and the figures can also be read in black and white.
"""

import collections
import functools
import html
import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Mapping
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
from matplotlib.transforms import Bbox, ScaledTranslation

from tilewise.files import replacing
from tilewise.report import notes, tables
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
    "axes.titley": 1.0,  # where they are anyway; by default each drawing looks whether ticks are in their way
    "axes.edgecolor": "0.6",
    "grid.color": "0.88",
    "text.hinting": "none",  # letters as wide as a browser draws them
    "legend.frameon": False,
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
}
_GREY = "0.45"
#: Element types whose peak is that of the tensor cores.
_ON_TENSOR_CORES = {"half", "bfloat16", "tf32"}


def _styled(draw):
    @functools.wraps(draw)
    def styled(*arguments, **named):
        with matplotlib.rc_context(_STYLE), sns.color_palette("colorblind"):
            return draw(*arguments, **named)

    return styled


def svg(figure: Figure) -> str:
    """The figure as SVG text without a header; the same figure gives the same text.

    Every point and bar has a <title> with its values.
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
    if why := missing(figure):
        root.set(notes.ATTRIBUTE, why)
    text = ElementTree.tostring(root, encoding="unicode")
    kept = {*re.findall(_REFERENCE, text)}
    return re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in kept else "", text)


def inline(drawing: str, name: str, title: str = "", description: str = "") -> str:
    """What `svg` made, to stand inside an HTML page under a `name` that is unique there.

    It has `title` and `description`, and the page's variables for ink and paper, so that it follows its colour scheme.
    """
    root = ElementTree.fromstring(drawing)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title")
    root.set("aria-describedby", f"{name}-desc")
    family = "'DejaVu Sans', Verdana, sans-serif"
    inches = float(root.get("width", "").removesuffix("pt")) / 72
    root.set("style", f"width: {round(100 * inches)}px;font-family: {family}")
    said = [mark.text or "" for mark in root.iter(f"{_SVG}title")]
    if len(said) > _MOST_SAID:
        said = ["its table has the values of all points"]
    for number, (tag, words) in enumerate({"title": title, "desc": "; ".join([description, *said])}.items()):
        element = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{name}-{tag}"})
        element.text = words
        root.insert(number, element)
    text = ElementTree.tostring(root, encoding="unicode")
    # Ids such as axes_1 would occur twice on a page.
    new = {each: f"{name}-{number}" for number, each in enumerate(dict.fromkeys(re.findall(_REFERENCE, text)))}
    text = re.sub(r'( id="|href="#|url\(#)([^")]+)', lambda found: found[1] + new.get(found[2], found[2]), text)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), text)
    text = re.sub(r";font-family:[^;\"]*(?=;)", "", text)  # as in the style of the whole
    return re.sub(r"\n\s*", "\n", text)


#: Where a drawing names a part of itself.
_REFERENCE = r'(?:href="#|url\(#)([^")]+)'
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
    value = float(number[0])
    return f"{value:.1f}" if value > 20 else f"{value:.2f}" if value > 0.1 else f"{value:.4g}"


def _finished(root):
    """The drawing with the words of its marks as titles, and without decimals that nobody sees."""
    for element in root.iter():
        for key in _WITH_NUMBERS:
            if key in element.attrib:
                element.set(key, re.sub(r"\d+\.\d{3,}", _short, element.get(key)))
        if "d" in element.attrib:
            element.set("d", re.sub(r"\s*([A-Za-z])\s*", r"\1", " ".join(element.get("d").split())))
        if "style" in element.attrib:  # as short as it can be said: there are thousands
            style = element.get("style").replace("; ", ";").replace(": ", ":")
            element.set("style", style.replace(";stroke-linejoin:miter", "").replace(";stroke-width:1;", ";"))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        marks = list(element)
        styles = {mark.get("style") for mark in marks}
        if (
            len(marks) > 1
            and len(styles) == 1
            and None not in styles
            and {mark.tag for mark in marks} == {f"{_SVG}use"}
        ):
            element.set("style", styles.pop())  # said once for all
            for mark in marks:
                del mark.attrib["style"]
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


def missing(figure: Figure | str) -> str:
    """Why a figure, or what `svg` made of it, has nothing to show; empty if it shows something."""
    if isinstance(figure, str):
        found = re.match(rf'<svg[^>]* {notes.ATTRIBUTE}="([^"]*)"', figure)
        return html.unescape(found[1]) if found else ""
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
        below = ScaledTranslation(0, -0.42, axis.figure.dpi_scale_trans)  # inches: under the words of the axis
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": axis.transAxes + below}
        axis.legend(entries.values(), entries.keys(), title=title, ncols=columns, **place)


def _legend_of_all(figure, axes, columns, title=None):
    """Put one legend below all panels, each entry of the first panel once; remove the panels' own legends."""
    for axis in axes:
        if axis.get_legend():
            axis.get_legend().remove()
    handles, labels = axes[0].get_legend_handles_labels()
    _legend_below(figure, dict(zip(labels, handles, strict=True)), columns, title=title)


def _legend_below(figure, entries, columns, **options):
    """Put a legend (words -> handle) below all panels, in so many columns at most that the figure is wide enough."""
    for count in range(min(columns, len(entries)), 0, -1):
        place = {"loc": "outside lower center", "ncols": count}
        legend = figure.legend(entries.values(), entries.keys(), **place, **options)
        # Another machine may have other letters, which are wider.
        if count == 1 or legend.get_window_extent().width < 0.92 * figure.bbox.width:
            return
        legend.remove()


def _sizes(names):
    """The area of the marks of each name in square points: names come from the smallest product to the largest."""
    areas = np.geomspace(22, 90, len(names)) if len(names) > 1 else [42]
    return dict(zip(names, areas))


def _size_legend(figure, sizes, title):
    """Say below all panels what the sizes of the marks mean: of many sizes, the smallest and the largest."""
    names = list(sizes)
    shown = names if len(names) <= _MOST_ENTRIES else [names[0], names[-1]]
    look = {"color": _GREY, "marker": "o", "linestyle": "none"}
    entries = {str(name): Line2D([], [], markersize=math.sqrt(sizes[name]), **look) for name in shown}
    words = f"{title}: from the least to the largest" if len(shown) < len(names) else title
    _legend_below(figure, entries, _MOST_ENTRIES, title=words)


def _line(axis, rows, x, order, series, evidence, y="gflops"):
    """Lines of y over the categories `order` of column x, one for each value of the column `series`.

    A line has the colour and the marker of its kernel; lines of the same kernel differ in their dashes, and in the size
    of their marks if their products do. The largest product's is solid.
    """
    names = _by_size(rows) if series == "shape" else list(dict.fromkeys(rows[series]))
    rows = rows.assign(place=[order.index(value) for value in rows[x]]).sort_values("place", kind="stable")
    ran = rows[(rows["status"] == "ok") & rows[y].notna()]
    sizes, drawn = _sizes(_by_size(rows)), collections.Counter()
    for name in reversed(names) if len(sizes) > 1 else names:
        own = ran[ran[series] == name]
        kernel, shape = rows.loc[rows[series] == name, ["kernel", "shape"]].iloc[0]
        look = _look(kernel, evidence) | {"markersize": 0.8 * math.sqrt(sizes[shape]), "linewidth": 1.2}
        look["linestyle"] = _DASHES[drawn[kernel] % len(_DASHES)]
        drawn[kernel] += 1
        axis.plot(own["place"], own[y], label=name, markeredgecolor="white", markeredgewidth=0.5, **look)
    max_noise = evidence.max_noise
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
    gap, places = min(0.085, 0.95 / max(1, len(lines))) * (top - bottom), []
    lines = sorted(lines, key=lambda line: line.get_ydata()[-1])
    for line in lines:
        places.append(max([line.get_ydata()[-1], *(place + gap for place in places[-1:])]))
    for number in reversed(range(len(places))):  # none above the panel
        highest = top - 0.04 * (top - bottom) if number == len(places) - 1 else places[number + 1] - gap
        places[number] = min(places[number], highest)
    leader = {"arrowstyle": "-", "linewidth": 0.8, "linestyle": ":", "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
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


def _titles(figure, axes, words, platforms, evidence):
    """Title each panel with its words and its platform; a platform that is that of all panels is named once, on top."""
    labels = [evidence.labels[platform] for platform in platforms]
    if len(axes) > 1 and len(set(labels)) == 1:
        figure.suptitle(labels[0], fontsize="medium")
        labels = [""] * len(axes)
    narrow = len({axis.get_subplotspec().colspan.start for axis in axes}) > 1
    for axis, said, label in zip(axes, words, labels, strict=True):
        label = label.replace(", recorded", "\nrecorded") if narrow else label
        axis.set_title("\n".join(filter(None, [label, said])))


#: Colours that can be told apart by colour-blind readers, on white and on black.
_COLOURS = "#0173b2 #c46a00 #029e73 #d0507a #8a6fd1 #8c6d3f #1f9fc4 #b04a2f #6f8f1f".split()  # grey is for libraries
#: What parts points that lie on each other.
_EDGE = {"edgecolor": "white", "linewidth": 0.5}
_MARKERS = ["o", "s", "D", "^", "v", "P", "X", "<", ">"]  # the star is for libraries
#: What parts lines of the same kernel.
_DASHES = ["-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2))]


def _look(kernel, evidence):
    """The colour and the marker of a kernel, the same in every figure; libraries are grey stars."""
    if kernel in evidence.libraries:
        return {"color": _GREY, "marker": "*"}
    place = list(evidence.kernels).index(kernel) if kernel in evidence.kernels else len(evidence.kernels)
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKERS[(place + place // len(_COLOURS)) % len(_MARKERS)],
    }


def _three(rate):
    """A rate with three digits, or whole."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:#.3g}"


def _colours(kernels, evidence):
    return [_look(kernel, evidence)["color"] for kernel in kernels]


def _numbers(axis, places, words, heading=""):
    """Numbers in a column right of the panel, one per bar, where no line crosses them; its heading is above."""
    at = {"xycoords": axis.get_yaxis_transform(), "va": "center", "fontsize": "small", "annotation_clip": False}
    for place, word in zip(places, words):
        axis.annotate(word, (1.02, place), **at)
    if heading:
        above = {"xycoords": "axes fraction", "va": "bottom", "fontsize": "small", "color": _GREY}
        axis.annotate(heading, (1.02, 1.01), annotation_clip=False, **above)


def _line_behind(axis, x, **look):
    """A vertical line behind the bars: those that pass it cover it."""
    axis.axvline(x, **({"color": "black", "linewidth": 1.3, "zorder": 0.9} | look))
    axis.set_axisbelow(True)


def _label_points(figure, axis, points):
    """Write the words of points beside them: (x, y, words), the most important first.

    A label stands where it covers neither a point nor a line nor another label: beside its point and no other, or else
    farther off at the end of a thin line to it. A point without such a place has none.
    """
    figure.get_layout_engine().execute(figure)  # only now the panel has its place
    frame = axis.get_window_extent()
    places = [axis.transData.transform(own.get_offsets()) for own in axis.collections if len(own.get_offsets())]
    others = [place for own in places for place in np.ma.filled(own, np.nan) if np.isfinite(place).all()]
    # Boxes are arrays [[x0, y0], [x1, y1]] here: there are thousands of comparisons, and a Bbox becomes one for each.
    marks = [np.array([(x - 5, y - 5), (x + 5, y + 5)]) for x, y in others]
    taken = [text.get_window_extent().get_points() for text in axis.texts]
    for line in axis.lines:
        ends = axis.transData.transform(line.get_path().vertices) if line.get_transform() == axis.transData else None
        if ends is None:  # a vertical line through the whole panel
            x = axis.transData.transform((line.get_xdata()[0], axis.get_ylim()[0]))[0]
            ends = np.array([(x, frame.y0), (x, frame.y1)])
        for start, end in itertools.pairwise(ends):
            taken += _steps(start, end)
    pixels = figure.dpi / 72
    for x, y, words in points:
        mark = axis.transData.transform((x, y))
        text = axis.annotate(words, (x, y), fontsize="x-small")
        width, height = text.get_window_extent().padded(1).size
        text.remove()
        for across, up in _OFFSETS:
            side = int(np.sign(across))
            end = mark + np.array([across, up]) * pixels
            box = Bbox.from_bounds(end[0] - (1 - side) / 2 * width, end[1] - height / 2, width, height)
            far = math.hypot(across, up) > 16
            line = _steps(mark, end)[:-1] if far else []
            inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
            own = far or all(_distance(box, mark) <= _distance(box, other) for other in others)
            if not (inside and own) or any(Bbox(step).count_overlaps(taken) for step in line):
                continue
            if box.count_overlaps([*taken, *(each for each in marks if not _holds(each, mark))]):
                continue
            taken += [box.get_points(), *line]
            place = {"xytext": (across, up), "textcoords": "offset points", "va": "center"}
            place["ha"] = {1: "left", -1: "right", 0: "center"}[side]
            axis.annotate(words, (x, y), fontsize="x-small", **place)
            if far:
                leader = {"arrowstyle": "-", "linewidth": 0.6, "color": _GREY, "shrinkA": 1, "shrinkB": 3}
                axis.annotate("", (x, y), arrowprops=leader, **place)
            break


#: Where a label may stand beside its point, in points: near, then far.
_OFFSETS: list[tuple[float, float]] = [(8, 0), (-8, 0), (0, 10), (0, -10), (8, 8), (8, -8), (-8, 8), (-8, -8)]
_OFFSETS += [
    (radius * math.cos(angle), radius * math.sin(angle))
    for radius in (20, 32, 46)
    for angle in np.radians([30, 150, -30, -150, 60, 120, -60, -120])
]


def _distance(box, point):
    """Of a point from a box, in pixels."""
    x, y = point
    return math.hypot(max(box.x0 - x, 0, x - box.x1), max(box.y0 - y, 0, y - box.y1))


def _steps(start, end):
    """Small boxes along a line, as arrays."""
    (x0, y0), (x1, y1) = start, end
    steps = np.linspace(0, 1, max(2, int(np.hypot(x1 - x0, y1 - y0) / 6)))
    return [np.array([(x - 1, y - 1), (x + 1, y + 1)]) for x, y in zip(x0 + steps * (x1 - x0), y0 + steps * (y1 - y0))]


def _holds(box, mark):
    return (np.abs(box.mean(axis=0) - mark) < 0.5).all()


#: A figure of curves has at most so many lines, and one of points so many names; more cannot be told apart.
_MOST_CURVES = 12
_MOST_LINES = 40
#: A name has a line break after at most so many letters.
_LABEL = 48


@_styled
def sweep(rows: pd.DataFrame, x: str, label: str, evidence: Evidence) -> Figure:
    """GFLOP/s over what the sweep chose (column x): one panel per platform, kernel and dtype, one line per shape."""
    rows = rows[rows[x].notna()]
    order = list(dict.fromkeys(rows[x]))
    order = order if x == "choice" else sorted(order)
    groups = list(rows.groupby(["platform", "kernel", "dtype"], sort=False))
    figure, axes = _panels(len(groups), height=3.35)
    for axis, (_, part) in zip(axes, groups, strict=True):
        _line(axis, part, x, order, "shape", evidence)
        axis.set(xlabel=label, ylabel="GFLOP/s")
        if part["shape"].nunique() > _MOST_ENTRIES:
            _label_lines(axis, "(n, m, p)")
        else:
            _legend(axis, columns=3 if len(groups) == 1 else 1, title="(n, m, p)")
    words = [f"{kernel}, {dtype}" for (_, kernel, dtype), _ in groups]
    _titles(figure, axes, words, [platform for (platform, *_), _ in groups], evidence)
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
def curves(rows: pd.DataFrame, x: str, label: str, evidence: Evidence, published: pd.DataFrame) -> Figure:
    """GFLOP/s over the parameter x: at the largest shape, at the others, and the speed over its least value.

    `label` is what the axis of x says. One line per kernel, type and choice of the other parameters. Beside the speed
    stands what a source published over the same parameter.
    """
    rows = rows[rows[x].notna()]
    rows = rows.assign(_series=_series(rows, x, evidence))
    order = sorted(set(rows[x]))
    groups = list(rows.groupby("platform", sort=False))
    lines = rows[["_series", *SHAPE]].drop_duplicates()
    longest_legend = max(5, len(lines) - lines["_series"].nunique())
    panels = 3 if len(rows[SHAPE].drop_duplicates()) > 1 else 2  # one shape has no other shapes
    options = {"width": 3.5 * panels, "height": 3.75 + 0.17 * longest_legend, "columns": panels}
    series = rows["_series"].nunique()
    if series > _MOST_ENTRIES or longest_legend > _MOST_ENTRIES + 1:  # labels beside the lines need a line of their own
        options = {"width": 8.0, "height": 2.6 + 0.08 * max(series, longest_legend), "columns": 1}
    figure, axes = _panels(panels * len(groups), **options)
    titles: list[str] = []
    for number, (_, part) in enumerate(groups):
        own = list(axes[panels * number : panels * (number + 1)])
        left, right = own[0], own[-1]
        largest = part.loc[part[SHAPE].astype("float64").prod(axis=1).idxmax(), SHAPE]
        large = part[(part[SHAPE] == largest).all(axis=1)]
        _line(left, large, x, order, "_series", evidence)
        titles.append(shape_text(large.iloc[0]))
        left.set(xlabel=label, ylabel="GFLOP/s")
        for middle in own[1:-1]:
            other = part.drop(large.index)
            if len(other):
                names = [f"{shape_text(row)} {row['_series']}" for row in other.to_dict("records")]
                other = other.assign(_series=names)
                work = other[SHAPE].astype("float64").prod(axis=1)
                _line(middle, other.loc[work.sort_values(kind="stable").index], x, order, "_series", evidence)
            titles.append("other shapes, (n, m, p)")
            middle.set(xlabel=label, ylabel="GFLOP/s")
        first = large[large[x] == order[0]].groupby("_series")["time_ms"].min()
        ratio = large.assign(_speed=large["_series"].map(first) / large["time_ms"])
        _line(right, ratio, x, order, "_series", evidence, y="_speed")
        for (name, source), dashes in zip(
            _published_curves(rows, x, evidence, published), itertools.cycle(["--", ":", "-."])
        ):
            speed = source["value"].iloc[0] / source["value"]
            places = [order.index(value) for value in source[x]]
            marker = _look(source["kernel"].iloc[0], evidence)["marker"]
            right.plot(places, speed, color="black", linestyle=dashes, marker=marker, label=name)
        titles.append(f"speed over {x} {order[0]}, {shape_text(large.iloc[0])}")
        right.set(xlabel=label, ylabel="times as fast")
        right.autoscale(axis="y")
        right.set_ylim(bottom=0)
        for axis in own:
            if len(axis.lines) > _MOST_ENTRIES:
                _label_lines(axis, "")
            else:
                _legend(axis)
    _titles(figure, axes, titles, [platform for platform, _ in groups for _ in range(panels)], evidence)
    return figure


def _labelled(rows):
    """The rows with kernel and choice as one label."""
    return rows.assign(_label=[f"{kernel} {choice}".strip() for kernel, choice in zip(rows["kernel"], rows["choice"])])


@_styled
def rates(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """GFLOP/s of every point on a logarithmic axis: one panel per platform and dtype, one line per shape."""
    rows = _labelled(rows)
    groups = [group for group in rows.groupby(["platform", "dtype"], sort=False) if group[1]["gflops"].notna().any()]
    names, shapes = list(dict.fromkeys(rows["_label"])), _by_size(rows)
    kernels = dict(zip(rows["_label"], rows["kernel"]))
    looks = {name: {"edgecolor": "white"} | _look(kernels[name], evidence) for name in names}
    for kernel in set(kernels.values()):  # the choices of one kernel: filled, hollow, pale
        choices = [name for name in names if kernels[name] == kernel]
        for name, fill in zip(choices[1:], itertools.cycle([0.0, 0.4])):
            colour = looks[name].pop("color")
            looks[name] |= {"facecolor": matplotlib.colors.to_rgba(colour, fill), "edgecolor": colour}
    figure, axes = _panels(len(groups), height=1.8 + 0.22 * len(shapes), columns=3, width=8.8, sharey=True, sharex=True)
    for axis, (_, part) in zip(axes, groups, strict=True):
        part = part.assign(_place=[shapes.index(shape) for shape in part["shape"]])
        for name in names:
            own = part[(part["_label"] == name) & part["gflops"].notna()]
            size = 90 if looks[name]["marker"] == "*" else 40
            axis.scatter(own["gflops"], own["_place"], s=size, label=name, linewidth=0.8, **looks[name])
        words = {"va": "center", "fontsize": "x-small", "color": _GREY, "transform": axis.get_yaxis_transform()}
        words["bbox"] = {"facecolor": _PAPER, "edgecolor": "none", "pad": 1}  # it hides the grid behind it
        for place, missing in part[part["status"] != "ok"].groupby("_place"):
            causes = dict.fromkeys(f"{row.kernel}: {row.status}" for row in missing.itertuples())
            axis.text(0.03, place, ", ".join(causes), **words)
        axis.set(xlabel="GFLOP/s", ylabel="(n, m, p)")
        axis.label_outer()
        axis.set_yticks(range(len(shapes)), shapes)
        if (part["gflops"] > 0).any():
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
    _legend_of_all(figure, axes, columns=4)
    axes[0].set_ylim(len(shapes) - 0.5, -0.5)
    keys = [key for key, _ in groups]
    _titles(figure, axes, [dtype for _, dtype in keys], [platform for platform, _ in keys], evidence)
    return figure


def _short_labels(rows, evidence):
    """The kernel of each row, with those parameters only that tell rows of the same case apart."""
    case = rows.groupby(["platform", "dtype", "kernel", *SHAPE])
    asked = {"block": "block_x"} | {name: name for name in evidence.parameters}
    told = {name: set(rows.loc[case[column].transform("nunique") > 1, "kernel"]) for name, column in asked.items()}
    words = []
    for row in rows.to_dict("records"):
        without = [name for name, kernels in told.items() if row["kernel"] not in kernels]
        words.append(f"{row['kernel']} {choice_text(row, evidence.kernels, without=without)}".strip())
    return words


@_styled
def points(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """GFLOP/s of every point: one panel per platform and dtype, one line per kernel and choice, a size per shape.

    Of a sweep with very many choices only the fastest are shown, and the title says so.
    """
    rows = rows.assign(_label=_short_labels(rows, evidence))
    rows = rows.assign(_label=rows["_label"].map(lambda label: textwrap.fill(label, _LABEL)))
    groups = list(rows.groupby(["platform", "dtype"], sort=False))
    shapes = _by_size(rows)
    sizes = _sizes(shapes)
    titles, labels = [], [part["_label"].drop_duplicates().head(_MOST_LINES) for _, part in groups]
    counts = [int((1 + own.str.count("\n")).sum()) for own in labels]  # lines of text
    height = 1.15 + 0.22 * sum(counts) / len(counts) + 0.5 / len(counts)
    stacked = {"columns": 1, "height": height, "height_ratios": counts}
    wide = max(len(label) for label in rows["_label"]) > 24 or len(groups) == 1
    options = stacked if wide else {"height": 1.6 + 0.24 * max(counts)}
    figure, axes = _panels(len(groups), width=8.0, **options)
    for axis, ((_, dtype), part) in zip(axes, groups, strict=True):
        title, count = dtype, part["_label"].nunique()
        names = list(dict.fromkeys(part["_label"]))
        if count > _MOST_LINES:
            fastest = part.groupby("_label", sort=False)["gflops"].max().nlargest(_MOST_LINES).index
            names, title = [name for name in names if name in fastest], f"{dtype}, the fastest {_MOST_LINES} of {count}"
        part = part[part["_label"].isin(names)]
        marked = dict(list(part[part["gflops"].notna()].groupby(["shape", "_label"], sort=False)))
        for shape, label in itertools.product(reversed(shapes), names):  # small marks lie upon large ones
            own = marked.get((shape, label))
            if own is None:
                continue
            look = _look(own["kernel"].iloc[0], evidence)
            places = [names.index(label)] * len(own)
            size = sizes[shape] * (2 if look["marker"] == "*" else 1)  # a star is slim
            marks = axis.scatter(own["gflops"], places, s=size, zorder=3, **_EDGE, **look)
            said = [f"{row.kernel} {row.choice}, {shape}: {row.gflops:,.4g} GFLOP/s" for row in own.itertuples()]
            _tell(marks, said)
        axis.set_yticks(range(len(names)), names)
        axis.set_ylim(len(names) - 0.5, -0.5)
        titles.append(title)
        most = part["gflops"].max()
        axis.set(xlabel="GFLOP/s", ylabel="", xlim=(0, 1.05 * most if most > 0 else None))
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter("{x:,.0f}" if part["gflops"].max() > 100 else "{x:g}")
    _titles(figure, axes, titles, [platform for (platform, _), _ in groups], evidence)
    if len(shapes) > 1:
        _size_legend(figure, sizes, "(n, m, p)")
    else:
        figure.supxlabel(f"(n, m, p) = {shapes[0]}", fontsize="small", color=_GREY)
    return figure


@_styled
def gauge(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """The maximum-size gauge: the n that fits in theory, the n that was allocated, and the n that was timed."""
    source = published.set_index("quantity")["value"]
    sizes = {name: source[name] for name in ("theoretical_n", "allocatable_n")}
    entries = [("RTX 2080 Ti, published", sizes | {"timed_n": sizes["allocatable_n"]})]
    names = {gpu.name for gpu in evidence.gpus}
    probes = evidence.facts["maximum_size"][evidence.facts["maximum_size"]["platform"].isin(names)]
    several = probes.groupby("platform")["kernel"].nunique().gt(1).any()
    for (platform, kernel), own in probes.groupby(["platform", "kernel"], sort=False):
        label = _title(kernel if several else "", platform, evidence)
        entries.append((label, own.iloc[-1].to_dict() | {"timed_n": list(own["timed_n"].dropna())}))
    figure, (axis,) = _panels(1, height=1.3 + 0.6 * len(entries))
    colours, said = sns.color_palette("colorblind"), []
    for place, (_, sizes) in enumerate(entries):
        axis.barh(place, sizes["theoretical_n"], height=0.62, color="0.9", edgecolor="0.6", label="in theory")
        axis.barh(place, sizes["allocatable_n"], height=0.38, color=colours[0], label="allocated")
        for timed in np.atleast_1d(sizes["timed_n"]):
            axis.plot([timed] * 2, [place - 0.31, place + 0.31], color=colours[1], linewidth=3, label="timed")
        share = sizes["allocatable_n"] / sizes["theoretical_n"]
        said.append(f"{sizes['allocatable_n']:,.0f} of {sizes['theoretical_n']:,.0f}, {share:.1%}")
    _numbers(axis, range(len(entries)), said, "n, allocated of theory")
    axis.set_yticks(range(len(entries)), [label for label, _ in entries])
    axis.set_xlim(0, 1.03 * max(sizes["theoretical_n"] for _, sizes in entries))
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
        axis.set(title=f"{evidence.labels[platform]}\ntimes faster than naive", xlabel="(n, m, p)")
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
    heights = [1.35 + 0.21 * len(part) for _, part in groups]
    stacked = {"columns": 1, "height": sum(heights) / len(heights), "height_ratios": [h - 1.1 for h in heights]}
    figure, axes = _panels(len(groups), width=7.2, **stacked)
    titles = []
    for axis, ((_, dtype), part) in zip(axes, groups, strict=True):
        part = part.sort_values(["anchor", "gflops"])
        rates, top = part["gflops"] / 1000, part["peak_gflops"].iloc[0] / 1000
        bars = axis.barh(part["kernel"], rates, color=_colours(part["kernel"], evidence), height=0.7)
        said = [f"{row.kernel} {row.choice}: {row.gflops / 1000:,.4g} TFLOP/s" for row in part.itertuples()]
        for bar, words in zip(bars, said):
            _tell(bar, [words])
        known = pd.notna(top)
        shares = [_three(rate) + (f", {rate / top:.0%}" if known else "") for rate in rates]
        _numbers(axis, range(len(part)), shares, "TFLOP/s" + (", of the peak" if known else ""))
        title = f"{dtype}, {shape_text(part.iloc[0])}"
        if known:
            _line_behind(axis, top, linestyle="--")
            units = "tensor cores" if dtype in _ON_TENSOR_CORES else "vector units"
            title += f"\ndashed: the peak of the {units}, {_three(top)} TFLOP/s"
        titles.append(title)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set(xlabel="TFLOP/s", xlim=(0, None))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    _titles(figure, axes, titles, [platform for (platform, _), _ in groups], evidence)
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
    for axis, (platform, part) in zip(axes, groups, strict=True):
        part = part.sort_values("gflops", kind="stable")
        rates = part["gflops"] / 1000
        bars = axis.barh(part["kernel"], rates, color=_colours(part["kernel"], evidence))
        for bar, short in zip(bars, tables.made_of_short(part, evidence)):
            bar.set(hatch="///" if short else "", edgecolor="white", linewidth=0)
        _numbers(axis, range(len(part)), [_three(rate) for rate in rates], "TFLOP/s")
        title, peak = f"float, {shape_text(part.iloc[0])}", part["peak_gflops"].iloc[0] / 1000
        if pd.notna(peak):
            _line_behind(axis, peak, linestyle="--")
            title += f"\ndashed: the peak of the float units, {peak:.3g} TFLOP/s"
        axis.set(title=f"{evidence.labels[platform]}\n{title}", xlabel="TFLOP/s", xlim=(0, None))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    return figure


@_styled
def accuracy_and_rate(ladder: pd.DataFrame, evidence: Evidence) -> Figure:
    """Error over rate of every kernel and type at the largest square product, both logarithmic; libraries are stars.

    The error is that of the verification: in the Frobenius norm, operands of both signs.
    """
    rows = tables.largest_square(ladder)
    rows = rows[(rows["relative_error"] > 0) & (rows["gflops"] > 0)]
    if rows.empty:
        return _nothing("No accuracy against rate: no GPU was timed.")
    groups = list(rows.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), columns=1, height=5.2)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        part = part.assign(_rate=part["gflops"] / 1000).sort_values(["anchor", "gflops"], ascending=False)
        axis.set(xscale="log", yscale="log")
        for row in part.to_dict("records"):
            size = 110 if row["anchor"] else 50
            look = {"s": size, **_EDGE, **_look(row["kernel"], evidence)}
            marks = axis.scatter(row["_rate"], row["relative_error"], **look)
            said = f"{row['kernel']}, {row['dtype']}: {row['_rate']:,.4g} TFLOP/s, error {row['relative_error']:.2g}"
            _tell(marks, [said])
        axis.set_xlim(0.4 * part["_rate"].min(), 3 * part["_rate"].max())
        axis.set_ylim(part["relative_error"].min() / 6, part["relative_error"].max() * 6)
        _label_types(axis, part)
        title, peak = shape_text(part.iloc[0]), part.loc[part["dtype"] == "float", "peak_gflops"].dropna()
        if len(peak):
            _line_behind(axis, peak.iloc[0] / 1000, linestyle="--", linewidth=1)
            title += f"; dashed: the peak of the float units, {peak.iloc[0] / 1000:.3g} TFLOP/s"
        axis.set(xlabel="TFLOP/s: faster to the right", ylabel="relative error: more accurate below")
        axis.xaxis.set_major_formatter("{x:,g}")
        axis.set_title(f"{evidence.labels[platform]}\n{title}")
    for axis, (_, part) in zip(axes, groups, strict=True):
        # The libraries first, then the fastest and the slowest of each type, then the others.
        part = part.sort_values("gflops", ascending=False)
        ends = part.groupby("dtype").cumcount().eq(0) | part.groupby("dtype").cumcount(ascending=False).eq(0)
        part = part.assign(_first=~part["anchor"], _end=~ends).sort_values(["_first", "_end"], kind="stable")
        _label_points(figure, axis, list(zip(part["gflops"] / 1000, part["relative_error"], part["kernel"])))
    return figure


def _label_types(axis, rows):
    """Write right of the panel which element type the marks at that height have."""
    bottom, top = np.log10(axis.get_ylim())
    heights = np.log10(rows.groupby("dtype", sort=False)["relative_error"].median()).sort_values()
    place = -math.inf
    for words, height in heights.items():
        place = max((height - bottom) / (top - bottom), place + 0.045)
        at = {"xycoords": "axes fraction", "va": "center", "fontsize": "small", "color": _GREY}
        axis.annotate(words, (1.02, place), annotation_clip=False, **at)


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
    rows = rows[rows[tables.MOVED].notna().all(axis=1)]
    rows["flop_per_byte_moved"] = [tables.intensity(row, evidence) for row in rows.to_dict("records")]
    rows = rows.drop(columns=[f"counted_{name}" for name in SHAPE])  # or they would be taken for parameters
    rows = rows[(rows["dtype"] == "float") & (rows["flop_per_byte_moved"] > 0)]
    rows = rows.sort_values("gflops").drop_duplicates(["platform", *keys], keep="last")
    if rows.empty:
        return _nothing("No roofline: no kernel was both counted and timed.")
    groups = list(rows.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), columns=1, height=4.4)
    drawn = []
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
        intensity = np.geomspace(0.5 * min(0.25, part["flop_per_byte_moved"].min()), 4 * top / bandwidth, 200)
        for _, gb_s in roofs:
            axis.plot(intensity, np.minimum(top, gb_s * intensity), color="black", linewidth=1.2, zorder=0)
        if peak:
            _numbers(axis, [peak], [f"vector peak\n{peak / 1000:.1f} TFLOP/s"])
        axis.set(xscale="log", yscale="log", title=evidence.labels[platform], ylabel="GFLOP/s, measured")
        axis.set_xlabel("FLOP per byte moved, counted by the emulator")
        axis.set_ylim(top=2 * max(top, part["gflops"].max()))
        drawn.append([(f"{name} {gb_s / 1000:.2f} TB/s", intensity[0], gb_s) for name, gb_s in roofs])
    figure.get_layout_engine().execute(figure)  # only now a roof has its slope
    for axis, slopes in zip(axes, drawn, strict=True):
        _label_slopes(axis, slopes)
    for axis, (_, part) in zip(axes, groups, strict=True):
        best = part.sort_values("gflops", ascending=False).drop_duplicates("kernel")
        _label_points(figure, axis, list(zip(best["flop_per_byte_moved"], best["gflops"], best["kernel"])))
    return figure


def _label_slopes(axis, roofs):
    """Write along each roof (words, x where it begins, y over x) what it is; no other roof crosses the words."""
    for words, x, rate in roofs:
        (x0, y0), (x1, y1) = axis.transData.transform([(x, rate * x), (2 * x, rate * 2 * x)])
        slope = math.degrees(math.atan2(y1 - y0, x1 - x0))
        along = {"rotation": slope, "rotation_mode": "anchor", "fontsize": "small"}
        axis.annotate(words, (1.05 * x, rate * 1.05 * x), xytext=(-2, 3), textcoords="offset points", **along)


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
    figure, axes = _panels(len(groups), height=4.2, sharex=True, sharey=True)
    for axis, (_, part) in zip(axes, groups, strict=True):
        axis.set(xscale="log", yscale="log")
        for name in names:
            own = part[part["kernel"] == name]
            x, y = own["l1_lines_per_multiply_add"], own["ns_per_multiply_add"]
            marks = axis.scatter(x, y, s=45, **_EDGE, **_look(name, evidence))
            words = [f"{row.kernel} {row.choice}, {row.dtype}, {row.shape}" for row in own.itertuples()]
            _tell(marks, [f"{said}: {b:.3g} ns, {a:.3g} lines" for said, a, b in zip(words, x, y)])
        axis.set(xlabel="lines into the first cache per multiply-add", ylabel="ns per multiply-add")
        for ruler, steps in ((axis.xaxis, (1,)), (axis.yaxis, (1, 2, 5))):
            ruler.set(major_locator=LogLocator(subs=steps), major_formatter="{x:g}", minor_formatter=NullFormatter())
        axis.label_outer()
    _titles(figure, axes, [""] * len(groups), [platform for platform, _ in groups], evidence)
    for axis, (_, part) in zip(axes, groups, strict=True):
        slowest = part.sort_values("ns_per_multiply_add", ascending=False).drop_duplicates("kernel")
        places = zip(slowest["l1_lines_per_multiply_add"], slowest["ns_per_multiply_add"], slowest["kernel"])
        _label_points(figure, axis, list(places))
    return figure


@_styled
def tuning(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """How flat is the optimum: the rates of all variants by rank, in % of the best, of the largest product in colour.

    One panel per platform, kernel and element type. Other shapes are grey. A point says how many variants of a shape
    are as good as the best, and a cross marks variants that spill registers.
    """
    table = tables.variants(evidence)
    table = table[table["rank"].notna()]
    if table.empty:
        return _nothing("No variant was timed: there is no GPU and no recorded run of the tuner.")
    groups = list(table.groupby(["platform", "kernel", "dtype"], sort=False))
    labels = [evidence.labels[platform] for platform in table["platform"].unique()]
    across = 4 if len(groups) > 3 else 3
    figure, axes = _panels(len(groups), height=2.1, columns=across, width=8.8, sharey=True)
    for axis, ((platform, kernel, dtype), part) in zip(axes, groups, strict=True):
        shapes = _by_size(part)
        for shape in shapes:
            line = part[part["shape"] == shape].sort_values("rank")
            colour = _look(kernel, evidence)["color"] if shape == shapes[-1] else "0.7"
            width = 2 if shape == shapes[-1] else 0.9
            axis.plot(line["rank"], line["percent_of_best"], color=colour, linewidth=width)
            if shape == shapes[-1]:
                spilled = line[line["spill_bytes"] > 0]
                look = {"color": colour, "marker": "x", "s": 12, "gid": "silent"}  # hundreds of words would say little
                axis.scatter(spilled["rank"], spilled["percent_of_best"], **look)
            good = line[line["percent_of_best"] >= 100 * tables.AS_GOOD].iloc[-1]
            mark = axis.scatter(good["rank"], good["percent_of_best"], color=colour, s=22, zorder=3, **_EDGE)
            _tell(mark, [f"{shape}: {len(line[: int(good['rank'])])} of {len(line)} variants are as good as the best"])
        axis.axhline(100 * tables.AS_GOOD, color=_GREY, linewidth=0.8, linestyle="--")
        where = f"\n{evidence.labels[platform]}" if len(labels) > 1 else ""
        axis.set_title(f"{kernel}, {dtype}{where}", fontsize="small")
        axis.set(xscale="log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(0, 103)
    for axis in axes[::across]:
        axis.set_ylabel("% of the best")
    for axis in axes[-across:]:  # below which there is no other
        axis.set_xlabel("rank of the variant")
    if len(labels) == 1:
        figure.suptitle(labels[0], fontsize="medium")
    looks: dict[str, dict[str, Any]] = {
        "spills registers": {"marker": "x", "linestyle": "none"},
        "other products": {"linewidth": 0.9},
    }
    lines = [Line2D([], [], color="0.7", label=words, **look) for words, look in looks.items()]
    figure.legend(handles=lines, loc="outside lower center", ncols=2)
    return figure


@_styled
def cold_start(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """Whole calls in a fresh process, stacked by step: one panel per platform, one bar per call."""
    table = tables.cold_start(evidence, published)
    if table.empty:
        return _nothing("No call was timed: there is no GPU and no recorded run of this task.")
    groups = list(table.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), height=3, columns=1)
    steps = {"context": ["context_ms"], "copies": ["copy_in_ms", "copy_out_ms"], "kernel": ["kernel_ms"]}
    named = {name for names in steps.values() for name in names}
    steps["everything else"] = [name for name in tables.steps(evidence) if name not in (*named, "total_ms")]
    steps = {words: [name for name in names if name in table] for words, names in steps.items()}
    for axis, (platform, part) in zip(axes, groups, strict=True):
        names = [f"{row.kernel}, call {row.position} of\n{row.order}" for row in part.itertuples()]
        left = np.zeros(len(part))
        for (words, own), colour in zip(steps.items(), sns.color_palette("colorblind", len(steps)), strict=True):
            width = part[own].fillna(0).sum(axis=1).to_numpy()
            bars = axis.barh(names, width, left=left, color=colour, label=words)
            for bar, name, (_, row) in zip(bars, names, part.iterrows()):
                each = [f"{step.removesuffix('_ms').replace('_', ' ')} {row[step]:.3g} ms" for step in own]
                _tell(bar, [f"{name}: {', '.join(each)}"])
            left += width
        axis.set(title=evidence.labels[platform], xlabel="ms of the whole call")
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
    if not table["platform"].isin(evidence.folded).all():  # the emulator refuses what the GPU's limits say
        table = table[~table["platform"].isin(evidence.folded)]
    table = table.assign(label=[f"{r.block}, {r.shared_bytes:,} B" for r in table.itertuples()])
    groups = list(table.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), height=2.6, width=7.6)
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
    if len(set(labels)) > 1:
        _legend_of_all(figure, [axis], columns=1)
    else:
        axis.get_legend().remove()
        axis.set_title(labels[0])
    return figure


@_styled
def overhead(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """The isolated time of an empty kernel, a bar per machine."""
    table = evidence.facts["overhead"]
    table = table[table["overhead_us"].notna()]
    if table.empty:
        return _nothing("No overhead was measured: there is no GPU, or the recorded run has no such task.")
    figure, (axis,) = _panels(1, height=1.2 + 0.35 * len(table))
    bars = axis.barh([evidence.labels[name] for name in table["platform"]], table["overhead_us"])
    axis.bar_label(bars, [f"{value:.2f} µs" for value in table["overhead_us"]], label_type="center", color="white")
    axis.set(xlabel="µs of every isolated time")
    axis.grid(axis="y", visible=False)
    return figure


@_styled
def accuracy(evidence: Evidence, published: pd.DataFrame) -> Figure:
    """Errors as multiples of SGEMM's on the same operands: a line of panels per machine and measure, one per kernel.

    What lies right of the line at 1 fails the gate; a kernel that refuses operands has no mark.
    """
    table = tables.accuracy(evidence, published)
    if table["relative_error"].isna().all():
        return _nothing("No product was compared with SGEMM's.")
    if (table["origin"] == "measured").any():  # then what the model predicts is in the table only
        table = table[table["origin"] == "measured"]
    kinds = list(dict.fromkeys(table["operands"]))
    kernels = list(dict.fromkeys(table.loc[table["relative_error"].notna(), "kernel"]))
    sums = sorted(set(table["p"]))
    groups = list(table.groupby(["platform", "origin"], sort=False))
    measures = {"relative_error": "Frobenius norm", "worst_error": "worst element"}
    sizes, titles, places_of = _sizes(sums), [], []
    size = {"height": 1.0 + 0.2 * len(kinds), "width": 1.6 + 2.2 * min(3, len(kernels)), "columns": 3}
    figure, axes = _panels(2 * len(groups) * len(kernels), **size, sharex=True, sharey=True)
    cells = itertools.product(groups, measures.items(), kernels)
    for axis, (((platform, origin), part), (measure, words), kernel) in zip(axes, cells, strict=True):
        own = part[part["kernel"] == kernel]
        own = own.assign(_ratio=own[measure] / own[f"sgemm_{measure}"])
        own = own[own["_ratio"].notna()]
        for p, rows in sorted(own.groupby("p"), reverse=True):  # small marks lie upon large ones
            places = [kinds.index(kind) for kind in rows["operands"]]
            marks = axis.scatter(
                rows["_ratio"], places, s=sizes[p], zorder=3, **_EDGE,
                **_look(kernel, evidence),
            )  # fmt: skip
            said = [f"{kernel}, {kind}, p = {p:,}: " for kind in rows["operands"]]
            _tell(marks, [f"{words}{ratio:.2g} times SGEMM's" for words, ratio in zip(said, rows["_ratio"])])
        axis.axvline(1, color="black", linestyle="--", linewidth=1)
        titles.append(f"{kernel}\n{words}" if origin == "measured" else f"{kernel}\n{words}, {origin}")
        places_of.append(platform)
        axis.set(xscale="log", ylabel="", xlabel="error / SGEMM's")
        axis.label_outer()
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_yticks(range(len(kinds)), kinds)
    axes[0].set_ylim(len(kinds) - 0.5, -0.5)
    _titles(figure, axes, titles, places_of, evidence)
    for axis in axes:
        axis.title.set_fontsize("small")
    _size_legend(figure, {f"{p:,}": area for p, area in sizes.items()}, "p, products in a sum")
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
        bars = axis.barh(names, part["gflop_per_joule"], color=_colours(part["kernel"], evidence))
        rates = [f"{row.gflop_per_joule:,.0f}, {row.gflops / 1000:,.3g}" for row in part.itertuples()]
        _numbers(axis, range(len(part)), rates, "GFLOP/J, TFLOP/s")
        for bar, row in zip(bars, part.itertuples()):
            _tell(bar, [f"{row.kernel} {row.choice}, {row.dtype}: {row.gflop_per_joule:,.3g} GFLOP/J"])
        axis.set(xlabel="GFLOP/J", title=evidence.labels[platform], xlim=(0, None))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    return figure


#: What the loops are drawn of: words -> columns of instructions.csv.
_MIX = {
    "multiply-adds": ["multiply_add_instructions"],
    "shared memory": ["shared_loads_128", "shared_loads_64", "shared_loads_32", "matrix_loads", "shared_stores"],
    "global memory": [
        *("global_loads_128", "global_loads_64", "global_loads_32", "async_copies", "tensor_copies"),
        *("global_stores", "spills"),
    ],
    "addresses, moves, waiting and others": ["integer", "arithmetic", "moves", "synchronisation", "control", "other"],
}
_MIX_COLOURS = dict(zip(_MIX, ("#0173b2", "#de8f05", "#029e73", "#949494")))


def _mix(axis, rows, labels, heading=""):
    """Stacked bars: of what each row's loop is made, in percent; the share of multiply-adds stands beside them."""
    left = np.zeros(len(rows))
    shares = 100 * rows["multiply_add_instructions"].fillna(0) / rows["instructions"]
    _numbers(axis, range(len(rows)), [f"{share:.0f} %" for share in shares], heading)
    for words, names in _MIX.items():
        width = (100 * rows[names].sum(axis=1) / rows["instructions"]).astype("float64").to_numpy()
        if width.any():
            axis.barh(labels, width, left=left, color=_MIX_COLOURS[words], label=words, height=0.72)
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
    _legend_below(figure, {words: entries[words] for words in order}, columns, columnspacing=1.2, handlelength=1.5)


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
        _mix(axis, part, names, "multiply-adds")
        axis.set_title(title)
        if axis is not axes[-1]:
            axis.set_xlabel("")
    _beside_all(figure, axes, columns=4)
    return figure


def _ceilings(axis, rows, places, label=""):
    """A mark at the rate that each row's loop allows."""
    known = rows["ceiling_gflops"].notna().to_numpy()
    if known.any():
        at = np.array(places)[known]
        mark = {"marker": "|", "s": 190, "color": "black", "linewidth": 1.8, "zorder": 4}
        marks = axis.scatter(rows["ceiling_gflops"][known] / 1000, at, label=label, **mark)
        said = [
            f"{row.kernel}: its loop allows {row.ceiling_gflops / 1000:.3g} TFLOP/s" for row in rows[known].itertuples()
        ]
        _tell(marks, said)


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
        bars = axis.barh(own["kernel"], own["gflops"] / 1000, color=_colours(own["kernel"], evidence), height=0.7)
        for bar, gain in zip(bars, own["gain"].fillna(1)):
            bar.set(hatch="///" if gain < 1 else "", edgecolor="white", linewidth=0)
        _numbers(axis, range(len(own)), [f"{rate / 1000:.1f}" for rate in own["gflops"]], "TFLOP/s")
        gpu = next(gpu.device["gpu"] for gpu in evidence.gpus if gpu.name == platform)
        roofs = evidence.facts["bandwidth"]
        roofs = roofs[(roofs["platform"] == platform) & (roofs["dtype"] == dtype)]
        alone, tensor = (
            roofs.loc[roofs["quantity"] == name, "measured"].max() for name in ("multiply_add_rate", "tensor_rate")
        )
        units = " on the vector units" if own["multiply_add"].fillna("").str.contains("MMA").any() else ""
        # Five kinds of lines and marks would be too many for a legend; the caption tells of the mark.
        _ceilings(axis, own, range(len(own)), label="" if units else "ceiling of the loop")
        lines = {
            "cuBLAS": (part.loc[part["anchor"], "gflops"].max(), "-."),
            f"multiply-adds alone{units}, measured": (alone, "-"),
            "tensor cores alone, measured": (tensor if units else None, (0, (1, 1))),
            f"the datasheet's peak{units}": ((gpu["peak_gflops"] or {}).get(dtype), "--"),
        }
        for name, (rate, dashes) in lines.items():
            if pd.notna(rate):
                label = f"{name}: {rate / 1000:.1f}" if len(groups) == 1 else name
                _line_behind(axis, rate / 1000, linestyle=dashes, label=label)
        axis.set(xlabel="TFLOP/s", xlim=(0, None))
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    titles = [f"{dtype}, {part['shape'].iloc[0]}" for (_, dtype), part in groups]
    _titles(figure, axes, titles, [platform for (platform, _), _ in groups], evidence)
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
        right.barh(pair["kernel"], pair["gflops"] / 1000, color=_colours(pair["kernel"], evidence), height=0.72)
        _numbers(right, range(len(pair)), [f"{rate / 1000:.3g}" for rate in pair["gflops"]])
        _ceilings(right, pair, range(len(pair)))
        library = rungs.loc[rungs["anchor"] & (rungs["platform"] == platform), "gflops"].max()
        if pd.notna(library):
            _line_behind(right, library / 1000, linestyle="-.")
        largest = np.nanmax([part["gflops"].max(), part["ceiling_gflops"].max(), library])
        right.set(xlim=(0, 1.05 * largest / 1000), xlabel="TFLOP/s")
        right.set_yticklabels([])
        right.invert_yaxis()
        right.grid(axis="y", visible=False)
        if len(groups) > 1:
            left.set_title(_title("", platform, evidence))
    _beside_all(figure, axes[::2], columns=4)
    return figure


_OF_METHOD = {
    "tune": tuning,
    "accuracy": accuracy,
    "energy": energy,
    "maximum_size": gauge,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
    "overhead": overhead,
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


def save(draw: Callable[[], Figure], path: Path | str) -> None:
    """Draw a figure and write it as SVG, whole or not at all; if it cannot be drawn, one with the note that says so."""
    drawing = notes.attempt(str(path), lambda: svg(draw()), lambda note: svg(_nothing(note)))
    with replacing(path) as temporary:
        temporary.write_text(drawing)


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
            return sweep(chosen, x, _RULERS.get(x, x), evidence)
        if lines <= _MOST_CURVES:
            return curves(chosen, x, _RULERS.get(x, x), evidence, published)
    elif chosen["kernel"].nunique() == 1 and chosen[["block_x", "block_y"]].drop_duplicates().shape[0] > 1:
        return sweep(chosen, "choice", "threads of a block, x × y", evidence)
    if len(chosen[["kernel", *evidence.choice]].drop_duplicates()) > 3:
        return points(rows, evidence)
    return rates(rows, evidence)


#: What the axis of a parameter says; another parameter's says its name.
_RULERS = {"tile": "tile: width in elements", "ntb": "ntb: tiles per block"}


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
