"""What a run shows of itself: how far the study is, how long it still takes, and which point of which task is at work.

The jobs that Snakemake will run have expected times, from their last run here or from a recorded run of their task; a
task's log tells its points while it is measured, also on another node. `snakemake_logger_plugin_tilewise` puts it on
the screen.
"""

import base64
import csv
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewise.files import MESSAGE

#: Seconds of a job that never ran here, on two cores without a GPU (November 2026); of `measure`, those of a point, and
#: those before its first.
SECONDS = {
    "probe": 2,
    "target": 1,
    "build": 2,
    "measure": 0.1,
    "occupancy": 1,
    "trace": 60,
    "instructions": 50,
    "collect": 1,
    "show_task": 2,
    "overview": 7,
    "page": 18,
}
START_S = 2
#: The words for a rule whose jobs are many.
WORDS = {"build": "builds", "show_task": "tables and figures"}
#: The first share of a run, in which its expected times count as much as what it was seen to take.
TRUSTED = 0.1
POINT = re.compile(r"^\S+ (\d+)/(\d+) (.+)$")
REMEMBERED = re.compile(r"^\S+ (\d+) points, (\d+) of them from the journal$")


@dataclass
class Job:
    """A job of the run: `seconds` it is expected to take, `log` the file in which it tells what it does.

    `submitted` says that it runs on another node. Of a task that is measured, `points` are to do, `done` are, and `now`
    is the last of them with its result.
    """

    rule: str
    wildcards: Mapping[str, str]
    seconds: float
    log: Path | None = None
    submitted: bool = False
    state: str = "waiting"
    points: int = 0
    done: int = 0
    now: str = ""
    _read: int = 0
    _earlier: int | None = None

    @property
    def name(self) -> str:
        """The job in a word: its task if it is measured, else its rule with what it makes."""
        task, kernel = self.wildcards.get("task"), self.wildcards.get("kernel")
        if self.rule == "measure":
            return str(task)
        return " ".join(filter(None, (self.rule, task or kernel)))

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1."""
        if self.state == "done":
            return 1
        return self.done / self.points if self.points and self.state == "running" else 0

    def begin(self) -> None:
        """It began, or was submitted; what its log holds now is of an earlier run."""
        self.state, self._read, self._earlier = "running", 0, _written(self.log)

    def look(self) -> bool:
        """Read what its log has gained since the last look; whether it tells of a point."""
        if self.log is None or _written(self.log) in (None, self._earlier):
            return False
        with open(self.log, "rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        told = False
        for line in whole.decode(errors="replace").splitlines():
            if head := REMEMBERED.match(line):
                self.points, known = int(head[1]), int(head[2])
                self.seconds *= max(0.01, 1 - known / max(1, self.points))
                self.done = 0 if known < self.points else known
                self.points -= known if known < self.points else 0
            elif point := POINT.match(line):
                left = int(point[2]) - int(point[1])
                self.points = self.points or int(point[2])
                self.done, self.now, told = self.points - left, point[3], True
        return told


@dataclass
class Run:
    """The jobs of a run by their number in Snakemake, since when it runs, and on how many cores."""

    jobs: dict[int, Job]
    cores: int = 1
    began: float = field(default_factory=time.monotonic)
    report: str | None = None

    def start(self, numbers: Iterable[int]) -> None:
        """These jobs began, or were submitted."""
        for job in filter(None, map(self.jobs.get, numbers)):
            job.begin()

    def finish(self, number: int, how: str = "done") -> None:
        """A job ended."""
        if number in self.jobs:
            self.jobs[number].look()
            self.jobs[number].state = how

    def look(self) -> bool:
        """Read the logs of the tasks at work; whether any tells of a point."""
        at_work = [job for job in self.jobs.values() if job.state == "running" and job.rule == "measure"]
        told = [job.look() for job in at_work]
        return any(told)

    @property
    def share(self) -> float:
        """How much of the expected time is done, 0 to 1."""
        total = sum(job.seconds for job in self.jobs.values())
        return sum(job.seconds * job.share for job in self.jobs.values()) / total if total else 1

    def left(self, now: float | None = None) -> float:
        """Seconds that the rest takes if it is as much slower than expected as what was done."""
        elapsed = (time.monotonic() if now is None else now) - self.began
        total = sum(job.seconds for job in self.jobs.values())
        trusted = TRUSTED * total
        pace = (elapsed + trusted / self.cores) / (self.share * total + trusted) if total else 0
        return pace * total * (1 - self.share)

    def at_work(self) -> list[str]:
        """What runs now, a line each: tasks with their points first, then the rest by rule."""
        running = [job for job in self.jobs.values() if job.state == "running"]
        tasks = [job for job in running if job.rule == "measure"]
        lines = []
        for job in sorted(tasks, key=lambda job: not job.now):
            platform = f"{job.wildcards.get('platform')} " if self._platforms() > 1 else ""
            count = f" {job.done}/{job.points}" if job.points else ""
            lines.append(f"{platform}{job.name}{count}{f' {job.now}' if job.now else ''}")
        for rule in dict.fromkeys(job.rule for job in running if job.rule != "measure"):
            mine = [job for job in self.jobs.values() if job.rule == rule]
            done = sum(job.state == "done" for job in mine)
            names = ", ".join(job.name.removeprefix(f"{rule} ") for job in running if job.rule == rule)
            lines.append(f"{WORDS.get(rule, rule)} {done}/{len(mine)} {names}" if len(mine) > 1 else rule)
        return lines

    def _platforms(self) -> int:
        return len({job.wildcards.get("platform") for job in self.jobs.values()} - {None})


#: The run of this process, once Snakemake has started it.
_run: list[Run] = []


def current() -> Run | None:
    """The run of this process, if it has begun."""
    return _run[-1] if _run else None


def begin(workflow: Any, study: Any) -> None:
    """Note what Snakemake is about to run, as its `onstart`."""
    jobs = {}
    for job in workflow.dag.needrun_jobs():
        rule, wildcards = job.rule.name, dict(job.wildcards_dict)
        if rule in study.tasks or rule == "all":
            continue  # it has nothing to do
        points, recorded = 1, None
        if rule == "measure":
            backend = study.backend_of(job.wildcards)
            points = len(study.points(wildcards["task"], backend))
            recorded = study.seconds_of(job.wildcards) if backend == "gpu" else None  # the recorded runs are GPUs'
        seconds = expected(rule, wildcards, [str(path) for path in job.output], points, recorded)
        log = Path(str(job.log[0])) if job.log else None
        remote = not workflow.local_exec and not workflow.is_local(job.rule)
        jobs[workflow.dag.jobid(job)] = Job(rule, wildcards, seconds, log, remote)
    if jobs:
        page = any(job.rule == "page" for job in jobs.values())
        _run.append(Run(jobs, workflow.cores or 1, report="results/report.html" if page else None))


def expected(
    rule: str,
    wildcards: Mapping[str, str],
    outputs: Iterable[str],
    points: int = 1,
    recorded: float | None = None,
    root: Path | str = ".",
) -> float:
    """Seconds that a job may take: as it took here before, per point if it measures, else as in a recorded run."""
    if rule == "measure":
        here = _pace(Path(root, "results", wildcards["platform"], "facts", f"{wildcards['task']}.csv"))
        return START_S + (points * here if here else recorded or points * SECONDS[rule])
    return next(filter(None, (_took(path, root) for path in outputs)), SECONDS.get(rule, 1.0))


def _pace(facts: Path) -> float | None:
    """Seconds per point that a table of facts tells."""
    try:
        row = next(csv.DictReader(facts.read_text().splitlines()))
        measured = int(row["points"]) - int(row["remembered"])
        return float(row["wall_s"]) / measured if measured > 0 else None
    except (OSError, StopIteration, LookupError, ValueError, TypeError):
        return None


def _written(log: Path | None) -> int | None:
    """When a file was last written; None if there is none."""
    try:
        return log.stat().st_mtime_ns if log else None
    except OSError:
        return None


def _took(output: str, root: Path | str) -> float | None:
    """Seconds that Snakemake noted for the job that made a file."""
    name = base64.urlsafe_b64encode(output.encode()).decode()
    try:
        note = json.loads(Path(root, ".snakemake/metadata", name).read_text())
        return max(0.1, note["endtime"] - note["starttime"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def cause(log: Path | None) -> str:
    """What a log tells of why its job failed: our message, or the end of a traceback; empty if it tells nothing."""
    try:
        text = Path(str(log)).read_text(errors="replace")
    except OSError:
        return ""
    _, found, message = f"\n{text}".rpartition(f"\n{MESSAGE}")
    if found:
        return message.strip()
    _, found, trace = text.rpartition("Traceback (most recent call last):")
    return "\n".join(trace.strip().splitlines()[-6:]) if found else ""


def in_words(seconds: float) -> str:
    """A time left in words: `about 6 min left`."""
    minutes = seconds / 60
    if minutes < 1:
        return "less than a minute left"
    if minutes < 90:
        return f"about {minutes:.0f} min left"
    return f"about {minutes // 60:.0f} h {minutes % 60:.0f} min left"


def clock(seconds: float) -> str:
    """A time that passed, such as 3:07 or 1:02:07."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
