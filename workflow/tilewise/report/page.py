"""A page as HTML: sections with their numbers, tables and figures, in one text that needs no network."""

import functools
import importlib.metadata
import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED, ROOT, UserError
from tilewise.evidence import Evidence, Platform, load_evidence
from tilewise.explain import quantities, timings
from tilewise.explain.climb import tile_sizes
from tilewise.report import beside, claims, figures, headlines, markup, notes, sections, tables
from tilewise.report.markup import TEMPLATES, pieces
from tilewise.report.tables import PAGE_FIGURES, TABLES
from tilewise.study.accuracy import MEANING

#: Who wrote this, the licence and, if there is one, the address of the repository.
CITATION = ROOT / "CITATION.cff"
#: The picture that a link to a page shows in a chat, which cannot show an SVG.
PREVIEW = "preview.png"
#: Where a page has its title and its first words.
_TITLE, _FIRST_WORDS = r"<h1[^>]*>(.*?)<a ", r"<p>(.*?)</p>"


def piece(name: str) -> Callable[[Callable[..., str]], Callable[..., Markup]]:
    """Make a piece of the page of the HTML that a method returns, which Markdown leaves alone; a note if it fails.

    `name` is that of the piece, with the method's {arguments}.
    """

    def decorate(make: Callable[..., str]) -> Callable[..., Markup]:
        @functools.wraps(make)
        def made(page: "Page", *values: Any, **named: Any) -> Markup:
            arguments = inspect.signature(make).bind(page, *values, **named).arguments
            make_it = functools.partial(make, page, *values, **named)
            page.pieces.append(notes.attempt(name.format(**arguments), make_it, notes.note_html))
            return Markup(f'<div data-piece="{len(page.pieces) - 1}"></div>')

        return made

    return decorate


