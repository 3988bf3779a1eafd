"""The figures of the report: functions from evidence to a matplotlib Figure, drawn with seaborn.

Rates are in GFLOP/s: 2 n p m operations divided by the median time. A ring marks a point whose noise is above the
config's max_noise_percent; a cross on the axis marks a point that did not run. Colours are seaborn's colour-blind
palette, and every line has its own marker, so the figures can also be read in black and white.
"""

import functools
import io
import itertools
import re

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from tilewise.files import replacing
from tilewise.measure.methods.cold_start import STEPS
from tilewise.report import tables
from tilewise.report.data import ANCHORS, CHOICE, SHAPE
from tilewise.report.tables import choice_text, shape_text

_STYLE = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("paper", font_scale=1.1),
    "svg.fonttype": "none",  # text stays text, so it can be searched, copied and read aloud
    "svg.hashsalt": "tilewise",  # the same figure gives the same file
    "font.family": "sans-serif",
    "axes.edgecolor": "0.6",
    "grid.color": "0.88",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
}
_GREY = "0.45"


def _styled(draw):
    @functools.wraps(draw)
    def styled(*arguments, **named):
        with matplotlib.rc_context(_STYLE), sns.color_palette("colorblind"):
            return draw(*arguments, **named)

    return styled


def svg(figure):
    """The figure as SVG text without a header, to stand inside an HTML page; the same figure gives the same text."""
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r' id="[a-z]+(3d)?_\d+"', "", text)  # names such as axes_1 would occur twice on a page


