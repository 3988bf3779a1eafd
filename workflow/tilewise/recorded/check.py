"""Checks of a recorded run, or of one to be recorded: whole, of one commit, plausible, without private data."""

import contextlib
import io
import re
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.files import read_bytes
from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, UserError, checksums
from tilewise.checksums import METADATA, sha256
from tilewise.evidence import Platform, data_sheets, load_platform, refuse_no_run
from tilewise.files import MOST_TABLE_BYTES, read_json, remedy, write_json
from tilewise.measure.methods import METHODS
from tilewise.measure.row_summary import is_right
from tilewise.study import builds, columns, registry
from tilewise.study.columns import SHAPE, WHOLE
from tilewise.study.kernel import Kernel
from tilewise.study.status import Status

#: What recording adds, besides the RO-Crate, and the times on further cards.
README, WORKFLOW, ARCHIVE, DIGEST, CARDS = "README.md", "Snakefile", "samples.tar.xz", "samples.sha256", "cards.csv"
#: Files that a run has only if they were requested as targets.
ON_REQUEST = ("counters.csv",)
#: The most names in a message, and the most messages of a check.
LISTED, MOST_FINDINGS = 3, 20
#: Paths and addresses of mail.
PRIVATE = re.compile(r"(?<![\w.:/*<>)\]-])/(?:[\w.+@-]+/)+[\w.+@-]*|(?<![\w.+-])[\w.+-]+@[\w-]+\.[a-z]{2,}")
#: What names where a row was measured, in tables and in device.json; recording numbers the machines.
PLACES, MACHINE = ("node", "slurm_job"), re.compile(r"machine \d+")
COMMIT = re.compile(r"[0-9a-f]{7,40}")
#: The settings of a run that its numbers do not depend on.
FREE_SETTINGS = ("tasks", "platforms", "slurm", "strict")
#: Times in their order.
TIMES = ["time_min_ms", "time_q1_ms", "time_ms", "time_q3_ms"], ["run_low_ms", "time_ms", "run_high_ms"]
#: NVIDIA prints rates at a clock below the highest: by this a kernel may exceed them.
ABOVE_PRINTED = 1.15
#: Times and rates are written in full, so they agree to more digits than this.
ROUNDED = 1e-6
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


def check(folder: Path, complete: bool = True) -> list[str]:
    """The findings of all checks on a run in a folder such as report/recorded/nvidia-h200, as lines that begin with the
    check's name, at most MOST_FINDINGS of what its rows have; none if all is right.

    Without `complete` it may lack what recording adds. Raises UserError if the folder is no run.
    """
    refuse_no_run(folder)
    folder, findings, name = folder.resolve(), list[str](), "files"
    with contextlib.ExitStack() as stack:
        try:
            findings += (f"private: {each}" for each in find_private(folder))
            commit = "".join(columns.read(folder / "measurements.csv", "measurements")["commit"].mode()[:1])
            name = "commit"  # the study of another one would make right files look wrong
            kernels, study = _study(stack.enter_context(sources(commit)), commit)
            name = "files"
            findings += (f"files: {each}" for each in _files(folder, study, kernels, complete))
            platform = read(folder, kernels)
        except UserError as error:  # what cannot be read cannot be checked
            return [*findings, f"{name}: {error}"]
        if not (platform.has_gpu and platform.device.gpu):
            return [*findings, "whole: it has no times of a GPU"]
        checks = {
            "whole": _whole(platform, study),
            "commit": _of_one_commit(platform),
            "hashes": _hashes(platform, kernels),
            "statuses": _statuses(platform),
            "alone": _alone(platform),
            "possible": _impossible(platform),
        }
        return findings + [f"{name}: {each}" for name, found in checks.items() for each in islice(found, MOST_FINDINGS)]


def read(folder: Path, kernels: Mapping[str, Kernel]) -> Platform:
    """The run in a folder. Raises UserError if a file is missing or damaged, accuracy.csv too, which no page needs."""
    columns.read(folder / "accuracy.csv", "accuracy", registry.parameters(kernels))
    return load_platform(folder, kernels=kernels)


# ---- The study of the run's commit -----------------------------------------------------------------------------------


@contextlib.contextmanager
def sources(commit: str) -> Iterator[Path]:
    """A folder with kernels, config and Snakefile of a commit, from git's history.

    Raises UserError if this clone lacks them.
    """
    if not COMMIT.fullmatch(commit):  # anybody may have written the file that has it
        raise UserError(f"measurements.csv: no rows, or most measured by no commit: '{commit}'; measure in a clone")
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


def _study(tree: Path, commit: str) -> tuple[Mapping[str, Kernel], Mapping[str, Any]]:
    """Registry and config of a commit. Raises UserError if they have forms that this version does not read."""
    try:
        _declare_needs(tree / "kernels" / "registry.yaml")
        kernels = registry.load(tree / "kernels", checked=True)
        study = read_yaml(tree / "config" / "config.yaml")
        files_of(study)
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


