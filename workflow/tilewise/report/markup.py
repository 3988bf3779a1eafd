"""Tables and figures of the page as HTML: each with a number, an anchor, a caption, and its data to take away.

A table of many rows shows the first. The whole is packed beside a fold, whose opening makes a table of it that
can be sorted and filtered (DataTables, bundled by itables); so is a figure that few want. Without scripts the page
reads, but gives nothing to take away.
"""

import base64
import functools
import gzip
import itertools
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from kernelscope.files import read_text
from tilewise import ROOT
from tilewise.evidence import Evidence, Platform
from tilewise.explain import timings
from tilewise.explain.number_format import plus_minus, rounded
from tilewise.report import claims, headings, notes
from tilewise.report.sections import FILTERS, keep_together
from tilewise.study.columns import COLUMNS, SHAPE, is_words
from tilewise.study.kernel import Kernel
from tilewise.study.status import Accuracy, Status

#: The templates of the pages and of their pieces, which escape what they show unless it is Markup.
TEMPLATES = Environment(
    loader=FileSystemLoader(ROOT / "report" / "template"), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
TEMPLATES.filters |= {each.__name__: each for each in (*FILTERS, plus_minus, rounded)}
#: Of a table of more rows the others are in its fold.
MOST_ROWS = 15
#: The classes of columns of long text, and of some words, which break between them if the page is narrow.
_KINDS = {"claim": "words claim", "shape": "words size"}
_KINDS |= dict.fromkeys(("message", "note", "reason", "tasks"), "words long")
_WRAPPED = ("choice", "runner_up", "instance", "platform", "title", "limited_by", "second_limit", "waits")
_KINDS |= dict.fromkeys(_WRAPPED, "words wrap")
#: The words of a verdict -> the class of its mark.
_MARKS: dict[str, str] = dict(
    zip(claims.Verdict, "yes arithmetic equal differs no unknown unknown".split(), strict=True)
)
_MARKS |= {Accuracy.PASSES: "yes", Accuracy.REFUSES: "unknown", Accuracy.FAILS: "no"}
TEMPLATES.globals["MARKS"] = _MARKS
#: What † says behind a share of the library's rate.
_UNLIKE = "power lowered a clock, and one of the two ran more than three times as long as the other"
#: Columns by whose values a whole table can be filtered; so can those of verdicts.
_FILTERED = {"source", "task", "platform", "kernel", "dtype", "status", "count"}

#: The words for a platform, or for its CPU: a function of the platform and the kernel.
Machine = Callable[[str, str], str]


@functools.cache
def pieces(file: str = "pieces.html.j2") -> Any:
    """The macros of a file of report/template."""
    return TEMPLATES.get_template(file).module


def marked(kind: str, words: str) -> Markup:
    """Words with the mark of a status or of a verdict."""
    return Markup('<span class="{}">{}</span>').format(kind, words)


def _cell(row: Mapping[str, Any], column: str, machine: Machine) -> Markup:
    """The HTML of a cell; one that is HTML stays as it is."""
    value = row[column]
    if column == "platform" and not pd.isna(value):  # instructions that no platform timed have none
        return escape(machine(value, row.get("kernel", "")))
    if column.startswith("verdict") and value:
        return marked(f"verdict {_MARKS.get(value, 'unknown')}", value)
    status = row.get("status") if column == "time_ms" and pd.isna(value) else value
    if column in ("time_ms", "status", "emulator") and isinstance(status, str) and status not in ("", Status.OK):
        return marked("status", status)
    shown = escape(headings.text(value, column))
    if column == "percent_of_anchor" and row.get("unlike_anchor") is True:
        return Markup('{} <abbr title="{}">†</abbr>').format(shown, _UNLIKE)
    return shown if column != "time_ms" or pd.isna(row["apart"]) else shown + f" {plus_minus(row['apart'])}"


def _shown(table: pd.DataFrame, columns: headings.Headings, machine: Machine, plain: bool = False) -> dict[str, Any]:
    """What a table shows: its `groups` and `heads`, the columns with `filters`, and its `rows` with their `kinds`.

    A group is the number of its columns and its words, a head its class and its words, and a cell its HTML and, if that
    does not say it as a plain number, what it sorts by. Large rates are in TFLOP/s. A `plain` table has no layout.
    """
    rates = [name for name in columns if name in COLUMNS and COLUMNS[name].unit == "GFLOP/s"]
    table = table.assign(apart=timings.range_percent(table))
    if rates and table[rates].max().max() >= 100:  # no CPU loop is that fast
        table = table.assign(**{name: table[name] / 1000 for name in rates})
        columns = {name: (group, words.replace("GFLOP/s", "TFLOP/s")) for name, (group, words) in columns.items()}
    rows = table.to_dict("records")
    above = [group for group, _ in columns.values()]
    return {
        "groups": [(len(list(own)), group) for group, own in itertools.groupby(above)] if any(above) else [],
        "heads": [(_kind(name, plain), words) for name, (_, words) in columns.items()],
        "filters": [at for at, name in enumerate(columns) if name in _FILTERED or name.startswith("verdict")],
        "kinds": ["anchor" if row.get("anchor") is True else "best" * (row.get("best") is True) for row in rows],
        "rows": [[(_cell(row, name, machine), _order(row, name)) for name in columns] for row in rows],
    }


def _kind(column: str, plain: bool) -> str:
    """The class of a column."""
    if plain and column != "fact":
        return "words long"
    if column.startswith("measured "):
        return "words range"
    return _KINDS.get(column, "words" if is_words(column) or column.startswith("verdict ") else "")


def _order(row: Mapping[str, Any], column: str) -> float | None:
    """By what a cell sorts, if its text does not say it as a plain number; None if it does, or if it is of words."""
    value = row[column]
    if column == "shape" and all(name in row for name in SHAPE):
        return float(row["n"]) * float(row["p"]) * float(row["m"])
    if isinstance(value, str | bool) or is_words(column) or pd.isna(value):
        return None
    if re.fullmatch(r"[\d,.]+", headings.text(value, column)):
        return None
    return max(-1e308, min(float(f"{value:.6g}"), 1e308))  # JSON has no infinity


def _fold(summary: str, caption: str, shown: Mapping[str, Any]) -> Markup:
    """A fold with a table as packed JSON, of which page.js makes one that sorts and filters."""
    found = {"caption": caption, **shown}
    packed = pack(json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
    return pieces().fold(f"{summary}: sort, search, filter", packed)


def table_html(
    table: pd.DataFrame,
    layout: str,
    caption: str,
    evidence: Evidence,
    name: str,
    number: int | None = None,
    folded: bool = False,
) -> str:
    """A table as HTML with its number and caption; if it is long, its first rows, then all of them in a fold.

    A `folded` one is the fold alone.

    `layout` is the name of one in tables.yaml; a table without one has all of its columns. `caption` is HTML with a
    title in <b> at first. A platform column with a single platform and columns without any entry are left out. `name`
    is that of the anchor and of the CSV file.
    """
    wanted, few = headings.load().get(layout), table.head(MOST_ROWS)
    columns, brief = headings.make_headings(wanted, table), headings.make_headings(wanted, few, brief=True)
    words = numbered("Table", f"table-{name}", number, caption, csv_link(table[list(columns)], name))
    parts = [Markup(f'<p class="caption">{words}</p>')]
    if not folded:
        first, label = _shown(few, brief, evidence.machine, wanted is None), Markup(words.split(".")[0]).striptags()
        lines = zip(first["kinds"], ([cell for cell, _ in row] for row in first["rows"]))
        parts = [pieces().table("", label, words, first["groups"], first["heads"], lines)]
    if folded or len(few) < len(table) or set(columns) - set(brief) - {"platform"}:
        said = f"All {len(table)} rows and columns" if folded or len(few) < len(table) else "All columns"
        whole = _shown(table, columns, evidence.machine, wanted is None)
        parts.append(_fold(said, f"{title_of(caption)}: all rows", whole))
    return f'<div class="exhibit" id="table-{name}">{"".join(parts)}</div>'


def title_of(caption: str) -> str:
    """The title with which a caption in HTML begins, as text."""
    return Markup(caption.split("</b>")[0]).striptags().strip(" .")


def numbered(kind: str, anchor: str, number: int | None, caption: str, link: str) -> Markup:
    """The number of a table or figure, its caption and the link to its data."""
    return Markup(f"{pieces().number(kind, anchor, number)} {caption} {link}")


def anchor_of(title: str) -> str:
    """The anchor of a heading: its letters and digits; in lower case, that of a table or figure of this title."""
    return re.sub(r"\W+", "-", title).strip("-")


def csv_link(table: pd.DataFrame, name: str) -> str:
    """A link by which a reader takes a table away from the page, which page.js leads there."""
    return pieces().csv(name, pack(table.to_csv(index=False, float_format="%.6g")))


def pack(text: str) -> str:
    """A text by gzip, in base64; page.js unpacks it."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def claims_html(verdicts: pd.DataFrame, evidence: Evidence, number: int | None = None) -> str:
    """The verdicts: one strip of marks per platform, each a link to its claim, and a fold with all claims.

    On a machine without a GPU its own strip, which has only what no GPU is needed for, comes last.
    """
    rows = claims.side_by_side(verdicts, evidence)
    columns, strips = {"source": ("", "source"), "claim": ("", "claim, and why"), "published": ("", "published")}, []
    for name in (each.name for each in evidence.gpus_first):
        words = evidence.labels[name]
        columns |= {f"verdict {name}": (words, "verdict"), f"measured {name}": (words, "measured, with its range")}
        own = verdicts[verdicts["platform"] == name]
        sources = own.drop_duplicates("id").groupby("source")
        marks = [(source, claimed.to_dict("records")) for source, claimed in sources]
        strips.append(pieces().strip(f"{words}: {claims.counts(own)}", marks))
        for row in rows:
            row[f"measured {name}"] = _lines(row[f"measured {name}"], small="cannot" in row[f"verdict {name}"])
    for row in rows:
        row["claim"] = Markup("{claim}<br><small>{why}</small>").format(**row)
        row["published"] = _lines(row["published"])
    title = "<b>Claims.</b> Source by source, with the reasons."
    caption = numbered("Table", "table-claims", number, title, csv_link(verdicts, "claims"))
    shown = _shown(pd.DataFrame(rows, dtype="object"), columns, evidence.machine)
    opened = _fold(f"All {len(rows)} claims", "Claims, source by source", shown)
    parts = [*strips, f'<p class="caption">{caption}</p>', opened]
    return f'<div class="exhibit" id="table-claims">{"".join(parts)}</div>'


def _lines(words: str, small: bool = False) -> Markup:
    """Words in lines; a note stands out."""
    if notes.is_note(words):
        return notes.note_html(words)
    lines = Markup("<br>").join(words.split("\n"))
    return Markup(f"<small>{lines}</small>") if small else lines


def verdicts_html(verdicts: pd.DataFrame, platform: Platform, names: Collection[str]) -> str:
    """The verdicts on some claims on one platform, as a list: what was claimed, published and measured."""
    table = verdicts[verdicts["id"].isin(names) & (verdicts["platform"] == platform.name)]
    lines = []
    for _, own in table.groupby("id", sort=False):
        first = own.iloc[0].to_dict() | {"claim": keep_together(own.iloc[0]["claim"])}
        tested = own[own["verdict"] != claims.Verdict.UNTESTED]
        shown = tested if len(tested) else own.head(1)  # the table of all claims has the reason of each case
        numbers = claims.by_case(shown, claims.beside_published, "; ")
        left = len(own) - len(shown)
        numbers += f"; {left} other case{'s' * (left > 1)} not measured" * (left > 0)
        lines.append((first, _lines(numbers)))
    return pieces().verdicts(platform.label, lines) if lines else ""


def missing_html(missing: str, title: str, name: str) -> str:
    """Return an unnumbered sentence for an empty figure."""
    return f'<p class="none" id="figure-{name}"><b>{escape(title)}.</b> {_lines(missing)}</p>'


def excerpt(kernel: Kernel, first: str, count: int) -> tuple[int, int, list[str]]:
    """The lines of a kernel's file that carry its idea: the numbers of the first and the last, and the lines.

    `first` is how the first of `count` lines begins. They lose their indentation; empty lines and `#pragma unroll` are
    left out. Raises LookupError if no line begins like that.
    """
    lines = enumerate(read_text(kernel.path).splitlines(), 1)
    rest = itertools.dropwhile(lambda line: not line[1].strip().startswith(first), lines)
    shown = [(number, line) for number, line in rest if line.strip() not in ("", "#pragma unroll")][:count]
    if not shown:
        raise LookupError(f"{kernel.path}: no line begins with {first!r}")
    indent = len(shown[0][1]) - len(shown[0][1].lstrip())
    return shown[0][0], shown[-1][0], [line[indent:] for _, line in shown]


def kernel_html(
    kernel: Kernel, tiles: Mapping[str, Any], idea: str, count: int, title: str, stages: int, waves: float, number: int
) -> str:
    """HTML of what is new in a kernel, or else of its tiles, beside the `count` lines of its file from `idea` on."""
    name = f"story-tiles-of-{kernel.name}"
    first, last, code = excerpt(kernel, idea, count)
    place = f"{kernel.path.name}, lines {first} to {last}"
    file = f"data:text/plain;charset=utf-8,{quote(read_text(kernel.path))}"  # to take away, scripts or not
    link = f'<a class="data" download="{kernel.path.name}" href="{file}">{place}</a>'
    if idea_of := getattr(pieces("ideas.html.j2"), kernel.name, None):
        drawing, words = idea_of({"name": name, "title": title, "stages": stages, "waves": waves}), ""
    else:
        drawing, words = pieces().tiling(name, title, tiles), pieces().words(tiles)
    caption = Markup(f"<b>{escape(title)}.</b> {words} {link}")
    return pieces().figure(name, title, caption, number, drawing, place=place, code=code)


def rung_html(rungs: pd.DataFrame, kernel: str) -> Markup:
    """HTML of the numbers of a rung in float: its bound, its rate, its stalls and its counts."""
    this = rungs[(rungs["kernel"] == kernel) & (rungs["dtype"] == "float")].iloc[0]
    same = rungs[(rungs[["platform", "dtype"]] == this[["platform", "dtype"]]).all(axis=1)].set_index("kernel")
    return pieces().rung(this.dropna().to_dict(), same["choice"].get(this["before"], ""))
