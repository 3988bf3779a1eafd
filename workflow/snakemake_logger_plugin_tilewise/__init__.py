"""Snakemake's screen for this study: `logger: tilewise` in profiles/default/config.yaml.

In a terminal it is a bar for the study and a line for each task at work; in a pipe, a line every ten seconds. Dry
runs, and runs with --verbose, --printshellcmds, --debug-dag or --quiet, look as Snakemake's own.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text
from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from tilewise import UserError, configfiles, outcome, progress, stopping

#: Seconds between two lines in a pipe, and between two looks at the journals; and the most lines for what is at work.
PAUSE_S, LOOK_S, LINES = 10.0, 0.25, 4


class LogHandler(LogHandlerBase):
    """One for a run; Snakemake calls `emit` from a thread of its own."""

    writes_to_stream, writes_to_file, has_filter, has_formatter, needs_rulegraph = True, False, True, True, False

    def __post_init__(self) -> None:
        asked = self.common_settings
        self.stream: Any = sys.stdout if asked.stdout else sys.stderr
        plain = asked.dryrun or asked.verbose or asked.printshellcmds or asked.debug_dag or asked.quiet
        self.plain = _snakemakes_own(asked, self.stream) if plain else None
        self.screen: Screen | None = None
        self.said: list[str] = []  # without a run
        self.errors: list[str] = []  # that belong to no job, or to the one whose failure is told next
        self.failed: dict[int, str] = {}
        self.begun = self.closed = self.finished = False
        stopping.obey()  # before the Snakefile is read, which takes seconds
        try:
            configfiles.check()
        except UserError as error:
            sys.exit(str(error))

    def emit(self, record: Any) -> None:
        """Take note of an event; what a user has to know at once is shown at once."""
        if self.plain:
            self.plain.handle(record)
            return
        event, screen = getattr(record, "event", None), self.screen
        if event == LogEvent.WORKFLOW_STARTED:
            self.begun, self.said = True, []
        elif event == LogEvent.RUN_INFO:
            run = progress.Run(record.stats)
            _, seconds = run.look()
            self.screen = Screen(run, self.stream)
            if progress.HINT:
                self._say(f"this run takes {progress.in_words(seconds).removesuffix(' left')}{progress.HINT}")
        elif event == LogEvent.JOB_INFO and screen:
            log = Path(record.log[0]) if record.log else None
            screen.run.jobs[record.jobid] = progress.Job(record.rule_name, record.wildcards, log, not record.local)
        elif event == LogEvent.JOB_FINISHED and screen:
            self.failed.pop(record.job_id, None)
            job = screen.run.finish(record.job_id)
            for line in outcome.faults(job.log, progress.FAULTY) if job and job.rule == "trace" else ():
                self._say(line)
        elif event == LogEvent.JOB_ERROR and screen:
            self._failure(record.jobid, record.rule_msg or "", record.log)
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
        """End the display and say how the run ended; once, however often it is asked."""
        if not self.plain and not self.closed:
            self.closed = True
            if self.screen:
                self.screen.end()
            for text in (*self.said, *self._end()):
                print(text, file=self.stream, flush=True)
        super().close()

    def _say(self, text: str) -> None:
        if stopping.asked() or not text:
            return
        if self.screen:
            self.screen.say(text)
        else:
            print(text, file=self.stream, flush=True)

    def _failure(self, number: int, message: str, logs: list[str]) -> None:
        """Say which job failed and why: what its log says, or Slurm, or else Snakemake."""
        job = self.screen.run.jobs.pop(number, None) if self.screen else None
        if not job or stopping.asked():
            return
        if job.rule == outcome.RULE:  # all is there; the last words name what is not right
            self.finished = True
            return
        slurms = "\n".join(takewhile(lambda line: not line.startswith(" "), message.splitlines()))
        said = [slurms] if job.submitted else []
        text = "\n".join(filter(None, [*said, progress.cause(job.log, job.at)])) or "\n".join(self.errors)
        self.errors.clear()
        if self.failed.get(number) != text:
            places = [path for path in logs if Path(path).is_file()]
            places += ["docs/cluster.md explains Slurm's answers"] if job.submitted else []
            self._say(f"{job.full_name} failed:\n{text or 'it ended without a word'}\n({'; '.join(places)})")
        self.failed[number] = text

    def _end(self) -> Iterator[str]:
        if stopping.asked():
            yield "stopped; the same command goes on where this run was"
        elif self.failed:
            yield f"{len(self.failed)} failed, see above; the same command goes on where this run was"
        elif self.errors and not self.finished:
            yield from self.errors
        elif self.begun:
            took = f"done in {self.screen.run.clock()}" if self.screen else "nothing to be done"
            yield from outcome.words(took, dict.fromkeys(platform for platform, _ in progress.EXPECTED))


class Screen(Progress):
    """What a run shows while it works: in a terminal a bar and lines below it, in a pipe a line now and then."""

    def __init__(self, run: progress.Run, stream: Any):
        console = Console(file=stream, highlight=False)
        self.run, self.work, self.height = run, [""], console.height
        self.moving = console.is_terminal and not console.is_dumb_terminal
        columns = BarColumn(None), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}")
        super().__init__(*columns, console=console, transient=True, expand=True, disable=not self.moving)
        self.study = self.add_task("", total=1, left="")
        self.ended, self.told, self.seen = threading.Event(), time.monotonic(), (0, [""])
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

    def end(self) -> None:
        """Take the bar away."""
        self.ended.set()
        self.thread.join()
        self.stop()

    def _watch(self) -> None:
        while not self.ended.wait(LOOK_S) and not stopping.asked():
            (share, left), self.work = self.run.look(), self.run.at_work()
            words, now = progress.in_words(left), time.monotonic()
            self.update(self.study, completed=share, left=words)
            seen = round(100 * share), self.work
            if not self.moving and self.work and now - self.told >= PAUSE_S and seen != self.seen:
                more = f" (and {len(self.work) - 1} more)" if len(self.work) > 1 else ""
                self.say(f"{self.run.clock()} {seen[0]} %, {words}: {self.work[0]}{more}")
                self.told, self.seen = now, seen
        if stopping.asked():
            self.update(self.study, left="stopping")
            self.say("stopping: what was measured is kept")


def _snakemakes_own(asked: Any, stream: Any) -> logging.Handler:
    """Snakemake's own handler."""
    shown = DefaultFilter(asked.quiet, asked.debug_dag, asked.verbose, asked.dryrun, asked.printshellcmds)
    words = DefaultFormatter(asked.quiet, asked.show_failed_logs)
    return ColorizingTextHandler(nocolor=asked.nocolor, stream=stream, formatter=words, filter=shown)
