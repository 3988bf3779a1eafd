"""One question's numbers side by side: those of a source, of the recorded runs and of this run.

A table has a row per product, or per choice for one product, and a column per side. `Sides` holds the runs that are
compared, `rows` finds their numbers, `html` shows them.
"""

import functools
import html as text
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import pandas as pd
from markupsafe import Markup

from tilewise import RECORDED
from tilewise.evidence import Evidence, load_evidence
from tilewise.explain import timings
from tilewise.explain.number_format import plus_minus, rounded
from tilewise.explain.quantities import fitting
from tilewise.files import read_json
from tilewise.report import tables
from tilewise.report.drawings import pieces
from tilewise.report.sections import keep_together
from tilewise.study.columns import COLUMNS, SHAPE
from tilewise.study.status import Status

#: The side of the source whose assignment the tasks repeat, and its heading.
SOURCE, SOURCE_HEADING = "source", "Source a, RTX 2080 Ti"
#: What identifies a product.
CASE = ["kernel", "dtype", *SHAPE]
#: What a cell shows: a time with its rate and choice, or a `value`; a `note` stands in place of
#: these.
SHOWN = ["choice", "time_ms", "gflops", "range_percent", "samples", "status", "message", "value", "note"]
#: The columns of the rows of a table.
CELLS = ["label", *CASE, "side", *SHOWN]
#: The words for a kernel whose product the emulator found right.
VERIFIED = "verified by emulation"
#: Task -> the places of source a's times of it.
_PLACES = {
    "cpu": ["Table 1", "section 7"],
    "task1a": ["Table 1"],
    "task1b": ["Table 2"],
    "task2a": ["Table 4"],
    "task3": ["Table 5"],
    "task4": ["section 7"],
}
#: Quantity of a source -> (column of a probe, heading).
_SIZES = {
    "memory_total": ("memory_total_bytes", "memory, B"),
    "theoretical_n": ("theoretical_n", "largest n in theory"),
    "allocatable_n": ("allocatable_n", "largest n allocated"),
}


@dataclass(frozen=True)
class Sides:
    """The runs that stand side by side: the recorded ones, and the `own` one of this page, if there is one."""

    record: Evidence | None
    own: Evidence | None

    @property
    def headings(self) -> dict[str, str]:
        """Side -> heading: the source, the recorded platforms in their order, and those of this run."""
        found = {SOURCE: SOURCE_HEADING}
        for side, evidence in self.runs():
            for each in evidence.platforms:
                name = _model(each.device.gpu["name"]) if each.has_gpu else "no GPU"
                recorded = f"{name}, recorded {each.device.captured[:10]}"
                found[f"{side} {each.name}"] = recorded if side == "recorded" else f"This run, {name}"
        return found

    @property
    def first(self) -> Evidence:
        """The recorded runs, or else this run."""
        return next(evidence for _, evidence in self.runs())

    def runs(self) -> Iterator[tuple[str, Evidence]]:
        """The runs, each with the word for its side."""
        for side, evidence in (("recorded", self.record), ("own", self.own)):
            if evidence is not None:
                yield side, evidence


def _model(name: str) -> str:
    """The name of a GPU without its maker and memory, such as H100 of NVIDIA H100 80GB HBM3."""
    return re.sub(r" \d+GB\b.*", "", name.removeprefix("NVIDIA "))


def load_record(recorded: Path = RECORDED) -> Evidence | None:
    """The recorded runs as evidence by themselves, in the order of their recording; None if the folder has none."""
    files = sorted(recorded.glob("*/device.json"), key=lambda file: read_json(file)["captured"])
    folders = [file.parent for file in files]
    return load_evidence(folders, recorded=recorded / "none", of_record=True) if folders else None


def largest_square(task: str, sides: Sides) -> dict[str, int]:
    """The sizes, by column, of the largest square product of a task in this run or, if it timed none, in the record."""
    for _, evidence in reversed([*sides.runs()]):
        timed = _of_run(timings.largest_square(evidence.select_tasks(task).gpu), evidence)
        if len(timed):
            return dict.fromkeys(SHAPE, int(timed["n"].max()))
    return {}


