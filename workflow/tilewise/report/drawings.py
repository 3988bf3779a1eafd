"""One drawing per kernel: which part of C a block, a warp and a thread compute, and what they load for it."""

import functools
from typing import Any

from jinja2 import Environment, FileSystemLoader

from tilewise import ROOT
from tilewise.explain.tiling import Tiling
from tilewise.study.kernel import Kernel

#: The longer side of a block's part of C, in units of the drawing.
_SIDE = 170.0


@functools.cache
def pieces() -> Any:
    """The macros of report/template/pieces.html.j2, which escape what they show unless it is Markup."""
    loader = FileSystemLoader(ROOT / "report" / "template")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("pieces.html.j2").module


def tile_svg(tiles: Tiling, name: str, title: str) -> str:
    """The drawing of a tiling as SVG for an HTML page; `name` is unique on the page."""
    side = max(tiles.block)
    scale = _SIDE / max(side, 0.7 * (side + (tiles.depth or 0)))  # deep tiles need room, too
    deep = min(max((tiles.depth or 0) * scale, 12.0), _SIDE)
    before = deep + 8 * min(tiles.stages, 4)
    return str(pieces().tiling(name, title, tiles, scale, deep, 24 + before, 40 + before))


def excerpt(kernel: Kernel, first: str, count: int = 10) -> tuple[int, list[str]]:
    """The lines of a kernel's file that carry its idea: the number of the first, and up to `count` of them.

    `first` is how the first line begins. They end where its block ends, and lose its indentation. Raises LookupError if
    no line begins like that.
    """
    lines = kernel.path.read_text(encoding="utf-8").splitlines()
    at = next((number for number, line in enumerate(lines) if line.strip().startswith(first)), None)
    if at is None:
        raise LookupError(f"{kernel.path}: no line begins with {first!r}")
    indent = len(lines[at]) - len(lines[at].lstrip())
    found = []
    for line in lines[at : at + count]:
        if line.strip() and len(line) - len(line.lstrip()) < indent:
            break  # what the first line begins has ended
        found.append(line[indent:])
    return at + 1, found
