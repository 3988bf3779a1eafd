"""Mark one hand-in in this process: guess how its kernel is called, trace it, and name its mistakes."""

import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelscope.compile import build_traced
from kernelscope.emulator import LaunchError
from kernelscope.expressions import split, whole_numbers
from kernelscope.fault_kinds import FaultKind
from kernelscope.faults import Fault
from kernelscope.host_launches import HostLaunch
from kernelscope.host_values import Expression
from kernelscope.limits import EMULATED_LIMITS
from kernelscope.tracer import Tracer
from tilewise import UserError
from tilewise.grade.handin import HandIn, copy_device_code, kernels, plain, read_text, sizes
from tilewise.grade.jail import jailed, limit_process
from tilewise.grade.large import LargeProduct
from tilewise.study.expressions import evaluate
from tilewise.study.kernel import Kernel, Kind, LaunchEntry
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.traced.multiplication import Multiplication

#: Seconds of computing of one trace.
LIMIT = 15.0
#: The shape at which the roles of parameters are tried: three sizes, of which every usual tile is a divisor.
TRIED = (64, 32, 96)
#: Rows or columns that a block which takes all of them covers: more than there are.
ALL = 1 << 20
#: How many ways to call a kernel are tried.
MOST_TRIED = 36
#: The size of all matrices for a kernel whose sizes are constants of its file: theirs would take minutes.
CONSTANT = 64
TYPES = {"float": "float", "double": "double", "int": "int32", "T": "float"}
_TILE = re.compile(r"tile|block|bs$|^b$|ts$|size|^w$|width|dim", re.IGNORECASE)
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


class Question(UserError):
    """What a hand-in leaves open, with the line to add."""


# ---- How it is called -----------------------------------------------------------------------------------------------


def choose(found: Sequence[HandIn], task: str) -> HandIn:
    """The kernel of a hand-in that the task is about. Raises Question if several may be it."""
    products = [each for each in found if sum(p.pointer for p in each.parameters) >= 3 or _structs(each)]
    if name := next((each.options["kernel"] for each in found if "kernel" in each.options), ""):
        products = [each for each in found if each.name == name]
    if len(products) > 1:
        is_tiled = task != "naive"
        fitting = [each for each in products if ("__shared__" in each.body) == is_tiled]
        products = fitting or products
    if len(products) > 1:
        words = {"naive": "naive|simple|basic|global", "tiled": "tiled|shared|tile", "multi_tile": "multi|coarse|ntb"}
        others = "|".join(pattern for name, pattern in words.items() if name != task) if task != "multi_tile" else "$^"
        fitting = [each for each in products if re.search(words.get(task, task), each.name, re.IGNORECASE)]
        fitting = [each for each in fitting if not re.search(others, each.name, re.IGNORECASE)] or fitting
        products = fitting or [each for each in products if re.search("mul|mm|gemm", each.name, re.I)] or products
    if not products:
        raise Question("Which kernel makes C from A and B? None takes three pointers. Correct its parameters.")
    if len(products) > 1:
        names = ", ".join(each.name for each in products)
        raise Question(
            f"Which kernel is the hand-in: {names}? Add a line such as // tilewise: kernel={products[0].name}"
        )
    return products[0]


def _structs(hand_in: HandIn) -> list[str]:
    """The types of the parameters that are structs with a pointer, by value."""
    return [
        each.type
        for each in hand_in.parameters
        if not each.pointer and (fields := _fields(hand_in.text, each.type)) and any("*" in f for f in fields)
    ]


def _fields(text: str, name: str) -> list[str]:
    m = re.search(rf"struct\s+{name}\s*\{{([^}}]*)\}}|struct\s*\w*\s*\{{([^}}]*)\}}\s*{name}\s*;", text)
    if not m:
        return []
    fields = []
    for line in (m[1] or m[2] or "").split(";"):
        first, *more = split(line) if line.strip() else [""]
        if first:
            fields += [first, *(f"{' '.join(first.split()[:-1])} {each}" for each in more)]
    return fields


