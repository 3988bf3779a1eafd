"""Snakemake's screen for this study, `logger: tilewise` in profiles/default/config.yaml: a bar, or lines in a pipe.

Dry runs, and runs with --verbose, --printshellcmds, --debug-dag or --quiet, get Snakemake's own words.
"""

import logging
import re
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from tilewise import configfiles, exit_on_user_error, files, outcome, progress, stopping

#: Seconds between two lines in a pipe, and between two looks at the journals; the most lines for what is at work.
PAUSE_S, LOOK_S, LINES = 10.0, 0.25, 4
#: What Snakemake says at every start.
USUAL = "Assuming unrestricted shared filesystem usage."


class LogHandler(LogHandlerBase):
    """One per run; Snakemake calls `emit` from a separate thread."""

    writes_to_stream, writes_to_file, has_filter, has_formatter, needs_rulegraph = True, False, True, True, False

    def __post_init__(self) -> None:
        asked = self.common_settings
        if asked.dryrun or asked.verbose or asked.printshellcmds or asked.debug_dag or asked.quiet:
            self.has_filter = self.has_formatter = False  # Snakemake adds its own
        files.open_streams()
        files.collect_rarely()
        self.console = Console(file=sys.stdout if asked.stdout else sys.stderr, highlight=False, markup=False)
        self.run, self.ended = progress.Run({}), threading.Event()
        self.screen = threading.Thread(target=self._show, daemon=True)
        self.errors, self.failed = list[str](), dict[int, str]()
        self.begun = self.started = False
        stopping.install_signal_handlers()  # before Snakemake reads the Snakefile, which takes seconds
        with exit_on_user_error():
            files.check_writable(".", ".snakemake", "results", "logs")
            configfiles.check()

    def emit(self, record: Any) -> None:
        """Record an event, and print immediately what a user must know."""
        event, jobs = getattr(record, "event", None), self.run.jobs
        if not self.has_formatter:
            if (text := self.format(record)) not in ("", "None"):  # Snakemake's formatter says "None" for no message
                self._say(text)
        elif event == LogEvent.WORKFLOW_STARTED:
            self.begun = True
        elif event == LogEvent.ERROR and getattr(record, "exception", "") == "MissingRuleException":
            tasks = dict.fromkeys(task for _, _, task in progress.EXPECTED if task)
            self.errors.append(outcome.unknown_target_message(record.getMessage().strip(), tasks))
        elif event == LogEvent.RUN_INFO:
            self.run = progress.Run({rule: count for rule, count in record.stats.items() if rule != "total"})
            self._say(f"this run is {progress.duration_text(self.run.seconds())} of work")
            self.screen.start()
        elif event == LogEvent.JOB_INFO:
            self.started = True
            jobs[record.jobid] = progress.Job(record.rule_name, record.wildcards, record.input, record.output)
        elif event == LogEvent.JOB_FINISHED and record.job_id in jobs:
            self.run.finished.append(job := jobs.pop(record.job_id))
            self.failed.pop(record.job_id, None)
            self._say("\n".join(outcome.faults()) if job.rule == "trace" else "")
        elif event == LogEvent.JOB_ERROR and record.jobid in jobs:
            text, logs = outcome.failure(jobs.pop(record.jobid).name, record, self.run.began, self.errors)
            alike = re.sub(r"SLURM-job '\d+'", "", text)  # a second try may fail alike
            self._say(text + logs if self.failed.get(record.jobid) != alike else "")
            self.errors, self.failed[record.jobid] = [], alike
        elif hasattr(record, "waiting"):  # Slurm's reasons, from snakemake_executor_plugin_tilewise
            for number, job in jobs.items():
                job.waits = number in record.waiting
            self._say(record.getMessage())
        elif record.levelno >= logging.ERROR and self.begun:
            self.errors.append(record.getMessage().strip())  # of the job whose failure comes next
        elif record.levelno >= logging.WARNING or (event is None and not self.begun):
            self._say(record.getMessage().replace(USUAL, "").strip())

    def close(self) -> None:
        """End the display and say how the run ended, at the first call."""
        if self.has_formatter and not self.ended.is_set():
            self.ended.set()
            if self.screen.is_alive():
                self.screen.join()
            for text in self._last():
                self.console.print(text, soft_wrap=True)
        if not stopping.stop_requested():  # else a second signal ends a run that hangs
            stopping.remove_signal_handlers()
        super().close()

    def _last(self) -> Iterable[str]:
        if stopping.stop_requested():
            return ["stopped; the same command continues this run"]
        if failed := sum(map(bool, self.failed.values())):
            return [f"{failed} failed, see above; the same command continues this run"]
        if not self.begun or (self.errors and not self.failed):
            return self.errors
        if self.run.counts and not self.started:  # refused at its start, which is said on its own
            return []
        platforms = dict.fromkeys(platform for _, platform, _ in progress.EXPECTED if platform)
        end = f"done in {self._clock()}" if self.run.counts else "nothing to be done"
        if self.failed:  # the job that fails at the end, for what these words name
            end = f"ended after {self._clock()} with exit status 1"
        targets = {target for targets in outcome.TARGETS for target in targets()}
        return outcome.final_summary(end, platforms, targets, self.run.made())

    def _say(self, text: str) -> None:
        if text and not stopping.stop_requested():
            self.console.print(text, soft_wrap=True)

    def _clock(self) -> str:
        """The time since the run began, such as 0:03:07."""
        return str(timedelta(seconds=int(time.time() - self.run.began)))

    def _show(self) -> None:
        """Show how far the run is, until it ends: a bar and the jobs at work, or in a pipe a line now and then."""
        bar = Progress(
            BarColumn(None), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"), expand=True
        )
        study, told, terminal = bar.add_task("", total=1, left=""), time.time(), self.console.is_interactive
        with Live(bar, console=self.console, transient=True) as live:
            while not self.ended.wait(LOOK_S) and not stopping.stop_requested():
                share, left = self.run.look(now := time.time())
                lines = self.run.at_work(min(LINES, self.console.height // 2 - 1) if terminal else 1)
                bar.update(study, completed=share, left=left)
                live.update(Group(bar, *(Text(f"  {line}", no_wrap=True, overflow="ellipsis") for line in lines)))
                if not terminal and lines and now - told >= PAUSE_S:
                    head = ", ".join(filter(None, [f"{100 * share:.0f} %", left]))
                    self._say(f"{self._clock()} {head}: {', '.join(lines)}")
                    told = now
        if stopping.stop_requested():
            self.console.print("stopping: what was measured is kept")
