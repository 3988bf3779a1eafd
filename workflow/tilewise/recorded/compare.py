"""Compare two runs point by point; docs/comparing.md describes the method.

The first run is the one that the second is compared with. A ratio is the time of the second divided by that of the
first, after the difference of their constant overheads has been taken from the second; its range follows from the
ranges of both times by the interval arithmetic of the claims.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernelscope.yaml_input import suggest_name
from tilewise import RECORDED, UserError
from tilewise.evidence import Platform, load_platform, refuse_no_run, time_range
from tilewise.explain.provenance import overheads
from tilewise.explain.timings import choice_text, shape_text
from tilewise.study import columns
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.status import Status

#: Points are `faster` or `slower` if they differ by more than this, in percent, by default.
THRESHOLD = 2.0
#: What a comparison has of each run; that of the second begins with `other_`.
COMPARED = ["status", "time_ms", "low_ms", "high_ms", "sm_clock_mhz", "build_sha256", "vs_best", "sustained_vs_best"]


class Verdict(StrEnum):
    """The verdict on a point of the second run against the same point of the first."""

    FASTER = auto()
    SLOWER = auto()
    EQUAL = auto()
    STATUS = "status differs"


@dataclass(frozen=True, eq=False)
class Comparison:
    """The common points of two runs, a row each, whose `processor` is GPU or CPU, and the difference of their overheads
    in µs, if both measured it."""

    threshold: float
    overhead_us: float | None
    points: pd.DataFrame

    @property
    def by_kernel(self) -> pd.DataFrame:
        """One row per kernel and element type: points, median and range of their ratios, and points of each verdict."""
        groups = self.points.groupby(["kernel", "dtype"], sort=False)
        table = groups["ratio"].agg(points="size", ratio="median", least="min", largest="max")
        verdicts = groups["verdict"].value_counts().unstack(fill_value=0)
        return table.join(verdicts.reindex(columns=[*Verdict], fill_value=0)).reset_index()

    @property
    def is_worse(self) -> bool:
        """Whether a point of the second run is slower, or no longer ok.

        CPU loops count only if there is nothing else: they share their machine with whatever runs there.
        """
        on_gpu = self.points["processor"] == "GPU"
        rows = self.points[on_gpu] if on_gpu.any() else self.points
        lost = (rows["status"] == Status.OK) & (rows["other_status"] != Status.OK)
        return bool(lost.any() or (rows["verdict"] == Verdict.SLOWER).any())

    @property
    def line(self) -> str:
        """The outcome in a line."""
        said = []
        for processor, rows in self.points.groupby("processor", sort=False):
            words = ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())
            median = f", median ratio {rows['ratio'].median():.4f}" if rows["ratio"].notna().any() else ""
            said.append(f"{len(rows)} points of the {processor}: {words}{median}")
        return f"{'; '.join(said)} (differences up to {self.threshold:g} % count as equal)"

    @property
    def ratios_line(self) -> str:
        """How far the ratios to the library's best differ at the points that both runs timed in turns; empty without
        such points. These are the ratios to trust: a rate depends on the card and on what it did before."""
        said = []
        for name, state in (("vs_best", "alone"), ("sustained_vs_best", "under load")):
            rows = self.points.dropna(subset=[name, f"other_{name}"])
            change = 100 * (rows[f"other_{name}"] / rows[name] - 1).abs()
            if len(rows):
                row = rows.loc[change.idxmax()]
                point = f"{row['kernel']} {row['dtype']} {row['shape']}"
                most = f"{change.max():.2g} % ({point}: {row[name]:.3f}, then {row[f'other_{name}']:.3f})"
                said.append(f"{state} by {change.median():.2g} % in the median, at most {most}")
        return f"ratios to the library's best differ {'; '.join(said)}" if said else ""


def read(name: str, kernels: Mapping[str, Kernel]) -> Platform:
    """The run of a name: a path such as results/nvidia-h200, or a recorded platform.

    Raises UserError if there is neither, or if a file is missing or damaged.
    """
    for folder in (Path(name), RECORDED / name):
        if (folder / "device.json").is_file():
            return load_platform(folder, recorded=folder.resolve().parent == RECORDED.resolve(), kernels=kernels)
    if Path(name).is_dir():
        refuse_no_run(Path(name))
    known = sorted(path.parent.name for path in RECORDED.glob("*/device.json"))
    hint = suggest_name(name, known) if known else f"no run is recorded in {RECORDED}; use a whole clone"
    raise UserError(f"{name}: there is no such folder and no recorded run of that name; {hint}")


def label(run: Platform) -> str:
    """The run in a line: machine, commits, time, cards."""
    cards, commits = len(run.own_cards), dict.fromkeys(state[:10] for state in run.commits)
    words = [run.device.gpu.get("name") or f"no GPU, {run.device.cpu['name']}", *commits]
    return ", ".join([*words, run.device.captured[:16].replace("T", " "), *([f"{cards} cards"] if cards > 1 else [])])


def compare(
    first: Platform, second: Platform, kernels: Mapping[str, Kernel], threshold: float = THRESHOLD
) -> Comparison:
    """The comparison of two runs; `threshold` is in percent. Raises UserError if they have no point in common."""
    rows, key = _in_common(first, second)
    on_host = rows["kernel"].isin([name for name, kernel in kernels.items() if not kernel.on_gpu])
    if first.has_gpu != second.has_gpu:  # one of them ran nothing on a GPU
        rows, on_host = rows[on_host], on_host[on_host]
    if rows.empty:
        tasks = [", ".join(list(dict.fromkeys(run.measurements["task"]))[:4]) or "none" for run in (first, second)]
        raise UserError(
            f"the runs of {first.name} and {second.name} have no point in common (tasks {tasks[0]} and {tasks[1]}); "
            "compare runs of the same task, shapes and parameters"
        )
    own, other = (overheads([run]).get(run.name) for run in (first, second))
    overhead_us = None if own is None or other is None else other - own
    ratios = _ratios(rows, ~on_host * (overhead_us or 0) / 1000)
    ratio = ratios["ratio"]
    # It is a difference if it exceeds the threshold and the range of the ratio excludes 1.
    small = (ratio - 1).abs() <= threshold / 100
    equal = ratio.isna() | small | ((ratios["ratio_low"] <= 1) & (ratios["ratio_high"] >= 1))
    verdicts = {Verdict.STATUS: rows["status"] != rows["other_status"], Verdict.EQUAL: equal, Verdict.FASTER: ratio < 1}
    points = rows.assign(
        processor=on_host.map({True: "CPU", False: "GPU"}),
        shape=[shape_text(row) for row in rows.to_dict("records")],
        choice=[choice_text(row, kernels) for row in rows[key].to_dict("records")],
        **ratios,
        verdict=np.select([*verdicts.values()], [*verdicts], Verdict.SLOWER),
    )
    libraries = {name for name, kernel in kernels.items() if kernel.kind == Kind.LIBRARY}
    old, new = first.device.versions, second.device.versions
    differing = [name for name, version in old.items() if new.get(name) != version]
    why = [_why(row, differing if row["kernel"] in libraries else ()) for row in points.to_dict("records")]
    return Comparison(threshold, overhead_us, points.assign(why=why))


def _in_common(first: Platform, second: Platform) -> tuple[pd.DataFrame, list[str]]:
    """The points that both runs have, with what is COMPARED of each, and the columns that name a point."""
    tables = [first.measurements, second.measurements]
    parameters = dict.fromkeys(name for table in tables for name in columns.parameters_of(table))
    key, found = [*columns.POINT, *parameters], []
    for table in tables:
        low, high = time_range(table)
        table = columns.set_types(table.reindex(columns=list(dict.fromkeys([*table, *key]))))
        # A point may be there twice, if a parameter that told two apart is no longer recorded.
        table = table.assign(low_ms=low, high_ms=high).sort_values("time_ms", kind="stable").drop_duplicates(key)
        found.append(table[[*key, *COMPARED]])
    one, other = found
    return one.merge(other.rename(columns={name: f"other_{name}" for name in COMPARED}), on=key), key


def _ratios(rows: pd.DataFrame, shift_ms: pd.Series) -> pd.DataFrame:
    """The second time, less the difference of the overheads, divided by the first, with its range where known."""
    other = rows[["other_time_ms", "other_low_ms", "other_high_ms"]].sub(shift_ms, axis="index")
    ratios = other / rows[["time_ms", "high_ms", "low_ms"]].to_numpy()
    ratios = ratios.where(ratios.notna().all(axis="columns") & (other["other_low_ms"] > 0))
    return ratios.set_axis(["ratio", "ratio_low", "ratio_high"], axis="columns")


def _why(row: Mapping[str, Any], versions: Iterable[str]) -> str:
    """The known reasons why the times of a point differ: other sources, another version of a library, or mostly another
    clock; empty if they do not."""
    if row["verdict"] not in (Verdict.FASTER, Verdict.SLOWER):
        return ""
    found = ["other sources"] if row["build_sha256"] and row["build_sha256"] != row["other_build_sha256"] else []
    found += [f"another version of {name}" for name in versions if name in ("cublas", "numpy")]
    ratio, clock, other = row["ratio"], row["sm_clock_mhz"], row["other_sm_clock_mhz"]
    # The product of time and clock is the number of cycles: the clock explains what that leaves of the difference.
    if pd.notna(clock) and pd.notna(other) and abs(ratio * other / clock - 1) <= abs(ratio - 1) / 2:
        found.append(f"its clock: {clock:.0f} and {other:.0f} MHz")
    return "; ".join(found)
