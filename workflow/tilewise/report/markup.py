"""Tables and figures of the page as HTML: each with a number, an anchor, a caption, and its data to take away.

A table of many rows shows the first. The whole is packed beside a fold, whose opening makes a table of it that
can be sorted and filtered (DataTables, bundled by itables); so is a figure that few want. Without scripts the page
reads, but gives nothing to take away.
"""

import base64
import gzip
import html
import itertools
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from kernelscope.files import read_text
from tilewise.evidence import Evidence
from tilewise.explain import timings
from tilewise.explain.number_format import plus_minus, rounded
from tilewise.report import claims, drawings, headings, notes
from tilewise.report.drawings import pieces
from tilewise.study.columns import COLUMNS, SHAPE, is_words
from tilewise.study.kernel import Kernel
from tilewise.study.status import Accuracy, Status

#: Of a table of more rows the others are in its fold.
MOST_ROWS = 15
_MISSING = "–"
#: Columns that stay even if they are empty, because an empty one says that nothing was measured.
_ALWAYS = {"time_ms", "measured", "message", "status"}
#: The classes of columns: of long text, and of some words, which break between them if the page is narrow.
_KINDS = {"claim": "words claim", "shape": "words size"}
_KINDS |= dict.fromkeys(("message", "note", "reason", "tasks"), "words long")
_WRAPPED = ("choice", "runner_up", "instance", "platform", "title", "limited_by", "second_limit", "waits")
_KINDS |= dict.fromkeys(_WRAPPED, "words wrap")
#: The words of a verdict, here or on a recorded platform -> the class of its mark.
_MARKS: dict[str, str] = dict(
    zip(claims.Verdict, "yes arithmetic equal differs no unknown unknown".split(), strict=True)
)
_MARKS |= {verdict.elsewhere: _MARKS[verdict] for verdict in claims.Verdict}
#: What † says behind a share of the library's rate.
_UNLIKE = "power lowered a clock, and one of the two ran more than three times as long as the other"
#: Columns by whose values a whole table can be filtered; so can those of verdicts.
_FILTERED = {"source", "task", "platform", "kernel", "dtype", "status", "count"}

#: The words for a platform, or for its CPU: a function of the platform and the kernel.
Machine = Callable[[str, str], str]


def number(value: Any, column: str = "") -> str:
    """A number as text, rounded by the unit of its column; a figure of a data sheet keeps its digits."""
    if pd.isna(value):
        return _MISSING
    if isinstance(value, str):
        return html.escape(value) or _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "printed":
        return f"{value:,.10g}"
    unit = COLUMNS[column].unit if column in COLUMNS else ""
    return html.escape(rounded(value, unit)) + "×" * (unit == "x")


def _cell(row: Mapping[str, Any], column: str, machine: Machine) -> str:
    """The HTML of a cell."""
    value = row[column]
    if column == "platform" and not pd.isna(value):  # instructions that no platform timed have none
        return html.escape(machine(value, row.get("kernel", "")))
    if column == "decided" and not pd.isna(value):
        return "yes" if value else "<strong>no</strong>"
    if column == "time_ms" and pd.isna(value):
        status = row.get("status")
        if isinstance(status, str) and status and status != Status.OK:
            return f'<span class="status">{html.escape(status)}</span>'
    if column == "percent_of_anchor" and row.get("unlike_anchor") is True:
        return f'{number(value, column)} <abbr title="{_UNLIKE}">†</abbr>'
    if column == "claim":
        return f"{html.escape(value)}<br><small>{html.escape(row['why'])}</small>"
    if "claim" in row and column.startswith(("published", "measured ")):
        lines = html.escape(value).replace("\n", "<br>")
        small = f"<small>{lines}</small>" if "cannot" in row[column.replace("measured", "verdict")] else lines
        return notes.note_html(value) if notes.is_note(value) else small
    if column.startswith("verdict "):
        return f'<span class="verdict {_MARKS[value]}">{html.escape(value)}</span>'
    if column == "verdict" and value:
        kind = {Accuracy.PASSES: "yes", Accuracy.FAILS: "no"}.get(value, "unknown")
        return f'<span class="verdict {kind}">{html.escape(value)}</span>'
    if column in ("emulator", "status") and isinstance(value, str) and value != Status.OK:
        return f'<span class="status">{html.escape(value)}</span>'
    text = number(value, column)
    return text if column != "time_ms" or pd.isna(row["apart"]) else f"{text} {plus_minus(row['apart'])}"


