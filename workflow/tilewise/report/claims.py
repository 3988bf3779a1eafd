"""The claims of the sources, each tested on the measured tables; `Verdict` lists how that can end.

report/claims.yaml holds them. A claim's `quantity` is an expression that uses the functions of `Machine`; its
`holds_when` is a condition on `value` and `published`. A measured quantity is an interval, the range of the runs of its
points, and arithmetic works on intervals. A claim with several cases, such as the shapes of a table, has a verdict for
each and one for all of them.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from kernelscope.yaml_input import read_yaml, suggest_name
from tilewise import UserError
from tilewise.evidence import CLAIMS, Evidence
from tilewise.explain.number_format import rounded
from tilewise.explain.quantities import FEWEST_SAMPLES, NEARLY, Choice, Machine, Spread, Untestable
from tilewise.report import notes
from tilewise.study.expressions import evaluate as evaluate_expression
from tilewise.study.expressions import keywords
from tilewise.study.precision import PRECISIONS
from tilewise.study.schema import validate


class Verdict(StrEnum):
    """The verdict on a claim, the best first."""

    HOLDS = "holds"
    ARITHMETIC = "true by arithmetic"
    AS_GOOD = "as good as"
    DIFFERS = "differs"
    FAILS = "does not hold"
    UNTESTED = "cannot be tested"
    BROKEN = "cannot be made"

    @classmethod
    def of_all(cls, verdicts: Iterable["Verdict"]) -> "Verdict":
        """The verdict on a claim from those on its cases: the least favourable of those that could be tested."""
        found = set(verdicts)
        return max(found - {cls.UNTESTED} or found, key=list(cls).index)


def load(path: Path | str = CLAIMS) -> list[dict[str, Any]]:
    """The claims of a YAML file as dicts. Raises UserError if an entry is malformed or an id occurs twice."""
    claims = read_yaml(path)
    validate(claims, "claims", path)
    names = [claim["id"] for claim in claims]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"{path}: the id '{min(twice)}' occurs twice; each claim needs its own")
    return claims


def cases(claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases of a claim, each a claim with every key; a claim without cases is its only one, which has no words."""
    unsaid: dict[str, Any] = {"published": None, "arithmetic": False, "names": {}}
    unsaid |= dict.fromkeys(("unit", "quote", "error", "card", "case"), "")
    return [{**unsaid, **claim, **case} for case in claim.get("cases", [{}])]


