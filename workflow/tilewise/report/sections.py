"""The language of report/sections: Markdown with Jinja2, in which every sentence fits its numbers.

What `{{ }}` shows is a number, rounded by the rule of `number_format.rounded`, or words from the data. A block
`{% sentence %}` is left out if one of its numbers is not known, and `{% sentence if CONDITION %}` also if its condition
does not hold. If it cannot be made at all, a note takes its place.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import EnumType
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import FunctionLoader, StrictUndefined, TemplateSyntaxError, nodes, runtime, utils
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from kernelscope.files import read_text
from kernelscope.yaml_input import suggest_name
from tilewise import ROOT, UserError
from tilewise.evidence import Evidence, Platform
from tilewise.explain.number_format import rounded
from tilewise.explain.quantities import QUERIES, Choice, Spread, Untestable
from tilewise.explain.quantities import Machine as ClaimsMachine
from tilewise.report import notes
from tilewise.report.template_context import FIGURES, STUDY_FIGURES, TABLES
from tilewise.study.columns import COLUMNS, FACTS, WHOLE
from tilewise.study.kernel import Kernel
from tilewise.study.registry import parameters

FOLDER = ROOT / "report" / "sections"
#: The pages: name -> title. All but the story are made from the sections in a folder: page -> folder.
PAGES = {"report": "This run", "story": "The story", "assignment": "The assignment"}
FOLDERS = {"report": "tables", "assignment": "assignment"}
#: What sections may call: the methods of this name of `render.Page`.
NAMES = "beside claims facts figure five_numbers further_figures further_tables further_tasks".split()
NAMES += "gpus has kinds largest_products machines minimum_s origin overheads published row rows".split()
NAMES += "several speedups table tiles verdicts_on what_ran".split()
#: What stays on one line: a number with its unit, and the sides of a shape.
_STAYS = re.compile(r" (?=%)| (?=TFLOP/s)|(?<=\d) (?=(?:[GT]B/s|MHz|ms|J|W)\b)|(?<=\d) × (?=\d)|(?<=\bn) = (?=\d)")


def keep_together(text: str) -> str:
    """A text whose numbers stay on one line with their units."""
    return _STAYS.sub(lambda found: found[0].replace(" ", "\u00a0"), text)


class Sentence(Extension):
    """The block `sentence`, which can be left out."""

    environment: "Language"

    tags = {"sentence"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Compile a block to a call of `_said` with its place."""
        line = next(parser.stream).lineno
        condition = parser.parse_expression() if parser.stream.skip_if("name:if") else nodes.Const(True)
        body = parser.parse_statements(("name:endsentence",), drop_needle=True)
        otherwise = [nodes.Output([self.call_method("_not_so")])]
        call = self.call_method("_said", [nodes.Const(f"{parser.name}:{line}")])
        return nodes.CallBlock(call, [], [], [nodes.If(condition, body, [], otherwise)]).set_lineno(line)

    def _not_so(self) -> str:
        raise Untestable("its condition does not hold")

    def _said(self, place: str, caller: Callable[[], str]) -> str:
        try:
            return keep_together(f"{' '.join(caller().split())}\n")
        except (Untestable, ZeroDivisionError) as reason:  # a quotient by a count of zero is not known
            self.environment.left_out.append((place, str(reason)))
            return ""
        except Exception as error:  # whatever it is, the rest of the page goes on
            return notes.note_html(notes.sentence(f"Sentence: {place}", error)) + "\n"


class Language(ImmutableSandboxedEnvironment):
    """Compiles the sections of a folder, which may use `names`; `left_out` lists sentences' places and reasons.

    A section runs no code: Jinja2's sandbox closes Python's internals to it, and the only attributes are those of its
    own objects and of text, lists and mappings. A number of NumPy can write files.
    """

    def __init__(self, names: Mapping[str, Any] | None = None, folder: Path = FOLDER) -> None:
        super().__init__(
            loader=FunctionLoader(lambda name: read_text(folder / name)),
            extensions=[Sentence],
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=format_value,
        )
        self.globals |= names or {}
        self.filters |= {each.__name__: each for each in FILTERS}
        self.left_out: list[tuple[str, str]] = []

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a section may use an attribute."""
        return isinstance(obj, (Row, Machine, *_OPEN)) and super().is_safe_attribute(obj, attr, value)


#: What else has attributes in a section.
_OPEN = (
    str,
    list,
    tuple,
    dict,
    EnumType,
    runtime.LoopContext,
    runtime.Macro,
    utils.Namespace,
    utils.Cycler,
    utils.Joiner,
)


def format_value(value: Any) -> str:
    """Format a value of `{{ }}`: markup as it is, numbers rounded, other text without markup.

    Raises Untestable for a number that is not known.
    """
    value = plain_number(value)
    if isinstance(value, Markup):
        return value
    if isinstance(value, Real):
        return rounded(require_known(value))
    words = str(require_known(value))  # blanks at its ends belong to a sentence
    return " " * words.startswith(" ") + notes.plain_text(words) + " " * words.endswith(" ")


def require_known(value: Any) -> Any:
    """Return the value; raises Untestable if it is unknown."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise Untestable("a number is not known")
    return value


