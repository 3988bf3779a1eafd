"""The tables of the report: functions from measured and published figures to a table. Only `save` writes files.

Times are in ms and are medians of isolated runs; rates are in GFLOP/s; `ratio` is the published time divided by the
measured time. A row that did not run keeps its place, with its status. Shapes are shown as source a writes them:
(n, m, p), where C is n x m.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tilewise import UserError
from tilewise.build import build, cuda
from tilewise.count.occupancy import occupancy as held_by
from tilewise.files import write_csv
from tilewise.report import claims, notes
from tilewise.report.data import COUNTED, Evidence, Platform, point_of, within
from tilewise.report.limits import SCHEDULERS, WARP, Demand, Roofs, bytes_per_multiply_add, limited_by, shares
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS

_CASE = ["platform", "kernel", "dtype", *SHAPE]  # what a best choice is chosen for


def _chosen(evidence: Evidence) -> list[str]:
    """The columns in which two rows of the same kernel with the same choice agree, at any shape."""
    return ["kernel", "dtype", *evidence.choice]


def choice_text(row: Mapping[str, Any], kernels: Mapping[str, Kernel], without: Collection[str] = ()) -> str:
    """What the sweep chose for this row: `16 × 64` threads, `tile 32, ntb 7`; empty for a kernel without parameters.

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
            words.append(f"{row['block_x']} × {row['block_y']}")
        elif pd.notna(row.get(name)):
            words.append(f"{name} {row[name]}")
    return ", ".join(words)


def shape_text(row: Mapping[str, Any]) -> str:
    """The shape as source a writes it: (n, m, p)."""
    return f"({row['n']}, {row['m']}, {row['p']})"


def _pair(x, y):
    return [f"({a}, {b})" if pd.notna(a) else "" for a, b in zip(x, y)]


