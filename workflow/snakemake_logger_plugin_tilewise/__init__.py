"""Snakemake's screen for this study: `logger: tilewise` in profiles/default/config.yaml.

A terminal shows a bar and the jobs at work; a pipe gets a line every ten seconds. Dry runs, and runs with --verbose,
--printshellcmds, --debug-dag or --quiet, get Snakemake's own words.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from tilewise import UserError, configfiles, outcome, progress, stopping

#: Seconds between two lines in a pipe, and between two looks at the journals; the most lines for what is at work.
PAUSE_S, LOOK_S, LINES = 10.0, 0.25, 4


class LogHandler(LogHandlerBase):
    """One per run; Snakemake calls `emit` from a thread of its own."""

    writes_to_stream, writes_to_file, has_filter, has_formatter, needs_rulegraph = True, False, True, True, False

    def __post_init__(self) -> None:
        asked = self.common_settings
        self.stream: Any = sys.stdout if asked.stdout else sys.stderr
        self.plain = bool(asked.dryrun or asked.verbose or asked.printshellcmds or asked.debug_dag or asked.quiet)
        self.has_filter = self.has_formatter = not self.plain  # False: Snakemake adds its own
        self.screen: Screen | None = None
        self.said: list[str] = []  # before a run, or without one
        self.errors: list[str] = []  # that belong to no job, or to the one whose failure comes next
        self.failed: dict[int, str] = {}
        self.begun = self.closed = self.finished = False
        stopping.obey()  # before Snakemake reads the Snakefile, which takes seconds
        try:
            configfiles.check()
        except UserError as error:
            sys.exit(str(error))

    def emit(self, record: Any) -> None:
        """Take note of an event; show at once what a user has to know at once."""
        event, screen = getattr(record, "event", None), self.screen
        if self.plain:
            if (text := self.format(record)) not in ("", "None"):  # Snakemake's formatter says "None" for no message
                print(text, file=self.stream, flush=True)
        elif event == LogEvent.WORKFLOW_STARTED:
            self.begun, self.said = True, []
        elif event == LogEvent.RUN_INFO:
            run = progress.Run(record.stats)
            run.look(run.began)
            self.screen = Screen(run, self.stream)
            if progress.HINT:
                self._say(f"this run takes {progress.in_words(run.seconds).removesuffix(' left')}{progress.HINT}")
        elif event == LogEvent.JOB_INFO and screen:
            log = Path(record.log[0]) if record.log else None
            screen.run.jobs[record.jobid] = progress.Job(record.rule_name, record.wildcards, log, not record.local)
        elif event == LogEvent.JOB_FINISHED and screen:
            self.failed.pop(record.job_id, None)
            if job := screen.run.jobs.pop(record.job_id, None):
                screen.run.finished.append(job)
                for line in outcome.faults(job.log, progress.FAULTY) if job.rule == "trace" else ():
                    self._say(line)
        elif event == LogEvent.JOB_ERROR and screen:
            self._failure(screen.run.jobs.pop(record.jobid, None), record)
        elif hasattr(record, "waiting") and screen:  # Slurm's reasons, from snakemake_executor_plugin_tilewise
            screen.run.wait(record.waiting)
            self._say(record.getMessage())
        elif record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage().strip())
        elif record.levelno >= logging.WARNING:
            self._say(record.getMessage().strip())
        elif event is None and not self.begun:
            self.said.append(record.getMessage())

    def close(self) -> None:
        """End the display and say how the run ended, at the first call."""
        if not self.plain and not self.closed:
            self.closed = True
            if self.screen:
                self.screen.end()
            for text in (*self.said, *self._end()):
                print(text, file=self.stream, flush=True)
        super().close()

    def _say(self, text: str) -> None:
        if text and not stopping.asked():
            (self.screen.say if self.screen else lambda text: print(text, file=self.stream, flush=True))(text)

    def _failure(self, job: progress.Job | None, record: Any) -> None:
        """Say which job failed and why: in the words of its log, of Slurm, or else of Snakemake."""
        if not job or stopping.asked():
            return
        if job.rule == outcome.RULE:  # all is there; the last words name what is not right
            self.finished = True
            return
        slurms = "\n".join(takewhile(lambda line: not line.startswith(" "), (record.rule_msg or "").splitlines()))
        words = filter(None, [slurms if job.submitted else "", outcome.cause(job.log, job.at)])
        text = "\n".join(words) or "\n".join(self.errors) or "no output"
        self.errors.clear()
        if self.failed.get(record.jobid) != text:
            places = [path for path in record.log if Path(path).is_file()]
            places += ["docs/cluster.md explains Slurm's answers"] if job.submitted else []
            self._say(f"{job.name} failed:\n{text}\n({'; '.join(places)})")
        self.failed[record.jobid] = text

    def _end(self) -> Iterator[str]:
        if stopping.asked():
            yield "stopped; the same command continues this run"
        elif self.failed:
            yield f"{len(self.failed)} failed, see above; the same command continues this run"
        elif self.errors and not self.finished:
            yield from self.errors
        elif self.begun:
            took = f"done in {self.screen.clock()}" if self.screen else "nothing to be done"
            yield from outcome.words(took, dict.fromkeys(platform for platform, _ in progress.EXPECTED if platform))


class Screen(Progress):
    """What a run shows while it works: in a terminal a bar and lines below it, in a pipe a line now and then."""

    def __init__(self, run: progress.Run, stream: Any):
        console = Console(file=stream, highlight=False)
        self.run, self.work, self.height = run, [""], console.height
        self.moving = console.is_terminal and not console.is_dumb_terminal
        columns = BarColumn(None), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}")
        super().__init__(*columns, console=console, transient=True, expand=True, disable=not self.moving)
        self.study, self.ended = self.add_task("", total=1, left=""), threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.start()
        self.thread.start()

    def get_renderables(self) -> Iterator[Any]:
        """The bar, and what is at work."""
        yield self.make_tasks_table(self.tasks)
        most = max(1, min(LINES, self.height - 4))
        rest = [f"and {len(self.work) - most} more"] if len(self.work) > most else []
        for line in (*self.work[:most], *rest):
            yield Text(f"  {line}", no_wrap=True, overflow="ellipsis")

    def say(self, text: str) -> None:
        """Print something above the bar."""
        self.console.print(text, markup=False, soft_wrap=True)

    def clock(self) -> str:
        """The time since the run began, such as 0:03:07."""
        return str(timedelta(seconds=int(time.monotonic() - self.run.began)))

    def end(self) -> None:
        """Take the bar away."""
        self.ended.set()
        self.thread.join()
        self.stop()

    def _watch(self) -> None:
        told, seen = time.monotonic(), ""
        while not self.ended.wait(LOOK_S) and not stopping.asked():
            (share, left), self.work = self.run.look(now := time.monotonic()), self.run.at_work()
            self.update(self.study, completed=share, left=progress.in_words(left))
            head = ", ".join(filter(None, [f"{100 * share:.0f} %", progress.in_words(left)]))
            line = f"{head}: {self.work[0]}" if self.work else ""
            if not self.moving and line not in ("", seen) and now - told >= PAUSE_S:
                more = f" (and {len(self.work) - 1} more)" if len(self.work) > 1 else ""
                self.say(f"{self.clock()} {line}{more}")
                told, seen = now, line
        if stopping.asked():
            self.update(self.study, left="stopping")
            self.say("stopping: what was measured is kept")
