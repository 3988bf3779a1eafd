"""Checks a run that is kept, or is to be: whether it is whole, of one commit, possible, and free of what is private.

Every check says what it finds in lines that name the place.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tilewise import KERNELS, ROOT, UserError, crate
from tilewise.compile import build
from tilewise.evidence import Platform, load_platform, point_of, refuse_no_run
from tilewise.files import read_json
from tilewise.measure.methods import METHODS
from tilewise.measure.words import is_right
from tilewise.recorded import cards, entry, possible, samples, sources
from tilewise.recorded.possible import about
from tilewise.study import columns, registry, sweeps
from tilewise.study.columns import WHOLE
from tilewise.study.device import Device
from tilewise.study.kernel import Kernel
from tilewise.study.schema import meant, read_yaml
from tilewise.study.status import Status
from tilewise.study.sweeps import Target

#: Files that only a run has for which they were named as targets, and those that recording adds.
ON_REQUEST = ("counters.csv",)
BY_RECORDING = (entry.README, crate.METADATA, crate.WORKFLOW, cards.FILE, samples.DIGEST, samples.ARCHIVE)
#: A message names so many of a kind.
LISTED = 3
#: What nobody hands in: an absolute path, an address of mail.
PRIVATE = re.compile(r"(?<![\w.:/*<>)\]-])/(?:[\w.+@-]+/)+[\w.+@-]*|[\w.+-]+@[\w-]+\.[a-z]{2,}")
#: How recording calls the machines of a run.
MACHINE = re.compile(r"machine \d+")


@dataclass(frozen=True)
class Finding:
    """What a check says."""

    check: str
    says: str

    def __str__(self) -> str:
        return f"refused: {self.check}: {self.says}"


@dataclass(frozen=True, eq=False)
class Kept:
    """A run in a folder with what it is checked against: the `kernels` and the `study` (its config) of its commit.

    `known` is whether this clone has that commit; without it they are those of today.
    """

    folder: Path
    platform: Platform
    commit: str
    known: bool
    kernels: Mapping[str, Kernel]
    study: Mapping[str, Any]

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of measurements.csv."""
        return self.platform.measurements.to_dict("records")


def check(folder: Path) -> list[Finding]:
    """What there is to say about a run in a folder such as report/recorded/nvidia-h200; nothing if all is right.

    Raises UserError if the folder is no run.
    """
    refuse_no_run(folder)
    return list(_findings(folder))


def _findings(folder: Path) -> Iterator[Finding]:
    device = read_json(folder / "device.json")
    try:
        config = read_json(folder / "config.json")
        files_of(config)
    except UserError as error:
        yield Finding("files", str(error))
        return  # nothing else says what belongs to the run
    commit = _commit_of(folder, device)
    with sources.at(commit) as tree:
        kernels, study = _study(tree)
        broken = [Finding("files", each) for each in _files(folder, config, kernels)]
        yield from broken
        yield from (Finding("private", each) for each in private(folder))
        if any(each.says.startswith(str(folder)) for each in broken):
            return  # what cannot be read cannot be checked
        platform = load_platform(folder, recorded=True, kernels=kernels)
        kept = Kept(folder, platform, commit, tree is not None, kernels, study)
        for name, one in CHECKS.items():
            try:
                yield from (Finding(name, says) for says in one(kept))
            except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
                # Anybody may have written these files: what is in them may be of any kind.
                cause = f"{type(error).__name__}: {error}"
                yield Finding(name, f"this cannot be checked ({cause}): device.json or config.json lacks what it needs")


def _commit_of(folder: Path, device: Mapping[str, Any]) -> str:
    """The commit of most of a run's rows, or else of its device.json, which older runs have."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        stated = pd.read_csv(folder / "measurements.csv", usecols=["commit"], dtype=str)["commit"].dropna()
        return stated.mode()[0]
    return str(device.get("commit") or "")


def _study(tree: Path | None) -> tuple[Mapping[str, Kernel], Mapping[str, Any]]:
    """The registry and the config of a commit; those of today if it has other forms of them, or is not known."""
    with contextlib.suppress(UserError, LookupError, TypeError):
        if tree:
            return registry.load(tree / "kernels", checked=True), read_yaml(tree / "config" / "config.yaml")
    return registry.load(KERNELS), read_yaml(ROOT / "config" / "config.yaml")


# ---- Files -----------------------------------------------------------------------------------------------------------


def files_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The files that a whole run has, by their path in its folder, with their kind in columns.FILES; "" for JSON.

    Raises UserError if `config` is none of tasks whose methods are known.
    """
    try:
        methods = {task: its.get("method", "sweep") for task, its in config["tasks"].items()}
    except (LookupError, AttributeError, TypeError):
        raise UserError("config.json: this is not a config of tasks; copy that of the run") from None
    for task, method in methods.items():
        if method not in METHODS:
            raise UserError(f"config.json: tasks.{task}.method: {meant(str(method), METHODS)}")
    facts = {f"facts/{task}.csv": method for task, method in methods.items() if not METHODS[method].on_request}
    whole = {f"{name}.csv": name for name in WHOLE}
    return {"device.json": "", "config.json": "", "measurements.csv": "measurements", "accuracy.csv": "accuracy"} | (
        whole | facts
    )


