"""Strict validation of YAML against workflow/schemas/, with messages that name the key and the remedy."""

import difflib
import json

import jsonschema
import yaml

from tilewise import ROOT, UserError

SCHEMAS = ROOT / "workflow" / "schemas"


def validate(data, name, source):
    """Check `data` against workflow/schemas/<name>.schema.yaml.

    Raises UserError with one line for the first mistake: `source: key.path: what is wrong; what would be right`.
    """
    schema = yaml.safe_load((SCHEMAS / f"{name}.schema.yaml").read_text())
    errors = jsonschema.Draft202012Validator(schema).iter_errors(data)
    error = jsonschema.exceptions.best_match(errors)
    if error is not None:
        raise UserError(f"{source}: {_explain(error)}")


def _explain(error):
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    if error.validator == "additionalProperties":
        allowed = error.schema.get("properties", {})
        extra = sorted(set(error.instance) - set(allowed))
        near = difflib.get_close_matches(extra[0], allowed, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"it takes {', '.join(sorted(allowed))}"
        return f"{place}: unknown key '{extra[0]}'; {hint}"
    if error.schema is False:
        return f"{place}: {json.dumps(error.instance)} has no place here; remove it"
    remedy, example = error.schema.get("description"), error.schema.get("examples")
    message = f"{place}: {error.message}"
    if remedy:
        message += f"; expected {remedy}"
    if example:
        message += f", for example {json.dumps(example[0])}"
    return message
