"""ncu's counters of the timed launches: instructions, requests, bytes, and stall reasons of warps."""

import functools
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import by_kernel, with_words
from tilewise.explain.traffic import shared_memory, with_work
from tilewise.study import columns
from tilewise.study.columns import SHAPE
from tilewise.study.precision import bytes_of_product

#: The states of a warp in which it waits, as ncu names them.
WAITS = [
    name.removeprefix("stall_")
    for name in columns.FILES["counters"]
    if name.startswith("stall_") and not name.endswith("selected")
]
#: What ncu counted of a launch, per multiply-add of a warp: it depends on a kernel's parameters, hardly on the shape.
PER_MULTIPLY_ADD = ["executed_each", "requests_each", "dram_bytes_each", "l2_bytes_each"]
PER_MULTIPLY_ADD += ["hardware_wavefronts_per_100", "hardware_conflict_percent"]
#: What the memory pipe of a multiprocessor takes, as ncu counts it; a copy by cp.async is a load from global memory.
REQUESTS = [f"{where}_{what}_requests" for where in ("shared", "global") for what in ("load", "store")]
#: ncu's counts of one run of a kernel hold for another run if their rates differ by less than this share.
ALIKE = 0.05


@functools.lru_cache(maxsize=4)
def _largest_counted(evidence: Evidence) -> tuple[pd.DataFrame, list[str]]:
    """The largest launch that ncu counted of each kernel with each choice of parameters, with its `work`, and the
    columns that name it."""
    counted = with_work(evidence.facts["counters"])
    key = ["platform", "kernel", "dtype", *evidence.choice]
    return counted.sort_values("work", kind="stable").drop_duplicates(key, keep="last"), key


def beside_hardware(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds the columns PER_MULTIPLY_ADD from the largest launch that ncu counted with the row's own parameters.

    The compiler joins loads that the source makes one by one, which the emulator does not see.
    """
    counted, key = _largest_counted(evidence)
    work, (wavefronts, conflicts) = counted["work"], shared_memory(counted)
    executed = counted["executed_instructions"].astype("float64")
    # Instructions and requests are both as executed, or both of the machine code.
    requests = counted[REQUESTS].astype("float64").sum(axis=1, skipna=False).where(executed.notna())
    counted = counted.assign(
        executed_each=executed / work,
        requests_each=requests / work,
        dram_bytes_each=_dram_bytes(counted) / work,
        l2_bytes_each=32 * counted["l2_sectors"].astype("float64") / work,
        hardware_wavefronts_per_100=wavefronts,
        hardware_conflict_percent=conflicts,
    )
    return table.merge(counted[[*key, *PER_MULTIPLY_ADD]], how="left", on=key)


def beside_schedulers(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds issue_percent and the stalls that ncu saw, of rows whose rate is like that of the launch it counted."""
    counted, key = _largest_counted(evidence)
    timed = evidence.gpu[evidence.gpu["gflops"].notna()]
    timed = timed.groupby([*key, *SHAPE], dropna=False)["gflops"].max().rename("counted_gflops").reset_index()
    counted = counted.merge(timed, how="left", on=[*key, *SHAPE])
    seen = ["issue_percent", *(name for name in counted if name.startswith("stall_"))]
    table = table.merge(counted[[*key, *seen, "counted_gflops"]], how="left", on=key)
    alike = (table["gflops"] / table["counted_gflops"] - 1).abs() < ALIKE
    return table.assign(**{name: table[name].where(alike) for name in seen}).drop(columns="counted_gflops")


def _dram_bytes(counted: pd.DataFrame) -> pd.Series:
    return (counted["dram_read_bytes"] + counted["dram_written_bytes"]).astype("float64")


def profiled(evidence: Evidence) -> pd.DataFrame:
    """ncu's counters at full size, one row per launch that makes a product.

    Adds profiled_ms, wavefronts_per_100, dram_gb (read and written), matrices_moved (the same as a multiple of the
    three matrices), and `waits`: for what the warps wait most, with the number of warps per instruction issued.
    """
    rows = with_words(evidence.facts["counters"], evidence)
    rows = with_work(rows[rows["profiled_ns"].notna()])
    records = rows.to_dict("records")
    least = [bytes_of_product(row["dtype"], row["n"], row["p"], row["m"]) for row in records]
    waits = pd.Series([_waits(row) for row in records], index=rows.index, dtype="str")
    rows = rows.assign(
        profiled_ms=rows["profiled_ns"].astype("float64") / 1e6,
        wavefronts_per_100=shared_memory(rows)[0],
        dram_gb=_dram_bytes(rows) / 1e9,
        matrices_moved=_dram_bytes(rows) / pd.Series(least, rows.index, "float64"),
        waits=waits,
    )
    return by_kernel(rows, evidence).sort_values("platform", kind="stable", ignore_index=True).drop(columns="work")


def waits_of(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The states of WAITS that ncu saw, each with how many of a scheduler's warps wait in it, the most first."""
    found = [(name, row[f"stall_{name}"]) for name in WAITS if not pd.isna(row[f"stall_{name}"])]
    return sorted(found, key=lambda state: -state[1])


def _waits(row: Mapping[str, Any]) -> str:
    """The three states in which most of a scheduler's warps wait, with how many of them do."""
    first = [(name, each) for name, each in waits_of(row)[:3] if each >= 0.05]
    return ", ".join(f"{columns.heading(f'stall_{name}')} {rounded(each)}" for name, each in first)
