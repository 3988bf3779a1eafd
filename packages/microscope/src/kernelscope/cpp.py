"""Compile C++ text to a shared library with the machine's own compiler."""

import atexit
import contextlib
import ctypes
import hashlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from kernelscope.errors import CompileError, MachineError, UserError
from kernelscope.files import refusal, take_lock
from kernelscope.sources import PACKAGE

Answer = TypeVar("Answer")
LOG = logging.getLogger("kernelscope")
#: Held as soon as a process has said that it compiles the emulator.
_UNSAID = Lock()
#: The flags of every library; NVRTC's default is C++17 too. `#pragma unroll` belongs to CUDA; g++ does not know it.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-Wno-unknown-pragmas")
#: The cache deletes entries unused for this long; a precompiled header takes 13 MB.
KEPT_S = 30 * 24 * 3600
#: What to do if it cannot be written.
ROOM = "make room there, or name a folder for the cache by XDG_CACHE_HOME"
#: Seconds that a process waits for another one's compilation before it compiles the same itself.
COMPILE_WAIT_S = 120
#: How to come by a compiler.
INSTALL = "apt install g++, dnf install gcc-c++, or conda install gxx"
#: A library that a compiler makes only if it is g++ 11 or newer, with both standard libraries and a linker.
PROBE = """#if !defined __GNUC__ || __GNUC__ < 11 || defined __clang__ || defined __NVCOMPILER
#error not_gxx
#endif
#include <cstdlib>
#include <vector>
extern "C" void* probe() { return std::vector<char*>(1, std::getenv("HOME"))[0]; }
"""
#: What of binutils is needed beyond what the compiler needs itself.
TOOLS = ("addr2line", "c++filt")
#: What stands for this package and for the current folder in the names of files that a library has, so that the same
#: library serves every clone and every installation.
ANYWHERE = "/kernelscope/package"
HERE = "/kernelscope/here"


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
        source.write_text(text, encoding="utf-8")
        run_compiler([*FLAGS, source, *flags, "-o", library])
        library.replace(output)
    return output


def compile_object(name: str, sources: Sequence[Path], flags: Sequence[Any] = (), folders: Sequence[Path] = ()) -> Path:
    """Compile C++ sources that every run shares to one object file, once; returns its path.

    It lies in the user's cache, under a `name` with what depends on the compiler, the flags, and the files in the
    folders of `sources` and in the other `folders` that they include files of.
    """
    own = [flag for flag in (*FLAGS, *prefix_maps(), *flags) if flag != "-shared"]
    # As one unit: most of the compiler's time goes into the standard library's headers.
    unit = "".join(f'#include "{source}"\n' for source in sources)
    digest = _digest(
        ["one unit", *FLAGS, *flags, *(each.name for each in sources)],
        {*(each.parent for each in sources), *folders},
        "*",
    )

    def make(made: Path) -> None:
        _say_once()
        run_compiler([*own, "-c", "-x", "c++", "-", "-o", made], unit)

    return make_once(f"{name}-{digest}.o", make)


def _say_once() -> None:
    if _UNSAID.acquire(blocking=False):
        LOG.info("the emulator is compiled for %s, once; it is kept in %s", version().splitlines()[0], cache_folder())


def make_once(name: str, make: Callable[[Path], Any]) -> Path:
    """A file or folder in the cache, whose name depends on all that goes into it; `make` writes it to a path if it is
    not there.

    Falls back to a temporary folder if no cache is writable. Concurrent builds of one library wait for each other, up
    to a timeout. Raises UserError if the file cannot be written.
    """
    output = cache_folder() / name
    try:
        if not _kept(output):
            _make(output, make)
    except OSError as error:
        raise MachineError(f"{output.parent}: {error.strerror or error}; {ROOM}") from None
    return output