def plain_number(value: Any) -> Any:
    """The value of a measured number, and the text of a choice; sentences show no ranges."""
    if isinstance(value, Choice):
        return value.words
    return value.value if isinstance(value, Spread) else value


def digits(value: Any, number: int) -> Markup:
    """`{{ x | digits(4) }}`: a number with more digits than usual, where these make the point."""
    return Markup(rounded(require_known(plain_number(value)), number=number))


def whole(value: Any) -> Markup:
    """`{{ n | whole }}`: a count with all its digits, such as 9,088."""
    return Markup(f"{require_known(plain_number(value)):,.0f}")


def times(value: Any) -> Markup:
    """`{{ x | times }}`: a ratio, such as 1.43×."""
    return Markup(f"{rounded(require_known(plain_number(value)), 'x')}×")


def percent(value: Any) -> Markup:
    """`{{ x | percent }}`: a percentage, such as 85 % or 4.1 %."""
    return Markup(f"{rounded(require_known(plain_number(value)), '%')}\u00a0%")


def number_of(count: Any, noun: str) -> Markup:
    """`{{ n | number_of("block") }}`: a spelled-out number with its noun, such as two blocks."""
    number = int(require_known(plain_number(count)))
    words = _COUNTS[number - 1] if 0 < number <= len(_COUNTS) else f"{number:,}"
    return Markup(f"{words} {noun}{'' if number == 1 else 's'}")


_COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def listed(words: Iterable[str] | str, mark: str = "") -> Markup:
    """`{{ words | listed }}`: words with commas and an `and`, or with a mark between them.

    `{% filter listed(";") %}` makes a list of the items of a block, each of which begins with a hyphen.
    """
    if isinstance(words, str):
        words = [Markup(" ".join(each.split())) for each in re.split(r"^\s*- ", words, flags=re.MULTILINE)[1:]]
    *first, last = [format_value(each) for each in words] or [""]
    return Markup(f"{mark} ".join([*first, last]) if mark or not first else f"{', '.join(first)} and {last}")


def code(words: str) -> Markup:
    """`{{ row.kernel | code }}`: a name as code."""
    return Markup(f"<code>{format_value(words)}</code>")


def named(row: "Row") -> Markup:
    """`{{ row | named }}`: a kernel with its choice of parameters and its type."""
    choice = f" ({format_value(row.choice)})" if row.choice else ""
    return Markup(f"{code(row.kernel)}{choice} in {format_value(row.dtype)}")


#: What a section may put behind a `|`, beside Jinja's own.
FILTERS = (code, digits, listed, named, number_of, percent, times, whole)


