"""The files of a kernel: its source, and the headers that it includes, at any depth."""

import re
from dataclasses import dataclass
from pathlib import Path

from tilewise import KERNELS, UserError

INCLUDE = KERNELS / "include"
#: Stand-ins for headers of the host that a kernel's file may include, and that NVRTC does not have.
HOST_HEADERS = INCLUDE / "nvrtc"
EMULATOR = KERNELS / "emulator"
#: The emulator's own headers, instead of CUDA's.
EMULATOR_HEADERS = EMULATOR / "include"
_DIRECTIVE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def emulator_files() -> list[Path]:
    """The emulator's own files, and the headers that a kernel finds there."""
    return [path for path in sorted((*EMULATOR.glob("*/**/*"), *HOST_HEADERS.rglob("*"))) if path.is_file()]


@dataclass(frozen=True)
class Source:
    """A CUDA file that no registry lists."""

    path: Path

    @property
    def name(self) -> str:
        """What the file is called in messages."""
        return self.path.stem

    @property
    def files(self) -> list[Path]:
        """The file and every file that it includes, at any depth."""
        return files_of(self.path)


def code_of(path: Path) -> str:
    """The text of a source file. Raises UserError if it is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a source file: {error}") from None


def files_of(path: Path) -> list[Path]:
    """A source file and every file that it includes in quotes, each once, in the order in which they are met.

    A header is looked for next to the file that includes it, then in kernels/include. Headers in angle brackets are the
    compiler's own and do not count, nor do those that it has by the name in quotes, such as "cuda_fp16.h". Raises
    UserError, with file and line, for a header that is not there.
    """
    found: dict[Path, None] = {}
    _collect(path, found)
    return list(found)


def _collect(path: Path, found: dict[Path, None]) -> None:
    if path in found:
        return
    found[path] = None
    text = code_of(path)
    for include in _DIRECTIVE.finditer(text):
        places = [folder / include[1] for folder in (path.parent, INCLUDE)]
        header = next((place for place in places if place.is_file()), None)
        if header is None and any((folder / include[1]).is_file() for folder in (HOST_HEADERS, EMULATOR_HEADERS)):
            continue
        if header is None:
            line = text.count("\n", 0, include.start()) + 1
            raise UserError(
                f'{path}:{line}: #include "{include[1]}": there is no such file here, nor in {INCLUDE}; add it or '
                "correct the name"
            )
        _collect(Path(*header.parts) if ".." not in header.parts else header.resolve(), found)
