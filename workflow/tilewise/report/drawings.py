"""One drawing per kernel: what is new in it, or else which part of C a block, a warp and a thread compute."""

import functools
from typing import Any

from jinja2 import Environment, FileSystemLoader

from kernelscope.files import read_text
from tilewise import ROOT
from tilewise.explain.tiling import Tiling
from tilewise.study.kernel import Kernel

#: The longer side of a block's part of C, in units of the drawing.
_SIDE = 170.0


@functools.cache
def pieces(file: str = "pieces.html.j2") -> Any:
    """The macros of a file of report/template, which escape what they show unless it is Markup."""
    loader = FileSystemLoader(ROOT / "report" / "template")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(file).module


def has_idea(kernel: str) -> bool:
    """Whether a kernel has its own drawing in ideas.html.j2."""
    return hasattr(pieces("ideas.html.j2"), kernel)


def idea_svg(kernel: str, tiles: Tiling, waves: float, name: str, title: str) -> str:
    """The drawing of what is new in a kernel, as SVG for an HTML page; `name` is unique on the page."""
    idea = {"name": name, "title": title, "stages": tiles.stages, "waves": waves}
    return str(getattr(pieces("ideas.html.j2"), kernel)(idea))


def tile_svg(tiles: Tiling, name: str, title: str) -> str:
    """The drawing of a tiling as SVG for an HTML page; `name` is unique on the page."""
    side = max(tiles.block)
    scale = _SIDE / max(side, 0.7 * (side + (tiles.depth or 0)))  # deep tiles need room, too
    deep = min(max((tiles.depth or 0) * scale, 12.0), _SIDE)
    before = deep + 8 * min(tiles.stages, 4)
    return str(pieces().tiling(name, title, tiles, scale, deep, 24 + before, 40 + before))


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
