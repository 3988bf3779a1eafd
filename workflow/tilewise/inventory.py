"""List the parts of a study and the state of its results: `tilewise list` and `tilewise status`."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelscope.junit import Case, junit
from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, UserError
from tilewise.files import read_json
from tilewise.measure.row_summary import cause_words, is_right, point_words, read_new_rows
from tilewise.outcome import BESIDE
from tilewise.report import notes
from tilewise.study import registry

Entry = Mapping[str, Any]


def everything() -> dict[str, list[Entry]]:
    """The tasks of config/config.yaml, the kernels of the registry and the claims, each with its name and its title."""
    tasks = _study()
    claims = read_yaml(ROOT / "report/claims.yaml")
    return {
        "tasks": [{"name": name, "title": task["title"]} for name, task in tasks.items()],
        "kernels": [
            {"name": name, "title": kernel.title, "kind": kernel.kind, "source": kernel.source}
            for name, kernel in registry.load().items()
        ],
        "claims": [{"name": claim["id"], "title": claim["claim"], "source": claim["source"]} for claim in claims],
    }


def _study() -> dict[str, Entry]:
    """The tasks of config/config.yaml without those that it sets to null."""
    tasks = read_yaml(ROOT / "config/config.yaml")["tasks"]
    return {name: task for name, task in tasks.items() if task is not None}


def list_lines(found: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """The entries of `everything`, a line each below a heading per kind."""
    for kind, entries in found.items():
        width = max(len(entry["name"]) for entry in entries)
        yield f"{kind} ({len(entries)}):"
        yield from (f"  {entry['name']:{width}}  {entry['title']}" for entry in entries)


def status(results: Path) -> dict[str, Any]:
    """The state of a run: its page, missing parts of the page, and per platform and task its points by status.

    A task is `finished` if it has its table, otherwise it has the points that its journal holds. Raises UserError if
    there are no results.
    """
    platforms = {path.parent.name: _platform(path.parent) for path in sorted(results.glob("*/device.json"))}
    if not platforms:
        raise UserError(f"{results}: there are no results; `make quick` or `make report` makes them")
    page = results / "report.html"
    try:
        lacks = [str(note) for note in notes.read(results)]
    except (OSError, ValueError):
        lacks = []
    return {"report": str(page) if page.is_file() else None, "lacks": lacks, "platforms": platforms}


def _platform(folder: Path) -> dict[str, Entry]:
    """The tasks of a platform by name: those of its last whole run, or of the study if there was none, and those that
    this run left out."""
    config, study = folder / "config.json", _study()
    tasks = read_json(config)["tasks"] if config.is_file() else study
    found = {name: {**_task(folder, name), "left_out": name not in tasks} for name in {**tasks, **study}}
    tunings = {name for name, entry in {**tasks, **study}.items() if entry.get("method") == "tune"}
    # Tuning is no part of a run; its points show that a tuning ran.
    return {name: task for name, task in found.items() if task["points"] or name not in tunings}


def _task(folder: Path, task: str) -> Entry:
    """Whether a task is finished, how many points it has by status, and the rows of those that are not right."""
    table = folder / "tasks" / f"{task}.csv"
    if not table.is_file():
        return {"finished": False, "points": read_new_rows(folder / "journal" / f"{task}.jsonl", 0)[0], "not_right": []}
    rows = _rows(table)
    return {
        "finished": True,
        "points": len(rows),
        "statuses": dict(Counter(row["status"] for row in rows)),
        "not_right": [f"{point_words(row)}: {cause_words(row)}" for row in rows if not is_right(row)],
    }


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result of `status`, a line per task."""
    for platform, tasks in found["platforms"].items():
        asked = [task for task in tasks.values() if not task["left_out"]]
        yield f"{platform}: {sum(task['finished'] for task in asked)} of {len(asked)} tasks are finished"
        left = [name for name, task in tasks.items() if task["left_out"] and not (task["finished"] or task["points"])]
        begun = {name: task for name, task in tasks.items() if name not in left}
        width = max(map(len, begun), default=0)
        for name, task in begun.items():
            points = [f"{task['points']} point{'s' * (task['points'] != 1)}"] if task["points"] else []
            states = ["finished" if task["finished"] else "not finished", *["not in the report"] * task["left_out"]]
            yield f"  {name:{width}}  {', '.join([*points, *states])}"
            yield from (f"  {'':{width}}    {line}" for line in task["not_right"])
        if left:
            yield f"  left out of this run: {', '.join(left)}"
    yield from (f"the report lacks a piece: {note}" for note in found["lacks"])
    yield f"the report is {found['report']}{BESIDE}" if found["report"] else "there is no report yet"


def write_junit(results: Path, path: Path) -> None:
    """Write the points of all platforms as a JUnit file: a suite per task, a case per point, a failure if it is not
    right. Raises UserError if a file cannot be written."""
    cases = []
    for table in sorted(results.glob("*/tasks/*.csv")):
        suite = f"{table.parent.parent.name}.{table.stem}"
        for number, row in enumerate(_rows(table), 1):
            failures = [] if is_right(row) else [(row["status"], row["message"], "")]
            cases.append(Case(suite, f"{number} {point_words(row)}", failures))
    try:
        path.write_text(junit(cases), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: it cannot be written: {error.strerror}") from None