def _files(folder: Path, config: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """Files that are missing, damaged, of another form, or none of a run."""
    wanted, parameters = files_of(config), registry.parameters(kernels)
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    for name in wanted:
        if name not in there and name not in ON_REQUEST:
            yield f"{name}: there is no such file"
    tuned = {f"tune/{kernel}.csv": "tune" for kernel in kernels}
    kinds = {name: Path(name).stem for name in BY_RECORDING} | tuned | wanted
    yield from (f"{name}: this does not belong to a run that is kept" for name in sorted(there - set(kinds)))
    for name in sorted(there & set(kinds)):
        try:
            if name.endswith(".json"):
                read_json(folder / name)
            elif name.endswith(".csv"):
                table = columns.read(folder / name, kinds[name], parameters)
                strange = [each for each in table if each not in columns.of(kinds[name], parameters)]
                yield from (f"{folder / name}: the column '{each}' is none of this study" for each in strange)
        except UserError as error:
            yield str(error)
    yield from samples.damage(folder)


def private(folder: Path) -> Iterator[str]:
    """Places that name a machine, a user or a path."""
    device = read_json(folder / "device.json")
    if device.get("node") and not MACHINE.fullmatch(str(device["node"])):
        yield f"device.json: the name of a machine, '{device['node']}'"
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".csv", ".json", ".md")):
        place, text = path.relative_to(folder), path.read_text(encoding="utf-8", errors="replace")
        found = dict.fromkeys(each[0] for each in PRIVATE.finditer(text))
        yield from (f"{place}: '{each}'" for each in list(found)[:LISTED])
        names = _cells(path, "node") | _cells(path, "slurm_job") if path.suffix == ".csv" else set()
        yield from (
            f"{place}: the name of a machine or job, '{each}'" for each in sorted(names) if not MACHINE.fullmatch(each)
        )


def _cells(path: Path, column: str) -> set[str]:
    """What a column of a CSV holds; nothing if there is no such column."""
    with contextlib.suppress(ValueError, OSError):
        return set(pd.read_csv(path, usecols=[column], dtype=str)[column].dropna())
    return set()


# ---- What was run ----------------------------------------------------------------------------------------------------


def _whole(kept: Kept) -> Iterator[str]:
    """Tasks and settings that differ from the study's, and points that are missing or were not asked for."""
    asked, wanted = kept.platform.config, kept.study
    if not kept.platform.has_gpu:
        yield "it has no times of a GPU"
    if kept.platform.device.platform != kept.folder.name:
        yield f"device.json: the platform is '{kept.platform.device.platform}', the folder '{kept.folder.name}'"
    lacking = [task for task in wanted["tasks"] if task not in asked["tasks"]]
    if lacking:
        yield f"it lacks the tasks {_some(lacking)} of the study"
    for name in wanted:
        if name in ("tasks", "platforms", "slurm", "strict"):
            continue
        if asked.get(name) != wanted[name]:
            yield f"config.json: '{name}' is not as in config/config.yaml"
    changed = [task for task, its in asked["tasks"].items() if wanted["tasks"].get(task, its) != its]
    if changed:
        yield f"config.json: the tasks {_some(changed)} are not as in config/config.yaml"
    for task, its in asked["tasks"].items():
        if its.get("method", "sweep") == "sweep":
            yield from _points(kept, task)


def _points(kept: Kept, task: str) -> Iterator[str]:
    """Points of a sweep without a row, and rows that are no points of it."""
    platform = kept.platform
    target = Target(platform.device.backend, sweeps.gpu_of_choices(platform.name, kept.kernels))
    try:
        asked = sweeps.expand(platform.config, kept.kernels, task, target)
    except UserError as error:
        yield f"{task}: {error}"
        return
    rows = [row for row in kept.rows if row["task"] == task]
    points = [point_of(row, kept.kernels[row["kernel"]]) if row["kernel"] in kept.kernels else None for row in rows]
    there = {replace(point, parameters=tuple(sorted(point.parameters))) for point in points if point}
    wanted = {replace(point, parameters=tuple(sorted(point.parameters))): point for point in asked}
    lacking = [point.label() for key, point in wanted.items() if key not in there]
    if lacking:
        yield f"{task}: {len(lacking)} of {len(asked)} points have no row: {_some(lacking)}"
    strange = sorted(point.label() for point in there - set(wanted)) + ["one of no kernel"] * points.count(None)
    if strange:
        yield f"{task}: {len(strange)} rows are no points of it: {_some(strange)}"


