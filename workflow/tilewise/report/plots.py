"""What figures share: panels, bars, marks, maps, labels and legends, and the look of each kernel.

One visual language: a kernel keeps its colour and its marker in every figure, a larger mark is a larger product, and
libraries are grey stars. The colours can be told apart by colour-blind readers, and the figures can also be read in
black and white.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import textalloc
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from tilewise.evidence import Evidence
from tilewise.explain.number_format import rounded
from tilewise.report.svg import GREY, set_tooltips, settle

#: Colours that can be told apart by colour-blind readers, on white and on black; grey is for libraries.
COLOURS = "#0173b2 #c46a00 #029e73 #d0507a #8a6fd1 #8c6d3f #1f9fc4 #b04a2f #6f8f1f".split()
#: The star is for libraries.
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "<", ">"]
#: The kernels in the order in which they got their colour and marker. A new one may go to the end; until then it comes
#: after these, in the registry's order.
LOOKS = """
    naive tiled multi_tile multi_tile_unbounded tiled_inner_test without_barriers parallel_k tiled_exact dynamic_tile
    matrix_struct naive_transposed tiled_transposed register_tile vector_loads warp_tile pipelined async_copies tma_ring
    transposing_ring stream_k dmma dmma_pipelined mma_sync wgmma warp_specialised clusters three_tf32 float_from_bf16
    float_from_half triton triton_tf32 triton_tf32x3 cublas cublas_tf32 cublas_bf16 cublas_half kij ijk ikj jik jki kji
    blocked numpy wgmma_int8 double_from_int8 cublas_int8 float_always triton_persistent triton_persistent_tf32
    gluon_blocked gluon_persistent numba_naive numba_tiled cutile cutile_tf32 cutile_persistent cutile_persistent_tf32
    warp_naive warp_tiled warp_tiled_tf32 cute_naive batched_ring batched_wgmma cublas_emulated cute_registers cute_ring
    cublas_best dmma_ring wgmma_tf32 double_always split_sums dmma_split mma_split wgmma_split
    wgmma_turns wgmma_int8_turns transposing_int8
""".split()
#: A legend has so many entries at most; more lines are labelled where they end.
MOST_ENTRIES = 4
#: A star is slim: its area is so many times that of another mark.
_STAR = 2.2


def look(kernel: str, evidence: Evidence) -> dict[str, Any]:
    """The colour and the marker of a kernel, the same in every figure; libraries are grey stars."""
    if kernel in evidence.libraries:
        return {"color": GREY, "marker": "*"}
    place = list(dict.fromkeys([*LOOKS, *evidence.kernels, kernel])).index(kernel)
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]}


def order(column: pd.Series) -> list[Any]:
    """The values of a column in their order: that of its categories, that of numbers, or in which they occur."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.cat.categories)
    return sorted(column.unique()) if pd.api.types.is_numeric_dtype(column) else list(dict.fromkeys(column))


# ---- Panels ----------------------------------------------------------------------------------------------------------
def facets(
    rows: pd.DataFrame, by: Sequence[str], evidence: Evidence, title: str = "", lines: str = "", *,
    width: float = 7.6, height: float = 1.3, line: float = 0.0, columns: int = 1, **options: Any,
) -> tuple[Figure, list[tuple[Any, pd.DataFrame]]]:  # fmt: skip
    """A figure with a panel for each group of rows, and the panels with their rows.

    A panel's title has its platform and the column `title`. A panel is `height` inches high and `line` inches more for
    each row, or for each line of text in the values of the column `lines`.
    """
    parts = [part for _, part in rows.groupby([*by], sort=False)]
    counts = [sum(1 + str(each).count("\n") for each in part[lines].unique()) if lines else len(part) for part in parts]
    across = min(len(parts), columns)
    heights = [line * count for count in counts[::across]]
    figure = Figure(figsize=(width, sum(height + each for each in heights)), layout="constrained")
    ratios = [0.25 + each for each in heights]
    axes = figure.subplots(len(heights), across, squeeze=False, height_ratios=ratios, **options).ravel()
    for spare in axes[len(parts) :]:
        spare.remove()
    for axis, part in zip(axes, parts):
        first = part.iloc[0]
        axis.set_title("\n".join([evidence.labels[first["platform"]], *([first[title]] if title else [])]).strip())
    return figure, list(zip(axes, parts))


