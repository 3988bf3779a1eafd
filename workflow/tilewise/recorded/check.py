"""Checks of a recorded run, or of one to be recorded: whole, of one commit, plausible, without private data."""

import contextlib
import functools
import hashlib
import io
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, UserError, checksums
from tilewise.evidence import Platform, data_sheets, load_platform, refuse_no_run
from tilewise.explain.provenance import by_card
from tilewise.files import read_json, write_json
from tilewise.measure.methods import METHODS
from tilewise.measure.row_summary import is_right
from tilewise.study import builds, columns, registry, sweeps
from tilewise.study.columns import SHAPE, WHOLE
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status
from tilewise.study.sweeps import Target, recorded_point

#: What recording adds, besides the RO-Crate.
README, WORKFLOW, ARCHIVE, DIGEST = "README.md", "Snakefile", "samples.tar.xz", "samples.sha256"
#: Files that a run has only if they were requested as targets.
ON_REQUEST = ("counters.csv",)
#: The folders of a run.
FOLDERS = ("facts", "tune")
BY_RECORDING = (README, WORKFLOW, ARCHIVE, DIGEST, checksums.METADATA)
#: The most names in a message, and the most messages of a check.
LISTED, MOST_FINDINGS = 3, 20
#: Paths and addresses of mail.
PRIVATE = re.compile(r"(?<![\w.:/*<>)\]-])/(?:[\w.+@-]+/)+[\w.+@-]*|(?<![\w.+-])[\w.+-]+@[\w-]+\.[a-z]{2,}")
#: What names where a row was measured, in tables and in device.json.
PLACES = ("node", "slurm_job")
#: How recording calls the machines of a run.
MACHINE = re.compile(r"machine \d+")
COMMIT = re.compile(r"[0-9a-f]{7,40}")
#: What `sha256sum --check` reads in DIGEST.
OF_SAMPLES = re.compile(rb"[0-9a-f]{64}  samples\.tar\.xz\n")
#: NVIDIA prints rates at a clock below the highest: by this a kernel may exceed them.
ABOVE_PRINTED = 1.15
#: Times and rates are written in full, so they agree to more digits than this.
ROUNDED = 1e-6


@dataclass(frozen=True, eq=False)
class Kept:
    """A run in a folder, with the registry and the config of its commit, against which it is checked."""

    folder: Path
    platform: Platform
    kernels: Mapping[str, Kernel]
    study: Mapping[str, Any]


def check(folder: Path, complete: bool = True) -> list[str]:
    """The findings of all checks on a run in a folder such as report/recorded/nvidia-h200, as lines that begin with the
    check's name; none if all is right.

    Without `complete` it may lack what recording adds. Raises UserError if the folder is no run.
    """
    refuse_no_run(folder)
    return list(_findings(folder.resolve(), complete))


def _findings(folder: Path, complete: bool) -> Iterator[str]:
    if strange := list(_no_files(folder)):  # a pipe, or a link to a device, would be read without end
        yield from (f"files: {each}" for each in strange)
        return
    yield from (f"private: {each}" for each in find_private(folder))
    try:
        commit = _commit_of(folder)
    except UserError as error:
        yield f"files: {error}"
        return
    with contextlib.ExitStack() as stack:
        try:
            tree = stack.enter_context(sources(commit))
            kernels, study = _study(tree, commit)
        except UserError as error:  # the study of another commit would make right files look wrong
            yield f"commit: {error}"
            return
        wrong, platform = list(_files(folder, study, kernels, complete)), None
        try:
            platform = load_platform(folder, kernels=kernels)
        except UserError as error:
            wrong.append(str(error))
        yield from (f"files: {each}" for each in dict.fromkeys(wrong))
        if platform is None:  # what cannot be read cannot be checked
            return
        if not (platform.has_gpu and platform.device.gpu):
            yield "whole: it has no times of a GPU"
            return
        kept = Kept(folder, platform, kernels, study)
        for name, one in CHECKS.items():
            found = list(islice(one(kept), MOST_FINDINGS + 1))
            yield from (f"{name}: {says}" for says in found[:MOST_FINDINGS])
            yield from [f"{name}: and more of this kind"] * (len(found) > MOST_FINDINGS)


