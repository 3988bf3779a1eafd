"""Format the result of a trace as text, JSON, GitHub annotations, SARIF or JUnit's XML."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from kernelscope.compile import missing_checks
from kernelscope.counts import Row
from kernelscope.errors import UserError
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault
from kernelscope.junit import Case, junit
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
        {"severity": fault.severity, "title": fault.kind.words}
        | {name: value for name, value in dataclasses.asdict(fault).items() if name != "by_effect"}
        for fault in report.faults
    ]
    told = {"point": report.point, "faults": faults, "traffic": report.traffic}
    return [json.dumps(told | {"orders": list(SCHEDULES), "lacking": missing_checks()}, indent=2)]


def sarif(report: Report) -> list[str]:
    """One log of SARIF 2.1.0: a result per fault, with the other side of a race as a related location."""
    results = []
    for fault in report.faults:
        level = {"error": "error", "remark": "note", "allowed": "none"}[fault.severity]
        result = {
            "ruleId": str(fault.kind),
            "level": level,
            "message": {"text": fault.text},
            "locations": [_location(fault.file, fault.line)],
            "occurrenceCount": fault.count,
        }
        if fault.other:
            side = _location(fault.other.file, fault.other.line)
            words = f"the other side {'writes' if fault.other.writes else 'reads'} here"
            result["relatedLocations"] = [side | {"message": {"text": words}}]
        if fault.allowed:
            result["suppressions"] = [{"kind": "inSource", "justification": fault.allowed}]
        results.append(result)
    return _sarif_log(results)


def _location(file: str, line: int | None) -> dict[str, Any]:
    region = {"region": {"startLine": line}} if line else {}
    return {"physicalLocation": {"artifactLocation": {"uri": quote(file)}} | region}


def _sarif_log(results: Sequence[Mapping[str, Any]]) -> list[str]:
    words = {str(kind): kind.words for kind in FaultKind} | {"refused": "kernel that cannot run"}
    rules = [{"id": rule, "shortDescription": {"text": words[rule]}} for rule in sorted({r["ruleId"] for r in results})]
    runs = [{"tool": {"driver": {"name": "kernelscope", "rules": rules}}, "results": results}]
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return [json.dumps({"$schema": schema, "version": "2.1.0", "runs": runs}, indent=2)]


def as_junit(report: Report) -> list[str]:
    """A test of JUnit: a failure per fault, what is no fault in the output of the test."""
    failures = [(str(fault.kind), fault.text, str(fault)) for fault in report.faults if not fault.is_remark]
    said = "\n".join([*(str(fault) for fault in report.faults if fault.is_remark), *_traffic(report)])
    return junit([Case("kernelscope", report.title, failures, output=said)]).splitlines()


def refusal(form: str, message: str) -> list[str]:
    """An entry, in one of the FORMATS for programs, for a kernel that cannot run; none as text."""
    place = re.match(r"(?P<file>[^\s:]+):(?:(?P<line>\d+):)? ", message)
    file, line = (place["file"], int(place["line"] or 0) or None) if place else ("", None)
    if form == "sarif":
        result = {"ruleId": "refused", "level": "error", "message": {"text": message}}
        return _sarif_log([result | ({"locations": [_location(file, line)]} if place else {})])
    if form == "junit":
        return junit([Case("kernelscope", file or "kernelscope", errors=[("refused", message, "")])]).splitlines()
    if form == "json":
        return [json.dumps({"refused": {"file": file, "line": line, "text": message}, "faults": []}, indent=2)]
    if form == "github":
        at = f" file={_escaped(file, ':,')}" + (f",line={line}" if line else "") if place else ""
        return [f"::error{at}::{_escaped(message)}"]
    return []


#: The values of --format.
FORMATS: dict[str, Callable[[Report], list[str]]] = {
    "text": text,
    "json": as_json,
    "github": github,
    "sarif": sarif,
    "junit": as_junit,
}

_ALLOWED = re.compile(r"//\s*kernelscope:\s*allow\s+([\w, ]+)")
#: What may be allowed.
KINDS = (*(str(kind) for kind in FaultKind), "second_launch")


def allow(report: Report, rules: Sequence[str], by: str) -> Report:
    """The report with the faults marked that are allowed: by `rules`, each a kind of KINDS, or of one line `KIND:LINE`,
    which come from `by`; or by a comment `// kernelscope: allow KIND` in their line or the one before. Raises UserError
    for a kind that is none."""
    for rule in rules:
        kind, colon, line = rule.partition(":")
        if kind not in KINDS or (colon and not line.isdigit()):
            raise UserError(
                f"{by} {rule}: write a kind, such as race, or race:12 for line 12; kinds are {', '.join(KINDS)}"
            )
    return dataclasses.replace(report, faults=[_allowed(fault, rules, by) for fault in report.faults])


def _allowed(fault: Fault, rules: Sequence[str], by: str) -> Fault:
    names = {str(fault.kind), *(["second_launch"] if fault.again else [])}
    for rule in rules:
        kind, _, line = rule.partition(":")
        if kind in names and line in ("", str(fault.line)):
            return dataclasses.replace(fault, allowed=f"{by} {rule}")
    if not fault.line or not Path(fault.file).is_file():
        return fault
    lines = Path(fault.file).read_text(encoding="utf-8", errors="replace").splitlines()
    for number in (fault.line, fault.line - 1):
        comment = _ALLOWED.search(lines[number - 1]) if 0 < number <= len(lines) else None
        if comment and names & set(re.split(r"[\s,]+", comment[1])):
            return dataclasses.replace(fault, allowed=f"the comment in line {number}")
    return fault


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
    words = fault.text + (f" ({fault.allowed})" if fault.allowed else "")
    return f"::{'notice' if fault.is_remark else 'error'} {place},title={title}::{_escaped(words)}"


def _escaped(words: str, more: str = "") -> str:
    """Words in a workflow command; in its properties, `more` characters are special."""
    return "".join(f"%{ord(sign):02X}" if sign in f"%\r\n{more}" else sign for sign in words)
