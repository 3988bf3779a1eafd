"""Tables and figures for sections, by name, in addition to those of tasks; each is made for a `render.Page`."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pandas as pd

from tilewise.explain import (
    accuracy,
    blocks,
    bottleneck,
    by_size,
    climb,
    duels,
    grades,
    languages,
    profiles,
    provenance,
    sizes,
    timings,
    traffic,
    tuned,
    variability,
)
from tilewise.report import tables
from tilewise.study.status import Status


def _of_evidence(module: ModuleType, name: str) -> Callable[[Any], pd.DataFrame]:
    return lambda page: getattr(module, name)(page.evidence)


#: Functions of these names make a table of the evidence alone.
_OF_EVIDENCE = {
    blocks: ("block_shapes", "double_cost"),
    by_size: ("at_every_size", "size_ranges"),
    climb: ("tile_counts",),
    duels: ("duels",),
    languages: ("by_language",),
    grades: ("spread_of_exponents",),
    profiles: ("profiled",),
    provenance: ("cards", "company", "durations", "failures", "not_emulated", "provenance", "verification"),
    variability: ("between_runs", "cards_differ", "clocks"),
    sizes: ("beyond_naive", "probes"),
    tables: ("occupancy",),
    traffic: ("agreement", "cache_lines", "faults", "traffic"),
    tuned: ("tuning", "variants"),
}
#: The tables beside those of tasks, by the name that sections use: what is made from the evidence alone, and the rest.
TABLES: dict[str, Callable[[Any], pd.DataFrame]] = {
    **{name: _of_evidence(module, name) for module, names in _OF_EVIDENCE.items() for name in names},
    "best_of_each": lambda page: page.ladder,
    "broken_claims": lambda page: accuracy.broken_claims(tables.accuracy(page.evidence)),
    "by_card": lambda page: provenance.by_card(page.evidence.gpus),
    "causes": lambda page: provenance.causes(page.frame("failures")),
    "choices": lambda page: tables.choices(page.evidence, *page.tasks),
    "checked": lambda page: provenance.checked(page.evidence, page.frame("verification")),
    "counted": lambda page: traffic.counted_against_hardware(page.evidence).query("counted != hardware"),
    "gate": lambda page: accuracy.gate(tables.accuracy(page.evidence)),
    "grades": lambda page: grades.grades(page.evidence, page.ladder),
    "instructions": lambda page: climb.loops(page.evidence),
    "ladder": lambda page: page.ladder[page.ladder["speedup_over_naive"].notna()],
    "limited_by": lambda page: bottleneck.limits(page.evidence),
    "missing_roofs": lambda page: page.evidence.facts["bandwidth"][lambda rows: rows["status"] != Status.OK],
    "naive_blocks": lambda page: timings.largest_square(climb.climb(page.evidence, "task1a")),
    "pairs": lambda page: provenance.pairs(page.compared, page.both),
    "platforms": lambda page: page.compared[page.compared["changed"]],
    "rungs": lambda page: page.rungs(),
    "rungs_double": lambda page: page.rungs("ladder_double"),
    "verdicts": lambda page: page.verdicts,
}
#: The figures of the whole study, functions of figures.py; each is a file of each platform. Nothing here draws, because
#: a run needs their names at its start.
STUDY_FIGURES = ("climb", "peak", "accuracy_and_rate", "roofline", "rungs", "instructions", "cache_lines")
#: The figures beside those of tasks and of the whole study: for each the arguments of `figures.draw`.
FIGURES: dict[str, Callable[[Any], tuple]] = {
    "climb_of_ladder": lambda page: ("climb", page.evidence.select_tasks(climb.CLIMB)),
    "rungs_double": lambda page: ("rungs", page.evidence, page.rungs("ladder_double")),
    "rate_over_size": lambda page: ("rate_over_size", page.evidence),
    "shape_map": lambda page: ("shape_map", page.evidence),
    "spread_of_exponents": lambda page: ("spread_of_exponents", page.evidence),
    "tuning": lambda page: ("tune", page.evidence),
}
#: Names of layouts that are not those of their tables.
LAYOUTS: dict[str, str] = {"provenance": "", "rungs_double": "rungs"}