def _no_files(folder: Path) -> Iterator[str]:
    """What is in the folder of a run and is no file that can be read. The samples may be linked."""
    for path in sorted(folder.rglob("*")):
        name, linked = path.relative_to(folder).as_posix(), path.is_symlink()
        if path.is_file() and os.access(path, os.R_OK) and (not linked or name == ARCHIVE):
            continue
        if name in FOLDERS and path.is_dir() and not linked:
            continue
        kinds = {"a link": linked, "a folder": path.is_dir(), "a file that you cannot read": path.is_file()}
        what = next((kind for kind, holds in kinds.items() if holds), "a device or a pipe")
        yield f"{path}: this is {what}, not a file of a recorded run; remove it, or put the file there"


@contextlib.contextmanager
def sources(commit: str) -> Iterator[Path]:
    """A folder with kernels, config and Snakefile of a commit, from git's history.

    Raises UserError if this clone lacks them.
    """
    if not COMMIT.fullmatch(commit):  # anybody may have written the file that has it
        raise UserError(f"measurements.csv: most rows are measured by no commit: '{commit}'; measure in a clone of git")
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", commit, "kernels", "config", "workflow/Snakefile"]
    try:
        archive = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace").strip()
        raise UserError(
            f"this clone does not have the commit {commit}, or not its kernels and config ({said}), so the run cannot "
            "be held against them; fetch it"
        ) from None
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(folder)
        yield Path(folder)


def _commit_of(folder: Path) -> str:
    """The commit of most of a run's rows; empty if they have none. Raises UserError if there are no rows to read."""
    path = folder / "measurements.csv"
    commits = columns.read(path, "measurements")["commit"].mode()
    if commits.empty:
        raise UserError(f"{path}: there is no such file, or it has no rows")
    return str(commits[0])


def _study(tree: Path, commit: str) -> tuple[Mapping[str, Kernel], Mapping[str, Any]]:
    """Registry and config of a commit. Raises UserError if they have forms that this version does not read."""
    try:
        _declare_needs(tree / "kernels" / "registry.yaml")
        kernels = registry.load(tree / "kernels", checked=True)
        study = read_yaml(tree / "config" / "config.yaml")
        files_of(study, "config/config.yaml")
    except (UserError, LookupError, TypeError, AttributeError) as error:
        said = str(error).replace(f"{tree}/", "")
        raise UserError(
            f"this version does not read kernels and config of the commit {commit} ({said}); check the run by its own "
            f"version: `git switch --detach {commit}`"
        ) from None
    return kernels, study


def _declare_needs(path: Path) -> None:
    """Rewrite a registry of a commit before `needs`, which named the architecture of some kernels, always 90a, and the
    least capability of others."""
    entries = read_yaml(path)
    for entry in entries.values():
        entry.pop("capability", None)
        if entry.pop("architecture", None):
            entry["needs"] = ["wgmma"]
    write_json(entries, path)  # which is YAML


# ---- Files -----------------------------------------------------------------------------------------------------------


def files_of(config: Mapping[str, Any], place: Path | str) -> dict[str, str]:
    """The files of a whole run by their path in its folder, with their kind in columns.FILES, which JSON lacks.

    Raises UserError, which begins with `place`, if `config` is none of tasks with known methods.
    """
    try:
        methods = {task: its.get("method", "sweep") for task, its in config["tasks"].items()}
    except (LookupError, AttributeError, TypeError):
        raise UserError(f"{place}: this is not a config of tasks; restore that of the run") from None
    for task, name in methods.items():
        if name not in list(METHODS):  # it may be a list itself
            raise UserError(f"{place}: tasks.{task}.method: {name!r} is none of {', '.join(METHODS)}; correct it")
    facts = {f"facts/{task}.csv": name for task, name in methods.items() if not METHODS[name].on_request}
    whole = {f"{name}.csv": name for name in WHOLE}
    return {"device.json": "", "config.json": "", "measurements.csv": "measurements", "accuracy.csv": "accuracy"} | (
        whole | facts
    )


