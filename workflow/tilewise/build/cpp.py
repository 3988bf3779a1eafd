"""Compile C++ text to a shared library with the machine's own compiler."""

import atexit
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tilewise import ROOT, UserError
from tilewise.files import locked

#: The flags of every library; NVRTC's default is C++17 too. `#pragma unroll` belongs to CUDA; g++ does not know it.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-Wno-unknown-pragmas")
#: The cache forgets what nobody has used for so long; a precompiled header has 13 MB.
KEPT_S = 30 * 24 * 3600
#: So long a process waits for what another one compiles, before it does so itself.
WAIT_S = 120
#: What stands for the repository's folder in the names of files that a library knows, so that all clones share it.
ANYWHERE = "/tilewise"


def compile_library(text: str, output: Path | str, flags: Iterable[Any] = ()) -> Path:
    """Compile `text`, a C++ translation unit, to the shared library `output` (a path), replacing it in one step.

    `flags` follow FLAGS, so `-O3` overrides its -O2; they may also name sources or objects. The environment's CXX
    names the compiler, g++ by default. Returns the path. Raises UserError with the compiler's first error, or, if there
    is no compiler, with how to install one; then `output` stays as it was.
    """
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        source, library = Path(folder, "library.cpp"), Path(folder, output.name)
        source.write_text(text)
        run_compiler([*FLAGS, source, *flags, "-o", library])
        library.replace(output)
    return output


