"""Arithmetic and conditions of the registry and of the claims, evaluated over names that the caller gives.

Python's parser reads an expression; only the nodes listed in `_compiled` are accepted. There are no attributes, and
arithmetic is for numbers, so no expression reaches into Python, and none takes long or needs much memory.
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
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


_OPERATIONS: dict[type, tuple[str, Callable]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", _power),
}
_UNARY: dict[type, Callable] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_COMPARISONS: dict[type, Callable] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, among: item in among,
    ast.NotIn: lambda item, among: item not in among,
}
_SEQUENCES = (str, list, tuple)
_ALLOWED = f"numbers, names, {' '.join(sign for sign, _ in _OPERATIONS.values())}, comparisons, and, or, not, if else"

_Compiled = Callable[[Mapping[str, Any]], Any]


def _arithmetic(sign: str, operation: Callable, left: _Compiled, right: _Compiled) -> _Compiled:
    def calculate(names: Mapping[str, Any]) -> Any:
        a, b = left(names), right(names)
        # Other objects, such as a measured spread, define their own operators. Text and lists are rejected, because
        # they could be repeated or padded to any length.
        if isinstance(a, _SEQUENCES) or isinstance(b, _SEQUENCES):
            raise TypeError(f"'{sign}' is for numbers")
        return operation(a, b)

    return calculate


def _compared(operations: list[Callable], operands: list[_Compiled]) -> _Compiled:
    def compare(names: Mapping[str, Any]) -> Any:
        left, answer = operands[0](names), True
        for operation, operand in zip(operations, operands[1:]):
            right = operand(names)
            answer = operation(left, right)
            if not answer:
                break
            left = right
        return answer

    return compare


def _either(stops_at: bool, parts: list[_Compiled]) -> _Compiled:
    def decide(names: Mapping[str, Any]) -> Any:
        for part in parts:
            value = part(names)
            if bool(value) is stops_at:
                break
        return value

    return decide


def _called(name: str, positional: list[_Compiled], named: dict[str, _Compiled]) -> _Compiled:
    return lambda names: names[name](
        *(value(names) for value in positional), **{key: value(names) for key, value in named.items()}
    )


def _compiled(node: ast.expr) -> _Compiled:
    """A function from names to the value of a node. Raises SyntaxError for what is no part of an expression."""
    match node:
        case ast.Constant(value=bool() | int() | str() | None as value):
            return lambda names: value
        case ast.Constant(value=float() as value) if math.isfinite(value):
            return lambda names: value
        case ast.Name(id=name):
            return lambda names: names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _arithmetic(*_OPERATIONS[type(op)], _compiled(left), _compiled(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            function, part = _UNARY[type(op)], _compiled(operand)
            return lambda names: function(part(names))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            return _compared([_COMPARISONS[type(op)] for op in ops], [_compiled(each) for each in (left, *others)])
        case ast.BoolOp(op=op, values=values):
            return _either(isinstance(op, ast.Or), [_compiled(each) for each in values])
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            condition, yes, no = _compiled(test), _compiled(body), _compiled(otherwise)
            return lambda names: yes(names) if condition(names) else no(names)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            parts = [_compiled(each) for each in elements]
            return lambda names: [part(names) for part in parts]
        case ast.Subscript(value=whole, slice=index):
            of, at = _compiled(whole), _compiled(index)
            return lambda names: of(names)[at(names)]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if all(each.arg for each in keywords):
            return _called(
                name,
                [_compiled(each) for each in arguments],
                {str(each.arg): _compiled(each.value) for each in keywords},
            )
    raise SyntaxError(f"'{ast.unparse(node)}' cannot be in one; it takes {_ALLOWED} and calls of functions")


@cache
def _parsed(expression: str) -> tuple[_Compiled, tuple[str, ...]]:
    """An expression as a function, and the names that it uses."""
    if len(expression) > LONGEST:
        raise SyntaxError(f"it has {len(expression)} characters; the most is {LONGEST}")
    if "\0" in expression:  # for which Python 3.11 has another error than for other text
        raise SyntaxError("it contains a null character")
    tree = ast.parse(expression.replace("\n", " ").strip(), mode="eval").body
    return _compiled(tree), tuple(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


def evaluate(expression: Any, variables: Mapping[str, Any]) -> Any:
    """The value of an expression over `variables`, a mapping from names to values or functions.

    Anything but text is its own value. Raises UserError if the expression is malformed or names something unknown;
    errors of its arithmetic and of the functions that it calls, such as a division by zero, are passed on.
    """
    if not isinstance(expression, str):
        return expression
    if expression in variables:  # most are a name, for which nothing needs to be compiled
        return variables[expression]
    names = {**FUNCTIONS, **CONSTANTS, **variables}
    function = _function(expression, names)
    try:
        return function(names)
    except RecursionError as error:
        raise _malformed(expression, error) from None


def check(expression: Any, variables: Iterable[str]) -> None:
    """Raise UserError if an expression over the names `variables` is malformed or names something else."""
    if isinstance(expression, str):
        _function(expression, {*FUNCTIONS, *CONSTANTS, *variables})


def _function(expression: str, names: Collection[str]) -> _Compiled:
    try:
        function, used = _parsed(expression)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise _malformed(expression, error) from None
    for name in used:
        if name not in names:
            known = ", ".join(sorted({*names} - {*FUNCTIONS, *CONSTANTS}))
            raise UserError(f"'{expression}': '{name}' is undefined; there are {known}")
    return function


def _malformed(expression: str, error: Exception) -> UserError:
    why = str(error.msg) if isinstance(error, SyntaxError) else "it is nested too deeply"
    shown = expression if len(expression) <= LONGEST else f"{expression[:60]}..."
    return UserError(f"'{shown}' is not an expression: {why}")
