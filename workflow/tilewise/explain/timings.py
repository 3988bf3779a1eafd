"""Timings of kernels: variation of rows, the best of each case, and rates as a share of a library's.

Times are in ms and are medians of isolated runs; rates are in GFLOP/s. A row that did not run keeps its place, with its
status. Shapes are shown as source a writes them: (n, m, p), where C is n x m.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence, time_range
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status

#: What `evidence.time_range` needs.
RANGE = ["runs", "turns", "run_low_ms", "run_high_ms", "time_q1_ms", "time_q3_ms"]
CASE = ["platform", "kernel", "dtype", *SHAPE]  # what a best choice is chosen for
#: A row whose runs lie further from its time than this, in %, is never chosen as the best.
UNSETTLED = 25.0
#: A clock below this share of the highest was lowered, by power if the product is large.
LOWERED = 0.97
#: Long runs lower the clock of a power-limited kernel, so runs whose durations differ more than this do not compare.
MOST_APART = 3.0
#: What decides which of several rows is the best; of all columns, a selection would take several times as long.
_DECIDING = [*CASE, "time_ms", "samples", "relative_error", *RANGE]
#: A choice trades accuracy for speed if its error is this many times that of the kernel's most accurate choice.
COARSE = 4.0


def chosen_columns(evidence: Evidence) -> list[str]:
    """The columns in which two rows of the same kernel with the same choice agree, at any shape."""
    return ["kernel", "dtype", *evidence.choice]


def choice_text(row: Mapping[str, Any], kernels: Mapping[str, Kernel], without: Collection[str] = ()) -> str:
    """The parameters of a row as text: `16 × 64` threads, `tile 32, ntb 7`; empty for a kernel without parameters.

    The kernel's parameters come in the order of the registry, then those that only a recorded row has. Every block has
    threads, so they are named only if a sweep chose them. `without` names parameters that are left out.
    """
    kernel = kernels.get(row["kernel"])
    recorded = [name for name in columns.parameters_of(row) if pd.notna(row[name])]
    names = kernel.parameters if kernel else () if recorded else ("block",)
    words = []
    for name in dict.fromkeys([*names, *recorded]):
        if name in without:
            continue
        if name == "block" and pd.notna(row["block_x"]):
            words.append(f"{row['block_x']} × {row['block_y'] if pd.notna(row['block_y']) else '?'}")
        elif pd.notna(row.get(name)):
            words.append(f"{name} {row[name]}")
    return ", ".join(words)


def shape_text(row: Mapping[str, Any]) -> str:
    """The shape as source a writes it: (n, m, p)."""
    return f"({row['n']}, {row['m']}, {row['p']})"


def pairs(x: pd.Series, y: pd.Series) -> pd.Series:
    """Blocks or grids as text, `(x, y)`; empty where x is. A damaged recording may lack y."""
    return ("(" + x.astype("str") + ", " + y.astype("str").fillna("?") + ")").fillna("")


def with_words(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with shape and choice as text."""
    needed = ["kernel", *SHAPE, *columns.choice(columns.parameters_of(rows))]
    records = rows[[name for name in needed if name in rows]].to_dict("records")
    return rows.assign(
        shape=pd.Series([shape_text(row) for row in records], index=rows.index, dtype="str"),
        choice=pd.Series([choice_text(row, evidence.kernels) for row in records], index=rows.index, dtype="str"),
    )


