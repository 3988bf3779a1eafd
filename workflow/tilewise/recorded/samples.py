"""The samples of a recorded run: one archive, which the repository does not hold, and its hash, which it does."""

import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tilewise.files import replacing

ARCHIVE, DIGEST = "samples.tar.xz", "samples.sha256"
#: What NVBench wrote: its tables, and every time and clock. Not the workers' logs, which name paths.
KINDS = (".json", ".bin")


def pack(source: Path, folder: Path) -> None:
    """Write the archive of the samples in `source`, if there are any, and its hash into `folder`.

    The same samples make the same bytes: the archive has no owners and no times.
    """
    paths = sorted(path for path in source.rglob("*") if path.suffix in KINDS and path.is_file())
    if not paths:
        return
    with replacing(folder / ARCHIVE) as temporary, tarfile.open(temporary, "w:xz", preset=6) as archive:
        for path in paths:
            info = tarfile.TarInfo(f"samples/{path.relative_to(source)}")
            info.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(info, file)
    line = f"{_sha256(folder / ARCHIVE)}  {ARCHIVE}\n"  # as `sha256sum --check` reads it
    (folder / DIGEST).write_text(line, encoding="utf-8")


def damage(folder: Path) -> Iterator[str]:
    """What is wrong with a folder's archive, if it is there; it may be elsewhere."""
    archive, said = folder / ARCHIVE, folder / DIGEST
    if archive.is_file() and not said.is_file():
        yield f"{DIGEST}: there is no such file, which has the hash of {ARCHIVE}"
    elif archive.is_file() and said.read_text(encoding="utf-8").split()[:1] != [_sha256(archive)]:
        yield f"{ARCHIVE}: it does not have the hash of {DIGEST}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
