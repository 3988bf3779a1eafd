"""A page as HTML: sections with their numbers, tables and figures, in one text that needs no network."""

import functools
import importlib.metadata
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED, ROOT, UserError
from tilewise.evidence import Evidence, Platform, load_evidence
from tilewise.explain import quantities, timings
from tilewise.explain.tiling import tile_sizes
from tilewise.report import articles, beside, claims, figures, headlines, markup, notes, sections, tables
from tilewise.report.drawings import pieces
from tilewise.report.template_context import FIGURES, LAYOUTS, TABLES
from tilewise.study.accuracy import MEANING

TEMPLATE = ROOT / "report" / "template" / "report.html.j2"
#: Who wrote this, the licence and, if there is one, the address of the repository.
CITATION = ROOT / "CITATION.cff"
#: The picture that a link to a page shows in a chat, which cannot show an SVG.
PREVIEW = "preview.png"
#: Where a page has its title and its first words.
_TITLE, _FIRST_WORDS = r"<h1[^>]*>(.*?)<a ", r"<p>(.*?)</p>"


class Page:
    """The functions of sections, and the page made of them; `sides` are the runs that stand side by side."""

    def __init__(self, evidence: Evidence, sides: beside.Sides | None = None) -> None:
        self.evidence = evidence
        self.sides = sides or beside.Sides(None, evidence)
        self.tasks: dict[str, Any] = evidence.config["tasks"]
        self._begin()
        self._pieces: list[str] = []
        self._tables: dict[str, pd.DataFrame] = {}
        self._markdown = MarkdownIt("commonmark", {"html": True}).enable("table")

    # ---- What sections may call --------------------------------------------------------------------------------------

    def names(self) -> dict[str, Any]:
        """The names that sections may use."""
        return {name: getattr(self, name) for name in sections.NAMES} | {
            "config": self.evidence.config,
            "kinds": {name: Markup(words) for name, words in MEANING.items()},
            "nearly": quantities.NEARLY,
            "Verdict": claims.Verdict,
        }

    def has(self, name: str) -> bool:
        """Whether something is to be shown: a task of the config, or rows of a table of the evidence or of TABLES."""
        if name in self.evidence.facts:
            return not self.evidence.facts[name].empty
        return name in self.tasks or (name in TABLES and notes.attempt(name, lambda: len(self.frame(name)) > 0, bool))

    def configs(self) -> dict[str, Markup]:
        """The resolved config of each machine, as JSON."""
        shown, names = self.evidence.shown_platforms, self.evidence.names
        return {names[each.name]: Markup(json.dumps(each.config, indent=1)) for each in shown}

    def figure(self, name: str, title: str, caption: str = "", folded: bool = False) -> Markup:
        """The figure of a task, of `figures.OVERVIEW` or of FIGURES, with its caption in Markdown, or `folded`."""
        if name not in self.tasks and name not in figures.OVERVIEW and name not in FIGURES:
            return Markup("")
        draw = figures.task if name in self.tasks else figures.draw
        anchor = name if name in (*self.tasks, "climb", "rungs") else ""
        return self._figure(title, caption, lambda: draw(name, self.evidence), anchor, folded)

    def table(self, name: str, title: str, caption: str = "", layout: str = "", folded: bool = False) -> Markup:
        """The table of a task or of TABLES, with its caption in Markdown; a `folded` one is only its fold."""
        if name in TABLES:
            layout, anchor = LAYOUTS.get(name, name), ""
        elif name in self.tasks:
            layout, anchor = layout or self.evidence.method(name), name
        else:
            return Markup("")

        def made() -> str:
            found = self.frame(name)
            if name == "failures" and not (found["points"] > 1).any():
                found = found.drop(columns="points")
            number = next(self._numbers["Table"])
            words = self._caption(title, caption)
            place = anchor or markup.name_of(title)
            return markup.table_html(found, layout or None, words, self.evidence, place, number, folded)

        return self._piece(f"Table: {title}", made)

    def beside(
        self,
        name: str,
        title: str,
        caption: str = "",
        first: str = "size",
        key: str = "",
        blank: str = "",
        errors: bool = False,
        largest: bool = False,
        **where: Any,
    ) -> Markup:
        """The numbers of a task: the source's, the recorded ones and those of this run, of rows with the given values.

        A row is a product with its best choice, or with a `key` each choice of it, which then names the table. `errors`
        replaces rates by errors. `largest` keeps only the largest square product of this run, with its kernels in the
        registry's order.
        """

        def found() -> pd.DataFrame:
            if not largest:
                return beside.rows(name, self.sides, where, key, errors)
            rows = beside.rows(name, self.sides, where | beside.largest_square(name, self.sides))
            return timings.by_kernel(rows, self.evidence)

        return self._beside(title, caption, found, first, blank)

    def facts(
        self, name: str, title: str, caption: str = "", label: str = "", value: str = "", note: str = "", **where: Any
    ) -> Markup:
        """A method's table of a task, the recorded runs and this run side by side; see `beside.facts`."""
        return self._beside(title, caption, lambda: beside.facts(name, self.sides, label, value, note, where), "", "")

    def five_numbers(self, title: str, caption: str = "") -> Markup:
        """The headline numbers of this run beside those of the source and the record."""
        n = beside.largest_square("task1a", self.sides).get("n", "")
        first = f"float, n = {n}" if n else "float"
        return self._beside(title, caption, lambda: headlines.five_numbers(self.sides), first, "")

    def what_ran(self) -> list[dict[str, Any]]:
        """What this run measured, and what was not right, for each of its machines."""
        return headlines.what_ran(self.sides)

    def speedups(self, title: str, caption: str = "") -> Markup:
        """The speed-up over the naive kernel, rung by rung, of this run and the recorded ones."""

        def draw() -> Figure:
            return headlines.draw_speedups(headlines.speedups(self.sides), self.sides)

        return self._figure(title, caption, draw, "speedups")

    def largest_products(self, title: str, caption: str = "", blank: str = "") -> Markup:
        """The largest n of the source, the recorded runs and this run, and what was timed there."""
        return self._beside(title, caption, lambda: beside.largest_products(self.sides), "quantity", blank)

    def _beside(self, title: str, caption: str, find: Callable[[], pd.DataFrame], first: str, blank: str) -> Markup:
        def made() -> str:
            found, name = find(), markup.name_of(title)
            if found.empty:
                return ""
            number = pieces().number("Table", f"table-{name}", next(self._numbers["Table"]))
            words = f"{number} {self._caption(title, caption)} {markup.csv_link(beside.tidy(found, self.sides), name)}"
            return beside.html(found, self.sides, first, words, name, blank)

        return self._piece(f"Table: {title}", made)

    def verdicts_on(self, *names: str) -> Markup:
        """The verdicts on some claims, on the first machine with times."""
        first = self.evidence.gpus_first[0].name
        return self._piece("Claims", lambda: markup.verdicts_html(self.frame("claims"), first, names))

    def claims(self) -> Markup:
        """The verdicts on the published claims: marks, and a table of all."""

        def made() -> str:
            return markup.claims_html(self.frame("claims"), self.evidence, next(self._numbers["Table"]))

        return self._piece("Table: Claims", made)

    def tiles(self, name: str, idea: str, count: int, title: str) -> Markup:
        """What is new in a kernel, beside the `count` lines of code that begin with `idea`.

        It is drawn in the type for which it was written, as a rung, or else at its fastest.
        """

        def made() -> str:
            kernel, rungs = self.evidence.kernels[name], self.frame("rungs")  # whose boxes stand below the drawings
            rows = rungs if name in set(rungs["kernel"]) else timings.timed_rows(self.frame("ladder"))
            own = rows[(rows["kernel"] == name) & (rows["dtype"] == kernel.dtypes[0])]
            if own.empty:
                return ""
            row = own.sort_values("gflops").iloc[-1]
            device = self.evidence.device(row["platform"])
            tiles = tile_sizes(row)
            if not tiles:
                return ""
            waves = math.prod(-(-row[size] // part) for size, part in zip("nm", tiles["block"])) / device.gpu["sms"]
            number = next(self._numbers["Figure"])
            return markup.kernel_html(kernel, tiles, idea, count, title, row.get("stages"), waves, number)

        return self._piece(f"Figure: Tiles of {name}", made)

    def filling(self) -> Markup:
        """How a ring of stages fills, in steps that a reader chooses."""

        def made() -> str:
            name, title, ideas = "story-ring", "A ring fills and empties", pieces("ideas.html.j2")
            words, drawing = Markup(self._caption(title, "Choose a step.")), ideas.buttons(name) + ideas.filling(name)
            return pieces().figure(name, title, words, next(self._numbers["Figure"]), drawing)

        return self._piece("Figure: ring", made)

    def box(self, kernel: str) -> Markup:
        """The numbers of a rung in float."""
        said = articles.box(self.frame("rungs"), kernel)
        items = [(term, Markup(self._markdown.renderInline(words))) for term, words in said]
        return Markup(f"{pieces().step(items)}\n\n")

    def further_tasks(self) -> dict[str, str]:
        """The tasks of the config that no section has in quotation marks: name -> title."""
        text = "".join((sections.FOLDER / name).read_text(encoding="utf-8") for name in sections.names_of())
        others = (name for name in self.tasks if f'"{name}"' not in text and self.evidence.method(name) != "tune")
        return {name: self.tasks[name]["title"] for name in others if name != "overhead"}

    # ---- What they are made of ---------------------------------------------------------------------------------------

    def frame(self, name: str) -> pd.DataFrame:
        """A table of TABLES, or of a task."""
        if name not in self._tables:  # several pieces need it
            self._tables[name] = TABLES.get(name, functools.partial(tables.task, name))(self.evidence)
        return self._tables[name]

    def _caption(self, title: str, caption: str) -> str:
        """The title and caption of a table or figure as HTML."""
        words = self._markdown.renderInline(" ".join(caption.split()))
        return f"<b>{escape(title)}.</b> {words}".rstrip()

    def _figure(
        self, title: str, caption: str, draw: Callable[[], Figure], anchor: str = "", folded: bool = False
    ) -> Markup:
        def made() -> str:
            figure, words = draw(), self._caption(title, caption)
            name = anchor or markup.name_of(title)
            if missing := figures.missing_reason(figure):
                return markup.missing_html(missing, title, name)
            drawing = figures.svg(figure, name, title, Markup(words).striptags())
            shown = markup.pack(drawing) if folded else Markup(drawing)
            return pieces().figure(name, title, Markup(words), next(self._numbers["Figure"]), shown, folded)

        return self._piece(f"Figure: {title}", made)

    # ---- From pieces to the page -------------------------------------------------------------------------------------

    def _piece(self, name: str, make: Callable[[], str]) -> Markup:
        """HTML that Markdown leaves alone; if it cannot be made, its note."""
        self._pieces.append(notes.attempt(name, make, notes.note_html))
        return Markup(f'<div data-piece="{len(self._pieces) - 1}"></div>')

    def section(self, name: str) -> str:
        """A file of report/sections as HTML; one that cannot be made is a note."""
        return self._html(sections.Language(self.names()).fill(name))

    def article(self, place: Path, numbers: Mapping[str, Any]) -> str:
        """A text of `articles` with its numbers as HTML; one that cannot be made is a note."""
        text = sections.Language({**self.names(), **numbers}, place.parent).fill(place.name)
        caption = re.compile(r"<p>Table: <strong>(.*?)\.</strong>(.*?)</p>\s*<table>(.*?)</table>", re.DOTALL)
        box = '<div class="table" tabindex="0" role="region" aria-label="{0}"><table>'
        box += "<caption><span><b>{0}.</b>{1}</span></caption>{2}</table></div>"
        return caption.sub(lambda found: box.format(*found.groups()), self._html(sections.keep_together(text)))

    def text(self, source: str) -> str:
        """A piece of a section as HTML, for a writer who tries one."""
        return self._html(sections.Language(self.names()).from_string(source).render())

    def _html(self, text: str) -> str:
        tokens = self._markdown.parse(text)
        for heading, words in itertools.pairwise(tokens):
            if heading.type == "heading_open" and words.children:
                title = "".join(each.content for each in words.children)
                anchor = markup.anchor_of(title)
                heading.attrSet("id", anchor)
                link = f'<a class="anchor-link" href="#{anchor}" aria-label="Link to {escape(title)}">¶</a>'
                words.children.append(Token("html_inline", "", 0, content=link))
                self.headings += [(anchor, title)] if heading.tag == "h2" else []
        found = self._markdown.renderer.render(tokens, self._markdown.options, {})
        return re.sub(r'<div data-piece="(\d+)"></div>', lambda piece: self._pieces[int(piece[1])], found)

    def html(
        self,
        page: str = "report",
        make: Callable[[], list[str]] | None = None,
        measured: Iterable[Platform] | None = None,
        pages: Mapping[str, str] = sections.PAGES,
    ) -> str:
        """One of sections.PAGES as a whole page with its own numbers: the sections, or what `make` returns.

        It is about the platforms `measured` (default: all), and has links to `pages`; those of a run have the picture
        PREVIEW beside them.
        """
        self._begin()
        parts = make() if make else [self.section(name) for name in sections.names_of()]
        loader = Environment(loader=FileSystemLoader(TEMPLATE.parent), trim_blocks=True, lstrip_blocks=True)
        found = (re.search(pattern, parts[0], re.DOTALL) for pattern in (_TITLE, _FIRST_WORDS))
        title, words = (Markup(each[1]).striptags() if each else "" for each in found)
        about = self.evidence.shown_platforms if measured is None else measured
        return loader.get_template(TEMPLATE.name).render(
            page=page,
            pages=pages,
            sections=parts,
            headings=self.headings,
            title=title,
            description=words,
            preview=PREVIEW if pages == sections.PAGES else "",
            cited=read_yaml(CITATION),
            measured=[(each.label, each.device.captured[:10], each.commits) for each in about],
            datatables=_datatables() if any("data-table=" in each for each in parts) else "",
        )

    def _begin(self) -> None:
        """Forget the headings, the numbers and the notes of another page."""
        self.headings: list[tuple[str, str]] = []
        self._numbers = {"Table": itertools.count(1), "Figure": itertools.count(1)}


def load(folders: Iterable[Path | str] | None = None, recorded: Path | str = RECORDED) -> Page:
    """The page of the platforms in `folders` (default: all in results/), with the recorded ones beside them."""
    evidence = load_evidence(folders, recorded=recorded)
    return Page(evidence, beside.Sides(beside.load_record(Path(recorded)), evidence))


def _datatables() -> str:
    """DataTables, with all that it needs: the body of a function that returns it, packed by gzip, in base64.

    It is a fifth of a page as text, and no reader needs it before a fold is opened.
    """
    # Importing itables would take longer than all that is needed of it.
    path = Path(str(importlib.metadata.distribution("itables").locate_file("itables/html/dt_bundle.js")))
    text, found = re.subn(r"export *\{[^}]*?(\w+) as default[^}]*\}", r"return \1", path.read_text(encoding="utf-8"))
    if found != 1:
        raise UserError(f"{path}: it does not export DataTables; pip install the itables of pyproject.toml")
    return markup.pack(f'"use strict";{text}')