def _files(folder: Path, study: Mapping[str, Any], kernels: Mapping[str, Kernel], complete: bool) -> Iterator[str]:
    """Files that are missing, damaged, of another form, none of a run, or not as the crate describes them."""
    wanted, parameters = files_of(study, "config/config.yaml"), registry.parameters(kernels)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    needed = [*wanted, *((README, WORKFLOW, checksums.METADATA) if complete else ())]
    missing = [name for name in needed if name not in (*there, *ON_REQUEST)]
    yield from (f"{name}: there is no such file" for name in missing)
    kinds = dict.fromkeys(BY_RECORDING, "") | {f"tune/{kernel}.csv": "tune" for kernel in kernels} | wanted
    kinds["cards.csv"] = "cards"
    yield from (f"{name}: a recorded run has no such file" for name in sorted(there - set(kinds)))
    for name in sorted(there & set(kinds)):
        try:
            if name.endswith(".json"):
                read_json(folder / name)
            elif name.endswith(".csv"):
                table = columns.read(folder / name, kinds[name], parameters)
                strange = [each for each in table if each not in columns.column_names(kinds[name], parameters)]
                yield from (f"{folder / name}: the column '{each}' is none of this study" for each in strange)
        except UserError as error:
            yield str(error)
    if wrong := wrong_samples(folder):
        yield wrong
    if complete and checksums.METADATA in there:
        with contextlib.suppress(UserError):  # a crate that cannot be read is a finding already
            yield from islice(checksums.differences(folder), MOST_FINDINGS)


def wrong_samples(folder: Path) -> str:
    """What is wrong with the archive of a run's samples; empty if nothing is, or if it lies elsewhere."""
    archive, said = folder / ARCHIVE, folder / DIGEST
    if archive.is_file() and not said.is_file():
        return f"{DIGEST}: there is no such file, which has the hash of {ARCHIVE}"
    if archive.is_file() and said.read_bytes().split()[:1] != [sha256(archive).encode()]:
        return f"{ARCHIVE}: it does not have the hash of {DIGEST}"
    if said.is_file() and not OF_SAMPLES.fullmatch(said.read_bytes()):
        return f"{DIGEST}: this is not a line with the sha256 of {ARCHIVE}"
    return ""


def find_private(folder: Path) -> Iterator[str]:
    """Places that name a machine, a user or a path."""
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".csv", ".json", ".md", ".sha256")):
        place, text = path.relative_to(folder), path.read_text(errors="replace")
        found = dict.fromkeys(each[0] for each in PRIVATE.finditer(text))
        yield from (f"{place}: '{each}'" for each in list(found)[:LISTED])
        rows: list[Mapping[str, Any]] = []
        with contextlib.suppress(UserError, ValueError):  # what is damaged is a finding already
            if path.name == "device.json":
                rows = [read_json(path)]
            elif path.suffix == ".csv":
                cells = pd.read_csv(path, usecols=PLACES.__contains__, dtype=str, keep_default_na=False)
                rows = cells.to_dict("records")
        names = {str(row.get(name) or "") for row in rows for name in PLACES}
        strange = [each for each in sorted(names) if each and not MACHINE.fullmatch(each)]
        yield from (f"{place}: the name of a machine or job, '{each}'" for each in strange[:LISTED])


# ---- The entry -------------------------------------------------------------------------------------------------------


def readme_text(folder: Path, platform: Platform) -> str:
    """The README.md of the recorded run in a folder, from the data that `platform` was read from."""
    rows, facts = platform.measurements, platform.facts
    tasks = {task for table in (rows, *facts.values()) if "task" in table for task in table["task"]}
    digest = folder / DIGEST
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(Path(__file__).with_name("README.md.j2").read_text())
    return template.render(
        folder=folder.name,
        device=platform.device,
        gpu={"power_limit_w": None, **platform.device.gpu},
        commits=[f"`{state}`" for state in platform.commits],
        tuner_commits=[f"`{state}`" for state in platform.tuner_commits],
        tasks=len(tasks),
        points=len(rows),
        statuses=[f"{count} {status}" for status, count in rows["status"].value_counts().items()],
        repeats=platform.config["timing"].get("repeats", 1),
        minutes=facts["sweep"]["wall_s"].sum() / 60,
        cards=by_card([platform]).to_dict("records"),  # a run resumed on another card has several
        counters=len(facts["counters"]),
        variants=len(facts["tune"]),
        sha256=digest.read_text(errors="replace").split()[0] if digest.is_file() else "",
    )