def evaluate(claim: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The verdict on one of the `cases` of a claim on one Machine, a dict: verdict, value, low, high, known, reason.

    `known` says whether low and high are known. `reason` says what is missing for an untestable claim, and warns if the
    verdict depends on the spread. Raises UserError if an expression cannot be evaluated, for example because it names a
    column that does not exist.
    """
    try:
        found = _calculate(claim, "quantity", machine.functions() | claim["names"])
    except Untestable as missing:
        return _unknown | {"reason": str(missing)}
    if not isinstance(found, Spread | Choice):
        found = Spread(float(found), float(found), float(found))
    answers = [_holds(claim, value) for value in found.values(claim["published"], 0)]
    verdict, reason = Verdict.HOLDS, ""
    if len(set(answers)) > 1:
        verdict, reason = Verdict.AS_GOOD, "depends on a difference smaller than the range of the runs"
    elif answers[0] and claim["arithmetic"]:
        verdict = Verdict.ARITHMETIC
    elif not answers[0] and any(_holds(claim, value) for value in found.nearly):
        verdict, reason = Verdict.AS_GOOD, f"the source's is within {100 * (NEARLY - 1):.0f}\u00a0% of it"
    elif not answers[0]:
        other_card = claim["card"] and claim["card"] not in machine.platform.device.gpu["name"]
        verdict = Verdict.DIFFERS if other_card else Verdict.FAILS
    if isinstance(found, Choice):
        return _unknown | {"verdict": verdict, "value": found.words, "reason": reason}
    if not found.known:
        reason += "; " * bool(reason) + f"from fewer than {FEWEST_SAMPLES} samples, so the range is not known"
    numbers = {"value": found.value, "low": found.low, "high": found.high, "known": found.known}
    return {"verdict": verdict, **numbers, "reason": reason}


_unknown = {"verdict": Verdict.UNTESTED, "value": None, "low": None, "high": None, "known": False}


def _holds(claim, value):
    return bool(_calculate(claim, "holds_when", {"value": value, "published": claim["published"], "abs": abs}))


def _calculate(claim, key, variables):
    try:
        return evaluate_expression(claim[key], variables)
    except Untestable:
        raise
    except UserError as error:
        raise UserError(f"report/claims.yaml: {claim['id']}.{key}: {error}") from None
    except Exception as error:
        figure, value = claim["published"], variables.get("value")
        if key == "holds_when" and isinstance(figure, str) and isinstance(value, int | float):
            words = f"'{figure}' is text, and the quantity is a number; write a number"
            raise UserError(f"report/claims.yaml: {claim['id']}.published: {words}") from None
        raise UserError(f"report/claims.yaml: {claim['id']}.{key}: '{claim[key]}': {error}") from None


def check(claims: list[dict[str, Any]], evidence: Evidence) -> None:
    """Raise UserError, with the claim's id and key, if an expression cannot be evaluated on the first platform with its
    rows, or names a kernel or an element type that does not exist."""
    known = {"kernel": evidence.kernels, "dtype": PRECISIONS}
    machines = [Machine(evidence, platform) for platform in evidence.shown_platforms]
    for case in (case for claim in claims for case in cases(claim)):
        with contextlib.suppress(SyntaxError):  # whose place the evaluation names
            for name, word in keywords(case["quantity"], case["names"]):
                if word not in known.get(name, [word]):
                    hint = suggest_name(word, known[name], "`tilewise list kernels` shows all")
                    raise UserError(f"report/claims.yaml: {case['id']}.quantity: there is no {name} '{word}'; {hint}")
        for machine in machines:
            with contextlib.suppress(Untestable):
                found = _calculate(case, "quantity", machine.functions() | case["names"])
                _holds(case, found.value if isinstance(found, Spread | Choice) else found)
                break  # every start of a run waits for this


def verdicts(claims: list[dict[str, Any]], evidence: Evidence) -> pd.DataFrame:
    """Every case of every claim on every platform: a DataFrame with one row for each, in the order of the claims.

    `verdict` is that on the case, `of_claim` that on all cases of the claim. A claim that cannot be made, such as one
    with a broken expression, has one row, whose reason is a note.
    """
    machines = [Machine(evidence, platform) for platform in evidence.shown_platforms]
    rows = []
    for claim in claims:
        for machine in machines:
            own = [case | {"platform": machine.platform.name} | _found(case, machine) for case in cases(claim)]
            of_claim = Verdict.of_all(row["verdict"] for row in own)
            if of_claim is Verdict.BROKEN:
                own = [next(row | {"case": ""} for row in own if row["verdict"] is of_claim)]
            rows += [row | {"of_claim": of_claim} for row in own]
    table = pd.DataFrame(rows).drop(columns=["names", "cases"], errors="ignore")
    for name in ("value", "published"):  # a choice is in words, for which there is a column
        words = table[name].map(lambda value: value if isinstance(value, str) else "").fillna("")
        table[name] = table[name].where(words == "")
        table[f"{name}_words"] = words
    return table.astype(dict.fromkeys(("value", "low", "high", "published"), "float64"))


def _found(case, machine):
    broken = {**_unknown, "verdict": Verdict.BROKEN}
    made = functools.partial(evaluate, case, machine)
    return notes.attempt(f"Claim: {case['id']}", made, lambda note: broken | {"reason": note})


def counts(verdicts: pd.DataFrame) -> str:
    """Counts of claims by verdict on the one platform of `verdicts`, as text."""
    found = verdicts.drop_duplicates("id")["of_claim"].value_counts()
    return ", ".join(f"{verdict} {found[verdict]}" for verdict in Verdict if verdict in found)


def side_by_side(verdicts: pd.DataFrame, evidence: Evidence) -> list[dict[str, str]]:
    """The verdicts for reading: one row per claim, with the verdict and the measured value on each platform, as text.

    Each case has its own line.
    """
    rows = []
    for name, of_claim in verdicts.groupby("id", sort=False):
        first = of_claim.iloc[0]
        quoted = f"“{first['quote']}” ({first['place']}). " if first["quote"] else f"{first['place']}: "
        error = f" In the source: {first['error']}" if first["error"] else ""
        row = {"id": name, "source": first["source"], "claim": first["claim"], "why": quoted + first["why"] + error}
        for platform in evidence.shown_platforms:
            own = of_claim[of_claim["platform"] == platform.name]
            row.setdefault("published", by_case(own, _published))
            row[f"verdict {platform.name}"] = own["of_claim"].iloc[0]
            row[f"measured {platform.name}"] = by_case(own, _measured)
        rows.append(row)
    return rows


def beside_published(row: Mapping[str, Any]) -> str:
    """What was measured of a case, and what was published."""
    published = _published(row)
    return _measured(row) + f" (published: {published})" * bool(published)


def by_case(own: pd.DataFrame, words: Callable[[Mapping[str, Any]], str], between: str = "\n") -> str:
    """The words for a claim on one platform, for each case if they differ."""
    said = [words(row) for row in own.to_dict("records")]
    return between.join(f"{case}: {each}" for case, each in zip(own["case"], said)) if len(set(said)) > 1 else said[0]


def _published(row):
    figure = row["published"]
    return row["published_words"] or ("" if pd.isna(figure) else _with_unit(f"{figure:,.10g}", row["unit"]))


def _with_unit(text, unit):
    return f"{text}{unit}" if unit == "×" else f"{text}\u00a0{unit}".rstrip("\u00a0")


def _measured(row):
    if row["verdict"] in (Verdict.UNTESTED, Verdict.BROKEN):
        return row["reason"]
    low, middle, high = (
        "" if pd.isna(row[name]) else _with_unit(rounded(row[name], row["unit"]), row["unit"])
        for name in ("low", "value", "high")
    )
    text = row["value_words"] or middle
    text = text if low == high or not row["known"] else f"{middle} ({low} to {high})"
    text += f", {row['verdict']}" if row["case"] else ""
    return f"{text}; {row['reason']}" if row["reason"] else text
