"""Format the result of a trace as text, JSON or GitHub annotations."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelscope.compile import missing_checks
from kernelscope.counts import Row
from kernelscope.faults import Fault
from kernelscope.tracer import SCHEDULES

#: The columns of traffic.csv that the text shows, in words.
TABLE = {
    "global_load_requests": "global loads: requests of a warp",
    "global_load_sectors": "  32-byte sectors",
    "sectors_per_request": "  sectors per request",
    "global_store_requests": "global stores: requests of a warp",
    "global_store_sectors": "  32-byte sectors",
    "shared_load_wavefronts": "shared loads: wavefronts",
    "shared_store_wavefronts": "shared stores: wavefronts",
    "shared_bank_conflicts": "  bank conflicts, loads and stores",
    "flop_per_byte": "FLOP per byte that loads ask for",
    "flop_per_byte_moved": "FLOP per byte moved",
}


@dataclass(frozen=True)
class Report:
    """The result of a trace: faults, the columns of traffic.csv, and the contents of the arrays after the first run.

    `title` says what ran in a line, `point` in an object of JSON. As text it is what the command prints.
    """

    title: str
    point: Mapping[str, Any]
    traffic: Row
    faults: list[Fault]
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is no fault; remarks are none."""
        return all(fault.is_remark for fault in self.faults)

    def __str__(self) -> str:
        return "\n".join(text(self))


def text(report: Report) -> list[str]:
    """Lines for people: the faults, then the traffic, then how many faults there are."""
    return [*map(str, report.faults), *_traffic(report), *missing_checks(), _summary(report)]


def github(report: Report) -> list[str]:
    """Lines for GitHub: the faults as workflow commands, which it shows at their lines, then traffic and a summary."""
    return [*map(_annotation, report.faults), *_traffic(report), *missing_checks(), _summary(report)]


def as_json(report: Report) -> list[str]:
    """One object: what ran, its row of traffic.csv, and the faults, of which remarks are none."""
    faults = [
        {"severity": "remark" if fault.is_remark else "error", "title": fault.kind.words}
        | {name: value for name, value in dataclasses.asdict(fault).items() if name != "by_effect"}
        for fault in report.faults
    ]
    told = {"point": report.point, "faults": faults, "traffic": report.traffic}
    return [json.dumps(told | {"orders": list(SCHEDULES), "lacking": missing_checks()}, indent=2)]


#: The values of --format.
FORMATS: dict[str, Callable[[Report], list[str]]] = {"text": text, "json": as_json, "github": github}


def _traffic(report: Report) -> list[str]:
    lines = [report.title]
    for column, words in TABLE.items():
        if column.startswith("flop") and column not in report.traffic:
            continue  # the number is unknown
        value = report.traffic.get(column)
        number = "-" if value is None else f"{value:,d}" if isinstance(value, int) else f"{value:.2f}"
        lines.append(f"  {words:36}{number:>16}")
    return lines


def _summary(report: Report) -> str:
    number = sum(not fault.is_remark for fault in report.faults)
    return f"{number or 'no'} fault{'' if number == 1 else 's'} in {', '.join(SCHEDULES)} order of threads"


def _annotation(fault: Fault) -> str:
    place = f"file={_escaped(fault.file, ':,')}" + (f",line={fault.line}" if fault.line else "")
    title = _escaped(fault.kind.words, ":,")
    return f"::{'notice' if fault.is_remark else 'error'} {place},title={title}::{_escaped(fault.text)}"


def _escaped(words: str, more: str = "") -> str:
    """Words in a workflow command; in its properties, `more` characters are special."""
    return "".join(f"%{ord(sign):02X}" if sign in f"%\r\n{more}" else sign for sign in words)
