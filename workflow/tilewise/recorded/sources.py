"""The sources that a run was measured with, taken from the history of this clone."""

import contextlib
import io
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tilewise import ROOT

COMMIT = re.compile(r"[0-9a-f]{7,40}")


@contextlib.contextmanager
def at(commit: str) -> Iterator[Path | None]:
    """A folder with `kernels` and `config` as they were at a commit; None if this clone does not have the commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = _archive(commit)
        if archive:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(folder)
        yield Path(folder) if archive else None


def _archive(commit: str) -> bytes:
    if not COMMIT.fullmatch(commit):  # it comes from a file that anybody may have written
        return b""
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", commit, "kernels", "config"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return b""
