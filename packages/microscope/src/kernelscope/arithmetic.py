"""Shifts, conversions and variables without a value for g++, which are undefined in C++.

A shift by the width of its operand or more, and the conversion of a real number that does not fit an integer, get the
results that a GPU has where a CPU differs: operators and explicit conversions become calls of functions of
cuda_emulator.h. Such a call also keeps g++ from assuming that a variable that only one branch sets has that value.
"""

import re
from collections.abc import Iterator

from tree_sitter import Node, Query, QueryCursor

from kernelscope.declarations import HASH_LINE
from kernelscope.syntax import CPP, declarators, name_of, parse

_SHIFTS = {"<<": "shifted_left", ">>": "shifted_right", "<<=": "shift_left", ">>=": "shift_right"}
_WANTED = Query(
    CPP,
    """(binary_expression operator: ["<<" ">>"]) @shift
    (assignment_expression operator: ["<<=" ">>="]) @shift
    (compound_statement (declaration declarator: [(identifier) (pointer_declarator)]) @unset)
    (cast_expression type: (type_descriptor !declarator)) @cast
    (call_expression function: (template_function name: (identifier) @static))""",
)
_INTEGERS = re.compile(
    r"(?:(?:unsigned|signed|long|short|int|char)\s*)+|u?int(?:8|16|32|64)_t|size_t|ptrdiff_t|uint|ushort|ulong"
)
_LITERAL = re.compile(r"\d+[uUlL]*")
_MARKER = re.compile(r'^# \d+ "([^"\n]*)"[^\n]*$', re.MULTILINE)


def as_on_a_gpu(text: str, foreign: str) -> str:
    """A preprocessed text with shifts and conversions as calls, each on its line, but for what comes from files whose
    names begin with `foreign`. What tree-sitter cannot read is left as it is."""
    data = text.encode()
    own = list(_own_ranges(data, foreign))
    found = QueryCursor(_WANTED).captures(parse(HASH_LINE.sub(lambda line: " " * len(line[0].encode()), text)))
    pieces: list[tuple[int, int, int, int, str]] = []  # where, closing before opening, the order there, end, what
    for node in found.get("shift", []):
        left, sign, right = (node.child_by_field_name(name) for name in ("left", "operator", "right"))
        if not left or not sign or not right or not _is_own(node, own) or _LITERAL.fullmatch(_text(right)):
            continue
        call = f"::emulator::{_SHIFTS[_text(sign)]}(("
        pieces.append((node.start_byte, 2, -node.end_byte, node.start_byte, call))
        pieces.append((sign.start_byte, 1, 0, sign.end_byte, "), ("))
        pieces.append((node.end_byte, 0, -node.start_byte, node.end_byte, "))"))
    for node in {node.id: node for node in found.get("unset", [])}.values():
        is_shared = any(child.type in ("storage_class_specifier", "attribute_specifier") for child in node.children)
        if not is_shared and _is_own(node, own):
            names = [name_of(each) for each in declarators(node) if each.type in ("identifier", "pointer_declarator")]
            calls = "".join(f" ::emulator::unset({name});" for name in names if name)
            pieces.append((node.end_byte, 3, 0, node.end_byte, calls))
    for node in found.get("cast", []):
        to, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        if not to or not value or not _is_own(node, own) or not _INTEGERS.fullmatch(_text(to).strip()):
            continue
        if value.type in ("number_literal", "char_literal"):
            continue
        pieces.append((node.start_byte, 2, -node.end_byte, value.start_byte, f"::emulator::converted<{_text(to)}>(("))
        pieces.append((node.end_byte, 0, -node.start_byte, node.end_byte, "))"))
    for node in found.get("static", []):
        if _text(node) == "static_cast" and node.parent and _is_own(node, own):
            arguments = node.parent.child_by_field_name("arguments")
            if arguments and _INTEGERS.fullmatch(_text(arguments)[1:-1].strip()):
                pieces.append((node.start_byte, 2, -node.end_byte, node.end_byte, "::emulator::converted"))
    done, at = [], 0
    for where, _, _, end, piece in sorted(pieces):
        if where < at:
            return text  # pieces that overlap: a text that tree-sitter has misread
        done += [data[at:where], piece.encode(), b"\n" * data[where:end].count(b"\n")]
        at = end
    return b"".join([*done, data[at:]]).decode()


def _own_ranges(data: bytes, foreign: str) -> Iterator[tuple[int, int]]:
    """The bytes that come from files of the kernel."""
    markers = list(re.finditer(_MARKER.pattern.encode(), data, re.MULTILINE))
    ends = [*(marker.start() for marker in markers[1:]), len(data)]
    for marker, end in zip(markers, ends, strict=True):
        name = marker[1].decode(errors="replace")
        if not name.startswith((foreign, "<")):
            yield marker.end(), end


def _is_own(node: Node, own: list[tuple[int, int]]) -> bool:
    above = node.parent
    while above is not None:  # arguments of a template stay constants without brackets
        if above.type in ("template_argument_list", "asm_specifier", "gnu_asm_expression"):
            return False
        above = above.parent
    return not node.has_error and any(begin <= node.start_byte < end for begin, end in own)


def _text(node: Node) -> str:
    return (node.text or b"").decode()
