"""How a run or a job ended: which results are not right, what the page could not show, and why a job failed."""

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tilewise.files import MESSAGE
from tilewise.measure.words import BEYOND_BUDGET
from tilewise.report import notes
from tilewise.study.status import RIGHT

#: The rule that fails if something is not right, after the page is there.
RULE = "outcome"


def words(end: str, platforms: Iterable[str], folder: Path = Path("results")) -> Iterator[str]:
    """The last lines of a run that ended as `end` says."""
    yield from filter(None, [wrong(folder / name / "measurements.csv" for name in platforms)])
    with contextlib.suppress(OSError, ValueError):  # a damaged file is reported when the page is drawn
        yield from (f"the report lacks a piece: {note}" for note in notes.read(folder))
    page = folder / "report.html"
    yield f"{end}; the report is {page.resolve()}" if page.is_file() else end


def wrong(tables: Iterable[Path]) -> str:
    """A line that counts the points in some tables that are not right, per kernel and status; empty if all are."""
    points, found = 0, Counter[tuple[str, str]]()
    for path in filter(Path.is_file, tables):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                points += 1
                if row["status"] not in RIGHT and not row.get("message", "").startswith(BEYOND_BUDGET):
                    found[row["kernel"], row["status"]] += 1
    if not found:
        return ""
    each = ", ".join(f"{kernel} {status} ({count})" for (kernel, status), count in found.most_common(6))
    more = ", …" if len(found) > 6 else ""
    return f"{found.total()} of {points} points are not right: {each}{more}; see What failed and why in the report"


def faults(log: Path | None, faulty: Iterable[str]) -> list[str]:
    """The first fault per file in the tracer's log, without the files that are `faulty` on purpose."""
    text = log.read_text(errors="replace") if log and log.is_file() else ""
    found = re.findall(r"^((.+?):\d*:? ?error: .*)$", text, re.MULTILINE)
    first = {path: line for line, path in reversed(found) if path not in set(faulty)}
    return [f"{line} (all faults: {log})" for line in reversed(first.values())]


def cause(log: Path | None, since: float = 0) -> str:
    """Why a job failed, from a log written after a time: our message, or the end of a traceback."""
    try:
        text = log.read_text(errors="replace") if log and log.stat().st_mtime >= since else ""
    except OSError:
        return ""
    _, found, message = text.rpartition(f"\n{MESSAGE}")
    trace = text.rpartition("Traceback (most recent call last):")[2].strip().splitlines()[-6:]
    return message.strip() if found else "\n".join(trace if "Traceback" in text else [])
