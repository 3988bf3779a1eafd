"""Reads what was published, recorded and measured, and keeps apart data that must not be mixed.

`Evidence` is the only input of tables and figures. Its measurements never mix: `gpu` holds times of real GPUs, `cpu`
holds times of CPU loops and libraries, and `emulated` holds the verification of CUDA kernels on the CPU emulator, which
does not measure times.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tilewise import ROOT, UserError
from tilewise.count import cache_lines, counters, occupancy
from tilewise.measure import task as measure
from tilewise.measure.methods import bandwidth, cold_start, launch_limits
from tilewise.measure.methods import maximum_size as maximum
from tilewise.study import registry

PUBLISHED = ROOT / "report" / "published"
RECORDED = ROOT / "report" / "recorded"
CLAIMS = ROOT / "report" / "claims.yaml"
RESULTS = ROOT / "results"

#: The columns in which two rows of the same product agree, and those that a sweep chooses.
SHAPE = ["n", "p", "m"]
CHOICE = ["block_x", "block_y", "tile", "ntb"]
#: The files that methods write in addition to measurements, <method>/<task>.csv, and those about a whole platform.
METHODS = {
    "maximum_size": maximum.COLUMNS,
    "cold_start": cold_start.COLUMNS,
    "launch_limits": launch_limits.COLUMNS,
    "bandwidth": bandwidth.COLUMNS,
}
TRAFFIC = [
    *[*counters.KEYS, "global_load_requests", "global_load_sectors", "global_store_sectors", "sectors_per_request"],
    *["shared_load_wavefronts", "shared_bank_conflicts", "flop_per_byte", "flop_per_byte_moved"],
    *["races", "out_of_bounds"],
]
WHOLE = {
    "occupancy": occupancy.COLUMNS,
    "tile_choice": occupancy.CHOICE_COLUMNS,
    "traffic": TRAFFIC,
    "counters": [*counters.KEYS, *counters.METRICS],
    "cache_lines": cache_lines.COLUMNS,
}
#: Those of these files that do not depend on the machine, with the columns that name what was counted.
COUNTED = {"traffic": counters.KEYS, "counters": counters.KEYS, "cache_lines": cache_lines.KEYS}
#: Columns of the files in report/published: one row per figure; `place` is the table or section of the source.
PUBLISHED_COLUMNS = [
    *["source", "place", "device", "quantity", "kernel", "dtype", *SHAPE, "block_x", "block_y", "grid_x", "grid_y"],
    *["tile", "ntb", "value", "unit", "note"],
]
_TEXT = {"platform", "task", "kernel", "dtype", "status", "message", "build_sha256"} | {
    *["source", "place", "device", "quantity", "unit", "note"],
    *["order", "step", "outcome", "error", "error_text", "driver_error", "limiter"],
}
_FLAGS = {"limit_raised", "c_untouched", "chosen"}
_COUNTS = {*SHAPE, *CHOICE, "grid_x", "grid_y", "samples", "registers", "shared_bytes"} | {
    *["element_bytes", "multiply_adds", "l1_lines", "l2_lines"],
    *["theoretical_n", "allocatable_n", "timed_n", "rows_checked", "position", "repeat"],
    *["threads", "active_blocks", "api_active_blocks"],
}

#: The library to which the tables compare everything, by the processor that it runs on.
ANCHORS = {"gpu": "cublas", "cpu": "numpy"}


@dataclass(frozen=True)
class Platform:
    """One machine as data: device.json and the tables beside it; the repository keeps those that are `recorded`."""

    name: str
    device: dict
    measurements: pd.DataFrame
    facts: dict
    recorded: bool = False

    @property
    def has_gpu(self):
        """Whether its CUDA kernels ran on a GPU, so that they have times."""
        return self.device["backend"] == "gpu"

    @property
    def label(self):
        """The processor in words; for recorded data it also says so, and when it was recorded."""
        name = self.device["gpu"]["name"] if self.has_gpu else "this machine, no GPU"
        return f"{name}, recorded {self.device['captured'][:10]}" if self.recorded else name


@dataclass(frozen=True)
class Evidence:
    """Everything that a report shows: `platforms` are those of this run, `gpus` those whose GPU times are shown.

    `facts` holds the tables of METHODS and WHOLE by name.
    """

    platforms: tuple
    gpus: tuple
    gpu: pd.DataFrame
    cpu: pd.DataFrame
    emulated: pd.DataFrame
    facts: dict

    @property
    def everyone(self):
        """The platforms of this run, then the recorded platforms whose times are shown instead."""
        return (*self.platforms, *(gpu for gpu in self.gpus if gpu.recorded))

    @property
    def labels(self):
        """Name in the column `platform` -> words for it."""
        found = {platform.name: platform.label for platform in self.everyone}
        words = list(found.values())
        return {name: f"{label} ({name})" if words.count(label) > 1 else label for name, label in found.items()}

    @property
    def config(self):
        """The resolved config of this run."""
        return self.platforms[0].device["config"]

    @property
    def max_noise(self):
        """A point is unstable if its standard deviation is above this fraction of the mean."""
        return self.config["timing"]["max_noise_percent"] / 100

    def of(self, *tasks):
        """The same evidence with the measurements of these tasks only."""
        parts = {name: getattr(self, name) for name in ("gpu", "cpu", "emulated")}
        return dataclasses.replace(self, **{name: part[part["task"].isin(tasks)] for name, part in parts.items()})


def read(path, columns):
    """A table with at least these columns, as `typed` types them; without rows if there is no such file."""
    path = Path(path)
    table = pd.read_csv(path, dtype=dict.fromkeys(_TEXT, "str")) if path.is_file() else pd.DataFrame(columns=columns)
    missing = [name for name in columns if name not in table]
    if missing:
        raise UserError(f"{path}: the column '{missing[0]}' is missing; delete the file and run again")
    return typed(table)


def typed(table):
    """The same table with text as text, sizes and counts as nullable integers, everything else as floats."""
    kinds = (("str", _TEXT), ("Int64", _COUNTS), ("boolean", _FLAGS))
    types = {name: next((kind for kind, names in kinds if name in names), "float64") for name in table}
    text = [name for name in table if name in _TEXT]
    return table.astype(types).assign(**{name: table[name].astype("str").fillna("") for name in text})


def published(folder=PUBLISHED):
    """The figures of the five sources, one row per figure, with PUBLISHED_COLUMNS."""
    return pd.concat([read(path, PUBLISHED_COLUMNS) for path in sorted(Path(folder).glob("*.csv"))], ignore_index=True)


def kept_files():
    """The published files, the recorded files and the claims: what the report needs beside this run's results."""
    recorded = [*RECORDED.glob("*/*.csv"), *RECORDED.glob("*/*/*.csv"), *RECORDED.glob("*/device.json")]
    return sorted(os.path.relpath(path) for path in (*PUBLISHED.glob("*.csv"), *recorded, CLAIMS))


