"""Elements shared by all figures: panels, titles, legends, labels, and the style of each kernel.

One visual language: a kernel keeps its colour and its marker in every figure, a larger mark is a larger product, and
libraries are grey stars. The colours can be told apart by colour-blind readers, and the figures can also be read in
black and white.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import textalloc
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from tilewise.evidence import Evidence
from tilewise.report.svg import GREY

#: Colours that can be told apart by colour-blind readers, on white and on black; grey is for libraries.
COLOURS = "#0173b2 #c46a00 #029e73 #d0507a #8a6fd1 #8c6d3f #1f9fc4 #b04a2f #6f8f1f".split()
#: The star is for libraries.
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "<", ">"]
#: What parts points that lie on each other.
EDGE = {"edgecolor": "white", "linewidth": 0.5}
#: A legend has so many entries at most; more lines are labelled where they end.
MOST_ENTRIES = 4


def look(kernel: str, evidence: Evidence, places: Sequence[str]) -> dict[str, Any]:
    """The colour and the marker of a kernel, the same in every figure; libraries are grey stars.

    It keeps them when others join: they follow from its place in `places`, behind which the other kernels of the
    registry come.
    """
    if kernel in evidence.libraries:
        return {"color": GREY, "marker": "*"}
    place = list(dict.fromkeys([*places, *evidence.kernels, kernel])).index(kernel)
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]}


def panels(count: int, width: float = 7.6, height: float = 3.4, columns: int = 2, **options: Any) -> Any:
    """A figure with so many panels of this height in inches, and their axes."""
    columns = min(count, columns)
    lines = -(-count // columns)
    figure = Figure(figsize=(width, height * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **options).ravel()
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def titles(figure: Any, axes: Any, words: Sequence[str], platforms: Sequence[str], evidence: Evidence) -> None:
    """Title each panel with its platform, if there are any, and its words; a platform of all panels is named once.

    Where only recorded platforms are shown, and several, their names do without the date.
    """
    shown, recorded = set(platforms), {gpu.name for gpu in evidence.gpus if gpu.recorded}
    known = evidence.names if len(shown) > 1 and shown <= recorded else evidence.labels
    labels = [known[platform] for platform in platforms] or [""] * len(axes)
    if len(axes) > 1 and len(shown) == 1:
        figure.suptitle(labels[0], fontsize="medium")
        labels = [""] * len(axes)
    narrow = len({axis.get_subplotspec().colspan.start for axis in axes}) > 1
    for axis, said, label in zip(axes, words, labels, strict=True):
        label = label.replace(", recorded", "\nrecorded") if narrow else label
        axis.set_title("\n".join(filter(None, [label, said])))


def legend(figure: Any, axes: Iterable[Any], columns: int, order: Iterable[str] = (), **options: Any) -> None:
    """Put one legend of all panels below them, each entry once; the panels' own legends go."""
    entries: dict[str, Any] = {}
    for axis in axes:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        if axis.get_legend():
            axis.get_legend().remove()
    legend_of(figure, {words: entries[words] for words in (*order, *entries) if words in entries}, columns, **options)


def legend_of(figure: Any, entries: Mapping[str, Any], columns: int, **options: Any) -> None:
    """Put a legend (words -> handle) below all panels, in so many columns at most that the figure is wide enough."""
    for count in range(min(columns, len(entries)), 0, -1):
        place = {"loc": "outside lower center", "ncols": count}
        legend = figure.legend(entries.values(), entries.keys(), **place, **options)
        # Another machine may have other letters, which are wider.
        if count == 1 or legend.get_window_extent().width < 0.92 * figure.bbox.width:
            return
        legend.remove()


def own_legend(axis: Any, columns: int = 1, title: str | None = None) -> None:
    """Put the legend below its panel, where it does not hide anything; each entry once."""
    handles, labels = axis.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    if entries:
        lines = max((label.get_text().count("\n") for label in axis.get_xticklabels()), default=0)
        # Inches: under the words of the axis.
        below = ScaledTranslation(0, -0.42 - 0.15 * lines, axis.figure.dpi_scale_trans)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": axis.transAxes + below}
        axis.legend(entries.values(), entries.keys(), title=title, ncols=columns, **place)


def areas(names: Sequence[Any]) -> dict[Any, float]:
    """The area of the marks of each name in square points: names come from the smallest product to the largest."""
    return dict(zip(names, np.geomspace(22, 90, len(names)) if len(names) > 1 else [42.0]))


def legend_of_sizes(figure: Any, sizes: Mapping[Any, float], title: str) -> None:
    """Say below all panels what the sizes of the marks mean: of many sizes, the smallest and the largest."""
    names = list(sizes)
    shown = names if len(names) <= MOST_ENTRIES else [names[0], names[-1]]
    grey: dict[str, Any] = {"color": GREY, "marker": "o", "linestyle": "none"}
    words = {name: name if isinstance(name, str) else f"{name:,}" for name in shown}
    entries = {words[name]: Line2D([], [], markersize=math.sqrt(sizes[name]), **grey) for name in shown}
    said = f"{title}: from the least to the largest" if len(shown) < len(names) else title
    legend_of(figure, entries, MOST_ENTRIES, title=said)


def write_beside(axis: Any, places: Iterable[float], words: Iterable[str], heading: str = "") -> None:
    """Words in a column right of the panel, where no line crosses them; their heading is above."""
    at = {"xycoords": axis.get_yaxis_transform(), "va": "center", "fontsize": "small", "annotation_clip": False}
    for place, word in zip(places, words):
        axis.annotate(word, (1.02, place), **at)
    if heading:
        above = {"xycoords": "axes fraction", "va": "bottom", "fontsize": "small", "color": GREY}
        axis.annotate(heading, (1.02, 1.01), annotation_clip=False, **above)


def settle(figure: Any) -> None:
    """Give the panels their places, which they keep: before, no slope and no distance in pixels is known."""
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")


def label_points(figure: Any, axis: Any, points: Iterable[tuple[float, float, str]]) -> None:
    """Write the words of points (x, y, words) beside them where there is room, the first first; after `settle`."""
    axis.autoscale(False)
    marks: list[Any] = [
        np.ma.filled(np.ma.asarray(own.get_offsets(), dtype="float64"), np.nan) for own in axis.collections
    ]
    pixels = [np.sqrt(own.get_sizes()) / 2 * figure.dpi / 72 for own in axis.collections]
    x, y, words = (list(each) for each in zip(*points))
    lines = [
        (line.get_xdata(), line.get_ydata() if line.get_transform() == axis.transData else axis.get_ylim())
        for line in axis.lines  # others are upright and as high as the panel
    ]
    places = dict(zip(("x_scatter", "y_scatter"), np.concatenate(marks).T))
    places["scatter_sizes"] = np.concatenate([np.broadcast_to(half, len(own)) for half, own in zip(pixels, marks)])
    places |= dict(zip(("x_lines", "y_lines"), ([*each] for each in zip(*lines))))
    textalloc.allocate(
        axis, x, y, words, **places, textsize=FontProperties(size="small").get_size_in_points(), draw_all=False,
        margin=0.004, min_distance=0.015, max_distance=0.12, linecolor=GREY, linewidth=0.6,
        avoid_label_lines_overlap=True, avoid_crossing_label_lines=True,
    )  # fmt: skip
