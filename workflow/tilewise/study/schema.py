"""Reads YAML strictly and validates it with workflow/schemas/; messages name the place and the remedy."""

import difflib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tilewise import ROOT, UserError

if TYPE_CHECKING:
    import jsonschema  # takes a sixth of a worker's start, which validates nothing

SCHEMAS = ROOT / "workflow" / "schemas"


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


class _UniqueKeys(_Loader):
    """Refuses a key that occurs twice; PyYAML itself would silently keep the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key '{key.value}' occurs twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path | str) -> Any:
    """What a YAML file holds.

    Raises UserError with one line if it cannot be read: `path:line: what is wrong; what to look for`.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.load(file, _UniqueKeys)
    except yaml.MarkedYAMLError as error:
        place = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else path
        said = " ".join(filter(None, (error.context, error.problem)))
        raise UserError(f"{place}: {said}; look at keys, indentation, brackets and quotes there and before") from None
    except OSError as error:
        raise UserError(f"{path}: it cannot be read: {error.strerror}; correct the name, or restore the file") from None
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise UserError(f"{path}: this is not YAML as text: {said}; correct it, or restore the file") from None


def validate(data: Any, name: str, source: Path | str) -> None:
    """Check `data` against workflow/schemas/<name>.schema.yaml.

    Raises UserError with one line for the first mistake: `source: key.path: what is wrong; what would be right`.
    """
    endless = _endless(data)
    if endless:
        raise UserError(f"{source}: {endless} is not a finite number; write one, for example 10")
    schema = read_yaml(SCHEMAS / f"{name}.schema.yaml")
    import jsonschema

    errors = jsonschema.Draft202012Validator(schema).iter_errors(data)
    error = jsonschema.exceptions.best_match(errors)
    if error is not None:
        raise UserError(f"{source}: {_explain(error)}")


def _endless(data: Any, place: str = "") -> str | None:
    """Where data hold an infinity or what is not a number; the schema's comparisons let them pass."""
    if isinstance(data, float) and not math.isfinite(data):
        return place
    parts = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list) else ()
    return next(filter(None, (_endless(part, f"{place}.{name}".strip(".")) for name, part in parts)), None)


def _explain(error: "jsonschema.ValidationError") -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties":
        allowed = error.schema.get("properties", {})
        extra = sorted(set(error.instance) - set(allowed))
        near = difflib.get_close_matches(extra[0], allowed, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(sorted(allowed))}"
        return f"{place}: unknown key '{extra[0]}'; {hint}"
    if error.schema is False:
        return f"{place}: {json.dumps(error.instance)} does not belong here; remove it"
    remedy, example = error.schema.get("description"), error.schema.get("examples")
    message = f"{place}: {error.message}"
    if remedy:
        message += f"; expected {remedy}"
    if example:
        message += f", for example {json.dumps(example[0])}"
    return message