def files_of(config: Mapping[str, Any]) -> list[str]:
    """The files of a whole run by their path in its folder. Raises UserError for a config with an unknown method."""
    methods = {task: its.get("method", "sweep") for task, its in config["tasks"].items()}
    for task, name in methods.items():
        if name not in list(METHODS):  # it may be a list itself
            raise UserError(f"config: tasks.{task}.method: {name!r} is none of {', '.join(METHODS)}; correct it")
    facts = [f"facts/{task}.csv" for task, name in methods.items() if not METHODS[name].on_request]
    return ["device.json", "config.json", *(f"{name}.csv" for name in ("measurements", "accuracy", *WHOLE)), *facts]


def _files(folder: Path, study: Mapping[str, Any], kernels: Iterable[str], complete: bool) -> Iterator[str]:
    """Files that are missing, none of a run, or not as the crate describes them."""
    wanted, added = files_of(study), [README, WORKFLOW, METADATA]
    known = {*wanted, *added, ARCHIVE, DIGEST, CARDS, *(f"tune/{kernel}.csv" for kernel in kernels)}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    missing = [name for name in wanted + added * complete if name not in (*there, *ON_REQUEST)]
    yield from (f"{name}: there is no such file" for name in missing)
    yield from (f"{name}: a recorded run has no such file" for name in sorted(there - known))
    yield from filter(None, [wrong_samples(folder)])
    if complete and METADATA in there:
        yield from islice(checksums.differences(folder), MOST_FINDINGS)


def wrong_samples(folder: Path) -> str:
    """What is wrong with the archive of a run's samples; empty if nothing is, or if it lies elsewhere."""
    said = (folder / DIGEST).read_bytes() if (folder / DIGEST).is_file() else b""
    right = not (folder / ARCHIVE).is_file() or said == samples_line(folder)
    return "" if right else f"{DIGEST}: this is not the sha256 of {ARCHIVE}"


def samples_line(folder: Path) -> bytes:
    """The content of DIGEST, as `sha256sum --check` reads it."""
    return f"{sha256(folder / ARCHIVE)}  {ARCHIVE}\n".encode()


# ---- Private data ----------------------------------------------------------------------------------------------------


def find_private(folder: Path) -> Iterator[str]:
    """What names a machine, a user or a path in the files of a run. Raises UserError if a file cannot be read."""
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".csv", ".json", ".md", ".sha256")):
        texts, names = list[str](), set[Any]()
        if path.suffix == ".json":
            data = read_json(path)
            map_texts(data, texts.append)
            names |= {data.get(name) for name in PLACES} if path.name == "device.json" else set()
        else:
            texts.append(read_bytes(path, remedy(path), MOST_TABLE_BYTES).decode(errors="replace"))
        found = dict.fromkeys(each[0] for text in texts for each in PRIVATE.finditer(text))
        yield from (f"{path.relative_to(folder)}: '{each}'" for each in list(found)[:LISTED])
        with contextlib.suppress(ValueError):  # a CSV is damaged, which reading it as a table says
            rows = pd.read_csv(path, usecols=PLACES.__contains__, dtype=str) if path.suffix == ".csv" else {}
            names = names.union(*(rows[name] for name in rows))
        strange = sorted(str(each) for each in names if each and pd.notna(each) and not MACHINE.fullmatch(str(each)))
        yield from [f"{path.relative_to(folder)}: names of machines or jobs: {_some(strange)}"] if strange else []


def map_texts(data: Any, change: Callable[[str], Any]) -> Any:
    """The data of JSON with each string as `change` returns it."""
    if isinstance(data, dict):
        return {key: map_texts(value, change) for key, value in data.items()}
    if isinstance(data, list):
        return [map_texts(value, change) for value in data]
    return change(data) if isinstance(data, str) else data


# ---- What was run ----------------------------------------------------------------------------------------------------


def _whole(platform: Platform, study: Mapping[str, Any]) -> Iterator[str]:
    """Another platform, and other tasks and settings than the study's."""
    asked, tasks = platform.config, study["tasks"]
    if names := {platform.device.platform, *platform.measurements["platform"]} - {platform.name}:
        yield f"device.json and measurements.csv: the platform is '{_some(sorted(names))}', not '{platform.name}'"
    if lacking := [task for task in tasks if task not in asked["tasks"]]:
        yield f"it lacks the tasks {_some(lacking)} of the study"
    for name in dict.fromkeys([*study, *asked]):
        if name not in FREE_SETTINGS and asked.get(name) != study.get(name):
            yield f"config.json: '{name}' is not as in config/config.yaml of the run's commit"
    if changed := [task for task, its in asked["tasks"].items() if tasks.get(task) != its]:
        yield f"config.json: the tasks {_some(changed)} are not as in config/config.yaml of the run's commit"


