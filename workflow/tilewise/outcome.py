"""How a run or a job ended: which results are not right, what the page could not show, and why a job failed."""

import contextlib
import csv
import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from tilewise import RECORDED, UserError
from tilewise.files import MESSAGE
from tilewise.measure.words import is_right
from tilewise.recorded import compare
from tilewise.report import notes

#: The rule that fails if something is not right, after the page is there.
RULE = "outcome"
#: The other pages of a report, in words.
BESIDE = ", with tables.html and assignment.html beside it"
#: What the tracer says of the kernels, and the sources of those that are faulty on purpose, from study.smk.
TRACE_LOG, ON_PURPOSE = Path("logs/trace.log"), set[str]()


def words(end: str, platforms: Iterable[str], folder: Path = Path("results")) -> Iterator[str]:
    """The last lines of a run that ended as `end` says."""
    platforms = list(platforms)
    yield from filter(None, [wrong(folder / name / "measurements.csv" for name in platforms)])
    yield from filter(None, (beside_recorded(folder / name) for name in platforms))
    with contextlib.suppress(OSError, ValueError):  # a damaged file is reported when the page is drawn
        yield from (f"the report lacks a piece: {note}" for note in notes.read(folder))
    page = folder / "report.html"
    yield f"{end}; the report is {page.resolve()}{BESIDE}" if page.is_file() else end


def beside_recorded(folder: Path) -> str:
    """A line that compares a platform's run with the recorded one of the same name; empty if that cannot be done."""
    if not (RECORDED / folder.name / "device.json").is_file():
        return ""
    try:
        return compare.beside_recorded(folder, RECORDED)
    except UserError:  # another config has no point in common; a damaged file is reported when the page is drawn
        return ""


def wrong(tables: Iterable[Path]) -> str:
    """A line that counts the points in some tables that are not right, per kernel and status; empty if all are."""
    points, found = 0, Counter[tuple[str, str]]()
    for path in filter(Path.is_file, tables):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                points += 1
                if not is_right(row):
                    found[row["kernel"], row["status"]] += 1
    if not found:
        return ""
    each = ", ".join(f"{kernel} {status} ({count})" for (kernel, status), count in found.most_common(6))
    more = ", …" if len(found) > 6 else ""
    return f"{found.total()} of {points} points are not right: {each}{more}; see What failed and why in the report"


def faults() -> list[str]:
    """The first fault per file that the tracer found."""
    text = TRACE_LOG.read_text(encoding="utf-8", errors="replace") if TRACE_LOG.is_file() else ""
    found = re.findall(r"^((.+?):\d*:? ?error: .*)$", text, re.MULTILINE)
    first = {path: line for line, path in reversed(found) if path not in ON_PURPOSE}
    return [f"{line} (all faults: {TRACE_LOG})" for line in reversed(first.values())]


def failure(name: str, record: Any, since: float, errors: Iterable[str]) -> tuple[str, str]:
    """Which job failed and why, in the words of Slurm and of its log, or else of Snakemake; and where its logs are.

    `record` is Snakemake's JOB_ERROR, `since` when the run began, `errors` what Snakemake said before. Both are empty
    for the rule that fails at the end: the last words of a run say why.
    """
    if name == RULE:
        return "", ""
    slurms = (record.rule_msg or "").partition("\n ")[0]  # sbatch's command follows
    words = filter(None, [slurms, *(cause(Path(path), since) for path in record.log[:1])])
    places = [path for path in record.log if Path(path).is_file()]
    places += ["docs/cluster.md explains Slurm's answers"] if slurms else []
    text = "\n".join(words) or "\n".join(errors) or "no output"
    return f"{name} failed:\n{text}", f"\n({'; '.join(places)})"


def no_target(error: str, tasks: Collection[str]) -> str:
    """What to type instead of a target that no rule makes, from Snakemake's error and the names of the tasks."""
    found = re.search(r"No rule to produce (\S+)", error)
    near = found and difflib.get_close_matches(found[1].lower(), tasks, n=1)
    said = f"there is no target {found[1]}" if found else error
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{said}{hint}\nThe tasks are {', '.join(tasks)}; other targets are files in results/."


def cause(log: Path, since: float = 0) -> str:
    """Why a job failed, from a log written after a time: our message, or the end of a traceback."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace") if log.stat().st_mtime >= since else ""
    except OSError:
        return ""
    _, found, message = text.rpartition(f"\n{MESSAGE}")
    trace = text.rpartition("Traceback (most recent call last):")[2].strip().splitlines()[-6:]
    return message.strip() if found else "\n".join(trace if "Traceback" in text else [])
