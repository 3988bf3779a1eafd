"""How far a run is, and how long it still takes: from Snakemake's events and from the journals of the tasks at work."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tilewise.files import MESSAGE
from tilewise.measure.words import told

#: Seconds of a job of a rule, on two cores without a GPU (November 2026); one second if the rule is not here.
SECONDS: dict[str, float] = {
    "probe": 3,
    "occupancy": 3,
    "trace": 60,
    "instructions": 50,
    "show": 20,
    "page": 20,
}
#: Seconds for which a run is taken to do one expected second per second, whatever it is seen to do.
TRUSTED_S = 20
#: Seconds and points of each task on each platform, by (platform, task). Snakemake hands a logger nothing of the
#: study, so study.smk fills this in.
EXPECTED: dict[tuple[str, str], tuple[float, int]] = {}
#: What the whole study says at its start after how long it takes; other runs say neither.
HINT = ""
#: Sources of kernels that are faulty on purpose.
FAULTY: set[str] = set()


@dataclass
class Job:
    """A job at work or done, since the time `at`; `waits` is why Slurm has not started it. Of a task, `done` of
    `points` are measured, and `now` is the last of them."""

    rule: str
    wildcards: Mapping[str, str]
    log: Path | None = None
    submitted: bool = False
    at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    waits: str = ""
    done: int = 0
    now: str = ""

    def __post_init__(self) -> None:
        platform, task = self.wildcards.get("platform", ""), self.wildcards.get("task", "")
        measures = self.rule.startswith("measure")
        known = EXPECTED.get((platform, task)) if measures else None
        self.seconds, self.points = known or (SECONDS.get(self.rule, 1), 0)
        self.name = " ".join(filter(None, ("" if measures else self.rule, task))) or self.rule
        self.full_name = f"{self.rule} {task}".strip() + (f" on {platform}" if platform else "")
        self._journal, self._read = Path(f"results/{platform}/journal/{task}.jsonl"), 0
        if self.points:
            self.look()  # what is there already is not measured again
            self.points, self.done, self.now = max(1, self.points - self.done), 0, ""

    def look(self) -> None:
        """Read the points that the journal has gained."""
        if not self.points or not self._journal.is_file():
            return
        with self._journal.open("rb") as journal:
            journal.seek(self._read)
            text = journal.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        lines = [line for line in whole.splitlines() if line.endswith(b"}}")]
        self.done += len(lines)
        self.points = max(self.points, self.done)
        if lines:
            row = json.loads(lines[-1])["row"]
            self.now = "{kernel} {dtype} {n}x{p}x{m}: ".format_map(row) + told(row)

    def share(self, now: float) -> float:
        """How much of it is done, 0 to 1: its points, and of what tells none the elapsed part of its time."""
        elapsed = 0 if self.waits else now - self.began
        begun = min(elapsed / self.seconds, (self.done + 0.9) / max(1, self.points))
        return min(1, max(begun, self.done / self.points if self.points else 0))


class Run:
    """The jobs of a run: `counts` says how many there are of each rule, as Snakemake's RUN_INFO does."""

    def __init__(self, counts: Mapping[str, int]):
        self.began, self.jobs, self.finished = time.monotonic(), dict[int, Job](), dict[int, Job]()
        self.counts = {rule: count for rule, count in counts.items() if rule != "total"}

    def finish(self, number: int) -> Job | None:
        """A job ended; returns it."""
        job = self.jobs.pop(number, None)
        if job:
            self.finished[number] = job
        return job

    def look(self, now: float | None = None) -> tuple[float, float]:
        """The share of the run that is done, 0 to 1, and the seconds that the rest takes."""
        now = time.monotonic() if now is None else now
        working, finished = list(self.jobs.values()), list(self.finished.values())  # Snakemake's thread changes them
        for job in working:
            job.look()
        seen = [*working, *finished]
        tasks = {(job.wildcards.get("platform"), job.wildcards.get("task")) for job in seen}
        ahead = [seconds for task, (seconds, _) in EXPECTED.items() if task not in tasks]
        each = SECONDS | {"measure": sum(ahead) / len(ahead) if ahead else 1}
        waiting = {rule: count - sum(job.rule == rule for job in seen) for rule, count in self.counts.items()}
        to_come = sum(count * each.get(rule, 1) for rule, count in waiting.items() if rule not in {"all"})
        done = sum(job.seconds for job in finished) + sum(job.seconds * job.share(now) for job in working)
        total = to_come + sum(job.seconds for job in seen)
        pace = (now - self.began + TRUSTED_S) / (done + TRUSTED_S)
        return (done / total if total else 1), pace * (total - done)

    def wait(self, reasons: Mapping[int, str]) -> None:
        """Slurm has not started these jobs; their time begins later."""
        for number, job in list(self.jobs.items()):
            job.waits = reasons.get(number, "")
            job.began = time.monotonic() if job.waits else job.began

    def clock(self) -> str:
        """The time since it began, such as 0:03:07."""
        return str(timedelta(seconds=int(time.monotonic() - self.began)))

    def at_work(self) -> list[str]:
        """What runs now, a line each, tasks with their points first."""
        working = sorted((job for job in list(self.jobs.values()) if not job.waits), key=lambda job: not job.now)
        points = [f" {job.done}/{job.points} {job.now}".rstrip() if job.points else "" for job in working]
        return [job.name + point for job, point in zip(working, points)]


def cause(log: Path | None, since: float = 0) -> str:
    """What a log that was written after a time says of why its job failed: our message, or the end of a traceback."""
    try:
        text = log.read_text(errors="replace") if log and log.stat().st_mtime >= since else ""
    except OSError:
        return ""
    _, found, message = text.rpartition(f"\n{MESSAGE}")
    trace = text.rpartition("Traceback (most recent call last):")[2].strip().splitlines()[-6:]
    return message.strip() if found else "\n".join(trace if "Traceback" in text else [])


def in_words(seconds: float) -> str:
    """A time left in words: `about 6 min left`."""
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"about {hours} h {minutes} min left"
    return f"about {minutes} min left" if minutes else "less than a minute left"