def arrays_of(hand_in: HandIn) -> dict[str, str]:
    """A, B or C by the names of the parameters that point to them. Raises Question if these leave it open."""
    named = [each for each in hand_in.parameters if each.pointer or each.type in _structs(hand_in)]
    if "arguments" in hand_in.options:
        return {}
    if len(named) != 3:
        raise Question(_ask(hand_in, f"it has {len(named)} arrays"))
    written = [
        each.name
        for each in named
        if re.search(rf"\b{each.name}(?:\.\w+)?\s*\[[^;=]*\]\s*(?:[-+*]?=)(?!=)", hand_in.body) and not each.const
    ]
    others = [each.name for each in named if not each.const]
    last = [
        each.name for each in named if re.search(r"(?:^|_|d|h)(?:c|out\w*|res\w*|p)(?:_|$)|^c|^out", each.name, re.I)
    ]
    out = next((each[0] for each in (written, others, last) if len(each) == 1), "")
    out = out or (last[-1] if last else named[-1].name)
    a, b = (each.name for each in named if each.name != out)
    first, second = (
        re.sub(r"^(?:d|dev|h|g|mat|matrix)_?(?=\w)", "", each, flags=re.IGNORECASE).lower() for each in (a, b)
    )
    if (first[:1] == "b" and second[:1] == "a") or (first[:1] == "n" and second[:1] == "m"):
        a, b = b, a
    return {a: "A", b: "B", out: "C"}


def _ask(hand_in: HandIn, why: str) -> str:
    names = ",".join(each.name for each in hand_in.parameters)
    return (
        f"What is {hand_in.name}({names}) called with? {why[:1].upper()}{why[1:]}. Add a line with its arguments "
        "in their order, such as // tilewise: arguments=A,B,C,n,p,m (A is n x p, B p x m, C n x m)"
    )


def _size_of(name: str, arrays: Mapping[str, str]) -> str:
    """n, p or m if a name such as `numARows`, `wB` or `lda` says it, "?" if not."""
    low = re.sub(r"^(?:num_?(?:of_?)?|n_|nr_|d_)(?=\w)", "", name.lower()) if len(name) > 2 else name.lower()
    shapes = {"A": ("n", "p"), "B": ("p", "m"), "C": ("n", "m")}
    of = {"a": ("n", "p"), "b": ("p", "m"), "c": ("n", "m"), "m": ("n", "p"), "p": ("n", "m"), "n": ("p", "m")}
    of |= {re.sub(r"^(?:d|dev|h|g)_", "", each.lower()): shapes[role] for each, role in arrays.items()}
    array = "|".join(map(re.escape, of))
    for kind, pattern in ((0, "rows?|height|h"), (1, "col(?:umn)?s?|width|w|ld|stride|pitch")):
        named = rf"({array})_(?:{pattern})", rf"(?:{pattern})_(?:of_?|in_?)?({array})"
        for form in (*named, rf"_?([abc])_?(?:{pattern})", rf"(?:{pattern})_?(?:of_?)?([abc])"):
            if m := re.fullmatch(form, low):
                return of[m[1]][kind]
    return "?"