def load_platform(folder, task=None, recorded=False):
    """The platform in a folder such as results/nvidia-h200, with the measurements of one task or of all."""
    folder = Path(folder)
    file = folder / "device.json"
    if not file.is_file():
        raise UserError(f"{file}: there is no such file, so nothing was measured here yet; run `make report`")
    # A task shows its own results, even if the results of the other tasks are missing.
    measured = read(folder / (f"tasks/{task}.csv" if task and not recorded else "measurements.csv"), measure.COLUMNS)
    device = json.loads(file.read_text())
    tasks = {name: entry.get("method") for name, entry in device["config"]["tasks"].items() if task in (None, name)}
    return Platform(
        name=folder.name,
        device=device,
        measurements=measured[measured["task"] == task] if task else measured,
        facts={name: _facts_of_method(folder, name, columns, tasks) for name, columns in METHODS.items()}
        | {name: read(folder / f"{name}.csv", columns) for name, columns in WHOLE.items()},
        recorded=recorded,
    )


def _facts_of_method(folder, method, columns, tasks):
    # Not all files that exist: an earlier config may have had other tasks.
    files = [folder / method / f"{task}.csv" for task, its in tasks.items() if its == method]
    files = [file for file in files if file.is_file()]
    return pd.concat([read(file, columns) for file in files]) if files else read(folder / f"{method}.csv", columns)


def load(folders=None, task=None, recorded=RECORDED):
    """Evidence from the folders of this run's platforms (default: all in results/), for one task or for all.

    If no platform of the run has a GPU, the recorded platforms supply the times, and are marked as recorded.
    """
    if folders is None:
        folders = sorted(path.parent for path in RESULTS.glob("*/device.json")) or [RESULTS / "<platform>"]
    platforms = tuple(load_platform(folder, task) for folder in folders)
    gpus = tuple(platform for platform in platforms if platform.has_gpu)
    if not gpus:
        gpus = tuple(load_platform(path.parent, task, True) for path in sorted(Path(recorded).glob("*/device.json")))
    everyone = {platform.name: platform for platform in (*gpus, *platforms)}.values()
    kernels = registry.load()
    on_cpu = {name for name, kernel in kernels.items() if kernel.kind == "host"} | {ANCHORS["cpu"]}

    measured = pd.concat([platform.measurements for platform in everyone], ignore_index=True)
    cpu = measured["kernel"].isin(on_cpu)
    gpu = measured["platform"].isin([platform.name for platform in gpus])
    names = [*METHODS, *WHOLE]
    facts = {name: pd.concat([p.facts[name] for p in everyone], ignore_index=True) for name in names}
    for name, keys in COUNTED.items():
        facts[name] = facts[name].drop_duplicates(keys, keep="last")
    return Evidence(
        platforms,
        gpus,
        gpu=measured[gpu & ~cpu],
        cpu=measured[cpu],
        emulated=measured[~gpu & ~cpu],
        facts=facts,
    )
