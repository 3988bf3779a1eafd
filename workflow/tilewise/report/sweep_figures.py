"""The figure of a task that sweeps: lines over what it varies, or the rates of its points.

A ring marks a point whose runs lie farther from its time than the config's max_noise_percent; a cross on the axis
marks a point that did not run.
"""

import collections
import math
import textwrap

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import choice_text
from tilewise.report import figure_rows, plots
from tilewise.report.plots import facets, look, marks
from tilewise.report.svg import set_tooltips
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status

#: A panel has so many lines at most, and a figure of points so many names; more cannot be told apart.
_MOST_LINES, _MOST_NAMES = 8, 40
#: Rates that are so many times as high as others have a logarithmic axis.
_FAR_APART = 50
#: A name has a line break after at most so many letters.
_LETTERS = 48
#: What the axis of a parameter says; another parameter's says its name.
_RULERS = {"tile": "tile: width in elements", "ntb": "ntb: tiles per block", "choice": "threads of a block, x × y"}
#: What parts lines of the same kernel.
_DASHES = ["-", (0, (6, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2))]


def draw(timed: pd.DataFrame, evidence: Evidence) -> Figure:
    """The figure of the described rows of a sweep: over a parameter, over the shape of the block, or of its points."""
    chosen = timed[~timed["anchor"]]
    if x := _varied(chosen, evidence):
        chosen = chosen[chosen[x].notna()]
        others = [choice_text(row, evidence.kernels, without=(x, "block")) for row in chosen.to_dict("records")]
        chosen = chosen.assign(others=others)
        lines_of = timings.largest(chosen).groupby(["platform", "dtype"])[["kernel", "others"]]
        if lines_of.apply(lambda own: len(own.drop_duplicates())).max() <= _MOST_LINES:
            return lines(figure_rows.described(chosen, evidence), x, evidence)
    return points(with_labels(timed, evidence), evidence)


def _varied(rows: pd.DataFrame, evidence: Evidence) -> str | None:
    """What a figure of these rows runs over: the parameter with the most values, or the `choice` of the block's shape.

    Every kernel has three values of the parameter at one product, so that there are lines to compare.
    """
    found = {}
    for name in evidence.parameters:
        values = rows.groupby(["kernel", *SHAPE])[name].nunique().groupby("kernel").max()
        if len(values) and values.min() >= 3:
            found[name] = rows[name].nunique()
    blocks = rows["kernel"].nunique() == 1 and len(rows[["block_x", "block_y"]].drop_duplicates()) > 1
    return max(found, key=lambda name: found[name], default="choice" if blocks else None)