def _of_one_commit(platform: Platform) -> Iterator[str]:
    """States of the sources, if there are several, or if they are no commit."""
    states = platform.commits
    if len(states) > 1:
        named = "; ".join(f"{state} ({_some(tasks)})" for state, tasks in states.items())
        yield f"it was measured by {len(states)} states of the sources: {named}"
    for state, tasks in states.items():
        if not COMMIT.fullmatch(state):
            yield f"{_some(tasks) or 'it'}: measured by no commit: {state}"


def _hashes(platform: Platform, kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """Kernels whose rows have other hashes than their sources at the commit, or than their library in device.json."""
    tables = {name: platform.facts[name] for name in ("sizes", "batches", "tune", "instructions")}
    for name, table in ({"measurements.csv": platform.measurements} | tables).items():
        wrong: Counter[str] = Counter()
        for row in table.to_dict("records"):
            kernel, found = kernels.get(row["kernel"]), row["build_sha256"]
            must_be_built = kernel and kernel.source and row.get("status") == Status.OK
            if (found or must_be_built) and not (kernel and found == builds.row_sha256(row, kernel, platform.device)):
                wrong[row["kernel"]] += 1
        for kernel_name, count in wrong.items():
            yield f"{name}: {count} rows of {kernel_name} are of other sources or another library than the run's"


# ---- What came out ---------------------------------------------------------------------------------------------------


def _statuses(platform: Platform) -> Iterator[str]:
    """Rows that are not right, and facts that are not: the first of each task and kernel, with their number."""
    tables = {name: table for name, table in platform.facts.items() if "status" in table and name != "tune"}
    for name, table in ({"measurements.csv": platform.measurements} | tables).items():
        passed = table["status"].isin([*Status, ""] if name in WHOLE else [Status.OK])
        rows = [row for row in table[~passed].to_dict("records") if not is_right(row)]
        counts = Counter((row.get("task"), row.get("kernel"), row["status"]) for row in rows)
        for row in rows:
            if count := counts.pop((row.get("task"), row.get("kernel"), row["status"]), 0):
                words = f"'{row['status']}' {' '.join(row.get('message', '').split())[:200]}"
                yield f"{name}: {row_label(row)}: {words}" + f"; one of {count} of this kernel" * (count > 1)


def _alone(platform: Platform) -> Iterator[str]:
    """Tasks that were measured beside other processes on the GPU, or other Slurm jobs on the node."""
    for task, known in platform.measurements.groupby("task", sort=False)["alone"]:
        if beside := known.eq(False).sum():  # it is empty where nothing is known
            yield f"{task}: {beside} of {len(known)} points were measured beside other processes"


def _impossible(platform: Platform) -> Iterator[str]:
    """Times out of order, rates that are not those of their times, and rates above those that NVIDIA prints."""
    sheet, name = data_sheets(), platform.device.gpu.get("name")
    sheet = sheet[(sheet["device"] == name) & sheet["quantity"].isin(["multiply_add_rate", "tensor_rate"])]
    rows = platform.measurements.dropna(subset="time_ms").reset_index(drop=True)
    rates = 2e-6 * rows[SHAPE].astype("float64").prod(axis="columns", skipna=False) / rows["time_ms"]
    peaks = rows["unit_dtype"].map(sheet.groupby("dtype")["value"].max()).astype("float64")
    roofs = ABOVE_PRINTED * peaks / rows["unit_products"].fillna(1).clip(lower=1)
    steps = pd.concat([rows[names].ffill(axis="columns").pct_change(axis="columns") for names in TIMES], axis="columns")
    wrong = {
        "its times contradict each other": (steps < -ROUNDED).any(axis="columns"),
        "its rate is not that of its time": ~((rows["gflops"] - rates).abs() <= ROUNDED * rates),
        "its rate is above the roof": rows["gflops"] > roofs,
    }
    for words, chosen in wrong.items():
        for row, rate, roof in zip(rows[chosen].to_dict("records"), rates[chosen], roofs[chosen]):
            numbers = f"{row['gflops']:,.6g} GFLOP/s; of its time {rate:,.6g}; the roof {roof:,.0f}"
            yield f"measurements.csv: {row_label(row)}: {words} ({numbers.removesuffix('; the roof nan')})"


def row_label(row: Mapping[str, Any]) -> str:
    """A label for a row: task, kernel, type, shape and parameters, as far as it has them."""
    words = [str(row[name]) for name in ("task", "kernel", "quantity", "dtype") if row.get(name)]
    words += ["x".join(str(row[name]) for name in SHAPE)] if "n" in row and not pd.isna(row["n"]) else []
    chosen = [name for name in columns.choice(columns.parameters_of(row)) if name in row and not pd.isna(row[name])]
    return " ".join([*words, *(f"{name}={row[name]}" for name in chosen)])


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join([*names[:LISTED], *([f"{len(names) - LISTED} more"] if len(names) > LISTED else [])])
