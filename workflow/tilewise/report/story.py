"""The story: an article on the recorded runs, written once, with its numbers filled from the record.

report/story.md is the text, the same for every reader. report/story.yaml names its numbers, each an expression over one
recorded run, and lists what the text takes for granted. If the record no longer agrees, a note stands in the story's
place until the sentence is written anew.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, UserError
from tilewise.explain.number_format import rounded
from tilewise.explain.quantities import Machine, Untestable
from tilewise.report import sections
from tilewise.study.expressions import evaluate

TEXT, NUMBERS = ROOT / "report" / "story.md", ROOT / "report" / "story.yaml"


def runs(numbers: Path = NUMBERS) -> list[str]:
    """The names of the recorded runs that the story is about, the main one first."""
    return list(read_yaml(numbers)["runs"])


def box(page: Any, kernel: str) -> Markup:
    """The numbers of a rung in float, on a `render.Page` of one run: its bound, its rate, its counts and its stalls."""
    rungs = page.rungs()
    row = rungs[(rungs["kernel"] == kernel) & (rungs["dtype"] == "float")].iloc[0]
    counts = {"requests": "accesses_per_100", "passes": "wavefronts_per_100", "other instructions": "others_per_100"}
    known = [f"{rounded(row[column])} {words}" for words, column in counts.items() if row[column] > 0]
    more = [("Per 100 multiply-adds", ", ".join(known))]
    if not row["bound_gflops"] > 0:  # ncu profiled another variant, so that only the machine code is known
        more.insert(0, ("Upper bound", f"{rounded(row['ceiling_gflops'] / 1000)} TFLOP/s by its instructions alone"))
    return page.steps(row, rungs, more)


def fill(pages: Mapping[str, Any], place: Path = NUMBERS) -> dict[str, Any]:
    """The numbers of the story by name, from a `render.Page` of each of `runs`.

    Raises UserError if a number is not in the record, or if a condition of `holds` is false.
    """
    listed, found = read_yaml(place), dict[str, Any]()
    for run, expressions in listed["runs"].items():
        own = pages[run]

        def row(table: str, column: str, own: Any = own, **where: Any) -> Any:
            return getattr(own.row(table, column, **where), column)

        functions = Machine(own.evidence, own.evidence.gpus[0]).functions() | {"row": row}
        for name, expression in expressions.items():
            try:
                found[name] = sections.plain_number(evaluate(expression, functions | found))
            except Untestable as missing:
                raise UserError(f"{place}: {name}: the record of {run} does not have it: {missing}") from None
    for condition in listed["holds"]:
        if not evaluate(condition, found):
            named = [name for name in dict.fromkeys(re.findall(r"\w+", condition)) if name in found]
            said = ", ".join(f"{name} is {found[name]:.4g}" for name in named)
            raise UserError(f"{place}: `{condition}` no longer holds ({said}); rewrite what report/story.md says of it")
    return found
