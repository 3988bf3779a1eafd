"""Guess how a kernel is launched: its template, its blocks, and what a block covers."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.expressions import whole_numbers
from kernelscope.host_launches import HostLaunch
from kernelscope.host_values import Expression
from tilewise.grade.handin import HandIn, sizes
from tilewise.grade.roles import argument_ways
from tilewise.study.kernel import Kernel, Kind, LaunchEntry
from tilewise.study.precision import PRECISIONS

#: Rows or columns that a block which takes all of them covers: more than there are.
ALL = 1 << 20
TILE = re.compile(r"tile|block|bs$|^b$|ts$|size|^w$|width|dim", re.IGNORECASE)
_NTB = re.compile(r"ntb|coarse|factor|tiles|work|wpt|per_?thread|num", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """A way to call a kernel: its arguments, the rows and columns of C per block, threads of a block, and whether the
    grid's x runs over rows; `equal`: all sizes of the product are one."""

    arguments: tuple[Any, ...]
    equal: bool
    template: tuple[str, ...]
    block: tuple[int, ...]
    covers: tuple[int, int]
    by_rows: bool = False
    flat: bool = False
    shared: int = 0

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Call":
        """A call whose tuples have become lists."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
        return cls(**values)

    def kernel(self, function: str, path: Path, dtype: str) -> Kernel:
        """The kernel that this call launches: a function of a file, for an element type."""
        rows, columns = self.covers
        down, across = f"ceil_div(n, {rows})", f"ceil_div(m, {columns})"
        grid: tuple[str, ...] = (down, across) if self.by_rows else (across, down)
        if self.flat:
            grid = (f"ceil_div(n * m, {math.prod(self.block)})",)
        launch = LaunchEntry(
            function=function,
            template=self.template,
            block=self.block,
            grid=grid,
            arguments=self.arguments,
            dynamic_shared_bytes=self.shared,
        )
        has_beta = any(isinstance(a, Mapping) for a in self.arguments)
        return Kernel(
            function, function, Kind.CUDA, (dtype,), path.name, launches=(launch,), reads_c=has_beta,
            folder=path.parent,
        )  # fmt: skip


def blocks_of(
    hand_in: HandIn, launch: HostLaunch | None, task: Mapping[str, Any], side: int
) -> list[list[tuple[int, ...]]]:
    """Alternatives, the likeliest first, each the blocks with which a kernel must be right: what the host's code says,
    or else the template's tile `side`, the tiles of shared arrays, or the task's blocks."""
    if "block" in hand_in.options:
        return [[sizes(hand_in.options["block"])]]
    if launch:
        given = tuple(map(hand_in.value, hand_in.extents(launch, 1)))
        if 0 < math.prod(given) <= 1024:
            return [[given]]
    sides = [side] if side else tiles_of(hand_in)
    if "threadIdx.y" in hand_in.used:
        return [[(each, each)] for each in sides] or [[sizes(each) for each in task["blocks"]]]
    return [[(number,)] for each in sides for number in (each * each, each)] or [[(256,)]]


def tiles_of(hand_in: HandIn) -> list[int]:
    """Widths that the kernel's tile may have, the likeliest first: of shared arrays, or else numbers of the file that
    it uses."""
    shared = " ".join(re.findall(r"__shared__([^;]*);", hand_in.body))
    extents = [
        next(iter(whole_numbers([each], hand_in.numbers)), 0)
        for m in re.finditer(r"\[([^\]]+)\]\s*\[([^\]]+)\](?!\s*\[)", shared)
        for each in m.groups()
    ]
    if found := [each for each, _ in Counter(extents).most_common() if 2 <= each <= 32]:
        return found
    used = [
        value
        for name, value in hand_in.numbers.items()
        if re.search(rf"\bblockIdx\.\w\s*\*\s*{name}\b|\b{name}\s*\*\s*blockIdx", hand_in.body) and 2 <= value <= 32
    ]
    own = set(re.findall(r"\w+", hand_in.body)) & set(hand_in.numbers)
    used += [hand_in.numbers[name] for name in sorted(own) if TILE.search(name) and 2 <= hand_in.numbers[name] <= 32]
    return used[:1]


def template_of(hand_in: HandIn, launch: HostLaunch | None, ntb: int) -> tuple[list[str], int, int]:
    """The arguments of a kernel's template, the width of the tile among them, or 0, and its tiles per block, or 0."""
    given = [hand_in.value(Expression(text, launch.scope, launch.at)) for text in launch.template] if launch else []
    arguments, side, coarse = [], 0, 0
    for place, each in enumerate(hand_in.template):
        if each.type in ("typename", "class") or not each.type:
            arguments.append("dtype")
            continue
        is_ntb = _NTB.search(each.name) and not re.search("tile_?(?:size|w)|^tile$", each.name, re.IGNORECASE)
        value = next(iter(given[place : place + 1]), 0) or (ntb if is_ntb else 16)
        arguments.append(str(value))
        if is_ntb:
            coarse = value
        elif 2 <= value <= 32:
            side = side or value
    return arguments, side, coarse


