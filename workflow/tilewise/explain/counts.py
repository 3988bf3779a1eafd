"""Counts of launches: the emulator's, ncu's with the stall reasons of warps, and how far the two agree."""

import functools
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import KEYS_OF_COUNTS, Evidence
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import by_kernel, by_shape, chosen_columns, describe, with_words
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.device import WARP
from tilewise.study.precision import PRECISIONS, bytes_of_product
from tilewise.study.status import Status

#: The columns of the states of a warp, and those of the states in which it waits.
STATES = [name for name in columns.FILES["counters"] if name.startswith("stall_")]
WAITS = [name for name in STATES if not name.endswith("selected")]
#: What ncu counted of a launch, per multiply-add of a warp: it depends on a kernel's parameters, hardly on the shape.
PER_MULTIPLY_ADD = ["executed_each", "requests_each", "dram_bytes_each", "l2_bytes_each"]
PER_MULTIPLY_ADD += ["hardware_wavefronts_per_100", "hardware_conflict_percent"]
#: What the memory pipe of a multiprocessor takes, as ncu counts it; a copy by cp.async is a load from global memory.
REQUESTS = [f"{where}_{what}_requests" for where in ("shared", "global") for what in ("load", "store")]
#: ncu's counts of one run of a kernel hold for another run if their rates differ by less than this share.
ALIKE = 0.05


def with_work(counted: pd.DataFrame) -> pd.DataFrame:
    """Counted launches with their multiply-adds of warps, as `work`."""
    return counted.assign(work=counted["padded_multiply_adds"] / WARP)


