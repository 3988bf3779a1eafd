"""The files of a kernel: its source, and the headers that it includes, at any depth."""

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

from kernelscope.sources import Source, code_of
from tilewise import KERNELS

INCLUDE = KERNELS / "include"


#: A comment of C++; or, as group 1, what may look like the beginning of one: a text or a letter in quotes.
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.DOTALL)


def files_of(path: Path) -> list[Path]:
    """A source file and every file that it includes in quotes, from its folder or kernels/include, at any depth.

    Raises UserError, with file and line, for a header that is not there.
    """
    return Source(path, includes=(INCLUDE,)).files


def lines_of_code(paths: Iterable[Path]) -> int:
    """Count lines of code: no blank lines, comments, docstrings, imports or includes."""
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
