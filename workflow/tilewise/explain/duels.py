"""Kernels that were timed in turns: ratios to the library's rate, alone and under load."""

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain.timings import LOWERED, by_shape, describe
from tilewise.study.status import Status


def duels(evidence: Evidence) -> pd.DataFrame:
    """A row per kernel, product and task that was timed in turns, its fastest choice; shapes in their order.

    Adds `sustained_gflops`, and `power_limited`: whether the clock under load is below LOWERED times that of isolated
    launches, empty for kernels that were too short to be loaded.
    """
    rows = evidence.gpu[evidence.gpu["turns"].notna() & (evidence.gpu["status"] == Status.OK)]
    key = ["platform", "task", "kernel", "dtype", "n", "p", "m"]
    rows = rows.sort_values("time_ms", kind="stable").drop_duplicates(key).sort_index()
    table = describe(rows, evidence)
    slower = table["sustained_mhz"] < LOWERED * table["sm_clock_mhz"]
    return by_shape(
        table.assign(
            sustained_gflops=table["gflops"] * table["time_ms"] / table["sustained_ms"],
            power_limited=slower.astype("boolean").where(table["sustained_mhz"].notna()),
        )
    )
