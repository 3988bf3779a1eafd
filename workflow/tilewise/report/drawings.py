"""One drawing per kernel: what is new in it, or else which part of C a block, a warp and a thread compute."""

import functools
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, FileSystemLoader

from kernelscope.files import read_text
from tilewise import ROOT
from tilewise.study.kernel import Kernel

#: The longer side of a block's part of C, in units of the drawing.
_SIDE = 170.0
#: An excerpt has so many lines at most.
MOST_LINES = 9


@functools.cache
def pieces(file: str = "pieces.html.j2") -> Any:
    """The macros of a file of report/template, which escape what they show unless it is Markup."""
    loader = FileSystemLoader(ROOT / "report" / "template")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(file).module


def has_idea(kernel: str) -> bool:
    """Whether a kernel has its own drawing in ideas.html.j2."""
    return hasattr(pieces("ideas.html.j2"), kernel)


def idea_svg(kernel: str, stages: int, waves: float, name: str, title: str) -> str:
    """The drawing of what is new in a kernel, as SVG for an HTML page; `name` is unique on the page."""
    idea = {"name": name, "title": title, "stages": stages, "waves": waves}
    return str(getattr(pieces("ideas.html.j2"), kernel)(idea))


def tile_svg(tiles: Mapping[str, Any], name: str, title: str) -> str:
    """The drawing of `tiling.tile_sizes` as SVG for an HTML page; `name` is unique on the page."""
    side, depth = max(tiles["block"]), tiles["depth"] or 0
    scale = _SIDE / max(side, 0.7 * (side + depth))  # deep tiles need room, too
    deep = min(max(depth * scale, 12.0), _SIDE)
    return str(pieces().tiling(name, title, tiles, scale, deep, 32 + deep, 48 + deep))


def excerpt(kernel: Kernel, first: str) -> tuple[int, int, list[str]]:
    """The lines of a kernel's file that carry its idea: the numbers of the first and the last, and the lines.

    `first` is how the first line begins. They end with a whole statement where its block ends, or after MOST_LINES,
    and lose their indentation; empty lines and `#pragma unroll` are left out. Raises LookupError if no line begins like
    that.
    """
    lines = read_text(kernel.path).splitlines()
    at = next((number for number, line in enumerate(lines) if line.strip().startswith(first)), None)
    if at is None:
        raise LookupError(f"{kernel.path}: no line begins with {first!r}")
    indent = len(lines[at]) - len(lines[at].lstrip())
    told = [(number, line[indent:]) for number, line in enumerate(lines[at:], at + 1) if line.strip()]
    told = [(number, line) for number, line in told if line.strip() != "#pragma unroll"]
    outside = (place for place, (number, _) in enumerate(told) if lines[number - 1][:indent].strip())
    told = told[: min(MOST_LINES, next(outside, MOST_LINES))]  # what the first line begins has ended
    while told and not _is_whole([line.partition("//")[0].rstrip() for _, line in told]):
        told.pop()
    return told[0][0], told[-1][0], [line for _, line in told]


def _is_whole(lines: list[str]) -> bool:
    """Whether lines of C++ end with the end of a statement, outside of any bracket that they open."""
    text = "".join(lines)
    return text.endswith((";", "}")) and all(
        text.count(first) == text.count(last) for first, last in ("()", "{}", "[]")
    )
