"""What figures share: the look of each kernel, panels, marks, bars, maps and a legend.

One visual language: a kernel keeps its colour and its marker in every figure, a larger mark is a larger product, and
libraries are grey stars. The colours can be told apart by colour-blind readers, and the figures can also be read in
black and white.
"""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import NullFormatter
from matplotlib.transforms import Affine2D

from tilewise.evidence import Evidence
from tilewise.explain.number_format import rounded
from tilewise.report.svg import GREY, set_tooltips

#: Colours that can be told apart by colour-blind readers, on white and on black; grey is for libraries.
COLOURS = "#0173b2 #c46a00 #029e73 #d0507a #8a6fd1 #8c6d3f #1f9fc4 #b04a2f #6f8f1f".split()
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "<", ">"]
#: The points and the angles of the stars of libraries, which are larger than other marks, because they are slim.
_POINTS: list[Any] = ["*", (4, 1, 0), (6, 1, 0), (8, 1, 0), (12, 1, 0), (7, 1, 0), (4, 1, 45), (5, 1, 180)]
_STARS = [MarkerStyle(points, transform=Affine2D().scale(1.5)) for points in _POINTS]
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


class NothingToShow(Exception):
    """No rows are left for a figure."""


def look(kernel: str, evidence: Evidence) -> dict[str, Any]:
    """The colour and the marker of a kernel, the same in every figure; libraries are grey stars."""
    names = list(dict.fromkeys([*LOOKS, *evidence.kernels, kernel]))
    if kernel in evidence.libraries:
        place = [name for name in names if name in evidence.libraries].index(kernel)
        return {"color": GREY, "marker": _STARS[place % len(_STARS)]}
    place = names.index(kernel)
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]}


def looks(rows: pd.DataFrame, evidence: Evidence) -> dict[str, Any]:
    """The arguments by which seaborn draws each kernel of these rows in its look, in the order of the registry."""
    present = set(rows["kernel"])
    names = [name for name in dict.fromkeys([*evidence.kernels, *rows["kernel"]]) if name in present]
    found = [look(name, evidence) for name in names]
    colours = {"hue": "kernel", "hue_order": names, "palette": [each["color"] for each in found]}
    return colours | {"style": "kernel", "style_order": names, "markers": [each["marker"] for each in found]}