def _make(output: Path, make: Callable[[Path], Any]) -> None:
    lock = take_lock(output.with_name(f".{output.name}.lock"), COMPILE_WAIT_S)
    try:
        if not output.exists():
            with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as temporary:
                made = Path(temporary, output.name)
                make(made)
                with contextlib.suppress(FileExistsError):  # a folder that another process made, which waited no more
                    made.replace(output)
    finally:
        if lock:  # a process that comes between these two lines makes the same once more
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


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
def cache_folder() -> Path:
    """The folder of compiled files, shared by all clones and processes of a user."""
    # A home may be read-only, or not be there.
    of_user = Path(tempfile.gettempdir(), f"kernelscope-{os.getuid()}")
    for place in (os.environ.get("XDG_CACHE_HOME"), "~/.cache", of_user):
        if place:
            with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
                folder = Path(place).expanduser() / "kernelscope"
                folder.mkdir(0o700, parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
                if folder.stat().st_uid == os.getuid():  # not what another user has put there
                    return folder
    temporary = tempfile.TemporaryDirectory(prefix="kernelscope-")
    atexit.register(temporary.cleanup)
    return Path(temporary.name)


def precompile_header(name: str, text: str, flags: Sequence[Any]) -> Path:
    """A header `name` of this text with what it includes, compiled once for sources with these `flags` and kept like
    the objects of `compile_object`; returns the folder that it lies in.

    It is for sources that do not find the standard library's headers: give them -nostdinc, the folder as the last one
    to look for headers in, and `-include name`.
    """
    own = [flag for flag in flags if flag != "-shared"]
    # Without the header that g++ includes unasked, which sources compiled with -nostdinc do not get.
    alone = ["-nostdinc", "-nostdinc++", "-c", "-x", "c++-header"]  # -c: options for the linker do not call it

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / name).write_text(text, encoding="utf-8")
        standard = [flag for place in _standard_folders() for flag in ("-isystem", place)]
        run_compiler([*own, *alone, *standard, folder / name, "-o", folder / f"{name}.gch"])

    return make_once(f"{Path(name).stem}-{_digest([name, text, *own], *_headers(own))}", make)


def macros(header: str, flags: Sequence[Any]) -> list[str]:
    """The names that are defined after `header`, sorted; the compiler is asked once, as for `precompile_header`."""
    name = f"{Path(header).stem}-{_digest([header, *flags], *_headers(flags))}.macros"
    ask = [*flags, "-E", "-dM", "-include", header, "-x", "c++", "-"]

    def make(made: Path) -> None:
        names = sorted(set(re.findall(r"^#define (\w+)", run_compiler(ask), re.MULTILINE)))
        made.write_text("\n".join(names), encoding="utf-8")

    return make_once(name, make).read_text(encoding="utf-8").split()


def _headers(flags: Sequence[Any]) -> tuple[list[Path], str]:
    """The folders that flags name to look for headers in, and the pattern of a header's name."""
    return [Path(str(flag)[2:]) for flag in flags if str(flag).startswith("-I")], "*.h"


