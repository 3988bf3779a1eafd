"""Write files atomically, read them, and run jobs in processes and with logs."""

import atexit
import contextlib
import ctypes
import gc
import getpass
import io
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope.files import REMEDIES, atomic_path, read_bytes, take_lock
from tilewise import ROOT, UserError

if TYPE_CHECKING:
    import pandas as pd

#: prctl's PR_SET_PDEATHSIG
DEATH_SIGNAL = 1
#: What a message of ours starts with, so that it is found in a log that is mostly others'.
MESSAGE = "tilewise: "
#: The most bytes of a table.
MOST_TABLE_BYTES = 2**30
#: How many collections of a JSON file may lie within each other.
DEEPEST_JSON = 50


def write_csv(frame: "pd.DataFrame", path: Path | str) -> None:
    """Write a DataFrame as CSV, whole or not at all."""
    with atomic_path(path) as temporary:
        frame.to_csv(temporary, index=False, encoding="utf-8")


def write_json(data: Any, path: Path | str) -> None:
    """Write data as indented JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def of_project(name: str) -> str:
    """The path of one of the project's own files, from the working folder, which may be another project's."""
    return os.path.relpath(ROOT / name)


def check_writable(*folders: str) -> None:
    """Raise UserError if a path cannot be a folder to write into: a file, a link to nothing, or another user's folder,
    whose owner is then named."""
    for path in map(Path, folders):
        if not path.is_dir() and (path.exists() or path.is_symlink()):
            what = "a file" if path.exists() else f"a link to {path.readlink()}, which does not exist"
            raise UserError(f"{path}: this is {what}, not a folder; rename or remove it")
        if path.exists() and not os.access(path, os.W_OK):
            owner = f"user {path.stat().st_uid}"
            with contextlib.suppress(KeyError):  # the system has no name for it, as in a container
                owner = path.owner()
            raise UserError(
                f"{path.resolve()}: it belongs to {owner}, and you cannot write there; correct its permissions, or "
                "work in a clone of your own"
            )


def remedy(path: Path | str) -> str:
    """The remedy for a damaged file, as the end of a message."""
    if Path(os.path.realpath(path)).is_relative_to(ROOT / "report"):  # resolve refuses a link to itself
        return f"restore it: git checkout {os.path.relpath(path)}"
    return "delete the file and run again"


def read_json(path: Path | str) -> dict[str, Any]:
    """The object that a JSON file holds. Raises UserError, with the remedy, if it holds none."""
    missing = "run again, which makes it"
    content = read_bytes(path, remedy(path) if os.path.lexists(path) else missing)
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: this is not JSON ({error}); {remedy(path)}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: this is not a JSON object; {remedy(path)}")
    inner: list[Any] = [found]
    for _ in range(DEEPEST_JSON):
        inner = [each for data in inner for each in (data.values() if isinstance(data, dict) else data)]
        inner = [each for each in inner if isinstance(each, dict | list)]
    if inner:
        raise UserError(f"{path}: more than {DEEPEST_JSON} lists and objects within each other; {remedy(path)}")
    return found


def open_streams() -> None:
    """Let this process print all characters in any locale, and replace its closed streams by /dev/null.

    Otherwise the next file that it opens would take the number of a closed stream, and receive what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def collect_rarely() -> None:
    """Let this process look for garbage rarely, and not at its end, where Python looks at all that was imported.

    What is imported is never garbage; scanning it takes a fifth of a dry run's time and a seventh of a page's.
    """
    gc.freeze()
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)


@contextlib.contextmanager
def hold_lock(path: Path | str, wait_s: float | None = None, what: str = "this task") -> Iterator[None]:
    """Hold `path`, a lock file, so that no second process does the same work; the system frees it with the process.

    It waits for a holder that is about to end: a minute, and ten in a Slurm job, because the job of a run that was
    killed works on and this one can then take its points from the journal. Raises UserError that names the holder.
    """
    owner, job = Path(f"{path}.owner"), os.environ.get("SLURM_JOB_ID")
    try:
        lock = take_lock(path, wait_s if wait_s is not None else 600 if job else 60)
    except OSError as error:
        raise UserError(f"{path}: it cannot be written: {error.strerror}; {REMEDIES}") from error
    if lock is None:
        who = owner.read_text(encoding="utf-8").strip() if owner.is_file() else "another process"
        raise UserError(f"{path}: {who} works on {what}; let it end or cancel it first")
    me = f"Slurm job {job}" if job else f"{getpass.getuser()}'s process {os.getpid()}"
    try:
        owner.write_text(f"{me} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def end_with_parent(parent: int | None = None) -> None:
    """Let the system end this process when its parent ends, however that ends.

    With the parent's id, the process also ends if its parent did before this was asked.
    """
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if parent not in (None, os.getppid()):
        os._exit(1)


@contextlib.contextmanager
def processes(workers: int, doing: str, remedy: str = "run again") -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that end with this one. Raises UserError if one of them ends before its work is done.

    `doing` says what they do. Forked, not spawned: a new interpreter would run Snakemake's script once more.
    """
    context = multiprocessing.get_context("fork")
    try:
        made = ProcessPoolExecutor(workers, context, initializer=_in_pool, initargs=(os.getpid(),))
    except OSError as error:  # of its semaphores
        raise UserError(f"/dev/shm: no process can share memory: {error.strerror}; make the folder writable") from None
    try:
        with made as pool:
            try:
                yield pool
            finally:
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool:
        raise UserError(f"a process ended while it {doing}, perhaps for want of memory; {remedy}") from None


def _in_pool(parent: int) -> None:
    end_with_parent(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the script's, whose exception a pool would hand on as a result


@contextlib.contextmanager
def script(log: Path | str) -> Iterator[None]:
    """Run the body of a Snakemake script: a UserError becomes a message at the end of the log, and exit status 1.

    So does the system's refusal to read or write a file. The log has all that is printed and what the package says
    through `logging`; the screen is Snakemake's. SIGTERM ends the script as Ctrl-C does, and its temporary files go.
    """
    open_streams()
    collect_rarely()
    end_with_parent()  # a script that outlives Snakemake would keep the GPU and the journal from the next run
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with _logged(Path(log)):
            yield
    except (UserError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError):
            message = f"{error.filename or log}: {error.strerror or error}; {REMEDIES}"
        try:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"\n{MESSAGE}{message}\n")
        except OSError:  # the disk is full: to the screen
            sys.exit(f"{MESSAGE}{message}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _logged(log: Path) -> Iterator[None]:
    """Let a log, which begins empty, receive what is printed, also by libraries, and what is logged."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    logger, handler = logging.getLogger("tilewise"), logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    screens = [(stream, os.dup(stream)) for stream in (1, 2)]
    try:
        with open(log, "ab") as file:
            for stream, _ in screens:
                os.dup2(file.fileno(), stream)
        yield
    finally:
        sys.stdout.flush()
        for stream, screen in screens:
            os.dup2(screen, stream)
            os.close(screen)
        logger.removeHandler(handler)
        handler.close()
