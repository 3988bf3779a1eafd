"""The pages: those of a run, and of the recorded runs.

The story and the answers to source a's assignment are articles on the recorded runs: texts in report/, each written
once and alike for all readers. The YAML file beside it names its numbers, each an expression over one recorded run, and
lists what the words take for granted. If the record no longer agrees, a note replaces the article until the sentence is
rewritten.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from kernelscope.files import atomic_path
from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED, ROOT, UserError
from tilewise.evidence import Evidence, load_evidence
from tilewise.explain.quantities import Choice, Machine, Spread, Untestable, fitting
from tilewise.files import write_json
from tilewise.report import beside, figures, notes, sections, tables
from tilewise.report.page import PREVIEW, Page, load
from tilewise.study.expressions import evaluate

FOLDER = ROOT / "report"
STORY, ASSIGNMENT = FOLDER / "story.md", FOLDER / "assignment.md"


def assignment(
    sides: beside.Sides, answers: bool = True, article: Path = ASSIGNMENT, pages: Mapping[str, str] = sections.PAGES
) -> str:
    """The page of source a's assignment with links to `pages` and its answers, which are about the recorded runs.

    If there are none, a sentence stands in the place of the answers; if these contradict the record, a note.
    """
    page, names = Page(sides.first, sides), dict[str, Any](answers=False, instead="")
    if answers:
        names, _ = _filled(article, "The answers are")
    names["own"] = sides.own is not None
    return page.html("assignment", [page.article(article, names)], pages=pages)


def story(sides: beside.Sides, article: Path = STORY, pages: Mapping[str, str] = sections.PAGES) -> str:
    """The page of the story, as HTML with links to `pages`; it is about the recorded runs alone.

    If the record contradicts it or is damaged, a note stands in its place; if there is none, a sentence.
    """
    names, recorded = _filled(article, "The story is")
    page = Page(recorded[0] if recorded else sides.first)
    gpus = [gpu for evidence in recorded for gpu in evidence.gpus]
    return page.html("story", [page.article(article, names)], gpus, pages)


def _filled(article: Path, what: str) -> tuple[dict[str, Any], list[Evidence]]:
    """The names that an article uses, and the evidence of its runs.

    They are its numbers, whether it has `answers`, and what stands in their place, `instead`.
    """
    folders = [RECORDED / name for name in runs(article)]
    words = f"{what} about the recorded runs, which this copy of the study lacks (report/recorded)."
    without: dict[str, Any] = {"answers": False, "instead": words}
    if not any(folder.is_dir() for folder in folders):
        return without, []

    def found() -> tuple[dict[str, Any], list[Evidence]]:
        recorded = {folder.name: _evidence_of(folder) for folder in folders}
        return fill(recorded, article) | {"answers": True, "instead": ""}, [*recorded.values()]

    return notes.attempt(
        f"Numbers of {article.name}", found, lambda note: (without | {"instead": notes.note_html(note)}, [])
    )


@functools.lru_cache(maxsize=4)  # two articles need their tables
def _evidence_of(recorded: Path) -> Evidence:
    """The evidence of one recorded run."""
    return load_evidence([recorded])


def runs(article: Path = STORY) -> list[str]:
    """The names of the recorded runs that an article is about, the main one first."""
    return list(read_yaml(article.with_suffix(".yaml"))["runs"])


def fill(recorded: Mapping[str, Evidence], article: Path) -> dict[str, Any]:
    """The numbers of an article by name, from the evidence of each of `runs`.

    Raises UserError if a number is not in the record, or if a condition of `holds` is false.
    """
    place = article.with_suffix(".yaml")
    listed, found = read_yaml(place), dict[str, Any]()
    for run, expressions in listed["runs"].items():
        own = recorded[run]

        def row(name: str, column: str, own: Evidence = own, **where: Any) -> Any:
            known = fitting(tables.frame(name, own), where)[column].dropna()
            if known.empty:
                raise Untestable(f"no {column} in {name}: {where}")
            return known.iloc[-1]

        functions = Machine(own, own.gpus[0]).functions() | {"row": row}
        for name, expression in expressions.items():
            try:
                value = evaluate(expression, functions | found)
            except Untestable as missing:
                raise UserError(f"{place}: {name}: the record of {run} does not have it: {missing}") from None
            value = value.words if isinstance(value, Choice) else value
            found[name] = value.value if isinstance(value, Spread) else value
    for condition in listed["holds"]:
        if not evaluate(condition, found):
            named = [name for name in dict.fromkeys(re.findall(r"\w+", condition)) if name in found]
            values = (found[name] for name in named)
            said = ", ".join(
                f"{name} is {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in zip(named, values)
            )
            raise UserError(f"{place}: `{condition}` no longer holds ({said}); rewrite what {article.name} says of it")
    return found


def _all_pages(sides: beside.Sides, folder: Path, pages: Mapping[str, str] = sections.PAGES) -> dict[Path, str]:
    """The texts of all pages by their files in a folder, with links to `pages`."""
    made = {
        "report": Page(sides.own or sides.first, sides).html(pages=pages),
        "story": story(sides, pages=pages),
        "assignment": assignment(sides, pages=pages),
    }
    return {folder / f"{name}.html": text for name, text in made.items()}


def _write(texts: Mapping[Path, str]) -> list[str]:
    """Write pages into their files; returns their notes, each once."""
    for path, text in texts.items():
        with atomic_path(path) as file:
            file.write_text(text, encoding="utf-8")
    return list(dict.fromkeys(note for text in texts.values() for note in notes.find_notes(text)))


def render(output: Path | str, folders: Iterable[Path | str], recorded: Path | str = RECORDED) -> list[str]:
    """Write the pages of the platforms in `folders`, PREVIEW, and the notes, which are returned, into `notes.FILE`.

    `output` is the first of sections.PAGES; the others are written beside it.
    """
    folder = Path(output).parent
    page = load([Path(each) for each in folders], recorded)
    found = _write(_all_pages(page.sides, folder))
    write_json(found, folder / notes.FILE)
    with atomic_path(folder / PREVIEW) as picture:
        drawn = notes.attempt("Preview", functools.partial(_climb, page.evidence), figures.empty_figure)
        drawn.set_size_inches(8, 4.2)  # 1200 x 630, as services that show links want it
        drawn.savefig(picture, format="png", dpi=150, facecolor="white")
    return found


def _climb(evidence: Evidence) -> Figure:
    """The climb on the foremost GPU."""
    rows = figures.rungs_of_ladder(evidence)
    return figures.draw("climb", evidence, rows[rows["platform"] == evidence.foremost.name])


def write_site(folder: Path, recorded: Path = RECORDED) -> list[str]:
    """Write the pages of the recorded runs alone, and an index, for readers without a run; returns their notes.

    Raises UserError if there is no recorded run.
    """
    sides = _record_alone(recorded)
    pages = sections.PAGES | {"report": "The recorded runs"}
    page = Page(sides.first, sides)
    index = page.html("index", [page.article(FOLDER / "index.md", {})], pages=pages)
    made = _all_pages(sides, folder, pages)
    folder.mkdir(parents=True, exist_ok=True)
    return _write(made | {folder / "index.html": index})


def _record_alone(recorded: Path) -> beside.Sides:
    """The recorded runs without another run. Raises UserError if there is none."""
    record = beside.load_record(recorded)
    if record is None:
        raise UserError(f"{recorded}: there is no recorded run, whose numbers the page shows; use a whole clone")
    return beside.Sides(record, None)


def write_assignment(output: Path | str, answers: bool, recorded: Path = RECORDED) -> None:
    """Write the page of source a's assignment from the recorded runs alone, with or without answers.

    Without answers it stands alone, without links to other pages. Raises UserError if there is no recorded run.
    """
    pages = sections.PAGES if answers else {}
    _write({Path(output): assignment(_record_alone(recorded), answers, pages=pages)})