class Page:
    """The functions of sections, and one page made of them; `sides` are the runs that stand side by side."""

    def __init__(self, evidence: Evidence, sides: beside.Sides | None = None) -> None:
        self.evidence = evidence
        self.sides = sides or beside.Sides(None, evidence)
        self.tasks: dict[str, Any] = evidence.config["tasks"]
        self.headings: list[tuple[str, str]] = []
        self.pieces: list[str] = []
        self._numbers = {"Table": itertools.count(1), "Figure": itertools.count(1)}
        self._markdown = MarkdownIt("commonmark", {"html": True}).enable("table")

    # ---- What sections may call --------------------------------------------------------------------------------------

    def names(self) -> dict[str, Any]:
        """The names that sections may use; `configs` has the resolved config of each machine, as JSON."""
        shown, labels = self.evidence.shown_platforms, self.evidence.names
        return {name: getattr(self, name) for name in sections.NAMES} | {
            "config": self.evidence.config,
            "configs": {labels[each.name]: Markup(json.dumps(each.config, indent=1)) for each in shown},
            "kinds": {name: Markup(words) for name, words in MEANING.items()},
            "nearly": quantities.NEARLY,
            "Verdict": claims.Verdict,
        }

    def has(self, name: str) -> bool:
        """Whether something is to be shown: a task of the config, or rows of a table of the evidence or of TABLES."""
        if name in self.evidence.facts:
            return not self.evidence.facts[name].empty
        return name in self.tasks or (
            name in TABLES and notes.attempt(name, lambda: len(tables.frame(name, self.evidence)) > 0, bool)
        )

    @piece("Figure: {title}")
    def figure(self, name: str, title: str, caption: str = "", folded: bool = False) -> str:
        """The figure of a task, of `figures.OVERVIEW` or of PAGE_FIGURES, with its caption in Markdown, or `folded`."""
        if name == "speedups":
            figure = headlines.draw_speedups(headlines.speedups(self.sides), self.sides)
        elif name in self.tasks or name in figures.OVERVIEW or name in PAGE_FIGURES:
            figure = (figures.task if name in self.tasks else figures.draw)(name, self.evidence)
        else:
            return ""
        anchor = name if name in (*self.tasks, "climb", "rungs", "speedups") else markup.anchor_of(title).lower()
        words = self._caption(title, caption)
        if missing := figures.missing_reason(figure):
            return markup.missing_html(missing, title, anchor)
        drawing = figures.svg(figure, anchor, title, Markup(words).striptags())
        shown = markup.pack(drawing) if folded else Markup(drawing)
        return pieces().figure(anchor, title, Markup(words), next(self._numbers["Figure"]), shown, folded)

    @piece("Table: {title}")
    def table(self, name: str, title: str, caption: str = "", folded: bool = False) -> str:
        """The table of a task or of TABLES, with its caption in Markdown; a `folded` one is only its fold."""
        if name not in TABLES and name not in self.tasks:
            return ""
        found = tables.frame(name, self.evidence)
        layout = name if name in TABLES else self.evidence.method(name)
        if layout == "sweep" and len(found) and not any(self.evidence.on_gpu(found["kernel"])):
            layout = "cpu"
        if name == "failures" and not (found["points"] > 1).any():
            found = found.drop(columns="points")
        place = name if name in self.tasks else markup.anchor_of(title).lower()
        number, words = next(self._numbers["Table"]), self._caption(title, caption)
        return markup.table_html(found, layout, words, self.evidence, place, number, folded)

    @piece("Table: {title}")
    def beside(
        self, name: str, title: str, caption: str = "", first: str = "size", blank: str = "", **wanted: Any
    ) -> str:
        """Numbers of the source, the recorded runs and this run: of a task, or a table of `headlines.TABLES`.

        `wanted` is for `beside.rows`, or with a `value` for `beside.facts`. `first` and `blank` are the headings of the
        first column and, for a reader's values, of an empty last one.
        """
        if name in headlines.TABLES:
            table = headlines.TABLES[name](self.sides)
        else:
            table = (beside.facts if "value" in wanted else beside.rows)(name, self.sides, **wanted)
        if table.empty:
            return ""
        number, words = next(self._numbers["Table"]), self._caption(title, caption)
        first = table.attrs.get("first", first)
        return beside.html(table, self.sides, first, words, markup.anchor_of(title).lower(), number, blank)

    def what_ran(self) -> list[dict[str, Any]]:
        """What this run measured, and what was not right, for each of its machines."""
        return headlines.what_ran(self.sides)

    @piece("Claims")
    def verdicts_on(self, *names: str) -> str:
        """The verdicts on some claims on the foremost machine."""
        return markup.verdicts_html(tables.frame("claims", self.evidence), self.evidence.foremost, names)

    @piece("Table: Claims")
    def claims(self) -> str:
        """The verdicts on the published claims: marks, and a table of all."""
        return markup.claims_html(tables.frame("claims", self.evidence), self.evidence, next(self._numbers["Table"]))

    @piece("Figure: Tiles of {name}")
    def tiles(self, name: str, idea: str, count: int, title: str) -> str:
        """What is new in a kernel, beside the `count` lines of code that begin with `idea`.

        It is drawn in the type for which it was written, as a rung, or else at its fastest.
        """
        kernel = self.evidence.kernels[name]
        rungs = tables.frame("rungs", self.evidence)  # whose boxes stand below the drawings
        rows = rungs if name in set(rungs["kernel"]) else timings.timed_rows(tables.frame("ladder", self.evidence))
        own = rows[(rows["kernel"] == name) & (rows["dtype"] == kernel.dtypes[0])].sort_values("gflops")
        tiles = None if own.empty else tile_sizes(own.iloc[-1])
        if not tiles:
            return ""
        row = own.iloc[-1]
        blocks = math.prod(-(-row[size] // part) for size, part in zip("nm", tiles["block"]))
        waves = blocks / self.evidence.device(row["platform"]).gpu["sms"]
        number = next(self._numbers["Figure"])
        return markup.kernel_html(kernel, tiles, idea, count, title, row.get("stages"), waves, number)

    @piece("Figure: {what} in steps")
    def in_steps(self, what: str, title: str) -> str:
        """A drawing of ideas.html.j2, such as how a ring of stages fills, in steps that a reader chooses."""
        name, ideas = f"story-{what}", pieces("ideas.html.j2")
        words, drawing = (
            Markup(self._caption(title, "Choose a step.")),
            ideas.buttons(name) + getattr(ideas, what)(name, title),
        )
        return pieces().figure(name, title, words, next(self._numbers["Figure"]), drawing)

    def box(self, kernel: str) -> Markup:
        """The numbers of a rung in float."""
        return Markup(f"{markup.rung_html(tables.frame('rungs', self.evidence), kernel)}\n\n")

    def further_tasks(self) -> dict[str, str]:
        """The tasks of the config that no section has in quotation marks: name -> title."""
        text = "".join((sections.FOLDER / name).read_text(encoding="utf-8") for name in sections.names_of())
        others = (name for name in self.tasks if f'"{name}"' not in text and self.evidence.method(name) != "tune")
        return {name: self.tasks[name]["title"] for name in others if name != "overhead"}

    # ---- What they are made of ---------------------------------------------------------------------------------------

    def _caption(self, title: str, caption: str) -> str:
        """The title and caption of a table or figure as HTML."""
        words = self._markdown.renderInline(" ".join(caption.split()))
        return f"<b>{escape(title)}.</b> {words}".rstrip()

    # ---- From pieces to the page -------------------------------------------------------------------------------------

    def section(self, name: str) -> str:
        """A file of report/sections as HTML; one that cannot be made is a note."""
        return self._html(sections.Language(self.names()).fill(name))

    def article(self, place: Path, numbers: Mapping[str, Any]) -> str:
        """An article with its numbers as HTML; one that cannot be made is a note."""
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
        return re.sub(r'<div data-piece="(\d+)"></div>', lambda found: self.pieces[int(found[1])], found)

    def html(
        self,
        page: str = "report",
        parts: list[str] | None = None,
        measured: Iterable[Platform] | None = None,
        pages: Mapping[str, str] = sections.PAGES,
    ) -> str:
        """One of sections.PAGES as a whole: the sections, or these `parts`, which this object has made.

        It is about the platforms `measured` (default: all), and has links to `pages`; those of a run have the picture
        PREVIEW beside them.
        """
        parts = parts or [self.section(name) for name in sections.names_of()]
        found = (re.search(pattern, parts[0], re.DOTALL) for pattern in (_TITLE, _FIRST_WORDS))
        title, words = (Markup(each[1]).striptags() if each else "" for each in found)
        about = self.evidence.shown_platforms if measured is None else measured
        return TEMPLATES.get_template("report.html.j2").render(
            page=page,
            pages=pages,
            sections=map(Markup, parts),
            headings=self.headings,
            title=title,
            description=words,
            preview=PREVIEW if pages == sections.PAGES else "",
            cited=read_yaml(CITATION),
            measured=[(each.label, each.device.captured[:10], each.commits) for each in about],
            datatables=_datatables() if any("data-table=" in each for each in parts) else "",
        )


def load(folders: Iterable[Path | str] | None = None, recorded: Path | str = RECORDED) -> Page:
    """The page of the platforms in `folders` (default: all in results/), with the recorded ones beside them."""
    evidence = load_evidence(folders, recorded=recorded)
    return Page(evidence, beside.Sides(beside.load_record(Path(recorded)), evidence))


@functools.cache
def _datatables() -> str:
    """DataTables, with all that it needs: the body of a function that returns it, packed by gzip, in base64.

    It is a fifth of a page as text, and no reader needs it before a fold is opened.
    """
    remedy = "install the itables of pyproject.toml, as `make` does"
    try:  # importing itables would take longer than all that is needed of it
        package = importlib.metadata.distribution("itables")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"the package itables, which sorts the tables of the pages, is missing; {remedy}") from None
    path = Path(str(package.locate_file("itables/html/dt_bundle.js")))
    text, found = re.subn(r"export *\{[^}]*?(\w+) as default[^}]*\}", r"return \1", path.read_text(encoding="utf-8"))
    if found != 1:
        raise UserError(f"{path}: it does not export DataTables; {remedy}")
    return markup.pack(f'"use strict";{text}')