def limit(axis: Any, at: float, **style: Any) -> None:
    """An upright line, if its place is known; it lies behind the bars, which cover it if they pass it."""
    if pd.notna(at):
        axis.axvline(at, **{"color": "black", "linewidth": 1.3, "linestyle": "--", "zorder": 0.9} | style)


def log_scale(axis: Any, values: pd.Series, name: str = "x", steps: Sequence[float] = ()) -> None:
    """Make an axis of these values logarithmic, if one is positive; `steps` are the multiples of ten with a number.

    Numbers have no exponents above their line, whose letters would be too small on a phone.
    """
    if (values > 0).any():
        axis.set(**{f"{name}scale": "log"})
        getattr(axis, f"{name}axis").set(major_formatter="{x:g}")
        if steps:
            getattr(axis, f"{name}axis").set(major_locator=LogLocator(subs=steps), minor_formatter=NullFormatter())


# ---- Marks -----------------------------------------------------------------------------------------------------------
def name_rows(axis: Any, names: Sequence[str]) -> None:
    """Give a panel a row for each name, the first at the top."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)


def bars(
    axis: Any, rows: pd.DataFrame, x: str, unit: str, names: Sequence[str], hatch: str = "", said: str = "",
    **style: Any,
) -> None:  # fmt: skip
    """Horizontal bars as long as the column x, a row of the panel each.

    The column `hatch` says which are hatched. The tooltip is the column `said`, or the row's name and its number.
    """
    if hatch:
        style |= {"hatch": ["///" if each else "" for each in rows[hatch]], "edgecolor": "white", "linewidth": 0}
    numbers = rows[x].to_numpy(dtype="float64")
    words = rows[said] if said else [f"{name}: {rounded(number)} {unit}" for name, number in zip(names, numbers)]
    for bar, tooltip in zip(axis.barh(range(len(rows)), numbers, **style), words, strict=True):
        set_tooltips(bar, [tooltip])
    name_rows(axis, names)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel(unit)


def ticks(axis: Any, rows: pd.DataFrame, x: str, label: str, words: Sequence[str]) -> None:
    """Ticks in the rows of a panel, one for each number of a column; `words` have it as {}."""
    known = rows[x].reset_index(drop=True).dropna()
    if len(known):
        look = {"marker": "|", "s": 190, "color": "black", "linewidth": 1.8, "zorder": 4}
        drawn = axis.scatter(known, known.index, label=label, **look)
        set_tooltips(drawn, [words[place].format(rounded(number)) for place, number in known.items()])


def colours(rows: pd.DataFrame, evidence: Evidence) -> list[str]:
    """The colours of the kernels of rows."""
    return [look(kernel, evidence)["color"] for kernel in rows["kernel"]]


def marks(axis: Any, rows: pd.DataFrame, x: str, y: str, evidence: Evidence, area: float = 45) -> None:
    """Marks in the look of their kernels, with the column `said` as tooltips; y is a number, or a name with a row.

    Small marks lie upon large ones: a column `area` has square points.
    """
    names, rows = order(rows[y]), rows.assign(area=rows.get("area", area))[rows[x].notna()]
    if not pd.api.types.is_numeric_dtype(rows[y]):
        name_rows(axis, names)
        rows[y] = [names.index(name) for name in rows[y]]
    rows = rows.sort_values("area", ascending=False, kind="stable")
    for (area, kernel), own in rows.groupby(["area", "kernel"], sort=False, observed=True):
        style = look(kernel, evidence) | {"label": kernel}
        area *= _STAR if style["marker"] == "*" else 1
        style |= {"edgecolor": "white", "linewidth": 0.5}  # what parts points that lie on each other
        set_tooltips(axis.scatter(own[x], own[y], s=area, zorder=3, **style), own["said"])


def heat(axis: Any, rows: pd.DataFrame, y: str, x: str, value: str, unit: str) -> None:
    """A map of the columns x and y, whose colour is the logarithm of a value and whose words are the value."""
    table = rows.pivot_table(index=y, columns=x, values=value, aggfunc="max", observed=True)
    # pivot_table leaves out a row without numbers.
    down, across = ([each for each in order(rows[name]) if each in set(rows[name])] for name in (y, x))
    numbers = table.reindex(index=down, columns=across).to_numpy(dtype="float64")
    shown = np.log10(numbers)
    far = max(0.3, np.nanmax(np.abs(shown)))
    axis.imshow(shown, aspect="auto", cmap="PuOr_r", vmin=-far, vmax=far)
    for (row, column), number in np.ndenumerate(numbers):
        if np.isfinite(number):
            # White on what is dark, which follows from the colour map's ends.
            colour = "white" if abs(np.log10(number)) > 0.62 * far else "#010101"
            axis.text(column, row, rounded(number), ha="center", va="center", fontsize="small", color=colour)
    axis.set_yticks(range(len(down)), down)
    axis.set_xticks(range(len(across)), [str(name).replace(", ", ",\n") for name in across])
    axis.set_xlabel(unit)
    axis.grid(visible=False)


# ---- Words -----------------------------------------------------------------------------------------------------------
def write_beside(axis: Any, words: Iterable[str], heading: str = "") -> None:
    """Words for each row in a column right of the panel, where no line crosses them; their heading is above."""
    for place, said in enumerate(words):
        write_at(axis, said, (1.02, place), axis.get_yaxis_transform(), color="black")
    write_at(axis, heading, (1.02, 1.01), va="bottom")


def write_at(axis: Any, words: str, place: tuple[float, float], of: Any = "axes fraction", **style: Any) -> None:
    """Small grey words, which may lie outside the panel; `of` is what their place is relative to."""
    style = {"va": "center", "fontsize": "small", "color": GREY} | style
    axis.annotate(words, place, xycoords=of, annotation_clip=False, **style)


def label_points(figure: Any, parts: Iterable[tuple[Any, pd.DataFrame]], x: str, y: str) -> None:
    """Name the kernels of points that have a `rank`, where there is room, the first first; the panels are complete."""
    settle(figure)
    for axis, part in parts:
        first = part[part["rank"].notna()].sort_values("rank")
        axis.autoscale(False)
        marks: list[Any] = [np.ma.filled(np.ma.asarray(own.get_offsets(), float), np.nan) for own in axis.collections]
        pixels = [np.sqrt(own.get_sizes()) / 2 * figure.dpi / 72 for own in axis.collections]
        lines = [
            (line.get_xdata(), line.get_ydata() if line.get_transform() == axis.transData else axis.get_ylim())
            for line in axis.lines  # others are upright and as high as the panel
        ]
        places = dict(zip(("x_scatter", "y_scatter"), np.concatenate(marks).T))
        places["scatter_sizes"] = np.concatenate([np.broadcast_to(half, len(own)) for half, own in zip(pixels, marks)])
        places |= dict(zip(("x_lines", "y_lines"), ([*each] for each in zip(*lines))))
        textalloc.allocate(
            axis, [*first[x]], [*first[y]], [*first["kernel"]], **places, linecolor=GREY, linewidth=0.6,
            textsize=FontProperties(size="small").get_size_in_points(), draw_all=False, margin=0.004,
            min_distance=0.015, max_distance=0.12, avoid_label_lines_overlap=True, avoid_crossing_label_lines=True,
        )  # fmt: skip


# ---- Legends ---------------------------------------------------------------------------------------------------------
def legend(figure: Any, columns: int) -> None:
    """Put one legend of all panels below them, each entry once."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    legend_of(figure, entries, columns)


