"""`tilewise grade`: mark a folder of hand-ins, each in a separate process."""

import argparse
import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope import cpp
from kernelscope.cli import option_type
from kernelscope.junit import Case, junit
from kernelscope.yaml_input import read_yaml
from tilewise import UserError
from tilewise.grade.handin import Refused, read_text
from tilewise.grade.jail import MEMORY, memory_of
from tilewise.grade.tasks import read_task
from tilewise.nvidia import gpus

HERE = Path(__file__).parent
COLUMNS = (
    *("student", "file", "kernel", "verdict", "mistakes", "lines", "hint"),
    *("global_load_sectors", "sectors_per_request", "shared_bank_conflicts"),
    *("time_ms", "reference_ms", "recorded_ms", "seconds"),
)
#: Bytes that a hand-in's process may answer.
ANSWER = 1 << 20
#: Beginnings of texts that a spreadsheet takes for formulas; an apostrophe in front prevents that.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def add(commands: Any) -> None:
    """Add the command to those of `tilewise`."""
    grading = commands.add_parser(
        "grade",
        allow_abbrev=False,
        help="mark a folder of hand-ins without a GPU, each mistake with a hint",
        description="Compile every hand-in of a folder, a .cu file or a folder of a student each; run it on the CPU "
        "emulator at several shapes; check product, faults and the measures of the task. Exit status: 0 if all passed, "
        "1 if not, 2 if the command is wrong. docs/teaching.md shows a course.",
    )
    grading.add_argument("folder", type=Path, help="hand-ins: .cu files, or a folder for each student")
    grading.add_argument("--task", required=True, help="naive, tiled, multi_tile, or a YAML file with a task of yours")
    grading.add_argument(
        "--hints", type=Path, default=HERE / "hints.yaml", metavar="FILE", help="your hints, a YAML file"
    )
    grading.add_argument("--output", type=Path, default=Path("grades"), metavar="FOLDER", help="for the files (grades)")
    grading.add_argument("--junit", type=Path, metavar="FILE", help="JUnit file (junit.xml in --output)")
    seconds = option_type("number of seconds", float, lambda value: 0 < value < 1e6)
    grading.add_argument("--limit", type=seconds, default=60.0, metavar="SECONDS", help="time of each hand-in (60)")
    grading.add_argument(
        "--profile", choices=["slurm"], help="slurm: time on a GPU node, by the settings of config/cluster.yaml"
    )
    grading.set_defaults(run=grade)


def grade(options: argparse.Namespace, given: Mapping[str, int]) -> tuple[list[str], int]:
    """The table of the hand-ins as lines, and 1 if one has not passed, else 0. Writes grades.csv, a JUnit file and a
    page per student. Raises UserError for a folder, a task or hints that are not understood."""
    hints = _hints(options.hints)
    students = hand_ins(options.folder)
    cpp.check()
    name, task, naive = read_task(options.task)
    junit_file = options.junit or options.output / "junit.xml"
    for folder in (options.output / "students", junit_file.parent):
        with _can("written"):  # before the minutes of the marking
            folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = [pool.submit(_findings, *each, name, task, naive, options.limit) for each in students]
        marked = {each.result().student: each.result() for each in made}
    remarks = _time(marked, task, options)
    rows = [_row(each, hints) for each in marked.values()]
    with _can("written"):
        _write(options.output, junit_file, rows, name)
    width = max(map(len, (row["student"] for row in rows)))
    words = [(row["hint"] or _times(row)).partition("\n")[0] for row in rows]
    lines = [f"{row['student']:{width}}  {row['verdict']:8}  {text}" for row, text in zip(rows, words, strict=True)]
    lines += remarks
    failed = sum(row["verdict"] != "passed" for row in rows)
    lines.append(f"{len(rows) - failed} of {len(rows)} passed; {options.output}/grades.csv has all numbers")
    return [line.rstrip() for line in lines], int(failed > 0)