def _shown(rows: pd.DataFrame, columns: headings.Headings, machine: Machine, plain: bool) -> dict[str, Any]:
    """What a table shows: its `groups` and `heads`, the columns with `filters`, and its `rows` with their `kinds`.

    A group is the number of its columns and its words, a head its class and its words, and a cell its HTML and, if that
    does not say it as a plain number, what it sorts by. A `plain` table has all columns as they are, without a layout.
    """
    table = rows.assign(apart=timings.range_percent(rows))
    rates = [name for name in columns if name in COLUMNS and COLUMNS[name].unit == "GFLOP/s"]
    large = bool(rates) and table[rates].max().max() >= 100  # no CPU loop is that fast
    table = table.assign(**{name: table[name] / 1000 for name in rates}) if large else table
    records = table.to_dict("records")
    above = [group for group, _ in columns.values()]
    return {
        "groups": [(len(list(own)), group) for group, own in itertools.groupby(above)] if any(above) else [],
        "heads": [
            (_kind(name, plain), label.replace("GFLOP/s", "TFLOP/s") if large else label)
            for name, (_, label) in columns.items()
        ],
        "filters": [at for at, name in enumerate(columns) if name in _FILTERED or name.startswith("verdict")],
        "kinds": [_kind_of(row) for row in records],
        "rows": [[(_cell(row, name, machine), _order(row, name)) for name in columns] for row in records],
    }


