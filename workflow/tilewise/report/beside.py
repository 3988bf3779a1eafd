"""One question's numbers side by side: those of a source, of the recorded runs and of this run.

A table has a row per product, or per choice for one product, and a column per side. `Sides` holds the runs that are
compared, `rows` finds their numbers, `html` shows them.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from tilewise import RECORDED
from tilewise.evidence import Evidence, load_evidence
from tilewise.explain import timings
from tilewise.explain.number_format import rounded
from tilewise.explain.quantities import fitting
from tilewise.files import read_json
from tilewise.report import tables
from tilewise.report.markup import csv_link, numbered, pieces, title_of
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
#: The columns of measurements that are compared, in addition to those of cases, choices and ranges.
_COMPARED = ["time_ms", "gflops", "samples", "relative_error", "status", "message"]
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
                card = each.device.gpu["name"] if each.has_gpu else "no GPU"
                name = re.sub(r" \d+GB\b.*", "", card.removeprefix("NVIDIA "))  # H100 of NVIDIA H100 80GB HBM3
                recorded = f"{name}, recorded {each.device.captured[:10]}"
                found[f"{side} {each.name}"] = recorded if side == "recorded" else f"This run, {name}"
        return found

    @property
    def first(self) -> Evidence:
        """The recorded runs, or else this run."""
        return self.runs()[0][1]

    def runs(self) -> list[tuple[str, Evidence]]:
        """The runs, each with the word for its side."""
        sides = (("recorded", self.record), ("own", self.own))
        return [(side, evidence) for side, evidence in sides if evidence is not None]

    def collect(self, find: Callable[[Evidence], pd.DataFrame]) -> pd.DataFrame:
        """What `find` returns of each run, without the recorded platforms that stand in for its own: rows by `side`."""
        found = []
        for side, evidence in self.runs():
            table = find(evidence)
            own = table[table["platform"].isin([each.name for each in evidence.platforms])]
            found.append(own.assign(side=side + " " + own["platform"]))
        return joined(*found)


def load_record(recorded: Path = RECORDED) -> Evidence | None:
    """The recorded runs as evidence by themselves, in the order of their recording; None if the folder has none."""
    files = sorted(recorded.glob("*/device.json"), key=lambda file: read_json(file)["captured"])
    folders = [file.parent for file in files]
    return load_evidence(folders, recorded=recorded / "none", of_record=True) if folders else None


def largest_square(task: str, sides: Sides) -> dict[str, Any]:
    """The sizes, by column, of the largest square product of a task in this run or, if it timed none, in the record."""
    timed = sides.collect(lambda evidence: timings.largest_square(evidence.select_tasks(task).gpu))
    own = timed[timed["side"].str.startswith("own")]
    largest = (own if len(own) else timed)["n"].max()
    return {} if pd.isna(largest) else dict.fromkeys(SHAPE, int(largest))


def rows(
    task: str, sides: Sides, key: str = "", errors: bool = False, largest: bool = False, **where: Any
) -> pd.DataFrame:
    """The numbers of a task on all sides: a row per case and side, with the columns `label`, CASE, `side` and SHOWN.

    `where` has the values, or lists of them, that columns must have. The row of a case is that of its best choice;
    with a `key`, such as ntb, each choice is a case. With `errors`, errors replace rates. `largest` keeps
    only `largest_square`, with its kernels in the registry's order. A kernel that a run only emulated, at sizes of the
    emulator's, has the status of its verification.
    """
    where |= largest_square(task, sides) if largest else {}
    keys = [key] if key and key != "block" else []
    of_any_size = {name: value for name, value in where.items() if name not in SHAPE}
    table = sides.collect(lambda evidence: fitting(_timed(task, evidence, bool(key)), where))
    emulated = sides.collect(lambda evidence: fitting(_emulated(task, evidence, keys), of_any_size))
    if errors:
        noted = (each.assign(note=each["relative_error"].map("error {:.1e}".format)) for each in (table, emulated))
        table, emulated = noted
    source = _published(task, sides, where, bool(key))
    known = {*table["kernel"], *emulated["kernel"]}
    columns = [*CASE, *keys, "side", *SHOWN]
    table = joined(table, source[source["kernel"].isin(known)]).reindex(columns=columns)
    if table["time_ms"].notna().any():
        cases = table.drop_duplicates([*CASE, *keys, *(["choice"] if key else [])])
        alike = [*CASE[:2], *keys]
        emulated = emulated.reindex(columns=[*alike, "side", *SHOWN]).drop(columns="choice")
        emulated = cases[[*CASE, *keys, "choice"]].merge(emulated.drop_duplicates([*alike, "side"]), on=alike)
    table = joined(table, emulated.reindex(columns=columns))
    if key:
        table = table.assign(label=table[keys[0] if keys else "choice"], choice="")
        width = pd.to_numeric(table["label"].astype(str).str.extract(r"^(\d+)", expand=False))
        return table.loc[width.sort_values(kind="stable").index].reset_index(drop=True)
    table = table.assign(label=[size_text(row) for row in table.to_dict("records")])
    return timings.by_kernel(table, sides.first) if largest else table


def joined(*tables_of: pd.DataFrame) -> pd.DataFrame:
    """The rows of several tables, in the columns that any of them has."""
    return pd.concat([each for each in tables_of if len(each)] or tables_of[:1], ignore_index=True)


def largest_products(sides: Sides) -> pd.DataFrame:
    """The largest n of three matrices, and the times of the largest products, in the columns of `rows`."""
    published = sides.first.published[sides.first.published["source"] == "a"]
    values = published.drop_duplicates("quantity").set_index("quantity")["value"]
    time = published[published["place"] == "Table 3"].iloc[0]
    found = [{"side": SOURCE, "label": label, "value": values[name]} for name, (_, label) in _SIZES.items()]
    found.append(_product(SOURCE, "naive", f"n = {time['n']:,}", time["n"], time["value"]))
    gpus = {each.name for _, evidence in sides.runs() for each in evidence.platforms if each.has_gpu}
    probes = sides.collect(tables.maximum_size)
    for side, own in probes[probes["platform"].isin(gpus)].groupby("side", sort=False):
        found += [{"side": side, "label": label, "value": own[name].iloc[0]} for name, label in _SIZES.values()]
        timed = own[own["time_ms"].notna()]
        for row in timed[timed["published_ms"].notna()].itertuples():
            found.append(_product(side, row.kernel, f"n = {row.timed_n:,}", row.timed_n, row.time_ms))
        for row in timed.drop_duplicates("kernel", keep="last").itertuples():
            product = _product(side, row.kernel, "the largest n timed", row.timed_n, row.time_ms)
            found.append(product | {"choice": f"n = {row.timed_n:,}"})
    return pd.DataFrame(found).reindex(columns=CELLS)


def _product(side: str, kernel: str, which: str, n: float, time_ms: float) -> dict[str, Any]:
    rate = 2e-6 * float(n) ** 3 / time_ms
    return {"side": side, "label": f"{kernel}, {which}", "time_ms": time_ms, "gflops": rate, "status": Status.OK}


def facts(task: str, sides: Sides, label: str, value: str, note: str) -> pd.DataFrame:
    """The rows of a method's table on all sides, in the columns of `rows`.

    `label` and `note` are words with {columns}; `value` is the column of the number that a cell shows.
    """
    table = sides.collect(functools.partial(tables.frame, task))
    records = table.to_dict("records")
    words = {"label": [_filled(label, row) for row in records], "note": [_filled(note, row) for row in records]}
    table = table.assign(**words, value=table.get(value), time_ms=None).reindex(columns=CELLS)
    return table.assign(kernel="", dtype="", unit=COLUMNS[value].unit if value in COLUMNS else "")


def _filled(words: str, row: Mapping[str, Any]) -> str:
    """Words with the values of a row, numbers rounded; empty if one of them is not known."""
    names = [name for _, name, _, _ in Formatter().parse(words) if name]
    if any(pd.isna(row[name]) for name in names):
        return ""
    plain = {name: row[name] if isinstance(row[name], str | bool) else rounded(row[name]) for name in names}
    flags: dict[Any, str] = {True: "yes", False: "no"}
    return words.format_map({name: flags.get(each, str(each)).replace("_", " ") for name, each in plain.items()})


@functools.lru_cache(maxsize=64)
def _timed(task: str, evidence: Evidence, every: bool) -> pd.DataFrame:
    """A task's rows of a run on GPUs and CPUs: the best of each case, or every choice."""
    own = evidence.select_tasks(task)
    # All columns would take 1.5 times as long.
    names = [*timings.CASE, *evidence.choice, *timings.RANGE, *_COMPARED]
    rows = pd.concat([own.gpu[names], own.cpu[names]], ignore_index=True)
    rows = timings.with_words(rows[rows["platform"].isin([each.name for each in evidence.platforms])], evidence)
    rows = rows.assign(anchor=rows["kernel"].isin(evidence.libraries))
    found = timings.by_shape(rows if every else timings.best(rows))
    return found.assign(range_percent=timings.range_percent(found))


