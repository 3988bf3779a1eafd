"""Every column of every file and table, once: columns.yaml has the name, type, unit, heading and meaning of each.

CSVs are written and read by that list, and tables take their headings from it; `python -m tilewise.study.columns`
prints it. The parameters of the kernels have a column each, named like them; their names come from the registry.
"""

import collections
import functools
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope.fault_kinds import FaultKind
from kernelscope.files import read_bytes
from kernelscope.yaml_input import read_yaml
from tilewise import UserError
from tilewise.files import MOST_TABLE_BYTES, remedy

if TYPE_CHECKING:
    import pandas as pd  # takes half of a start; those who only want names, such as the registry, do without it


@dataclass(frozen=True)
class Column:
    """A column: `type` is text, whole, number or flag; `unit` is empty for what has none."""

    name: str
    type: str
    meaning: str
    heading: str
    unit: str = ""

    @property
    def pandas(self) -> str:
        """The type that pandas holds it in; sizes and counts may be missing, and text is then empty."""
        return {"text": "str", "whole": "Int64", "number": "float64", "flag": "boolean"}[self.type]


def _columns(listed: Mapping[str, Mapping[str, str]]) -> dict[str, Column]:
    return {name: Column(name, **{"heading": name, **facts}) for name, facts in listed.items()}


_DATA = read_yaml(Path(__file__).with_name("columns.yaml"))
#: Columns that only the report's tables have.
_DERIVED = _columns(_DATA["derived"])
COLUMNS = _columns(_DATA["columns"]) | _DERIVED
#: The columns of each file under results/<platform>/ and report/; `*` stands for the parameters.
FILES = {file: facts["columns"].split() for file, facts in _DATA["files"].items()}
#: The columns of traffic.csv that count faults.
FAULTS = tuple(dict.fromkeys(kind.column for kind in FaultKind if not kind.is_remark))
#: What separates the names in the column `instances`.
BETWEEN_INSTANCES = "; "
#: What makes two rows the same product.
SHAPE = ["n", "p", "m"]
#: The columns that name a measured point, in addition to its parameters.
POINT = ("task", "kernel", "dtype", *SHAPE, "block_x", "block_y")
#: The files that describe a platform or, if they are counts, do not depend on one.
WHOLE = ("occupancy", "tile_choice", "traffic", "counters", "instructions", "cache_lines")
#: The files of the methods: facts/<task>.csv, and tune/<kernel>.csv of `tune`.
FACTS = tuple(name for name in FILES if name not in ("measurements", "published", "parts", "cards", *WHOLE))


def column_names(file: str, parameters: Iterable[str]) -> list[str]:
    """The columns of a file of FILES, with those of the `parameters` in their place."""
    return [name for word in FILES[file] for name in (parameters if word == "*" else [word])]


def choice(parameters: Iterable[str]) -> list[str]:
    """The columns of a sweep's choices."""
    return ["block_x", "block_y", *parameters]


def parameters_of(names: Iterable[str]) -> list[str]:
    """Those of a table's columns that are parameters of kernels: all that the list does not have."""
    return [name for name in names if name not in COLUMNS]


def counts() -> list[str]:
    """The columns that both the emulator and the hardware count, in the order of the hardware's file."""
    about = (*POINT, "*", "padded_multiply_adds")
    return [name for name in FILES["counters"] if name in FILES["traffic"] and name not in about]


def heading(name: str) -> str:
    """The words above a column of a table; a parameter has its name."""
    return COLUMNS[name].heading if name in COLUMNS else name


def is_words(name: str) -> bool:
    """Whether a column holds words, which are aligned left; numbers are aligned right."""
    return name in COLUMNS and COLUMNS[name].type in ("text", "flag")


