"""From tables and figures to HTML, and from report/report.py to one self-contained page."""

import asyncio
import html
import math
import re
import signal
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pandas as pd
from IPython.display import HTML, Markdown
from matplotlib.figure import Figure
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from tilewise import ROOT, UserError
from tilewise.files import replacing
from tilewise.report import figures, layouts
from tilewise.study.columns import COLUMNS, is_words

REPORT = ROOT / "report" / "report.py"
TEMPLATE = ROOT / "report" / "template" / "report.html.j2"

_MISSING = '<span class="none" title="no figure">–</span>'
#: Columns that stay even if they are empty, because an empty one says that nothing was measured.
_ALWAYS = {"time_ms", "measured", "message", "status"}
#: Columns of long text.
_LONG = {"message", "note", "reason"}


def number(value: Any, column: str = "") -> str:
    """A number as text with four significant digits, or without decimals if large; the column may make it a factor."""
    if pd.isna(value):
        return _MISSING
    if isinstance(value, str):
        return html.escape(value) or _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    unit = COLUMNS[column].unit if column in COLUMNS else ""
    if unit == "x":
        return f"{value:,.0f}×" if value >= 100 else f"{value:.3g}×"
    if unit == "%":
        return f"{value:,.1f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"
    if math.isinf(value):
        return "∞"  # the error of an element that is not finite
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.1e}"


def _cell(row, column, labels):
    value = row[column]
    if column == "platform":
        return html.escape(labels.get(value, value))
    if column == "decided" and not pd.isna(value):
        return "yes" if value else "<strong>no</strong>"
    if column in ("time_ms", "cpu_ms") and pd.isna(value):
        status = row.get("status" if column == "time_ms" else "cpu_status")
        if isinstance(status, str) and status and status != "ok":
            return f'<span class="status">{html.escape(status)}</span>'
    if column == "claim":
        return f"{html.escape(value)}<br><small>{html.escape(row['why'])}</small>"
    if column.startswith("measured ") and "cannot" in row[column.replace("measured", "verdict")]:
        return f"<small>{html.escape(value)}</small>"
    if column.startswith("verdict "):
        kind = "no" if "not hold" in value else "unknown" if "cannot" in value else "yes"
        return f'<span class="verdict {kind}">{html.escape(value)}</span>'
    if column == "verdict" and value:
        kind = {"passes": "yes", "fails": "no"}.get(value, "unknown")
        return f'<span class="verdict {kind}">{html.escape(value)}</span>'
    if column in ("emulator", "status") and isinstance(value, str) and value != "ok":
        return f'<span class="status">{html.escape(value)}</span>'
    text = number(value, column)
    unstable = column == "time_ms" and row.get("unstable") is True
    return f'{text}<abbr title="unstable: the noise is above the limit">†</abbr>' if unstable else text


def _plain(caption: str) -> str:
    """A caption without its tags, for an attribute."""
    return html.escape(html.unescape(re.sub(r"<[^>]+>", "", caption)), quote=True)


def _kind(column: str, layout: Any) -> str:
    if column == "claim":
        return 'class="words claim"'
    if column.startswith("measured "):
        return 'class="words range"'
    if column in _LONG or (layout is None and column != "fact"):
        return 'class="words long"'
    return 'class="words"' if is_words(column) or column.startswith("verdict ") else ""


