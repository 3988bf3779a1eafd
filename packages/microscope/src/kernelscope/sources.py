"""A CUDA file with the headers that it includes, at any depth, and the emulator's own files."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernelscope.errors import CompileError
from kernelscope.files import read_text

#: This package.
PACKAGE = Path(__file__).resolve().parent
#: The emulator's sources.
EMULATOR = PACKAGE / "cuda"
#: The emulator's own headers, instead of CUDA's.
EMULATOR_HEADERS = EMULATOR / "include"
#: Stand-ins for headers of the host that a kernel's file may include, and that NVRTC does not have.
HOST_HEADERS = EMULATOR / "host"
#: What a file has that is a program of the host, too.
_HOST_CODE = re.compile(r"^[^/\n\"]*(?:\bmain\s*\(|<<\s*<)", re.MULTILINE)
_DIRECTIVE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """A CUDA file. Messages call it `called`, by default as its file is called; `includes` are folders of headers."""

    path: Path
    called: str = ""
    includes: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.called or self.path.stem

    @property
    def files(self) -> list[Path]:
        """The file and every file that it includes in quotes, each once, in the order in which they are met.

        A header is looked for next to the file that includes it, then in `includes`. Headers in angle brackets are the
        compiler's own and do not count, nor do those that it has by the name in quotes, such as "cuda_fp16.h". Raises
        UserError, with file and line, for a header that is not there, unless a file has host code, which may need it.
        """
        found: dict[Path, None] = {}
        _collect(self.path, self.includes, found)
        return list(found)


class CudaFile(Protocol):
    """What the emulator compiles: a Source, or what has its attributes."""

    @property
    def path(self) -> Path: ...
    @property
    def name(self) -> str: ...
    @property
    def includes(self) -> Sequence[Path]: ...
    @property
    def files(self) -> list[Path]: ...


def emulator_files() -> list[Path]:
    """The emulator's own files, and the headers that a kernel finds there."""
    return [path for path in sorted(EMULATOR.glob("*/**/*")) if path.is_file()]


def code_of(path: Path) -> str:
    """The text of a source file. Raises UserError if it is not text."""
    return read_text(path)


@functools.cache  # every header of every kernel is looked at again
def has_host_code(text: str) -> bool:
    """Whether a CUDA file has a `main` or a launch `<<<...>>>`."""
    return bool(_HOST_CODE.search(text))


def _collect(path: Path, includes: Sequence[Path], found: dict[Path, None], whole: bool = False) -> None:
    if path in found:
        return
    found[path] = None
    text = code_of(path)
    whole = whole or has_host_code(text)  # then a header may be the host's
    for include in _DIRECTIVE.finditer(text):
        places = [folder / include[1] for folder in (path.parent, *includes)]
        header = next((place for place in places if place.is_file()), None)
        if header is None and whole:
            continue
        if header is None and any((folder / include[1]).is_file() for folder in (HOST_HEADERS, EMULATOR_HEADERS)):
            continue
        if header is None:
            line = text.count("\n", 0, include.start()) + 1
            nor = "".join(f", nor in {folder}" for folder in includes)
            raise CompileError(
                f'{path}:{line}: #include "{include[1]}": there is no such file here{nor}; add it or correct the name'
            )
        _collect(Path(*header.parts) if ".." not in header.parts else header.resolve(), includes, found, whole)
