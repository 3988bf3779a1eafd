"""Articles on the recorded runs: the story, and the answers to source a's assignment.

Each is a text in report/, written once and alike for all readers. The YAML file beside it names its numbers, each
an expression over one recorded run, and lists what the words take for granted. If the record no longer agrees, a note
replaces the article until the sentence is rewritten.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.yaml_input import read_yaml
from tilewise import ROOT, UserError
from tilewise.explain.number_format import rounded
from tilewise.explain.quantities import Choice, Machine, Spread, Untestable, fitting
from tilewise.report.sections import percent, times
from tilewise.study.expressions import evaluate

FOLDER = ROOT / "report"
STORY, ASSIGNMENT = FOLDER / "story.md", FOLDER / "assignment.md"


def runs(article: Path = STORY) -> list[str]:
    """The names of the recorded runs that an article is about, the main one first."""
    return list(read_yaml(article.with_suffix(".yaml"))["runs"])


def fill(pages: Mapping[str, Any], article: Path) -> dict[str, Any]:
    """The numbers of an article by name, from a `page.Page` of each of `runs`.

    Raises UserError if a number is not in the record, or if a condition of `holds` is false.
    """
    place = article.with_suffix(".yaml")
    listed, found = read_yaml(place), dict[str, Any]()
    for run, expressions in listed["runs"].items():
        own = pages[run]

        def row(name: str, column: str, own: Any = own, **where: Any) -> Any:
            known = fitting(own.frame(name), where)[column].dropna()
            if known.empty:
                raise Untestable(f"no {column} in {name}: {where}")
            return known.iloc[-1]

        functions = Machine(own.evidence, own.evidence.gpus[0]).functions() | {"row": row}
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


def box(rungs: pd.DataFrame, kernel: str) -> list[tuple[str, str]]:
    """The numbers of a rung in float, as (term, words in Markdown): its bound, its rate, its stalls and its counts."""
    this = rungs[(rungs["kernel"] == kernel) & (rungs["dtype"] == "float")].iloc[0]
    found, bound = [], f"{rounded(this['bound_gflops'] / 1000)}\u00a0TFLOP/s"
    bound += f", limited by {this['limited_by']}" if this["limit_percent"] > 0 else ""
    counted, known = pd.notna(this["executed_each"]), this["gflops"] <= 1.02 * this["bound_gflops"]
    if known and counted:
        gain = f"; {times(this['bound_gain'])} that of `{this['before']}`" if pd.notna(this["bound_gain"]) else ""
        found.append(("Upper bound", bound + gain))
    found.append(("Measured", _rate(rungs, this)))
    if pd.notna(this["top_wait_each"]):
        each = rounded(this["top_wait_each"])
        found.append(("Top stall, counted by ncu", f"warps wait {this['top_wait']}: {each} per issued instruction"))
    if known and not counted:  # ncu profiled another variant
        found.append(("Upper bound", f"{bound}; not profiled"))
    counts = {"requests": "accesses_per_100", "passes": "wavefronts_per_100", "other instructions": "others_per_100"}
    said = [f"{rounded(this[column])} {words}" for words, column in counts.items() if this[column] > 0]
    return [*found, ("Per 100 multiply-adds", ", ".join(said))]


def _rate(rungs: pd.DataFrame, this: pd.Series) -> str:
    """The rate of a rung, compared with the fastest rung before it and the library."""
    words = f"**{rounded(this['gflops'] / 1000)}\u00a0TFLOP/s**"
    if this["before"] and this["as_fast"]:
        words += f", as fast as `{this['before']}`: their runs overlap"
    elif this["before"]:
        same = (rungs[["platform", "dtype"]] == this[["platform", "dtype"]]).all(axis=1)
        before = rungs[same & (rungs["kernel"] == this["before"])].iloc[0]
        block = f" with blocks of {before['choice']}" if "×" in before["choice"] else ""
        words += f", {times(this['gain'])} the rate of `{before['kernel']}`{block}"
    if pd.notna(this["percent_of_anchor"]):
        words += f", {percent(this['percent_of_anchor'])} of cuBLAS"
    return words
