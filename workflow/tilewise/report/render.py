"""The pages: those of a run, and of the recorded runs."""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from kernelscope.files import atomic_path
from tilewise import RECORDED, UserError
from tilewise.evidence import Evidence, load_evidence
from tilewise.files import write_json
from tilewise.report import articles, beside, figures, notes, sections
from tilewise.report.page import PREVIEW, Page, load


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


def render(output: Path | str, folders: Iterable[Path | str], recorded: Path | str = RECORDED) -> list[str]:
    """Write the pages of the platforms in `folders`, PREVIEW, and the notes, which are returned, into `notes.FILE`.

    `output` is the first of sections.PAGES; the others are written beside it.
    """
    page = load([Path(folder) for folder in folders], recorded)
    found = _write(Path(output).parent, _all_pages(page, sections.PAGES))
    write_json(found, Path(output).with_name(notes.FILE))
    with atomic_path(Path(output).with_name(PREVIEW)) as picture:
        drawn = notes.attempt("Preview", functools.partial(_climb, page.evidence), figures.empty_figure)
        drawn.set_size_inches(8, 4.2)  # 1200 x 630, as services that show links want it
        drawn.savefig(picture, format="png", dpi=150, facecolor="white")
    return found


def _climb(evidence: Evidence) -> Figure:
    """The climb on the first GPU."""
    rows = figures.rungs_of_ladder(evidence)
    return figures.draw("climb", evidence, rows[rows["platform"].isin([gpu.name for gpu in evidence.gpus[:1]])])


def write_site(folder: Path, recorded: Path = RECORDED) -> list[str]:
    """Write the pages of the recorded runs alone, and an index, for readers without a run; returns their notes.

    Raises UserError if there is no recorded run.
    """
    page = _recorded_page(recorded)
    pages = sections.PAGES | {"report": "The recorded runs"}
    made = _all_pages(page, pages)
    made["index"] = page.html("index", lambda: [page.article(articles.FOLDER / "index.md", {})], pages=pages)
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder, made)


def _recorded_page(recorded: Path) -> Page:
    """The page of the recorded runs without another run. Raises UserError if there is none."""
    record = beside.load_record(recorded)
    if record is None:
        raise UserError(f"{recorded}: there is no recorded run, whose numbers the page shows; use a whole clone")
    return Page(record, sides=beside.Sides(record, None))


def _all_pages(page: Page, pages: Mapping[str, str]) -> dict[str, str]:
    """The texts of all pages by name, with links to `pages`."""
    return {
        "report": page.html(pages=pages),
        "story": story_page(page, pages=pages),
        "assignment": assignment(page.sides, pages=pages),
    }


def _write(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Write pages by their names into a folder; returns their notes, each once."""
    for name, text in texts.items():
        with atomic_path(folder / f"{name}.html") as file:
            file.write_text(text, encoding="utf-8")
    return list(dict.fromkeys(note for text in texts.values() for note in notes.find_notes(text)))


def story_page(page: Page, article: Path = articles.STORY, pages: Mapping[str, str] = sections.PAGES) -> str:
    """The page of the story, as HTML with links to `pages`; it is about the recorded runs alone.

    If the record contradicts it or is damaged, a note stands in its place, on `page`; if there is none, a sentence.
    """

    def instead(words: str) -> str:
        return page.html("story", lambda: [f"<h1>{pages['story']}</h1><p>{words}</p>"], (), pages)

    def made() -> str:
        numbers, of_run = _fill(article)
        first = next(iter(of_run.values()))
        gpus = [gpu for each in of_run.values() for gpu in each.evidence.gpus]
        return first.html("story", lambda: [first.article(article, numbers)], gpus, pages)

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
