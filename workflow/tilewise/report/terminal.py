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
    shown = table.head(most)
    layout_of = {name: heading for name, (_, heading) in headings.make_headings(layout, shown, brief=True).items()}
    found: list[list[str]] = []
    width = 0
    for name, heading in layout_of.items():
        if shown[name].isna().all():
            continue
        cells = [heading, *(html.unescape(markup.number(value, name)) for value in shown[name])]
        if found and width + max(map(len, cells)) + 2 > WIDTH:  # narrower ones may follow
            continue
        width += max(map(len, cells)) + 2
        found.append([f"{cell:{'<' if columns.is_words(name) else '>'}{max(map(len, cells))}}" for cell in cells])
    yield from ("  ".join(row).rstrip() for row in zip(*found))
    if len(table) > most:
        yield f"… {len(table) - most} more rows in {path}"
