"""How far a run is, and how long it still takes: from Snakemake's events and from the journals of the jobs at work."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewise.measure.words import told

#: Seconds of a job of a rule, on two cores without a GPU (November 2026); one second if the rule is not here.
SECONDS: dict[str, float] = {"probe": 3, "occupancy": 3, "instructions": 50, "show": 20, "page": 20}
#: The share of a run that must be done before its pace says anything about the rest.
KNOWN = 0.05
#: Seconds and points of each task by (platform, task), and of the trace by ("", "trace"); study.smk fills it, because a
#: logger does not see the study.
EXPECTED: dict[tuple[str, str], tuple[float, int]] = {}
#: What the whole study says at its start after how long it takes; other runs say neither.
HINT = ""
#: Sources of kernels that are faulty on purpose.
FAULTY: set[str] = set()


@dataclass
class Job:
    """A job since the time `at`; `waits` is why Slurm has not started it, `now` the last of its `done` points."""

    rule: str
    wildcards: Mapping[str, str]
    log: Path | None = None
    submitted: bool = False
    at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    waits: str = ""
    done: int = 0
    now: str = ""
    grown: float = 0

    def __post_init__(self) -> None:
        self.platform, task = self.wildcards.get("platform", ""), self.wildcards.get("task", "")
        self.task = task or self.rule
        self.seconds, self.points = EXPECTED.get((self.platform, self.task), (SECONDS.get(self.rule, 1), 0))
        self.name = f"{self.rule} {task}".strip() + (f" on {self.platform}" if self.platform else "")
        self._journal, self._read = Path("results", self.platform, "journal", f"{self.task}.jsonl"), 0
        if self.points:
            self.look()  # what is there is not measured again, unless all is there: then something has changed since
            self.points, self.done, self.now, self.grown = self.points - self.done % self.points, 0, "", 0

    def look(self) -> None:
        """Read the points that the journal has gained."""
        if not self.points or not self._journal.is_file():
            return
        with self._journal.open("rb") as journal:
            journal.seek(self._read)
            text = journal.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        if lines := [line for line in whole.splitlines() if line.endswith(b"}}")]:
            row = json.loads(lines[-1])["row"]
            self.done, self.grown = self.done + len(lines), time.monotonic()
            self.points = max(self.points, self.done)
            self.now = " {kernel} {dtype} {n}x{p}x{m}: ".format_map(row) + told(row)

    def share(self, now: float) -> float:
        """How much of it is done, 0 to 1: its points; between two points, and without any, its elapsed time."""
        begun = 0 if self.waits else (now - self.began) / self.seconds
        return min(1, max(self.done / max(1, self.points), min(begun, (self.done + 0.9) / max(1, self.points))))

    def __str__(self) -> str:
        return self.task + (f" {self.done}/{self.points}{self.now}" if self.points else "")


class Run:
    """The jobs of a run, which together take `seconds`, one after the other.

    `counts` is the number of jobs per rule, as in Snakemake's RUN_INFO.
    """

    seconds = 0.0

    def __init__(self, counts: Mapping[str, int]):
        self.began, self.jobs, self.finished = time.monotonic(), dict[int, Job](), list[Job]()
        self.counts = {rule: count for rule, count in counts.items() if rule not in ("total", "all")}

    def look(self, now: float) -> tuple[float, float | None]:
        """The share of the run that is done, 0 to 1, and the seconds that the rest takes at the pace seen so far.

        The pace counts what runs in parallel. The seconds are None until enough is done to know it.
        """
        working, finished = list(self.jobs.values()), list(self.finished)  # Snakemake's thread changes them
        for job in working:
            job.look()
        seen = [*working, *finished]
        known = {(job.platform, job.task) for job in seen}
        ahead = [seconds for key, (seconds, _) in EXPECTED.items() if key not in known and key[0]]
        each = SECONDS | {rule: seconds for (platform, rule), (seconds, _) in EXPECTED.items() if not platform}
        each["measure"] = sum(ahead) / len(ahead) if ahead else 1
        to_come = {rule: count - sum(job.rule == rule for job in seen) for rule, count in self.counts.items()}
        done = sum(job.seconds for job in finished) + sum(job.seconds * job.share(now) for job in working)
        self.seconds = sum(job.seconds for job in seen)
        self.seconds += sum(count * each.get(rule, 1) for rule, count in to_come.items())
        share = done / self.seconds if self.seconds else 1
        return share, (now - self.began) * (1 - share) / share if share >= KNOWN else None

    def wait(self, reasons: Mapping[int, str]) -> None:
        """Note why Slurm has not started some jobs, by their number; their time begins later."""
        for number, job in list(self.jobs.items()):
            job.waits = reasons.get(number, "")
            job.began = time.monotonic() if job.waits else job.began

    def at_work(self) -> list[str]:
        """What runs now, a line per job; the one whose journal grew last comes first."""
        working = [job for job in list(self.jobs.values()) if not job.waits]
        return [str(job) for job in sorted(working, key=lambda job: -job.grown)]


def in_words(seconds: float | None) -> str:
    """A time left in words: `about 6 min left`; nothing if it is not known."""
    if seconds is None:
        return ""
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours:
        return f"about {hours} h {minutes} min left"
    return f"about {minutes} min left" if minutes else "less than a minute left"
