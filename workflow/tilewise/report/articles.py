"""Articles on the recorded runs: the story, and the answers to source a's assignment.

Each is a text in report/, written once and alike for all readers. The YAML file beside it names its numbers, each
an expression over one recorded run, and lists what the words take for granted. If the record no longer agrees, a note
replaces the article until the sentence is rewritten.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, UserError
from tilewise.evidence import Evidence
from tilewise.explain.quantities import Choice, Machine, Spread, Untestable, fitting
from tilewise.report import tables
from tilewise.study.expressions import evaluate

FOLDER = ROOT / "report"
STORY, ASSIGNMENT = FOLDER / "story.md", FOLDER / "assignment.md"


def runs(article: Path = STORY) -> list[str]:
    """The names of the recorded runs that an article is about, the main one first."""
    return list(read_yaml(article.with_suffix(".yaml"))["runs"])


def fill(recorded: Mapping[str, Evidence], article: Path) -> dict[str, Any]:
    """The numbers of an article by name, from the evidence of each of `runs`.

    Raises UserError if a number is not in the record, or if a condition of `holds` is false.
    """
    place = article.with_suffix(".yaml")
    listed, found = read_yaml(place), dict[str, Any]()
    for run, expressions in listed["runs"].items():
        own = recorded[run]

        def row(name: str, column: str, own: Evidence = own, **where: Any) -> Any:
            known = fitting(tables.frame(name, own), where)[column].dropna()
            if known.empty:
                raise Untestable(f"no {column} in {name}: {where}")
            return known.iloc[-1]

        functions = Machine(own, own.gpus[0]).functions() | {"row": row}
        for name, expression in expressions.items():
            try:
                value = evaluate(expression, functions | found)
            except Untestable as missing:
                raise UserError(f"{place}: {name}: the record of {run} does not have it: {missing}") from None
            value = value.words if isinstance(value, Choice) else value
            found[name] = value.value if isinstance(value, Spread) else value
    for condition in listed["holds"]:
        if not evaluate(condition, found):
            named = [name for name in dict.fromkeys(re.findall(r"\w+", condition)) if name in found]
            values = (found[name] for name in named)
            said = ", ".join(
                f"{name} is {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in zip(named, values)
            )
            where = article.relative_to(ROOT) if article.is_relative_to(ROOT) else article
            raise UserError(f"{place}: `{condition}` no longer holds ({said}); rewrite what {where} says of it")
    return found
