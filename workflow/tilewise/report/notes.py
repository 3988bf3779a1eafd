"""Placeholders for sections, figures, tables or claims that fail to render; the rest of the page is unaffected.

A piece is a section, a figure, a table or a claim.
"""

import html
import json
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from markupsafe import Markup

from tilewise import UserError

#: The file beside the page that lists its notes: strings, as JSON.
FILE = "notes.json"
#: What every note says, after the name of the piece.
_CANNOT = " cannot be made: "
#: The only column of a table that cannot be made; the attribute of a drawing that says why it shows nothing.
COLUMN, ATTRIBUTE = "cannot", "data-missing"
#: What Markdown or HTML could take for markup.
_MARKUP = re.compile(r"[\\`*_\[\](){}<>&\"'$~|#!:]")

Made = TypeVar("Made")


def plain_text(words: object) -> str:
    """Any words in one line that neither Markdown nor HTML takes for markup."""
    return _MARKUP.sub(lambda letter: f"&#{ord(letter[0])};", " ".join(str(words).split()))


def sentence(name: str, error: Exception) -> str:
    """A note as text: the name of the piece, and the cause in one line; the log has the traceback."""
    logging.getLogger("tilewise").warning("%s cannot be made", name, exc_info=error)
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return " ".join(f"{name}{_CANNOT}{kind}{error}".split())


def is_note(words: str) -> bool:
    """Whether a text is a note."""
    return _CANNOT in words


def note_html(note: str) -> Markup:
    """A note as HTML, which Markdown keeps as it is."""
    return Markup(f'<span class="cannot" role="note">{plain_text(note)}</span>')


def find_notes(page: str) -> list[str]:
    """The notes of a page, or of a part of it, as text."""
    return [html.unescape(words) for words in re.findall(r'<span class="cannot" role="note">(.*?)</span>', page)]


def attempt(name: str, make: Callable[[], Made], otherwise: Callable[[str], Made]) -> Made:
    """The result of `make`, or `otherwise` of the note if it fails."""
    try:
        return make()
    except Exception as error:
        return otherwise(sentence(name, error))


def read(folder: Path | str) -> list[str]:
    """The notes of a finished run in the folder of its results: first those of the page, then those of its files."""
    folder = Path(folder)
    notes = json.loads((folder / FILE).read_text(encoding="utf-8")) if (folder / FILE).is_file() else []
    return [*notes, *read_files(sorted([*folder.glob("*/tables/*.csv"), *folder.glob("*/figures/*.svg")]))]


def read_files(paths: Iterable[Path]) -> list[str]:
    """The notes of those tables (.csv) and figures (.svg) that could not be made."""
    notes = []
    for path in paths:
        with path.open(encoding="utf-8") as file:
            said = re.match(rf'{COLUMN}\n"?(.*?)"?\n|<svg[^>]* {ATTRIBUTE}="([^"]*)"', file.read(4096))
        notes += [html.unescape(said[1] or said[2])] if said else []
    return list(filter(is_note, notes))
