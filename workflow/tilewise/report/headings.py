"""Columns, order, headings and numbers of tables, on the page and on a terminal; tables.yaml has their layouts."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.yaml_input import read_yaml, suggest_name
from tilewise import UserError
from tilewise.explain.number_format import rounded
from tilewise.study import columns
from tilewise.study.schema import validate

LAYOUTS_FILE = Path(__file__).with_name("tables.yaml")
#: Columns that stay even if they are empty, because an empty one says that nothing was measured.
ALWAYS = {"time_ms", "measured", "message", "status"}
#: What stands for a value that is not known.
MISSING = "–"

#: A column -> (group above the heading, heading).
Headings = dict[str, tuple[str, str]]
#: An entry of tables.yaml.
Layout = Mapping[str, Any]


@functools.cache
def load(path: Path | str = LAYOUTS_FILE) -> dict[str, Layout]:
    """The layouts of a YAML file by name. Raises UserError if an entry is malformed or names an unknown column."""
    listed = read_yaml(path)
    validate(listed, "tables", path)
    for table, entry in listed.items():
        words = " ".join([*(names for _, names in _groups(entry)), entry.get("brief", "")])
        for name in [*words.split(), *entry.get("headings", ())]:
            if name not in columns.COLUMNS and name != "*":
                remedy = suggest_name(name, columns.COLUMNS, "add it to study/columns.yaml")
                raise UserError(f"{path}: {table}: there is no column '{name}'; {remedy}")
    return listed


def _groups(layout: Layout) -> list[tuple[str, str]]:
    """The words above each group of columns, and the names of the columns."""
    return [("", each) if isinstance(each, str) else next(iter(each.items())) for each in layout["columns"]]


def make_headings(layout: Layout | None, table: pd.DataFrame, brief: bool = False) -> Headings:
    """Those columns of a layout with entries in a table, with their groups and headings; all of it without a layout.

    `*` stands for the columns that no list names, whose headings lack the `suffix`; in a `brief` table for the choice.
    The column of the platform is left out if there is only one.
    """
    entries = table.replace("", None).notna()
    shown = {name for name in table if layout is None or table.empty or name in ALWAYS or entries[name].any()}
    if "platform" in table and table["platform"].nunique() < 2:
        shown.discard("platform")
    if layout is None:
        return {name: ("", name) for name in table if name in shown}
    kept, suffix = layout.get("brief", "").split() if brief else [], layout.get("suffix", "")
    unlisted = ["choice"] if "choice" in kept else columns.parameters_of(table)
    found = {}
    for group, names in _groups(layout):
        for word in names.split():
            for name in unlisted if word == "*" else [word]:
                said = name.removesuffix(suffix).replace("_", " ") if word == "*" and suffix else columns.heading(name)
                found[name] = (group, layout.get("headings", {}).get(name, said))
    return {name: heads for name, heads in found.items() if name in shown and (not kept or name in kept)}


def text(value: Any, column: str = "") -> str:
    """A value as text: numbers rounded by the unit of their column, but as printed in a data sheet."""
    if pd.isna(value):
        return MISSING
    if isinstance(value, str):
        return value or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "printed":
        return f"{value:,.10g}"
    unit = columns.COLUMNS[column].unit if column in columns.COLUMNS else ""
    return rounded(value, unit) + "×" * (unit == "x")
