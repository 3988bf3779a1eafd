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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope import cpp
from kernelscope.cli import option_type
from kernelscope.junit import Case, junit
from kernelscope.yaml_input import read_yaml
from tilewise import UserError
from tilewise.grade.handin import sizes
from tilewise.grade.jail import MEMORY, memory_of
from tilewise.grade.large import MOST_ELEMENTS, MOST_TERMS
from tilewise.nvidia import gpus
from tilewise.study import registry
from tilewise.study.expressions import evaluate
from tilewise.study.points import Point
from tilewise.traced.multiplication import trace_point

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
    name, task = _task(options.task)
    hints = _hints(options.hints)
    students = hand_ins(options.folder)
    cpp.check()
    uses_naive = any("naive_sectors" in str(each) for each in task["measures"].values())
    naive = _naive_sectors(sizes(task["measured"])) if uses_naive else {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = [pool.submit(_findings, *each, name, task, naive, options.limit) for each in students]
        marked = {each.result().student: each.result() for each in made}
    remarks = _time(marked, task, options)
    rows = [_row(each, hints) for each in marked.values()]
    _write(options.output, options.junit or options.output / "junit.xml", rows, name)
    width = max(map(len, (row["student"] for row in rows)))
    words = [(row["hint"] or _times(row)).partition("\n")[0] for row in rows]
    lines = [f"{row['student']:{width}}  {row['verdict']:6}  {text}" for row, text in zip(rows, words, strict=True)]
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
    for each in sorted(folder.iterdir()):
        if each.name.startswith("."):
            continue
        if each.is_dir() and not each.is_symlink():
            found.append((each.name, sorted(p for p in each.rglob("*.cu") if not p.is_symlink()), each))
        elif each.suffix == ".cu":
            found.append((each.stem, [each], folder))
    if not found:
        raise UserError(f"{folder}: there is no hand-in; put .cu files, or a folder for each student, into it")
    return found


def _task(named: str) -> tuple[str, dict[str, Any]]:
    tasks = read_yaml(HERE / "tasks.yaml")
    if named in tasks:
        return named, tasks[named]
    path = Path(named)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise UserError(f"--task {named}: there are {', '.join(tasks)}, or a YAML file with a task of yours")
    read = read_yaml(path)
    if not isinstance(read, dict) or len(read) != 1 or not isinstance(next(iter(read.values())), dict):
        raise UserError(f"{path}: write one task as {HERE / 'tasks.yaml'} has them")
    [(name, task)] = read.items()
    inherited = {key: value for key, value in tasks["tiled"].items() if key not in ("reference", "threshold")}
    task = inherited | {"measures": {}} | task
    known = ("shapes", "blocks", "ntb", "measured", "measures", "largest", "timed", "reference", "threshold")
    if unknown := set(task) - set(known):
        raise UserError(f"{path}: {name}.{min(unknown)} is no key of a task; {HERE / 'tasks.yaml'} lists them")
    try:
        for size in (*task["shapes"], task["measured"], task["timed"], task.get("largest", "1x1x1")):
            if len(sizes(size)) != 3 or min(sizes(size)) < 1:
                raise ValueError
        dict(task["measures"])
    except (ValueError, TypeError):
        raise UserError(
            f"{path}: {name}: shapes, measured, largest and timed are n x p x m, such as 33x35x70; measures are "
            "conditions"
        ) from None
    kernels = registry.load()
    reference = kernels.get(task.get("reference", "naive"))
    if not reference or not reference.on_gpu:
        raise UserError(
            f"{path}: {name}.reference: {task['reference']} is no kernel of the study for GPUs; `tilewise list` has "
            "them"
        )
    try:
        evaluate(task.get("threshold", "true"), dict.fromkeys(("time_ms", "reference_ms", "recorded_ms"), 1.0))
    except UserError as error:
        raise UserError(f"{path}: {name}.threshold: {error}") from None
    n, p, m = sizes(task.get("largest", "1x1x1"))
    if max(n * p, p * m, n * m) > MOST_ELEMENTS or p > MOST_TERMS:
        raise UserError(
            f"{path}: {name}.largest: {task['largest']} has matrices of more than {MOST_ELEMENTS} elements, or p "
            f"beyond {MOST_TERMS}; 50000x50000x50000 is large enough to overflow 32 bits"
        )
    return str(name), task


def _hints(path: Path) -> dict[str, str]:
    """The hints by name; the package's own where a file has none. Raises UserError for a file of another form."""
    own: dict[str, str] = read_yaml(HERE / "hints.yaml")
    if not path.is_file():
        raise UserError(f"--hints {path}: there is no such file")
    read = read_yaml(path)
    if not isinstance(read, dict) or not all(isinstance(text, str) for text in read.values()):
        raise UserError(f"{path}: write a text for each name of a mistake, as {HERE / 'hints.yaml'} has them")
    if unknown := set(read) - set(own):
        raise UserError(f"{path}: '{min(unknown)}' is no mistake; {HERE / 'hints.yaml'} lists them")
    return own | read


def _naive_sectors(shape: Sequence[int]) -> dict[str, int]:
    """The sectors that the study's naive kernel loads at a shape, by element type."""
    kernel = registry.load()["naive"]
    n, p, m = shape
    points = {
        dtype: Point("trace", "naive", dtype, n, p, m, (("block_x", 16), ("block_y", 16)))
        for dtype in ("float", "double", "int32")
    }
    return {dtype: trace_point(kernel, point)[0]["global_load_sectors"] for dtype, point in points.items()}


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
    if not files:
        return Marked(student, None, root, _refused("the folder has no .cu file"), 0.0)
    path = _choose(files, name)
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
            .replace("{words}", " ".join(str(each["words"]).split())[:1000])
            .strip()
        )
    return {name: findings.get(name, "") for name in COLUMNS} | {
        "student": marked.student,
        "file": str(marked.path.relative_to(marked.root)) if marked.path else "",
        "verdict": "failed" if mistakes else "passed",
        "mistakes": " ".join(each["name"] for each in mistakes),
        "lines": " ".join(str(each["line"] or "") for each in mistakes).strip(),
        "hint": "\n".join(texts),
        "seconds": round(marked.seconds, 1),
        "recorded": findings.get("recorded", {}),
    }


def _choose(files: Sequence[Path], task: str) -> Path:
    """The file of a student that is marked: the one named after the task, or else the first with a kernel."""
    named = [path for path in files if task in path.stem.lower()]
    with_kernel = [path for path in files if path.stat().st_size < ANSWER and b"__global__" in path.read_bytes()]
    return next(iter([*(p for p in named if p in with_kernel), *with_kernel, *files]))


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
                with process.stdin as pipe:
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


def _write(folder: Path, path: Path, rows: Sequence[Mapping[str, Any]], task: str) -> None:
    try:
        (folder / "students").mkdir(parents=True, exist_ok=True)
        with (folder / "grades.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            for row in rows:
                writer.writerow({k: f"'{v}" if str(v).startswith(FORMULA) else v for k, v in row.items()})
        cases = []
        for row in rows:
            failures = [] if row["verdict"] == "passed" else [(row["mistakes"], row["hint"], "")]
            cases.append(Case(task, row["student"], failures, seconds=row["seconds"]))
            (folder / "students" / f"{row['student']}.md").write_text(_page(row, task), encoding="utf-8")
        path.write_text(junit(cases), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{error.filename}: it cannot be written: {error.strerror}") from None


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
