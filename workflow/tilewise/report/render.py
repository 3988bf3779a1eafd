"""The pages: those of a run, and of the recorded runs, with their figures and tables as files beside them."""

import contextlib
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from kernelscope.files import atomic_path
from tilewise import RECORDED, UserError
from tilewise.evidence import load_evidence
from tilewise.files import write_json
from tilewise.report import articles, beside, figure_rows, figures, markup, notes, sections
from tilewise.report.page import TEMPLATE, Page, load, preview_of

#: The first words of the index of a site, and what it says of each page.
_INDEX = """<h1>Tilewise: CUDA matrix multiplication, measured and verified</h1>
<p>A study of kernels from the textbook to the limit of the chip. These pages show its recorded runs.</p>
"""
_CONTENTS = {
    "report": "every table and figure, verdicts on published claims, machines and versions",
    "story": "the ladder of kernels, rung by rung",
    "assignment": "the questions of a published assignment, with answers",
}


def assignment(
    sides: beside.Sides,
    answers: bool = True,
    article: Path = articles.ASSIGNMENT,
    pages: Mapping[str, str] = sections.PAGES,
) -> str:
    """The page of source a's assignment with links to `pages` and its answers, which are about the recorded runs.

    If there are none, a sentence stands in the place of the answers; if these contradict the record, a note.
    """
    page, numbers = Page(sides.first, sides=sides), dict[str, Any]()
    instead = "The answers are about the recorded runs, which this copy of the study lacks (report/recorded)." * answers
    if answers and sides.record and _is_recorded(article):
        numbers, instead = notes.attempt(
            "Answers", lambda: (_fill(article)[0], ""), lambda note: (numbers, notes.note_html(note))
        )
    names = {"answers": bool(numbers), "instead": Markup(instead), "own": sides.own is not None, **numbers}
    return page.html("assignment", lambda: [page.article(article, names)], pages=pages)


def _is_recorded(article: Path) -> bool:
    """Whether there is one of the runs that an article is about."""
    return any((RECORDED / name).is_dir() for name in articles.runs(article))


def _fill(article: Path) -> tuple[dict[str, Any], dict[str, Page]]:
    """The numbers of an article, and a page of each of the runs that it is about."""
    pages = {name: _page_of(RECORDED / name) for name in articles.runs(article)}
    return articles.fill(pages, article), pages


@functools.lru_cache(maxsize=4)
def _page_of(recorded: Path) -> Page:
    """The page of a recorded run, whose tables two articles need."""
    return Page(load_evidence([recorded]))


def render(
    output: Path | str,
    folders: Iterable[Path | str],
    recorded: Path | str = RECORDED,
    drawn: Path | str | None = None,
) -> list[str]:
    """Write the pages of the platforms in `folders`, their figures beside them, and their notes, which are returned.

    `output` is the first of sections.PAGES; the others are written beside it. The figures are in
    `markup.FIGURES_FOLDER`, for readers without scripts, the notes in `notes.FILE`. `drawn` is the folder of the
    figures of the tasks, if they are drawn already.
    """
    page = load([Path(folder) for folder in folders], recorded, drawn=drawn)
    made, told = _all_pages(page, sections.PAGES)
    texts = {Path(output).with_name(f"{name}.html"): text for name, text in made.items()}
    found = _notes_of(made)
    write_json(found, Path(output).with_name(notes.FILE))
    write(texts, told.drawings | page.drawings)
    for name, own in (("report", page), ("story", told)):
        with atomic_path(Path(output).parent / preview_of(name)) as picture:
            drawn_as = notes.attempt("Preview", functools.partial(_preview, own), figures.empty_figure)
            drawn_as.set_size_inches(8, 4.2)  # 1200 x 630, as services that show links want it
            drawn_as.savefig(picture, format="png", dpi=150, facecolor="white")
    return found


def write_site(folder: Path, recorded: Path = RECORDED) -> list[str]:
    """Write the pages of the recorded runs alone, and an index, for readers without a run; returns their notes.

    Nothing lies beside these four files: their scripts offer the tables and figures to take away. Raises UserError if
    there is no recorded run.
    """
    page = _recorded_page(recorded)
    pages = sections.PAGES | {"report": "The recorded runs"}
    made, _ = _all_pages(page, pages)
    items = "".join(f'<li><a href="{name}.html">{title}</a>: {_CONTENTS[name]}</li>' for name, title in pages.items())
    made["index"] = page.html("index", lambda: [f"{_INDEX}<ul>{items}</ul>"], pages=pages)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return _notes_of(made)


