"""Summarise a finished run or job: incorrect results, missing parts of the page, and causes of failures."""

import contextlib
import csv
import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED, ROOT, UserError
from tilewise.files import MESSAGE
from tilewise.measure.row_summary import cause_words, is_right, point_words
from tilewise.recorded import compare
from tilewise.report import headings, notes, sections
from tilewise.study import columns, registry

#: The rules that fail if something is not right, after the page or the task's table is there.
RULES = ("outcome", "outcome_of_task")
RESULTS = Path("results")
#: The other pages of a report, in words.
BESIDE = ", with story.html and assignment.html beside it"
#: The tracer's log, and the sources of the kernels with deliberate faults, from study.smk.
TRACE_LOG, ON_PURPOSE = Path("logs/trace.log"), set[str]()
#: The config's tasks, and functions that return the targets of the command line, from study.smk.
TASKS, TARGETS = dict[str, Mapping[str, Any]](), list[Callable[[], Collection[str]]]()
#: The most rows of a task's table, and of its points that are not right, on the terminal.
ROWS = 10
#: Characters of a line of a terminal; further columns are left out.
WIDTH = 112


def final_summary(
    end: str, platforms: Iterable[str], targets: Collection[str], made: Mapping[str, bool], folder: Path = RESULTS
) -> Iterator[str]:
    """The last lines of a run that ended as `end` says.

    `targets` are those of the command line; `made` are the files that the run made, each with whether another of its
    jobs read it.
    """
    folders, page = [folder / name for name in platforms], folder / "report.html"
    tasks = [task for task in TASKS if task in targets]
    for task in tasks:
        yield from task_words(task, TASKS[task], folders, made)
    if wants_report(targets, folder):
        yield from filter(None, [wrong_points_line(each / "measurements.csv" for each in folders)])
        yield from filter(None, map(beside_recorded, folders))
        with contextlib.suppress(OSError, ValueError):  # a damaged file is reported when the page is drawn
            yield from (f"the report lacks a piece: {note}" for note in notes.read(folder))
        yield f"{end}; the report is {page.resolve()}{BESIDE}" if page.is_file() else end
        return
    last = [path for path, read in made.items() if not read]
    yield from (f"wrote {path}" for path in last if Path(path).stem not in tasks)
    shown = {str(each / "tables" / f"{task}.csv") for each in folders for task in tasks}
    there = [Path(path) for path in {*shown, *last} if page.is_file() and Path(path).exists()]
    newer = [path for path in there if path.stat().st_mtime > page.stat().st_mtime]
    stale = (
        f"; {page} was made before these results: `make report`, or the command of your last whole run, makes it again"
    )
    yield end + stale if newer and str(page) not in made else end


def wants_report(targets: Collection[str], folder: Path = RESULTS) -> bool:
    """Whether a run is about the report: one without targets, or with `all` or a page among them."""
    return not targets or bool({"all", "default", *_pages(folder)} & set(targets))


def _pages(folder: Path) -> set[str]:
    return {str(folder / f"{name}.html") for name in sections.PAGES}


def task_words(task: str, entry: Mapping[str, Any], folders: Iterable[Path], made: Collection[str]) -> Iterator[str]:
    """Lines about a task: its points by status, its files in the folders of the platforms and whether they are among
    those `made` by the run, the first rows of its table, and its points that are not right."""
    for folder in folders:
        table, figure = folder / "tables" / f"{task}.csv", folder / "figures" / f"{task}.svg"
        if not table.is_file():  # the job failed, which is said on its own
            continue
        rows = _rows(folder / "tasks" / f"{task}.csv")
        points = ", ".join(f"{count} {status}" for status, count in Counter(row["status"] for row in rows).items())
        state = "wrote" if {str(table), str(figure)} & set(made) else "is up to date:"
        yield f"{task}, {entry['title']}{f' ({points})' if points else ''}, {state} {table} and {figure}"
        method = entry.get("method", "sweep")
        layout = "tuning" if method == "tune" else method  # the others have the names of their methods
        yield from (f"  {line}" for line in table_lines(table, layout, ROWS))
        wrong = [f"not right: {point_words(row)}: {cause_words(row)}" for row in rows if not is_right(row)]
        yield from wrong[:ROWS]
        yield from [f"not right: {len(wrong) - ROWS} more points of {table}"] if len(wrong) > ROWS else []


def table_lines(path: Path, layout: str, most: int) -> Iterator[str]:
    """The first rows of a table of `results/<platform>/tables/` below their headings, in columns of equal width.

    The columns are those that the page shows at first, without empty ones. The platform's own rows come first, `most`
    of them.
    """
    table = pd.read_csv(path)
    if notes.COLUMN in table or table.empty:
        yield from table.get(notes.COLUMN, ["the table has no rows"])
        return
    if "platform" in table:
        platform = path.parent.parent.name
        own = table["platform"] == platform
        if not own.any():
            others = ", ".join(table["platform"].head(most).unique())
            yield f"no rows for {platform}; recorded ones instead, of {others}:"
        table = pd.concat([table[own], table[~own]])
    shown = table.head(most).dropna(axis="columns", how="all")
    found: list[list[str]] = []
    room = WIDTH
    for name, (_, title) in headings.make_headings(headings.load()[layout], shown, brief=True).items():
        cells = [title, *(headings.text(value, name) for value in shown[name])]
        width = max(map(len, cells))
        if not found or width + 2 <= room:  # narrower ones may follow
            room -= width + 2
            found.append([cell.ljust(width) if columns.is_words(name) else cell.rjust(width) for cell in cells])
    yield from ("  ".join(row).rstrip() for row in zip(*found))
    if len(table) > most:
        yield f"… {len(table) - most} more rows in {path}"


