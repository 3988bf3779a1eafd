"""Read published, recorded and measured data, and keep apart data that must not be mixed.

`Evidence` is the only input of tables and figures. Its measurements never mix: `gpu` holds times of real GPUs, `cpu`
holds times of CPU loops and libraries, and `emulated` holds the verification of CUDA kernels on the CPU emulator, which
does not measure times.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tilewise import RECORDED, ROOT, UserError, checksums
from tilewise.files import read_json, remedy
from tilewise.study import columns, registry, tuning
from tilewise.study.columns import FACTS, SHAPE, WHOLE
from tilewise.study.device import Device
from tilewise.study.device import read as read_device
from tilewise.study.kernel import Kernel, Kind
from tilewise.study.status import NOT_BUILT
from tilewise.study.sweeps import sweep_parameters

PUBLISHED = ROOT / "report" / "published"
CLAIMS = ROOT / "report" / "claims.yaml"
RESULTS = ROOT / "results"

#: The state of the sources of a copy without git's history.
UNKNOWN = "unknown"
#: The sources of the published figures: each has a file in PUBLISHED.
SOURCES = "abcde"
#: The files of counts, with the columns that name what was counted, in addition to the parameters. Only the hardware's
#: counters depend on the machine, and have a column for it.
KEYS_OF_COUNTS = {
    "traffic": ["kernel", "dtype", *SHAPE, "block_x", "block_y"],
    "counters": ["platform", "kernel", "dtype", *SHAPE, "block_x", "block_y"],
    "instructions": ["kernel", "dtype", "instance", "architecture"],
    "cache_lines": ["kernel", "element_bytes", *SHAPE],
}


@dataclass(frozen=True)
class Platform:
    """One machine as data: device.json, the resolved config and the tables; the repository keeps those `recorded`."""

    name: str
    device: Device
    config: dict[str, Any]
    measurements: pd.DataFrame
    facts: dict[str, pd.DataFrame]
    recorded: bool
    cards: pd.DataFrame  # what further cards of the model took

    @property
    def has_gpu(self) -> bool:
        """Whether its CUDA kernels ran on a GPU, so that they have times."""
        return self.device.backend == "gpu"

    @property
    def label(self) -> str:
        """The label of the processor; for recorded data it includes the date of the recording."""
        name = self.device.gpu["name"] if self.has_gpu else "this machine, no GPU"
        return f"{name}, recorded {self.device.captured[:10]}" if self.recorded else name

    @property
    def own_cards(self) -> set[str]:
        """The UUIDs of the cards that measured its points."""
        return {uuid for uuid in self.measurements["gpu_uuid"].dropna() if uuid}

    @property
    def commits(self) -> dict[str, list[str]]:
        """The tasks that were measured with each state of the sources, which is a commit and what differed from it.

        Rows without a commit were measured in a copy without git's history.
        The tuner does not count: it ran before the commit that has its choices.
        """
        facts = [self.facts[name] for name in FACTS if name != "tune"]
        return self._states([self.measurements, *facts]) or {UNKNOWN: []}

    @property
    def tuner_commits(self) -> list[str]:
        """The states of the sources with which the tuner's variants were measured; rows without a commit have none."""
        return [state for state in self._states([self.facts["tune"]]) if state != UNKNOWN]

    def _states(self, tables: Iterable[pd.DataFrame]) -> dict[str, list[str]]:
        names = ["task", "status", "commit", "changes"]
        rows = pd.concat([pd.DataFrame(columns=names), *(table[names] for table in tables if "commit" in table)])
        found: dict[str, list[str]] = {}
        states = rows.loc[~rows["status"].isin(NOT_BUILT), ["task", "commit", "changes"]].drop_duplicates()
        for task, commit, changes in states.itertuples(index=False):
            state = commit + f" with changes in {changes}" * bool(changes) if commit else UNKNOWN
            found.setdefault(state, []).append(task)
        return {state: list(dict.fromkeys(tasks)) for state, tasks in found.items()}