def _emulated(task: str, evidence: Evidence, keys: list[str]) -> pd.DataFrame:
    """What the emulator says of a task's kernels: a row per platform, kernel, type and choice, a wrong one first."""
    rows = evidence.select_tasks(task).emulated
    rows = rows[~rows["kernel"].isin(evidence.libraries)]
    verified = tables.worst_first(rows).drop_duplicates(["platform", *CASE[:2], *keys])
    return verified.assign(time_ms=None, gflops=None)


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


def html(
    table: pd.DataFrame, sides: Sides, first: str, caption: str, name: str, number: int | None = None, blank: str = ""
) -> str:
    """A table of `rows` as HTML with its number and caption: `first` is the heading of its first column.

    `blank` is the heading of an empty column for a reader's values, if there is one. The CSV has a row per case and
    side, the side in words.
    """
    shown = [side for side in sides.headings if side != SOURCE or side in set(table["side"])]
    by = ["label", *(column for column in ("kernel", "dtype") if table[column].nunique() > 1)]
    lines = []
    for _, own in table.groupby(by, sort=False):
        rows = own.drop_duplicates("side").to_dict("records")
        line = [escape(keep_together(str(own.iloc[0][each]))).replace("_", Markup("_<wbr>")) for each in by]
        known = {
            row["side"]: {name: each for name, each in row.items() if pd.notna(each) and each != ""} for row in rows
        }
        line += [Markup(keep_together(pieces().side(known.get(side)))) for side in shown]
        lines.append(("", line + [""] * bool(blank)))
    headings = [("words", {"dtype": "type", "label": keep_together(first or "case")}.get(each, each)) for each in by]
    parts = [sides.headings[side].partition("recorded ") for side in shown]
    headings += [("side", Markup('{}{}<span class="date">{}</span>').format(*each)) for each in parts]
    headings += [("blank", blank)] * bool(blank)
    tidy = table.assign(side=table["side"].map(sides.headings)).dropna(axis="columns", how="all")
    words = numbered("Table", f"table-{name}", number, caption, csv_link(tidy, name))
    made = pieces().table("beside", title_of(caption), words, [], headings, lines)
    return f'<div class="exhibit" id="table-{name}">{made}</div>'
