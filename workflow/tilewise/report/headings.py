"""Columns, order and headings of the page's tables, read from tables.yaml and checked."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
#: Words above a group of columns, and the columns.
Groups = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Layout:
    """The groups of a table's columns, all and in `brief`; `headings` replaces the words above single columns.

    `*` in a group stands for the columns that no list names, whose headings lack the `suffix`.
    """

    groups: Groups
    brief: Groups
    headings: Mapping[str, str]
    suffix: str = ""

    def select_headings(self, table: pd.DataFrame, brief: bool = False) -> Headings:
        """Those columns of the layout that a table has, with their groups and headings."""
        unlisted, found = columns.parameters_of(table), {}
        for group, names in self.brief if brief else self.groups:
            for word in names:
                for name in unlisted if word == "*" else [word]:
                    words = columns.heading(name)
                    if word == "*" and self.suffix:
                        words = name.removesuffix(self.suffix).replace("_", " ")
                    found[name] = (group, self.headings.get(name, words))
        return {name: heads for name, heads in found.items() if name in table}


def load(path: Path | str = LAYOUTS_FILE) -> dict[str, Layout]:
    """The layouts of a YAML file by name. Raises UserError if an entry is malformed or names an unknown column."""
    listed = read_yaml(path)
    validate(listed, "tables", path)
    for table, entry in listed.items():
        brief = entry.get("brief", "")
        named = [*_names(entry["columns"]), *(brief.split() if isinstance(brief, str) else _names(brief))]
        for name in [*named, *entry.get("headings", ())]:
            if name not in columns.COLUMNS and name != "*":
                remedy = suggest_name(name, columns.COLUMNS, "add it to study/columns.yaml")
                raise UserError(f"{path}: {table}: there is no column '{name}'; {remedy}")
    return {table: _layout(entry) for table, entry in listed.items()}


def _layout(entry: Mapping[str, Any]) -> Layout:
    groups, brief = _groups(entry["columns"]), entry.get("brief")
    if isinstance(brief, str):
        kept = ((group, tuple(name for name in names if name in brief.split())) for group, names in groups)
        brief = tuple((group, names) for group, names in kept if names)
    else:
        brief = groups if brief is None else _groups(brief)
    return Layout(groups, brief, entry.get("headings", {}), entry.get("suffix", ""))


def _groups(listed: Iterable[str | Mapping[str, str]]) -> Groups:
    pairs = [("", each) if isinstance(each, str) else next(iter(each.items())) for each in listed]
    return tuple((group, tuple(names.split())) for group, names in pairs)


def _names(listed: Iterable[str | Mapping[str, str]]) -> list[str]:
    return [name for _, names in _groups(listed) for name in names]


@functools.cache
def layouts() -> dict[str, Layout]:
    """The layouts of tables.yaml."""
    return load()


def make_headings(layout: str | None, table: pd.DataFrame, brief: bool = False) -> Headings:
    """The columns to show of a table: `layout` is a name in tables.yaml, or None for all."""
    if layout is None:
        return {name: ("", name) for name in table}
    return layouts()[layout].select_headings(table, brief)


def claims(evidence: Evidence) -> Headings:
    """The layout of `claims.side_by_side`: two columns for each platform; `why` is shown below the claim."""
    layout = {"source": ("", "source"), "claim": ("", "claim, and why"), "published": ("", "published")}
    for platform in evidence.gpus_first:
        layout[f"verdict {platform.name}"] = (evidence.labels[platform.name], "verdict")
        layout[f"measured {platform.name}"] = (evidence.labels[platform.name], "measured, with its range")
    return layout