def rows(task: str, sides: Sides, where: Mapping[str, Any], key: str = "", errors: bool = False) -> pd.DataFrame:
    """The numbers of a task on all sides: a row per case and side, with the columns `label`, CASE, `side` and SHOWN.

    `where` has the values, or lists of them, that columns must have. The row of a case is that of its best choice;
    with a `key`, such as ntb, each choice is a case. With `errors`, they are noted in place of rates. A kernel that a
    run only emulated, at sizes of the emulator's, has the status of its verification.
    """
    keys = [key] if key and key != "block" else []
    of_any_size = {name: value for name, value in where.items() if name not in SHAPE}
    found: list[pd.DataFrame] = []
    verified: list[pd.DataFrame] = []
    for side, evidence in sides.runs():
        for table, wanted, collected in (
            (_timed(task, evidence, bool(key)), where, found),
            (_emulated(task, evidence, keys), of_any_size, verified),
        ):
            table = _of_run(fitting(table, wanted), evidence)
            noted = table["relative_error"].map(lambda error: f"error {error:.1e}") if errors else None
            collected.append(table.assign(side=side + " " + table["platform"], note=noted))
    kernels = {name for table in (*found, *verified) for name in table["kernel"]}
    source = _published(task, sides, where, bool(key))
    found.append(source[source["kernel"].isin(kernels)])
    columns = [*CASE, *keys, "side", *SHOWN]
    table, emulated = (joined(each, columns) for each in (found, verified))
    if table["time_ms"].notna().any():
        cases = table.drop_duplicates([*CASE, *keys, *(["choice"] if key else [])])
        alike = [*CASE[:2], *keys]
        emulated = emulated.drop(columns=[*SHAPE, "choice"]).drop_duplicates([*alike, "side"])
        emulated = cases[[*CASE, *keys, "choice"]].merge(emulated, on=alike)
    table = joined([table, emulated], columns)
    if key:
        table = table.assign(label=table[keys[0] if keys else "choice"], choice="")
        width = pd.to_numeric(table["label"].astype(str).str.extract(r"^(\d+)", expand=False))
        return table.loc[width.sort_values(kind="stable").index].reset_index(drop=True)
    return table.assign(label=[size_text(row) for row in table.to_dict("records")])