def _panels(count, width=7.6, height=3.4, columns=2, **options):
    columns = min(count, columns)
    lines = -(-count // columns)
    figure = Figure(figsize=(width, height * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **options).ravel()
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


@_styled
def _nothing(message):
    """A figure that says why there is nothing to draw."""
    figure, (axis,) = _panels(1, height=1.2)
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
    names = list(dict.fromkeys(rows[series]))
    rows = rows.assign(place=[order.index(value) for value in rows[x]])
    ran = rows[rows["status"] == "ok"]
    if len(ran):  # seaborn warns about a palette without data
        sns.lineplot(
            ran, x="place", y=y, hue=series, style=series, hue_order=names, style_order=names, ax=axis, errorbar=None,
            markers=_markers(names), palette=_palette(names), dashes=False, markersize=6,
        )  # fmt: skip
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


def _title(words, platform, evidence):
    """The panel's title; the label of a recorded platform has a line break, to fit a narrow panel."""
    return f"{words}\n{evidence.labels[platform]}".strip().replace(", recorded", "\nrecorded")


def _palette(names):
    return sns.color_palette("colorblind", len(names))


def _markers(names):
    return dict(zip(names, itertools.cycle(["o", "s", "D", "^", "v", "P", "X", "<", ">", "*"])))


@_styled
def sweep(rows, x, label, evidence):
    """GFLOP/s over what the sweep chose (column x): one panel per platform, kernel and dtype, one line per shape."""
    rows = rows[~rows["kernel"].isin(ANCHORS.values())]
    rows = rows.assign(shape=[shape_text(row) for row in rows.to_dict("records")])
    order = list(dict.fromkeys(rows[x]))
    groups = list(rows.groupby(["platform", "kernel", "dtype"], sort=False))
    figure, axes = _panels(len(groups), height=3.35 + 0.17 * rows["shape"].nunique())
    for axis, ((platform, kernel, dtype), part) in zip(axes, groups, strict=True):
        _line(axis, part, x, order, "shape", evidence.max_noise)
        axis.set(title=_title(f"{kernel}, {dtype}", platform, evidence), xlabel=label, ylabel="GFLOP/s")
        _legend(axis, columns=3 if len(groups) == 1 else 1, title="(n, m, p)")
    return figure


@_styled
def ntb(rows, evidence, published):
    """NTB curves: GFLOP/s at the largest shape and at the others, and the speed over NTB 1 beside source a's."""
    rows = rows[rows["ntb"].notna()]
    series = [f"{row['dtype']}, {choice_text(row | {'ntb': None})}" for row in rows.to_dict("records")]
    if rows["kernel"].nunique() > 1:
        series = [f"{kernel} {name}" for kernel, name in zip(rows["kernel"], series)]
    rows = rows.assign(series=series)
    order = sorted(set(rows["ntb"]))
    groups = list(rows.groupby("platform", sort=False))
    curves = rows[["series", *SHAPE]].drop_duplicates()
    longest_legend = max(5, len(curves) - curves["series"].nunique())
    figure, axes = _panels(3 * len(groups), width=9.6, height=3.75 + 0.17 * longest_legend, columns=3)
    for number, (platform, part) in enumerate(groups):
        left, middle, right = axes[3 * number : 3 * number + 3]
        largest = part.loc[part[SHAPE].astype("float64").prod(axis=1).idxmax(), SHAPE]
        large = part[(part[SHAPE] == largest).all(axis=1)]
        _line(left, large, "ntb", order, "series", evidence.max_noise)
        left.set(title=_title(shape_text(large.iloc[0]), platform, evidence), xlabel="NTB", ylabel="GFLOP/s")
        other = part.drop(large.index)
        names = [f"{shape_text(row)} {row['series']}" for row in other.to_dict("records")]
        if names:
            _line(middle, other.assign(series=names), "ntb", order, "series", evidence.max_noise)
        middle.set(title="other shapes\n(n, m, p)", xlabel="NTB", ylabel="GFLOP/s")
        first = large[large["ntb"] == 1].groupby("series")["time_ms"].min()
        ratio = large.assign(speed=large["series"].map(first) / large["time_ms"])
        _line(right, ratio, "ntb", order, "series", evidence.max_noise, y="speed")
        source = published[(published["place"] == "Table 5") & published["ntb"].isin(order)].sort_values("ntb")
        one = source.loc[source["ntb"] == 1, "value"]
        if len(one):
            places = [order.index(value) for value in source["ntb"]]
            right.plot(places, one.iloc[0] / source["value"], "k--", marker="*", label="RTX 2080 Ti: float, tile 32")
        right.set(title="speed over NTB 1\nat the largest shape", xlabel="NTB", ylabel="times faster")
        right.autoscale(axis="y")
        right.set_ylim(bottom=0)
        for axis in (left, middle, right):
            _legend(axis)
    return figure


@_styled
def rates(rows, evidence):
    """GFLOP/s of every point on a logarithmic axis: one panel per platform and dtype, one line per shape."""
    rows = rows.assign(
        shape=[shape_text(row) for row in rows.to_dict("records")],
        label=[f"{row['kernel']} {choice_text(row)}".strip() for row in rows.to_dict("records")],
    )
    groups = list(rows.groupby(["platform", "dtype"], sort=False))
    names, shapes = list(dict.fromkeys(rows["label"])), list(dict.fromkeys(rows["shape"]))
    options = {"hue": "label", "style": "label", "hue_order": names, "style_order": names, "palette": _palette(names)}
    figure, axes = _panels(len(groups), height=1.8 + 0.22 * len(shapes), columns=3, width=8.8, sharey=True, sharex=True)
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        part = part.assign(place=[shapes.index(shape) for shape in part["shape"]])
        sns.scatterplot(part, x="gflops", y="place", markers=_markers(names), s=40, ax=axis, **options)
        words = {"va": "center", "fontsize": "x-small", "color": _GREY, "transform": axis.get_yaxis_transform()}
        for place, missing in part[part["status"] != "ok"].groupby("place"):
            axis.text(0.03, place, ", ".join(f"{row.kernel}: {row.status}" for row in missing.itertuples()), **words)
        axis.set(title=_title(dtype, platform, evidence), xlabel="GFLOP/s", ylabel="(n, m, p)")
        axis.set_yticks(range(len(shapes)), shapes)
        if (part["gflops"] > 0).any():
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
    _legend_of_all(figure, axes, columns=4)
    axes[0].set_ylim(len(shapes) - 0.5, -0.5)
    return figure


@_styled
def bars(rows, evidence):
    """GFLOP/s of every point as bars: one panel per platform and dtype, one bar per choice and shape."""
    rows = rows.assign(
        shape=[shape_text(row) for row in rows.to_dict("records")],
        label=[f"{row['kernel']} {choice_text(row)}".strip() for row in rows.to_dict("records")],
    )
    groups = list(rows.groupby(["platform", "dtype"], sort=False))
    shapes = list(dict.fromkeys(rows["shape"]))
    tallest = max(part["label"].nunique() for _, part in groups)
    options = {"hue_order": shapes, "palette": _palette(shapes), "errorbar": None, "orient": "h", "legend": "full"}
    figure, axes = _panels(len(groups), height=1.6 + (0.18 + 0.06 * len(shapes)) * tallest, width=8.8)
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        sns.barplot(part, y="label", x="gflops", hue="shape", ax=axis, **options)
        axis.set(title=_title(dtype, platform, evidence), xlabel="GFLOP/s", ylabel="")
    _legend_of_all(figure, axes, columns=4, title="(n, m, p)")
    return figure


@_styled
def gauge(evidence, published):
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
def speedup(ladder, evidence):
    """How many times faster the best of each kernel is than the naive kernel and than the CPU loop; float."""
    rows = ladder[(ladder["dtype"] == "float") & ladder["speedup_over_naive"].notna()]
    if rows.empty:
        return _nothing("No speed-up: the naive kernel was not timed.")
    platforms = list(dict.fromkeys(rows["platform"]))
    kernels = sorted(dict.fromkeys(rows["kernel"]), key=lambda name: name in ANCHORS.values())
    figure, axes = _panels(2 * len(platforms), height=4, width=8.4)
    columns = {"speedup_over_naive": "times faster than naive", "speedup_over_cpu": "times faster than the CPU loop"}
    for number, platform in enumerate(platforms):
        part = rows[rows["platform"] == platform]
        for offset, (column, label) in enumerate(columns.items()):
            axis = axes[2 * number + offset]
            options = {"hue_order": kernels, "palette": _palette(kernels), "errorbar": None, "orient": "h"}
            sns.barplot(part, y="shape", x=column, hue="kernel", ax=axis, legend=number == offset == 0, **options)
            if part[column].isna().all():
                axis.text(0.5, 0.5, "the CPU loop was not timed", ha="center", transform=axis.transAxes, color=_GREY)
            axis.set(xlabel=label, ylabel="" if offset else "(n, m, p)", title=evidence.labels[platform])
            axis.xaxis.set_major_formatter("{x:,.0f}")
            if offset:
                axis.set_yticklabels([])
    _legend_of_all(figure, axes, columns=5)
    return figure


@_styled
def peak(ladder, evidence):
    """The best rate of each kernel at the largest square shape, compared with cuBLAS and the chip's vector peak."""
    square = ladder[(ladder["n"] == ladder["p"]) & (ladder["n"] == ladder["m"]) & (ladder["status"] == "ok")]
    square = square[square["n"] == square["n"].max()]
    if square.empty:
        return _nothing("No rate against the peak: no GPU was timed.")
    groups = list(square.groupby(["platform", "dtype"], sort=False))
    figure, axes = _panels(len(groups), height=3, width=8.8)
    for axis, ((platform, dtype), part) in zip(axes, groups, strict=True):
        part = part.assign(anchor=part["kernel"].isin(ANCHORS.values())).sort_values(["anchor", "gflops"])
        labels = [f"{row['kernel']}\n{choice_text(row)}".strip() for row in part.to_dict("records")]
        colours = ["0.6" if anchor else _palette(labels)[0] for anchor in part["anchor"]]
        bars = axis.barh(labels, part["gflops"], color=colours)
        top = part["peak_gflops"].iloc[0]
        shares = [f" {rate:,.0f}" + (f" ({rate / top:.0%})" if pd.notna(top) else "") for rate in part["gflops"]]
        axis.bar_label(bars, shares, fontsize="small")
        if pd.notna(top):
            axis.axvline(top, color="black", linestyle="--", linewidth=1, zorder=0)
            words = {"rotation": 90, "va": "top", "fontsize": "small", "textcoords": "offset points"}
            axis.annotate("vector peak", (top, 1), xycoords=("data", "axes fraction"), xytext=(3, -4), **words)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.set_xlim(0, 1.5 * np.nanmax([top, part["gflops"].max()]))
        axis.set(title=_title(f"{dtype}, {shape_text(part.iloc[0])}", platform, evidence), xlabel="GFLOP/s")
        axis.grid(axis="y", visible=False)
        axis.invert_yaxis()
    return figure


@_styled
def roofline(evidence):
    """Each float kernel at its counted FLOP per byte and its measured rate, under the roofs of memory and arithmetic.

    The counts are of what moves between a multiprocessor and its caches. So a kernel may lie above the memory's roof,
    if the caches served it.
    """
    counted = tables.traffic(evidence)
    keys = ["kernel", "dtype", "block_x", "block_y", "tile", "ntb"]
    measured = evidence.gpu[(evidence.gpu["status"] == "ok") & evidence.gpu["gflops"].notna()]
    rows = measured.merge(counted[[*keys, "flop_per_byte_moved"]], on=keys)
    rows = rows[(rows["dtype"] == "float") & (rows["flop_per_byte_moved"] > 0)]
    rows = rows.sort_values("gflops").drop_duplicates(["platform", *keys], keep="last")
    if rows.empty:
        return _nothing("No roofline: no kernel was both counted and timed.")
    groups = list(rows.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), columns=1, height=4.4)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        gpu = next(gpu.device["gpu"] for gpu in evidence.gpus if gpu.name == platform)
        # If the peak is not known, the memory's roof extends over all points.
        bandwidth, peak = gpu["memory_bandwidth_gb_s"], (gpu["peak_gflops"] or {}).get("float")
        top = peak or bandwidth * part["flop_per_byte_moved"].max()
        names = sorted(part["kernel"].unique())
        options = {"hue": "kernel", "style": "kernel", "hue_order": names, "style_order": names, "s": 60}
        sns.scatterplot(part, x="flop_per_byte_moved", y="gflops", ax=axis, palette=_palette(names), **options)
        small = {"fontsize": "small", "textcoords": "offset points"}
        said = []  # the fastest of each kernel and tile has its choice as a label, unless a faster label is near
        for row in part.drop_duplicates(["kernel", "tile"], keep="last").iloc[::-1].to_dict("records"):
            x, y = row["flop_per_byte_moved"], row["gflops"]
            if all(abs(np.log10(x / a)) > 0.45 or abs(np.log10(y / b)) > 0.12 for a, b in said):
                axis.annotate(choice_text(row), (x, y), xytext=(8, -3), **small)
                said.append((x, y))
        intensity = np.geomspace(0.5 * min(0.25, part["flop_per_byte_moved"].min()), 4 * top / bandwidth, 200)
        axis.plot(intensity, np.minimum(top, bandwidth * intensity), color="black", linewidth=1.2, zorder=0)
        words = f"memory {bandwidth / 1000:.2f} TB/s"
        axis.annotate(words, (intensity[40], bandwidth * intensity[40]), xytext=(8, -10), **small)
        if peak:
            words = f"vector peak {peak / 1000:.1f} TFLOP/s"
            axis.annotate(words, (intensity[-1], peak), xytext=(0, 5), ha="right", **small)
        axis.set(xscale="log", yscale="log", title=evidence.labels[platform], ylabel="GFLOP/s, measured")
        axis.set_xlabel("FLOP per byte moved, counted by the emulator")
        axis.set_ylim(top=2 * max(top, part["gflops"].max()))
        axis.legend(title=None, loc="lower right")
    return figure


@_styled
def cache_lines(evidence):
    """Time of a multiply-add over the cache lines that it fetches: one panel per machine, one point per loop and shape."""
    table = tables.cache_lines(evidence)
    if table.empty:
        return _nothing("No CPU loop was both timed and counted.")
    groups = list(table.groupby("platform", sort=False))
    names, shapes = sorted(table["kernel"].unique()), list(dict.fromkeys(table["shape"]))
    options = {"hue": "kernel", "hue_order": names, "palette": _palette(names), "style": "shape", "style_order": shapes}
    options |= {"markers": _markers(shapes)}
    figure, axes = _panels(len(groups), sharex=True, sharey=True)
    for axis, (platform, part) in zip(axes, groups, strict=True):
        axis.set(xscale="log", yscale="log", title=_title("", platform, evidence))
        sns.scatterplot(part, x="l1_lines_per_multiply_add", y="ns_per_multiply_add", s=50, ax=axis, **options)
        axis.set(xlabel="lines into the first cache per multiply-add", ylabel="ns per multiply-add")
        for ruler in (axis.xaxis, axis.yaxis):
            ruler.set(
                major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}", minor_formatter=NullFormatter()
            )
    _legend_of_all(figure, axes, columns=6)
    return figure


