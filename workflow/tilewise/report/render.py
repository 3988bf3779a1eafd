"""From report/report.py, a notebook, to one self-contained page."""

import asyncio
import base64
import gzip
import importlib.util
import itertools
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter, TemplateExporter

from tilewise import ROOT, UserError
from tilewise.files import replacing
from tilewise.report.exhibits import FIGURES

REPORT = ROOT / "report" / "report.py"
TEMPLATE = ROOT / "report" / "template" / "report.html.j2"


def render(
    output: Path | str,
    folders: Iterable[Path | str],
    report: Path | str = REPORT,
    recorded: Path | str | None = None,
    drawn: Path | str | None = None,
) -> None:
    """Run the notebook `report` for the platforms in `folders` and write it as one HTML page that needs no network.

    Its figures are also written beside it, into `exhibits.FIGURES`, for readers without scripts. `drawn` is the folder
    of the figures of the tasks, if they are drawn already.
    """
    notebook = jupytext.read(report)
    parameters = f"folders = {[str(Path(folder).resolve()) for folder in folders]!r}"
    for name, folder in {"recorded": recorded, "drawn": drawn}.items():
        if folder:
            parameters += f"\n{name} = {str(Path(folder).resolve())!r}"
    place = next(i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    cell = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["injected"]})
    notebook.cells.insert(place + 1, cell)
    resources = {"metadata": {"path": str(Path(report).resolve().parent)}}
    try:
        quiet = "--IPKernelApp.log_level=ERROR"  # otherwise it warns about its own port on localhost
        client = NotebookClient(
            notebook,
            timeout=300,
            shutdown_kernel="immediate",  # it has nothing left to save
            resources=resources,
            extra_arguments=[quiet],
            on_notebook_start=_leave_signals,
        )
        client.execute()
    except CellExecutionError as error:
        raise UserError(f"{report}: a cell failed: {error.ename}: {error.evalue}") from error
    exporter = HTMLExporter(template_file=str(TEMPLATE))
    # HTMLExporter itself would go on to parse the whole page, for images without words.
    page, _ = TemplateExporter.from_notebook_node(exporter, notebook, {"datatables": _datatables()})
    write(output, page)


def write(output: Path | str, page: str) -> None:
    """Write a page with its numbers, and its figures as files beside it; those of an older page are removed."""
    beside = Path(output).parent / FIGURES
    drawings = _drawings(page, TEMPLATE.with_name("style.css").read_text())
    with replacing(output) as temporary:  # the page last, when its figures are there
        temporary.write_text(_numbered(page))
        beside.mkdir(exist_ok=True)
        for name, drawing in drawings.items():
            with replacing(beside / f"{name}.svg") as figure:
                figure.write_text(drawing)
        for old in beside.glob("*.svg"):
            if old.stem not in drawings:
                old.unlink()


def _drawings(page: str, style: str) -> dict[str, str]:
    """The figures of a page as SVG by name, in the colours of the light scheme, which come first in the style."""
    colours = dict(re.findall(r"(--\w+): (#\w+)", style[: style.index("}")]))
    figures = re.findall(r'<figure id="figure-([^"]+)">.*?(<svg.*?</svg>)', page, re.DOTALL)
    return {name: re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], svg) for name, svg in figures}


def _datatables() -> str:
    """DataTables, with all that it needs: the body of a function that returns it, packed by gzip, in base64.

    It is a fifth of a page as text, and no reader needs it before a fold is opened.
    """
    itables = importlib.util.find_spec("itables")  # importing it would take longer than all that is needed of it
    if itables is None or itables.origin is None:
        raise UserError("the package itables is missing; pip install --editable .")
    path = Path(itables.origin).parent / "html" / "dt_bundle.js"
    text, found = re.subn(r"export *\{[^}]*?(\w+) as default[^}]*\}", r"return \1", path.read_text())
    if found != 1:
        raise UserError(f"{path}: it does not export DataTables; pip install the itables of pyproject.toml")
    return base64.b64encode(gzip.compress(f'"use strict";{text}'.encode(), mtime=0)).decode()


def _numbered(page: str) -> str:
    """The page with tables and figures numbered in its order, and links to them that say their numbers."""
    count = {kind: itertools.count(1) for kind in ("Table", "Figure")}
    numbers = {}

    def mark(found: re.Match[str]) -> str:
        numbers[found[1]] = f"{found[2]} {next(count[found[2]])}"
        return f'<a class="number" href="#{found[1]}">{numbers[found[1]]}.</a>'

    page = re.sub(r'<a class="number" href="#([^"]+)">(Table|Figure)</a>', mark, page)
    return re.sub(
        r'<a href="#((?:table|figure)-[^"]+)">@</a>',
        lambda found: f'<a href="#{found[1]}">{numbers[found[1]]}</a>' if found[1] in numbers else "a later table",
        page,
    )


def _leave_signals(**_: Any) -> None:
    """Let Ctrl-C and SIGTERM end this process as any other; NotebookClient's own handlers end it with a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().remove_signal_handler(number)