def described(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the further columns that all figures have.

    `said` is the tooltip of a row: its kernel, choice, type, product and rate, as far as it has them. With rates come
    `tflops`, and `rate` in `rate_unit`, which is GFLOP/s for CPU loops and TFLOP/s otherwise.
    """
    named = rows[[name for name in ("kernel", "choice", "dtype", "shape") if name in rows]].fillna("")
    said = [", ".join(filter(None, row)) for row in named.to_numpy()]
    added: dict[str, Any] = {}
    if "gflops" in rows:
        unit, large = ("TFLOP/s", 1000) if rows["gflops"].max() >= 100 else ("GFLOP/s", 1)  # no CPU loop is that fast
        added |= {"tflops": rows["gflops"] / 1000, "rate": rows["gflops"] / large, "rate_unit": unit}
        said = [f"{words}: {rounded(rate)} {unit}" for words, rate in zip(said, added["rate"].astype("float64"))]
    return rows.assign(**added, said=pd.Series(said, rows.index, dtype="object"))


def facets(
    rows: pd.DataFrame, by: Sequence[str], evidence: Evidence, y: str = "", *,
    width: float = 7.6, height: float = 1.3, line: float = 0.0, columns: int = 1,
) -> tuple[Figure, list[tuple[Any, pd.DataFrame]]]:  # fmt: skip
    """A figure with a panel for each group of rows, and the panels with their rows; its group is a panel's title.

    The first of the columns `by` is the platform. A panel is `height` inches high and `line` inches more for each
    value of the column y, or for each line of their text. Raises NothingToShow if there are no rows.
    """
    if rows.empty:
        raise NothingToShow
    groups = list(rows.groupby([*by], sort=False))
    across = min(len(groups), columns)
    parts = [part for _, part in groups[::across]]
    lines = [line * part[y].nunique() * (1 + part[y].str.count("\n").max()) if y else 0 for part in parts]
    figure = Figure(figsize=(width, height * len(lines) + sum(lines)), layout="constrained")
    ratios = [0.25 + each for each in lines]
    axes = figure.subplots(len(lines), across, squeeze=False, height_ratios=ratios).ravel()
    for axis, ((platform, *keys), _) in zip(axes, groups):
        machine = textwrap.fill(evidence.labels[platform], int(9 * width))  # so many letters fit
        axis.set_title("\n".join(filter(None, [machine, ", ".join(keys)])))
    for spare in axes[len(groups) :]:
        spare.remove()
    return figure, [(axis, part) for axis, (_, part) in zip(axes, groups)]


def marks(axis: Any, rows: pd.DataFrame, x: str, y: str, **options: Any) -> None:
    """seaborn's scatterplot, with the column `said` as tooltips; rows without x or y have no mark."""
    sns.scatterplot(rows, x=x, y=y, ax=axis, zorder=3, **options)
    for points in axis.collections:
        set_tooltips(points, rows.dropna(subset=[x, y])["said"])


def hollow(axis: Any, chosen: Any) -> None:
    """Let those of the marks of a panel that are `chosen` (a flag for each) be rings of their colour."""
    [points] = axis.collections
    colours = points.get_facecolors()
    points.set(edgecolor=colours, facecolor=np.where(np.reshape(chosen, (-1, 1)), 0, colours), linewidth=1)


def bars(axis: Any, rows: pd.DataFrame, **options: Any) -> None:
    """seaborn's barplot of the rates of kernels, each of one row, with the column `said` as tooltips."""
    sns.barplot(rows, x="tflops", y="kernel", errorbar=None, saturation=1, width=0.72, ax=axis, **options)
    for bar, words in zip(axis.patches, rows["said"], strict=True):
        set_tooltips(bar, [words])
    axis.set(xlabel="TFLOP/s", ylabel="")
    write_beside(axis, range(len(rows)), rows["tflops"].map(rounded))


def heat(axis: Any, rows: pd.DataFrame, y: str, x: str, value: str) -> None:
    """seaborn's heatmap of the logarithm of a value over the columns x and y; its words are the value."""
    table = rows.groupby([y, x])[value].max().unstack().loc[rows[y].unique()].astype("float64").replace(0, np.nan)
    far = max(0.3, np.log10(table).abs().max(axis=None))
    # Light enough for words that are not the black of the page's, which a dark page makes white.
    colours = sns.diverging_palette(275, 40, s=95, l=68, as_cmap=True)
    words: dict[str, Any] = {"annot": table.map(rounded), "fmt": "", "annot_kws": {"size": "small", "color": "#010101"}}
    sns.heatmap(np.log10(table), cmap=colours, vmin=-far, vmax=far, cbar=False, **words, ax=axis)
    axis.set_ylabel("")
    axis.grid(visible=False)


def write_beside(axis: Any, places: Iterable[float], words: Iterable[str]) -> None:
    """Small words right of the panel at these heights, where no line crosses them."""
    for place, said in zip(places, words):
        axis.text(1.02, place, said, transform=axis.get_yaxis_transform(), va="center", fontsize="small")


def log_scale(axis: Any, *names: str) -> None:
    """Make axes logarithmic; their numbers have no raised exponents, whose letters would be too small on a phone."""
    for name in names:
        axis.set(**{f"{name}scale": "log"})
        getattr(axis, f"{name}axis").set(major_formatter="{x:,g}", minor_formatter=NullFormatter())


def legend(figure: Figure, evidence: Evidence, columns: int) -> None:
    """Put one legend below all panels instead of theirs: each entry once, kernels in the registry's order."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        axis.legend().remove()
    names = [name for name in dict.fromkeys([*evidence.kernels, *entries]) if name in entries]
    place: Any = {"loc": "outside lower center", "columnspacing": 1.2, "handlelength": 1.5}
    for count in range(min(columns, len(names)), 0, -1):  # another machine may have other letters, which are wider
        made = figure.legend([entries[name] for name in names], names, ncols=count, **place)
        if count == 1 or made.get_window_extent().width < 0.92 * figure.bbox.width:
            return
        made.remove()