def _digest(words: Sequence[Any], folders: Iterable[Path], pattern: str) -> str:
    """The hash of words, of the compiler, and of the files of these names in some folders."""
    digest = hashlib.sha256(repr(([*map(str, words)], compiler(), version())).encode())
    for path in (path for folder in sorted(folders) for path in sorted(folder.glob(pattern)) if path.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def _standard_folders() -> list[str]:
    """Where the compiler looks for the headers of the standard libraries."""
    command = [*compiler(), "-E", "-v", "-x", "c++", os.devnull]
    said = subprocess.run(
        command, env={**os.environ, "LC_ALL": "C"}, capture_output=True, encoding="utf-8", check=False
    ).stderr
    listed = re.search(r"#include <\.\.\.> search starts here:\n(.*?)End of search list", said, re.DOTALL)
    return [line.strip() for line in listed[1].splitlines()] if listed else []


def preprocess(text: str, flags: Iterable[Any] = ()) -> str:
    """`text`, a C++ translation unit, after the preprocessor, with line markers."""
    return run_compiler([*(flag for flag in FLAGS if flag != "-shared"), *flags, "-E", "-x", "c++", "-"], text)


def include_options(path: Path) -> list[str]:
    """Flags with which `#include "NAME"` finds a file by its name alone, whatever its folder is called."""
    return ["-iquote", str(path.resolve().parent)]


def compiler() -> list[str]:
    """The C++ compiler's command as a list of words."""
    return shlex.split(os.environ.get("CXX") or "g++")


def _asked_once(ask: Callable[..., Answer]) -> Callable[..., Answer]:
    """Keep the answers of each compiler that CXX names."""
    answers = cache(lambda command, *arguments: ask(*arguments))
    return wraps(ask)(lambda *arguments: answers(tuple(compiler()), *arguments))


@_asked_once
def version() -> str:
    """The version of the compiler, as it prints it."""
    return run_compiler(["--version"])


@_asked_once
def check() -> None:
    """Raise UserError if the compiler is missing, is not g++ 11 or newer, or makes no library that this process loads.

    It takes a tenth of a second.
    """
    called = f"the C++ compiler {version().splitlines()[0]} ({shlex.join(compiler())})"
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as folder:
        library = Path(folder, "probe.so")
        try:
            run_compiler(["-shared", "-fPIC", "-x", "c++", "-", "-o", library], PROBE)
            ctypes.CDLL(str(library))
        except MachineError:
            raise
        except UserError as error:
            if "not_gxx" in str(error):
                raise UserError(f"{called} is not g++ 11 or newer; install one ({INSTALL}) and set CXX to it") from None
            raise UserError(
                f"{called} cannot make a library: {error}; install it whole, with the C library's headers ({INSTALL}), "
                "or set CXX to another g++"
            ) from None
        except OSError as error:
            raise UserError(
                f"{called} makes what this machine cannot load: {error}; add -static-libstdc++ to CXX, or set it to "
                "another g++"
            ) from None
    for name in TOOLS:
        tool(name)


@_asked_once
def accepts_flag(flag: str) -> bool:
    """Whether the compiler knows a flag."""
    try:
        run_compiler([flag, "-fsyntax-only", "-x", "c++", os.devnull])
    except UserError:
        return False
    return True


@_asked_once
def tool(name: str) -> str:
    """Path of a tool that comes with the compiler, such as addr2line; in a conda environment its name has a prefix.

    Raises UserError if it is not there.
    """
    path = shutil.which(run_compiler([f"-print-prog-name={name}"]).strip())
    if not path:
        raise UserError(f"there is no {name}, which belongs to the C++ compiler's binutils; install them ({INSTALL})")
    return path


def run_compiler(arguments: Iterable[Any], text: str = "") -> str:
    """Run the compiler, which may read `text`, and return what it prints. Raises CompileError if it fails, and
    MachineError if it is missing or the machine is at fault."""
    command = [*compiler(), *map(str, arguments)]
    english = {**os.environ, "LC_ALL": "C"}  # otherwise _first_error would not find the word `error`
    try:
        done = subprocess.run(
            command, env=english, input=text, check=False, capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError:
        raise MachineError(
            f"there is no C++ compiler '{command[0]}'; install one ({INSTALL}) or set CXX to yours"
        ) from None
    if full := done.returncode and refusal(done.stderr):
        places = f"{cache_folder()} and in {tempfile.gettempdir()}, or name other folders by XDG_CACHE_HOME and TMPDIR"
        raise MachineError(f"the C++ compiler cannot go on: {full}; make room in {places}; use fewer cores for memory")
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode).name
        raise MachineError(f"the C++ compiler was ended by {ended}, perhaps for want of memory; run with fewer cores")
    if done.returncode:
        raise CompileError(_first_error(done.stderr) or f"{command[0]}: exit status {done.returncode}")
    return done.stdout


def _first_error(stderr: str) -> str | None:
    """The first error of the compiler as `file:line: message`; else what it, the assembler or the linker says."""
    if found := re.search(r"^(\S[^:\n]*:\d+):(?:\d+:)? (?:fatal )?error: (.*)$", stderr, re.MULTILINE):
        return f"{display_path(found[1])}: {found[2]}"
    if found := re.search(r"^(.*: undefined reference to .*)$", stderr, re.MULTILINE):
        return found[1]
    lines = stderr.strip().splitlines()
    said = [line for line in lines if re.match(r"\S*(?:ld|as)(?:\.\w+)?: |\S+: (?:fatal )?error: ", line)]
    return next(iter([*said, *lines[-1:]]), None)


def display_path(path: Path | str) -> str:
    """A path as a user would type it: relative to the current folder if it lies there. It may begin with ANYWHERE or
    HERE."""
    for sign, folder in ((ANYWHERE, PACKAGE), (HERE, Path.cwd())):
        if str(path).startswith(f"{sign}/"):
            path = f"{folder}{str(path).removeprefix(sign)}"
    return str(Path(path).relative_to(Path.cwd()) if Path(path).is_relative_to(Path.cwd()) else path)


def prefix_maps() -> list[str]:
    """Flags that write HERE for the current folder and ANYWHERE for this package; of two that fit, g++ takes the
    last."""
    return [f"-ffile-prefix-map={folder}={sign}" for folder, sign in ((Path.cwd(), HERE), (PACKAGE, ANYWHERE))]
