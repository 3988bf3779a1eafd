"""The picture of a comparison: the ratio of every point over its time."""

from matplotlib.figure import Figure

from tilewise.recorded.compare import Comparison, Verdict
from tilewise.report.svg import GREY, nothing, style, svg, tell

#: Colours of Seaborn's colour-blind palette.
VERDICT_COLOURS = {Verdict.EQUAL: "0.6", Verdict.FASTER: "C2", Verdict.SLOWER: "C3"}


def draw(found: Comparison) -> str:
    """An SVG with a header: one mark per point with a ratio, its range, and the band of the threshold."""
    points = found.points[found.points["ratio"].notna()]
    with style():
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axis = figure.subplots()
        axis.axhspan(1 - found.threshold / 100, 1 + found.threshold / 100, color="0.93", zorder=0)
        axis.axhline(1, color=GREY, linewidth=0.8)
        for verdict, colour in VERDICT_COLOURS.items():
            own = points[points["verdict"] == verdict]
            if own.empty:
                continue
            axis.vlines(own["time_ms"], own["ratio_low"], own["ratio_high"], color=colour, linewidth=0.8)
            mark = axis.scatter(own["time_ms"], own["ratio"], color=colour, s=14, label=f"{verdict} ({len(own)})")
            words = "{kernel} {dtype} {shape} {choice}: {ratio:.3f}; {why}"
            tell(mark, [words.format_map(row) for row in own.to_dict("records")])
        axis.set(xscale="log", xlabel=f"ms, {found.first.name}", ylabel="time of the second run / of the first")
        axis.set_title(f"{found.second.name} compared with {found.first.name}")
        axis.legend()
    figure = figure if len(points) else nothing("no point has a time in both runs")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg(figure)}\n'