def sha256(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- What was run ----------------------------------------------------------------------------------------------------


def _whole(kept: Kept) -> Iterator[str]:
    """Another platform, other tasks and settings than the study's, points without a row, and rows of no point."""
    asked, wanted, device = kept.platform.config, kept.study, kept.platform.device
    names = {device.platform, *kept.platform.measurements["platform"]} - {kept.folder.name}
    if names:
        yield f"device.json and measurements.csv: the platform is '{_some(sorted(names))}', not '{kept.folder.name}'"
    if lacking := [task for task in wanted["tasks"] if task not in asked["tasks"]]:
        yield f"it lacks the tasks {_some(lacking)} of the study"
    for name in dict.fromkeys([*wanted, *asked]):
        if name not in ("tasks", "platforms", "slurm", "strict") and asked.get(name) != wanted.get(name):
            yield f"config.json: '{name}' is not as in config/config.yaml of the run's commit"
    if changed := [task for task, its in asked["tasks"].items() if wanted["tasks"].get(task) != its]:
        yield f"config.json: the tasks {_some(changed)} are not as in config/config.yaml of the run's commit"
    for task, its in wanted["tasks"].items():
        if asked["tasks"].get(task) == its and its.get("method", "sweep") == "sweep":
            yield from _points(kept, task)


def _points(kept: Kept, task: str) -> Iterator[str]:
    """Points of a sweep without a row, and rows that are no points of it."""
    capability = kept.platform.device.gpu["compute_capability"]
    target = Target("gpu", sweeps.gpu_of_choices(kept.platform.name, kept.kernels, capability))
    try:
        points = sweeps.expand(kept.study, kept.kernels, task, target)
        asked = {frozenset(point.columns().items()): point.label() for point in points}
    except (UserError, LookupError) as error:
        yield f"{task}: this version does not plan its points ({error}); check the run by the version that measured it"
        return
    measured, there = kept.platform.measurements, {}
    for row in measured[measured["task"] == task].to_dict("records"):
        kernel = kept.kernels.get(row["kernel"])
        point = recorded_point(row, kernel) if kernel else None
        there[frozenset(point.columns().items()) if point else row_label(row)] = row_label(row)
    if lacking := [label for point, label in asked.items() if point not in there]:
        yield f"{task}: {len(lacking)} of {len(asked)} points have no row: {_some(lacking)}"
    if strange := [words for point, words in there.items() if point not in asked]:
        yield f"{task}: {len(strange)} rows are no points of it: {_some(strange)}"


def _of_one_commit(kept: Kept) -> Iterator[str]:
    """States of the sources, if there are several, or if they are no commit."""
    states = kept.platform.commits
    if len(states) > 1:
        named = "; ".join(f"{state} ({_some(tasks)})" for state, tasks in states.items())
        yield f"it was measured by {len(states)} states of the sources: {named}"
    for state, tasks in states.items():
        if not COMMIT.fullmatch(state):
            yield f"{_some(tasks) or 'it'}: measured by no commit: {state}"


def _hashes(kept: Kept) -> Iterator[str]:
    """Kernels whose rows have other hashes than their sources at the commit, or than their library in device.json."""
    facts, kernels, device = kept.platform.facts, kept.kernels, kept.platform.device
    of_point = functools.cache(lambda name, point: builds.row_sha256(kernels[name], point, device))
    tables = {name: facts[name] for name in ("sizes", "batches", "tune", "instructions")}
    for name, table in ({"measurements.csv": kept.platform.measurements} | tables).items():
        found: dict[str, list[str]] = {}
        for row in table.to_dict("records"):
            kernel = kernels.get(row["kernel"])
            if not row["build_sha256"] and not (kernel and kernel.source and row.get("status") == Status.OK):
                continue  # nothing was built
            if kernel is None:
                own = "that of a kernel"
            elif not kernel.source:
                own = builds.library_sha256(kernel, device)
            elif name == "instructions":
                own = builds.source_sha256(kernel, row["instance"], device)
            else:
                own = of_point(kernel.name, recorded_point(row, kernel)) or "that of any build"
            if row["build_sha256"] != own:
                pair = f"{row['build_sha256'][:10] or 'none'}, not {own if ' ' in own else own[:10]}"
                found.setdefault(row["kernel"], []).append(pair)
        for kernel_name, pairs in found.items():
            said = f"{len(pairs)} rows of {kernel_name} are of other sources or another library than the run's"
            yield f"{name}: {said}; the first has {pairs[0]}"


# ---- What came out ---------------------------------------------------------------------------------------------------


def _statuses(kept: Kept) -> Iterator[str]:
    """Rows that are not right, and facts that are not."""
    tables = {"measurements.csv": kept.platform.measurements}
    tables |= {name: table for name, table in kept.platform.facts.items() if "status" in table and name != "tune"}
    for name, table in tables.items():
        table = table[~table["status"].isin([*Status, ""] if name in WHOLE else [Status.OK])]
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in table.to_dict("records"):
            if not is_right(row):
                kind = tuple(str(row.get(column, "")) for column in ("task", "kernel", "status"))
                said = f"{row_label(row)}: '{row['status']}' {' '.join(row.get('message', '').split())[:200]}"
                alike.setdefault(kind, []).append(said)
        for found in alike.values():
            yield f"{name}: {found[0]}" + f"; and {len(found) - 1} more of this kernel" * (len(found) > 1)


def _alone(kept: Kept) -> Iterator[str]:
    """Tasks that were measured beside other processes on the GPU, or other Slurm jobs on the node."""
    for task, known in kept.platform.measurements.groupby("task", sort=False)["alone"]:
        if beside := known.eq(False).sum():  # it is empty where nothing is known
            yield f"{task}: {beside} of {len(known)} points were measured beside other processes"


def _impossible(kept: Kept) -> Iterator[str]:
    """Times out of order, rates that are not those of their times, and rates above those that NVIDIA prints."""
    sheet, name = data_sheets(), kept.platform.device.gpu.get("name")
    sheet = sheet[(sheet["device"] == name) & sheet["quantity"].isin(["multiply_add_rate", "tensor_rate"])]
    peaks = ABOVE_PRINTED * sheet.groupby("dtype")["value"].max()
    rows = kept.platform.measurements
    rows = rows[rows["status"] == Status.OK]
    rates = 2e-6 * rows[SHAPE].astype("float64").prod(axis="columns", skipna=False) / rows["time_ms"]
    roofs = rows["unit_dtype"].map(peaks) / rows["unit_products"].fillna(1).clip(lower=1)
    for row, rate, roof in zip(rows.to_dict("records"), rates, roofs):
        label = f"measurements.csv: {row_label(row)}"
        if pd.isna(row["time_ms"]):
            if kept.study["tasks"].get(row["task"], {}).get("method", "sweep") == "sweep":
                yield f"{label}: ok, but without a time"
            continue
        names = ["time_min_ms", "time_q1_ms", "time_ms", "time_q3_ms"], ["run_low_ms", "time_ms", "run_high_ms"]
        orders = ([0.0, *(row[name] for name in each if not pd.isna(row[name]))] for each in names)
        if any(low > high * (1 + ROUNDED) for each in orders for low, high in pairwise(each)):
            yield f"{label}: its times contradict each other"
        if not abs(row["gflops"] - rate) <= ROUNDED * rate:
            yield f"{label}: {row['gflops']:.6g} GFLOP/s are not those of its time, {rate:.6g}"
        if row["gflops"] > roof:
            yield f"{label}: {row['gflops']:,.0f} GFLOP/s are above the roof of {roof:,.0f}"


def row_label(row: Mapping[str, Any]) -> str:
    """A label for a row: task, kernel, type, shape and parameters, as far as it has them."""
    words = [str(row[name]) for name in ("task", "kernel", "quantity", "dtype") if row.get(name)]
    words += ["x".join(str(row[name]) for name in SHAPE)] if "n" in row and not pd.isna(row["n"]) else []
    chosen = [name for name in columns.choice(columns.parameters_of(row)) if name in row and not pd.isna(row[name])]
    return " ".join([*words, *(f"{name}={row[name]}" for name in chosen)])


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join([*names[:LISTED], *([f"{len(names) - LISTED} more"] if len(names) > LISTED else [])])


#: The remedy of a finding, by its check.
REMEDIES = {
    "files": "`make report` finishes a run and makes its files again; a recorded file is restored by git",
    "private": "record the run again by `tilewise record`, which takes names and paths out",
    "whole": "run the study as config/config.yaml has it at a commit: `make report`, without other options",
    "commit": "`git stash`, `make clean`, `make report` measure all by one commit; `git fetch --unshallow` fetches "
    "all; a commit of another version is checked by that version",
    "hashes": "`git stash`, `make clean`, `make report` measure all by one commit",
    "statuses": "mend the cause (for other languages `pip install -r requirements/languages.txt`, or uninstall them), "
    "then `rm results/<platform>/{journal,tasks,tables}/<task>.*`, `make report` measure the task again",
    "alone": "while nothing else runs, `rm results/<platform>/{journal,tasks,tables}/<task>.*`, `make report`",
    "possible": "look for what went wrong in the measurement; do not edit numbers",
}
#: The checks of a run's data by name, as docs/recording.md has them.
CHECKS: dict[str, Callable[[Kept], Iterator[str]]] = {
    "whole": _whole,
    "commit": _of_one_commit,
    "hashes": _hashes,
    "statuses": _statuses,
    "alone": _alone,
    "possible": _impossible,
}