def coverings(hand_in: HandIn, block: tuple[int, ...], coarse: int) -> Iterator[tuple[tuple[int, int], bool, bool]]:
    """What a block may cover, the likeliest first: its rows and columns of C, whether the grid's x runs over rows, and
    whether blocks are counted through all of C."""
    if "blockIdx" not in hand_in.used:
        yield (ALL, ALL), False, False
        return
    x, y = (*block, 1)[:2]
    is_grid_flat = "blockIdx.y" not in hand_in.used
    grid = hand_in.extents(hand_in.launches[-1], 0) if hand_in.launches else []
    across, down = [*map(hand_in.divisor, grid), 0, 0][:2]
    if across and down and not is_grid_flat:
        yield from (((down, across), False, False), ((across, down), True, False))
    if y > 1:
        yield from (((y, x), False, False), ((x, y), True, False))
        if coarse > 1:
            yield from (((y, x * coarse), False, False), ((y * coarse, x), False, False))
        yield (y, x), True, False
        return
    side = math.isqrt(x)
    if is_grid_flat:
        yield (1, 1), False, True
        yield from (
            ((1, ALL), True, False),
            ((x, ALL), True, False),
            ((ALL, x), False, False),
            ((ALL, 1), False, False),
        )
        return
    if side**2 == x:
        yield from (((side, side), False, False), ((side, side), True, False))
    yield from (((1, x), False, False), ((1, x), True, False), ((x, 1), True, False))


def calls(hand_in: HandIn, arrays: Mapping[str, str], task: Mapping[str, Any], dtype: str) -> Iterator[list[Call]]:
    """Ways to call a kernel, the likeliest first; each is a list with a call per block."""
    launch = hand_in.launches[-1] if hand_in.launches else None
    ntb, itemsize = task.get("ntb", 2), PRECISIONS[dtype].itemsize
    template, side, coarse = template_of(hand_in, launch, ntb)
    if any(_NTB.search(each.name) for each in hand_in.parameters):
        coarse = ntb
    named = (
        value
        for name, value in hand_in.numbers.items()
        if _NTB.search(name) and name in hand_in.body and 2 <= value <= 16 and not TILE.fullmatch(name)
    )
    coarse = coarse or next(named, 1)
    shared = 4 * 1024 * itemsize if "extern" in hand_in.body else 0
    alternatives = blocks_of(hand_in, launch, task, side)
    tile = next(iter(tiles_of(hand_in)), 16)
    for arguments, equal in argument_ways(hand_in, arrays, ntb, tile, itemsize):
        for blocks in alternatives:
            for each in zip(*(coverings(hand_in, block, coarse) for block in blocks), strict=False):
                yield [
                    Call(arguments, equal, tuple(template), block, covers, by_rows, flat, shared)
                    for block, (covers, by_rows, flat) in zip(blocks, each, strict=True)
                ]
