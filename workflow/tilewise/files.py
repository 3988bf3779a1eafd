"""Files written whole or not at all, so that no reader ever meets half a table."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from tilewise import UserError


@contextlib.contextmanager
def replacing(path):
    """A temporary path in the folder of `path`, moved onto it when the block ends without an exception."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(temporary)
        Path(temporary).chmod(0o644)  # mkstemp's 0600 would hide a cluster's results from the group
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_csv(frame, path):
    """Write a DataFrame as CSV, whole or not at all."""
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False)


def write_json(data, path):
    """Write data as indented JSON, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=2) + "\n")


@contextlib.contextmanager
def alone(path, wait_s=60):
    """Hold `path`, a lock file, so that no second process does the same work. It is freed when the process ends.

    It waits for a holder that is just ending, such as a cancelled Slurm job. Raises UserError that names the holder.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("a+") as lock:
        end = time.monotonic() + wait_s
        while not _locked(lock):
            if time.monotonic() > end:
                lock.seek(0)
                raise UserError(f"{path}: {lock.read().strip()} works on this task; let it end or cancel it first")
            time.sleep(0.5)
        lock.truncate(0)
        job = os.environ.get("SLURM_JOB_ID")
        lock.write(f"{f'Slurm job {job}' if job else f'process {os.getpid()}'} on {socket.gethostname()}\n")
        lock.flush()
        yield


def _locked(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks: then it is up to the user
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
    return True


def digest(data):
    """sha256 of data that JSON can hold, independent of the order of keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


@contextlib.contextmanager
def script(log):
    """Run the body of a Snakemake script: a UserError becomes its message on stderr and in the log; exit status 1."""
    try:
        yield
    except UserError as error:
        Path(log).write_text(f"{error}\n")
        print(f"\n{error}\n", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