@dataclass(frozen=True, eq=False)  # so that functools can keep what follows from it
class Evidence:
    """Everything that a report shows: `platforms` are those of this run, `gpus` those whose GPU times are shown.

    `facts` holds the tables of FACTS and WHOLE by name; those of methods have the column `task`. `kernels` is the
    registry, `parameters` are the columns of parameters that any table has, and `published` has the sources' figures.
    """

    platforms: tuple[Platform, ...]
    gpus: tuple[Platform, ...]
    gpu: pd.DataFrame
    cpu: pd.DataFrame
    emulated: pd.DataFrame
    facts: dict[str, pd.DataFrame]
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    published: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def shown_platforms(self) -> tuple[Platform, ...]:
        """The platforms of this run, then the recorded platforms whose times are shown instead."""
        recorded = [gpu for gpu in self.gpus if gpu.recorded]
        return tuple({each.name: each for each in (*self.platforms, *recorded)}.values())

    @property
    def gpus_first(self) -> tuple[Platform, ...]:
        """The platforms of `shown_platforms`, those with GPU times first."""
        return tuple(sorted(self.shown_platforms, key=lambda platform: not platform.has_gpu))

    @property
    def foremost(self) -> Platform:
        """The platform of which a page speaks if it speaks of one: this run's first GPU, or else that recorded last."""
        first = self.gpus_first[0]
        return max(self.gpus, key=lambda gpu: gpu.device.captured) if first.recorded else first

    def device(self, name: str) -> Device:
        """The device of the platform of this name."""
        return next(platform.device for platform in self.shown_platforms if platform.name == name)

    @property
    def labels(self) -> dict[str, str]:
        """Name in the column `platform` -> words for it."""
        found = {platform.name: platform.label for platform in self.shown_platforms}
        words = list(found.values())
        return {name: f"{label} ({name})" if words.count(label) > 1 else label for name, label in found.items()}

    @property
    def names(self) -> dict[str, str]:
        """Platform -> words for a sentence, with the date of a recording only if two would be equal."""
        found = {name: label.partition(", recorded")[0] for name, label in self.labels.items()}
        words = list(found.values())
        return {name: short if words.count(short) == 1 else self.labels[name] for name, short in found.items()}

    def machine(self, platform: str, kernel: str = "") -> str:
        """Words for what ran a kernel on a platform: its GPU, or its CPU if the kernel runs there."""
        found = next((each for each in self.shown_platforms if each.name == platform), None)
        if found is None or not found.has_gpu or kernel not in self.kernels or self.kernels[kernel].on_gpu:
            return self.labels.get(platform, platform)
        cpu = found.device.cpu["name"]
        return f"{cpu}, recorded {found.device.captured[:10]}" if found.recorded else cpu

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config of this run."""
        return self.platforms[0].config

    @property
    def max_noise(self) -> float:
        """A point is unstable if its standard deviation is above this fraction of the mean."""
        return self.config["timing"]["max_noise_percent"] / 100

    @property
    def choice(self) -> list[str]:
        """The columns of a sweep's choices."""
        return columns.choice(self.parameters)

    @property
    def libraries(self) -> frozenset[str]:
        """The names of the libraries, to which the tables compare the kernels."""
        return frozenset(name for name, kernel in self.kernels.items() if kernel.kind == Kind.LIBRARY)

    def on_gpu(self, names: pd.Series) -> pd.Series:
        """Whether each kernel runs on the GPU; one that the registry no longer has is a GPU's."""
        return ~names.isin([name for name, kernel in self.kernels.items() if not kernel.on_gpu])

    @property
    def tasks(self) -> set[str]:
        """The tasks of all rows."""
        tables = [self.gpu, self.cpu, self.emulated, *(self.facts[name] for name in FACTS)]
        return {task for table in tables for task in table["task"].unique()}

    def method(self, task: str) -> str:
        """The method of a task of this run's config."""
        return self.config["tasks"].get(task, {}).get("method", "sweep")

    def roofs(self, platform: str) -> dict[tuple[str, str], float]:
        """Rates that the task `bandwidth` measured on a platform, in 10^9 a second: (quantity, element type) ->
        rate."""
        rows = self.facts["bandwidth"]
        rows = rows[(rows["platform"] == platform) & rows["measured"].notna()]
        return dict(zip(zip(rows["quantity"], rows["dtype"]), rows["measured"]))

    def select_tasks(self, *tasks: str) -> "Evidence":
        """Evidence with the measurements and the methods' facts of these tasks only."""
        return _of(self, tasks)


