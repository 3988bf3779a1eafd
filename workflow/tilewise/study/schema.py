"""Reads YAML strictly and validates it with workflow/schemas/; messages name the place and the remedy."""

import difflib
import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tilewise import ROOT, UserError
from tilewise.study.launch import number_types
from tilewise.study.precision import PRECISIONS, SCHEMES

SCHEMAS = ROOT / "workflow" / "schemas"
#: How many collections may lie within each other; libyaml's composer needs C's stack for each.
DEEPEST = 50
#: How many values of a file may be repetitions by `*alias`.
MOST_REPEATED = 10_000
#: The most characters that a message shows of what is wrong.
MOST_SHOWN = 300

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


class _Strict(_Loader):
    """Refuses a key that occurs twice, of which PyYAML keeps the last, and names the line of a malformed value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key must be text, not a list or mapping", key)
            if key.value in seen:
                raise _error(f"the key '{key.value}' occurs twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _error(f"a malformed value of type {kind}: {error}", node) from None


def _error(problem: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


def read_yaml(path: Path | str) -> Any:
    """What a YAML file holds.

    Raises UserError with one line if it cannot be read: `path:line: what is wrong; what to look for`.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: it cannot be read: {error.strerror}; correct the name, or restore the file") from None
    try:
        text = content.decode("utf-8")
        _check_tabs(text)
        _check_extent(text, path)
        return yaml.load(text, _Strict)
    except yaml.MarkedYAMLError as error:
        place = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else path
        said = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        raise UserError(f"{place}: {said}; look at keys, indentation, brackets and quotes there and before") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError) as error:
        offset = error.start if isinstance(error, UnicodeDecodeError) else error.position
        line = content[:offset].count(b"\n") + 1
        raise UserError(
            f"{path}:{line}: this is not text in UTF-8, or has control characters; correct it, or restore the file"
        ) from None


def _check_tabs(text: str) -> None:
    """Let PyYAML's own scanner find a misplaced tab: libyaml's takes some that Snakemake refuses."""
    if "\t" not in text:
        return
    try:
        json.loads(text)  # whose indentation may be tabs
    except (ValueError, RecursionError):
        for _ in yaml.scan(text, yaml.SafeLoader):
            pass


def _check_extent(text: str, path: Path | str) -> None:
    """Raise UserError if collections nest too deeply, or if aliases stand for too many values, or for themselves."""
    sizes: dict[str, int] = {}  # how many values each anchor stands for
    opened: list[tuple[str | None, int]] = []  # the anchors of the collections around an event, and the values before
    values = repeated = 0
    for event in yaml.parse(text, _Loader):
        wrong = ""
        if isinstance(event, yaml.AliasEvent):
            values += sizes.get(event.anchor, 0)
            repeated += sizes.get(event.anchor, 0)
            if event.anchor in (anchor for anchor, _ in opened):
                wrong = f"*{event.anchor} stands within &{event.anchor}, so it has no end"
            elif repeated > MOST_REPEATED:
                wrong = f"the aliases up to *{event.anchor} repeat more than {MOST_REPEATED} values"
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
            values += 1
            if len(opened) > DEEPEST:
                wrong = f"more than {DEEPEST} lists and mappings within each other"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes |= {anchor: values - before} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            sizes |= {event.anchor: 1} if event.anchor else {}
        if wrong:
            raise UserError(f"{path}:{event.start_mark.line + 1}: {wrong}; write the values themselves")


# JSON Schema takes 1024.0 for an integer; a size in Python must be one.
_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


def schema(name: str) -> dict[str, Any]:
    """workflow/schemas/<name>.schema.yaml with the definitions that follow from PRECISIONS.

    They are `dtype`, an element type, `number`, the type of a number that a kernel is called with, and `scheme`, how a
    kernel rounds.
    """
    types, numbers = list(PRECISIONS), [*number_types(), "dtype"]
    found = _written(name)
    definitions = found.get("$defs", {}) | {
        "dtype": {"enum": types, "description": _listed(types), "examples": types[:1]},
        "number": {"enum": numbers, "description": _listed(numbers)},
        "scheme": {"enum": [*SCHEMES], "description": _listed([*SCHEMES])},
    }
    return found | {"$defs": definitions}


@functools.cache
def _written(name: str) -> dict[str, Any]:
    return read_yaml(SCHEMAS / f"{name}.schema.yaml")


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def validate(data: Any, name: str, source: Path | str) -> None:
    """Check `data` against workflow/schemas/<name>.schema.yaml.

    Raises UserError with one line for the first mistake: `source: key.path: what is wrong; what would be right`.
    """
    wrong = next(_foreign(data), None)
    if wrong:
        raise UserError(f"{source}: {wrong}")
    error = jsonschema.exceptions.best_match(_Validator(schema(name)).iter_errors(data))
    if error is not None:
        raise UserError(f"{source}: {_explain(error)}")


def _foreign(data: Any, place: str = "") -> Iterator[str]:
    """What a schema does not see: numbers that are not finite, and what YAML has but JSON lacks."""
    where = place or "top level"
    if isinstance(data, Mapping):
        for key, value in data.items():
            if not isinstance(key, str):
                yield f"{where}: the key {key} is not text; put it into quotes"
            yield from _foreign(value, f"{place}.{key}".strip("."))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _foreign(value, f"{place}.{number}".strip("."))
    elif isinstance(data, float) and not math.isfinite(data):
        yield f"{where} is not a finite number; write one, for example 10"
    elif not isinstance(data, str | int | float | None):
        yield f"{where}: {data} is of type {type(data).__name__}; if it is text, put it into quotes"


def meant(value: str, known: Iterable[str], otherwise: str = "") -> str:
    """Words that lead from a name that is not known to one that is; if none is near, all of them, or `otherwise`."""
    known = list(known)
    near = difflib.get_close_matches(value, known, n=1)
    return f"did you mean '{near[0]}'?" if near else otherwise or f"there are {', '.join(known)}"


def _explain(error: jsonschema.ValidationError) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties":
        allowed = error.schema.get("properties", {})
        extra = sorted(set(error.instance) - set(allowed))
        hint = meant(extra[0], allowed, f"it takes {', '.join(sorted(allowed))}")
        return f"{place}: unknown key '{extra[0]}'; {hint}"
    if error.schema is False:
        return f"{place}: {_shortened(json.dumps(error.instance))} does not belong here; remove it"
    remedy, example = error.schema.get("description"), error.schema.get("examples")
    message = f"{place}: {_shortened(error.message)}"
    if remedy:
        message += f"; expected {remedy}"
    if example:
        message += f", for example {json.dumps(example[0])}"
    return message


def _shortened(words: str) -> str:
    """Words on one line, without their middle if they are long."""
    words = " ".join(words.split())
    return words if len(words) <= MOST_SHOWN else f"{words[: MOST_SHOWN // 2]} ... {words[-MOST_SHOWN // 2 :]}"
