"""Write files atomically, lock them, and read them with messages that name the remedy."""

import contextlib
import errno
import hashlib
import json
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock

from kernelscope.errors import MachineError, UserError

#: The most bytes of a file that is read, unless its reader says otherwise.
MOST_BYTES = 2**24
#: What to do if a file cannot be written.
REMEDIES = "make room on the disk, or correct the permissions, and run again; what was measured is kept"


#: What a tool says if not its input is at fault, but the machine.
_REFUSAL = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Input/output error|Too many open files|"
    r"[Cc]annot allocate memory|virtual memory exhausted|std::bad_alloc|Killed signal terminated program \w+"
)


def refusal(said: str) -> str:
    """The machine's refusal in what a tool says, such as `No space left on device`; "" if there is none."""
    found = _REFUSAL.search(said)
    return found[0] if found else ""


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path in the folder of `path`, moved onto it when the block ends without an exception."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)  # not mkstemp, whose files are the user's alone whatever the umask says
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise MachineError(f"{path}: it cannot be written: {error.strerror or error}; {REMEDIES}") from error
    finally:
        with contextlib.suppress(OSError):  # it may never have been made
            temporary.unlink()


def read_bytes(path: Path | str, then: str, largest: int = MOST_BYTES) -> bytes:
    """The content of a file of the project or of a user. Every reader begins here.

    Raises UserError, which ends with `then`, the remedy, for a file that is missing or larger than `largest` bytes, and
    for what is no regular file: a folder, a device or a pipe, which might have no end.
    """
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe"
            raise UserError(f"{path}: it cannot be read: it is {what}, not a file; {then}")
        if found.st_size > largest:
            raise UserError(
                f"{path}: it cannot be read: it has {found.st_size} bytes, of which {largest} are allowed; {then}"
            )
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise UserError(f"{path}: it cannot be read: {getattr(error, 'strerror', error)}; {then}") from None


def read_text(path: Path | str, then: str = "correct the name, or restore the file") -> str:
    """The text of a file in UTF-8, read by `read_bytes`. Raises UserError, also for another encoding."""
    content = read_bytes(path, then)
    try:
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: this is not text in UTF-8; save it as UTF-8, or {then}") from None


def take_lock(path: Path | str, wait_s: float = 0) -> filelock.BaseFileLock | None:
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


def digest(data: Any) -> str:
    """sha256 of data that JSON can hold, independent of the order of keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()
