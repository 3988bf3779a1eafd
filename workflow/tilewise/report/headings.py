"""Columns, order and headings of the page's tables, read from tables.yaml and checked."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.yaml_input import read_yaml, suggest_name
from tilewise import UserError
from tilewise.evidence import Evidence
from tilewise.study import columns
from tilewise.study.schema import validate

LAYOUTS_FILE = Path(__file__).with_name("tables.yaml")

#: A column -> (group above the heading, heading).
Headings = dict[str, tuple[str, str]]
#: An entry of tables.yaml.
Layout = Mapping[str, Any]


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


def select_headings(layout: Layout, table: pd.DataFrame, brief: bool = False) -> Headings:
    """Those columns of a layout that a table has, with their groups and headings.

    `*` stands for the columns that no list names, whose headings lack the `suffix`; in a `brief` table for the choice.
    """
    kept, suffix = layout.get("brief", "").split() if brief else [], layout.get("suffix", "")
    unlisted = ["choice"] if "choice" in kept else columns.parameters_of(table)
    found = {}
    for group, names in _groups(layout):
        for word in names.split():
            for name in unlisted if word == "*" else [word]:
                said = name.removesuffix(suffix).replace("_", " ") if word == "*" and suffix else columns.heading(name)
                found[name] = (group, layout.get("headings", {}).get(name, said))
    return {name: heads for name, heads in found.items() if name in table and (not kept or name in kept)}


@functools.cache
def layouts() -> dict[str, Layout]:
    """The layouts of tables.yaml."""
    return load()


def make_headings(layout: str | None, table: pd.DataFrame, brief: bool = False) -> Headings:
    """The columns to show of a table: `layout` is a name in tables.yaml, or None for all."""
    if layout is None:
        return {name: ("", name) for name in table}
    return select_headings(layouts()[layout], table, brief)


def claims(evidence: Evidence) -> Headings:
    """The layout of `claims.side_by_side`: two columns for each platform; `why` is shown below the claim."""
    layout = {"source": ("", "source"), "claim": ("", "claim, and why"), "published": ("", "published")}
    for platform in evidence.gpus_first:
        layout[f"verdict {platform.name}"] = (evidence.labels[platform.name], "verdict")
        layout[f"measured {platform.name}"] = (evidence.labels[platform.name], "measured, with its range")
    return layout