def argument_ways(
    hand_in: HandIn, arrays: Mapping[str, str], ntb: int, tile: int, itemsize: int
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """The ways to call a kernel, the likeliest first, and whether all sizes are one. Raises Question for a parameter
    that has no role."""
    if "arguments" in hand_in.options:
        yield tuple(hand_in.options["arguments"].split(",")), hand_in.options["arguments"].count("p") == 0
        return
    fixed: list[Any] = []
    open_at: list[int] = []
    for place, each in enumerate(hand_in.parameters):
        if each.name in arrays and not each.pointer:
            fixed.append(_struct(hand_in, each.type, arrays[each.name]))
        elif each.name in arrays:
            fixed.append(arrays[each.name])
        elif each.type in ("float", "double", "T"):
            beta = re.search("beta", each.name, re.IGNORECASE)
            fixed.append({"dtype": "0.0" if beta else "1.0"})
        elif re.search(r"int|long|size_t|unsigned|short", each.type):
            known = _size_of(each.name, arrays)
            if re.search("_?sz$|bytes|smem|shared", each.name, re.IGNORECASE):
                known = str(tile * tile * itemsize)
            elif re.search("tile|block", each.name, re.IGNORECASE):
                known = str(tile)
            elif re.fullmatch("ntb", each.name, re.IGNORECASE):
                known = str(ntb)
            fixed.append(_typed(each.type, known))
            if known == "?":
                open_at.append(place)
        else:
            raise Question(_ask(hand_in, f"'{each.type}' of {each.name} is no type that is expected here"))
    if len(open_at) > 3:
        raise Question(_ask(hand_in, f"it has {len(open_at)} numbers"))
    names = [hand_in.parameters[place].name for place in open_at]
    if not open_at:
        struct_sizes = any("struct" in a for a in fixed if isinstance(a, Mapping))
        has_sizes = struct_sizes or any(re.search(r"\b[npm]\b", str(a)) for a in fixed if a not in ("A", "B", "C"))
        if not has_sizes and not constant_sizes(hand_in):
            raise Question(_ask(hand_in, "no parameter is a size of the matrices"))
        yield tuple(fixed), not has_sizes
        return
    if len(open_at) == 1:
        ways: list[tuple[str, ...]] = [("n",)]
    else:
        ways = [*itertools.permutations("npm", len(open_at))]
    votes = _votes(hand_in, arrays, names)
    ways.sort(key=lambda way: -sum(votes.get((name, size), 0) for name, size in zip(names, way)))
    for way in ways:
        given = list(fixed)
        for place, size in zip(open_at, way):
            given[place] = _typed(hand_in.parameters[place].type, size)
        yield tuple(given), len(open_at) == 1 and not any(re.fullmatch("[pm]", str(a)) for a in fixed)


def constant_sizes(hand_in: HandIn) -> list[str]:
    """The constants of the file that are the sizes of the matrices, if no parameter is one: literals that the kernel
    uses, but not as a size of shared memory; of those below 32, which may be tiles, what rows or columns end at."""
    literal = r"[ \t]*\(?[ \t]*\d+(?:[ \t]*<<[ \t]*\d+)?[ \t]*\)?"
    shared = " ".join(re.findall(r"__shared__[^;]*;", hand_in.body))
    return [
        name
        for name, value in hand_in.numbers.items()
        if re.search(rf"\b{name}\b" if value >= 32 else rf"(?:<|>=)\s*{name}\b", hand_in.body)
        and not re.search(rf"\b{name}\b", shared)
        and not re.search(r"tile|block|thread|bs$|ts$|ntb|coarse|factor|work|wpt", name, re.IGNORECASE)
        and re.search(rf"define[ \t]+{name}{literal}[ \t]*$|\b{name}[ \t]*={literal}[ \t]*[,;]", hand_in.text, re.M)
    ]


def set_constants(folder: Path, names: Sequence[str], value: int) -> None:
    """Give the constants of these names a value in all files of a folder."""
    for path in (each for each in folder.rglob("*") if names and each.is_file()):
        text = path.read_text(encoding="utf-8")
        for name in names:
            text = re.sub(rf"(define[ \t]+{name})[ \t][^\n]*", rf"\g<1> {value}", text)
            text = re.sub(rf"(\b{name}[ \t]*=)[^=,;][^,;]*", rf"\g<1> {value}", text)
        path.write_text(text, encoding="utf-8")


def _typed(kind: str, value: str) -> Any:
    if "?" in value:
        return value
    if re.search(r"size_t|long", kind):
        return {"uint64" if "size_t" in kind or "unsigned" in kind else "int64": value}
    return {"unsigned": value} if re.search(r"unsigned|uint", kind) else value


def _struct(hand_in: HandIn, kind: str, array: str) -> dict[str, list[Any]]:
    rows, columns = {"A": ("n", "p"), "B": ("p", "m"), "C": ("n", "m")}[array]
    members: list[Any] = []
    for each in _fields(hand_in.text, kind):
        name = re.findall(r"\w+", each)[-1].lower()
        by_rows = re.search(r"row|height|^h$|^n$", name)
        members.append(array if "*" in each else _typed(each, rows if by_rows else columns))
    return {"struct": members}


def _votes(hand_in: HandIn, arrays: Mapping[str, str], names: Sequence[str]) -> dict[tuple[str, str], int]:
    """How much of the kernel's text speaks for a size as the meaning of a name."""
    votes: dict[tuple[str, str], int] = {}

    def vote(name: str, size: str, weight: int) -> None:
        votes[name, size] = votes.get((name, size), 0) + weight

    for array, role in arrays.items():
        for m in re.finditer(rf"\b{array}\s*\[([^;]*?)\]", hand_in.body):
            for name in names:
                if re.search(rf"\*\s*\(?(?:\([\w\s]+\)\s*)?{name}\b|\b{name}\s*\*", m[1]):
                    vote(name, "p" if role == "A" else "m", 5)
    for name in names:
        if re.search(rf"\bfor\s*\([^;]*;[^;]*<[^;]*\b{name}\b", hand_in.body):
            vote(name, "p", 3)
        if re.search(rf"\b(?:row\w*|ty|i|y|idy)\s*(?:<|>=)\s*{name}\b", hand_in.body, re.IGNORECASE):
            vote(name, "n", 3)
        if re.search(rf"\b(?:col\w*|tx|j|x|idx)\s*(?:<|>=)\s*{name}\b", hand_in.body, re.IGNORECASE):
            vote(name, "m", 3)
    lower = {name.lower(): name for name in names}
    usual = {"m": "n", "n": "m", "k": "p"} if "k" in lower else {"n": "n", "p": "p", "m": "m"}
    for low, name in lower.items():
        if low in usual:
            vote(name, usual[low], 2)
    return votes


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
    used += [hand_in.numbers[name] for name in sorted(own) if _TILE.search(name) and 2 <= hand_in.numbers[name] <= 32]
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
        if _NTB.search(name) and name in hand_in.body and 2 <= value <= 16 and not _TILE.fullmatch(name)
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


# ---- What is found --------------------------------------------------------------------------------------------------


@dataclass
class Marker:
    """Traces of one kernel in one built library."""

    hand_in: HandIn
    path: Path
    dtype: str
    size: int = 0  # of all matrices, if it is a constant of the file

    def build(self, call: Call) -> Path:
        """The library of a call's instance, built once."""
        kernel = call.kernel(self.hand_in.qualified, self.path, self.dtype)
        [instance] = kernel.plan(self.point((16, 16, 16), call)).instances
        target = self.path.parent / f"{abs(hash(instance))}.so"
        if not target.exists():
            build_traced(kernel, [instance], target)
        return target

    def point(self, shape: Sequence[int], call: Call) -> Point:
        n, p, m = (self.size or shape[0],) * 3 if call.equal else shape
        return Point("grade", self.hand_in.name, self.dtype, n, p, m, ())

    def tracer(self, call: Call, limit: float) -> tuple[Tracer, Kernel]:
        """A tracer whose launches run in the jail, and the kernel of a call."""
        kernel = call.kernel(self.hand_in.qualified, self.path, self.dtype)
        tracer = Tracer(self.build(call), kernel, limit, "the time of a hand-in")
        tracer.emulator.launch = jailed(tracer.emulator.launch)  # type: ignore[method-assign]
        return tracer, kernel

    def trace(self, call: Call, shape: Sequence[int], limit: float = LIMIT) -> tuple[dict[str, Any], list[Fault]]:
        """The counts and the faults of a call at a shape, run in the jail; beside faults the remark that threads had
        ended at a barrier, which explains them."""
        tracer, kernel = self.tracer(call, limit)
        row, faults = tracer.trace(Multiplication(kernel, self.point(shape, call)))
        wrong = [fault for fault in faults if not fault.is_remark]
        return row, wrong and [*(fault for fault in faults if fault.kind == FaultKind.ENDED), *wrong]

    def trace_ends(self, call: Call, shape: Sequence[int]) -> Fault | None:
        """The first fault of the first and the last blocks at a shape beyond the memory; None if there is none, if the
        time does not suffice, or if these blocks do not compute the first and the last element of C."""
        small = [3 * 64 + size % 64 for size in shape]
        for blocks in (1, 4):
            found = self._faults_of_ends(call, shape, blocks)
            if not any(fault.kind == FaultKind.INCORRECT for fault in found):
                return found[0] if found else None
            if not self._faults_of_ends(call, small, blocks):
                return found[0]
        return None

    def _faults_of_ends(self, call: Call, shape: Sequence[int], blocks: int) -> list[Fault]:
        tracer, kernel = self.tracer(call, LIMIT)
        program = LargeProduct(kernel, self.point(shape, call))
        found = tracer.run_blocks(program, program.end_blocks(blocks))
        return [] if (tracer.emulator.stopped() or [""])[0] == "time" else found


def mark(path: Path, root: Path, task_name: str, task: Mapping[str, Any], naive: Mapping[str, int]) -> dict[str, Any]:
    """The findings of a hand-in: its kernel, its numbers, and its mistakes, each with a name, a line and words."""
    work = Path.cwd()
    copy_device_code(path, root, work)
    copied = work / path.resolve().relative_to(root.resolve())
    found = kernels(path)
    if not found and (named := re.search(r"__global__\s+void\s+(\w+)", plain(read_text(path)))):
        # It may have errors that hide where the kernel begins or ends: the compiler names them.
        kernel = Call((), False, (), (16, 16), (16, 16)).kernel(named[1], copied, "float")
        build_traced(kernel, [named[1]], work / "kernel.so")
    hand_in = choose(found, task_name)
    findings: dict[str, Any] = {"kernel": hand_in.name, "mistakes": []}
    arrays = arrays_of(hand_in)
    kinds = {each.type for each in hand_in.parameters if each.pointer} or {
        " ".join(f.replace("*", " ").split()[:-1])
        for kind in _structs(hand_in)
        for f in _fields(hand_in.text, kind)
        if "*" in f
    }
    types = {each.name for each in hand_in.template if each.type in ("typename", "class")}
    dtype = next((TYPES[kind] for kind in kinds if kind in TYPES), "float" if kinds & types else "")
    if not dtype:
        raise Question(f"What is the element type {', '.join(sorted(kinds))}? Use float, double or int.")
    marker = Marker(hand_in, copied, dtype)
    numbers = (each.type for each in hand_in.parameters if not each.pointer)
    has_numbers = any(re.search(r"int|long|size_t|unsigned|short", kind) for kind in numbers)
    is_open = not has_numbers and not _structs(hand_in) and "arguments" not in hand_in.options
    constants = constant_sizes(hand_in) if is_open else []
    if constants:
        marker.size = CONSTANT
        set_constants(work, constants, CONSTANT)
    best: tuple[float, list[Call]] | None = None
    for made in itertools.islice(calls(hand_in, arrays, task, dtype), MOST_TRIED):
        try:
            _, faults = marker.trace(made[-1], TRIED if not made[-1].equal else (64,), 5.0)
        except LaunchError as error:
            faults = [Fault(FaultKind.STOPPED, "", None, str(error))]
        hung = any(f.kind == FaultKind.STOPPED for f in faults)
        wild = sum(f.count for f in faults if f.kind == FaultKind.OUT_OF_BOUNDS)
        twice = sum(f.count for f in faults if f.kind == FaultKind.RACE and "global memory" in f.text)
        wrong = sum(_share(f.text) for f in faults if f.kind == FaultKind.INCORRECT)
        score = 4.0 * hung + 2.0 * bool(wild) + min(1.0, wild / 1e6) + 1.0 * bool(twice) + wrong + 0.01 * len(faults)
        if best is None or score < best[0] - 1e-9:
            best = score, made
        if not faults or hung:
            break
    assert best is not None
    for call in best[1]:
        examine(findings, marker, call, task, naive.get(dtype, 0))
        if findings["mistakes"]:
            break
    static_mistakes(findings, hand_in)
    called = {"function": hand_in.qualified, "dtype": dtype, "constants": constants, "equal": best[1][0].equal}
    return findings | called | {"calls": [dataclasses.asdict(call) for call in best[1]]}


def _share(text: str) -> float:
    m = re.search(r"(\d+) of (\d+) elements", text)
    return int(m[1]) / int(m[2]) if m else 1.0


def examine(findings: dict[str, Any], marker: Marker, call: Call, task: Mapping[str, Any], naive_sectors: int) -> None:
    """Add to the findings what the shapes and the measures of the task show."""
    shapes = [sizes(each) for each in task["shapes"]]
    per_shape: dict[tuple[int, ...], list[Fault]] = {}
    measured = sizes(task["measured"])
    if marker.size:
        shapes = [measured]
    for shape in dict.fromkeys([measured, *shapes]):
        row, faults = marker.trace(call, shape)
        per_shape[shape] = faults
        if shape == measured:
            findings.update(
                {
                    name: row.get(name)
                    for name in ("global_load_sectors", "sectors_per_request", "shared_bank_conflicts")
                }
            )
            measured_row = row
    add_faults(findings, marker.hand_in, call, per_shape)
    if not findings["mistakes"]:
        names = {k: v or 0 for k, v in measured_row.items() if isinstance(v, int | float) or v is None}
        names |= {"itemsize": PRECISIONS[marker.dtype].itemsize, "naive_sectors": naive_sectors}
        for name, condition in task["measures"].items():
            if not evaluate(condition, names):
                add(findings, name, None, f"{condition} does not hold")
                break
    has_largest = "largest" in task and not findings["mistakes"] and not marker.size
    if has_largest and (fault := marker.trace_ends(call, sizes(task["largest"]))):
        add(findings, "overflow", fault.line or _start(marker.hand_in), f"At {task['largest']}, {fault.text}.")


def add(findings: dict[str, Any], name: str, line: int | None, words: str) -> None:
    """Add a mistake to the findings, once."""
    if name not in [each["name"] for each in findings["mistakes"]]:
        findings["mistakes"].append({"name": name, "line": line, "words": words})


def add_faults(
    findings: dict[str, Any], hand_in: HandIn, call: Call, found: Mapping[tuple[int, ...], list[Fault]]
) -> None:
    """Add the mistakes that explain the faults of all shapes."""
    lines = hand_in.text.split("\n")
    threads = math.prod(call.block)
    even = next(iter(found.values()))
    everything = [fault for faults in found.values() for fault in faults]
    kinds = {fault.kind for fault in everything}

    def first(kind: FaultKind, pattern: str = "") -> Fault | None:
        return next((f for f in everything if f.kind == kind and re.search(pattern, f.text)), None)

    if fault := first(FaultKind.STOPPED):
        add(findings, "hangs", fault.line, fault.text)
        return
    if fault := first(FaultKind.ENDED):
        before = "\n".join(lines[_start(hand_in) - 1 : fault.line])
        name = "early_return" if re.search(r"\breturn\b", before) else "barrier_in_condition"
        add(findings, name, fault.line, fault.text)
        return
    if fault := first(FaultKind.DIVERGENCE):
        add(findings, "barrier_in_condition", fault.line, fault.text)
        return
    unwritten = first(FaultKind.UNINITIALISED, r"no thread of the block")
    is_larger = any(tile * tile > threads for tile in tiles_of(hand_in)[:1])
    if unwritten and is_larger and any(f.kind == FaultKind.UNINITIALISED and "of the block" in f.text for f in even):
        add(findings, "shared_larger_than_block", unwritten.line, unwritten.text)
        return
    races = [f for f in everything if f.kind == FaultKind.RACE and "shared memory" in f.text]
    for fault in races:
        for name in _barriers(fault, lines):
            add(findings, name, fault.line, fault.text)
    if races:
        return
    if fault := first(FaultKind.UNINITIALISED, r" reads C\["):
        add(findings, "uninitialised_sum", fault.line, fault.text)
        if race := next((f for f in even if f.kind == FaultKind.RACE), None):
            add(findings, "race", race.line, race.text)
        return
    sum_line = _unset_sum(hand_in)
    if kinds & {FaultKind.INCORRECT, FaultKind.ORDER} and sum_line and even:
        add(findings, "uninitialised_sum", sum_line, "")
        return
    guarded = _loads_are_guarded(hand_in)
    if unwritten:
        add(findings, "zero_fill", unwritten.line, unwritten.text)
        if not first(FaultKind.OUT_OF_BOUNDS):
            return
    if fault := first(FaultKind.OUT_OF_BOUNDS):
        add(
            findings,
            "edge_not_tested" if not even or fault.line else "other_fault",
            fault.line,
            fault.text,
        )
        return
    if fault := first(FaultKind.RACE):
        add(
            findings,
            "race" if any(f.kind == FaultKind.RACE for f in even) else "edge_not_tested",
            fault.line,
            fault.text,
        )
        return
    if fault := first(FaultKind.INCORRECT):
        dividing = _divides_tiles(hand_in)
        if not even and dividing:
            add(findings, "tiles_division", dividing, fault.text)
        elif not even and "__shared__" in hand_in.body:
            add(findings, "zero_fill" if guarded else "edge_not_tested", _store_line(hand_in), fault.text)
        elif "nothing has written" in fault.text and not even:
            add(findings, "not_written", fault.line, fault.text)
        else:
            add(findings, "wrong_product", fault.line, fault.text)
        return
    for fault in everything:
        add(findings, "other_fault", fault.line, f"{fault.kind.words}: {fault.text}")


def _start(hand_in: HandIn) -> int:
    """The line of the kernel's first character."""
    return hand_in.text.count("\n", 0, hand_in.text.find(hand_in.body)) + 1


def _barriers(fault: Fault, lines: Sequence[str]) -> list[str]:
    """Which barriers are missing at a race of a tile: before its use, after it, or both."""
    other = re.search(r"at (?:\S+:|line )(\d+)", fault.text)
    if not other or fault.line is None:
        return ["barrier_before"]
    low, high = sorted((fault.line, int(other[1])))
    if "writes" in fault.text.split("which")[0] and "writes" in fault.text.split("which")[-1]:
        return ["race"]
    if not any("__syncthreads" in line for line in lines[low - 1 : high]):
        return ["barrier_before"] + ["barrier_after"] * ("__syncthreads" not in "".join(lines))
    return ["barrier_after"]


def _unset_sum(hand_in: HandIn) -> int | None:
    """The line of a number, or of an array of numbers, that is added to and was declared without a value."""
    for m in re.finditer(r"^[ \t]*(?:float|double|int|T|\w+)\s+(\w[^;(){}]*);", hand_in.body, re.MULTILINE):
        for declared in split(m[1]):
            name = re.fullmatch(r"(\w+)\s*(?:\[[^\]]*\]\s*)*", declared)
            rest = hand_in.body[m.end() :]
            use = name and re.search(rf"\b{name[1]}\s*(?:\[[^\]]*\]\s*)*(\+=|=(?!=)\s*([^;]*))", rest)
            if name and use and (use[1] == "+=" or re.search(rf"\b{name[1]}\b", use[2] or "")):
                return _start(hand_in) + hand_in.body.count("\n", 0, m.start(1))
    return None


def _shared_names(hand_in: HandIn) -> set[str]:
    return {
        name
        for m in re.finditer(r"__shared__\s+\w+([^;]*);", hand_in.body)
        for name in re.findall(r"(\w+)\s*\[", re.sub(r"\[[^\]]*\]", "[", m[1]))
    }


def _store_line(hand_in: HandIn) -> int | None:
    for name in _shared_names(hand_in):
        if m := re.search(rf"\b{name}\s*(?:\[[^;=]*?\])+\s*=(?!=)", hand_in.body):
            return _start(hand_in) + hand_in.body.count("\n", 0, m.start())
    return None


def _loads_are_guarded(hand_in: HandIn) -> bool:
    """Whether a load into shared memory stands in an `if` without `else`."""
    for name in _shared_names(hand_in):
        for m in re.finditer(
            rf"\bif\s*\(([^;{{]*)\)\s*\{{?\s*{name}\s*(?:\[[^;=]*?\])+\s*=[^;]*;\s*\}}?\s*(\w*)", hand_in.body
        ):
            if m[2] != "else":
                return True
    return False


def _divides_tiles(hand_in: HandIn) -> int | None:
    """The line of a loop, or of a number, of tiles that are counted by a division without rounding up."""
    for m in re.finditer(r"(?:<=?|=)\s*\(?\s*(\w+)\s*/\s*([\w.]+)\s*\)?\s*;", hand_in.body):
        if m[2] in hand_in.numbers or _TILE.search(m[2]) or m[2].isdigit() or "blockDim" in m[2]:
            return _start(hand_in) + hand_in.body.count("\n", 0, m.start())
    return None


def static_mistakes(findings: dict[str, Any], hand_in: HandIn) -> None:
    """Add what the launch in the host's code shows: a block of too many threads, a grid that is not rounded up."""
    most = EMULATED_LIMITS["max_threads_per_block"]
    for launch in hand_in.launches:
        threads = math.prod(map(hand_in.value, hand_in.extents(launch, 1)))
        if threads > most:
            words = f"A block has {threads} threads; a GPU allows {most}."
            add(findings, "launch_refused", launch.line, words)
            return
        for each in hand_in.extents(launch, 0):
            written = hand_in.written(each)
            text = re.sub(r"\(\s*(?:float|double)\s*\)", "1.0*", written.text)
            m = re.fullmatch(r"\(*\s*(?:\(int\)\s*)?(?:ceil\w*\s*\(\s*)?(\w+)\s*/\s*(\w+(?:\.[xy])?)[\s)]*", text)
            if not m or m[1] == "1":
                continue
            size, tile = (hand_in.value(Expression(part, written.scope, written.at)) for part in m.groups())
            if size and tile and size % tile == 0:
                continue
            add(findings, "grid_division", launch.line, each.text)
            return


def main() -> None:
    """Mark the hand-in that the standard input describes; the findings go to the standard output."""
    given = json.load(sys.stdin)
    answer = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    limit_process()
    try:
        with contextlib.redirect_stdout(open(os.devnull, "w", encoding="utf-8")):
            findings = mark(Path(given["file"]), Path(given["root"]), given["name"], given["task"], given["naive"])
    except Question as error:
        findings = {"mistakes": [{"name": "question", "line": None, "words": str(error)}]}
    except LaunchError as error:
        findings = {"mistakes": [{"name": "launch_refused", "line": None, "words": str(error)}]}
    except UserError as error:
        line = re.search(r":(\d+):", str(error))
        is_ours = re.search(r"hand-in|is empty|plain file", str(error))
        name = "refused" if is_ours else "does_not_compile"
        findings = {"mistakes": [{"name": name, "line": int(line[1]) if line else None, "words": str(error)}]}
    os.write(answer, json.dumps(findings, default=str).encode())


if __name__ == "__main__":
    main()
