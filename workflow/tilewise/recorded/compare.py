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
from tilewise import RECORDED, UserError, checksums
from tilewise.evidence import refuse_no_run, time_range
from tilewise.explain.number_format import rounded
from tilewise.explain.timings import choice_text, shape_text
from tilewise.study import columns, registry
from tilewise.study.device import Device
from tilewise.study.device import read as read_device
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.status import Status

#: Points are `faster` or `slower` if they differ by more than this, in percent, by default.
THRESHOLD = 2.0
#: Points that take less, in ms, show the difference of the overheads; so many are wanted for an estimate.
ESTIMATED_BELOW, FEWEST_SHORT = 0.02, 5
#: Where a kernel runs.
ON_GPU, ON_CPU = "GPU", "CPU"
#: What a comparison has of each run; that of the second begins with `other_`.
COMPARED = ["status", "time_ms", "low_ms", "high_ms", "sm_clock_mhz", "build_sha256", "vs_best", "sustained_vs_best"]


class Verdict(StrEnum):
    """The verdict on a point of the second run against the same point of the first."""

    FASTER = auto()
    SLOWER = auto()
    EQUAL = auto()
    STATUS = "status differs"


@dataclass(frozen=True, eq=False)
class Run:
    """One run: the name by which it was asked for, its machine, its points, and its overhead in µs if it is known."""

    name: str
    device: Device
    measurements: pd.DataFrame
    overhead_us: float | None

    @property
    def label(self) -> str:
        """The run in a line: machine, commits, time, cards."""
        gpu, rows = self.device.gpu, self.measurements
        commits = [name for name in rows["commit"].unique() if name] or ["commit unknown"]
        cards = len([uuid for uuid in rows["gpu_uuid"].unique() if uuid])
        words = [gpu["name"] if gpu else f"no GPU, {self.device.cpu['name']}", *(name[:10] for name in commits)]
        words += [self.device.captured[:16].replace("T", " ")] + [f"{cards} cards"] * (cards > 1)
        return f"{self.name}: {', '.join(words)}"


