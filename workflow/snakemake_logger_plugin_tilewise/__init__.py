"""Snakemake's screen for this study: `logger: tilewise` in profiles/default/config.yaml.

In a terminal it is a bar for the study and a line for each task at work. In a pipe it is a line every ten seconds if
something was done. A failure ends with its cause. Dry runs, and runs with --verbose, --printshellcmds, --debug-dag or
--quiet, look as Snakemake's own; what they tell is in .snakemake/log/ in any case.
"""

import logging
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from tilewise import files, progress

#: Seconds between two lines in a pipe, and between two looks at the logs.
PAUSE_S, LOOK_S = 10.0, 0.25
#: At most so many tasks have a line of their own in a terminal.
LINES = 4
#: What Snakemake says of every run, which tells a user nothing.
USUAL = re.compile(r"Assuming unrestricted shared|Building DAG of jobs|Using shell|Provided |Rules claiming|Select ")
#: What it says of every failure, of a job's command, and of one that was interrupted.
GENERAL = re.compile(r"At least one job did not complete|Exiting because a job|Shutting down")
OF_A_JOB = re.compile(r"CalledProcessError|Command '|died with <")
INTERRUPTED = re.compile(r"died with <Signals.SIGINT|returned non-zero exit status 130")
#: Where a message that Snakemake wraps begins and ends: its own file and line are no place of ours.
WRAPPING = re.compile(r'^(WorkflowError|RuleException)[^\n]*\n|\n  File "[^\n]*, in [^\n]*$', re.MULTILINE)