def compile_object(source: Path, flags: Sequence[Any] = ()) -> Path:
    """Compile a C++ source that every run shares to an object file, once; returns its path.

    It lies in the user's cache, under a name that depends on the compiler, the flags, and the files in the folder of
    `source`.
    """
    own = [flag for flag in (*FLAGS, *flags) if flag != "-shared"]
    digest = hashlib.sha256(repr((own, version())).encode())
    for path in sorted(source.parent.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    name = f"{source.stem}-{digest.hexdigest()[:24]}.o"
    return made_once(name, lambda made: run_compiler([*own, "-c", source, "-o", made]))


def made_once(name: str, make: Callable[[Path], Any]) -> Path:
    """A file in the cache, whose name depends on all that goes into it; `make` writes it to a path if it is not there.

    If there is no place for a cache, it lies in a folder that goes with the process. A process that wants what another
    is making waits for it, but not forever.
    """
    output = _cache() / name
    if _kept(output):
        return output
    lock = locked(output.with_name(f".{name}.lock"), WAIT_S)
    try:
        if not _kept(output):
            with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{name}.") as temporary:
                made = Path(temporary, name)
                make(made)
                made.replace(output)
    finally:
        if lock:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()
    return output


def _kept(path: Path) -> bool:
    """Whether the cache has a path, which is then in use; if not, the cache loses what is no longer used."""
    with contextlib.suppress(OSError):  # it is not there, or another user's
        os.utime(path)
    if path.exists():
        return True
    for old in path.parent.iterdir():
        with contextlib.suppress(OSError):  # another process removes it, too
            if time.time() - old.stat().st_mtime > KEPT_S:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
    return False


@cache
def _cache() -> Path:
    for place in (os.environ.get("XDG_CACHE_HOME"), Path.home() / ".cache"):
        if place:
            with contextlib.suppress(OSError):
                folder = Path(place, "tilewise")
                folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
                return folder
    temporary = tempfile.TemporaryDirectory(prefix="tilewise-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


def precompiled(name: str, text: str, flags: Sequence[Any]) -> Path:
    """A header `name` of this text with what it includes, compiled once for sources with these `flags` and kept like
    the objects of `compile_object`; returns the folder that it lies in.

    It is for sources that do not find the standard library's headers: give them -nostdinc, the folder as the last one
    to look for headers in, and `-include name`.
    """
    own = [flag for flag in flags if flag != "-shared"]
    folder = _cache() / f"{Path(name).stem}-{_digest_of_headers(name, text, own)}"
    if not _kept(folder):
        with tempfile.TemporaryDirectory(dir=_cache(), prefix=f".{folder.name}.") as temporary:
            made = Path(temporary, folder.name)
            made.mkdir()
            (made / name).write_text(text)
            # Without the header that g++ includes unasked, which sources compiled with -nostdinc do not get.
            standard = [flag for place in _standard_folders() for flag in ("-isystem", place)]
            gch = ["-o", made / f"{name}.gch"]
            run_compiler([*own, "-nostdinc", "-nostdinc++", *standard, "-x", "c++-header", made / name, *gch])
            with contextlib.suppress(OSError):  # another process was faster
                made.replace(folder)
    return folder


def macros(header: str, flags: Sequence[Any]) -> list[str]:
    """The names that are defined after `header`, sorted; the compiler is asked once, as for `precompiled`."""
    name = f"{Path(header).stem}-{_digest_of_headers(header, '', flags)}.macros"
    ask = [*flags, "-E", "-dM", "-include", header, "-x", "c++", "-"]
    return made_once(name, lambda made: made.write_text(_defined(run_compiler(ask)))).read_text().split()


def _defined(said: str) -> str:
    return "\n".join(sorted(set(re.findall(r"^#define (\w+)", said, re.MULTILINE))))


def _digest_of_headers(name: str, text: str, flags: Sequence[Any]) -> str:
    """The hash of a header, of the compiler and its flags, and of the headers in the folders that these name."""
    digest = hashlib.sha256(repr((name, text, flags, version())).encode())
    for flag in flags:
        if str(flag).startswith("-I"):
            for path in sorted(Path(str(flag)[2:]).glob("*.h")):
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _standard_folders() -> list[str]:
    """Where the compiler looks for the headers of the standard libraries."""
    command = [*compiler(), "-E", "-v", "-x", "c++", os.devnull]
    said = subprocess.run(
        command, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False
    ).stderr
    listed = re.search(r"#include <\.\.\.> search starts here:\n(.*?)End of search list", said, re.DOTALL)
    return [line.strip() for line in listed[1].splitlines()] if listed else []


def preprocess(text: str, flags: Iterable[Any] = ()) -> str:
    """`text`, a C++ translation unit, after the preprocessor, with line markers."""
    return run_compiler([*(flag for flag in FLAGS if flag != "-shared"), *flags, "-E", "-x", "c++", "-"], text)


def beside(path: Path) -> list[str]:
    """Flags with which `#include "NAME"` finds a file by its name alone, whatever its folder is called."""
    return ["-iquote", str(path.resolve().parent)]


def compiler() -> list[str]:
    """The C++ compiler's command as a list of words."""
    return shlex.split(os.environ.get("CXX") or "g++")


def version() -> str:
    """What the compiler says of its version, asked once."""
    return _version(*compiler())


@cache
def _version(*_: str) -> str:
    return run_compiler(["--version"])


@cache
def tool(name: str) -> str:
    """Path of a tool that comes with the compiler, such as readelf; in a conda environment its name has a prefix."""
    return run_compiler([f"-print-prog-name={name}"]).strip()


def run_compiler(arguments: Iterable[Any], text: str = "") -> str:
    """Run the compiler, which may read `text`, and return what it prints; UserError if it is missing or fails."""
    command = [*compiler(), *map(str, arguments)]
    english = {**os.environ, "LC_ALL": "C"}  # otherwise _first_error would not find the word `error`
    try:
        done = subprocess.run(
            command, env=english, input=text, check=False, capture_output=True, text=True, errors="replace"
        )
    except OSError:
        raise UserError(
            f"there is no C++ compiler '{command[0]}'; install one (apt install g++, dnf install gcc-c++, "
            "conda install gxx) or set CXX to yours"
        ) from None
    if done.returncode:
        raise UserError(_first_error(done.stderr) or f"{shlex.join(command)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def _first_error(stderr: str) -> str | None:
    """The first error of g++ or clang++ as `file:line: message`, or None."""
    found = re.search(r"^(\S[^:\n]*:\d+):(?:\d+:)? (?:fatal )?error: (.*)$", stderr, re.MULTILINE)
    return f"{shown(found[1])}: {found[2]}" if found else None


def shown(path: Path | str) -> str:
    """A path as a user would type it: relative to the current folder or the repository, if it lies in one of them.

    It may also be one that begins with ANYWHERE.
    """
    if str(path).startswith(f"{ANYWHERE}/"):
        path = f"{ROOT}{str(path).removeprefix(ANYWHERE)}"
    for folder in (Path.cwd(), ROOT):
        if Path(path).is_relative_to(folder):
            return str(Path(path).relative_to(folder))
    return str(path)
