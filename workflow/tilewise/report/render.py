"""From tables and figures to HTML, and from report/report.py to one self-contained page."""

import html
import math
import re
from pathlib import Path

import jupytext
import nbformat
import pandas as pd
from IPython.display import HTML, Markdown
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from tilewise import ROOT, UserError
from tilewise.measure.methods.cold_start import STEPS
from tilewise.report import figures
from tilewise.report.data import ANCHORS

REPORT = ROOT / "report" / "report.py"
TEMPLATE = ROOT / "report" / "template" / "report.html.j2"

_MISSING = '<span class="none" title="no figure">–</span>'
_SOURCE_A = "Published: RTX 2080 Ti"
_HERE = "Measured"
#: Columns of a table in their order -> (group above the heading, heading). A table shows those columns that it has.
LAYOUTS = {
    "winners": {
        "shape": ("", "(n, m, p)"),
        "platform": ("", "GPU"),
        "kernel": ("", "kernel"),
        "published_block": (_SOURCE_A, "block"),
        "published_grid": (_SOURCE_A, "grid"),
        "published_ms": (_SOURCE_A, "GPU ms"),
        "published_cpu_ms": (_SOURCE_A, "CPU ms"),
        "block": (_HERE, "block"),
        "grid": (_HERE, "grid"),
        "time_ms": (_HERE, "GPU ms"),
        "spread_percent": (_HERE, "spread, %"),
        "cpu_ms": (_HERE, "CPU ms"),
        "ratio": ("Published / measured", "GPU"),
        "ratio_cpu": ("Published / measured", "CPU"),
        "percent_of_anchor": ("", "% of cuBLAS"),
        "emulator": ("This machine", "emulator"),
    },
    "sweep": {
        "shape": ("", "(n, m, p)"),
        "platform": ("", "machine"),
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "tile": ("", "tile"),
        "ntb": ("", "NTB"),
        "block": ("", "block"),
        "grid": ("", "grid"),
        "published_ms": ("Published", "ms"),
        "time_ms": (_HERE, "ms"),
        "spread_percent": (_HERE, "spread, %"),
        "gflops": (_HERE, "GFLOP/s"),
        "bound_ratio": (_HERE, "error / bound"),
        "ratio": ("Ratio", "published / measured"),
        "percent_of_anchor": ("Ratio", "% of cuBLAS"),
        "emulator": ("This machine", "emulator"),
    },
    "cpu": {
        "shape": ("", "(n, m, p)"),
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "platform": ("", "machine"),
        "published_ms": ("Published: host of source a", "ms"),
        "time_ms": (_HERE, "ms"),
        "spread_percent": (_HERE, "spread, %"),
        "gflops": (_HERE, "GFLOP/s"),
        "ratio": ("Ratio", "published / measured"),
        "percent_of_anchor": ("Ratio", "% of NumPy's BLAS"),
    },
    "maximum_size": {
        "quantity": ("", "quantity"),
        "platform": ("", "device"),
        "published": (_SOURCE_A, "value"),
        "measured": (_HERE, "value"),
        "ratio": ("Ratio", "measured / published"),
        "note": ("", "note"),
    },
    "choices": {
        "shape": ("", "(n, m, p)"),
        "platform": ("", "GPU"),
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "points": ("", "points that ran"),
        "choice": ("Best", "choice"),
        "time_ms": ("Best", "ms"),
        "spread_percent": ("Best", "spread, %"),
        "runner_up": ("Runner-up", "choice"),
        "gap_percent": ("Runner-up", "slower by, %"),
        "decided": ("Runner-up", "beyond the spread"),
    },
    "ladder": {
        "shape": ("", "(n, m, p)"),
        "platform": ("", "GPU"),
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "choice": ("Best", "choice"),
        "time_ms": ("Best", "ms"),
        "gflops": ("Best", "GFLOP/s"),
        "percent_of_peak": ("Share, %", "of the vector peak"),
        "percent_of_anchor": ("Share, %", "of cuBLAS"),
        "speedup_over_naive": ("Times faster", "than naive"),
        "speedup_over_cpu": ("Times faster", "than the CPU loop"),
        "published_speedup_over_cpu": ("Times faster", "published, than the CPU"),
    },
    "failures": {
        "platform": ("", "machine"),
        "task": ("", "task"),
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "shape": ("", "(n, m, p)"),
        "choice": ("", "choice"),
        "status": ("", "status"),
        "message": ("", "cause"),
    },
    "verification": {
        "platform": ("", "machine"),
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "points": ("Points", "all"),
        "verified": ("Points", "verified"),
        "largest_bound_ratio": ("Largest", "error / bound"),
        "largest_relative_error": ("Largest", "relative error"),
    },
    "cache_lines": {
        "shape": ("", "(n, m, p)"),
        "platform": ("", "machine"),
        "kernel": ("", "loop"),
        "dtype": ("", "type"),
        "ns_per_multiply_add": ("Measured", "ns per multiply-add"),
        "spread_percent": ("Measured", "spread, %"),
        "l1_lines_per_multiply_add": ("Counted: lines per multiply-add", "into the first cache"),
        "l2_lines_per_multiply_add": ("Counted: lines per multiply-add", "from beyond the second"),
    },
    "traffic": {
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "choice": ("", "choice"),
        "shape": ("", "(n, m, p)"),
        "global_load_requests": ("Global memory", "load requests"),
        "global_load_sectors": ("Global memory", "load sectors"),
        "sectors_per_request": ("Global memory", "sectors / request"),
        "global_store_sectors": ("Global memory", "store sectors"),
        "shared_load_wavefronts": ("Shared memory", "load wavefronts"),
        "shared_bank_conflicts": ("Shared memory", "bank conflicts"),
        "flop_per_byte": ("FLOP per byte", "asked for"),
        "flop_per_byte_moved": ("FLOP per byte", "moved"),
        "races": ("Faults", "races"),
        "out_of_bounds": ("Faults", "out of bounds"),
    },
    "cold_start": {
        "order": ("", "order"),
        "platform": ("", "GPU"),
        "position": ("", "call"),
        "kernel": ("", "kernel"),
        "published_ms": ("Published: V100", "whole call, ms"),
        **{f"{step}_ms": ("Measured, ms", step.replace("_", " ")) for step in STEPS},
        "alone_ms": ("Measured, ms", "kernel alone, warm"),
    },
    "launch_limits": {
        "kernel": ("", "kernel"),
        "platform": ("", "machine"),
        "block": ("", "block"),
        "threads": ("", "threads"),
        "shared_bytes": ("", "shared memory, B"),
        "limit_raised": ("", "limit raised"),
        "percent_of_limit": ("", "% of the limit"),
        "outcome": ("", "outcome"),
        "error": ("Error", "runtime"),
        "driver_error": ("Error", "driver"),
        "c_untouched": ("", "C untouched"),
    },
    "bandwidth": {
        "quantity": ("", "quantity"),
        "platform": ("", "device"),
        "dtype": ("", "type"),
        "measured": ("", "measured"),
        "datasheet": ("", "datasheet"),
        "percent_of_datasheet": ("", "% of the datasheet"),
        "unit": ("", "unit"),
        "message": ("", "note"),
    },
    "occupancy": {
        "kernel": ("", "kernel"),
        "platform": ("", "GPU"),
        "dtype": ("", "type"),
        "choice": ("", "choice"),
        "threads": ("Of a block", "threads"),
        "registers": ("Of a block", "registers per thread"),
        "shared_bytes": ("Of a block", "shared memory, B"),
        "active_blocks": ("Blocks per multiprocessor", "computed"),
        "api_active_blocks": ("Blocks per multiprocessor", "CUDA says"),
        "occupancy_percent": ("", "occupancy, %"),
        "limiter": ("", "limited by"),
    },
    "agreement": {
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "count": ("", "count"),
        "launches": ("Launches", "compared"),
        "equal": ("Launches", "equal"),
        "largest_difference_percent": ("", "largest difference, %"),
    },
    "counted": {
        "kernel": ("", "kernel"),
        "dtype": ("", "type"),
        "choice": ("", "choice"),
        "shape": ("", "(n, m, p)"),
        "count": ("", "count"),
        "counted": ("", "emulator"),
        "hardware": ("", "ncu"),
        "difference_percent": ("", "difference, %"),
    },
}
#: Columns that stay even if they are empty, because an empty one says that nothing was measured.
_ALWAYS = {"time_ms", "measured", "message", "status"}
#: Columns of words; all other columns are numbers and are aligned right.
_WORDS = {
    *["shape", "platform", "kernel", "dtype", "choice", "runner_up", "status", "message", "task", "emulator", "points"],
    *["block", "grid", "published_block", "published_grid", "quantity", "note", "decided", "count", "fact", "order"],
    *["outcome", "error", "driver_error", "unit", "limiter", "source"],
}