def lines(rows: pd.DataFrame, x: str, evidence: Evidence) -> Figure:
    """The rate over the values of x, at equal distances: a panel for each type, a line for each kernel, product and
    choice of the `others`, the other parameters, in a panel of too many only those of the largest product."""
    values, unit = plots.order(rows[x]), rows["rate_unit"].iloc[0]
    several = rows["kernel"].nunique() > 1
    told = zip(rows["kernel"] if several else [""] * len(rows), rows["shape"], rows["others"])
    names = [", ".join(filter(None, name)) for name in told]
    rows = rows.assign(line=names, title=rows["dtype"] if several else rows["kernel"] + ", " + rows["dtype"])
    area = dict(zip(shapes := figure_rows.by_size(rows), figure_rows.areas(pd.Series(range(len(shapes))))))
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", height=2.9, width=8.8 if several else 6.6)
    for axis, part in parts:
        part = timings.largest(part) if part["line"].nunique() > _MOST_LINES else part
        drawn = collections.Counter[str]()
        for name, own in part.groupby("line", sort=False):
            kernel = own["kernel"].iloc[0]
            dashes, drawn[kernel] = _DASHES[drawn[kernel] % len(_DASHES)], drawn[kernel] + 1
            ran = own[own["status"] == Status.OK].sort_values(x, key=lambda column: column.map(values.index))
            style = look(kernel, evidence) | {"linestyle": dashes, "linewidth": 1.2, "label": name}
            style["markersize"] = 0.8 * math.sqrt(area[own["shape"].iloc[0]])
            [line] = axis.plot(ran[x].map(values.index), ran["rate"], **style, markeredgecolor="white")
            said = zip(ran[x], ran["rate"])
            set_tooltips(line, [f"{name}, {x} {value}: {rounded(rate)} {unit}" for value, rate in said])
        most = 100 * evidence.max_noise
        far = part[(part["status"] == Status.OK) & (timings.range_percent(part) > most)]
        if len(far):
            ring = {"s": 110, "facecolors": "none", "edgecolors": "black", "label": f"± more than {most:g} %"}
            axis.scatter(far[x].map(values.index), far["rate"], zorder=5, **ring)
        failed = part.loc[part["status"] != Status.OK, x].map(values.index)
        if len(failed):
            axis.scatter(failed, 0 * failed, marker="x", color="black", clip_on=False, zorder=5, label="did not run")
        # The words of a block are wider than the distance of two ticks.
        axis.set_xticks(range(len(values)), values, rotation=90 if any("×" in str(value) for value in values) else 0)
        axis.set(xlabel=_RULERS.get(x, x), ylabel=unit, xlim=(-0.4, len(values) - 0.6))
        axis.set_ylim(bottom=0)
        axis.legend(loc="upper left", bbox_to_anchor=(1.02, 1), title="(n, m, p)")
    return figure


def with_labels(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Described points of a sweep; `label` is their row: kernel and choice, of very many choices only the fastest.

    `area` is that of a mark, the larger the larger the product. A point without a rate has its status in its label.
    """
    case = rows.groupby(["platform", "dtype", "kernel", *SHAPE])
    asked = {"block": "block_x"} | {name: name for name in evidence.parameters}
    told = {name: set(rows.loc[case[column].transform("nunique") > 1, "kernel"]) for name, column in asked.items()}
    words = []
    for row in rows.to_dict("records"):  # those parameters only that tell rows of the same case apart
        without = [name for name, kernels in told.items() if row["kernel"] not in kernels]
        name = f"{row['kernel']} {choice_text(row, evidence.kernels, without=without)}".strip()
        words.append(textwrap.fill(name + f": {row['status']}" * (row["status"] != Status.OK), _LETTERS))
    places = {shape: place for place, shape in enumerate(figure_rows.by_size(rows))}
    rows, found = rows.assign(label=words, area=figure_rows.areas(rows["shape"].map(places))), []
    for (_, dtype), part in rows.groupby(["platform", "dtype"], sort=False):
        best = part.groupby("label", sort=False)["gflops"].max()
        many = f", the fastest {_MOST_NAMES} of {len(best)}" if len(best) > _MOST_NAMES else ""
        kept = part[part["label"].isin(best.nlargest(_MOST_NAMES).index)] if many else part
        found.append(kept.assign(title=f"{dtype}{many}"))
    return figure_rows.described(pd.concat(found), evidence)


def points(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rates of many points, a row of a panel per kernel and choice; a larger mark is a larger product."""
    figure, parts = facets(rows, ["platform", "dtype"], evidence, "title", "label", height=1.4, line=0.22, width=8.0)
    for axis, part in parts:
        marks(axis, part, "rate", "label", evidence)
        axis.set_xlabel(rows["rate_unit"].iloc[0])
        least, most = part["rate"].min(), part["rate"].max()
        if most > _FAR_APART * least > 0:
            plots.log_scale(axis, part["rate"], steps=[1])
            axis.set_xlim(0.5 * least, 2 * most)
        elif most > 0:
            axis.xaxis.set(major_locator=MaxNLocator(4), major_formatter="{x:,.10g}")
            axis.set_xlim(0, 1.05 * most)
    plots.legend_of_areas(figure, rows)
    return figure
