"""The files of a kernel: its source, and the headers that it includes, at any depth."""

import ast
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewise import KERNELS, UserError
from tilewise.files import read_text

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


#: A comment of C++; or, as group 1, what may look like the beginning of one: a text or a letter in quotes.
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """A CUDA file that is not in the registry."""

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
    return read_text(path)


def files_of(path: Path) -> list[Path]:
    """A source file and every file that it includes in quotes, each once, in the order in which they are met.

    A header is looked for next to the file that includes it, then in kernels/include. Headers in angle brackets are the
    compiler's own and do not count, nor do those that it has by the name in quotes, such as "cuda_fp16.h". Raises
    UserError, with file and line, for a header that is not there.
    """
    found: dict[Path, None] = {}
    _collect(path, found)
    return list(found)


def lines_of_code(paths: Iterable[Path]) -> int:
    """How many lines of some files hold code: not blank lines, comments, docstrings, and what imports or includes."""
    return sum(len(_python(text) if path.suffix == ".py" else _cpp(text)) for path in paths for text in [code_of(path)])


def _python(text: str) -> list[str]:
    """The lines of Python code."""
    left_out = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and _no_code(node)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    numbered = enumerate(text.splitlines(), 1)
    return [each for number, each in numbered if number not in left_out and each.partition("#")[0].strip()]


def _no_code(node: ast.stmt) -> bool:
    docstring = (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    return docstring or isinstance(node, ast.Import | ast.ImportFrom)


def _cpp(text: str) -> list[str]:
    """The lines of C++ code."""
    lines = without_comments(text).splitlines()
    return [line for line in lines if line and not re.match(r"\s*#\s*(include|pragma once)", line)]


@functools.cache  # every instance of a kernel asks
def without_comments(text: str) -> str:
    """C++ without its comments and the blanks at the ends of lines. Every line stays where it is."""
    text = _COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text)
    return "\n".join(line.rstrip() for line in text.splitlines())


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