def _recorded_page(recorded: Path) -> Page:
    """The page of the recorded runs without another run. Raises UserError if there is none."""
    record = beside.load_record(recorded)
    if record is None:
        raise UserError(f"{recorded}: there is no recorded run, whose numbers the page shows; use a whole clone")
    return Page(record, sides=beside.Sides(record, None))


def _all_pages(page: Page, pages: Mapping[str, str]) -> tuple[dict[str, str], Page]:
    """The texts of all pages by name, with links to `pages`; and that of the story with its drawings."""
    story, told = story_page(page, pages=pages)
    return {
        "report": page.html(pages=pages),
        "story": story,
        "assignment": assignment(page.sides, pages=pages),
    }, told


def _notes_of(texts: Mapping[str, str]) -> list[str]:
    """The notes of pages, each once."""
    return list(dict.fromkeys(note for text in texts.values() for note in notes.find_notes(text)))


def _preview(page: Page) -> Figure:
    """The climb on the first GPU."""
    rows = figure_rows.rungs_of_ladder(page.evidence)
    first = [gpu.name for gpu in page.evidence.gpus[:1]]
    return figures.draw("climb", page.evidence, rows[rows["platform"].isin(first)])


def story_page(
    page: Page, article: Path = articles.STORY, pages: Mapping[str, str] = sections.PAGES
) -> tuple[str, Page]:
    """The page of the story, as HTML with links to `pages` and with its drawings; it is about the recorded runs alone.

    If the record contradicts it or is damaged, a note stands in its place, on `page`; if there is none, a sentence.
    """

    def instead(words: str) -> tuple[str, Page]:
        return page.html("story", lambda: [f"<h1>{pages['story']}</h1><p>{words}</p>"], (), pages), page

    def made() -> tuple[str, Page]:
        numbers, of_run = _fill(article)
        first = next(iter(of_run.values()))

        def parts() -> list[str]:
            opening, rest = first.article(article, numbers).split("<h2", 1)
            return [f'<div class="first">{opening}</div>\n<h2{rest}']

        return first.html("story", parts, [gpu for each in of_run.values() for gpu in each.evidence.gpus], pages), first

    if not _is_recorded(article):
        return instead("The story is about the recorded runs, which this copy of the study lacks (report/recorded).")
    return notes.attempt("Page: story.html", made, lambda note: instead(notes.note_html(note)))


def write_assignment(output: Path | str, answers: bool, recorded: Path = RECORDED) -> None:
    """Write the page of source a's assignment from the recorded runs alone, with or without answers.

    Without answers it stands alone, without links to other pages. Raises UserError if there is no recorded run.
    """
    text = assignment(_recorded_page(recorded).sides, answers, pages=sections.PAGES if answers else {})
    with atomic_path(output) as file:
        file.write_text(text, encoding="utf-8")


def write(texts: Mapping[Path, str], drawn: Mapping[str, str]) -> None:
    """Write pages of one folder, and beside them their figures and tables as files; older ones are removed."""
    folder = next(iter(texts)).parent / markup.FIGURES_FOLDER
    drawings = _in_colour(drawn, TEMPLATE.with_name("style.css").read_text(encoding="utf-8"))
    with contextlib.ExitStack() as pages:  # they appear when their figures are there
        for output, text in texts.items():
            pages.enter_context(atomic_path(output)).write_text(text, encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for name, drawing in drawings.items():
            with atomic_path(folder / f"{name}.svg") as figure:
                figure.write_text(drawing, encoding="utf-8")
        tables_of = {name: table for text in texts.values() for name, table in markup.packed_files(text).items()}
        for name, table in tables_of.items():
            with atomic_path(folder / name) as file:
                file.write_text(table, encoding="utf-8")
        for old in (*folder.glob("*.svg"), *folder.glob("*.csv")):
            if old.stem not in drawings and old.name not in tables_of:
                old.unlink()


def _in_colour(drawn: Mapping[str, str], style: str) -> dict[str, str]:
    """Drawings in the colours of the light scheme, which come first in the style."""
    colours = dict(re.findall(r"(--\w+): (#\w+)", style[: style.index("}")]))
    # A title may say var(--x) too.
    plain = re.compile(r"var\((--\w+)\)")
    return {name: plain.sub(lambda found: colours.get(found[1], found[0]), svg) for name, svg in drawn.items()}
