"""Files written whole or not at all, so that no reader ever meets half a table."""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
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
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide a cluster's results from the group
        os.replace(temporary, path)
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


def digest(data):
    """sha256 of data that JSON can hold, independent of the order of keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


@contextlib.contextmanager
def script(log):
    """Run the body of a Snakemake script: a UserError becomes its message on stderr and in the log, and exit status 1."""
    try:
        yield
    except UserError as error:
        Path(log).write_text(f"{error}\n")
        print(f"\n{error}\n", file=sys.stderr)
        sys.exit(1)