@dataclass(frozen=True)
class Overhead:
    """By how many µs the isolated times of the second run are longer, whatever is timed, and how that is known."""

    difference_us: float
    source: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """The common points of two runs. `points` has a row per point, `kernels` one per kernel and element type."""

    first: Run
    second: Run
    threshold: float
    overhead: Overhead
    points: pd.DataFrame
    kernels: pd.DataFrame

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Counts of points by verdict, for each processor, GPU or CPU."""
        found = {}
        for processor, rows in self.points.groupby("processor", sort=False):
            counts = rows["verdict"].value_counts()
            found[str(processor)] = {str(verdict): int(counts.get(verdict, 0)) for verdict in Verdict}
        return found

    @property
    def is_worse(self) -> bool:
        """Whether a point of the second run is slower, or no longer ok.

        CPU loops count only if there is nothing else: they share their machine with whatever runs there.
        """
        rows = self.points
        rows = rows[rows["processor"] == ON_GPU] if (rows["processor"] == ON_GPU).any() else rows
        lost = (rows["status"] == Status.OK) & (rows["other_status"] != Status.OK)
        return bool(lost.any() or (rows["verdict"] == Verdict.SLOWER).any())

    @property
    def line(self) -> str:
        """The outcome in a line."""
        said = []
        for processor, counts in self.counts.items():
            points = self.points.loc[self.points["processor"] == processor, "ratio"]
            words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
            median = f", median ratio {points.median():.4f}" if points.notna().any() else ""
            said.append(f"{len(points)} points of the {processor}: {words}{median}")
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
                words = (
                    f"{row['kernel']} {row['dtype']} {row['shape']}: {row[name]:.3f}, then {row[f'other_{name}']:.3f}"
                )
                said.append(f"{state} by {change.median():.2g} % in the median, at most {change.max():.2g} % ({words})")
        return f"ratios to the library's best differ {'; '.join(said)}" if said else ""


def find(name: str) -> Path:
    """The folder of a run: a path such as results/nvidia-h200, or the name of a recorded platform.

    Raises UserError if there is neither.
    """
    for folder in (Path(name), RECORDED / name):
        if (folder / "device.json").is_file():
            return folder
    known = sorted(path.parent.name for path in RECORDED.glob("*/device.json"))
    if Path(name).is_dir():
        refuse_no_run(Path(name))
    hint = suggest_name(name, known) if known else f"no run is recorded in {RECORDED}; use a whole clone"
    raise UserError(f"{name}: there is no such folder and no recorded run of that name; {hint}")


def read(name: str, kernels: Mapping[str, Kernel]) -> Run:
    """The run in the folder that `find` finds. Raises UserError if a file is missing or damaged."""
    folder, parameters = find(name), registry.parameters(kernels)
    if not (folder / "measurements.csv").is_file():
        missing = f"{folder}/measurements.csv: there is no such file"
        raise UserError(f"{missing}; let the run end, or name the file as a target if it was deleted")
    if folder.resolve().parent == RECORDED.resolve():
        checksums.check_recorded(folder)
    measured = columns.read(folder / "measurements.csv", "measurements", parameters)
    overhead = columns.read(folder / "facts" / "overhead.csv", "overhead")["overhead_us"].median()
    return Run(name, read_device(folder / "device.json"), measured, None if pd.isna(overhead) else float(overhead))


def compare(first: Run, second: Run, kernels: Mapping[str, Kernel], threshold: float = THRESHOLD) -> Comparison:
    """The comparison of two runs; `threshold` is in percent. Raises UserError if they have no point in common."""
    rows, key = _in_common(first, second, kernels)
    on_gpu = _on_gpu(rows, kernels)
    overhead = overheads(first, second, rows[on_gpu])
    ratios = _ratios(rows, on_gpu * overhead.difference_us / 1000)
    ratio = ratios["ratio"]
    # It is a difference if it exceeds the threshold and the range of the ratio excludes 1.
    small = (ratio - 1).abs() <= threshold / 100
    equal = ratio.isna() | small | ((ratios["ratio_low"] <= 1) & (ratios["ratio_high"] >= 1))
    verdicts = {Verdict.STATUS: rows["status"] != rows["other_status"], Verdict.EQUAL: equal, Verdict.FASTER: ratio < 1}
    points = rows.assign(
        processor=on_gpu.map({True: ON_GPU, False: ON_CPU}),
        shape=[shape_text(row) for row in rows.to_dict("records")],
        choice=[choice_text(row, kernels) for row in rows[key].to_dict("records")],
        **ratios,
        verdict=np.select([*verdicts.values()], [*verdicts], Verdict.SLOWER),
    )
    libraries = {name for name, kernel in kernels.items() if kernel.kind == Kind.LIBRARY}
    differing = [name for name, version in first.device.versions.items() if second.device.versions.get(name) != version]
    why = [_why(row, differing if row["kernel"] in libraries else ()) for row in points.to_dict("records")]
    points = points.assign(why=why)
    return Comparison(first, second, threshold, overhead, points, _by_kernel(points))


def overheads(first: Run, second: Run, rows: pd.DataFrame) -> Overhead:
    """The difference of both runs' overheads, from an empty kernel, or else from the median difference of the shortest
    points in common."""
    if first.overhead_us is not None and second.overhead_us is not None:
        said = f"an empty kernel took {rounded(first.overhead_us)} and {rounded(second.overhead_us)} µs"
        return Overhead(second.overhead_us - first.overhead_us, said)
    short = rows[(rows["time_ms"] < ESTIMATED_BELOW) & (rows["other_time_ms"] < ESTIMATED_BELOW)]
    if len(short) < FEWEST_SHORT:
        return Overhead(0.0, "not known: a run did not measure it, and too few points are short")
    found = 1000 * (short["other_time_ms"] - short["time_ms"])
    said = f"estimated from {len(short)} points under {1000 * ESTIMATED_BELOW:.0f} µs, half of which differ by "
    low, high = found.quantile([0.25, 0.75])
    return Overhead(float(found.median()), f"{said}{low:+.1f} to {high:+.1f} µs")


def _on_gpu(rows: pd.DataFrame, kernels: Mapping[str, Kernel]) -> pd.Series:
    """Whether the kernel of each row runs on the GPU; one that the registry no longer has does."""
    return ~rows["kernel"].isin([name for name, kernel in kernels.items() if not kernel.on_gpu])


def _in_common(first: Run, second: Run, kernels: Mapping[str, Kernel]) -> tuple[pd.DataFrame, list[str]]:
    """The points that both runs have, with what is COMPARED of each, and the columns that name a point; those of the
    CPU alone, if one has no GPU."""
    tables = [first.measurements, second.measurements]
    parameters = list(dict.fromkeys(name for table in tables for name in columns.parameters_of(table)))
    key, found = [*columns.POINT, *parameters], []
    for table in tables:
        low, high = time_range(table)
        table = columns.set_types(table.reindex(columns=list(dict.fromkeys([*table, *key]))))
        # A point may be there twice, if a parameter that told two apart is no longer recorded.
        table = table.assign(low_ms=low, high_ms=high).sort_values("time_ms", kind="stable").drop_duplicates(key)
        found.append(table[[*key, *COMPARED]])
    one, other = found
    rows = one.merge(other.rename(columns={name: f"other_{name}" for name in COMPARED}), on=key)
    if bool(first.device.gpu) != bool(second.device.gpu):  # one of them ran nothing on a GPU
        rows = rows[~_on_gpu(rows, kernels)]
    if rows.empty:
        tasks = [", ".join(list(dict.fromkeys(table["task"]))[:4]) or "none" for table in tables]
        raise UserError(
            f"{first.name} and {second.name} have no point in common (tasks {tasks[0]} and {tasks[1]}); compare "
            "runs of the same task, shapes and parameters"
        )
    return rows, key


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


def _by_kernel(points: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel and element type: points, median and range of their ratios, how many have which verdict."""
    groups = points.groupby(["kernel", "dtype"], sort=False)
    table = groups["ratio"].agg(points="size", ratio="median", least="min", largest="max")
    verdicts = [str(verdict) for verdict in Verdict]
    counts = groups["verdict"].value_counts().unstack(fill_value=0).reindex(columns=verdicts, fill_value=0)
    return table.join(counts).reset_index()