def _packed(caption: str, shown: Mapping[str, Any]) -> str:
    """A table as packed JSON, of which page.js makes one that sorts and filters."""
    found = {"caption": caption, **shown}
    return pack(json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def _kind(column: str, plain: bool) -> str:
    """The class of a column."""
    if plain and column != "fact":
        return "words long"
    if column.startswith("measured "):
        return "words range"
    return _KINDS.get(column, "words" if is_words(column) or column.startswith("verdict ") else "")


def _kind_of(row: Mapping[str, Any]) -> str:
    """The class of a row."""
    return "anchor" if row.get("anchor") is True else "best" if row.get("best") is True else ""


def _order(row: Mapping[str, Any], column: str) -> float | None:
    """By what a cell sorts, if its text does not say it as a plain number; None if it does, or if it is of words."""
    value = row[column]
    if column == "shape" and all(name in row for name in SHAPE):
        return float(row["n"]) * float(row["p"]) * float(row["m"])
    if isinstance(value, str | bool) or is_words(column) or pd.isna(value):
        return None
    if re.fullmatch(r"[\d,.]+", number(value, column)):
        return None
    return max(-1e308, min(float(f"{value:.6g}"), 1e308))  # JSON has no infinity


def table_html(
    table: pd.DataFrame,
    layout: str | None,
    caption: str,
    evidence: Evidence,
    name: str,
    number: int | None = None,
    folded: bool = False,
) -> str:
    """A table as HTML with its number and caption; if it is long, its first rows, then all of them in a fold.

    A `folded` one is the fold alone.

    `layout` is the name of one in tables.yaml, or None for all columns of the table. `caption` is HTML that begins with
    a title in <b>. A platform column with a single platform and columns without any entry are left out. `name` is that
    of the anchor and of the CSV file.
    """
    columns = _shown_columns(headings.make_headings(layout, table), table, bool(layout))
    few = table.head(MOST_ROWS)
    brief = _shown_columns(headings.make_headings(layout, table, brief=True), few, bool(layout))
    link = csv_link(table[list(columns)], name)
    words = Markup(f"{pieces().number('Table', f'table-{name}', number)} {caption} {link}")
    if folded:
        parts = [f'<p class="caption">{words}</p>']
    else:
        first = _shown(few, brief, evidence.machine, layout is None)
        cells = [[(kind, Markup(cell)) for (kind, _), (cell, _) in zip(first["heads"], row)] for row in first["rows"]]
        label, lines = Markup(words.split(".")[0]).striptags(), list(zip(first["kinds"], cells))
        parts = [pieces().table("", label, words, first["groups"], first["heads"], lines)]
    if folded or len(few) < len(table) or set(columns) - set(brief) - {"platform"}:
        title = Markup(caption.split("</b>")[0]).striptags().strip(" .")
        whole = _packed(f"{title}: all rows", _shown(table, columns, evidence.machine, layout is None))
        said = f"All {len(table)} rows and columns" if folded or len(few) < len(table) else "All columns"
        parts.append(pieces().fold(f"{said}: sort, search, filter", whole))
    return f'<div class="exhibit" id="table-{name}">{"".join(parts)}</div>'


def _shown_columns(columns: headings.Headings, table: pd.DataFrame, only_with_entries: bool) -> headings.Headings:
    """Those columns that say something: not of a single platform, and if asked for, not empty in every row."""
    said = table.notna() & (table != "")
    return {
        name: heads
        for name, heads in columns.items()
        if (name != "platform" or table[name].nunique() > 1)
        and (not only_with_entries or table.empty or name in _ALWAYS or said[name].any())
    }


def name_of(title: str) -> str:
    """The anchor of a table or figure, from its title."""
    return anchor_of(title).lower()


def anchor_of(title: str) -> str:
    """The anchor of a heading: its letters and digits."""
    return re.sub(r"\W+", "-", title).strip("-")


def csv_link(table: pd.DataFrame, name: str) -> str:
    """A link by which a reader takes a table away from the page, which page.js leads there."""
    packed = pack(table.to_csv(index=False, float_format="%.6g"))
    return f'<a class="data" download="{name}.csv" data-packed="{packed}" aria-label="{name} as CSV">CSV</a>'


def pack(text: str) -> str:
    """A text by gzip, in base64; page.js unpacks it."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def claims_html(verdicts: pd.DataFrame, evidence: Evidence, number: int | None = None) -> str:
    """The verdicts: one strip of marks per platform, each a link to its claim, and a fold with all claims.

    On a machine without a GPU its own strip, which has only what no GPU is needed for, comes last.
    """
    beside = claims.side_by_side(verdicts, evidence)
    strips = [_strip(verdicts[verdicts["platform"] == platform.name], evidence) for platform in evidence.gpus_first]
    shown = _shown(beside, headings.claims(evidence), evidence.machine, plain=False)
    title = f"{pieces().number('Table', 'table-claims', number)} <b>Claims.</b> Source by source, with the reasons."
    opened = pieces().fold(
        f"All {len(beside)} claims: sort, search, filter", _packed("Claims, source by source", shown)
    )
    caption = f'<p class="caption">{title} {csv_link(verdicts, "claims")}</p>'
    return f'<div class="exhibit" id="table-claims">{Markup().join(strips)}{caption}{opened}</div>'


def verdicts_html(verdicts: pd.DataFrame, platform: str, names: Collection[str]) -> str:
    """The verdicts on some claims on one platform, as a list: what was claimed, published and measured."""
    table = verdicts[verdicts["id"].isin(names) & (verdicts["platform"] == platform)]
    lines = []
    for name, own in table.groupby("id", sort=False):
        first = own.iloc[0]
        verdict = claims.Verdict(first["of_claim"])
        tested = own[own["verdict"] != claims.Verdict.UNTESTED]
        shown = tested if len(tested) else own.head(1)  # the table of all claims has the reason of each case
        numbers = claims.by_case(shown, claims.beside_published, "; ")
        left = len(own) - len(shown)
        numbers += f"; {left} other case{'s' * (left > 1)} not measured" * (left > 0)
        numbers = Markup(notes.note_html(numbers)) if notes.is_note(numbers) else numbers
        lines.append((name, _MARKS[verdict], verdict.elsewhere, f"({first['source']}) {first['claim']}", numbers))
    return pieces().verdicts(lines) if lines else ""


def _strip(own: pd.DataFrame, evidence: Evidence) -> str:
    """One mark per claim on a platform, those of a source together."""

    def mark(row):
        verdict = claims.Verdict(row.of_claim)
        return _MARKS[verdict], row.id, f"{verdict.elsewhere}: {row.claim}"

    sources = [
        (source, [mark(row) for row in part.itertuples()])
        for source, part in own.drop_duplicates("id").groupby("source", sort=True)
    ]
    return pieces().strip(f"{evidence.labels[own['platform'].iloc[0]]}: {claims.counts(own)}", sources)


def missing_html(missing: str, title: str, name: str) -> str:
    """A sentence, without a number, in place of a figure that shows nothing."""
    words = notes.note_html(missing) if notes.is_note(missing) else html.escape(missing)
    return f'<p class="none" id="figure-{name}"><b>{html.escape(title)}.</b> {words}</p>'


def kernel_html(
    kernel: Kernel, tiles: Mapping[str, Any], idea: str, count: int, title: str, stages: int, waves: float, number: int
) -> str:
    """HTML of what is new in a kernel, or else of its tiles, beside the `count` lines of its file from `idea` on."""
    name = f"story-tiles-of-{kernel.name}"
    first, last, code = drawings.excerpt(kernel, idea, count)
    place = f"{kernel.path.name}, lines {first} to {last}"
    file = f"data:text/plain;charset=utf-8,{quote(read_text(kernel.path))}"  # to take away, scripts or not
    link = f'<a class="data" download="{kernel.path.name}" href="{file}">{place}</a>'
    if idea_of := getattr(pieces("ideas.html.j2"), kernel.name, None):
        drawing, words = idea_of({"name": name, "title": title, "stages": stages, "waves": waves}), ""
    else:
        drawing, words = pieces().tiling(name, title, tiles), pieces().words(tiles)
    caption = Markup(f"<b>{html.escape(title)}.</b> {words} {link}")
    return pieces().figure(name, title, caption, number, Markup(drawing), place=place, code=code)
