"""What every run of Snakemake looks at before it starts, in less than a second.

Its configs, whether another run is at work here, what the page will need of published and recorded data, and which
results are no longer as the run left them that made them.
"""

import argparse
import base64
import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import filelock

from tilewise import KERNELS, UserError
from tilewise.files import digest, locked, remedy
from tilewise.report import claims, data, tables
from tilewise.study.registry import Kernel
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


def check_kept(kernels: Mapping[str, Kernel], folder: Path | str = ".snakemake") -> None:
    """Raise UserError if no page can be made of the claims, the published and the recorded data.

    The file `kept` in Snakemake's folder remembers for which files they were found good, by time and size.
    """
    files: list[Path | str] = [
        *data.kept_files(),
        KERNELS / "registry.yaml",
        *sorted(Path(__file__).parent.rglob("*.py")),
    ]
    stamp = digest([[str(path), Path(path).stat().st_mtime_ns, Path(path).stat().st_size] for path in files])
    good = Path(folder, "kept")
    if not good.is_file() or good.read_text(errors="replace") != stamp:
        _check_kept(kernels)
        good.parent.mkdir(exist_ok=True)
        good.write_text(stamp)


def _check_kept(kernels: Mapping[str, Kernel]) -> None:
    entries, published = claims.load(), data.published(kernels=kernels)
    recorded = sorted(path.parent for path in data.RECORDED.glob("*/device.json"))
    if not recorded:
        return
    evidence = data.load(recorded, kernels=kernels)
    claims.check(entries, evidence)
    try:
        tables.maximum_size(evidence, published)
        tables.cold_start(evidence, published)
    except (LookupError, ValueError) as error:
        raise UserError(f"report/published: a figure is missing: {error}; {remedy(data.PUBLISHED)}") from None


def changed_by_hand(folder: Path | str = ".snakemake") -> list[str]:
    """The results that are not as the rule left them that made them; they are marked as unfinished, and made again.

    Snakemake notes when each file was last written; by its own rules a file that is newer than its sources is good.
    """
    metadata, found = Path(folder, "metadata"), []
    for place in sorted(path for path in metadata.rglob("*") if path.is_file()):
        name = "".join(part.removeprefix("@") for part in place.relative_to(metadata).parts)
        try:
            result = Path(base64.urlsafe_b64decode(name).decode())
            written = json.loads(place.read_text())["endtime"]
            changed = result.is_file() and abs(result.stat().st_mtime - written) > 1e-3
        except (ValueError, TypeError, LookupError, OSError):  # a record that a kill cut short
            continue
        if changed:
            found.append(str(result))
            mark = Path(folder, "incomplete", place.relative_to(metadata))
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text("{}")
    return found
