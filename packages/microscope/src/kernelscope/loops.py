"""Instrument loops around a block's barriers, so that each barrier reports the round of every loop."""

import re
from collections.abc import Iterator

from tree_sitter import Node, Query, QueryCursor

from kernelscope.declarations import HASH_LINE
from kernelscope.syntax import CPP, parse

BARRIER = re.compile(r"\b__syncthreads(?:_count|_and|_or)?\b")
_CALLS = Query(CPP, "(call_expression function: (identifier) @name)")
_LOOPS = ("for_statement", "for_range_loop", "while_statement", "do_statement")
_BOUNDS = ("function_definition", "lambda_expression")


def count_rounds(text: str) -> str:
    """A preprocessed text in which loops around `__syncthreads()` and its like count their rounds, and a thread says
    before the barrier how many of each it has begun. All stays on its line. What tree-sitter cannot read is left as it
    is."""
    root = parse(HASH_LINE.sub(lambda line: " " * len(line[0].encode()), text))
    found = QueryCursor(_CALLS).captures(root).get("name", [])
    loops: dict[int, Node] = {}
    pieces: list[tuple[int, int, str]] = []  # where, the order there, what is put in
    for name in found:
        call = name.parent
        if call is None or not BARRIER.fullmatch((name.text or b"").decode()):
            continue
        around = list(_loops_around(call))
        if not around or any(loop.has_error for loop in around):
            continue
        loops |= {loop.id: loop for loop in around}
        rounds = "".join(f" * 65599u + {_round(loop)}" for loop in around)
        inmost = len(text)
        pieces += [(call.start_byte, inmost, f"(::emulator::rounds(0u{rounds}), "), (call.end_byte, -inmost, ")")]
    for loop in loops.values():
        body, depth = loop.child_by_field_name("body"), sum(1 for _ in _loops_around(loop))
        if body is None:
            return text
        pieces += [(loop.start_byte, 2 * depth, f"{{ unsigned {_round(loop)} = 0; "), (loop.end_byte, -2 * depth, " }")]
        if body.type == "compound_statement":
            pieces.append((body.start_byte + 1, 0, f" ++{_round(loop)};"))
        else:
            pieces += [
                (body.start_byte, 2 * depth + 1, f"{{ ++{_round(loop)}; "),
                (body.end_byte, -2 * depth - 1, " }"),
            ]
    data, done, at = text.encode(), [], 0
    for where, _, piece in sorted(pieces):
        done += [data[at:where], piece.encode()]
        at = where
    return b"".join([*done, data[at:]]).decode()


def _round(loop: Node) -> str:
    return f"emulator_round_{loop.start_byte}"


def _loops_around(node: Node) -> Iterator[Node]:
    """The loops of a function that are around a node, the innermost first."""
    while (above := node.parent) is not None and above.type not in _BOUNDS:
        node = above
        if node.type in _LOOPS:
            yield node