def legend_of(figure: Any, entries: Mapping[str, Any], columns: int, **options: Any) -> None:
    """Put a legend (words -> handle) below all panels, in so many columns at most that the figure is wide enough."""
    for count in range(min(columns, len(entries)), 0, -1):
        place = {"loc": "outside lower center", "ncols": count, "columnspacing": 1.2, "handlelength": 1.5}
        legend = figure.legend(entries.values(), entries.keys(), **place, **options)
        # Another machine may have other letters, which are wider.
        if count == 1 or legend.get_window_extent().width < 0.92 * figure.bbox.width:
            return
        legend.remove()


def legend_of_areas(figure: Any, rows: pd.DataFrame) -> None:
    """Say below all panels what the areas of the marks mean: of many shapes, the smallest and the largest."""
    areas, title = rows.groupby("shape", observed=True)["area"].first(), "(n, m, p)"
    if len(areas) > MOST_ENTRIES:
        areas, title = areas.iloc[[0, -1]], f"{title}: from the least to the largest"
    look: dict[str, Any] = {"color": GREY, "marker": "o", "linestyle": "none"}
    entries = {shape: Line2D([], [], markersize=math.sqrt(area), **look) for shape, area in areas.items()}
    legend_of(figure, entries, MOST_ENTRIES, title=title)