def hand_ins(folder: Path) -> list[tuple[str, list[Path], Path]]:
    """The students of a folder, each with the .cu files and the folder of the hand-in. Raises UserError if there are
    none."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder")
    found = []
    with _can("read"):
        listed = sorted(folder.iterdir())
    for each in listed:
        if each.name.startswith("."):
            continue
        if each.is_dir() and not each.is_symlink():
            found.append((_shown(each.name), sorted(p for p in each.rglob("*") if p.suffix.lower() == ".cu"), each))
        elif each.suffix.lower() == ".cu" or (each.is_symlink() and not each.is_file()):
            found.append((_shown(each.stem), [each], folder))
    if not found:
        raise UserError(f"{folder}: there is no hand-in; put .cu files, or a folder for each student, into it")
    if twice := [student for student, number in Counter(student for student, *_ in found).items() if number > 1]:
        raise UserError(
            f"{folder}: two hand-ins of {twice[0]}; rename one, or put both files into a folder of that name"
        )
    return found


def _hints(path: Path) -> dict[str, str]:
    """The hints by name; the package's own where a file has none. Raises UserError for a file of another form."""
    own: dict[str, str] = read_yaml(HERE / "hints.yaml")
    if not path.is_file():
        raise UserError(f"--hints {path}: there is no such file")
    read = read_yaml(path)
    if not isinstance(read, dict) or not all(isinstance(text, str) for text in read.values()):
        raise UserError(f"{path}: write a text for each name of a mistake, as {HERE / 'hints.yaml'} has them")
    if unknown := set(map(str, read)) - set(own):
        raise UserError(f"{path}: '{min(unknown)}' is no mistake; {HERE / 'hints.yaml'} lists them")
    return own | read


class Marked(NamedTuple):
    """A hand-in: the file that was chosen, or None, its folder, what was found, and the seconds that it took."""

    student: str
    path: Path | None
    root: Path
    findings: dict[str, Any]
    seconds: float


def _findings(
    student: str, files: Sequence[Path], root: Path, name: str, task: Mapping[str, Any], naive: Mapping[str, int],
    limit: float,
) -> Marked:  # fmt: skip
    """What is found in a hand-in by a separate process."""
    started = time.monotonic()
    texts, refusals = {}, ["the folder has no .cu file"]
    for each in files:
        try:
            texts[each] = read_text(each, root)
        except Refused as error:
            refusals.append(str(error))
    if not texts:
        return Marked(student, None, root, _refused(refusals[-1]), 0.0)
    path = _choose(texts, name)
    given = {"file": str(path.resolve()), "root": str(root.resolve()), "name": name, "task": task, "naive": naive}
    findings = run_apart(given, limit)
    return Marked(student, path, root, findings, time.monotonic() - started)


def _time(marked: Mapping[str, Marked], task: Mapping[str, Any], options: argparse.Namespace) -> list[str]:
    """Add the times on a GPU, if there is one here or on the cluster, to the findings; returns remarks. Raises
    UserError if a job of Slurm fails."""
    in_slurm = options.profile == "slurm"
    passed = [each for each in marked.values() if not each.findings["mistakes"]]
    sources = {each.student: (each.path, each.root) for each in passed if each.path}
    found = {each.student: each.findings for each in passed}
    try:
        if not (in_slurm or gpus.visible()):
            return []
        from tilewise.grade import timing  # takes a second

        return timing.add_times(found, sources, task, options.output / "timing", in_slurm, options.limit)
    except UserError as error:
        if in_slurm:
            raise
        return [f"nothing is timed: {error}"]


def _times(row: Mapping[str, Any]) -> str:
    """The times of a row in words; empty if it was not timed."""
    words = {"time_ms": "{:.4g} ms", "reference_ms": "reference {:.4g} ms", "recorded_ms": "recorded {:.4g} ms"}
    return ", ".join(text.format(row[name]) for name, text in words.items() if row[name] not in ("", None))


def _row(marked: Marked, hints: Mapping[str, str]) -> dict[str, Any]:
    """The row of grades.csv of a hand-in."""
    findings = marked.findings
    mistakes = findings["mistakes"]
    texts = []
    for each in mistakes:
        sectors = findings.get("sectors_per_request")
        texts.append(
            hints.get(each["name"], "{words}")
            .replace("{line}", str(each["line"] or "?"))
            .replace("{sectors}", f"{sectors:.3g}" if isinstance(sectors, int | float) else "many")
            .replace("{words}", _shown(" ".join(str(each["words"]).split()))[:1000])
            .strip()
        )
    return {name: findings.get(name, "") for name in COLUMNS} | {
        "student": marked.student,
        "file": _shown(str(marked.path.relative_to(marked.root))) if marked.path else "",
        "verdict": _verdict(mistakes),
        "mistakes": " ".join(each["name"] for each in mistakes),
        "lines": " ".join(str(each["line"] or "") for each in mistakes).strip(),
        "hint": "\n".join(texts),
        "seconds": round(marked.seconds, 1),
        "recorded": findings.get("recorded", {}),
    }


