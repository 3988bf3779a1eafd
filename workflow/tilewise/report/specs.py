"""The entries of figures.yaml. Nothing here draws: a run needs the names of its figures at its start."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernelscope.yaml_input import read_yaml
from tilewise import UserError
from tilewise.explain import by_size, climb, grades, languages, timings, traffic, tuned
from tilewise.report import figure_rows, tables
from tilewise.study.schema import SCHEMAS, validate


class Spec(SimpleNamespace):
    """An entry of figures.yaml; workflow/schemas/figures.schema.yaml says what each key is, and has the defaults."""

    def but(self, **changes: Any) -> "Spec":
        """A copy with other values of some keys."""
        return Spec(**vars(self) | changes)


FILE = Path(__file__).with_name("figures.yaml")
_DATA = read_yaml(FILE)
_ALLOWED = read_yaml(SCHEMAS / "figures.schema.yaml")["$defs"]["figures"]["additionalProperties"]["properties"]
_DEFAULTS = {key: facts["default"] for key, facts in _ALLOWED.items() if "default" in facts}
#: The kernels in the order in which they got their looks; the figures by their part of figures.yaml and their name.
LOOKS = _DATA.pop("looks")
SPECS = {part: {name: Spec(**_DEFAULTS | entry) for name, entry in own.items()} for part, own in _DATA.items()}
#: Where the tables are that an entry may name.
_OF_ROWS = (tables, by_size, climb, grades, languages, timings, traffic, tuned, figure_rows)


def table_of(name: str) -> Any:
    """The function of this name that makes a table of the evidence: the figures' own, or one of the tables; or None."""
    return tables.OVERVIEW.get(name) or next((getattr(each, name) for each in _OF_ROWS if hasattr(each, name)), None)


def check(path: Path = FILE) -> None:
    """Raise UserError if figures.yaml is malformed, or names an unknown table or function of figure_rows.py."""
    entries = read_yaml(path)
    validate(entries, "figures", path)
    for place, entry in ((f"{part}.{name}", entry) for part in SPECS for name, entry in entries[part].items()):
        if table_of(entry["rows"]) is None:
            raise UserError(f"{path}: {place}.rows: there is no table '{entry['rows']}'; name a function of tables.py")
        if not hasattr(figure_rows, entry.get("prepare", "described")):
            raise UserError(
                f"{path}: {place}.prepare: there is no function '{entry['prepare']}'; add it to figure_rows.py"
            )
