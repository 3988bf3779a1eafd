"""Summarise a result row in one line. Imports are light because the progress display loads this at start-up."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.study.status import RIGHT, Status

#: How the message begins if a CPU loop would take longer than the config allows, which is no fault of the loop.
BEYOND_BUDGET = "would take about"


def is_right(row: Mapping[str, str]) -> bool:
    """Whether a point, as a row of measurements.csv read as text, ended as it should."""
    return row["status"] in RIGHT or row.get("message", "").startswith(BEYOND_BUDGET)


def point_words(row: Mapping[str, str]) -> str:
    """The point of a row of measurements.csv: kernel, element type, shape, and the parameters, whose columns are those
    between m and the status."""
    names = list(row)
    parameters = names[names.index("m") + 1 : names.index("status")]
    return " ".join(["{kernel} {dtype} {n}x{p}x{m}".format_map(row), *(f"{x}={row[x]}" for x in parameters if row[x])])


def cause_words(row: Mapping[str, str]) -> str:
    """The cause of a failed row of measurements.csv: its status and its message in one line."""
    return row_summary({"status": row["status"], "message": row["message"]})


def row_summary(row: Mapping[str, Any]) -> str:
    """Summarise a finished row in a line: status, time, rate, noise, and error as a fraction of its bound."""
    words = [row["status"]]
    if row["status"] not in (Status.OK, Status.NOT_TIMED):
        words[0] += f": {' '.join(str(row['message']).split())[:200]}"
    if row.get("time_ms") is not None:
        words += [f"{row['time_ms']:.4g} ms", f"{row['gflops']:,.1f} GFLOP/s"]
    if row.get("noise") is not None:
        words.append(f"noise {100 * row['noise']:.2g} %")
    if row.get("bound_ratio") is not None:
        words.append(f"error {row['bound_ratio']:.2g} of its bound")
    return ", ".join(words)


def read_new_rows(journal: Path, offset: int) -> tuple[int, str, int]:
    """The number of points in a journal after an offset in bytes, a summary of the last, and the new offset."""
    if not journal.is_file():
        return 0, "", offset
    with journal.open("rb") as file:
        file.seek(offset)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    lines = [line for line in whole.splitlines() if line.endswith(b"}}")]
    row = json.loads(lines[-1])["row"] if lines else {}
    last = "{kernel} {dtype} {n}x{p}x{m}: ".format_map(row) + row_summary(row) if lines else ""
    return len(lines), last, offset + len(whole)
