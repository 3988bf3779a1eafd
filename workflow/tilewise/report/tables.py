"""The tables of the tasks and those of the whole study. Only `save` writes files.

Times are in ms and are medians of isolated runs; rates are in GFLOP/s; `ratio` is the published time divided by the
measured time.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tilewise.evidence import Evidence, data_sheets
from tilewise.explain import by_size, climb, grades, profiles, provenance, traffic, tuned
from tilewise.explain.provenance import with_cards
from tilewise.explain.timings import (
    CASE,
    at_end,
    beside_anchor,
    best,
    by_shape,
    choice_text,
    chosen_columns,
    describe,
    fastest_first,
    one_of_each_point,
    swept_tasks,
    with_words,
)
from tilewise.files import write_csv
from tilewise.report import claims, notes
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status


def _beside_published(table, evidence, pick_best):
    keys = ["kernel", "dtype", *SHAPE, *([] if pick_best else evidence.choice)]
    # A parameter that no source has is empty there: its figures are of kernels without it.
    missing = [name for name in keys if name not in evidence.published]
    published = columns.set_types(evidence.published.reindex(columns=[*evidence.published, *missing]))
    times = published[(published["quantity"] == "time") & (published["unit"] == "ms")]
    if pick_best:
        times = times.sort_values("value", kind="stable").drop_duplicates(keys)
    times = times.rename(columns={"value": "published_ms"})
    table = table.merge(times[[*keys, "published_ms"]], how="left", on=keys)
    return table.assign(ratio=table["published_ms"] / table["time_ms"])


def _beside_cpu(table, evidence):
    """Adds the CPU loop of the same machine and of source a for the same product, and the speed-ups over them."""
    product = ["dtype", *SHAPE]
    loop, source = (rows[rows["kernel"] == "kij"] for rows in (evidence.cpu, evidence.published))
    loop = loop.rename(columns={"time_ms": "cpu_ms"}).drop_duplicates(["platform", *product])
    source = source[source["quantity"] == "time"].rename(columns={"value": "published_cpu_ms"}).drop_duplicates(product)
    table = table.merge(loop[["platform", *product, "cpu_ms"]], how="left", on=["platform", *product])
    table = table.merge(source[[*product, "published_cpu_ms"]], how="left", on=product)
    return table.assign(
        speedup_over_cpu=table["cpu_ms"] / table["time_ms"],
        published_speedup_over_cpu=table["published_cpu_ms"] / table["published_ms"],
    )


def _beside_emulator(table, evidence):
    """Adds `emulator`: whether this run's emulator verified the same kernel with the same parameters."""
    emulated, chosen = provenance.without_wanted_refusals(evidence.emulated, evidence), chosen_columns(evidence)
    if emulated.empty:
        return table
    right_last = emulated.sort_values("status", key=lambda status: status == Status.OK, kind="stable")
    worst = right_last.drop_duplicates(chosen)
    found = worst.rename(columns={"status": "emulator"})[[*chosen, "emulator"]]
    return table.merge(found, how="left", on=chosen)


