"""Expressions of the registry and of the claims: what they can say, and that none takes long, however it is written."""

import resource
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise import UserError
from tilewise.study.expressions import LARGEST, LONGEST, evaluate

NAMES = {"n": 33, "tile": 16, "word": "16 × 64", "pair": ["a", "b"], "nothing": None, "twice": lambda x, by=2: x * by}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n", 33),
        (" 2 * (n + 1) - -tile ", 84),
        ("n / 2 + n // 2 + n % 2", 33.5),
        ("2 ** 21", 2**21),
        ("ceil_div(n, tile) * min(n, tile) + max(1, 2)", 50),
        ("twice(n) + twice(n, by=3)", 165),
        ("n if n % 2 else 0", 33),
        ("0 < n <= 33 and not tile == 15", True),
        ("n in (32, 33) and n not in [1, 2]", True),
        ("0 < 1 > n", False),
        ("word == '16 × 64'", True),
        ("pair[0] != pair[1]", True),
        ("nothing == none", True),
        ("true", True),
        ("n > 1 or n / 0", True),
        ("n >\n  1", True),
        (7, 7),
    ],
)
def test_an_expression_has_its_value(expression, value):
    assert evaluate(expression, NAMES) == value


@pytest.mark.parametrize(
    "expression",
    [
        "'a'.ljust(20000000000)",
        "'%20000000000d' % 1",
        "f'{n:20000000000}'",
        "'a' * 20000000000",
        "20000000000 * [n]",
        "word + word",
        "9 ** 9 ** 9",
        "2.0 ** 10 ** 9",
        "1 << 20000000000",
        "max(i for i in [n])",
        "[i for i in pair]",
        "pair[0:20000000000]",
        "twice(*pair)",
        "twice(**pair)",
        "lambda: n",
        "(x := n)",
        "n.__class__",
        "twice.__globals__",
        "().__class__.__bases__",
        "1e999",
        "1j",
        "b'a'",
        "__import__('os')",
        "n; n",
        "n +",
        "",
        "(" * 400 + "n" + ")" * 400,
        "not " * 240 + "n.real",
        "9" * 5000,
        "n * " * LONGEST + "n",
        "n\0",
    ],
)
def test_what_is_no_arithmetic_is_refused_at_once(expression):
    begin, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((UserError, TypeError, ArithmeticError)) as error:
        evaluate(expression, NAMES)
    assert "\n" not in str(error.value) and len(str(error.value)) < 3 * LONGEST
    assert time.process_time() - begin < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 100_000, "in KB"


@given(
    st.recursive(
        st.sampled_from(["n", "tile", "9", "0", "1.5", "'a'", "pair", "1e300"]),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+ - * / // % ** < == in and or".split()), inner),
            st.builds("max({}, {})".format, inner, inner),
            st.builds("[{}][{}]".format, inner, inner),
            st.builds("(not -{})".format, inner),
        ),
    )
)
def test_any_expression_has_a_value_or_an_error_that_callers_expect(expression):
    try:
        value = evaluate(expression, NAMES)
    except (UserError, ArithmeticError, LookupError, TypeError, ValueError):
        return
    assert not isinstance(value, int) or abs(value) < LARGEST**LONGEST


def test_an_unknown_name_is_named_with_those_there_are():
    with pytest.raises(UserError, match=r"'2 \* width': 'width' is undefined; there are tile"):
        evaluate("2 * width", {"tile": 2})


def test_a_name_is_missed_also_where_no_value_asks_for_it():
    with pytest.raises(UserError, match="'width' is undefined"):
        evaluate("tile if true else width", {"tile": 2})


def test_a_mistake_is_explained():
    with pytest.raises(UserError, match=r"'n \+' is not an expression: invalid syntax"):
        evaluate("n +", NAMES)
    with pytest.raises(UserError, match=r"'n.real' cannot be in one; it takes numbers, names, \+ - .*, comparisons"):
        evaluate("n.real", NAMES)


def test_what_python_s_stack_is_too_short_for_is_refused():
    def deep(frames):
        return deep(frames - 1) if frames else evaluate("-" * 700 + "n", NAMES)

    for frames in (0, 600):  # the second time its parts are known already
        try:
            assert deep(frames) == NAMES["n"]
        except UserError as error:
            assert "nested too deeply" in str(error)
    with pytest.raises(UserError, match="nested too deeply"):
        deep(600)


def test_arithmetic_of_other_objects_is_theirs():
    class Spread:
        def __rsub__(self, other):
            return f"{other} less"

    assert evaluate("n - spread", NAMES | {"spread": Spread()}) == "33 less"
