"""One drawing per kernel: which part of C a block, a warp and a thread compute, and what they load for it."""

import html

from tilewise.explain.tiling import Tiling
from tilewise.study.kernel import Kernel

#: The longer side of a block's part of C, in units of the drawing, and the least that anything is drawn.
_SIDE, _LEAST = 170.0, 5.0


def tile_svg(tiles: Tiling, name: str, title: str) -> str:
    """The drawing of a tiling as SVG for an HTML page; `name` is unique on the page."""
    rows, columns = tiles.block
    scale = _SIDE / max(rows, columns, 0.7 * (max(rows, columns) + (tiles.depth or 0)))  # deep tiles need room, too
    high, wide = rows * scale, columns * scale
    deep = min(max((tiles.depth or 0) * scale, 12.0), _SIDE)
    left, top = 24 + deep + 8 * min(tiles.stages, 4), 40 + deep + 8 * min(tiles.stages, 4)
    parts = []
    for stage in reversed(range(min(tiles.stages, 4))):  # the later ones lie behind
        shift = 8 * stage
        parts += [
            _box(left - deep - 8 - shift, top, deep, high, "operand", f"A: {rows} × {tiles.depth or 'p'}"),
            _box(left, top - deep - 8 - shift, wide, deep, "operand", f"B: {tiles.depth or 'p'} × {columns}"),
        ]
    parts.append(_box(left, top, wide, high, "block", f"block: {rows} × {columns} of C"))
    if tiles.warp:
        of_warp = [min(size, whole) * scale for size, whole in zip(tiles.warp, tiles.block)]
        for part in range(tiles.repeats):
            at = left + part * wide / tiles.repeats
            words = f"warp: {tiles.warp[0]} × {tiles.warp[1]}"
            parts.append(_box(at, top, of_warp[1], of_warp[0], "warp", words))
    if tiles.thread:
        for part in range(tiles.repeats):
            at = left + part * wide / tiles.repeats
            words = f"thread: {tiles.thread[0]} × {tiles.thread[1]}"
            parts.append(_box(at, top, tiles.thread[1] * scale, tiles.thread[0] * scale, "thread", words))
    depth = tiles.depth or "p"
    middle = left + wide / 2
    parts += [
        _label(middle, top - deep - 14 - 8 * (min(tiles.stages, 4) - 1), f"B: {depth} × {columns}", "middle"),
        _label(left - deep - 8 * min(tiles.stages, 4), top + high + 14, f"A: {rows} × {depth}", "start"),
        _label(left + wide + 8, top + 10, "block of C:", "start"),
        _label(left + wide + 8, top + 23, f"{rows} × {columns}", "start"),
    ]
    line = top + 42
    for kind, share in (("warp", tiles.warp), ("thread", tiles.thread)):
        if share:
            parts.append(_box(left + wide + 8, line - 8, 9, 9, kind, ""))
            parts.append(_label(left + wide + 21, line, f"a {kind}: {share[0]} × {share[1] * tiles.repeats}", "start"))
            line += 15
    width, height = left + wide + 130, max(top + high + 22, line)
    said = html.escape(f"{title}. {tiles.words}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-labelledby="{name}-title" aria-describedby="{name}-desc" '
        f'style="width: {1.25 * width:.0f}px;font-family: Verdana, sans-serif">'
        f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{said}</desc>'
        f"{''.join(parts)}</svg>"
    )


#: Fill and outline of each part; the page's variables follow its colour scheme.
_LOOKS = {
    "operand": "fill:var(--line);stroke:var(--soft)",
    "block": "fill:var(--faint);stroke:var(--ink)",
    "warp": "fill:#de8f05;fill-opacity:.45;stroke:#de8f05",
    "thread": "fill:#0173b2;stroke:#0173b2",
}


def _box(x: float, y: float, width: float, height: float, kind: str, words: str) -> str:
    said = f"<title>{html.escape(words)}</title>" if words else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, _LEAST):.1f}" height="{max(height, _LEAST):.1f}" '
        f'style="{_LOOKS[kind]}">{said}</rect>'
    )


def _label(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" style="font-size:10px;text-anchor:{anchor};fill:var(--ink)">'
        f"{html.escape(words)}</text>"
    )


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
