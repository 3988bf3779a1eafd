"""The first screen of a run: what ran, five numbers beside those of the source and the record, and one figure."""

import functools
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from tilewise.explain import climb, provenance
from tilewise.explain.number_format import rounded
from tilewise.report import beside, tables
from tilewise.report.plots import COLOURS, MARKERS, hollow, legend, marks
from tilewise.report.svg import empty_figure, style
from tilewise.study.status import RIGHT, Status

#: Heading -> task and the values of columns of the best kernels that are compared.
_BEST: dict[str, tuple[str, dict[str, Any]]] = {
    "naive, best block": ("task1a", {"kernel": "naive", "dtype": "float"}),
    "tiled, best width": ("task2a", {"kernel": "tiled", "dtype": "float"}),
    "several tiles per block, best NTB": ("task3", {"kernel": "multi_tile", "dtype": "float", "tile": 32}),
}


def five_numbers(sides: beside.Sides) -> pd.DataFrame:
    """Five numbers of each run, the times those of the largest square product, in the columns of `beside.rows`.

    The name of the ladder's fastest kernel stands for its choice.
    """
    square = beside.largest_square("task1a", sides)
    found = [beside.rows(task, sides, **where, **square).assign(label=label) for label, (task, where) in _BEST.items()]
    ladder = beside.rows(climb.CLIMB, sides, dtype="float", **square)
    ladder = ladder[~ladder["kernel"].isin(sides.first.libraries) & ladder["time_ms"].notna()]
    fastest = ladder.sort_values("time_ms", kind="stable").drop_duplicates("side")
    found.append(fastest.assign(label="the ladder's fastest kernel", choice=fastest["kernel"]))
    largest = beside.largest_products(sides)
    found.append(largest[largest["label"] == "largest n allocated"].assign(label="largest n, three float matrices"))
    table = beside.joined(*found).reindex(columns=beside.CELLS).assign(kernel="", dtype="")
    table.attrs["first"] = f"float, n = {square['n']}" if square else "float"  # the heading above the labels
    return table


def speedups(sides: beside.Sides) -> pd.DataFrame:
    """The rungs of the float ladder at the largest square product of each run: kernel, side, n, `times_naive`."""
    rungs = sides.collect(functools.partial(tables.frame, "rungs"))
    rungs = rungs[~rungs["anchor"].astype(bool)]
    naive = rungs[rungs["kernel"] == "naive"].set_index("side")["gflops"]
    rungs = rungs.assign(times_naive=rungs["gflops"] / rungs["side"].map(naive))
    return rungs[["kernel", "side", "n", "gflops", "times_naive"]].dropna(subset="times_naive")


def draw_speedups(table: pd.DataFrame, sides: beside.Sides) -> Figure:
    """A figure of `speedups`: a row per rung, a mark per run; those of recorded runs are hollow."""
    if table.empty:
        return empty_figure("No speed-ups: no GPU has timed the naive kernel beside another one.")
    label = table["side"].map(sides.headings) + ", n = " + table["n"].astype("str")
    times = table["times_naive"].map(lambda number: rounded(number, "x"))
    rate = (table["gflops"] / 1000).map(rounded)
    rows = table.assign(label=label, said=table["kernel"] + ": " + times + "× naive, " + rate + " TFLOP/s, " + label)
    runs = label.unique()
    looks = {name: dict(zip(runs, cycle(each))) for name, each in (("palette", COLOURS), ("markers", MARKERS))}
    recorded = table["side"].str.startswith("recorded").to_numpy()
    with style():
        figure = Figure(figsize=(3.6, 0.9 + 0.27 * table["kernel"].nunique()), layout="constrained")
        axis = figure.subplots()
        marks(axis, rows, "times_naive", "kernel", hue="label", style="label", s=60, **looks)
        hollow(axis, recorded)
        entries: list[tuple[Any, str]] = [*zip(*axis.get_legend_handles_labels())]
        for entry, words in entries:
            if words in {*label[recorded]}:
                entry.set(markeredgecolor=entry.get_color(), markerfacecolor="none", markeredgewidth=1)
        axis.set(xlabel="times the rate of naive", ylabel="", xlim=(0, None))
        legend(figure, sides.first, 1)
    return figure


def what_ran(sides: beside.Sides) -> list[dict[str, Any]]:
    """What each platform of this run measured or verified, and what was not right.

    The keys are machine, has_gpu, tasks, points, verified, `refused` (points that this machine cannot run), `wrong`
    (other points that are not right, by status) and `failed` (the rows of three of them).
    """
    if sides.own is None:
        return []
    failures = provenance.failures(sides.own)
    found = []
    for each in sides.own.platforms:
        rows = provenance.without_wanted_refusals(each.measurements, sides.own)
        lacking = failures[failures["platform"] == each.name]
        wrong = lacking[~lacking["status"].isin(RIGHT)]
        found.append({
            "machine": each.device.gpu["name"] if each.has_gpu else each.device.cpu["name"],
            "has_gpu": each.has_gpu,
            "tasks": rows["task"].nunique() + sum(len(table) > 0 for table in each.facts.values() if "task" in table),
            "points": len(rows),
            "verified": int((rows["status"] == Status.OK).sum()),
            "refused": int(lacking["points"].sum() - wrong["points"].sum()),
            "wrong": wrong.groupby("status")["points"].sum().to_dict(),
            "failed": wrong.head(3).to_dict("records"),
        })  # fmt: skip
    return found


#: The tables of tables.SIDE_BY_SIDE.
TABLES = {"five_numbers": five_numbers, "largest_products": beside.largest_products}
