"""Ctrl-C, SIGTERM and SIGHUP end a run of Snakemake alike: its jobs end at once; the same command continues it."""

import contextlib
import functools
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import psutil
from snakemake.shell import shell

#: Seconds in which a run ends after a signal, enough for Slurm to cancel its jobs.
END_S = 15
#: How often the main thread is woken for a signal, and the seconds in between.
TRIES, WAKE_S = 10, 0.1
#: The signals that stop a run.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Those that asked this process to stop.
_received: list[int] = []


def stop_requested() -> bool:
    """Whether a signal has requested this run to stop."""
    return bool(_received)


def install_signal_handlers() -> None:
    """Stop at these signals from now on.

    Called again when the run starts, because Snakemake's own handler of SIGTERM waits for the running jobs, which may
    take an hour. A terminal sends Ctrl-C to the jobs, too: they ignore it from their first instruction, before Python
    imports anything, and are ended by SIGTERM from here.
    """
    shell.prefix("set -euo pipefail; trap '' INT; ")
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup and a shell's background jobs ignore some
            signal.signal(number, _stop)
    _watch_signals()


def remove_signal_handlers() -> None:
    """Let the signals end this process at once: after a run, their exception would be a traceback."""
    for number in SIGNALS:
        if signal.getsignal(number) is _stop:
            signal.signal(number, signal.SIG_DFL)


@functools.cache
def _watch_signals() -> None:
    """Wake the main thread if another one received a signal.

    Python handles signals in the main thread, which waits for a lock while jobs run. The system may interrupt another
    thread instead, as it does in a twentieth of the cases if that thread starts processes, and the main thread would
    sleep on.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGURG, lambda number, frame: None)  # it interrupts a wait and does nothing else
    threading.Thread(target=_wake_main_thread, args=(reader,), daemon=True).start()


def _wake_main_thread(reader: int) -> None:
    while number := os.read(reader, 1):
        for _ in range(TRIES if number[0] in SIGNALS else 0):  # one may come just before the main thread waits
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)
            time.sleep(WAKE_S)


def _stop(number: int, frame: Any) -> None:
    """Forward the signal to all running jobs; on a second signal, kill them."""
    first = not _received
    _received.append(number)
    if first:
        # The exception may meet Snakemake within a lock of its log, whose thread then never ends.
        timer = threading.Timer(END_S, _exit, [128 + number])
        timer.daemon = True
        timer.start()
        # While Python itself ends no thread runs, so the system ends a process that hangs there.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(2 * END_S)
    _end_children(kill=not first)
    if first:
        # If the exception ends a task of asyncio, that is never awaited, and asyncio would print a traceback.
        logging.getLogger("asyncio").disabled = True
        raise SystemExit(128 + number)


def _end_children(kill: bool) -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill() if kill else child.terminate()


def _exit(status: int) -> None:
    """End this process, whatever its threads do."""
    try:
        _end_children(kill=True)
        print("stopped; the same command continues this run", file=sys.stderr, flush=True)
    finally:
        os._exit(status)
