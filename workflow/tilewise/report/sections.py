"""The language of the pages: Markdown with Jinja2.

`{{ }}` shows a number, rounded by the rule of `number_format.rounded`, words from the data, a table or a figure.
"""

import math
import re
import traceback
from collections.abc import Collection, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from kernelscope.files import read_text
from kernelscope.yaml_input import suggest_name
from tilewise import ROOT, UserError
from tilewise.explain.number_format import rounded
from tilewise.report import notes
from tilewise.report.tables import PAGE_FIGURES, SIDE_BY_SIDE, STUDY_FIGURES, TABLES
from tilewise.study.columns import FACTS, WHOLE
from tilewise.study.kernel import Kernel

FOLDER = ROOT / "report" / "sections"
#: The pages: name -> title. The first is made of the sections, the others are articles.
PAGES = {"report": "This run", "story": "The story", "assignment": "The assignment"}
#: What sections and articles may call: the methods of this name of `page.Page`.
NAMES = "beside box claims figure further_tasks has in_steps table tiles verdicts_on what_ran".split()
#: What stays on one line: a number with its unit or its name, and the sides of a shape.
_STAYS = re.compile(
    r" (?=%)| (?=TFLOP/s)|(?<=\d) (?=(?:[GT]B/s|MHz|ms|J|W)\b)|(?<=\d) × (?=\d)|(?<=\bn) = (?=\d)"
    r"|(?<=\btile) (?=\d)|(?<=\bntb) (?=\d)"
)


def keep_together(text: str) -> str:
    """A text whose numbers stay on one line with their units."""
    return _STAYS.sub(lambda found: found[0].replace(" ", "\u00a0"), text)


class Language(ImmutableSandboxedEnvironment):
    """Fills the templates of a folder, which may use `names`.

    A template runs no code: Jinja2's sandbox closes Python's internals to it, and what it gets is plain data.
    """

    def __init__(self, names: Mapping[str, Any] | None = None, folder: Path = FOLDER) -> None:
        super().__init__(
            loader=FileSystemLoader(folder),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=format_value,
        )
        self.globals |= names or {}
        self.filters |= {each.__name__: each for each in FILTERS}

    def fill(self, name: str) -> str:
        """The text of a file; if it cannot be filled, a note with the file and the line."""
        try:
            return self.get_template(name).render()
        except Exception as error:  # whatever it is, the rest of the page goes on
            lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename.endswith(name)]
            return notes.note_html(notes.sentence(":".join(["Section: " + name, *map(str, lines[-1:])]), error))


def format_value(value: Any) -> str:
    """Format a value of `{{ }}`: markup as it is, numbers rounded (– if unknown), other text without markup."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Real):
        return "–" if math.isnan(value) else rounded(float(value))
    words = str(value)  # blanks at its ends belong to a sentence
    return " " * words.startswith(" ") + notes.plain_text(words) + " " * words.endswith(" ")


def whole(value: float) -> Markup:
    """`{{ n | whole }}`: a count with all its digits, such as 9,088."""
    return Markup(f"{value:,.0f}")


def times(value: float) -> Markup:
    """`{{ x | times }}`: a ratio, such as 1.43×."""
    return Markup(f"{rounded(value, 'x')}×")


def percent(value: float) -> Markup:
    """`{{ x | percent }}`: a percentage, such as 85 % or 4.1 %."""
    return Markup(f"{rounded(value, '%')}\u00a0%")


#: What a template may put behind a `|`, beside Jinja's own.
FILTERS = (percent, times, whole)


def names_of(folder: Path = FOLDER) -> list[str]:
    """The files of the sections in their order, which is that of their names."""
    return sorted(path.name for path in folder.glob("*.md"))


def check(kernels: Mapping[str, Kernel], tasks: Collection[str], folder: Path = FOLDER) -> None:
    """Raise UserError, with file and line, if a section is malformed or names what does not exist.

    That is a function, a filter, a test, a task, a table, a figure or a kernel.
    """
    compiler = Language(folder=folder)
    known: dict[str, tuple[str, Collection[str]]] = {
        "beside": ("task or table", {*tasks, *SIDE_BY_SIDE}),
        "figure": ("figure", {*tasks, *STUDY_FIGURES, *PAGE_FIGURES}),
        "has": ("task or table", {*tasks, *TABLES, *FACTS, *WHOLE}),
        "table": ("table", {*tasks, *TABLES}),
        "tiles": ("kernel", kernels),
    }
    for name in names_of(folder):
        try:
            tree = compiler.parse(read_text(folder / name), name)
            named = list(tree.find_all((nodes.Call, nodes.Filter, nodes.Test)))  # compiling may change the tree
            compiler.compile(tree, name)
        except TemplateSyntaxError as error:
            raise UserError(f"report/sections/{name}:{error.lineno}: {error.message}") from None
        for node in named:
            what, word, names = _named(node, known, compiler)
            if word not in names:
                remedy = suggest_name(word, sorted(names))
                raise UserError(f"report/sections/{name}:{node.lineno}: there is no {what} '{word}'; {remedy}")


def _named(
    node: nodes.Node, known: Mapping[str, tuple[str, Collection[str]]], compiler: Language
) -> tuple[str, str, Collection[str]]:
    """What a node of a section names: what it is, the name, and all names of its kind."""
    match node:
        case nodes.Filter(name=name):  # of which Jinja2 misses those within an `if`
            return "filter", name, compiler.filters
        case nodes.Test(name=name):
            return "test", name, compiler.tests
        case nodes.Call(node=nodes.Name(name=function), args=[nodes.Const(value=name), *_]) if function in known:
            return known[function][0], name, known[function][1]
        case nodes.Call(node=nodes.Name(name=name)):
            return "function", name, NAMES
    return "", "", {""}
