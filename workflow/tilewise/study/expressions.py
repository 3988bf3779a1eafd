"""Arithmetic and conditions of the registry and of the claims, evaluated over names that the caller gives.

An expression is Python's, of the nodes that `_is_part` lets through. There are no attributes, and arithmetic is for
numbers, so no expression reaches into Python, and none takes long or needs much memory.
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from types import CodeType
from typing import Any

from tilewise import UserError

#: The largest magnitude that a power may have.
LARGEST = 2**64
#: The most characters of an expression.
LONGEST = 1000


def ceil_div(a: int, b: int) -> int:
    """The least whole number that is no smaller than a / b."""
    return -(-a // b)


#: Functions that every expression may call.
FUNCTIONS: dict[str, Any] = {"min": min, "max": max, "ceil_div": ceil_div}
#: YAML's spelling of constants, which has lower case.
CONSTANTS: dict[str, Any] = {"true": True, "false": False, "none": None}


def _power(base: Any, exponent: Any) -> Any:
    numbers = isinstance(base, int | float) and isinstance(exponent, int | float)
    if numbers and (abs(exponent) > 64 or abs(base) ** min(abs(exponent), 64) > LARGEST):
        raise ArithmeticError("the power is too large")
    return base**exponent


def _for_numbers(sign: str, operation: Callable) -> Callable:
    """An operation that refuses text and lists, which could be repeated or padded to any length. Other objects, such as
    a measured spread, define their own operators."""

    def calculate(a: Any, b: Any) -> Any:
        if isinstance(a, str | list) or isinstance(b, str | list):
            raise TypeError(f"'{sign}' is for numbers")
        return operation(a, b)

    return calculate


_OPERATIONS: dict[type, tuple[str, Callable]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", _power),
}
_SIGNS = " ".join(sign for sign, _ in _OPERATIONS.values())
#: What the code of an expression finds in addition to the names that it is given: arithmetic by its signs, too.
_SCOPE = {"__builtins__": {}, **FUNCTIONS, **CONSTANTS, **{s: _for_numbers(s, o) for s, o in _OPERATIONS.values()}}
_NODES = ast.Name | ast.BoolOp | ast.IfExp | ast.List | ast.Tuple | ast.Subscript | ast.keyword
_SYNTAX = ast.expr_context | ast.boolop | ast.operator | ast.unaryop | ast.cmpop


def _is_part(node: ast.AST) -> bool:
    """Whether a node may be in an expression; those within it have to be looked at, too."""
    match node:
        case ast.Constant(value=float() as value):
            return math.isfinite(value)
        case ast.Constant(value=value):
            return isinstance(value, int | str | None)
        case ast.BinOp(op=op):
            return type(op) in _OPERATIONS
        case ast.UnaryOp(op=op):
            return not isinstance(op, ast.Invert)
        case ast.Compare(ops=ops):
            return not any(isinstance(op, ast.Is | ast.IsNot) for op in ops)
        case ast.Call(func=function, keywords=keywords):
            return isinstance(function, ast.Name) and all(each.arg for each in keywords)
    return isinstance(node, _NODES | _SYNTAX)


class _Guarded(ast.NodeTransformer):
    """Raises SyntaxError for what is no part of an expression, and makes arithmetic a call of one of _SCOPE."""

    def visit(self, node: ast.AST) -> Any:
        if not _is_part(node):
            takes = f"numbers, names, {_SIGNS}, comparisons, and, or, not, if else and calls of functions"
            raise SyntaxError(f"'{ast.unparse(node)}' cannot be in one; it takes {takes}")
        return super().visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.Call:
        operation = ast.Name(_OPERATIONS[type(node.op)][0], ast.Load())
        return ast.Call(operation, [self.visit(node.left), self.visit(node.right)], [])

    def visit_Tuple(self, node: ast.Tuple) -> ast.List:
        return ast.List([self.visit(each) for each in node.elts], node.ctx)


@cache
def _parsed(expression: str) -> tuple[CodeType, tuple[str, ...]]:
    """An expression as code, and the names that it uses."""
    if len(expression) > LONGEST:
        raise SyntaxError(f"it has {len(expression)} characters; the most is {LONGEST}")
    if "\0" in expression:  # for which Python 3.11 has another error than for other text
        raise SyntaxError("it contains a null character")
    tree = ast.parse(expression.replace("\n", " ").strip(), mode="eval")
    used = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    tree.body = _Guarded().visit(tree.body)
    return compile(ast.fix_missing_locations(tree), "expression", "eval"), tuple(used)


def evaluate(expression: Any, variables: Mapping[str, Any]) -> Any:
    """The value of an expression over `variables`, a mapping from names to values or functions.

    Anything but text is its own value. Raises UserError if the expression is malformed or names something unknown;
    errors of its arithmetic and of the functions that it calls, such as a division by zero, are passed on.
    """
    if not isinstance(expression, str):
        return expression
    if expression in variables:  # most are a name, for which nothing needs to be compiled
        return variables[expression]
    return eval(_code(expression, variables), _SCOPE, variables)


def names_in(expression: Any) -> set[str]:
    """The names that a well-formed expression uses."""
    return set(_parsed(expression)[1]) if isinstance(expression, str) else set()


def check(expression: Any, variables: Iterable[str]) -> None:
    """Raise UserError if an expression over the names `variables` is malformed or names something else."""
    if isinstance(expression, str):
        _code(expression, {*variables})


def keywords(expression: str, variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The words that an expression gives to keywords of its calls, such as kernel='naive', also those of lists and of
    `variables`."""
    for node in ast.walk(ast.parse(expression.replace("\n", " ").strip(), mode="eval")):
        if isinstance(node, ast.keyword) and node.arg:
            given = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            for each in given:
                word = variables.get(each.id) if isinstance(each, ast.Name) else getattr(each, "value", None)
                if isinstance(word, str):
                    yield node.arg, word


def _code(expression: str, names: Collection[str]) -> CodeType:
    try:
        code, used = _parsed(expression)
    except (SyntaxError, RecursionError, MemoryError) as error:
        why = str(error.msg) if isinstance(error, SyntaxError) else "it is nested too deeply"
        shown = expression if len(expression) <= LONGEST else f"{expression[:60]}..."
        raise UserError(f"'{shown}' is not an expression: {why}") from None
    for name in used:
        if name not in names and name not in FUNCTIONS and name not in CONSTANTS:
            known = ", ".join(sorted({*names} - {*FUNCTIONS, *CONSTANTS}))
            raise UserError(f"'{expression}': '{name}' is undefined; there are {known}")
    return code
