"""Compile C++ text to a shared library with the machine's own compiler."""

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilewise import ROOT, UserError

#: The flags of every library; NVRTC's default is C++17 too. `#pragma unroll` belongs to CUDA; g++ does not know it.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-Wno-unknown-pragmas")


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


def compile_object(source: Path, output: Path) -> Path:
    """Compile a C++ file to the object file `output`, for `flags` of compile_library. Returns the path."""
    run_compiler([*(flag for flag in FLAGS if flag != "-shared"), "-c", source, "-o", output])
    return output


def beside(path: Path) -> list[str]:
    """Flags with which `#include "NAME"` finds a file by its name alone, whatever its folder is called."""
    return ["-iquote", str(path.resolve().parent)]


def compiler() -> list[str]:
    """The C++ compiler's command as a list of words."""
    return shlex.split(os.environ.get("CXX") or "g++")


def tool(name: str) -> str:
    """Path of a tool that comes with the compiler, such as nm; in a conda environment its name has a prefix."""
    return run_compiler([f"-print-prog-name={name}"]).strip()


def run_compiler(arguments: Iterable[Any]) -> str:
    """Run the compiler and return what it prints. Raises UserError if it is missing or fails."""
    command = [*compiler(), *map(str, arguments)]
    english = {**os.environ, "LC_ALL": "C"}  # otherwise _first_error would not find the word `error`
    try:
        done = subprocess.run(command, env=english, check=False, capture_output=True, text=True)
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
    """A path as a user would type it: relative to the current folder or the repository, if it lies in one of them."""
    for folder in (Path.cwd(), ROOT):
        if Path(path).is_relative_to(folder):
            return str(Path(path).relative_to(folder))
    return str(path)
