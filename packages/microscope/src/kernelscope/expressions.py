"""Values of C++ expressions."""

import re
from collections.abc import Callable, Iterable, Mapping
from operator import add, and_, eq, ge, gt, le, lt, mod, mul, ne, or_, rshift, sub, xor
from typing import Any

from tree_sitter import Node

from kernelscope.syntax import nodes_of, parse, text_of

Number = int | float


class Unknown(Exception):
    """An expression has no value that its text alone gives."""


#: What `calculated` raises, for numbers out of range, too.
NOT_KNOWN = (Unknown, ArithmeticError, LookupError, ValueError, TypeError, RecursionError)


def whole_numbers(expressions: Iterable[str], names: Mapping[str, int]) -> list[int]:
    """The values of some expressions over `names`; none if one of them is no whole number."""

    def named(node: Node) -> Number:
        if node.type != "identifier" or text_of(node) not in names:
            raise Unknown
        return names[text_of(node)]

    try:
        values = [calculated(expression(each), named) for each in expressions]
    except NOT_KNOWN:
        return []
    return [each for each in values if isinstance(each, int)] if all(isinstance(each, int) for each in values) else []


def expression(text: str) -> Node:
    """The node of an expression. Raises Unknown."""
    root = parse(f"auto emulator_value = {text};")
    found = nodes_of(root, "init_declarator")
    value = found[0].child_by_field_name("value") if found else None
    if value is None or root.has_error:
        raise Unknown
    return value


def calculated(node: Node, known: Callable[[Node], Number]) -> Number:
    """The value of an expression, in which `known` has those of names, members, sizes and calls. Raises NOT_KNOWN."""

    def part(name: str) -> Number:
        child = node.child_by_field_name(name)
        if child is None:
            raise Unknown
        return calculated(child, known)

    text = text_of(node)
    match node.type:
        case "number_literal":
            return _literal(text)
        case "true" | "false":
            return int(text == "true")
        case "parenthesized_expression":
            return calculated(node.named_children[0], known)
        case "cast_expression":
            is_real = re.search("float|double", text_of(node.child_by_field_name("type")))
            return float(part("value")) if is_real else int(part("value"))
        case "conditional_expression":
            return part("consequence" if part("condition") else "alternative")
        case "unary_expression" if text[0] in "+-!~":
            value = part("argument")
            return {"+": value, "-": -value, "!": int(not value), "~": ~int(value)}[text[0]]
        case "binary_expression":
            return _binary(text_of(node.child_by_field_name("operator")), part("left"), part("right"))
    return known(node)


def split(text: str) -> list[str]:
    """The parts of a list at its commas outside of brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([{<") - (sign in ")]}>")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _literal(text: str) -> Number:
    plain = text.replace("'", "")
    if re.fullmatch(r"(?:0[xX][\da-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]*", plain):
        digits = re.sub(r"[uUlLzZ]+$", "", plain)
        return int(digits, 8) if re.fullmatch(r"0[0-7]+", digits) else int(digits, 0)
    return float(re.sub(r"[fFlL]$", "", plain))


def _shifted(value: int, by: int) -> int:
    if not 0 <= by < 64:
        raise Unknown
    return value << by


def _binary(operator: str, left: Number, right: Number) -> Number:
    if operator == "/":
        return left / right if isinstance(left, float) or isinstance(right, float) else left // right
    whole = {"%": mod, "<<": _shifted, ">>": rshift, "&": and_, "|": or_, "^": xor}
    if operator in whole:
        return int(whole[operator](int(left), int(right)))
    known: dict[str, Callable[[Any, Any], Any]] = {
        **{"+": add, "-": sub, "*": mul, "<": lt, ">": gt, "<=": le, ">=": ge, "==": eq, "!=": ne},
        **{"&&": lambda one, other: one and other, "||": lambda one, other: one or other},
    }
    if operator not in known:
        raise Unknown
    found = known[operator](left, right)
    return int(found) if isinstance(found, bool) else found