def table_html(
    table: pd.DataFrame,
    layout: str | layouts.Headings | None,
    caption: str,
    labels: Mapping[str, str] | None = None,
    hide: Collection[str] = (),
) -> str:
    """A table as HTML with its caption, in its own box, which scrolls if the page is narrow.

    `layout` is the name of one in `layouts.LAYOUTS`, or the columns with their headings, or None for all columns of the
    table. `caption` is HTML. `labels` maps names of platforms to words. A platform column with a single platform and
    columns without any entry are left out.
    """
    columns = {name: heads for name, heads in layouts.of(layout, table).items() if name not in hide}
    if "platform" in columns and table["platform"].nunique() < 2:
        columns.pop("platform")
    if layout and len(table):  # a column that is empty in every row is left out
        said = table.notna() & (table != "")
        columns = {name: heads for name, heads in columns.items() if name in _ALWAYS or said[name].any()}
    head = ""
    if any(group for group, _ in columns.values()):
        cells, names = [], list(columns)
        while names:
            group = columns[names[0]][0]
            span = next((i for i, name in enumerate(names) if columns[name][0] != group), len(names))
            cells.append(
                f'<th colspan="{span}"{" scope=colgroup class=group" if group else ""}>{html.escape(group)}</th>'
            )
            names = names[span:]
        head = f"<tr>{''.join(cells)}</tr>"
    kinds = [_kind(name, layout) for name in columns]
    heads = [f'<th scope="col" {kind}>{html.escape(label)}</th>' for kind, (_, label) in zip(kinds, columns.values())]
    lines = []
    for row in table.to_dict("records"):
        kind = "anchor" if row.get("anchor") is True else "best" if row.get("best") is True else ""
        cells = [f"<td {kind}>{_cell(row, name, labels or {})}</td>" for kind, name in zip(kinds, columns)]
        lines.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    label = _plain(caption.split(".")[0])
    body = "\n".join(lines) or f'<tr><td colspan="{len(columns)}" class="words">none</td></tr>'
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<caption><span>{caption}</span></caption>\n<thead>{head}<tr>{''.join(heads)}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def show_table(
    table: pd.DataFrame,
    layout: str | layouts.Headings | None,
    caption: str,
    labels: Mapping[str, str] | None = None,
    hide: Collection[str] = (),
) -> HTML:
    """`table_html` for a notebook."""
    return HTML(table_html(table, layout, caption, labels, hide))


def show_figure(figure: Figure, caption: str) -> HTML:
    """A matplotlib figure as inline SVG with its caption, for a notebook."""
    label = _plain(caption)
    width = round(100 * figure.get_figwidth())
    drawing = figures.svg(figure).replace("<svg ", f'<svg role="img" aria-label="{label}" style="width: {width}px" ', 1)
    return HTML(f'<figure><div class="drawing" tabindex="0">{drawing}</div><figcaption>{caption}</figcaption></figure>')


def text(markdown: str) -> Markdown:
    """Prose that depends on the data, for a notebook."""
    return Markdown(markdown)


def render(
    output: Path | str,
    folders: Iterable[Path | str],
    report: Path | str = REPORT,
    recorded: Path | str | None = None,
) -> None:
    """Run the notebook `report` for the platforms in `folders` and write it as one HTML page that needs no network."""
    notebook = jupytext.read(report)
    parameters = f"folders = {[str(Path(folder).resolve()) for folder in folders]!r}"
    if recorded:
        parameters += f"\nrecorded = {str(Path(recorded).resolve())!r}"
    place = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    cell = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["injected"]})
    notebook.cells.insert(place + 1, cell)
    resources = {"metadata": {"path": str(Path(report).resolve().parent)}}
    try:
        quiet = ["--IPKernelApp.log_level=ERROR"]  # otherwise it warns about its own port on localhost
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=300,
            shutdown_kernel="immediate",  # it has nothing left to save
            resources=resources,
            extra_arguments=quiet,
            on_notebook_start=_leave_signals,
        )
        client.execute()
    except CellExecutionError as error:
        raise UserError(f"{report}: a cell failed: {error.ename}: {error.evalue}") from error
    exporter = HTMLExporter(template_file=str(TEMPLATE))
    page, _ = exporter.from_notebook_node(notebook)
    with replacing(output) as temporary:
        temporary.write_text(page)


def _leave_signals(**_: Any) -> None:
    """Let Ctrl-C and SIGTERM end this process as any other; NotebookClient's own handlers end it with a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().remove_signal_handler(number)