@functools.lru_cache(maxsize=64)
def _of(evidence: Evidence, tasks: tuple[str, ...]) -> Evidence:
    measured = {name: _of_tasks(getattr(evidence, name), tasks) for name in ("gpu", "cpu", "emulated")}
    return dataclasses.replace(evidence, **measured, facts=_facts_of_tasks(evidence.facts, tasks))


def _of_tasks(table: pd.DataFrame, tasks: Iterable[str]) -> pd.DataFrame:
    return table[table["task"].isin(tasks)]


def _facts_of_tasks(facts: Mapping[str, pd.DataFrame], tasks: Iterable[str]) -> dict[str, pd.DataFrame]:
    """The facts with those of methods of some tasks only; what describes the platform stays."""
    return {name: _of_tasks(table, tasks) if name in FACTS else table for name, table in facts.items()}


def time_range(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The range of the time of each row of measurements.csv, in ms: from the fastest to the slowest of several runs, or
    else between the quartiles of one."""
    several = (rows["runs"].fillna(1) > 1) | rows["turns"].notna()
    return rows["run_low_ms"].where(several, rows["time_q1_ms"]), rows["run_high_ms"].where(several, rows["time_q3_ms"])


def load_published(folder: Path | str = PUBLISHED, kernels: Mapping[str, Kernel] | None = None) -> pd.DataFrame:
    """The figures of the five sources, one row per figure.

    Raises UserError if a file in the folder is damaged or differs from its hash in SHA256SUMS.
    """
    checksums.check_published(Path(folder))
    parameters = registry.parameters(registry.load() if kernels is None else kernels)
    tables = [columns.read(Path(folder, f"{name}.csv"), "published", parameters) for name in SOURCES]
    return columns.set_types(pd.concat(tables, ignore_index=True))


@functools.cache
def data_sheets() -> pd.DataFrame:
    """The dense rates and bandwidths that NVIDIA prints of some cards, named as their drivers name them; in the columns
    of the published figures."""
    return columns.read(PUBLISHED / "data_sheets.csv", "published")


def refuse_no_run(folder: Path) -> None:
    """Raise UserError if a folder is no run."""
    if not (folder / "device.json").is_file():
        raise UserError(
            f"{folder}: it has no device.json, so it is not a run; give a folder such as results/nvidia-h200"
        )


def load_platform(
    folder: Path | str,
    task: str | None = None,
    recorded: bool = False,
    kernels: Mapping[str, Kernel] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Platform:
    """The platform in a folder such as results/nvidia-h200, with all that was measured, or with one task alone.

    `config` is the resolved config of the run, by default that of the folder's config.json. With a `task`, the tables
    of the platform as a whole are empty: they may belong to another run.

    Raises UserError if a file is missing or damaged, or, of a recorded run, differs from the hash in its RO-Crate.
    """
    folder, parameters = Path(folder), registry.parameters(registry.load() if kernels is None else kernels)
    crate = checksums.check_recorded(folder) if recorded else ""
    if not crate or config:
        return _read_platform(folder, task, recorded, parameters, config)
    kept = _recorded_platform(folder.absolute(), task, tuple(parameters), crate)
    tables = {name: table.copy(deep=False) for name, table in kept.facts.items()}
    measurements, cards = kept.measurements.copy(deep=False), kept.cards.copy(deep=False)
    return dataclasses.replace(
        kept, config=copy.deepcopy(kept.config), measurements=measurements, facts=tables, cards=cards
    )


@functools.lru_cache(maxsize=8)  # the pages need each recorded run three times
def _recorded_platform(folder: Path, task: str | None, parameters: tuple[str, ...], crate: str) -> Platform:
    """The recorded run in a folder whose files are those of a `crate`, which is a hash."""
    return _read_platform(folder, task, True, parameters, None)


def _read_platform(
    folder: Path, task: str | None, recorded: bool, parameters: Sequence[str], config: Mapping[str, Any] | None
) -> Platform:
    file = folder / "device.json"
    if not file.is_file():
        raise UserError(f"{file}: there is no such file, so nothing was measured here yet; run `make report`")
    # A task shows its own results, even if the results of the other tasks are missing; a recorded run has one file.
    source = folder / (f"tasks/{task}.csv" if task and not recorded else "measurements.csv")
    read = functools.partial(columns.read, parameters=parameters)
    measured = read(source, "measurements")
    device = read_device(file)
    # Not all files that exist: an earlier config may have had other tasks.
    resolved = folder / "config.json"
    config = read_json(resolved) if config is None else config
    try:
        methods = {name: entry.get("method", "sweep") for name, entry in config["tasks"].items()}
    except (LookupError, AttributeError):
        raise UserError(f"{resolved}: this is not a config of tasks; {remedy(resolved)}") from None
    methods = {name: method for name, method in methods.items() if task in (None, name)}
    facts = {name: _facts_of_method(folder, name, methods, read) for name in FACTS}
    tuned = task is None or methods.get(task) == "tune"
    facts["tune"] = _variants(folder, parameters) if tuned else columns.empty_table("tune", parameters)
    if task:
        facts["tune"] = _of_tasks(facts["tune"], [task])
    whole = {
        name: columns.empty_table(name, parameters) if task else read(folder / f"{name}.csv", name) for name in WHOLE
    }
    if not recorded:
        _check_whole(measured, facts["sweep"], source)
    cards = read(folder / "cards.csv", "cards")
    return Platform(
        name=folder.name,
        device=device,
        config=dict(config),
        measurements=_of_tasks(measured, [task]) if task else measured,
        facts=facts | whole,
        recorded=recorded,
        cards=_of_tasks(cards, [task]) if task else cards,
    )


def choices(folder: Path | str, kernels: Mapping[str, Kernel]) -> tuning.Choices:
    """The tuner's choices on the platform in a folder such as results/nvidia-h200, in the form of kernels/tuned.yaml.

    Raises UserError if it chose nothing there.
    """
    folder = Path(folder)
    rows = _variants(folder, registry.parameters(kernels))
    found: tuning.Choices = {}
    for row in rows[rows["chosen"].fillna(False)].to_dict("records"):
        kernel = kernels.get(row["kernel"])
        if kernel is None or any(pd.isna(row.get(name)) for name in kernel.columns):
            raise UserError(
                f"{folder}/tune/{row['kernel']}.csv: the registry's {row['kernel']} has other parameters today; run "
                "the tuner again"
            )
        types = found.setdefault(folder.resolve().name, {}).setdefault(row["kernel"], {})
        parameters = tuple((name, int(row[name])) for name in kernel.columns)
        types.setdefault(row["dtype"], {})[row["shape_class"]] = sweep_parameters(parameters)
    if not found:
        raise UserError(
            f"{folder}: the tuner has chosen nothing here; run `snakemake --cores all tune` on a machine with a GPU"
        )
    return tuning.merge({}, found)


def _check_whole(measured: pd.DataFrame, sweeps: pd.DataFrame, source: Path) -> None:
    """Raise UserError if a file of measurements has more or fewer rows of a sweep than the sweep has points."""
    rows = measured["task"].value_counts()
    for task, points in zip(sweeps["task"], sweeps["points"]):
        if rows.get(task, 0) != points:
            raise UserError(
                f"{source}: it has {rows.get(task, 0)} rows of {task}, which has measured {points} since then; make it "
                "again: `make report`, or the command of your last whole run"
            )


def _variants(folder: Path, parameters: Sequence[str]) -> pd.DataFrame:
    """The variants of all kernels that were tuned on a platform."""
    return columns.read_all(sorted((folder / "tune").glob("*.csv")), "tune", parameters)


def _facts_of_method(
    folder: Path, method: str, methods: Mapping[str, str], read: Callable[..., pd.DataFrame]
) -> pd.DataFrame:
    tasks = [task for task, its in methods.items() if its == method] or [""]
    return _joined([read(folder / "facts" / f"{task}.csv", method).assign(task=task) for task in tasks])


def _joined(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The rows of several tables, in the columns that any of them has, each of its type."""
    # A copy has columns of a type in one block, which is faster.
    return columns.set_types(pd.concat(tables, ignore_index=True)).copy()


def load_evidence(
    folders: Iterable[Path | str] | None = None,
    task: str | None = None,
    recorded: Path | str = RECORDED,
    kernels: Mapping[str, Kernel] | None = None,
    config: Mapping[str, Any] | None = None,
    of_record: bool = False,
) -> Evidence:
    """Evidence from the folders of this run's platforms (default: all in results/), for one task or for all.

    If no platform of the run has a GPU, the recorded platforms supply the times, in the order of their recording, and
    are marked as recorded. `kernels` is the registry (default: that of the study), `config` that of this run (default:
    the platforms' config.json). The folders are those of recorded runs if they are `of_record`, and such a run may lack
    rows.
    """
    if folders is None:
        folders = sorted(path.parent for path in RESULTS.glob("*/device.json")) or [RESULTS / "<platform>"]
    kernels = registry.load() if kernels is None else kernels
    read_all = functools.partial(load_platform, recorded=of_record, kernels=kernels, config=config)
    platforms = tuple(read_all(folder, task) for folder in folders)
    gpus = tuple(platform for platform in platforms if platform.has_gpu)
    if not gpus:
        kept = sorted(Path(recorded).glob("*/device.json"))
        kept = [path for path in kept if path.parent.name not in {platform.name for platform in platforms}]
        loaded = [load_platform(path.parent, task, True, kernels) for path in kept]
        gpus += tuple(sorted(loaded, key=lambda gpu: gpu.device.captured))
    everyone = list({platform.name: platform for platform in (*gpus, *platforms)}.values())
    on_cpu = {name for name, kernel in kernels.items() if not kernel.on_gpu}

    measured = _joined(platform.measurements for platform in everyone)
    facts = {name: _joined(platform.facts[name] for platform in everyone) for name in (*FACTS, *WHOLE)}
    read = [(each.name, each.facts["counters"].head(None if each.has_gpu else 0)) for each in everyone]
    facts["counters"] = _joined(table.assign(platform=name) for name, table in read)
    # Recorded tables may have parameters that no kernel has today; every table that has parameters has them all.
    with_parameters = [name for name in facts if "*" in columns.FILES[name]]
    known = [name for table in (measured, *(facts[name] for name in with_parameters)) for name in table]
    parameters = tuple(dict.fromkeys([*registry.parameters(kernels), *columns.parameters_of(known)]))
    measured = _with_columns(measured, parameters)
    facts |= {name: _with_columns(facts[name], parameters) for name in with_parameters}
    for name, keys in KEYS_OF_COUNTS.items():
        own = parameters if name in with_parameters else ()
        facts[name] = facts[name].drop_duplicates([*keys, *own], keep="last")
    cpu = measured["kernel"].isin(on_cpu)
    gpu = measured["platform"].isin([platform.name for platform in gpus])
    return Evidence(
        platforms,
        gpus,
        gpu=measured[gpu & ~cpu],
        cpu=measured[cpu],
        emulated=measured[~gpu & ~cpu],
        facts=facts,
        kernels=kernels,
        parameters=parameters,
        published=load_published(kernels=kernels),
    )


def _with_columns(table: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The table with further columns, empty if it does not have them."""
    missing = [name for name in names if name not in table]
    return columns.set_types(table.reindex(columns=[*table.columns, *missing])) if missing else table