def _shown(name: str) -> str:
    """A name of a file without control characters, and without bytes that are not UTF-8."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def _verdict(mistakes: Sequence[Mapping[str, Any]]) -> str:
    if any(each["name"] == "not_marked" for each in mistakes):
        return "unmarked"
    return "failed" if mistakes else "passed"


def _choose(texts: Mapping[Path, str], task: str) -> Path:
    """The file of a student that is marked: the one named after the task, or else the first with a kernel."""
    with_kernel = [path for path, text in texts.items() if "__global__" in text]
    named = [path for path in with_kernel if task in path.stem.lower()]
    return next(iter([*named, *with_kernel, *texts]))


def _refused(words: str, name: str = "refused") -> dict[str, Any]:
    return {"mistakes": [{"name": name, "line": None, "words": words}]}


def run_apart(given: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """The findings of a hand-in from a separate process, which has `limit` seconds."""
    with tempfile.TemporaryDirectory(prefix="tilewise-grade-") as folder:
        answer = Path(folder, "answer")
        work = Path(folder, "work")
        work.mkdir()
        environment = {**os.environ, "TMPDIR": str(folder)}
        with answer.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tilewise.grade.marking"],
                cwd=work, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            try:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write(json.dumps(given).encode())
                ends = time.monotonic() + limit
                while process.poll() is None:
                    if time.monotonic() > ends:
                        return _refused(f"It was ended after {limit:g} s (--limit).", "hangs")
                    if memory_of(process.pid) > MEMORY:
                        return _refused(f"It was ended because it used more than {MEMORY >> 30} GiB.", "hangs")
                    time.sleep(0.05)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        try:
            findings = json.loads(answer.read_bytes()[:ANSWER])
            return (
                findings if isinstance(findings["mistakes"], list) else _refused("its process answered nothing of use")
            )
        except (ValueError, KeyError, TypeError):
            why = signal.Signals(-process.returncode).name if process.returncode < 0 else f"status {process.returncode}"
            return _refused(f"Its process ended early ({why}): it may need too much memory or time.", "hangs")


@contextlib.contextmanager
def _can(what: str) -> Iterator[None]:
    """Turn the system's refusal of a file into a UserError; `what` is "read" or "written"."""
    try:
        yield
    except OSError as error:
        said = f"{error.filename}: it cannot be {what}: {error.strerror}"
        raise UserError(f"{said}; correct the path or its permissions") from None


def _write(folder: Path, path: Path, rows: Sequence[Mapping[str, Any]], task: str) -> None:
    with (folder / "grades.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"'{v}" if str(v).startswith(FORMULA) else v for k, v in row.items()})
    cases = []
    for row in rows:
        found = [(row["mistakes"], row["hint"], "")]
        failures, errors = (found if row["verdict"] == each else [] for each in ("failed", "unmarked"))
        cases.append(Case(task, row["student"], failures, errors, seconds=row["seconds"]))
        (folder / "students" / f"{row['student']}.md").write_text(_page(row, task), encoding="utf-8")
    path.write_text(junit(cases), encoding="utf-8")


def _page(row: Mapping[str, Any], task: str) -> str:
    lines = [f"# {row['student']}: {task}", "", f"**{row['verdict']}**, {row['file']}, kernel `{row['kernel']}`", ""]
    lines += [f"- {hint}" for hint in row["hint"].splitlines()]
    if row["sectors_per_request"] not in ("", None):
        lines += ["", "| global load sectors | sectors per request | bank conflicts |", "| --- | --- | --- |"]
        lines.append(
            f"| {row['global_load_sectors']} | {row['sectors_per_request']:.3g} | {row['shared_bank_conflicts']} |"
        )
    if row["time_ms"] not in ("", None):
        recorded = row["recorded"]
        lines += ["", f"| time | reference, same GPU | {' | '.join(f'reference, {each}' for each in recorded)} |"]
        lines.append(f"| --- | --- |{' --- |' * len(recorded)}")
        times = [row["time_ms"], row["reference_ms"], *recorded.values()]
        lines.append(f"| {' | '.join(f'{each:.4g} ms' if each else '' for each in times)} |")
    return "\n".join(lines) + "\n"
