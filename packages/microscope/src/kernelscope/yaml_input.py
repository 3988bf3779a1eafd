"""Read YAML strictly and hold it against a JSON schema; messages name the place and the remedy."""

import difflib
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from kernelscope.errors import UserError
from kernelscope.files import read_text

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
            found = super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            kind = node.tag.rpartition(":")[2]
            raise _error(f"a malformed value of type {kind}: {error}", node) from None
        if isinstance(found, int | float) and _OTHER_BASE.match(node.value):
            raise _error(f"{node.value} is {found} in YAML; leave out leading zeros and colons, or use quotes", node)
        return found


#: A number that YAML 1.1 reads as octal, or by minutes and seconds.
_OTHER_BASE = re.compile(r"[-+]?0[0-9_]|.*:")


def _error(problem: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)


def read_yaml(path: Path | str) -> Any:
    """Read a YAML file.

    Raises UserError with one line if it cannot be read: `path:line: what is wrong; what to look for`.
    """
    return parse_yaml(read_text(path), path)


def parse_yaml(text: str, path: Path | str) -> Any:
    """What YAML says. Raises UserError as `read_yaml` does."""
    try:
        _check_tabs(text)
        _check_extent(text, path)
        return yaml.load(text, _Strict)
    except yaml.MarkedYAMLError as error:
        place = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else path
        said = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        raise UserError(f"{place}: {said}; look at keys, indentation, brackets and quotes there and before") from None
    except yaml.reader.ReaderError as error:  # libyaml's position counts bytes
        line = text.encode()[: error.position].count(b"\n") + 1
        raise UserError(f"{path}:{line}: it has control characters; remove them, or restore the file") from None


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


def check(data: Any, schema: Mapping[str, Any], source: Path | str | Callable[[str], str]) -> None:
    """Check `data` against a JSON schema; `source` is its file, or the file of each place in it.

    Raises UserError with one line for the first mistake: `source: key.path: what is wrong; what would be right`.
    """
    wrong = next(_foreign(data), None)
    if wrong is None:
        error = jsonschema.exceptions.best_match(_Validator(schema).iter_errors(data))
        if error is None:
            return
        wrong = _place(error), _explain(error, schema)
    place, words = wrong
    raise UserError(f"{source(place) if callable(source) else source}: {words}")


def _foreign(data: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """What a schema does not see, with its place: numbers that are not finite, and what YAML has but JSON lacks."""
    where = place or "top level"
    if isinstance(data, Mapping):
        for key, value in data.items():
            if not isinstance(key, str):
                yield place, f"{where}: the key {key} is not text; put it into quotes"
            yield from _foreign(value, f"{place}.{key}".strip("."))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _foreign(value, f"{place}.{number}".strip("."))
    elif isinstance(data, float) and not math.isfinite(data):
        yield place, f"{where} is not a finite number; write one, for example 10"
    elif not isinstance(data, str | int | float | None):
        yield place, f"{where}: {data} is of type {type(data).__name__}; if it is text, put it into quotes"


def suggest_name(value: str, known: Iterable[str], otherwise: str = "") -> str:
    """Words that lead from a name that is not known to one that is; if none is near, all of them, or `otherwise`."""
    known = list(known)
    near = difflib.get_close_matches(value, known, n=1)
    return f"did you mean '{near[0]}'?" if near else otherwise or f"there are {', '.join(known)}"


def _place(error: jsonschema.ValidationError) -> str:
    """Where a mistake is, down to a key that is not known."""
    parts = [str(part) for part in error.absolute_path]
    return ".".join(parts + _unknown(error)[:1])


def _unknown(error: jsonschema.ValidationError) -> list[str]:
    """The keys that a schema does not have, if they are the mistake."""
    extra = error.validator == "additionalProperties" and error.schema["additionalProperties"] is False
    return sorted(set(error.instance) - set(error.schema.get("properties", {}))) if extra else []


def _explain(error: jsonschema.ValidationError, whole: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    if extra := _unknown(error):
        allowed = error.schema.get("properties", {})
        hint = suggest_name(extra[0], allowed, f"it takes {', '.join(sorted(allowed))}")
        return f"{place}: unknown key '{extra[0]}'; {hint}"
    if error.schema is False:
        return f"{place}: {_shortened(json.dumps(error.instance))} does not belong here; remove it"
    said = _said(error, whole)
    remedy, example = said.get("description"), said.get("examples")
    wrong = error.message
    if remedy and error.validator in ("anyOf", "const", "not", "oneOf", "pattern"):  # whose messages quote the schema
        name = "the name " * ("propertyNames" in error.absolute_schema_path)
        value = repr(error.instance)
        wrong = f"{name}{value if len(value) <= 80 else f'{value[:60]}...'} is not right"
    message = f"{place}: {_shortened(wrong)}"
    if remedy:
        message += f"; expected {remedy}"
    if example:
        message += f", for example {json.dumps(example[0])}"
    return message


def _said(error: jsonschema.ValidationError, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema says of a wrong value: its own description, or else that of the innermost schema of the value."""
    if "description" in error.schema:
        return error.schema
    said, part, steps = error.schema, whole, iter(error.absolute_schema_path)
    for step in steps:
        while isinstance(part, Mapping) and step not in part:  # the path leaves references out
            part = _referred(whole, part["$ref"])
            said = part if "description" in part else said
        part = part[step]
        if step in ("properties", "patternProperties"):
            part = part[next(steps)]
        if step in ("properties", "patternProperties", "additionalProperties", "items", "propertyNames"):
            said = error.schema  # a schema of another value begins
        if isinstance(part, Mapping) and "description" in part:
            said = part
    return said


def _referred(whole: Mapping[str, Any], pointer: str) -> Any:
    """The part of a schema that a pointer such as #/$defs/names leads to."""
    return functools.reduce(lambda part, key: part[key], pointer.removeprefix("#/").split("/"), whole)


def _shortened(words: str) -> str:
    """Words on one line, without their middle if they are long."""
    words = " ".join(words.split())
    return words if len(words) <= MOST_SHOWN else f"{words[: MOST_SHOWN // 2]} ... {words[-MOST_SHOWN // 2 :]}"