def shared_memory(counted: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Wavefronts of shared memory per 100 multiply-adds of a warp, and which percentage of them are bank conflicts.

    `counted` are launches with their `work`.
    """
    wavefronts = (counted["shared_load_wavefronts"] + counted["shared_store_wavefronts"]).astype("float64")
    conflicts = counted["shared_bank_conflicts"].astype("float64")
    return 100 * wavefronts / counted["work"], 100 * conflicts / wavefronts.where(wavefronts > 0)


@functools.lru_cache(maxsize=4)
def traffic(evidence: Evidence) -> pd.DataFrame:
    """The memory traffic of each kernel, counted by the emulator at its largest traced shape; its faults at all shapes.

    Faults are empty if no shape was searched for them; `searched` says at how many, or why at none.
    """
    key, found = chosen_columns(evidence), [*columns.FAULTS, "unused_reads"]
    rows = evidence.facts["traffic"]
    searched = rows["races"].notna()
    rows = rows.assign(
        work=rows[SHAPE].astype("float64").prod(axis=1).where(rows["global_load_requests"].notna(), 0),
        shapes=searched,
        reason=rows["message"].where(~searched & (rows["message"] != "")),
    )
    groups = rows.groupby(key, dropna=False, sort=False)
    reasons = groups["reason"]
    told = map(_searched, groups["shapes"].transform("sum"), reasons.transform("count"), reasons.transform("first"))
    rows[found] = groups[found].transform("sum", min_count=1)
    rows = rows.assign(searched=list(told)).drop(columns=["shapes", "reason"]).sort_values("work", kind="stable")
    rows = rows.drop_duplicates(key, keep="last").sort_index().drop(columns="work")
    return with_words(rows, evidence).reset_index(drop=True)


def _searched(shapes: int, others: int, reason: str) -> str:
    """At how many shapes a kernel with one choice of parameters was searched for faults, and why not at others."""
    if not shapes:
        return f"not traced: {reason if others else 'add a shape that it takes to trace.shapes'}"
    said = f"{shapes} shape{'' if shapes == 1 else 's'}"
    return f"{said}; {others} not traced: {reason}" if others else said


def faults(evidence: Evidence) -> pd.DataFrame:
    """The kernels that should be right and of which the emulator found a fault, or searched no shape for one."""
    rows = evidence.facts["traffic"]
    rows = rows[~rows["kernel"].isin([name for name, kernel in evidence.kernels.items() if kernel.faulty])]
    table = rows.groupby("kernel", sort=False)[list(columns.FAULTS)].sum(min_count=1)
    words = [
        ", ".join(columns.heading(name) for name, number in row.items() if number > 0)
        for _, row in table.fillna(0).iterrows()  # some faults may not have been searched for
    ]
    table = table.assign(found=words, searched=table.notna().any(axis=1).map({True: "yes", False: "no"})).reset_index()
    return table.loc[(table["found"] != "") | (table["searched"] == "no"), ["kernel", "searched", "found"]]


def beside_traffic(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds what the emulator counted per 100 multiply-adds of a warp: wavefronts, lines and sectors; and conflicts."""
    counted, key = with_work(traffic(evidence)), chosen_columns(evidence)
    wavefronts, conflicts = shared_memory(counted)
    added = counted[key].assign(
        wavefronts_per_100=wavefronts,
        conflict_percent=conflicts,
        lines_per_100=100 * counted["global_load_lines"].astype("float64") / counted["work"],
        sectors_per_100=100 * counted["global_load_sectors"].astype("float64") / counted["work"],
    )
    return table.merge(added, how="left", on=key)


def beside_counters(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds what ncu counted of the largest launch with the row's own parameters: PER_MULTIPLY_ADD, issue_percent and
    stalls. If the row has another rate than the launch, what depends on the caches or on time is missing.

    The compiler joins loads that the source makes one by one, which the emulator does not see.
    """
    key = ["platform", "kernel", "dtype", *evidence.choice]
    timed = evidence.gpu[evidence.gpu["gflops"].notna()]
    timed = timed.groupby([*key, *SHAPE], dropna=False)["gflops"].max().rename("counted_gflops").reset_index()
    counted = with_work(evidence.facts["counters"]).sort_values("work", kind="stable")
    counted = counted.drop_duplicates(key, keep="last").merge(timed, how="left", on=[*key, *SHAPE])
    work, (wavefronts, conflicts) = counted["work"], shared_memory(counted)
    executed = counted["executed_instructions"].astype("float64")
    # Instructions and requests are both as executed, or both of the machine code.
    requests = counted[REQUESTS].astype("float64").sum(axis=1, skipna=False).where(executed.notna())
    added = counted[[*key, "issue_percent", *STATES, "counted_gflops"]].assign(
        executed_each=executed / work,
        requests_each=requests / work,
        dram_bytes_each=(counted["dram_read_bytes"] + counted["dram_written_bytes"]).astype("float64") / work,
        l2_bytes_each=32 * counted["l2_sectors"].astype("float64") / work,
        hardware_wavefronts_per_100=wavefronts,
        hardware_conflict_percent=conflicts,
    )
    table = table.merge(added, how="left", on=key)
    alike = (table["gflops"] / table["counted_gflops"] - 1).abs() < ALIKE
    depending = ["issue_percent", *STATES, "dram_bytes_each", "l2_bytes_each"]
    return table.assign(**{name: table[name].where(alike) for name in depending}).drop(columns="counted_gflops")


def profiled(evidence: Evidence) -> pd.DataFrame:
    """ncu's counters at full size, one row per launch that makes a product.

    Adds profiled_ms, wavefronts_per_100, dram_gb (read and written), matrices_moved (the same as a multiple of the
    three matrices), and `waits`: for what the warps wait most, with the number of warps per instruction issued.
    """
    rows = with_words(evidence.facts["counters"], evidence)
    rows = with_work(rows[rows["profiled_ns"].notna()])
    records = rows.to_dict("records")
    least = [bytes_of_product(row["dtype"], row["n"], row["p"], row["m"]) for row in records]
    waits = [[(name, each) for name, each in waits_of(row)[:3] if each >= 0.05] for row in records]
    words = [", ".join(f"{columns.heading(name)} {rounded(each)}" for name, each in row) for row in waits]
    moved = (rows["dram_read_bytes"] + rows["dram_written_bytes"]).astype("float64")
    rows = rows.assign(
        profiled_ms=rows["profiled_ns"].astype("float64") / 1e6,
        wavefronts_per_100=shared_memory(rows)[0],
        dram_gb=moved / 1e9,
        matrices_moved=moved / pd.Series(least, rows.index, "float64"),
        waits=pd.Series(words, index=rows.index, dtype="str"),
    )
    return by_kernel(rows, evidence).sort_values("platform", kind="stable", ignore_index=True).drop(columns="work")


def waits_of(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The states of WAITS that ncu saw, each with how many of a scheduler's warps wait in it, the most first."""
    found = [(name, row[name]) for name in WAITS if not pd.isna(row[name])]
    return sorted(found, key=lambda state: -state[1])


def cache_lines(evidence: Evidence) -> pd.DataFrame:
    """The time of each CPU loop, and the lines that it fetches into the first cache and from beyond the second.

    Times (in ns) and lines are per multiply-add; the lines come from a model (tilewise.traced.cache_lines).
    """
    rows = describe(evidence.cpu[evidence.cpu["status"] == Status.OK], evidence)
    rows = rows.assign(element_bytes=[PRECISIONS[dtype].itemsize for dtype in rows["dtype"]])
    keys = [*KEYS_OF_COUNTS["cache_lines"], *evidence.parameters]
    rows = rows.astype({"element_bytes": "Int64"}).merge(evidence.facts["cache_lines"], on=keys)
    work = rows[SHAPE].astype("float64").prod(axis=1)
    rows = rows.assign(
        ns_per_multiply_add=1e6 * rows["time_ms"] / work,
        l1_lines_per_multiply_add=rows["l1_lines"] / rows["multiply_adds"],
        l2_lines_per_multiply_add=rows["l2_lines"] / rows["multiply_adds"],
    )
    rows = by_shape(rows.assign(work=work))
    shown = ["platform", "kernel", "dtype", "shape", "choice", "work", "spread_percent"]
    return rows[[*shown, *(name for name in rows if name.endswith("_per_multiply_add"))]]


#: Traffic that a count of the emulator includes and the hardware counts separately (-1), and the other way round.
_SEPARATE = {
    "global_load_requests": (-1, "tma_load_requests"),
    "global_load_sectors": (-1, "tma_load_sectors"),
    "global_store_requests": (-1, "tma_store_requests"),
    "global_store_sectors": (-1, "tma_store_sectors"),
    "shared_load_requests": (-1, "matrix_load_requests"),
    "shared_store_requests": (-1, "async_load_requests"),
    "tma_load_sectors": (1, "multicast_sectors"),
}


@functools.lru_cache(maxsize=4)
def counted_against_hardware(evidence: Evidence) -> pd.DataFrame:
    """The emulator's and the hardware's counts of the same launch, one row per count.

    difference_percent is how much more the emulator counted than the hardware, which has separate counters for what
    goes by other ways: ldmatrix, TMA, what cp.async writes.
    """
    traffic, parts = with_words(evidence.facts["traffic"], evidence), []
    keys = [*chosen_columns(evidence), *SHAPE]
    both = traffic.merge(evidence.facts["counters"], on=keys, suffixes=("_counted", "_hardware"))
    for count in columns.counts():
        counted = both[f"{count}_counted"]
        if count in _SEPARATE:
            sign, name = _SEPARATE[count]
            counted = counted + sign * both[f"{name}_counted" if f"{name}_counted" in both else name].fillna(0)
        about = both[["kernel", "dtype", "shape", "choice"]]
        parts.append(about.assign(count=count, counted=counted, hardware=both[f"{count}_hardware"]))
    rows = pd.concat(parts).sort_index(kind="stable").dropna(subset=["counted", "hardware"]).reset_index(drop=True)
    percent = 100 * (rows["counted"] / rows["hardware"].where(rows["hardware"] > 0) - 1).astype("float64")
    return rows.assign(difference_percent=percent.mask(rows["counted"] == rows["hardware"], 0.0))


def agreement(evidence: Evidence) -> pd.DataFrame:
    """Agreement of the emulator's counts with the hardware's over the launches, for each kernel, type and count."""
    rows = counted_against_hardware(evidence)
    groups = rows.assign(equal=rows["counted"] == rows["hardware"]).groupby(["kernel", "dtype", "count"], sort=False)
    return groups.agg(
        launches=("equal", "size"),
        equal=("equal", "sum"),
        largest_difference_percent=("difference_percent", lambda found: max(found.dropna(), key=abs, default=None)),
    ).reset_index()