def _of_run(table: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    """The rows of a run's own platforms, without those of the recorded ones beside them."""
    return table[table["platform"].isin([each.name for each in evidence.platforms])]


def joined(tables_of: Iterable[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """The rows of several tables in these columns."""
    found = [each.reindex(columns=columns) for each in tables_of if len(each)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


def largest_products(sides: Sides) -> pd.DataFrame:
    """The largest n of three matrices, and the times of the largest products, in the columns of `rows`."""
    found: list[dict[str, Any]] = []
    for side, evidence in sides.runs():
        probes = tables.maximum_size(evidence)
        for each in filter(lambda platform: platform.has_gpu, evidence.platforms):
            own = _largest_of(probes[probes["platform"] == each.name])
            found += [{"side": f"{side} {each.name}"} | row for row in own]
    published = sides.first.published
    source = published[published["source"] == "a"]
    values = source.drop_duplicates("quantity").set_index("quantity")["value"]
    time = source[source["place"] == "Table 3"].iloc[0]
    own = [{"label": label, "value": values[name]} for name, (_, label) in _SIZES.items()]
    own.append(_product(f"naive, n = {time['n']:,}", time["n"], time["value"]))
    return pd.DataFrame([*({"side": SOURCE} | row for row in own), *found]).reindex(columns=CELLS)


def facts(task: str, sides: Sides, label: str, value: str, note: str, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of a method's table on all sides, in the columns of `rows`.

    `label` and `note` are words with {columns}; `value` is the column of the number that a cell shows.
    """
    found = []
    for side, evidence in sides.runs():
        if task not in evidence.config["tasks"]:
            continue
        table = _of_run(fitting(tables.task(task, evidence), where), evidence)
        if table.empty:  # it may lack the column of the value
            continue
        records = table.to_dict("records")
        words = {"label": [_filled(label, row) for row in records], "note": [_filled(note, row) for row in records]}
        found.append(table.assign(side=side + " " + table["platform"], value=table[value], time_ms=None, **words))
    table = joined(found, CELLS)
    return table.assign(kernel="", dtype="", unit=COLUMNS[value].unit if value in COLUMNS else "")


def _filled(words: str, row: Mapping[str, Any]) -> str:
    """Words with the values of a row, numbers rounded; empty if one of them is not known."""
    names = [name for _, name, _, _ in Formatter().parse(words) if name]
    if any(pd.isna(row[name]) for name in names):
        return ""
    plain = {name: row[name] if isinstance(row[name], str | bool) else rounded(row[name]) for name in names}
    return words.format_map({name: str(each).replace("_", " ") for name, each in plain.items()})


def _largest_of(probes: pd.DataFrame) -> list[dict[str, Any]]:
    """The sizes of a platform, the product of source a's n, and the largest product that was timed of each kernel."""
    found = [{"label": label, "value": probes[column].iloc[0]} for column, label in _SIZES.values() if len(probes)]
    timed = probes[probes["time_ms"].notna()]
    for row in timed[timed["published_ms"].notna()].to_dict("records"):
        found.append(_product(f"{row['kernel']}, n = {row['timed_n']:,}", row["timed_n"], row["time_ms"]))
    for row in timed.drop_duplicates("kernel", keep="last").to_dict("records"):
        own = _product(f"{row['kernel']}, the largest n timed", row["timed_n"], row["time_ms"])
        found.append(own | {"choice": f"n = {row['timed_n']:,}"})
    return found


def _product(label: str, n: float, time_ms: float) -> dict[str, Any]:
    return {"label": label, "time_ms": time_ms, "gflops": 2e-6 * float(n) ** 3 / time_ms, "status": Status.OK}


@functools.lru_cache(maxsize=64)
def _timed(task: str, evidence: Evidence, every: bool) -> pd.DataFrame:
    """A task's rows of a run on GPUs and CPUs: the best of each case, or every choice."""
    own = evidence.select_tasks(task)
    rows = timings.describe(_of_run(pd.concat([own.gpu, own.cpu], ignore_index=True), evidence), evidence)
    found = timings.by_shape(rows if every else timings.best(rows))
    return found.assign(range_percent=timings.range_percent(found))


def _emulated(task: str, evidence: Evidence, keys: list[str]) -> pd.DataFrame:
    """What the emulator says of a task's kernels: a row per platform, kernel, type and choice, a wrong one first."""
    rows = evidence.select_tasks(task).emulated
    rows = rows[~rows["kernel"].isin(evidence.libraries)]
    right_last = rows.sort_values("status", key=lambda status: status == Status.OK, kind="stable")
    return right_last.drop_duplicates(["platform", *CASE[:2], *keys]).assign(time_ms=None, gflops=None)


def _published(task: str, sides: Sides, where: Mapping[str, Any], every: bool) -> pd.DataFrame:
    """The times of source a's tables that belong to a task."""
    found = sides.first.published
    found = found[(found["source"] == "a") & (found["quantity"] == "time")]
    found = fitting(found[found["place"].isin(_PLACES.get(task, []))], where)
    work = found[SHAPE].astype("float64").prod(axis=1)
    choice = [timings.choice_text(row, sides.first.kernels) for row in found.to_dict("records")]
    found = found.assign(side=SOURCE, choice=choice, time_ms=found["value"], gflops=2e-6 * work / found["value"])
    if not every:
        found = found.sort_values("time_ms", kind="stable").drop_duplicates(CASE).sort_index()
    return found.drop(columns=["value", "note"]).assign(status=Status.OK)


def size_text(row: Mapping[str, Any]) -> str:
    """The size of a product: `n = 8192` for square matrices, else (n, m, p) as source a writes it."""
    n, p, m = (row[name] for name in SHAPE)
    return f"n = {n}" if n == p == m else f"({n}, {m}, {p})"


def html(table: pd.DataFrame, sides: Sides, first: str, caption: str, name: str, blank: str = "") -> str:
    """A table of `rows` as HTML with its caption: `first` is the heading of its first column.

    `blank` is the heading of an empty column for a reader's values, if there is one.
    """
    shown = [side for side in sides.headings if side != SOURCE or side in set(table["side"])]
    by = ["label", *(column for column in ("kernel", "dtype") if table[column].nunique() > 1)]
    lines = []
    for _, own in table.groupby(by, sort=False):
        cells = own.drop_duplicates("side").set_index("side")
        line: list[tuple[str, object]] = [("words", keep_together(str(own.iloc[0][each]))) for each in by]
        line += [("side", Markup(_cell(cells.loc[side] if side in cells.index else None))) for side in shown]
        lines.append(("", line + [("blank", "")] * bool(blank)))
    headings = [("words", {"dtype": "type", "label": keep_together(first or "case")}.get(each, each)) for each in by]
    headings += [("side", sides.headings[side]) for side in shown] + [("blank", blank)] * bool(blank)
    label = text.unescape(caption.split("</b>")[0].split("<b>")[-1].strip(" ."))
    made = pieces().table("beside", label, Markup(caption), [], headings, lines)
    return f'<div class="exhibit" id="table-{name}">{made}</div>'


def _cell(row: Mapping[str, Any] | None) -> str:
    """Time with its range, rate and choice of one side; what stands in their place if nothing was timed."""
    if row is None:
        return '<span class="none">–</span>'
    if pd.notna(row["value"]):
        unit = row.get("unit") or ""
        note = f" <small>{text.escape(str(row['note']))}</small>" if pd.notna(row["note"]) and row["note"] else ""
        value = row["value"] if isinstance(row["value"], str) else rounded(row["value"], unit)
        return f"<b>{text.escape(f'{value} {unit}'.strip())}</b>{note}"
    if pd.isna(row["time_ms"]):
        kind, words = ("verdict yes", VERIFIED) if row["status"] == Status.OK else ("status", str(row["status"]))
        return f'<span class="{kind}">{text.escape(words)}</span>'
    around = "" if pd.isna(row["range_percent"]) else f" <small>{plus_minus(row['range_percent'])}</small>"
    choice = [row["choice"]] if pd.notna(row["choice"]) and row["choice"] else []
    about = row["note"] if pd.notna(row["note"]) else ", ".join([f"{rounded(row['gflops'])} GFLOP/s", *choice])
    return f"<b>{rounded(row['time_ms'])} ms</b>{around}<br><small>{text.escape(about)}</small>"


def tidy(table: pd.DataFrame, sides: Sides) -> pd.DataFrame:
    """The same numbers for a CSV: one row per case and side, the side in words."""
    return table.assign(side=table["side"].map(sides.headings)).dropna(axis="columns", how="all")
