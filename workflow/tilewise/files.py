"""Files written whole or not at all, so that no reader ever meets half a table."""

import contextlib
import ctypes
import errno
import hashlib
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from tilewise import ROOT, UserError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    import pandas as pd  # takes half a second to load, which a command has not

#: prctl's PR_SET_PDEATHSIG
DEATH_SIGNAL = 1
#: What a message of ours starts with, so that it is found in a log that is mostly others'.
MESSAGE = "tilewise: "
#: The environment's name for whether the screen is Snakemake's logger's, so that a script speaks to its log alone.
SHOWN = "TILEWISE_SHOWN"
#: The environment's name for the process of Snakemake that runs the scripts.
RUN = "TILEWISE_RUN"
#: The environment's name for the process of make that started Snakemake.
MAKE = "TILEWISE_MAKE"
#: What to do if a file cannot be written.
REMEDIES = "make room on the disk, or correct the permissions, and run again; what was measured is kept"


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A temporary path in the folder of `path`, moved onto it when the block ends without an exception."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"{path}: it cannot be written: {error.strerror}; {REMEDIES}") from error
    os.close(handle)
    try:
        yield Path(temporary)
        Path(temporary).chmod(0o644)  # mkstemp's 0600 would hide a cluster's results from the group
        Path(temporary).replace(path)
    except OSError as error:
        raise UserError(f"{path}: it cannot be written: {error.strerror or error}; {REMEDIES}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_csv(frame: "pd.DataFrame", path: Path | str) -> None:
    """Write a DataFrame as CSV, whole or not at all."""
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False)


def write_json(data: Any, path: Path | str) -> None:
    """Write data as indented JSON, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n")


def remedy(path: Path | str) -> str:
    """What to do about a file that is damaged, as the end of a message."""
    if Path(path).resolve().is_relative_to(ROOT / "report"):
        return f"restore it: git checkout {os.path.relpath(path)}"
    return "delete the file and run again"


def read_json(path: Path | str) -> dict[str, Any]:
    """The object that a JSON file holds. Raises UserError, with the remedy, if it holds none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; run again, which makes it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: this is not JSON ({error}); {remedy(path)}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: this is not a JSON object; {remedy(path)}")
    return found


def locked(path: Path | str, wait_s: float = 0) -> filelock.BaseFileLock | None:
    """A lock on a file, held until it is released or the process ends; None if another process has it after `wait_s`.

    On a file system without locks every process gets it: then it is up to the user.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=wait_s)
    try:
        lock.acquire(poll_interval=0.5)
    except filelock.Timeout:
        return None
    except NotImplementedError:
        return lock
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
    return lock


@contextlib.contextmanager
def alone(path: Path | str, wait_s: float = 60) -> Iterator[None]:
    """Hold `path`, a lock file, so that no second process does the same work. It is freed when the process ends.

    It waits for a holder that is just ending, such as a cancelled Slurm job. Raises UserError that names the holder.
    """
    owner = Path(f"{path}.owner")
    lock = locked(path, wait_s)
    if lock is None:
        who = owner.read_text().strip() if owner.is_file() else "another process"
        raise UserError(f"{path}: {who} works on this task; let it end or cancel it first")
    job = os.environ.get("SLURM_JOB_ID")
    owner.write_text(f"{f'Slurm job {job}' if job else f'process {os.getpid()}'} on {socket.gethostname()}\n")
    try:
        yield
    finally:
        lock.release()


def digest(data: Any) -> str:
    """sha256 of data that JSON can hold, independent of the order of keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def end_with_parent(parent: int | None = None) -> None:
    """Let the system end this process when its parent ends, however that ends.

    With the parent's id, the process also ends if its parent did before this was asked.
    """
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if parent not in (None, os.getppid()):
        os._exit(1)


def end_with_make() -> None:
    """Let this process end when make ends, if make started it: a make that was killed stops nothing else."""
    make = os.environ.pop(MAKE, None)  # what this process starts has another parent
    if make:
        end_with_parent(int(make))


@contextlib.contextmanager
def processes(workers: int, doing: str, remedy: str = "run again") -> Iterator["ProcessPoolExecutor"]:
    """A pool of processes that end with this one. Raises UserError if one of them ends before its work is done.

    `doing` says what they do. Forked, not spawned: a new interpreter would run Snakemake's script once more.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(workers, context, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
            try:
                yield pool
            finally:
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool:
        raise UserError(f"a process ended while it {doing}, perhaps for want of memory; {remedy}") from None


@contextlib.contextmanager
def script(log: Path | str) -> Iterator[None]:
    """Run the body of a Snakemake script: a UserError becomes its message on stderr and in the log; exit status 1.

    So does the system's refusal to read or write a file. The log also has what the package tells through `logging`, and
    all that is printed if Snakemake's logger has the screen for itself. The script does not outlive Snakemake: it would
    work beside the run that takes its task up again.
    """
    end_with_parent()
    # A process that nobody waits for stays when it has ended, but runs no program.
    if not Path("/proc", os.environ.get(RUN, "self"), "exe").exists():  # Snakemake ended before we asked
        sys.exit(1)
    try:
        with _told(Path(log)):
            yield
    except (UserError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError):
            message = f"{error.filename or log}: {error.strerror or error}; {REMEDIES}"
        if SHOWN not in os.environ:
            with contextlib.suppress(OSError), open(log, "a") as file:  # the disk may be full
                file.write(f"\n{MESSAGE}{message}\n")
        print(f"\n{MESSAGE}{message}\n", file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


@contextlib.contextmanager
def _told(log: Path) -> Iterator[None]:
    """Let a log, which begins empty, receive what is told and perhaps printed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    if SHOWN in os.environ:
        with open(log, "ab") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
    teller, handler = logging.getLogger("tilewise"), logging.FileHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    teller.setLevel(logging.INFO)
    teller.addHandler(handler)
    try:
        yield
    finally:
        teller.removeHandler(handler)
        handler.close()
