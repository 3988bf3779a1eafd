"""The figures of the report: functions from evidence to a Matplotlib Figure, drawn with seaborn.

figures.yaml describes them. A rate is 2 n p m operations divided by the median time.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from kernelscope.files import atomic_path
from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.report import charts, figure_rows, notes, rate_figures
from tilewise.report.specs import SPECS, Spec, table_of
from tilewise.report.svg import empty_figure, inline, missing_reason, style, svg

__all__ = ["OVERVIEW", "draw", "empty_figure", "inline", "missing_reason", "save", "svg", "task"]

#: A figure of curves has at most so many lines; more cannot be told apart.
_MOST_CURVES = 12
#: And the name of a line at most so many letters, for which its legend has room.
_LONGEST_NAME = 40
#: What the axis of a parameter says; another parameter's says its name.
_RULERS = {"tile": "tile: width in elements", "ntb": "ntb: tiles per block"}
_BY_NAME = {name: spec for group in SPECS.values() for name, spec in group.items()}


def draw(name: str, evidence: Evidence, table: pd.DataFrame | None = None) -> Figure:
    """A figure of figures.yaml, of this `table` instead of the one that it names."""
    spec = _BY_NAME[name]
    return _drawn(spec, table_of(spec.rows)(evidence) if table is None else table, evidence)


def _drawn(spec: Spec, table: pd.DataFrame, evidence: Evidence) -> Figure:
    table = figure_rows.described(table, evidence)
    if spec.prepare:
        table = getattr(figure_rows, spec.prepare)(table, evidence)
    if spec.where:
        table = table.query(spec.where, engine="python")
    if table.empty:
        return empty_figure(spec.empty)
    if "rate_unit" in table:
        unit = table["rate_unit"].iloc[0]
        spec = spec.but(unit=spec.unit.replace("RATE", unit), y_unit=spec.y_unit.replace("RATE", unit))
    with style():
        return (getattr(charts, spec.chart, None) or getattr(rate_figures, spec.chart))(table, spec, evidence)


#: The figures of the whole study, in addition to those of its tasks: file name -> function of the evidence.
OVERVIEW: dict[str, Callable[[Evidence], Figure]] = {name: functools.partial(draw, name) for name in SPECS["study"]}


def save(draw: Callable[[], Figure], path: Path | str) -> None:
    """Draw a figure and write it atomically as SVG; if drawing fails, write a figure with the note."""
    drawing = notes.attempt(str(path), lambda: svg(draw()), lambda note: svg(empty_figure(note)))
    with atomic_path(path) as temporary:
        temporary.write_text(drawing, encoding="utf-8")


def task(name: str, evidence: Evidence) -> Figure:
    """The figure of a task; what its sweep varies decides which: a parameter, the block, or the rates of its points."""
    own, method = evidence.select_tasks(name), evidence.method(name)
    if method != "sweep":
        return draw(method, own)
    timed = pd.concat([own.gpu, own.cpu], ignore_index=True)
    if timed["gflops"].isna().all():
        return empty_figure("Nothing of this task was timed; its table shows what was verified.")
    if timed["gflops"].notna().sum() == 1:
        return empty_figure("One point of this task was timed; its table has it.")
    timed = timings.describe(timed, evidence)
    spec, kept = _of_sweep(timed, evidence)
    return _drawn(spec, kept, evidence)


def _of_sweep(timed: pd.DataFrame, evidence: Evidence) -> tuple[Spec, pd.DataFrame]:
    """How the described rows of a sweep are drawn, and which of them."""
    chosen = timed[~timed["anchor"]]
    x = _varied(chosen, evidence)
    if x:
        chosen = chosen[chosen[x].notna()]
        chosen = chosen.assign(line=rate_figures.line_labels(chosen, x, evidence))
        lines = chosen["line"].nunique()
        over = {"x": x, "unit": _RULERS.get(x, x)}
        if lines == 1 and not rate_figures.published_curves(chosen, x, evidence):
            return _BY_NAME["sweep"].but(**over), chosen
        if lines <= _MOST_CURVES and chosen["line"].str.len().max() <= _LONGEST_NAME:
            return _BY_NAME["curves"].but(**over), chosen
    elif chosen["kernel"].nunique() == 1 and chosen[["block_x", "block_y"]].drop_duplicates().shape[0] > 1:
        return _BY_NAME["sweep"], chosen
    if len(chosen[["kernel", *evidence.choice]].drop_duplicates()) <= 3:
        return _BY_NAME["rates"], timed
    points = figure_rows.points(timed, evidence)
    groups = points.groupby(["platform", "dtype"]).ngroups
    spec = _BY_NAME["points"]
    if groups > 1 and points["label"].str.len().max() <= 24:  # names so short that two panels lie side by side
        return spec.but(columns=2, height=1.6, row_height=0.24), points
    return spec.but(height=spec.height + 0.5 / groups), points


def _varied(rows: pd.DataFrame, evidence: Evidence) -> str | None:
    """The parameter that a figure of these rows runs over: the one with the most values; None if there is no such one.

    Every kernel has three values of it at one shape, so that there are curves to compare.
    """
    found = {}
    for name in evidence.parameters:
        values = rows.groupby(["kernel", "n", "p", "m"])[name].nunique().groupby("kernel").max()
        if len(values) and values.min() >= 3:
            found[name] = rows[name].nunique()
    return max(found, key=lambda name: found[name], default=None)
