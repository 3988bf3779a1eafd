"""The figure of a task that sweeps: lines over what it varies, or the rates of its points.

A ring marks a point whose runs lie farther from its time than the config's max_noise_percent; a cross on the axis
marks a point that did not run.
"""

import textwrap

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import choice_text
from tilewise.report.plots import described, facets, log_scale, look, looks, marks
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
_DASHES = ["", (6, 1.5), (2, 1), (6, 1.5, 1, 1.5), (1, 1.2)]


def draw(timed: pd.DataFrame, evidence: Evidence) -> Figure:
    """The figure of the described rows of a sweep: over a parameter, over the shape of the block, or of its points."""
    chosen = timed[~timed["anchor"]]
    if x := _varied(chosen, evidence):
        chosen = chosen[chosen[x].notna()]
        others = [choice_text(row, evidence.kernels, without=(x, "block")) for row in chosen.to_dict("records")]
        chosen = chosen.assign(others=others)
        lines_of = timings.largest(chosen).groupby(["platform", "dtype"])[["kernel", "others"]]
        if lines_of.apply(lambda own: len(own.drop_duplicates())).max() <= _MOST_LINES:
            return lines(described(chosen), x, evidence)
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


def _size(rows: pd.DataFrame) -> pd.Series:
    """The place of each product among all, by its operations: 1 is the largest."""
    return rows[SHAPE].astype("float64").prod(axis=1).rank(method="dense", pct=True)


def lines(rows: pd.DataFrame, x: str, evidence: Evidence) -> Figure:
    """The rate over the values of x, at equal distances: a panel for each type, a line for each kernel, product and
    choice of the `others`, the other parameters, in a panel of too many only those of the largest product."""
    values, unit = rows[x].unique() if x == "choice" else sorted(rows[x].unique()), rows["rate_unit"].iloc[0]
    told = zip(rows["kernel"], rows["shape"], rows["others"])
    rows = rows.assign(
        line=[", ".join(filter(None, name)) for name in told],
        value=pd.Categorical(rows[x].astype("str"), [str(value) for value in values]),
        size=_size(rows),
        far=timings.range_percent(rows) > 100 * evidence.max_noise,
    )
    figure, parts = facets(rows, ["platform", "dtype"], evidence, height=2.9, width=8.8)
    for axis, part in parts:
        part = timings.largest(part) if part["line"].nunique() > _MOST_LINES else part
        ran = part[part["status"] == Status.OK]
        kernels = ran.drop_duplicates("line")["kernel"]
        shown = [look(kernel, evidence) for kernel in kernels]
        style = {
            "palette": [each["color"] for each in shown],
            "markers": [each["marker"] for each in shown],
            "dashes": [_DASHES[place % len(_DASHES)] for place in kernels.groupby(kernels).cumcount()],
        }
        if shown:
            once = {"estimator": None, "errorbar": None, "linewidth": 1.2, "legend": False}
            sns.lineplot(ran, x="value", y="rate", hue="line", style="line", **style, **once, ax=axis)
        for line, (name, own) in zip(axis.lines, ran.groupby("line", sort=False)):
            line.set(label=name, markersize=3 + 4.5 * own["size"].iloc[0])
            said = own.sort_values("value")[["value", "rate"]].to_numpy()
            set_tooltips(line, [f"{name}, {x} {value}: {rounded(rate)} {unit}" for value, rate in said])
        if len(far := ran[ran["far"]]):
            ring = {"s": 110, "facecolors": "none", "edgecolors": "black"}
            axis.scatter(
                far["value"], far["rate"], zorder=5, label=f"± more than {100 * evidence.max_noise:g} %", **ring
            )
        if len(failed := part[part["status"] != Status.OK]):
            cross = {"marker": "x", "color": "black", "clip_on": False, "zorder": 5}
            axis.scatter(failed["value"], [0] * len(failed), label="did not run", **cross)
        # The words of a block are wider than the distance of two ticks.
        axis.tick_params(axis="x", rotation=90 if x == "choice" else 0)
        axis.set(xlabel=_RULERS.get(x, x), ylabel=unit, xlim=(-0.4, len(values) - 0.6), ylim=(0, None))
        axis.legend(loc="upper left", bbox_to_anchor=(1.02, 1), title="kernel, (n, m, p)")
    return figure


def with_labels(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Described points of a sweep; `label` is their row: kernel and choice, of very many choices only the fastest.

    A point without a rate has its status in its label.
    """
    case = rows.groupby(["platform", "dtype", "kernel", *SHAPE])
    asked = {"block": "block_x"} | {name: name for name in evidence.parameters}
    told = {name: set(rows.loc[case[column].transform("nunique") > 1, "kernel"]) for name, column in asked.items()}
    words = []
    for row in rows.to_dict("records"):  # those parameters only that tell rows of the same case apart
        without = [name for name, kernels in told.items() if row["kernel"] not in kernels]
        name = f"{row['kernel']} {choice_text(row, evidence.kernels, without=without)}".strip()
        words.append(textwrap.fill(name + f": {row['status']}" * (row["status"] != Status.OK), _LETTERS))
    rows, found = rows.assign(label=words), []
    for (_, dtype), part in rows.groupby(["platform", "dtype"], sort=False):
        best = part.groupby("label", sort=False)["gflops"].max()
        many = f", the fastest {_MOST_NAMES} of {len(best)}" if len(best) > _MOST_NAMES else ""
        kept = part[part["label"].isin(best.nlargest(_MOST_NAMES).index)] if many else part
        found.append(kept.assign(title=f"{dtype}{many}"))
    return described(pd.concat(found))


def points(rows: pd.DataFrame, evidence: Evidence) -> Figure:
    """The rates of many points, a row of a panel per kernel and choice; a larger mark is a larger product."""
    rows = rows.assign(size=_size(rows))
    figure, parts = facets(rows, ["platform", "title"], evidence, "label", height=1.4, line=0.22, width=8.0)
    for axis, part in parts:
        names = part["label"].unique()
        part = part.assign(label=pd.Categorical(part["label"], names))
        part = part.sort_values("size", ascending=False, kind="stable")  # small marks lie upon large ones
        sizes = {"size": "size", "sizes": (10, 85), "size_norm": (0, 1), "legend": False}
        marks(axis, part, "rate", "label", **sizes, **looks(part, evidence))
        axis.set(xlabel=rows["rate_unit"].iloc[0], ylabel="", ylim=(len(names) - 0.5, -0.5))
        least, most = part["rate"].min(), part["rate"].max()
        if most > _FAR_APART * least > 0:
            log_scale(axis, "x")
            axis.set_xlim(0.5 * least, 2 * most)
        elif most > 0:
            axis.xaxis.set(major_locator=MaxNLocator(4), major_formatter="{x:,.10g}")
            axis.set_xlim(0, 1.05 * most)
    shapes = list(rows.sort_values("size", kind="stable")["shape"].unique())
    if len(shapes) > 1:
        words = f"The larger a mark, the larger the product (n, m, p), from {shapes[0]} to {shapes[-1]}."
        figure.supxlabel(words, size="small")
    return figure