class LogHandler(LogHandlerBase):
    """One for a run; Snakemake calls `emit` from a thread of its own."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        asked = self.common_settings
        plain = asked.dryrun or asked.verbose or asked.printshellcmds or asked.debug_dag or asked.quiet
        self.stream = sys.stdout if asked.stdout else sys.stderr
        self.plain = _plain(asked, self.stream) if plain else None
        self.said: list[str] = []  # before the run begins
        self.errors: list[str] = []
        self.failed: dict[str, progress.Job] = {}
        self.screen: _Terminal | _Pipe | None = None
        self.ended = False
        if not plain:
            os.environ[files.SHOWN] = "1"  # the scripts tell their logs, not the screen

    def emit(self, record: Any) -> None:
        """Take note of an event; what a user has to know at once is shown at once."""
        if self.plain:
            self.plain.handle(record)
            return
        event, run = getattr(record, "event", None), progress.current()
        if run and not self.screen:
            self.screen = _Terminal(run, self.stream) if _is_terminal(self.stream) else _Pipe(run, self.stream)
        if run and event == LogEvent.JOB_STARTED:
            run.start(record.jobs)
        elif run and event == LogEvent.JOB_FINISHED:
            run.finish(record.job_id)
            self._faults(run.jobs.get(record.job_id))
        elif event in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR):
            self._note_failure(record, run)
        elif record.levelno >= logging.ERROR:
            said = WRAPPING.sub("", record.getMessage()).strip()
            if not GENERAL.match(said):
                self.errors.append(said)
        elif record.levelno >= logging.WARNING or "SLURM jobid" in record.getMessage():
            self._say(record.getMessage().strip())
        elif event is None and not self.screen and record.msg and not USUAL.match(record.getMessage()):
            self.said.append(record.getMessage())

    def close(self) -> None:
        """End the display, with the cause of every failure or the path of the page; once, however often it is asked."""
        if not self.plain and not self.ended:
            self.ended = True
            if self.screen:
                self.screen.stop()
            for line in self.said if not self.screen else ():
                print(line, file=self.stream)
            self._end(progress.current())
            self.stream.flush()
        super().close()

    def _say(self, text: str) -> None:
        if self.screen:
            self.screen.say(text)
        else:
            print(text, file=self.stream, flush=True)

    def _faults(self, job: progress.Job | None) -> None:
        """What the tracer found in kernels is told when it is known; not its remarks, which are no faults."""
        if job and job.rule == "trace" and job.log and job.log.is_file():
            found = job.log.read_text(errors="replace").strip().splitlines()
            found = [line for line in found if line != "no faults" and ": remark: " not in line]
            for line in found[:5]:
                self._say(line)

    def _note_failure(self, record: Any, run: progress.Run | None) -> None:
        number = getattr(record, "jobid", -1)
        job = run.jobs.get(number) if run else None
        if run and job:
            run.finish(number, "failed")
            if not job.submitted:  # of those, the executor tells
                self.failed[job.name] = job
                self._say(f"failed: {_full_name(job)}")

    def _end(self, run: progress.Run | None) -> None:
        if self.errors and all(map(INTERRUPTED.search, self.errors)):
            print("stopped; the same command goes on where this run was", file=self.stream)
            return
        causes = {name: progress.cause(job.log) for name, job in self.failed.items()}
        words = list(dict.fromkeys(self.errors))
        for name, job in self.failed.items():
            said = causes[name] or "\n".join(words) or "it ended without a word"
            print(f"\n{_full_name(job)} failed:\n{said}", file=self.stream)
            words = words if causes[name] else ["it ended as the one above"]  # whose words are whose is not known
            if job.log and job.log.is_file():
                print(f"(its log: {job.log})", file=self.stream)
        others = [text for text in dict.fromkeys(self.errors) if not (self.failed and OF_A_JOB.search(text))]
        if others:
            print("\n".join(others), file=self.stream)
        elif run and not self.failed and all(job.state == "done" for job in run.jobs.values()):
            took = f"done in {progress.clock(time.monotonic() - run.began)}"
            page = f"; the report is {Path(run.report).resolve()}" if run.report else ""
            print(f"{took}{page}", file=self.stream)


class _Pipe:
    """A line every ten seconds in which a point or a job was done; no escape codes."""

    def __init__(self, run: progress.Run, stream: Any):
        self.run, self.stream = run, stream
        self.ended = threading.Event()
        self.last = time.monotonic()
        self.seen: tuple[str, list[str]] | None = None
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(LOOK_S):
            self.run.look()
            if time.monotonic() - self.last >= PAUSE_S:
                self._tell()

    def _tell(self) -> None:
        work = self.run.at_work()
        share = f"{100 * self.run.share:.0f} %"
        if work and (share, work) != self.seen:
            self.seen, self.last = (share, work), time.monotonic()
            when = progress.clock(time.monotonic() - self.run.began)
            left = progress.in_words(self.run.left())
            self.say(f"{when} {share}, {left}: {work[0]}{f' (and {len(work) - 1} more)' if len(work) > 1 else ''}")

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def stop(self) -> None:
        self.ended.set()
        self.thread.join()


class _Terminal:
    """A bar for the study, and a line for each task at work below it."""

    def __init__(self, run: progress.Run, stream: Any):
        from rich.console import Console
        from rich.live import Live

        self.run = run
        self.console = Console(file=stream, highlight=False, soft_wrap=False)
        self.live = Live(get_renderable=self._lines, console=self.console, vertical_overflow="crop", transient=True)
        self.live.start()

    def _lines(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        self.run.look()
        share, work = self.run.share, self.run.at_work()
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        when = progress.clock(time.monotonic() - self.run.began)
        words = f"{100 * share:3.0f} %  {when}  {progress.in_words(self.run.left())}"
        bar.add_row(ProgressBar(total=1, completed=share), Text(words, no_wrap=True, overflow="ellipsis"))
        most = max(1, min(LINES, self.console.height - 3))
        rest = [f"and {len(work) - most} more"] if len(work) > most else []
        lines = [Text(f"  {line}", no_wrap=True, overflow="ellipsis") for line in (*work[:most], *rest)]
        return Group(bar, *lines)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def stop(self) -> None:
        self.live.stop()


def _full_name(job: progress.Job) -> str:
    """The job's rule, and its task or kernel on its platform."""
    platform = job.wildcards.get("platform")
    name = f"measure {job.name}" if job.rule == "measure" else job.name
    return f"{name} on {platform}" if platform else name


def _is_terminal(stream: Any) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _plain(asked: Any, stream: Any) -> logging.Handler:
    """Snakemake's own handler."""
    shown = DefaultFilter(asked.quiet, asked.debug_dag, asked.verbose, asked.dryrun, asked.printshellcmds)
    words = DefaultFormatter(asked.quiet, asked.show_failed_logs)
    return ColorizingTextHandler(nocolor=asked.nocolor, stream=stream, formatter=words, filter=shown)
