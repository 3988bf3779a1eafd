"""Tables and figures for sections, by name, in addition to those of tasks; each is made for a `render.Page`."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import (
    accuracy,
    by_size,
    climb,
    duels,
    grades,
    languages,
    provenance,
    sizes,
    timings,
    traffic,
    tuned,
    variability,
)
from tilewise.report import tables


def _made_by(make: Callable[[Evidence], pd.DataFrame]) -> Callable[[Any], pd.DataFrame]:
    return lambda page: make(page.evidence)


def _of(module: ModuleType, name: str) -> Callable[[Any], pd.DataFrame]:
    return lambda page: getattr(module, name)(page.evidence)


#: Functions of these names make a table of the evidence alone; so do those of tables.OVERVIEW.
_OF_EVIDENCE = {
    by_size: ("at_every_size", "size_ranges"),
    duels: ("duels",),
    languages: ("by_language",),
    grades: ("spread_of_exponents",),
    provenance: ("cards", "not_emulated"),
    variability: ("cards_differ", "checks"),
    sizes: ("probes",),
    traffic: ("agreement", "faults"),
    tuned: ("tuning", "variants"),
}
#: The tables beside those of tasks, by the name that sections use.
TABLES: dict[str, Callable[[Any], pd.DataFrame]] = {
    **{name: _made_by(make) for name, make in tables.OVERVIEW.items()},
    **{name: _of(module, name) for module, names in _OF_EVIDENCE.items() for name in names},
    "counted": lambda page: page.frame("counted_against_hardware").query("counted != hardware"),
    "gate": lambda page: accuracy.gate(tables.accuracy(page.evidence)),
    "instructions": lambda page: climb.loops(page.evidence),
    "naive_blocks": lambda page: timings.largest_square(climb.climb(page.evidence, "task1a")),
    "tile_counts": lambda page: timings.largest_square(climb.climb(page.evidence, "task3")),
    "rungs_double": lambda page: climb.rungs(climb.climb(page.evidence, "ladder_double"), page.evidence),
}
#: The figures of the whole study, functions of figures.py; each is a file of each platform. Nothing here draws, because
#: a run needs their names at its start.
STUDY_FIGURES = ("accuracy_and_rate", "roofline", "rungs", "cache_lines")
#: The figures beside those of tasks and of the whole study: for each the arguments of `figures.draw`.
FIGURES: dict[str, Callable[[Any], tuple]] = {
    "climb": lambda page: ("climb", page.evidence),
    "rungs_double": lambda page: ("rungs", page.evidence, page.frame("rungs_double")),
    "rate_over_size": lambda page: ("rate_over_size", page.evidence),
    "shape_map": lambda page: ("shape_map", page.evidence),
    "spread_of_exponents": lambda page: ("spread_of_exponents", page.evidence),
}
#: Names of layouts that are not those of their tables.
LAYOUTS: dict[str, str] = dict.fromkeys(("checks", "faults", "gate", "provenance"), "")
LAYOUTS |= {"rungs_double": "rungs"}
