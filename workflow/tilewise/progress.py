"""Estimate the progress of a run from the journals of its jobs and typical durations."""

import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tilewise.measure.row_summary import read_new_rows
from tilewise.outcome import RULES

#: Seconds and points by rule, platform and task, of jobs of more than a second; study.smk fills it.
EXPECTED: dict[tuple[str, str, str], tuple[float, int]] = {}
#: The share of a run that must be done before its pace says anything about the rest.
KNOWN = 0.05


class Job:
    """A job: the number of points that its journal has gained (`done`), the time of the last, and its summary (`now`).

    `points` is how many it will gain, 0 if that is not known. `waits`: Slurm has not started it. `inputs` and `outputs`
    are its files, as Snakemake lists them.
    """

    done, grown, now, waits = 0, 0.0, "", False

    def __init__(
        self, rule: str, wildcards: Mapping[str, str], inputs: Iterable[str] = (), outputs: Iterable[str] = ()
    ):
        self.inputs, self.outputs = ([name.partition(" (")[0] for name in files] for files in (inputs, outputs))
        self.rule, platform, task = rule, wildcards.get("platform", ""), wildcards.get("task", "")
        self.task, on = task or rule.removeprefix("measure_"), platform and f"on {platform}"
        self.key, self.name, self.began = (rule, platform, task), " ".join(filter(None, [rule, task, on])), time.time()
        self.seconds, points = EXPECTED.get(self.key, (1, 0))
        self.journal, self.read = Path("results", platform, "journal", f"{self.task}.jsonl"), 0
        self.look()  # what is there is not measured again, unless all is there: then something has changed since
        self.points = points - self.done % points if points else 0
        self.done, self.grown, self.now = 0, 0.0, ""

    def look(self) -> None:
        """Read what the journal has gained."""
        count, last, self.read = read_new_rows(self.journal, self.read)
        if count:
            self.done, self.now, self.grown = self.done + count, f" {last}", time.time()

    def share(self, now: float) -> float:
        """The fraction done: its points; between two of them, and without any, its elapsed time."""
        points, done = (self.points, self.done) if self.points else (1, 0)
        return min(1, max(done, min(points * (now - self.began) / self.seconds, done + 0.9)) / points)

    def __str__(self) -> str:
        most = f"/{self.points}" if self.points >= self.done else ""
        return f"{self.task} {self.done}{most}{self.now}" if self.points or self.done else self.task


class Run:
    """The jobs of a run, by Snakemake's number while they work; `counts` is how many each rule has."""

    def __init__(self, counts: Mapping[str, int]):
        self.began, self.counts, self.jobs, self.finished = time.time(), counts, dict[int, Job](), list[Job]()
        self.looked, self.idle = self.began, 0.0  # the seconds in which all jobs waited in Slurm

    def seconds(self) -> float:
        """What all jobs take, one after the other; those to come take the mean of what is expected of their rule."""
        seen = [*self.jobs.values(), *self.finished]
        total = sum(job.seconds for job in seen)
        for rule, count in self.counts.items():
            known = [job.key for job in seen if job.rule == rule]
            ahead = [seconds for key, (seconds, _) in EXPECTED.items() if key[0] == rule and key not in known]
            total += (count - len(known)) * statistics.fmean(ahead or [1])
        return total

    def look(self, now: float) -> tuple[float, str]:
        """The share that is done, and how long the rest takes at the pace so far, which counts what runs in parallel;
        empty until it is known."""
        done = sum(job.seconds for job in self.finished)
        jobs = list(self.jobs.values())  # a copy, because Snakemake's thread changes it
        if jobs and all(job.waits for job in jobs):
            self.idle += now - self.looked
        self.looked = now
        for job in jobs:
            job.look()
            job.began = now if job.waits else job.began
            done += job.seconds * job.share(now)
        share = done / (self.seconds() or 1)
        return (
            share,
            f"{duration_text((now - self.began - self.idle) * (1 - share) / share)} left" if share >= KNOWN else "",
        )

    def made(self) -> dict[str, bool]:
        """The files that its finished jobs made, each with whether one of them read it.

        A target without files reads none; the rules that judge a result neither read nor make it.
        """
        jobs = [job for job in self.finished if job.rule not in RULES]
        read = {name for job in jobs if job.outputs for name in job.inputs}
        return {name: name in read for job in jobs for name in job.outputs}

    def at_work(self, most: int) -> list[str]:
        """A line per job that runs, first the one whose journal grew last; those beyond `most` are only counted."""
        jobs = sorted((job for job in list(self.jobs.values()) if not job.waits), key=lambda job: -job.grown)
        return [*map(str, jobs[:most]), *([f"and {len(jobs) - most} more"] if len(jobs) > most else [])]


def duration_text(seconds: float) -> str:
    """Format a duration."""
    return f"about {max(1, round(seconds / 60))} min"