def describe(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows of measurements.csv with the further columns that a reader needs.

    Adds shape, choice, block, grid (text), spread_percent (interquartile range divided by the median), between_percent
    (from the fastest to the slowest run, divided by the median run), `anchor` (the kernel is a library) and `card`.
    """
    return with_words(rows, evidence).assign(
        block=pairs(rows["block_x"], rows["block_y"]),
        grid=pairs(rows["grid_x"], rows["grid_y"]),
        # The quartiles of one sample are not a range.
        spread_percent=(100 * (rows["time_q3_ms"] - rows["time_q1_ms"]) / rows["time_ms"]).where(rows["samples"] > 1),
        between_percent=(100 * (rows["run_high_ms"] - rows["run_low_ms"]) / rows["time_ms"]).where(rows["runs"] > 1),
        anchor=rows["kernel"].isin(evidence.libraries),
        card=rows["gpu_uuid"].fillna("").map(short_card).astype("str"),
    )


def range_percent(rows: pd.DataFrame) -> pd.Series:
    """Distance of the farther end of each time's range (`evidence.time_range`), in % of the time; empty if unknown."""
    if not {"time_ms", "samples", *RANGE} <= set(rows):
        return pd.Series(None, rows.index, dtype="float64")
    low, high = time_range(rows)
    far = pd.concat([rows["time_ms"] - low, high - rows["time_ms"]], axis=1).max(axis=1)
    # The quartiles of one sample are not a range.
    return (100 * far / rows["time_ms"]).where((rows["samples"] > 1) | (rows["runs"] > 1))


def fastest_first(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that ran, the fastest first; those that are UNSETTLED or COARSE come behind all others."""
    deciding = [name for name in _DECIDING if name in rows]
    ran = rows.loc[(rows["status"] == Status.OK) & rows["time_ms"].notna(), deciding]
    least = ran.groupby(CASE, dropna=False)["relative_error"].transform("min")
    worse = (range_percent(ran) > UNSETTLED) | (ran["relative_error"] > COARSE * least)
    order = pd.DataFrame({"worse": worse, "time_ms": ran["time_ms"]}).sort_values(["worse", "time_ms"], kind="stable")
    return rows.loc[order.index]


def short_card(uuid: str) -> str:
    """The first digits of a GPU's UUID, which identify a card: `a4214c4d` of `GPU-a4214c4d-a5a3-...`."""
    return uuid.removeprefix("GPU-").split("-")[0]


def best(rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest of the described rows of each case (platform, kernel, dtype, shape), with its runner-up.

    Adds `points_ran` ("5 of 6"), runner_up, gap_percent (how much slower the runner-up is), `decided`: the ranges of
    the two do not overlap, so the difference exceeds the spread, and at_end: the parameters whose value is the first or
    the last of those that ran, so that the best may lie beyond. If nothing ran, the first row is taken.
    """
    rows = rows.reset_index(drop=True)
    parameters, case = columns.parameters_of(rows), rows.groupby(CASE, sort=False, dropna=False).ngroup()
    point = ["case", *columns.choice(parameters)]
    rows = rows.assign(case=case)
    asked = rows.drop_duplicates(point)  # two tasks may have asked for the same point
    ran = rows.loc[fastest_first(rows).index].drop_duplicates(point)
    table = pd.concat([ran, asked]).drop_duplicates("case").sort_values("case", ignore_index=True)
    second = ran[ran.groupby("case").cumcount() == 1].set_index("case").reindex(table.index)
    counts = [some["case"].value_counts().reindex(table.index, fill_value=0).astype(str) for some in (ran, asked)]
    (_, slowest), (fastest, _) = time_range(table), time_range(second)
    return table.assign(
        points_ran=counts[0] + " of " + counts[1],
        runner_up=second["choice"].fillna("").astype("str"),
        gap_percent=100 * (second["time_ms"] / table["time_ms"] - 1),
        decided=(slowest < fastest).astype("boolean").where(second["kernel"].notna()),
        at_end=at_end(ran[["block_x", *parameters, "case"]], table),
    ).drop(columns="case")


def at_end(ran: pd.DataFrame, best: pd.DataFrame) -> pd.Series:
    """The parameters of which a best row has the least or the largest value, of three or more that ran in its `case`.

    A block of a fixed number of threads is one parameter: its width.
    """
    cases, found = ran.groupby("case"), [pd.Series("", best.index)]
    for name in ("block_x", *columns.parameters_of(ran)):
        if ran[name].nunique() < 3:
            continue
        of_case = cases[name].agg(["min", "max", "nunique"])
        least, largest, values = (best["case"].map(of_case[how]) for how in of_case)
        ends = (values > 2) & ((best[name] == least) | (best[name] == largest)).fillna(False)
        if name == "block_x":  # else it follows from the other parameters
            ends &= best["choice"].str.contains("×")
        found.append(ends.map({True: name.removesuffix("_x"), False: ""}))
    return pd.Series([", ".join(filter(None, words)) for words in zip(*found)], index=best.index, dtype="str")


def beside_anchor(table: pd.DataFrame, rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds `percent_of_anchor`: the rate as a percentage of the library's for the same product and element type.

    The library of a GPU's kernel is the GPU's, such as cuBLAS; that of a CPU loop is the CPU's. `unlike_anchor` says
    that the two cannot be compared: power lowered the clock of one, and one ran more than MOST_APART times as long.
    Where they were timed in turns, the percentage is that of the turns.
    """
    anchors = rows[rows["kernel"].isin(evidence.libraries) & (rows["status"] == Status.OK)]
    known = {"time_ms": "anchor_ms", "samples": "anchor_samples", "sm_clock_mhz": "anchor_mhz"}
    keys = ["platform", "on_gpu", "dtype", *(["batch"] if "batch" in table else []), *SHAPE]
    anchors = anchors.assign(on_gpu=evidence.on_gpu(anchors["kernel"])).sort_values("time_ms", kind="stable")
    anchors = anchors.drop_duplicates(keys).reindex(columns=[*keys, *known]).rename(columns=known)
    table = table.assign(on_gpu=evidence.on_gpu(table["kernel"]))
    table = table.merge(anchors, how="left", on=keys).drop(columns="on_gpu")
    table = table.assign(percent_of_anchor=100 * table["anchor_ms"] / table["time_ms"], unlike_anchor=False)
    if {"samples", "sm_clock_mhz"} <= set(table):  # the tuner's variants have neither
        highest = {gpu.name: gpu.device.gpu["sm_clock_mhz"] for gpu in evidence.gpus}
        clocks = table[["sm_clock_mhz", "anchor_mhz"]].astype("float64").min(axis=1)
        lowered = clocks < LOWERED * table["platform"].map(highest)
        longer = table["samples"] * table["time_ms"] / (table["anchor_samples"] * table["anchor_ms"])
        alike = longer.between(1 / MOST_APART, MOST_APART)
        table["unlike_anchor"] = (lowered & ~alike & longer.notna()).fillna(False).astype(bool)
    if "vs_best" in table:  # timed in turns with the library
        in_turns = table["vs_best"].notna()
        table["percent_of_anchor"] = (100 * table["vs_best"]).where(in_turns, table["percent_of_anchor"])
        table["unlike_anchor"] &= ~in_turns
    return table.drop(columns=["anchor_samples", "anchor_mhz"])


def by_shape(table: pd.DataFrame) -> pd.DataFrame:
    """The rows by shape, in the order in which shapes first occur; platforms of a shape together, the anchor last."""
    shapes = table.groupby(SHAPE, sort=False, dropna=False).ngroup()
    order = pd.DataFrame({"shape": shapes, "anchor": table["anchor"]}).sort_values(["shape", "anchor"], kind="stable")
    return table.loc[order.index].reset_index(drop=True)


def by_kernel(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The rows in the order of their kernels in the registry."""
    place = {name: number for number, name in enumerate(evidence.kernels)}
    return table.sort_values("kernel", key=lambda names: names.map(place), kind="stable")


def largest(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest product."""
    work = table[SHAPE].astype("float64").prod(axis=1)
    return table[work == work.max()]


def cubes(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of products of square matrices."""
    return rows[(rows["n"] == rows["p"]) & (rows["n"] == rows["m"])]


def largest_square(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that ran at the largest square product of each platform.

    A size at which fewer than half as many kernels ran as at another size is ignored, such as 1100 in a quick run.
    """
    rows = cubes(rows[rows["status"] == Status.OK])
    ran = rows.groupby(["platform", "n"])["kernel"].nunique()
    usual = ran[2 * ran >= ran.groupby("platform").transform("max")].reset_index()
    return rows[rows["n"] == rows["platform"].map(usual.groupby("platform")["n"].max())].reset_index(drop=True)


def timed_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that ran and have a rate."""
    return rows[(rows["status"] == Status.OK) & rows["gflops"].notna()]


def swept_tasks(evidence: Evidence) -> list[str]:
    """The tasks that time their products repeatedly."""
    return [name for name, entry in evidence.config["tasks"].items() if entry.get("method") != "maximum_size"]


def one_of_each_point(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows with one of each point: one that is ok if any is, then in turns, then that of the config's first task."""
    tasks = list(evidence.config["tasks"])
    order = rows.assign(
        failed=rows["status"] != Status.OK, alone=rows["turns"].isna(), place=rows["task"].map(tasks.index)
    ).sort_values(["failed", "alone", "place"], kind="stable")
    return rows.loc[order.drop_duplicates([*CASE, *evidence.choice]).index.sort_values()]


def made_of_short(rows: pd.DataFrame, evidence: Evidence) -> pd.Series:
    """Whether the floats of each row are computed from shorter numbers, on tensor cores."""
    makers = [name for name, kernel in evidence.kernels.items() if kernel.made_of_short]
    return rows["kernel"].isin(makers) & (rows["dtype"] == "float")