def number(value, column=""):
    """A number as text with four significant digits, or without decimals if large; the column may make it a factor."""
    if pd.isna(value):
        return _MISSING
    if isinstance(value, str):
        return html.escape(value) or _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column.startswith(("ratio", "speedup", "published_speedup")):
        return f"{value:,.0f}×" if value >= 100 else f"{value:.3g}×"
    if "percent" in column:
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
    if column in ("emulator", "status") and isinstance(value, str) and value != "ok":
        return f'<span class="status">{html.escape(value)}</span>'
    text = number(value, column)
    unstable = column == "time_ms" and row.get("unstable") is True
    return f'{text}<abbr title="unstable: the noise is above the limit">†</abbr>' if unstable else text


def _kind(column, layout):
    if column == "claim":
        return 'class="words claim"'
    if column.startswith("measured "):
        return 'class="words range"'
    if column in ("message", "note") or (layout is None and column != "fact"):
        return 'class="words long"'
    return 'class="words"' if column in _WORDS or column.startswith("verdict ") else ""


def table_html(table, layout, caption, labels=None, hide=()):
    """A table as HTML with its caption, in its own box, which scrolls if the page is narrow.

    `layout` is a dict as in LAYOUTS, the name of one there, or None for the table's own columns. `labels` maps names of
    platforms to words. A platform column with a single platform and columns without any entry are left out.
    """
    columns = layout if isinstance(layout, dict) else LAYOUTS.get(layout) or {name: ("", name) for name in table}
    columns = {name: heads for name, heads in columns.items() if name in table and name not in hide}
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
        kind = "anchor" if row.get("kernel") in ANCHORS.values() else "best" if row.get("best") is True else ""
        cells = [f"<td {kind}>{_cell(row, name, labels or {})}</td>" for kind, name in zip(kinds, columns)]
        lines.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    label = html.escape(re.sub(r"<[^>]+>", "", caption).split(".")[0], quote=True)
    body = "\n".join(lines) or f'<tr><td colspan="{len(columns)}" class="words">none</td></tr>'
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<caption><span>{caption}</span></caption>\n<thead>{head}<tr>{''.join(heads)}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def claims_layout(evidence):
    """The layout of `claims.side_by_side`: two columns for each platform; `why` is shown below the claim."""
    layout = {"source": ("", "source"), "claim": ("", "claim, and why"), "published": ("", "published")}
    for platform in evidence.everyone:
        layout[f"verdict {platform.name}"] = (evidence.labels[platform.name], "verdict")
        layout[f"measured {platform.name}"] = (evidence.labels[platform.name], "measured, with its range")
    return layout


def show_table(table, layout, caption, labels=None, hide=()):
    """`table_html` for a notebook."""
    return HTML(table_html(table, layout, caption, labels, hide))


def show_figure(figure, caption):
    """A matplotlib figure as inline SVG with its caption, for a notebook."""
    label = html.escape(re.sub(r"<[^>]+>", "", caption), quote=True)
    width = round(100 * figure.get_figwidth())
    drawing = figures.svg(figure).replace("<svg ", f'<svg role="img" aria-label="{label}" style="width: {width}px" ', 1)
    return HTML(f'<figure><div class="drawing" tabindex="0">{drawing}</div><figcaption>{caption}</figcaption></figure>')


def text(markdown):
    """Prose that depends on the data, for a notebook."""
    return Markdown(markdown)


def render(output, folders, report=REPORT, recorded=None):
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
        )
        client.execute()
    except CellExecutionError as error:
        raise UserError(f"{report}: a cell failed: {error.ename}: {error.evalue}") from error
    exporter = HTMLExporter(template_file=str(TEMPLATE))
    page, _ = exporter.from_notebook_node(notebook)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    Path(output).write_text(page)