def names_of(own: str = "*", folder: Path = FOLDER) -> list[str]:
    """The files of the sections in one of FOLDERS, or in all, in their order, which is that of their names."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob(f"{own}/*.md"))


def check(kernels: Mapping[str, Kernel], tasks: Collection[str], folder: Path = FOLDER) -> None:
    """Raise UserError, with file and line, if a section names what does not exist.

    That is a function, a filter, a test, a column, a task, a table, a figure or a kernel. Nor may it name another file.
    """
    compiler, columns = Language(folder=folder), {*COLUMNS, *parameters(kernels), "cube"}
    known = _known(kernels, tasks)
    for name in names_of(folder=folder):
        try:
            tree = compiler.parse(read_text(folder / name), name)
            named = list(tree.find_all(_NAMES_WHAT))  # compiling may change the tree
            compiler.compile(tree, name)
        except TemplateSyntaxError as error:
            raise UserError(f"report/sections/{name}:{error.lineno}: {error.message}") from None
        for node in named:
            wrong = _wrong(node, columns, known) if isinstance(node, nodes.Call) else _foreign(node, compiler)
            if wrong:
                raise UserError(f"report/sections/{name}:{node.lineno}: there is no {wrong}")


#: What of a section names other files, and what names anything.
_OTHER_FILES = (nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport)
_NAMES_WHAT = (nodes.Call, nodes.Getattr, nodes.Filter, nodes.Test, *_OTHER_FILES)


def _foreign(node: nodes.Node, compiler: Language) -> str:
    """What a filter, a test, an attribute or another file is that a section cannot have, in words; "" if it can.

    Jinja2 looks for most of them only when the page is made.
    """
    if isinstance(node, nodes.Getattr):
        return f"'{node.attr}' in a section; Python's own attributes are closed to it" * node.attr.startswith("_")
    if isinstance(node, nodes.Filter | nodes.Test):
        what, names = ("filter", compiler.filters) if isinstance(node, nodes.Filter) else ("test", compiler.tests)
        return "" if node.name in names else f"{what} '{node.name}'; {suggest_name(node.name, names)}"
    return f"`{type(node).__name__.lower()}` in a section, which stands alone; write its words here"


def _known(kernels: Mapping[str, Kernel], tasks: Collection[str]) -> dict[str, tuple[str, Collection[str]]]:
    """What the functions take as their first argument: function -> (what it is, all names of it)."""
    of_tasks, of_kernels = ("task", tasks), ("kernel", kernels)
    of_tables = ("table", {*tasks, *TABLES})
    return {
        "beside": of_tasks,
        "facts": of_tasks,
        "figure": ("figure", {*tasks, *STUDY_FIGURES, *FIGURES}),
        "gpus": of_tasks,
        "has": ("task or table", {*tasks, *TABLES, *FACTS, *WHOLE}),
        "machines": of_tasks,
        "row": of_tables,
        "rows": of_tables,
        "table": of_tables,
        "tiles": of_kernels,
    }


def _wrong(call: nodes.Call, columns: Collection[str], known: Mapping[str, tuple[str, Collection[str]]]) -> str:
    """What a call names that does not exist, in words; "" if all of it does."""
    called = call.node
    if isinstance(called, nodes.Name):
        if called.name not in {*NAMES, "ceil_div"}:
            return f"function '{called.name}'; {suggest_name(called.name, NAMES)}"
        if called.name in known:
            what, names = known[called.name]
            given = call.args if called.name in ("gpus", "machines") else call.args[:1]
            first = [each.value for each in given if isinstance(each, nodes.Const)]
            return next(
                (f"{what} '{name}'; {suggest_name(name, sorted(names))}" for name in first if name not in names), ""
            )
    if isinstance(called, nodes.Getattr):
        if called.attr not in {*QUERIES, "items"}:
            return f"function '{called.attr}'; {suggest_name(called.attr, QUERIES)}"
        wrong = [each.key for each in call.kwargs if each.key not in columns]
        if wrong:
            remedy = suggest_name(wrong[0], columns, "`python -m tilewise.study.columns` lists all")
            return f"column '{wrong[0]}'; {remedy}"
    return ""


class Row:
    """A row of a table, whose columns a sentence may name: `this.executed_percent`. An empty one is not known."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __contains__(self, column: str) -> bool:
        """`{% if "watts" in row %}`: whether a column is known."""
        value = self._values.get(column)
        return not (value is None or pd.isna(value))

    def __getattr__(self, column: str) -> Any:
        if column not in self:
            raise Untestable(f"{column} is not known")
        return self._values[column]


class Machine:
    """A platform that sentences ask: `gpu.time(kernel="naive")`. It has the functions of claims, without ranges."""

    def __init__(self, evidence: Evidence, platform: Platform) -> None:
        self._functions = ClaimsMachine(evidence, platform).functions()
        self._name = evidence.names[platform.name]
        self.cpu = platform.device.cpu["name"]
        self.name, self.device = platform.name, Row(platform.device.gpu or {})
        self._config = platform.config

    def __str__(self) -> str:
        return self._name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._functions:
            raise AttributeError(f"there is no function {name}; there are {', '.join(self._functions)}")
        return lambda *arguments, **where: plain_number(self._functions[name](*arguments, **where))

    @property
    def config(self) -> Markup:
        """The resolved config, as JSON."""
        return Markup(json.dumps(self._config, indent=1))