def _with_words(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The same rows with shape and choice in words."""
    needed = ["kernel", *SHAPE, *columns.choice(columns.parameters_of(rows))]
    records = rows[[name for name in needed if name in rows]].to_dict("records")
    return rows.assign(
        shape=pd.Series([shape_text(row) for row in records], index=rows.index, dtype="str"),
        choice=pd.Series([choice_text(row, evidence.kernels) for row in records], index=rows.index, dtype="str"),
    )


def describe(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Rows of measurements.csv with the further columns that a reader needs.

    Adds shape, choice, block, grid (text), spread_percent (interquartile range divided by the median), between_percent
    (from the fastest to the slowest run, divided by the median run), `unstable` (the standard deviation is above the
    config's limit) and `anchor` (the kernel is a library).
    """
    return _with_words(rows, evidence).assign(
        block=_pair(rows["block_x"], rows["block_y"]),
        grid=_pair(rows["grid_x"], rows["grid_y"]),
        # The quartiles of one sample are not a range.
        spread_percent=(100 * (rows["time_q3_ms"] - rows["time_q1_ms"]) / rows["time_ms"]).where(rows["samples"] > 1),
        between_percent=(100 * (rows["run_high_ms"] - rows["run_low_ms"]) / rows["time_ms"]).where(rows["runs"] > 1),
        unstable=rows["noise"] > evidence.max_noise,
        anchor=rows["kernel"].isin(evidence.libraries),
    )


def best(rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest of the described rows of each case (platform, kernel, dtype, shape), with its runner-up.

    Adds `points_ran` ("5 of 6"), runner_up, gap_percent (how much slower the runner-up is), `decided`: the ranges of
    the two do not overlap, so the difference exceeds the spread, and at_end: the parameters whose value is the first or
    the last of those that ran, so that the best may lie beyond. If nothing ran, the first row is taken.
    """
    rows = rows.assign(case=rows.groupby(_CASE, sort=False, dropna=False).ngroup())
    chosen = ["case", *columns.choice(columns.parameters_of(rows))]
    asked = rows.drop_duplicates(chosen)  # two tasks may have asked for the same point
    ran = rows[rows["status"] == "ok"].sort_values("time_ms", kind="stable").drop_duplicates(chosen)
    table = pd.concat([ran, asked]).drop_duplicates("case").sort_values("case")
    second = ran[ran.groupby("case").cumcount() == 1].set_index("case").reindex(table["case"]).set_index(table.index)
    ran_of, asked_of = (table["case"].map(some["case"].value_counts()).fillna(0).astype(int) for some in (ran, asked))
    (_, slowest), (fastest, _) = within(table), within(second)
    table = table.assign(
        points_ran=ran_of.astype(str) + " of " + asked_of.astype(str),
        runner_up=second["choice"].fillna("").astype("str"),
        gap_percent=100 * (second["time_ms"] / table["time_ms"] - 1),
        decided=(slowest < fastest).astype("boolean").where(second["kernel"].notna()),
        at_end=_at_end(ran, table),
    )
    return table.drop(columns="case").reset_index(drop=True)


def _at_end(ran: pd.DataFrame, best: pd.DataFrame) -> pd.Series:
    """The parameters of which a best row has the least or the largest value, of three or more that ran in its `case`.

    A block of a fixed number of threads is one parameter: its width.
    """
    cases, found = ran.groupby("case"), [pd.Series("", best.index)]
    for name in ("block_x", *columns.parameters_of(ran)):
        if ran[name].nunique() < 3:
            continue
        least, largest, values = (
            best["case"].map(how) for _, how in cases[name].agg(["min", "max", "nunique"]).items()
        )
        ends = (values > 2) & ((best[name] == least) | (best[name] == largest)).fillna(False)
        if name == "block_x":  # else it follows from the other parameters
            ends &= best["choice"].str.contains("×")
        found.append(ends.map({True: name.removesuffix("_x"), False: ""}))
    return pd.Series([", ".join(filter(None, words)) for words in zip(*found)], index=best.index, dtype="str")


def _published_times(published, keys, pick_best):
    times = published[(published["quantity"] == "time") & (published["unit"] == "ms")]
    if pick_best:
        times = times.sort_values("value", kind="stable").drop_duplicates(keys)
    return times.assign(
        published_block=_pair(times["block_x"], times["block_y"]),
        published_grid=_pair(times["grid_x"], times["grid_y"]),
        published_ms=times["value"],
    )[[*keys, "published_block", "published_grid", "published_ms"]]


def _beside_published(table, evidence, published, pick_best):
    keys = ["kernel", "dtype", *SHAPE, *([] if pick_best else evidence.choice)]
    # A parameter that no source has is empty there: its figures are of kernels without it.
    missing = [name for name in keys if name not in published]
    published = columns.typed(published.reindex(columns=[*published.columns, *missing]))
    table = table.merge(_published_times(published, keys, pick_best), how="left", on=keys)
    return table.assign(ratio=table["published_ms"] / table["time_ms"])


def _beside_anchor(table, rows, evidence):
    """Adds `percent_of_anchor`: the rate as a percentage of the library's for the same product and element type.

    The library of a GPU's kernel is the GPU's, such as cuBLAS; that of a CPU loop is the CPU's.
    """
    anchors = rows[rows["kernel"].isin(evidence.libraries) & (rows["status"] == "ok")]
    anchors = anchors.assign(on_gpu=evidence.on_gpu(anchors["kernel"]), anchor_ms=anchors["time_ms"])
    keys = ["platform", "on_gpu", "dtype", *SHAPE]
    anchors = anchors.sort_values("time_ms", kind="stable").drop_duplicates(keys)[[*keys, "anchor_ms"]]
    table = table.assign(on_gpu=evidence.on_gpu(table["kernel"]))
    anchors = anchors.astype({"on_gpu": table["on_gpu"].dtype})
    table = table.merge(anchors, how="left", on=keys).drop(columns="on_gpu")
    return table.assign(percent_of_anchor=100 * table["anchor_ms"] / table["time_ms"])


def _beside_cpu(table, cpu, published):
    """Adds the CPU loop of the same machine and of source a for the same product, and the speed-ups over them."""
    keys = ["platform", "dtype", *SHAPE]
    loop = cpu[cpu["kernel"] == "kij"].drop_duplicates(keys)
    loop = loop.rename(columns={"time_ms": "cpu_ms", "status": "cpu_status"})[[*keys, "cpu_ms", "cpu_status"]]
    source = published[(published["kernel"] == "kij") & (published["quantity"] == "time")]
    source = source.rename(columns={"value": "published_cpu_ms"})[[*keys[1:], "published_cpu_ms"]].drop_duplicates(
        keys[1:]
    )
    table = table.merge(loop, how="left", on=keys).merge(source, how="left", on=keys[1:])
    return table.assign(
        ratio_cpu=table["published_cpu_ms"] / table["cpu_ms"],
        speedup_over_cpu=table["cpu_ms"] / table["time_ms"],
        published_speedup_over_cpu=table["published_cpu_ms"] / table["published_ms"],
    )


def _beside_emulator(table, evidence):
    """Adds `emulator`: whether this run's emulator verified the same kernel with the same parameters."""
    emulated, chosen = _but_asked_refusals(evidence.emulated, evidence), _chosen(evidence)
    if emulated.empty:
        return table
    worst = emulated.sort_values("status", key=lambda status: status == "ok", kind="stable").drop_duplicates(chosen)
    found = worst.rename(columns={"status": "emulator"})[[*chosen, "emulator"]]
    return table.merge(found, how="left", on=chosen)


def _by_shape(table):
    """Shapes in the order in which they first occur, the platforms of a shape together, the anchor last."""
    shapes = pd.factorize(table["n"].astype(str) + "," + table["m"].astype(str) + "," + table["p"].astype(str))[0]
    order = pd.DataFrame({"shape": shapes, "anchor": table["anchor"]}, index=table.index)
    return table.loc[order.sort_values(["shape", "anchor"], kind="stable").index].reset_index(drop=True)


def sweep(rows: pd.DataFrame, evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """Every point, in the layout of Tables 2 and 5: beside it the time published for the same parameters.

    `best` marks the fastest row of each case, and at_end names those of its parameters that no other exceeds.
    """
    rows = describe(rows, evidence)
    cases = rows.groupby(_CASE, dropna=False)["time_ms"]
    rows = rows.assign(
        best=(rows["time_ms"] == cases.transform("min")) & (cases.transform("count") > 1), case=cases.ngroup()
    )
    ends = _at_end(rows[rows["status"] == "ok"], rows)
    rows = rows.assign(at_end=ends.where(rows["best"], "")).drop(columns="case")
    table = _beside_published(rows, evidence, published, pick_best=False)
    return _by_shape(_beside_emulator(_beside_anchor(table, rows, evidence), evidence))


def winners(rows: pd.DataFrame, evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """The best of each case, in the layout of Tables 1 and 4: beside it the published best and the CPU loop."""
    table = _beside_published(best(describe(rows, evidence)), evidence, published, pick_best=True)
    table = _beside_cpu(_beside_anchor(table, rows, evidence), evidence.cpu, published)
    return _by_shape(_beside_emulator(table, evidence))


def maximum_size(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """Table 3: memory, sizes and time of the largest product, one row per quantity and platform.

    n is the number of rows of each of the three square float matrices. `share` rows are in percent. If the probe did
    not time something, its value is empty and the column `note` says why.
    """
    source = published[published["kernel"].isna() | (published["place"] == "Table 3") | (published["kernel"] == "")]
    known = dict(zip(source["quantity"], source["value"]))
    known["timed_n"] = published.loc[published["place"] == "Table 3", "n"].iloc[0]
    known["time"] = published.loc[published["place"] == "Table 3", "value"].iloc[0]
    timed = known | {"kernel": "naive", "time_ms": known["time"]}
    rows: list[dict[str, Any]] = []
    for probe in evidence.facts["maximum_size"].to_dict("records"):
        emulated = probe["platform"] not in {gpu.name for gpu in evidence.gpus}
        not_timed = "emulated: verified, not timed" if emulated else ""
        predicted = f"at n = {probe['allocatable_n']}; the budget is {probe['budget_s']:g} s"
        first = not any((row["platform"], row["kernel"]) == (probe["platform"], probe["kernel"]) for row in rows)
        entries = []
        if first and probe["kernel"] == "naive":
            entries += [
                ("memory, B", known["memory_total"], probe["memory_total_bytes"], ""),
                ("largest n in theory", known["theoretical_n"], probe["theoretical_n"], "three matrices in all memory"),
                ("largest n allocated", known["allocatable_n"], probe["allocatable_n"], "found by bisection"),
                (
                    "share of the theory, %",
                    *(100 * n["allocatable_n"] / n["theoretical_n"] for n in (known, probe)),
                    "",
                ),
            ]
        if first:
            words = f"{probe['kernel']}: predicted time of the largest, ms"
            entries.append((words, None, probe["predicted_ms"], not_timed or predicted))
        source = timed if (probe["kernel"], probe["timed_n"]) == (timed["kernel"], timed["timed_n"]) else {}
        for words, column, note in (("time, ms", "time_ms", _size_note(probe)), ("rate, GFLOP/s", "gflops", "")):
            theirs, ours = (_with_rate(each).get(column) for each in (source, probe))
            entries.append((f"{probe['kernel']} at n = {probe['timed_n']:,}: {words}", theirs, ours, not_timed or note))
        for quantity, theirs, ours, note in entries:
            about = {"quantity": quantity, "platform": probe["platform"], "kernel": probe["kernel"]}
            rows.append(about | {"published": theirs, "measured": ours, "note": note})
    if not any(row["published"] == timed["time_ms"] for row in rows):  # nobody timed the source's own n
        for words, column in (("time, ms", "time_ms"), ("rate, GFLOP/s", "gflops")):
            quantity, theirs = f"naive at n = {timed['timed_n']:,.0f}: {words}", _with_rate(timed)[column]
            for platform in dict.fromkeys(row["platform"] for row in rows):
                rows.append({"quantity": quantity, "platform": platform, "published": theirs, "note": "not timed here"})
    table = pd.DataFrame(rows, columns=["quantity", "platform", "published", "measured", "note"])
    table = table.astype({"published": "float64", "measured": "float64"})
    order = pd.factorize(table["quantity"])[0].argsort(kind="stable")
    real = table["platform"].isin([gpu.name for gpu in evidence.gpus])  # the emulated memory is a choice of the config
    ratio = (table["measured"] / table["published"]).where(real)
    return table.assign(ratio=ratio).iloc[order].reset_index(drop=True)


def _with_rate(timed: Mapping[str, Any]) -> Mapping[str, Any]:
    """A timed product of `timed_n` with its rate in GFLOP/s, if it has a time."""
    if pd.isna(timed.get("time_ms")):
        return timed
    return {**timed, "gflops": 2e-6 * timed["timed_n"] ** 3 / timed["time_ms"]}


def _size_note(probe: Mapping[str, Any]) -> str:
    """How far a product of a chosen size was checked, and why it has that size."""
    checked = f"{probe['rows_checked']} rows of C verified" if pd.notna(probe["rows_checked"]) else "it failed"
    return checked if probe["timed_n"] < probe["allocatable_n"] else f"{checked}; the largest that fits"


def cold_start(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """Source b's way to time: whole calls in a fresh process, in both orders; medians in ms by step, one row per call.

    alone_ms is the time of the kernel alone, warmed up, as every other task measures it.
    """
    calls = evidence.facts["cold_start"]
    calls = calls[calls["ms"].notna()].assign(step=lambda rows: rows["step"] + "_ms")
    key = ["platform", "order", "position", "kernel"]
    table = calls.pivot_table(index=key, columns="step", values="ms", aggfunc="median", sort=False).reset_index()
    alone = evidence.gpu.set_index(["platform", "kernel"])["time_ms"]
    alone = alone[~alone.index.duplicated()]
    source = published[(published["quantity"] == "call_time") & (published["place"] == "passing run")]
    source = source.set_index("kernel")["value"]
    in_order = table["order"] == "naive, tiled"
    return table[[*key, *steps(evidence)]].assign(
        alone_ms=[alone.get(pair) for pair in zip(table["platform"], table["kernel"])],
        published_ms=table["kernel"].map(source).where(in_order),
    )


def steps(evidence: Evidence) -> list[str]:
    """The columns of `cold_start` that hold the steps of a call, in the order in which they were taken; total_ms last.

    A step that only some calls have, such as the context, stands where it first occurs.
    """
    calls = evidence.facts["cold_start"]
    return [f"{step}_ms" for step in calls.loc[calls["ms"].notna(), "step"].unique()]


def launch_limits(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """Which launches ran and which were refused, with the error's name and the percentage of the device's limit."""
    limits = {platform.name: platform.device["limits"] for platform in evidence.everyone}
    rows = []
    for row in evidence.facts["launch_limits"].to_dict("records"):
        allowed = limits[row["platform"]]
        shared = allowed["shared_bytes_per_block_optin" if row["limit_raised"] is True else "shared_bytes_per_block"]
        most = max(row["threads"] / allowed["max_threads_per_block"], row["shared_bytes"] / shared)
        rows.append(row | {"block": f"{row['block_x']} × {row['block_y']}", "percent_of_limit": 100 * most})
    return pd.DataFrame(rows, columns=[*evidence.facts["launch_limits"], "block", "percent_of_limit"])


def bandwidth(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """The roofs of the device: memory bandwidth, multiply-add rates and what source d's intensities allow."""
    rows = evidence.facts["bandwidth"]
    return rows.assign(percent_of_datasheet=100 * rows["measured"] / rows["datasheet"])


def occupancy(evidence: Evidence) -> pd.DataFrame:
    """How many blocks and warps of each launch of the study a multiprocessor holds, and what limits them."""
    rows = evidence.facts["occupancy"]
    choice = [choice_text(row, evidence.kernels) for row in rows.to_dict("records")]
    return rows.assign(choice=choice, occupancy_percent=100 * rows["occupancy"])


#: A variant is as good as the best if its rate is at least this fraction of the best one's.
AS_GOOD = 0.95


@functools.lru_cache(maxsize=4)
def variants(evidence: Evidence) -> pd.DataFrame:
    """Every variant that the tuner tried, with its rank and its rate in % of the best one's.

    Ranks count from 1 among those that ran at the same shape on the same platform.
    """
    rows = evidence.facts["tune"]
    rates = rows.groupby(_CASE, sort=False)["gflops"]
    return _with_words(rows, evidence).assign(
        rank=rates.rank(ascending=False, method="first").astype("Int64"),
        percent_of_best=100 * rows["gflops"] / rates.transform("max"),
    )


def tuning(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """What the tuner found, one row per kernel, element type and shape.

    The best is the variant that was chosen for the class of the shape. Without times, on the emulator, nothing is best.
    """
    rows, found = variants(evidence), []
    for _, case in rows.groupby(_CASE, sort=False):
        ran, chosen = case[case["status"] == "ok"], case[case["chosen"]]
        registry = ran[ran["registered"]]
        best = (chosen if len(chosen) else case).iloc[0]
        about = {name: best[name] for name in [*_CASE, "shape", "shape_class"]}
        gflops = best["gflops"] if len(chosen) else None
        before = registry["gflops"].iloc[0] if len(registry) else None
        found.append(
            about
            | {"variants": len(case), "failed": len(case) - len(ran), "spilled": int((ran["spill_bytes"] > 0).sum())}
            | {"within_percent": int((ran["percent_of_best"] >= 100 * AS_GOOD).sum()) if gflops else None}
            | {"choice": best["choice"] if len(chosen) else "", "gflops": gflops, "registry_gflops": before}
            | {"time_ms": best["time_ms"] if len(chosen) else None}
            | {"gain_percent": 100 * (gflops / before - 1) if gflops and before else None}
        )
    names = ["shape", "shape_class", "variants", "failed", "spilled", "within_percent", "choice", "time_ms", "gflops"]
    table = pd.DataFrame(found, columns=[*_CASE, *names, "registry_gflops", "gain_percent"])
    return _beside_anchor(columns.typed(table), evidence.gpu, evidence)


def accuracy(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """The accuracy gate: errors of each kernel on each kind of operands beside those of SGEMM, longest sums first."""
    rows = evidence.facts["accuracy"]
    rows = rows.assign(operands=rows["operands"].str.replace("_", " "))
    return rows.sort_values(["p", "platform"], ascending=[False, True], kind="stable").reset_index(drop=True)


def energy(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """What each product costs in energy, beside its rate while the counter was watched."""
    return _with_words(evidence.facts["energy"], evidence).reset_index(drop=True)


_OF_METHOD = {
    "tune": tuning,
    "accuracy": accuracy,
    "energy": energy,
    "maximum_size": maximum_size,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
    "overhead": lambda evidence, published: evidence.facts["overhead"],
}
#: The tasks whose table shows only the best of each case, as the source does, instead of every point.
_WINNERS = {"task1a", "task2a", "task2b"}


def task(name: str, evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """The table of a task: Table 1 is task1a, 2 task1b, 3 task1c, 4 task2a, 5 task3; other tasks show every point."""
    own, method, chosen = evidence.of(name), evidence.method(name), _chosen(evidence)
    if method != "sweep":
        return _OF_METHOD[method](own, published)
    timed = pd.concat([own.gpu, own.cpu], ignore_index=True)
    # If a kernel was timed nowhere, such as a new kernel on a machine without a GPU, the table can only show whether it
    # is right.
    timed_ones, verified_ones = (pd.MultiIndex.from_frame(part[chosen].astype(str)) for part in (timed, own.emulated))
    rows = pd.concat([timed, own.emulated[~verified_ones.isin(timed_ones)]], ignore_index=True)
    layout = winners if name in _WINNERS else sweep
    return layout(rows, evidence, published)


def save(make: Callable[[], pd.DataFrame], path: Path | str) -> None:
    """Write a table as CSV, whole or not at all; if it cannot be made, one with the note that says so."""
    write_csv(notes.attempt(str(path), make, lambda note: pd.DataFrame({notes.COLUMN: [note]})), path)


def largest(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the largest product."""
    work = table[SHAPE].astype("float64").prod(axis=1)
    return table[work == work.max()]


def choices(evidence: Evidence, *tasks: str) -> pd.DataFrame:
    """The best choice of every case in these tasks; kernels without a choice, such as cuBLAS, are left out."""
    rows = evidence.of(*tasks).gpu
    rows = best(describe(rows[rows["time_ms"].notna()], evidence))
    return rows[rows["runner_up"].fillna("") != ""].reset_index(drop=True)


def ladder(evidence: Evidence, published: pd.DataFrame) -> pd.DataFrame:
    """The best of every kernel for every product on every GPU, in all tasks: rate, percentage of peak, speed-ups.

    speedup_over_naive and speedup_over_cpu are ratios of times on the same machine. percent_of_peak refers to the
    vector peak of device.json; cuBLAS can exceed it for double if the GPU has FP64 tensor cores.
    """
    table = winners(evidence.of(*_swept(evidence)).gpu, evidence, published)
    naive = table[(table["kernel"] == "naive") & (table["status"] == "ok")]
    keys = ["platform", "dtype", *SHAPE]
    naive = naive.rename(columns={"time_ms": "naive_ms"})[[*keys, "naive_ms"]]
    table = table.merge(naive, how="left", on=keys)
    peaks = {gpu.name: gpu.device["gpu"]["peak_gflops"] or {} for gpu in evidence.gpus}
    peak = pd.Series(
        [peaks[name].get(dtype) for name, dtype in zip(table["platform"], table["dtype"])], dtype="float64"
    )
    return table.assign(
        speedup_over_naive=table["naive_ms"] / table["time_ms"],
        peak_gflops=peak,
        percent_of_peak=100 * table["gflops"] / peak,
    )


def _swept(evidence: Evidence) -> list[str]:
    """The tasks whose products are timed again and again."""
    return [name for name, entry in evidence.config["tasks"].items() if entry.get("method") != "maximum_size"]


def largest_square(ladder: pd.DataFrame) -> pd.DataFrame:
    """Of `ladder` those that ran at the largest square product of each platform."""
    rows = ladder[(ladder["n"] == ladder["p"]) & (ladder["n"] == ladder["m"]) & (ladder["status"] == "ok")]
    return rows[rows["n"] == rows.groupby("platform")["n"].transform("max")].reset_index(drop=True)


def made_of_short(rows: pd.DataFrame, evidence: Evidence) -> pd.Series:
    """Of each row, whether its floats are made of shorter numbers, on tensor cores."""
    makers = [
        name
        for name, kernel in evidence.kernels.items()
        if kernel.accuracy and kernel.accuracy.get("scheme") != "chain"  # which is one of floats
    ]
    return rows["kernel"].isin(makers) & (rows["dtype"] == "float")


def _points(evidence):
    """All points of all platforms, except launches whose refusal is what the task asks for."""
    return _but_asked_refusals(pd.concat([evidence.gpu, evidence.cpu, evidence.emulated], ignore_index=True), evidence)


def _but_asked_refusals(rows, evidence):
    tasks = {}
    for platform in evidence.everyone:
        tasks |= platform.config["tasks"]
    asked = [name for name, entry in tasks.items() if entry.get("method") == "launch_limits"]
    return rows[~(rows["task"].isin(asked) & (rows["status"] == "invalid_launch"))]


def failures(evidence: Evidence) -> pd.DataFrame:
    """Every point that is not ok, with its cause.

    A kernel that a machine cannot run at all has one row per task, element type and cause, with the number of its
    `points`; every other row is one point.
    """
    rows = _points(evidence)
    rows = describe(rows[rows["status"] != "ok"], evidence)
    names = ["platform", "task", "kernel", "dtype", "shape", "choice", "status", "message"]
    rows = rows[names].assign(points=pd.array([1] * len(rows), dtype="Int64"))
    cannot = rows["status"] == "unsupported"
    same = [name for name in names if name not in ("shape", "choice")]
    points = rows[cannot].groupby(same, sort=False)["points"].transform("size")
    grouped = rows[cannot].assign(points=points.astype("Int64")).drop_duplicates(same)
    grouped = grouped.assign(**{name: grouped[name].where(grouped["points"] == 1, "") for name in ("shape", "choice")})
    return pd.concat([rows[~cannot], grouped]).sort_index(kind="stable").reset_index(drop=True)


def not_emulated(evidence: Evidence) -> pd.DataFrame:
    """The kernels that the CPU emulator does not run, with the reason; empty if no platform of the run is emulated."""
    emulated = any(not platform.has_gpu for platform in evidence.platforms)
    kernels = [kernel for kernel in evidence.kernels.values() if emulated and not kernel.emulated]
    rows = [{"kernel": kernel.name, "title": kernel.title, "reason": kernel.reason} for kernel in kernels]
    return pd.DataFrame(rows, columns=["kernel", "title", "reason"])


def durations(evidence: Evidence) -> pd.DataFrame:
    """How long each task took, and how much of that was timing."""
    return evidence.facts["sweep"].reset_index(drop=True)


def verification(evidence: Evidence) -> pd.DataFrame:
    """How many points of each kernel and dtype are right, and the largest error relative to its rounding bound."""
    rows = _points(evidence)
    groups = rows.assign(verified=rows["status"] == "ok").groupby(["platform", "kernel", "dtype"], sort=False)
    return groups.agg(
        points=("status", "size"),
        verified=("verified", "sum"),
        largest_bound_ratio=("bound_ratio", "max"),
        largest_relative_error=("relative_error", "max"),
    ).reset_index()


@functools.lru_cache(maxsize=4)
def traffic(evidence: Evidence) -> pd.DataFrame:
    """The memory traffic of each kernel, counted by the emulator at its largest traced shape; its faults at all shapes.

    Faults are empty if no shape was searched for them; `searched` says at how many, or why at none.
    """
    key, found = _chosen(evidence), [*columns.FAULTS, "unused_reads"]
    rows = evidence.facts["traffic"].copy()
    rows["work"] = rows[SHAPE].astype("float64").prod(axis=1).where(rows["global_load_requests"].notna(), 0)
    rows["searched"] = _searched(rows, key)
    rows[found] = rows.groupby(key, dropna=False, sort=False)[found].transform("sum", min_count=1)
    rows = rows.sort_values("work", kind="stable").drop_duplicates(key, keep="last").sort_index()
    return _with_words(rows.drop(columns="work"), evidence).reset_index(drop=True)


def _searched(rows: pd.DataFrame, key: list[str]) -> pd.Series:
    """Where the kernel of each row was searched for faults, in words that all rows of a kernel's choice share."""
    words = pd.Series("", rows.index, dtype="str")
    for _, group in rows.groupby(key, dropna=False, sort=False):
        whole = group["races"].notna()
        said = f"{whole.sum()} shape{'' if whole.sum() == 1 else 's'}"
        left = group.loc[~whole & (group["message"] != ""), "message"]
        why = left.iloc[0] if len(left) else "add a shape that it takes to trace.shapes"
        if not whole.any():
            said = f"not traced: {why}"
        elif len(left):
            said += f"; {len(left)} not traced: {why}"
        words[group.index] = said
    return words


def cache_lines(evidence: Evidence) -> pd.DataFrame:
    """The time of each CPU loop beside the lines that it fetches into the first cache and from beyond the second.

    Times (in ns) and lines are per multiply-add; the lines come from a model (tilewise.count.cache_lines).
    """
    rows = describe(evidence.cpu[evidence.cpu["status"] == "ok"], evidence)
    rows = rows.assign(element_bytes=[PRECISIONS[dtype].itemsize for dtype in rows["dtype"]])
    keys = [*COUNTED["cache_lines"], *evidence.parameters]
    rows = rows.astype({"element_bytes": "Int64"}).merge(evidence.facts["cache_lines"], on=keys)
    work = rows[SHAPE].astype("float64").prod(axis=1)
    rows = rows.assign(
        ns_per_multiply_add=1e6 * rows["time_ms"] / work,
        l1_lines_per_multiply_add=rows["l1_lines"] / rows["multiply_adds"],
        l2_lines_per_multiply_add=rows["l2_lines"] / rows["multiply_adds"],
    )
    rows = _by_shape(rows.assign(work=work))
    shown = ["platform", "kernel", "dtype", "shape", "choice", "work", "unstable", "spread_percent"]
    return rows[[*shown, *(name for name in rows if name.endswith("_per_multiply_add"))]]


#: Of a count of the emulator, what the hardware's counter leaves out, and what it has beside it.
_BY_OTHER_WAYS = {
    "global_load_requests": ("tma_load_requests",),
    "global_load_sectors": ("tma_load_sectors",),
    "global_store_requests": ("tma_store_requests",),
    "global_store_sectors": ("tma_store_sectors",),
    "shared_load_requests": ("matrix_load_requests",),
    "shared_store_requests": ("async_load_requests",),
}
_BY_THE_SAME = {"tma_load_sectors": ("multicast_sectors",)}


def counted_against_hardware(evidence: Evidence) -> pd.DataFrame:
    """The emulator's and the hardware's counts of the same launch, one row per count.

    difference_percent is how much more the emulator counted than the hardware, which has counters of their own for what
    goes by ways of its own: ldmatrix, TMA, what cp.async writes.
    """
    keys = ["kernel", "dtype", *SHAPE, *evidence.choice]
    counted = _with_words(evidence.facts["traffic"], evidence)
    both = counted.merge(evidence.facts["counters"], on=keys, suffixes=("_counted", "_hardware"))
    about, rows = ["kernel", "dtype", "shape", "choice"], []
    for row in both.to_dict("records"):
        for count in columns.counts():
            counted, hardware = row[f"{count}_counted"], row[f"{count}_hardware"]
            if pd.isna(counted) or pd.isna(hardware):
                continue
            for sign, others in ((-1, _BY_OTHER_WAYS.get(count, ())), (1, _BY_THE_SAME.get(count, ()))):
                parts = (row.get(f"{name}_counted", row.get(name)) for name in others)
                counted += sign * sum(part for part in parts if not pd.isna(part))
            same = counted == hardware
            percent = 0.0 if same else 100 * (counted / hardware - 1) if hardware else None
            numbers = {"count": count, "counted": counted, "hardware": hardware, "difference_percent": percent}
            rows.append({name: row[name] for name in about} | numbers)
    return pd.DataFrame(rows, columns=[*about, "count", "counted", "hardware", "difference_percent"])


def agreement(evidence: Evidence) -> pd.DataFrame:
    """How well the emulator's counts and the hardware's agree over the launches, for each kernel, type and count."""
    rows = counted_against_hardware(evidence)
    groups = rows.assign(equal=rows["counted"] == rows["hardware"]).groupby(["kernel", "dtype", "count"], sort=False)
    return groups.agg(
        launches=("equal", "size"), equal=("equal", "sum"), largest_difference_percent=("difference_percent", _largest)
    ).reset_index()


def _largest(percents):
    known = percents.dropna()
    return known.loc[known.abs().idxmax()] if len(known) else None


# ---- The climb -------------------------------------------------------------------------------------------------------
# A scheduler issues one instruction per cycle. So the share of multiply-adds in a kernel's loop is a ceiling of its
# rate, in units of the rate that multiply-adds alone reach (`multiply_add_rate` of the task `bandwidth`).

#: The task whose kernels climb from naive to the limit of the chip.
CLIMB = "ladder_float"
#: A product so many times as high and as wide has hardly any edges.
MANY = 64
#: The states of a warp in which it waits, as ncu names them.
STALLS = [
    name.removeprefix("stall_")
    for name in columns.FILES["counters"].split()
    if name.startswith("stall_") and not name.endswith("selected")
]
#: What a load brings per thread, by column, in bytes.
WIDTHS = {"128": 16, "64": 8, "32": 4}
#: The kinds of instructions that the memory pipe of a multiprocessor takes, one request of a warp per cycle at best.
ACCESSES = [
    *(f"{where}_loads_{bits}" for where in ("shared", "global") for bits in WIDTHS),
    *("matrix_loads", "shared_stores", "async_copies", "global_stores"),
]


def _with_instances(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Timed rows with the instance that makes the product, what it is compiled for, and how it lies on the device.

    Adds instance, architecture, warps (that a multiprocessor holds), occupancy_percent, limiter and waves (blocks of
    the grid per blocks that the device holds). They are empty for a library, and for a row of an older kernel.
    """
    gpus = {gpu.name: gpu for gpu in evidence.gpus}
    found = [_of_row(row, gpus[row["platform"]], evidence) for row in rows.to_dict("records")]
    names = ["instance", "architecture", "warps", "occupancy_percent", "limiter", "waves"]
    added = pd.DataFrame(found, columns=names, index=rows.index)
    words = dict.fromkeys(("instance", "architecture", "limiter"), "str")
    return rows.join(added.astype(words | dict.fromkeys(("warps", "occupancy_percent", "waves"), "float64")))


def _of_row(row: Mapping[str, Any], gpu: Platform, evidence: Evidence) -> dict[str, Any]:
    kernel = evidence.kernels.get(row["kernel"])
    at = point_of(row, kernel) if kernel and kernel.kind == "cuda" else None
    if kernel is None or at is None or kernel.unmet(at):
        return {"instance": "", "architecture": "", "limiter": ""}
    launch, capability = kernel.plan(at, gpu.device).product, gpu.device["gpu"]["compute_capability"]
    assert launch is not None
    found: dict[str, Any] = {"instance": launch.instance, "architecture": cuda.architecture(kernel, capability)}
    if pd.isna(row["registers"]):
        return found | {"limiter": ""}
    limits, warp = gpu.device["limits"], gpu.device["limits"]["warp_size"]
    held = held_by(launch.threads, row["registers"], row["shared_bytes"], limits, capability)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return found | {
        "warps": held.active_blocks * -(-launch.threads // warp),
        "occupancy_percent": 100 * held.occupancy,
        "limiter": held.limiter,
        "waves": blocks / (held.active_blocks * gpu.device["gpu"]["sms"]) if held.active_blocks else None,
    }


def instructions(evidence: Evidence) -> pd.DataFrame:
    """The multiply-add loop of every instance whose machine code was read, with its rate and its ceiling.

    The rate is the best of the instance at any shape. `ceiling_gflops` is known for instances that multiply on the CUDA
    cores, on a device whose rate of multiply-adds was measured.
    """
    rows = evidence.gpu[(evidence.gpu["status"] == "ok") & evidence.gpu["gflops"].notna()]
    rows = _with_instances(describe(rows, evidence), evidence)
    key = ["kernel", "dtype", "instance", "architecture"]
    best = rows.sort_values("gflops", kind="stable").drop_duplicates(["platform", *key], keep="last")
    shown = ["platform", *key, "shape", "choice", "gflops", "warps", "occupancy_percent", "limiter"]
    return _beside_ceiling(evidence.facts["instructions"].merge(best[shown], how="left", on=key), evidence)


def _beside_ceiling(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds what follows from the counts of a loop, and `ceiling_gflops` and percent_of_ceiling."""
    adds = table["multiply_add_instructions"].astype("float64")
    read = {
        f"{where}_bytes_per_multiply_add": sum(size * table[f"{where}_loads_{bits}"] for bits, size in WIDTHS.items())
        for where in ("shared", "global")
    }
    ceilings = [_ceiling(row, evidence) for row in table.to_dict("records")]
    accesses = sum(table[name] for name in ACCESSES)
    table = table.assign(
        multiply_add_percent=100 * table["multiply_add_share"],
        others_per_100=100 * (table["instructions"].astype("float64") - adds) / adds,
        accesses_per_100=100 * accesses.astype("float64") / adds,
        **{name: count.astype("float64") / adds for name, count in read.items()},
        reused_per_multiply_add=table["reused_operands"].astype("float64") / adds,
        ceiling_gflops=pd.Series(ceilings, index=table.index, dtype="float64"),
    )
    return table.assign(percent_of_ceiling=100 * table["gflops"] / table["ceiling_gflops"])


def _ceiling(row: Mapping[str, Any], evidence: Evidence) -> float | None:
    """The highest rate in GFLOP/s that a loop can reach on the CUDA cores; None if that is not known.

    Units that take a multiply-add in every second cycle, such as Hopper's for double, leave the other slots free.
    """
    gpu = next((gpu.device["gpu"] for gpu in evidence.gpus if gpu.name == row["platform"]), None)
    roofs = evidence.facts["bandwidth"]
    roofs = roofs[(roofs["quantity"] == "multiply_add_rate") & (roofs["dtype"] == row["dtype"])]
    measured = roofs.loc[roofs["platform"] == row["platform"], "measured"].dropna()
    peak = gpu and (gpu["peak_gflops"] or {}).get(row["dtype"])
    on_cuda_cores = isinstance(row["multiply_add"], str) and row["multiply_add"] and "MMA" not in row["multiply_add"]
    if not gpu or not peak or measured.empty or not on_cuda_cores:
        return None
    slots = 2e-3 * gpu["sms"] * SCHEDULERS * WARP * gpu["sm_clock_mhz"]
    return min(1.0, row["multiply_add_share"] * slots / peak) * measured.iloc[0]


def loops(evidence: Evidence) -> pd.DataFrame:
    """Of `instructions` the fastest instance of each kernel and element type; of one that nobody timed, the first."""
    table = instructions(evidence)
    of_a_kind = table.groupby(["kernel", "dtype"])["gflops"]
    order = table[table["gflops"].notna() | (of_a_kind.transform("count") == 0)]
    order = order.sort_values("gflops", ascending=False, na_position="last", kind="stable")
    return table.loc[order.drop_duplicates(["platform", "kernel", "dtype"]).index.sort_values()]


def climb(evidence: Evidence, task: str) -> pd.DataFrame:
    """Every timed row of a task with what its machine code, its launch and its memory traffic say.

    To the columns of `instructions` come wavefronts_per_100 (of shared memory, per 100 multiply-adds of a warp) and
    conflict_percent (bank conflicts as a share of all wavefronts), as the emulator counted them.
    """
    return _explained(evidence.of(task).gpu, evidence)


def _explained(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The timed ones of some rows with what is known of their kernels."""
    rows = rows[(rows["status"] == "ok") & rows["gflops"].notna()].reset_index(drop=True)
    rows = _with_instances(describe(rows, evidence), evidence)
    counted = evidence.facts["instructions"].drop(columns=["registers", "build_sha256"])
    rows = rows.merge(counted, how="left", on=["kernel", "dtype", "instance", "architecture"])
    return _beside_traffic(_beside_ceiling(rows, evidence), evidence)


def _beside_traffic(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    counted = traffic(evidence)
    counted = counted[counted["kernel"].isin(table["kernel"])]
    wavefronts = _wavefronts(counted)
    work = pd.Series([_work(row, evidence) / WARP for row in counted.to_dict("records")], counted.index, "float64")
    counted = counted.assign(
        wavefronts_per_100=100 * wavefronts / work,
        conflict_percent=100 * counted["shared_bank_conflicts"] / wavefronts.where(wavefronts > 0),
        lines_per_100=100 * counted["global_load_lines"].astype("float64") / work,
        sectors_per_100=100 * counted["global_load_sectors"].astype("float64") / work,
    )
    key = ["kernel", "dtype", *evidence.choice]
    added = ["wavefronts_per_100", "conflict_percent", "lines_per_100", "sectors_per_100"]
    return table.merge(counted[[*key, *added]], how="left", on=key)


def _wavefronts(counted: pd.DataFrame) -> pd.Series:
    return (counted["shared_load_wavefronts"] + counted["shared_store_wavefronts"]).astype("float64")


def _beside_hardware(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds hardware_wavefronts_per_100, and what a multiply-add of a warp moves to and from memory and the L2 cache
    (dram_bytes_each, l2_bytes_each), from the hardware's counters where they were recorded; of the largest launch.

    The compiler joins loads that the source makes one by one, which the emulator does not see.
    """
    counted = _with_work(evidence.facts["counters"], evidence)
    key = ["platform", "kernel", "dtype", *evidence.choice]
    counted = counted.sort_values("work", kind="stable").drop_duplicates(key, keep="last")
    counted = counted.assign(
        hardware_wavefronts_per_100=100 * _wavefronts(counted) / counted["work"],
        dram_bytes_each=_dram_bytes(counted) / counted["work"],
        l2_bytes_each=32 * counted["l2_sectors"].astype("float64") / counted["work"],
    )
    added = ["hardware_wavefronts_per_100", "dram_bytes_each", "l2_bytes_each"]
    return table.merge(counted[[*key, *added]], how="left", on=key)


def tile_counts(evidence: Evidence) -> pd.DataFrame:
    """The timed rows of `multi_tile` at the largest square product, with the passes of shared memory that ncu counted.

    Adds hardware_wavefronts_per_100, active_blocks (that a multiprocessor holds), and shared_percent: the share of the
    device's passes, as measured or else one per cycle and multiprocessor, that a run at this rate takes.
    """
    rows = evidence.of("task3").gpu
    rows = rows[(rows["kernel"] == "multi_tile") & (rows["status"] == "ok") & (rows["n"] == rows["p"])]
    rows = rows[rows["n"] == rows["m"]]
    rows = _beside_hardware(_with_words(rows[rows["n"] == rows["n"].max()], evidence), evidence)
    held = evidence.facts["occupancy"]
    keys = ["platform", "kernel", "dtype", "tile", "ntb"]
    rows = rows.merge(held[[*keys, "active_blocks"]].drop_duplicates(keys), how="left", on=keys)
    facts = evidence.facts["bandwidth"]
    facts = facts[(facts["quantity"] == "shared_wavefronts_16_bytes") & facts["measured"].notna()]
    measured = dict(zip(facts["platform"], facts["measured"]))
    sms = {gpu.name: gpu.device["gpu"]["sms"] for gpu in evidence.gpus}
    shares = [
        _warps(row, evidence)
        * row["hardware_wavefronts_per_100"]
        / measured.get(row["platform"], sms[row["platform"]] * row["sm_clock_mhz"] / 1000)
        for row in rows.to_dict("records")
    ]
    rows = rows.assign(shared_percent=pd.Series(shares, rows.index, "float64"))
    return rows.sort_values(["platform", "dtype", "tile", "ntb"], ignore_index=True)


def _warps(row: Mapping[str, Any], evidence: Evidence) -> float:
    """10^9 multiply-adds of warps per second of a timed row, with those beyond the edges of C."""
    return row["gflops"] / 2 / WARP * _work(row, evidence) / (float(row["n"]) * row["p"] * row["m"])


def _with_work(counted: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Counted launches with their multiply-adds of warps, as `work`."""
    work = [_work(row, evidence) / WARP for row in counted.to_dict("records")]
    return counted.assign(work=pd.Series(work, counted.index, "float64"))


def _dram_bytes(counted: pd.DataFrame) -> pd.Series:
    return (counted["dram_read_bytes"] + counted["dram_written_bytes"]).astype("float64")


def profiled(evidence: Evidence) -> pd.DataFrame:
    """What ncu counted at full size, one row per launch that makes a product.

    Adds profiled_ms, wavefronts_per_100, dram_gb (read and written), matrices_moved (the same as a multiple of the
    three matrices), and `waits`: for what the warps wait most, with the number of warps per instruction issued.
    """
    rows = _with_words(evidence.facts["counters"], evidence)
    rows = _with_work(rows[rows["profiled_ns"].notna()], evidence)
    records = rows.to_dict("records")
    least = [bytes_per_multiply_add(row, PRECISIONS[row["dtype"]].itemsize) * row["work"] for row in records]
    waits = pd.Series([_waits(row) for row in records], index=rows.index, dtype="str")
    order = {name: place for place, name in enumerate(evidence.kernels)}
    rows = rows.assign(
        profiled_ms=rows["profiled_ns"].astype("float64") / 1e6,
        wavefronts_per_100=100 * _wavefronts(rows) / rows["work"],
        dram_gb=_dram_bytes(rows) / 1e9,
        matrices_moved=_dram_bytes(rows) / pd.Series(least, rows.index, "float64"),
        waits=waits,
        place=rows["kernel"].map(order),
    )
    return rows.sort_values(["platform", "place"], kind="stable", ignore_index=True).drop(columns=["place", "work"])


def _waits(row: Mapping[str, Any], most: int = 3) -> str:
    """The states in which most of a scheduler's warps wait, with how many of them do."""
    found = {name: row[f"stall_{name}"] for name in STALLS if not pd.isna(row[f"stall_{name}"])}
    first = sorted(found, key=lambda name: -found[name])[:most]
    return ", ".join(f"{columns.heading(f'stall_{name}')} {found[name]:.2g}" for name in first if found[name] >= 0.05)


def limits(evidence: Evidence) -> pd.DataFrame:
    """What limits the best choice of each kernel and element type at the largest square product of each GPU.

    `limited_by` is the resource with the largest share of its roof, `limit_percent` the share, and `second_limit` and
    `second_percent` the next; the roofs are those at the row's own clock, where they follow from one.
    """
    rows = evidence.gpu[(evidence.gpu["n"] == evidence.gpu["p"]) & (evidence.gpu["n"] == evidence.gpu["m"])]
    rows = rows[(rows["status"] == "ok") & rows["task"].isin(_swept(evidence))]
    rows = rows[rows["n"] == rows.groupby("platform")["n"].transform("max")]
    rows = rows.sort_values("time_ms", kind="stable").drop_duplicates(["platform", "kernel", "dtype"])
    rows = _beside_hardware(_explained(rows, evidence), evidence)
    found = [_limits_of(row, evidence) for row in rows.to_dict("records")]
    names = ["limited_by", "limit_percent", "second_limit", "second_percent"]
    added = pd.DataFrame(found, columns=names, index=rows.index)
    types = {name: "float64" if name.endswith("percent") else "str" for name in names}
    return rows.join(added.astype(types)).sort_values(["platform", "dtype", "gflops"], kind="stable", ignore_index=True)


def _limits_of(row: Mapping[str, Any], evidence: Evidence) -> tuple[str, float, str, float]:
    """The two resources that a run used most, each with its share in percent."""
    if row["anchor"]:  # of a library nothing is counted
        return "", math.nan, "", math.nan
    roofs = evidence.facts["bandwidth"]
    roofs = roofs[(roofs["platform"] == row["platform"]) & roofs["measured"].notna()]
    gpu = next(gpu.device["gpu"] for gpu in evidence.gpus if gpu.name == row["platform"])
    measured = dict(zip(zip(roofs["quantity"], roofs["dtype"]), roofs["measured"]))
    wavefronts = row["hardware_wavefronts_per_100"]
    least = bytes_per_multiply_add(row, PRECISIONS[row["dtype"]].itemsize)
    demand = Demand(
        on_tensor_cores="MMA" in str(row["multiply_add"]),
        multiply_add_share=row["multiply_add_share"],
        wavefronts=(row["wavefronts_per_100"] if pd.isna(wavefronts) else wavefronts) / 100,
        lines=row["lines_per_100"] / 100,
        sectors=row["sectors_per_100"] / 100,
        l2_bytes=row["l2_bytes_each"],
        bytes=least if pd.isna(row["dram_bytes_each"]) else max(least, row["dram_bytes_each"]),
    )
    clock = gpu["sm_clock_mhz"] if pd.isna(row["sm_clock_mhz"]) else row["sm_clock_mhz"]
    used = shares(row["gflops"], demand, Roofs(gpu["sms"], clock, measured), row["dtype"])
    if pd.isna(wavefronts) and used["shared memory"] > 1:  # the emulator counted reads that the compiler joins
        used["shared memory"] = math.nan
    name, share = limited_by(used)
    others = sorted((part, other) for other, part in used.items() if part < share)  # what is not known is not less
    second = others[-1] if others else (math.nan, "")
    return name, 100 * share, second[1], 100 * second[0]


def _work(row: Mapping[str, Any], evidence: Evidence) -> float:
    """Multiply-adds of all blocks of a counted launch, with those beyond the edges of C.

    How many these are follows from the blocks of a product whose edges hardly count; blocks that take tile after tile,
    as many as the device holds, tell nothing of them.
    """
    work = float(row["n"]) * row["p"] * row["m"]
    kernel = evidence.kernels.get(row["kernel"])
    at = point_of({**row, "task": ""}, kernel) if kernel else None
    if kernel is None or at is None:
        return work
    sizes = (at, *(dataclasses.replace(at, n=at.n * times, m=at.m * times) for times in (MANY, 2 * MANY)))
    products = (kernel.plan(size).product for size in sizes)
    blocks, of_large, of_larger = (math.prod(launch.grid) for launch in products if launch)
    return work if of_large == of_larger else work * blocks * MANY**2 / of_large


#: The counts from which an intensity follows.
MOVED = ["global_load_sectors", "global_store_sectors"]


def intensity(row: Mapping[str, Any], evidence: Evidence) -> float:
    """FLOP per byte moved of a timed product, whose kernel was counted at counted_n, counted_p and counted_m.

    Every block loads as much per step of k at both shapes, and stores once; the number of blocks follows from the grid.
    NaN if nothing is moved.
    """
    counted = {**row, **{name: row[f"counted_{name}"] for name in SHAPE}}
    # Multiply-adds with those beyond the edges are as many as the blocks' shares, at both shapes.
    work = _work(row, evidence) / _work(counted, evidence)
    stores = work * counted["p"] / row["p"]
    moved = 32 * (work * row["global_load_sectors"] + stores * row["global_store_sectors"])
    return 2.0 * row["n"] * row["p"] * row["m"] / moved if moved else math.nan


def rungs(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The kernels of `climb` rows in the registry's order, each with its best choice; the library comes last.

    They are compared at the cube at which most kernels were timed, the largest if there are several. Adds
    percent_of_anchor, and `before`: the fastest kernel of those before it, to whose rate `gain` is the ratio.
    """
    place = {name: number for number, name in enumerate(evidence.kernels)}
    cubes = rows[(rows["n"] == rows["p"]) & (rows["n"] == rows["m"])]
    found = []
    for _, part in cubes.groupby(["platform", "dtype"], sort=False):
        if part["anchor"].all():
            continue
        kernels = part.groupby("n")["kernel"].nunique()
        part = part[part["n"] == kernels[kernels == kernels.max()].index.max()]
        part = part.sort_values("gflops", kind="stable").drop_duplicates("kernel", keep="last")
        part = part.loc[part["kernel"].map(place).sort_values(kind="stable").index]
        found.append(_beside_steps(part))
    return pd.concat(found, ignore_index=True) if found else _beside_steps(cubes.head(0))


def _beside_steps(part: pd.DataFrame) -> pd.DataFrame:
    """Adds percent_of_anchor, before and gain to the rungs of one platform and element type."""
    library = part.loc[part["anchor"], "gflops"].max()
    steps: list[tuple[str, float | None]] = []
    before, fastest = "", 0.0
    for kernel, anchor, rate in zip(part["kernel"], part["anchor"], part["gflops"]):
        steps.append((before, rate / fastest) if before and not anchor else ("", None))
        if rate > fastest:
            before, fastest = kernel, rate
    added = pd.DataFrame(steps, columns=["before", "gain"], index=part.index)
    part = part.assign(percent_of_anchor=100 * part["gflops"] / library)
    return part.join(added.astype({"before": "str", "gain": "float64"}))


# ---- The whole study -------------------------------------------------------------------------------------------------
def cards(evidence: Evidence) -> pd.DataFrame:
    """How the cards of one model compare: one row per platform of this run whose model another platform has too.

    At each point that all of them measured, a card's rate is divided by the median over the cards; the row has the
    median of these quotients. It is without rows if every card is of another model.
    """
    key = ["task", "kernel", "dtype", *SHAPE, *evidence.choice]
    models: dict[str, list[Platform]] = {}
    for platform in evidence.platforms:
        if platform.has_gpu:
            models.setdefault(platform.device["gpu"]["name"], []).append(platform)
    rows = []
    for platforms in models.values():
        names = [platform.name for platform in platforms]
        if len(names) < 2:
            continue
        timed = evidence.gpu[evidence.gpu["platform"].isin(names) & evidence.gpu["time_ms"].notna()]
        points = timed.groupby(key, dropna=False, sort=False).ngroup()
        # A point that two parameters of an older registry told apart may occur twice.
        times = timed.assign(point=points).pivot_table(
            index="point", columns="platform", values="time_ms", aggfunc="median"
        )
        rates = 1 / times.reindex(columns=names).dropna()
        if rates.empty:
            continue
        shares = 100 * rates.div(rates.median(axis=1), axis=0).median()
        for platform in platforms:
            mine = timed[timed["platform"] == platform.name]
            rows.append(
                {
                    "platform": platform.name,
                    "node": platform.device.get("node", ""),
                    "gpu_uuid": platform.device["gpu"].get("uuid", ""),
                    "compared": len(rates),
                    "sm_clock_mhz": mine["sm_clock_mhz"].median(),
                    "rate_percent": shares[platform.name],
                }
            )
    names = ["platform", "node", "gpu_uuid", "compared", "sm_clock_mhz", "rate_percent"]
    return columns.typed(pd.DataFrame(rows, columns=names))


def platforms(evidence: Evidence) -> pd.DataFrame:
    """What differs between GPUs: one row per point that the first of them and another both timed, the largest first.

    `faster` is the other's time divided by that of the first; `changed` says that the ranges of the two (those of their
    runs, or else their quartiles) do not overlap. A point that was timed more than once counts with its best time.
    Without two GPUs there are no rows.
    """
    key = ["kernel", "dtype", *SHAPE, *evidence.choice]
    timed = evidence.gpu[(evidence.gpu["status"] == "ok") & evidence.gpu["time_ms"].notna()]
    timed = _with_words(timed.sort_values("time_ms", kind="stable").drop_duplicates(["platform", *key]), evidence)
    low, high = within(timed)
    timed = timed.assign(low_ms=low, high_ms=high)
    names = [gpu.name for gpu in evidence.gpus]
    ranges = ["time_ms", "low_ms", "high_ms"]
    found = []
    for name in names[1:]:
        theirs = timed.loc[timed["platform"] == name, [*key, "platform", *ranges]]
        both = timed[timed["platform"] == names[0]].merge(theirs, on=key, suffixes=("", "_other"))
        found.append(
            both.assign(
                other_machine=[evidence.labels[name]] * len(both),
                other_ms=both["time_ms_other"],
                faster=both["time_ms_other"] / both["time_ms"],
                faster_low=both["low_ms_other"] / both["high_ms"],
                faster_high=both["high_ms_other"] / both["low_ms"],
            )
        )
    shown = [
        "platform",
        *key,
        "shape",
        "choice",
        "time_ms",
        "other_machine",
        "other_ms",
        "faster",
        "faster_low",
        "faster_high",
    ]
    none = timed.head(0).assign(other_machine="", **dict.fromkeys(shown[-4:], 0.0))
    table = pd.concat(found, ignore_index=True) if found else none
    table = table[shown].assign(changed=(table["faster_low"] > 1) | (table["faster_high"] < 1))
    far = (table["faster"] - 1).abs()
    return columns.typed(table.loc[far.sort_values(ascending=False, kind="stable").index].reset_index(drop=True))


def overheads(platforms: Iterable[Platform]) -> dict[str, float]:
    """Name of a platform -> what its isolated times have of the machine itself, in µs, where that was measured."""
    tables = {each.name: each.facts.get("overhead", pd.DataFrame({"overhead_us": []})) for each in platforms}
    found = {name: table["overhead_us"].median() for name, table in tables.items()}
    return {name: overhead for name, overhead in found.items() if pd.notna(overhead)}


def provenance(evidence: Evidence) -> pd.DataFrame:
    """Where every number comes from: one row per fact, one column per platform."""
    facts = {evidence.labels[each.name]: _facts(each, evidence.kernels) for each in evidence.readers}
    return pd.DataFrame(facts).rename_axis("fact").reset_index()


#: The tables of the whole study, in addition to those of its tasks: file name -> function of evidence and published.
OVERVIEW = {
    "claims": lambda evidence, published: claims.verdicts(claims.load(), evidence),
    "ladder": ladder,
    "choices": lambda evidence, published: choices(evidence, *evidence.config["tasks"]),
    "failures": lambda evidence, published: failures(evidence),
    "verification": lambda evidence, published: verification(evidence),
    "provenance": lambda evidence, published: provenance(evidence),
    "occupancy": lambda evidence, published: occupancy(evidence),
    "limited_by": lambda evidence, published: limits(evidence),
    "rungs": lambda evidence, published: rungs(climb(evidence, CLIMB), evidence),
    "instructions": lambda evidence, published: instructions(evidence),
    "traffic": lambda evidence, published: traffic(evidence),
    "cache_lines": lambda evidence, published: cache_lines(evidence),
    "profiled": lambda evidence, published: profiled(evidence),
    "counted_against_hardware": lambda evidence, published: counted_against_hardware(evidence),
    "durations": lambda evidence, published: durations(evidence),
}


def _facts(platform: Platform, kernels: Mapping[str, Kernel]) -> dict[str, str]:
    device = platform.device
    cpu, gpu = device["cpu"], device["gpu"]
    facts = {
        "platform": platform.name,
        "measured": f"{device['captured']}{', kept in the repository' if platform.recorded else ', this run'}",
        "GPU": "none: CUDA kernels ran on the CPU emulator and were not timed",
    }
    if gpu:
        peak = gpu["peak_gflops"] or {}
        facts |= {
            "GPU": f"{gpu['name']}, {gpu['sms']} SMs, compute capability {gpu['compute_capability']}",
            "clocks": f"SM {gpu['sm_clock_mhz']} MHz, memory {gpu['memory_clock_mhz']} MHz",
            "GPU memory": f"{gpu['memory_bytes'] / 2**30:.1f} GiB, {gpu['memory_bandwidth_gb_s']:.0f} GB/s",
            "L2 cache": f"{gpu['l2_bytes'] / 2**20:.0f} MiB",
            "peak": ", ".join(f"{name} {value / 1000:.1f} TFLOP/s" for name, value in peak.items()),
            "driver": str(gpu["driver"]),
            "GPU's UUID": gpu.get("uuid", "unknown"),
        }
        if "busy" in gpu:  # a run from before says nothing
            facts["beside us on the GPU"] = "; ".join(gpu["busy"]) or "nothing"
    for overhead in overheads([platform]).values():
        facts["overhead of an isolated time"] = f"{overhead:.1f} µs"
    facts["CPU"] = f"{cpu['name']}, {cpu['cores']} cores, {cpu['memory_gib']} GiB"
    if device.get("node"):
        facts["node"] = device["node"]
    others = {name for name in platform.measurements["processor"] if name} - {cpu["name"]}
    if others:
        facts["CPU of some loops"] = ", ".join(sorted(others))
    facts["host compiler"] = str(device["host_compiler"])
    facts |= {name.replace("_", " "): str(version) for name, version in device["versions"].items() if version}
    if platform.recorded:
        edited = _edited(platform, kernels)
        facts["kernels"] = (
            f"edited since: {', '.join(edited)}" if edited else "as measured, by the hash of every source"
        )
    commits = platform.commits
    facts["commit"] = "; ".join(
        state if len(commits) == 1 else f"{state} ({_some(tasks)})" for state, tasks in commits.items()
    )
    return facts


def _some(tasks: Sequence[str]) -> str:
    """The names of a few tasks, or how many they are; measurements.csv has the commit of each row."""
    return ", ".join(tasks) if len(tasks) <= 5 else f"{len(tasks)} tasks"


def _edited(platform: Platform, kernels: Mapping[str, Kernel]) -> list[str]:
    """Names of the kernels whose source differs from the one that was measured on a platform."""
    edited = set()
    for row in platform.measurements.to_dict("records"):
        kernel = kernels.get(row["kernel"])
        # A row without a hash is of a point that was never built.
        if kernel and kernel.source and row["build_sha256"] and row["kernel"] not in edited:
            point = point_of(row, kernel)
            if point is None or _sha256(kernel, point, platform.device) != row["build_sha256"]:
                edited.add(row["kernel"])
    return sorted(edited)


def _sha256(kernel: Kernel, point: Point, device: Mapping[str, Any]) -> str | None:
    """What `build_sha256` would be today; None for a point that the kernel no longer takes."""
    try:
        return build.row_sha256(kernel, point, device)
    except UserError:
        return None
