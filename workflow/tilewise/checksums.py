"""Verify published and recorded data by their hashes, so that altered figures are refused."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelscope.files import read_bytes, read_text
from tilewise import UserError
from tilewise.files import MOST_TABLE_BYTES, read_json, remedy

#: The hashes of published files, as `sha256sum --check` reads them.
SUMS = "SHA256SUMS"
#: The RO-Crate of a recorded run, which has a hash of each file.
METADATA = "ro-crate-metadata.json"


def check_published(folder: Path) -> None:
    """Raise UserError if a CSV in a folder differs from the hash in its SHA256SUMS, or if either is missing."""
    sums = folder / SUMS
    if not os.path.lexists(sums):
        raise UserError(f"{sums}: there is no such file; {remedy(sums)}")
    lines = [line.split() for line in read_text(sums, remedy(sums)).splitlines()]
    known = {words[1]: words[0] for words in lines if len(words) == 2}
    for name in sorted(known.keys() | {path.name for path in folder.glob("*.csv")}):
        if wrong := _difference(folder / name, known.get(name)):
            raise UserError(
                f"{folder / name}: {wrong} in {SUMS}; {remedy(folder / name)}, or, after a correction that its source "
                f"confirms: (cd {os.path.relpath(folder)} && sha256sum *.csv > {SUMS})"
            )


def check_recorded(folder: Path) -> str:
    """The hash of a recorded run's RO-Crate; empty for a run without one.

    Raises UserError if a file of the run is not as the crate describes it.
    """
    if not (folder / METADATA).exists():
        return ""
    for line in differences(folder):
        raise UserError(f"{folder}/{line}; {remedy(folder)}")
    return sha256(folder / METADATA)


def sha256(path: Path) -> str:
    """The sha256 of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(folder: Path) -> Iterator[str]:
    """Yield a line for each file of a recorded run that its RO-Crate contradicts, does not list, or lists in vain.

    Raises UserError if there is no crate, or if it is damaged.
    """
    known = dict(_described(read_json(folder / METADATA)))
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in (".csv", ".json")}
    for name in sorted(known.keys() | there - {METADATA}):
        if wrong := _difference(folder / name, known.get(name)):
            yield f"{name}: {wrong} in {METADATA}"


def _described(crate: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names and hashes of the files of a crate that lie in its folder."""
    graph = crate.get("@graph")
    for entity in graph if isinstance(graph, list) else []:
        if isinstance(entity, dict) and "sha256" in entity:
            name = str(entity.get("@id"))
            if not name.startswith("/") and ".." not in name.split("/"):
                yield name, str(entity["sha256"])


def _difference(path: Path, known: str | None) -> str:
    """What is wrong with a file whose hash should be `known`; empty if nothing is."""
    if not os.path.lexists(path):
        return "there is no such file, though it has a sha256"
    found = hashlib.sha256(read_bytes(path, remedy(path), MOST_TABLE_BYTES)).hexdigest()
    return "" if found == known else "its sha256 differs from that" if known else "remove this file: it has no sha256"