def task_faults(task: str, folders: Iterable[Path], strict: bool) -> Iterator[str]:
    """Reasons for a failed target of a task: a table or figure that could not be made; if `strict`, points that are not
    right."""
    for folder in folders:
        yield from notes.read_files([folder / "tables" / f"{task}.csv", folder / "figures" / f"{task}.svg"])
        if strict:
            yield from filter(None, [wrong_points_line([folder / "tasks" / f"{task}.csv"])])


def refuse_incomplete(targets: Collection[str], folder: Path = RESULTS) -> None:
    """Raise UserError if a page among the targets lacks a piece; the last words of the run name it."""
    if _pages(folder) & set(targets) and notes.read(folder):
        raise UserError("the report lacks a piece, so the exit status is 1")


def beside_recorded(folder: Path) -> str:
    """A line that compares a platform's run with the recorded one of the same name; empty if that cannot be done."""
    if not (RECORDED / folder.name / "device.json").is_file():
        return ""
    try:
        kernels = registry.load()
        recorded, own = (compare.read(str(place), kernels) for place in (RECORDED / folder.name, folder))
        found = compare.compare(recorded, own, kernels)
        return f"compared with the recorded run: {found.line}; `tilewise compare {folder.name} {folder}` lists them"
    except UserError:  # another config has no point in common; a damaged file is reported when the page is drawn
        return ""


def wrong_points_line(tables: Iterable[Path]) -> str:
    """A line that counts the points in some tables that are not right, per kernel and status; empty if all are."""
    points, found = 0, Counter[tuple[str, str]]()
    for row in (row for path in tables for row in _rows(path)):
        points += 1
        if not is_right(row):
            found[row["kernel"], row["status"]] += 1
    if not found:
        return ""
    each = ", ".join(f"{kernel} {status} ({count})" for (kernel, status), count in found.most_common(6))
    more = ", …" if len(found) > 6 else ""
    verb = "is" if found.total() == 1 else "are"
    return f"{found.total()} of {points} points {verb} not right: {each}{more}; see What failed and why in the report"


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV as text; none if there is no such file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def faults() -> list[str]:
    """The first fault per file that the tracer found."""
    text = TRACE_LOG.read_text(encoding="utf-8", errors="replace") if TRACE_LOG.is_file() else ""
    found = re.findall(r"^((.+?):\d*:? ?error: .*)$", text, re.MULTILINE)
    first = {path: line for line, path in reversed(found) if path not in ON_PURPOSE}
    return [f"{line} (all faults: {TRACE_LOG})" for line in reversed(first.values())]


def failure(name: str, record: Any, since: float, errors: Iterable[str]) -> tuple[str, str]:
    """The failed job and the cause, quoted from Slurm and its log, or else from Snakemake; and the place of its logs.

    `record` is Snakemake's JOB_ERROR, `since` when the run began, `errors` what Snakemake said before. Both are empty
    for the rules that fail at the end: the last words of a run say why.
    """
    if name.partition(" ")[0] in RULES:
        return "", ""
    slurms = (record.rule_msg or "").partition("\n ")[0]  # sbatch's command follows
    words = filter(None, [slurms, *(cause(Path(path), since) for path in record.log[:1])])
    places = [path for path in record.log if Path(path).is_file()]
    places += ["docs/cluster.md explains Slurm's answers"] if slurms else []
    text = "\n".join(words) or "\n".join(errors) or "no output"
    return f"{name} failed:\n{text}", f"\n({'; '.join(places)})"


def unknown_target_message(error: str, tasks: Collection[str]) -> str:
    """The target to type instead of an unknown one, from Snakemake's error and the names of the tasks."""
    found = re.search(r"No rule to produce (\S+)", error)
    said, hint = error, ""
    if found:
        target = Path(found[1])
        said, near = f"there is no target {target}", difflib.get_close_matches(target.stem.lower(), tasks, n=1)
        if read_yaml(ROOT / "config/config.yaml")["tasks"].get(str(target)):
            hint = "; this run's config leaves this task out: type it without --configfile"
        elif near and near[0] != target.stem:
            hint = f"; did you mean {target.with_name(near[0] + target.suffix)}?"
    return f"{said}{hint}\nThe tasks are {', '.join(tasks)}; other targets are files in results/."


def cause(log: Path, since: float = 0) -> str:
    """The cause of a job's failure, from a log written after a time: our message, or the end of a traceback."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace") if log.stat().st_mtime >= since else ""
    except OSError:
        return ""
    _, found, message = text.rpartition(f"\n{MESSAGE}")
    trace = text.rpartition("Traceback (most recent call last):")[2].strip().splitlines()[-6:]
    return message.strip() if found else "\n".join(trace if "Traceback" in text else [])