def sweep(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Every point, as in source a's Tables 2 and 5: beside it the time published for the same parameters.

    `best` marks the fastest row of each case, and at_end names those of its parameters that no other exceeds.
    """
    rows = with_cards(describe(rows, evidence), evidence)
    cases = rows.groupby(CASE, dropna=False)["time_ms"]
    first = fastest_first(rows).drop_duplicates(CASE).index
    rows = rows.assign(best=rows.index.isin(first) & (cases.transform("count") > 1), case=cases.ngroup())
    ends = at_end(rows[rows["status"] == Status.OK], rows)
    rows = rows.assign(at_end=ends.where(rows["best"], "")).drop(columns="case")
    table = _beside_published(rows, evidence, pick_best=False)
    return by_shape(_beside_emulator(beside_anchor(table, rows, evidence), evidence))


def winners(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The best of each case, as in source a's Tables 1 and 4: beside it the published best and the CPU loop."""
    table = _beside_published(best(with_cards(describe(rows, evidence), evidence)), evidence, pick_best=True)
    table = _beside_cpu(beside_anchor(table, rows, evidence), evidence)
    return by_shape(_beside_emulator(table, evidence))


def choices(evidence: Evidence, *tasks: str) -> pd.DataFrame:
    """The best choice of every case in these tasks; kernels without a choice, such as cuBLAS, are left out."""
    rows = evidence.select_tasks(*tasks).gpu
    rows = best(describe(rows[rows["time_ms"].notna()], evidence))
    return rows[rows["runner_up"].fillna("") != ""].reset_index(drop=True)


@functools.lru_cache(maxsize=4)
def ladder(evidence: Evidence) -> pd.DataFrame:
    """The best of every kernel for every product on every GPU, in all tasks: rate, percentage of peak, speed-ups. A
    point has one rate here, though several tasks timed it.

    speedup_over_naive and speedup_over_cpu are ratios of times on the same machine. percent_of_peak refers to the
    vector peak of device.json; cuBLAS can exceed it for double if the GPU has FP64 tensor cores.
    """
    table = winners(one_of_each_point(evidence.select_tasks(*swept_tasks(evidence)).gpu, evidence), evidence)
    naive = table[(table["kernel"] == "naive") & (table["status"] == Status.OK)]
    keys = ["platform", "dtype", *SHAPE]
    naive = naive.rename(columns={"time_ms": "naive_ms"})[[*keys, "naive_ms"]]
    table = table.merge(naive, how="left", on=keys)
    peaks = {gpu.name: gpu.device.gpu["peak_gflops"] or {} for gpu in evidence.gpus}
    peak = pd.Series(
        [peaks[name].get(dtype) for name, dtype in zip(table["platform"], table["dtype"])], dtype="float64"
    )
    return table.assign(
        speedup_over_naive=table["naive_ms"] / table["time_ms"],
        peak_gflops=peak,
        percent_of_peak=100 * table["gflops"] / peak,
    )


def maximum_size(evidence: Evidence) -> pd.DataFrame:
    """Every product that the probe of the largest size timed, or could not, from small to large.

    Adds gflops, and published_ms: the time in source a's Table 3, where it has the same kernel at the same n.
    """
    published = evidence.published
    source = published[published["place"] == "Table 3"].set_index(["kernel", "n"])["value"]
    rows = evidence.facts["maximum_size"].sort_values("timed_n", kind="stable")
    rows = rows.drop_duplicates(["platform", "kernel", "timed_n"], keep="last")
    return rows.assign(
        gflops=2e-6 * rows["timed_n"].astype("float64") ** 3 / rows["time_ms"],
        published_ms=[source.get(key) for key in zip(rows["kernel"], rows["timed_n"])],
    ).astype({"published_ms": "float64"})


def cold_start(evidence: Evidence) -> pd.DataFrame:
    """Source b's way to time: whole calls in a fresh process, in both orders; medians in ms by step, one row per call.

    alone_ms is the time of the kernel alone, warmed up, as every other task measures it.
    """
    calls = evidence.facts["cold_start"]
    calls = calls[calls["ms"].notna()].assign(step=lambda rows: rows["step"] + "_ms")
    key = ["platform", "order", "position", "kernel"]
    table = calls.pivot_table(index=key, columns="step", values="ms", aggfunc="median", sort=False).reset_index()
    alone = evidence.gpu.set_index(["platform", "kernel"])["time_ms"]
    alone = alone[~alone.index.duplicated()]
    published = evidence.published
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


def launch_limits(evidence: Evidence) -> pd.DataFrame:
    """Launches that ran or were refused, with the error's name and the percentage of the device's limit."""
    limits = {platform.name: platform.device.limits for platform in evidence.shown_platforms}
    rows = []
    for row in evidence.facts["launch_limits"].to_dict("records"):
        allowed = limits[row["platform"]]
        shared = allowed["shared_bytes_per_block_optin" if row["limit_raised"] is True else "shared_bytes_per_block"]
        asked = pd.Series([row["threads"], row["shared_bytes"]], dtype="float64")  # a damaged recording may lack one
        most = (asked / [allowed["max_threads_per_block"], shared]).max(skipna=False)
        rows.append(row | {"block": f"{row['block_x']} × {row['block_y']}", "percent_of_limit": 100 * most})
    return pd.DataFrame(rows, columns=[*evidence.facts["launch_limits"], "block", "percent_of_limit"])


def bandwidth(evidence: Evidence) -> pd.DataFrame:
    """The roofs of the device: memory bandwidth, multiply-add rates and what source d's intensities allow.

    Beside each stand the peak that was computed from clocks and units (`datasheet`, as the column was called at first)
    and the figure of NVIDIA's data sheet (`printed`) of a card that is listed.
    """
    names = {gpu.name: gpu.device.gpu["name"] for gpu in evidence.gpus}
    sheets = data_sheets()[["device", "quantity", "dtype", "value"]].rename(columns={"value": "printed"})
    rows = evidence.facts["bandwidth"]
    rows = rows.assign(device=rows["platform"].map(names).fillna("").astype("str"))
    rows = rows.merge(sheets, how="left", on=["device", "quantity", "dtype"]).drop(columns="device")
    return rows.assign(
        percent_of_computed=100 * rows["measured"] / rows["datasheet"],
        percent_of_printed=100 * rows["measured"] / rows["printed"],
    )


def occupancy(evidence: Evidence) -> pd.DataFrame:
    """Resident blocks and warps per multiprocessor of each launch of the study, and the limiting resource."""
    rows = evidence.facts["occupancy"]
    choice = [choice_text(row, evidence.kernels) for row in rows.to_dict("records")]
    return rows.assign(choice=choice, occupancy_percent=100 * rows["occupancy"])


def accuracy(evidence: Evidence) -> pd.DataFrame:
    """The accuracy gate: errors of each kernel on each kind of operands beside those of SGEMM, longest sums first."""
    rows = evidence.facts["accuracy"]
    rows = rows.assign(operands=rows["operands"].str.replace("_", " "))
    return rows.sort_values(["p", "platform"], ascending=[False, True], kind="stable").reset_index(drop=True)


def energy(evidence: Evidence) -> pd.DataFrame:
    """The energy of each product, and its rate during the measurement."""
    return with_words(evidence.facts["energy"], evidence).reset_index(drop=True)


def calls(evidence: Evidence) -> pd.DataFrame:
    """Calls of tilewise.matmul, and how many times as fast they are as cupy.matmul's."""
    rows = evidence.facts["calls"]
    return rows.assign(times_as_fast=rows["cupy_us"] / rows["call_us"]).reset_index(drop=True)


def rungs_double(evidence: Evidence) -> pd.DataFrame:
    """The rungs of the ladder in double."""
    return climb.rungs(climb.climb(evidence, "ladder_double"), evidence)


#: The tables of methods whose facts are not shown as they are.
_OF_METHOD = {
    "tune": tuned.tuning,
    "accuracy": accuracy,
    "energy": energy,
    "maximum_size": maximum_size,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
    "sizes": by_size.over_size,
    "calls": calls,
    "batches": by_size.batches,
}


def task(name: str, evidence: Evidence) -> pd.DataFrame:
    """The table of a task: every point of a sweep, or what its method found."""
    own, method, chosen = evidence.select_tasks(name), evidence.method(name), chosen_columns(evidence)
    if method != "sweep":
        return _OF_METHOD[method](own) if method in _OF_METHOD else own.facts[method]
    timed = pd.concat([own.gpu, own.cpu], ignore_index=True)
    # If a kernel was timed nowhere, such as a new kernel on a machine without a GPU, the table can only show whether it
    # is right.
    timed_ones, verified_ones = (pd.MultiIndex.from_frame(part[chosen].astype(str)) for part in (timed, own.emulated))
    rows = pd.concat([timed, own.emulated[~verified_ones.isin(timed_ones)]], ignore_index=True)
    return sweep(rows, evidence)


#: The tables of the whole study, in addition to those of its tasks: file name -> function of the evidence.
OVERVIEW: dict[str, Callable[[Evidence], pd.DataFrame]] = {
    "claims": lambda evidence: claims.verdicts(claims.load(), evidence),
    "ladder": ladder,
    "grades": lambda evidence: grades.grades(evidence, ladder(evidence)),
    "choices": lambda evidence: choices(evidence, *evidence.config["tasks"]),
    "failures": provenance.failures,
    "verification": provenance.verification,
    "provenance": provenance.provenance,
    "by_card": lambda evidence: provenance.by_card(evidence.gpus),
    "occupancy": occupancy,
    "limited_by": climb.limited_by,
    "rungs": lambda evidence: climb.rungs(climb.climb(evidence, climb.CLIMB), evidence),
    "instructions": climb.instructions,
    "traffic": traffic.traffic,
    "cache_lines": traffic.cache_lines,
    "profiled": profiles.profiled,
    "counted_against_hardware": traffic.counted_against_hardware,
    "durations": lambda evidence: evidence.facts["sweep"],
}


def save(make: Callable[[], pd.DataFrame], path: Path | str) -> None:
    """Write a table atomically as CSV; if it cannot be made, write one with the note."""
    write_csv(notes.attempt(str(path), make, lambda note: pd.DataFrame({notes.COLUMN: [note]})), path)
