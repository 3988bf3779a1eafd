"""What every run of Snakemake looks at before it starts: its configs, and whether another run is at work here."""

import argparse
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import filelock

from tilewise import UserError
from tilewise.files import locked
from tilewise.study.schema import read_yaml

#: The lock of this run, which the system frees when the process ends, however it ends.
_held: list[filelock.BaseFileLock] = []


def check_configfiles(arguments: Sequence[str] | None = None) -> None:
    """End with one line on stderr if a --configfile of the command line, or that of the slurm profile, cannot be read.

    `arguments` are those of Snakemake, by default this process's own.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", default=[])
    parser.add_argument("--profile", nargs="+", default=[])
    options = parser.parse_known_args(arguments)[0]
    of_profile = ["config/cluster.yaml"] if "slurm" in options.profile else []
    try:
        for path in options.configfile or of_profile:
            read_config(path)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def read_config(path: Path | str) -> None:
    """Raises UserError, with file and line, if a file is not a config that Snakemake can read."""
    if not isinstance(read_yaml(path), dict):
        raise UserError(f"{path}: a config holds keys with values, such as `seed: 524`; see config/quick.yaml")


def take_over(folder: Path | str = ".snakemake") -> list[str]:
    """Remove Snakemake's locks from its folder if every run that set them has ended; name those that have not.

    Each run holds a lock file of its own until its process ends. On a file system without locks nobody can tell, and
    Snakemake's locks stay.
    """
    runs = Path(folder, "runs")
    mine = locked(runs / f"process {os.getpid()} on {socket.gethostname()}", wait_s=5)
    if mine is None or not mine.is_locked:
        return []
    _held.append(mine)
    alive = []
    for path in sorted(runs.iterdir()):
        if path == Path(mine.lock_file):
            continue
        lock = locked(path)
        if lock is None:
            alive.append(path.name)
        else:
            path.unlink(missing_ok=True)
            lock.release()
    if not alive:
        shutil.rmtree(Path(folder, "locks"), ignore_errors=True)
    return alive
