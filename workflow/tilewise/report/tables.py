"""The tables of the tasks, of the whole study and of the page, and the names of the figures.

Times are in ms and are medians of isolated runs; rates are in GFLOP/s; `ratio` is the published time divided by the
measured time.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tilewise.evidence import Evidence, data_sheets
from tilewise.explain import by_size, climb, comparisons, counts, grades, provenance, timings
from tilewise.files import write_csv
from tilewise.report import claims, notes
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.status import Status


def _with(table, rows, keys, **columns):
    """Adds columns, name=column, of the first of other rows with the same keys."""
    found = rows.drop_duplicates(keys).rename(columns={column: name for name, column in columns.items()})
    return table.merge(found[[*keys, *columns]], how="left", on=keys)


def _beside_published(table, evidence, pick_best):
    keys = ["kernel", "dtype", *SHAPE, *([] if pick_best else evidence.choice)]
    # A parameter that no source has is empty there: its figures are of kernels without it.
    missing = [name for name in keys if name not in evidence.published]
    published = columns.set_types(evidence.published.reindex(columns=[*evidence.published, *missing]))
    times = published[(published["quantity"] == "time") & (published["unit"] == "ms")]
    table = _with(table, times.sort_values("value", kind="stable"), keys, published_ms="value")
    return table.assign(ratio=table["published_ms"] / table["time_ms"])


def _beside_cpu(table, evidence):
    """Adds the CPU loop of the same machine and of source a for the same product, and the speed-ups over them."""
    product = ["dtype", *SHAPE]
    loop, source = (rows[rows["kernel"] == "kij"] for rows in (evidence.cpu, evidence.published))
    table = _with(table, loop, ["platform", *product], cpu_ms="time_ms")
    table = _with(table, source[source["quantity"] == "time"], product, published_cpu_ms="value")
    return table.assign(
        speedup_over_cpu=table["cpu_ms"] / table["time_ms"],
        published_speedup_over_cpu=table["published_cpu_ms"] / table["published_ms"],
    )


def _beside_emulator(table, evidence):
    """Adds `emulator`: whether this run's emulator verified the same kernel with the same parameters."""
    emulated = worst_first(provenance.without_wanted_refusals(evidence.emulated, evidence))
    return table if emulated.empty else _with(table, emulated, timings.chosen_columns(evidence), emulator="status")


def worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of measurements.csv, those that are right last."""
    return rows.sort_values("status", key=lambda status: status == Status.OK, kind="stable")


def sweep(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Every point, as in source a's Tables 2 and 5: beside it the time published for the same parameters.

    `best` marks the fastest row of each case, and at_end names those of its parameters that no other exceeds.
    """
    rows = provenance.with_cards(timings.describe(rows, evidence), evidence)
    cases = rows.groupby(timings.CASE, dropna=False)["time_ms"]
    first = timings.fastest_first(rows).drop_duplicates(timings.CASE).index
    rows = rows.assign(best=rows.index.isin(first) & (cases.transform("count") > 1), case=cases.ngroup())
    ends = timings.at_end(rows[rows["status"] == Status.OK], rows)
    rows = rows.assign(at_end=ends.where(rows["best"], "")).drop(columns="case")
    table = _beside_published(rows, evidence, pick_best=False)
    return timings.by_shape(_beside_emulator(timings.beside_anchor(table, rows, evidence), evidence))