@_styled
def cold_start(evidence, published):
    """Whole calls in a fresh process, stacked by step: one panel per platform, one bar per call."""
    table = tables.cold_start(evidence, published)
    if table.empty:
        return _nothing("No call was timed: there is no GPU and no recorded run of this task.")
    groups = list(table.groupby("platform", sort=False))
    figure, axes = _panels(len(groups), height=3, columns=1)
    steps = [f"{step}_ms" for step in STEPS if f"{step}_ms" in table and step != "total"]
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
def launch_limits(evidence, published):
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
def bandwidth(evidence, published):
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


_OF_METHOD = {
    "maximum_size": gauge,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
}
#: The figures of the whole study, in addition to those of its tasks: file name -> function of evidence and published.
OVERVIEW = {
    "peak": lambda evidence, published: peak(tables.ladder(evidence, published), evidence),
    "speedup": lambda evidence, published: speedup(tables.ladder(evidence, published), evidence),
    "roofline": lambda evidence, published: roofline(evidence),
    "cache_lines": lambda evidence, published: cache_lines(evidence),
}


def save(figure, path):
    """Write a figure as SVG, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(svg(figure))


def task(name, evidence, published):
    """The figure of a task; what its sweep varies decides which: NTB, tile width, block, or the rates of its points."""
    method = evidence.config["tasks"].get(name, {}).get("method", "sweep")
    if method != "sweep":
        return _OF_METHOD[method](evidence, published)
    own = evidence.of(name)
    rows = pd.concat([own.gpu, own.cpu], ignore_index=True)
    if rows["gflops"].isna().all():
        return _nothing("Nothing of this task was timed; its table shows what was verified.")
    chosen = rows[~rows["kernel"].isin(ANCHORS.values())]
    if chosen["ntb"].nunique() > 1:
        return ntb(rows, evidence, published)
    if chosen["kernel"].nunique() == 1 and chosen["tile"].nunique() > 1:
        return sweep(rows, "tile", "tile width", evidence)
    if chosen["kernel"].nunique() == 1 and chosen["block_x"].nunique() > 1:
        rows = rows.assign(block=[choice_text(row) for row in rows.to_dict("records")])
        return sweep(rows, "block", "threads of a block, x × y", evidence)
    if len(chosen[["kernel", *CHOICE]].drop_duplicates()) > 3:
        return bars(rows, evidence)
    return rates(rows, evidence)
