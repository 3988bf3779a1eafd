"""The macros of the pages, and the lines of code beside a drawing of a kernel."""

import functools
from typing import Any

from jinja2 import Environment, FileSystemLoader

from kernelscope.files import read_text
from tilewise import ROOT
from tilewise.study.kernel import Kernel


@functools.cache
def pieces(file: str = "pieces.html.j2") -> Any:
    """The macros of a file of report/template, which escape what they show unless it is Markup."""
    loader = FileSystemLoader(ROOT / "report" / "template")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(file).module


def excerpt(kernel: Kernel, first: str, count: int) -> tuple[int, int, list[str]]:
    """The lines of a kernel's file that carry its idea: the numbers of the first and the last, and the lines.

    `first` is how the first of `count` lines begins. They lose their indentation; empty lines and `#pragma unroll` are
    left out. Raises LookupError if no line begins like that.
    """
    lines = read_text(kernel.path).splitlines()
    at = next((number for number, line in enumerate(lines) if line.strip().startswith(first)), None)
    if at is None:
        raise LookupError(f"{kernel.path}: no line begins with {first!r}")
    indent = len(lines[at]) - len(lines[at].lstrip())
    shown = [number for number, line in enumerate(lines[at:], at) if line.strip() not in ("", "#pragma unroll")][:count]
    return shown[0] + 1, shown[-1] + 1, [lines[number][indent:] for number in shown]