def winners(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The best of each case, as in source a's Tables 1 and 4: beside it the published best and the CPU loop."""
    fastest = timings.best(provenance.with_cards(timings.describe(rows, evidence), evidence))
    table = _beside_published(fastest, evidence, pick_best=True)
    table = _beside_cpu(timings.beside_anchor(table, rows, evidence), evidence)
    return timings.by_shape(_beside_emulator(table, evidence))


def choices(evidence: Evidence, *tasks: str) -> pd.DataFrame:
    """The best choice of every case in these tasks; kernels without a choice, such as cuBLAS, are left out."""
    rows = evidence.select_tasks(*tasks).gpu
    rows = timings.best(timings.describe(rows[rows["time_ms"].notna()], evidence))
    return rows[rows["runner_up"].fillna("") != ""].reset_index(drop=True)


@functools.lru_cache(maxsize=4)
def ladder(evidence: Evidence) -> pd.DataFrame:
    """The best of every kernel for every product on every GPU, in all tasks: rate, percentage of peak, speed-ups. A
    point has one rate here, though several tasks timed it.

    speedup_over_naive and speedup_over_cpu are ratios of times on the same machine. percent_of_peak refers to the
    vector peak of device.json; cuBLAS can exceed it for double if the GPU has FP64 tensor cores.
    """
    swept = evidence.select_tasks(*timings.swept_tasks(evidence)).gpu
    table = winners(timings.one_of_each_point(swept, evidence), evidence)
    naive = table[(table["kernel"] == "naive") & (table["status"] == Status.OK)]
    table = _with(table, naive, ["platform", "dtype", *SHAPE], naive_ms="time_ms")
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
    rows = evidence.facts["maximum_size"].sort_values("timed_n", kind="stable")
    rows = rows.drop_duplicates(["platform", "kernel", "timed_n"], keep="last")
    rows = rows.assign(gflops=2e-6 * rows["timed_n"].astype("float64") ** 3 / rows["time_ms"])
    source = evidence.published[evidence.published["place"] == "Table 3"].assign(timed_n=lambda rows: rows["n"])
    return _with(rows, source, ["kernel", "timed_n"], published_ms="value")


def cold_start(evidence: Evidence) -> pd.DataFrame:
    """Source b's way to time: whole calls in a fresh process, in both orders; medians in ms by step, one row per call.

    alone_ms is the time of the kernel alone, warmed up, as every other task measures it.
    """
    calls = evidence.facts["cold_start"]
    calls = calls[calls["ms"].notna()].assign(step=lambda rows: rows["step"] + "_ms")
    key = ["platform", "order", "position", "kernel"]
    steps = list(calls["step"].unique())  # one that only some calls have, such as the context, stands where it occurs
    table = calls.pivot_table(index=key, columns="step", values="ms", aggfunc="median", sort=False)[steps].reset_index()
    published = evidence.published
    source = published[(published["quantity"] == "call_time") & (published["place"] == "passing run")]
    table = _with(table, evidence.gpu, ["platform", "kernel"], alone_ms="time_ms")
    return _with(table, source.assign(order="naive, tiled"), ["kernel", "order"], published_ms="value")


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
    rows = evidence.facts["bandwidth"]
    rows = rows.assign(device=rows["platform"].map(names).fillna("").astype("str"))
    rows = _with(rows, data_sheets(), ["device", "quantity", "dtype"], printed="value").drop(columns="device")
    return rows.assign(
        percent_of_computed=100 * rows["measured"] / rows["datasheet"],
        percent_of_printed=100 * rows["measured"] / rows["printed"],
    )


def occupancy(evidence: Evidence) -> pd.DataFrame:
    """Resident blocks and warps per multiprocessor of each launch of the study, and the limiting resource."""
    rows = evidence.facts["occupancy"]
    choice = [timings.choice_text(row, evidence.kernels) for row in rows.to_dict("records")]
    return rows.assign(choice=choice, occupancy_percent=100 * rows["occupancy"])


def accuracy(evidence: Evidence) -> pd.DataFrame:
    """The accuracy gate: errors of each kernel on each kind of operands beside those of SGEMM, longest sums first."""
    rows = evidence.facts["accuracy"]
    rows = rows.assign(operands=rows["operands"].str.replace("_", " "))
    return rows.sort_values(["p", "platform"], ascending=[False, True], kind="stable").reset_index(drop=True)


#: The tables of methods whose facts are not shown as they are.
_OF_METHOD = {
    "tune": comparisons.tuning,
    "accuracy": accuracy,
    "energy": lambda own: timings.with_words(own.facts["energy"], own),
    "maximum_size": maximum_size,
    "cold_start": cold_start,
    "launch_limits": launch_limits,
    "bandwidth": bandwidth,
    "sizes": by_size.over_size,
    "calls": lambda own: own.facts["calls"].assign(times_as_fast=lambda rows: rows["cupy_us"] / rows["call_us"]),
    "batches": by_size.batches,
}


def task(name: str, evidence: Evidence) -> pd.DataFrame:
    """The table of a task: every point of a sweep, or what its method found."""
    own, method, chosen = evidence.select_tasks(name), evidence.method(name), timings.chosen_columns(evidence)
    if method != "sweep":
        return _OF_METHOD[method](own) if method in _OF_METHOD else own.facts[method]
    timed = pd.concat([own.gpu, own.cpu], ignore_index=True)
    # If a kernel was timed nowhere, such as a new kernel on a machine without a GPU, the table can only show whether it
    # is right.
    timed_ones, verified_ones = (pd.MultiIndex.from_frame(part[chosen].astype(str)) for part in (timed, own.emulated))
    rows = pd.concat([timed, own.emulated[~verified_ones.isin(timed_ones)]], ignore_index=True)
    return sweep(rows, evidence)


#: The tables of the whole study, in addition to those of its tasks: file of each platform -> function of the evidence.
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
    "traffic": counts.traffic,
    "cache_lines": counts.cache_lines,
    "profiled": counts.profiled,
    "counted_against_hardware": counts.counted_against_hardware,
    "durations": lambda evidence: evidence.facts["sweep"],
}
#: All tables but those of tasks, by the names that sections and articles use.
TABLES = OVERVIEW | {
    "agreement": counts.agreement,
    "at_every_size": by_size.at_every_size,
    "by_language": comparisons.by_language,
    "cards_differ": provenance.cards_differ,
    "checks": provenance.checks,
    "counted": lambda evidence: counts.counted_against_hardware(evidence).query("counted != hardware"),
    "duels": comparisons.duels,
    "faults": counts.faults,
    "gate": lambda evidence: grades.gate(accuracy(evidence)),
    "naive_blocks": lambda evidence: timings.largest_square(climb.climb(evidence, "task1a")),
    "not_emulated": provenance.not_emulated,
    "rungs_double": lambda evidence: climb.rungs(climb.climb(evidence, "ladder_double"), evidence),
    "size_ranges": by_size.size_ranges,
    "spread_of_exponents": grades.spread_of_exponents,
    "tile_counts": lambda evidence: timings.largest_square(climb.climb(evidence, "task3")),
    "tuning": comparisons.tuning,
}
#: The tables of all runs side by side that belong to no task, made by headlines.py.
SIDE_BY_SIDE = ("five_numbers", "largest_products")
#: The figures of the whole study, each a file of each platform, and the others of the page: functions of figures.py,
#: which is not needed when a run starts.
STUDY_FIGURES = ("accuracy_and_rate", "roofline", "rungs")
PAGE_FIGURES = ("climb", "rungs_double", "rate_over_size", "shape_map", "speedups", "spread_of_exponents")


@functools.lru_cache(maxsize=128)  # several pieces and pages need it
def frame(name: str, evidence: Evidence) -> pd.DataFrame:
    """A table of TABLES, or of a task."""
    return TABLES[name](evidence) if name in TABLES else task(name, evidence)


def save(make: Callable[[], pd.DataFrame], path: Path | str) -> None:
    """Write a table atomically as CSV; if it cannot be made, write one with the note."""
    write_csv(notes.attempt(str(path), make, lambda note: pd.DataFrame({notes.COLUMN: [note]})), path)