def set_types(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table with every column in its type; a column that is not in the list is a parameter, a whole number.

    Raises UserError with the first column that holds something else.
    """
    changed = {}
    for name, now in zip(table, table.dtypes):
        kind = COLUMNS[name].pandas if name in COLUMNS else "Int64"
        if now.name == kind and not (kind == "str" and table[name].hasnans):
            continue
        try:
            changed[name] = table[name].astype(kind)
        except (TypeError, ValueError, OverflowError):
            raise UserError(f"the column '{name}' does not hold what it should ({kind})") from None
        if kind == "str":
            changed[name] = changed[name].fillna("")
    return table.assign(**changed) if changed else table


def frame(rows: Iterable[Mapping[str, Any]], file: str, parameters: Sequence[str] = ()) -> "pd.DataFrame":
    """Rows as a DataFrame with the columns of a file."""
    import pandas as pd

    return set_types(pd.DataFrame(list(rows), columns=column_names(file, parameters)))


def empty_table(file: str, parameters: Sequence[str] = ()) -> "pd.DataFrame":
    """A DataFrame with the columns of a file and no rows."""
    return _empty_table(file, tuple(parameters)).copy(deep=False)


@functools.cache  # a run has one for each file that it lacks
def _empty_table(file: str, parameters: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    types = _types()  # a tenth of the time of `frame`, which changes each column's type
    return pd.DataFrame({name: pd.array([], dtype=types[name]) for name in column_names(file, parameters)})


@functools.cache
def _types() -> Mapping[str, Any]:
    """The types by which a CSV is read, as objects, which pandas need not look up; what is not in the list is a
    parameter."""
    import pandas as pd
    from pandas.api.types import pandas_dtype

    return collections.defaultdict(pd.Int64Dtype, {name: pandas_dtype(each.pandas) for name, each in COLUMNS.items()})


@functools.cache
def _texts() -> dict[str, Any]:
    """Those of text alone."""
    return {name: _types()[name] for name, column in COLUMNS.items() if column.type == "text"}


def read_all(paths: Iterable[Path | str], file: str, parameters: Sequence[str] = ()) -> "pd.DataFrame":
    """The rows of several CSVs with the columns of a file, each as `read` returns it."""
    import pandas as pd

    tables = [read(path, file, parameters) for path in paths]
    return pd.concat([empty_table(file, parameters), *tables], ignore_index=True)


def read(path: Path | str, file: str, parameters: Sequence[str] = ()) -> "pd.DataFrame":
    """A CSV with the columns of a file; without rows if there is no file.

    A parameter that it lacks, because it was recorded before a kernel had it, is empty; one that no kernel has today
    stays. Raises UserError if another column is missing, if the file is damaged, or if measurements repeat a point or
    have an impossible time.
    """
    import pandas as pd

    path = Path(path)
    if not path.exists():
        return empty_table(file, parameters)
    content = read_bytes(path, remedy(path), MOST_TABLE_BYTES)
    try:
        if mark := re.search(rb"^(<{7}|={7}|>{7})", content, re.MULTILINE):
            line = content[: mark.start()].count(b"\n") + 1
            raise UserError(f"{path}:{line}: this is a mark of a merge conflict; {remedy(path)}")
        try:
            table = pd.read_csv(io.BytesIO(content), dtype=_types())
        except (ValueError, TypeError, OverflowError):  # set_types finds the column, if it is a table
            table = pd.read_csv(io.BytesIO(content), dtype=_texts())
    except ValueError as error:
        raise UserError(f"{path}: this is not a table ({str(error).strip()}); {remedy(path)}") from None
    if not content.endswith(b"\n"):
        raise UserError(f"{path}: the last line is cut short; {remedy(path)}")
    for name in column_names(file, ()):
        if name not in table:
            older = f"a run of another version of Tilewise is read by that version; {remedy(path)}"
            raise UserError(f"{path}: the column '{name}' is missing; {older}")
    wanted = column_names(file, parameters)
    table = table.reindex(columns=[*wanted, *(name for name in table if name not in wanted)])
    try:
        table = set_types(table)
    except UserError as error:
        raise UserError(f"{path}: {error}; {remedy(path)}") from None
    if file == "measurements":
        # A point measured twice has two times. All columns are compared in few rows: it takes long.
        alike = table[table["time_ms"].notna() & table.duplicated(["task", "time_ms"], keep=False)]
        doubled = alike[alike.duplicated()]
        if len(doubled):
            said = " ".join(str(doubled[name].iloc[0]) for name in ("task", "kernel", "dtype", *SHAPE))
            raise UserError(f"{path}: {len(doubled)} rows repeat a point, the first of them {said}; {remedy(path)}")
        times = table["time_ms"].dropna()
        if not times.between(0, math.inf, inclusive="neither").all():
            raise UserError(f"{path}: a time is not positive and finite; {remedy(path)}")
    return table


_INTRODUCTION = """# Columns

Every column of every file, with its unit and its meaning.
C (n x m) = A (n x p) B (p x m). Every parameter of a kernel in `kernels/registry.yaml` has its own column, named
like the parameter; the column is empty in the rows of other kernels. An empty cell means that nothing was measured.
"""


def markdown() -> str:
    """A page in Markdown: the columns of every file, then those that only the report's tables have."""
    parts = [_INTRODUCTION]
    for file in FILES:
        parts.append(f"## {file}\n\n{_DATA['files'][file]['where']}\n\n{_markdown_table(FILES[file])}")
    where = "`results/<platform>/tables/*.csv` also have columns that follow from those above."
    parts.append(f"## Tables of the report\n\n{where}\n\n{_markdown_table(_DERIVED)}")
    return "\n".join(parts)


def _markdown_table(names: Iterable[str]) -> str:
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for name in names:
        if name == "*":
            lines.append("| one per parameter | whole | | the value of the kernel's parameter of that name |")
            continue
        column = COLUMNS.get(name, Column(name, "whole", "the parameter of that name", name))
        meaning = column.meaning.replace("|", "\\|")
        lines.append(f"| `{name}` | {column.type} | {column.unit}{' ' * bool(column.unit)}| {meaning} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