def _of_one_commit(kept: Kept) -> Iterator[str]:
    """States of the sources, if there are several, or if they are no commit."""
    states = kept.platform.commits
    if len(states) > 1:
        named = "; ".join(f"{state} ({_some(tasks)})" for state, tasks in states.items())
        yield f"it was measured by {len(states)} states of the sources: {named}"
    for state, tasks in states.items():
        if not sources.COMMIT.fullmatch(state):
            yield f"{_some(tasks) or 'it'}: measured by no commit: {state}"
    if not kept.known and sources.COMMIT.fullmatch(kept.commit):
        yield f"this clone does not have the commit {kept.commit}, so it cannot tell the hashes; fetch it"


def _hashes(kept: Kept) -> Iterator[str]:
    """Kernels of which rows have other hashes than their sources have at the commit."""
    facts = kept.platform.facts
    hashes = functools.cache(lambda name, at: build.row_sha256(kept.kernels[name], at, kept.platform.device))
    tables = {"measurements.csv": kept.platform.measurements} | {
        name: facts[name] for name in ("sizes", "batches", "tune")
    }
    for name, table in tables.items():
        rows = table[table["build_sha256"] != ""].to_dict("records")
        yield from _differing(
            name,
            [
                (row, hashes(kernel.name, point_of(row, kernel)))
                for row in rows
                if (kernel := kept.kernels.get(row["kernel"])) and kernel.source
            ],
        )
    rows = [row for row in facts["instructions"].to_dict("records") if row["kernel"] in kept.kernels]
    device = Device.of("9.0") if not kept.platform.has_gpu else kept.platform.device
    yield from _differing(
        "instructions.csv",
        [(row, build.source_sha256(kept.kernels[row["kernel"]], row["instance"], device)) for row in rows],
    )


def _differing(place: str, hashes: Iterable[tuple[Mapping[str, Any], str]]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for row, own in hashes:
        if row["build_sha256"] != own:
            pair = f"{row['build_sha256'][:10]}, not {own[:10] or 'that of any build'}"
            found.setdefault(row["kernel"], []).append(pair)
    for kernel, pairs in found.items():
        yield f"{place}: {len(pairs)} rows of {kernel} are of other sources than the commit's; the first has {pairs[0]}"


# ---- What came out ---------------------------------------------------------------------------------------------------


def _statuses(kept: Kept) -> Iterator[str]:
    """Rows that are not right, and facts that are not."""
    known = {str(status) for status in Status}
    tables = {"measurements.csv": kept.platform.measurements}
    tables |= {name: table for name, table in kept.platform.facts.items() if "status" in table and name != "tune"}
    for name, table in tables.items():
        for row in table[~table["status"].isin([Status.OK, Status.NOT_TIMED])].to_dict("records"):
            if row["status"] not in known and (row["status"] or name not in WHOLE):
                yield f"{name}: {about(row)}: '{row['status']}' is no status"
            elif row["status"] and name not in WHOLE and not is_right(row):
                yield f"{name}: {about(row)}: {row['status']}: {' '.join(row['message'].split())[:120]}"


def _alone(kept: Kept) -> Iterator[str]:
    """Tasks that were measured beside other processes on the GPU, or other Slurm jobs on the node."""
    for task, known in kept.platform.measurements.groupby("task", sort=False)["alone"]:
        if beside := known.eq(False).sum():  # it is empty where nothing is known
            yield f"{task}: {beside} of {len(known)} points were measured beside other processes"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join([*names[:LISTED], *([f"{len(names) - LISTED} more"] if len(names) > LISTED else [])])


def _entry(kept: Kept) -> Iterator[str]:
    """An entry that is not what its data say."""
    path = kept.folder / entry.README
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != entry.text(kept.folder, kept.platform):
        yield f"{entry.README}: it is not what `tilewise record` writes of these data"


#: Every check of what a run holds: its name, and what says where it fails.
CHECKS: dict[str, Callable[[Kept], Iterator[str]]] = {
    "whole": _whole,
    "commit": _of_one_commit,
    "hashes": _hashes,
    "cards": lambda kept: iter(cards.damage(kept.platform)),
    "statuses": _statuses,
    "alone": _alone,
    "entry": _entry,
    "possible": lambda kept: possible.wrong(kept.platform, kept.kernels),
}
