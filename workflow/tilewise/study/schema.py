"""Validate YAML and JSON with workflow/schemas/."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelscope.element_types import number_types
from kernelscope.files import read_text
from kernelscope.yaml_input import check, parse_yaml, read_yaml
from tilewise import ROOT
from tilewise.study.architectures import NEEDS
from tilewise.study.precision import PRECISIONS, SCHEMES

SCHEMAS = ROOT / "workflow" / "schemas"


def schema(name: str) -> dict[str, Any]:
    """workflow/schemas/<name>.schema.yaml with the definitions that follow from Python's tables.

    They are `dtype`, an element type, `number`, the type of a number that a kernel is called with, `scheme`, how a
    kernel rounds, and `need`, what it needs of a GPU.
    """
    types, numbers = list(PRECISIONS), [*number_types(), "dtype"]
    found = _written(name)
    definitions = found.get("$defs", {}) | {
        "dtype": {"enum": types, "description": _listed(types), "examples": types[:1]},
        "number": {"enum": numbers, "description": _listed(numbers)},
        "scheme": {"enum": [*SCHEMES], "description": _listed([*SCHEMES])},
        "need": {"enum": [*NEEDS], "description": _listed([*NEEDS])},
    }
    return found | {"$defs": definitions}


@functools.cache
def _written(name: str) -> dict[str, Any]:
    return read_yaml(SCHEMAS / f"{name}.schema.yaml")


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def read(path: Path | str, name: str, checked: bool = False, empty: bool = False) -> Any:
    """What a YAML file says that workflow/schemas/<name>.schema.yaml describes; callers must not change it.

    A process parses and validates the same text once. Raises UserError if the file cannot be read or, unless it was
    `checked`, if the schema refuses it. With `empty`, a file of nothing but comments is read as None.
    """
    return _read(str(path), read_text(path), name, checked, empty)


@functools.lru_cache(maxsize=16)
def _read(path: str, text: str, name: str, checked: bool, empty: bool) -> Any:
    data = parse_yaml(text, path)
    if not checked and not (empty and data is None):
        validate(data, name, path)
    return data


def validate(data: Any, name: str, source: Path | str | Callable[[str], str]) -> None:
    """Check `data` against workflow/schemas/<name>.schema.yaml, as `kernelscope.yaml_input.check` does."""
    check(data, schema(name), source)
