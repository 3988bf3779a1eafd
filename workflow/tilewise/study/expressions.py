"""Arithmetic and boolean expressions of the registry and of the claims, evaluated in a sandbox.

Jinja's sandbox keeps an expression away from Python's attributes; here it also loses everything that could take long:
filters, and powers or repetitions of any size. An expression is a line of arithmetic over the names that it is given.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2
import jinja2.sandbox

from tilewise import UserError

#: The largest magnitude that a power may have.
LARGEST = 2**64


def ceil_div(a: int, b: int) -> int:
    """The least whole number that is no smaller than a / b."""
    return -(-a // b)


#: Functions that every expression may call.
FUNCTIONS = {"min": min, "max": max, "ceil_div": ceil_div}


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(value, int | float) for value in (left, right))
        # Arithmetic of other objects, such as a measured spread, is their own affair; text and lists are not
        # arithmetic.
        if isinstance(left, str | list | tuple) or isinstance(right, str | list | tuple):
            raise TypeError(f"'{operator}' is for numbers")
        if operator == "**" and numbers and (abs(right) > 64 or abs(left) ** min(abs(right), 64) > LARGEST):
            raise ArithmeticError("the power is too large")
        return super().call_binop(context, operator, left, right)


_sandbox = _Sandbox(undefined=jinja2.StrictUndefined)
_sandbox.filters.clear()
_sandbox.globals.clear()


@cache
def _compile(expression: str) -> Any:
    return _sandbox.compile_expression(expression, undefined_to_none=False)


def evaluate(expression: Any, variables: Mapping[str, Any]) -> Any:
    """The value of an expression over `variables`, a mapping from names to numbers or functions.

    Anything but text is its own value. Raises UserError if the expression is malformed or names something unknown;
    arithmetic errors, such as a division by zero, are passed on.
    """
    if not isinstance(expression, str):
        return expression
    if expression in variables:  # most are a name, for which nothing needs to be compiled
        return variables[expression]
    try:
        value = _compile(expression)(**FUNCTIONS | dict(variables))
        if isinstance(value, jinja2.Undefined):
            str(value)  # a lone unknown name is only an error once it is used
        return value
    except jinja2.UndefinedError as error:
        raise UserError(f"'{expression}': {error}; there are {', '.join(sorted(variables))}") from None
    except (jinja2.TemplateError, RecursionError, NameError) as error:  # a number such as 1e999 becomes a name
        raise UserError(f"'{expression}' is not an expression: {error}") from None
