"""From report/report.py, a notebook, to one self-contained page."""

import ast
import base64
import contextlib
import gzip
import importlib.util
import io
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from IPython.display import HTML, Markdown
from nbconvert import HTMLExporter, TemplateExporter

from tilewise import ROOT, UserError
from tilewise.files import replacing, write_json
from tilewise.report import notes
from tilewise.report.exhibits import FIGURES

REPORT = ROOT / "report" / "report.py"
TEMPLATE = ROOT / "report" / "template" / "report.html.j2"


def render(
    output: Path | str,
    folders: Iterable[Path | str],
    report: Path | str = REPORT,
    recorded: Path | str | None = None,
    drawn: Path | str | None = None,
) -> list[str]:
    """Run the notebook `report` for the platforms in `folders` and write it as one HTML page that needs no network.

    Its figures are also written beside it, into `exhibits.FIGURES`, for readers without scripts, and its notes, which
    are returned, into `notes.FILE`. `drawn` is the folder of the figures of the tasks, if they are drawn already.
    """
    places: dict[str, Any] = {"folders": [Path(folder) for folder in folders]}
    places |= {name: Path(folder) for name, folder in {"recorded": recorded, "drawn": drawn}.items() if folder}
    notebook = run(report, **places)
    said = notes_of(notebook)
    exporter = HTMLExporter(template_file=str(TEMPLATE))
    # HTMLExporter itself would go on to parse the whole page, for images without words.
    page, _ = TemplateExporter.from_notebook_node(exporter, notebook, {"datatables": _datatables()})
    write_json(said, Path(output).with_name(notes.FILE))
    write(output, page)
    return said


def run(report: Path | str = REPORT, **parameters: Any) -> nbformat.NotebookNode:
    """The notebook `report` with the outputs of its cells, which run here; `parameters` replace those of its cell.

    A cell that fails shows a note. Raises what a cell with tags raises: without it the others cannot run.
    """
    notebook = jupytext.read(report)
    space: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _outputs(cell, space, str(report))
            if "parameters" in cell.metadata.get("tags", ()):
                space |= parameters
    return notebook


def _outputs(cell: nbformat.NotebookNode, space: dict[str, Any], place: str) -> list[nbformat.NotebookNode]:
    """Run a cell of the file `place` in the names of `space`; returns what it prints and shows."""
    shown: list[Any] = []
    space["display"] = shown.append
    name = cell.metadata.get("title") or cell.source.partition("\n")[0]
    noted = notes.piece(name, lambda note: shown.append(HTML(note)))
    guard = contextlib.nullcontext() if cell.metadata.get("tags") else noted
    with guard, contextlib.redirect_stdout(io.StringIO()) as printed:
        shown.append(_last_value(cell.source, space, place))
    said = [nbformat.v4.new_output("stream", text=printed.getvalue())] if printed.getvalue() else []
    return [*said, *(_output(each) for each in shown if each is not None)]


def notes_of(notebook: nbformat.NotebookNode) -> list[str]:
    """The notes in the outputs of a notebook that ran."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [note for output in outputs for text in output.get("data", {}).values() for note in notes.found(text)]


def _last_value(source: str, space: dict[str, Any], place: str) -> Any:
    """Run the code of a cell; the value of its last line if that is an expression, as in a notebook."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), space)
    return eval(compile(ast.Expression(last.value), place, "eval"), space) if isinstance(last, ast.Expr) else None


def _output(shown: Any) -> nbformat.NotebookNode:
    kind = {HTML: "text/html", Markdown: "text/markdown"}.get(type(shown))
    data = {kind: shown.data} if kind else {"text/plain": repr(shown)}
    return nbformat.v4.new_output("display_data", data=data)


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
    # A title may say var(--x) too.
    plain = re.compile(r"var\((--\w+)\)")
    return {name: plain.sub(lambda found: colours.get(found[1], found[0]), svg) for name, svg in figures}


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
    """The page with its tables and figures numbered in their order."""
    count = {kind: itertools.count(1) for kind in ("Table", "Figure")}

    def mark(found: re.Match[str]) -> str:
        return f'<a class="number" href="#{found[1]}">{found[2]} {next(count[found[2]])}.</a>'

    return re.sub(r'<a class="number" href="#([^"]+)">(Table|Figure)</a>', mark, page)
