"""Find the kernel of a hand-in and the roles of its parameters."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelscope.expressions import split
from tilewise import UserError
from tilewise.grade.handin import HandIn, sizes
from tilewise.study.expressions import evaluate


class Question(UserError):
    """What a hand-in leaves open, with the line to add."""


def choose(found: Sequence[HandIn], task: str) -> HandIn:
    """The kernel of a hand-in that the task is about. Raises Question if several may be it."""
    products = [each for each in found if sum(p.pointer for p in each.parameters) >= 3 or structs(each)]
    for each in found[:1]:  # whose options are those of the file
        check_options(each.options, [other.name for other in found])
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


def check_options(options: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise Question for a line `// tilewise: ...` that is not understood; `names` are the file's kernels."""
    for key in options:
        if key not in ("arguments", "block", "kernel"):
            raise Question(f"What is '{key}' in the line // tilewise: ...? Write arguments=, block= or kernel= there")
    if options.get("kernel", names[0]) not in names:
        raise Question(f"Which kernel is '{options['kernel']}'? There are {', '.join(names)}: correct kernel=")
    block = options.get("block", "16x16")
    if not re.fullmatch(r"\d{1,4}(x\d{1,4}){0,2}", block) or not 0 < math.prod(sizes(block)) <= 1024:
        raise Question(f"What is the block '{block}'? Write 1 to 1024 threads along x and y, such as block=16x16")


def structs(hand_in: HandIn) -> list[str]:
    """The types of the parameters that are structs with a pointer, by value."""
    return [
        each.type
        for each in hand_in.parameters
        if not each.pointer and (fields := fields_of(hand_in.text, each.type)) and any("*" in f for f in fields)
    ]


def fields_of(text: str, name: str) -> list[str]:
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
    named = [each for each in hand_in.parameters if each.pointer or each.type in structs(hand_in)]
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
        yield _written(hand_in), hand_in.options["arguments"].count("p") == 0
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


def _written(hand_in: HandIn) -> tuple[Any, ...]:
    """The arguments of the line `// tilewise: arguments=...`. Raises Question if they do not fit."""
    texts = hand_in.options["arguments"].split(",")
    if len(texts) != len(hand_in.parameters):
        raise Question(_ask(hand_in, f"it has {len(hand_in.parameters)} parameters, and {len(texts)} arguments"))
    written: list[Any] = []
    for each, text in zip(hand_in.parameters, texts, strict=True):
        of_matrix = each.pointer or each.type in structs(hand_in)
        if of_matrix != (text in ("A", "B", "C")):
            raise Question(_ask(hand_in, f"'{text}' is no value of {each.name}"))
        if of_matrix:
            written.append(text if each.pointer else _struct(hand_in, each.type, text))
            continue
        is_real = each.type in ("float", "double", "T")
        try:
            value = evaluate(text, {"n": 64, "p": 32, "m": 96})
        except (UserError, ArithmeticError, TypeError) as error:
            raise Question(_ask(hand_in, f"'{text}' of {each.name} has no value: {error}")) from None
        if not isinstance(value, int | float if is_real else int):
            raise Question(_ask(hand_in, f"'{text}' is no value of {each.name}"))
        written.append({"dtype": text} if is_real else _typed(each.type, text))
    return tuple(written)


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
    for each in fields_of(hand_in.text, kind):
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
