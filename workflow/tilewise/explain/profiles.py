"""ncu's counters of the timed launches: instructions, requests, bytes, and stall reasons of warps."""

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


def beside_counters(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """Adds what ncu counted of the largest launch with the row's own parameters: PER_MULTIPLY_ADD, and if the rate of
    the row is like that of the launch, issue_percent and the stalls.

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
    seen = ["issue_percent", *STATES]
    added = counted[[*key, *seen, "counted_gflops"]].assign(
        executed_each=executed / work,
        requests_each=requests / work,
        dram_bytes_each=(counted["dram_read_bytes"] + counted["dram_written_bytes"]).astype("float64") / work,
        l2_bytes_each=32 * counted["l2_sectors"].astype("float64") / work,
        hardware_wavefronts_per_100=wavefronts,
        hardware_conflict_percent=conflicts,
    )
    table = table.merge(added, how="left", on=key)
    alike = (table["gflops"] / table["counted_gflops"] - 1).abs() < ALIKE
    return table.assign(**{name: table[name].where(alike) for name in seen}).drop(columns="counted_gflops")


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
