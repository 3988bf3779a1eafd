"""A table of the report as text for a terminal."""

import html
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from tilewise.report import headings, markup, notes
from tilewise.study import columns

#: Characters of a line; further columns are left out.
WIDTH = 112


def lines(path: Path, layout: str, most: int) -> Iterator[str]:
    """The first rows of a table of `results/<platform>/tables/` below their headings, in columns of equal width.

    The columns are those that the page shows at first, without empty ones. The platform's own rows come first, `most`
    of them.
    """
    table = pd.read_csv(path)
    if notes.COLUMN in table or table.empty:
        yield from table.get(notes.COLUMN, ["the table has no rows"])
        return
    if "platform" in table:
        platform = path.parent.parent.name
        own = table["platform"] == platform
        if not own.any():
            yield f"no rows for {platform}; recorded runs instead:"
        table = pd.concat([table[own], table[~own]])
    shown = table.head(most).dropna(axis="columns", how="all")
    found: list[list[str]] = []
    room = WIDTH
    for name, (_, heading) in headings.make_headings(layout, shown, brief=True).items():
        cells = [heading, *(html.unescape(markup.number(value, name)) for value in shown[name])]
        width = max(map(len, cells))
        if not found or width + 2 <= room:  # narrower ones may follow
            room -= width + 2
            found.append([cell.ljust(width) if columns.is_words(name) else cell.rjust(width) for cell in cells])
    yield from ("  ".join(row).rstrip() for row in zip(*found))
    if len(table) > most:
        yield f"… {len(table) - most} more rows in {path}"
