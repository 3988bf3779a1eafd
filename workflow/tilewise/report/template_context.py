"""Tables and figures for sections, by name, in addition to those of tasks."""

from collections.abc import Callable

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import (
    by_size,
    climb,
    duels,
    grades,
    languages,
    provenance,
    timings,
    traffic,
    tuned,
)
from tilewise.report import tables

#: Functions that make a table of the evidence, which has their name; so do those of tables.OVERVIEW.
_OF_EVIDENCE: tuple[Callable[[Evidence], pd.DataFrame], ...] = (
    *(by_size.at_every_size, by_size.size_ranges, duels.duels, languages.by_language, grades.spread_of_exponents),
    *(provenance.not_emulated, provenance.cards_differ, provenance.checks),
    *(traffic.agreement, traffic.faults, tuned.tuning),
)
#: The tables beside those of tasks, by the name that sections use.
TABLES: dict[str, Callable[[Evidence], pd.DataFrame]] = {
    **tables.OVERVIEW,
    **{make.__name__: make for make in _OF_EVIDENCE},
    "counted": lambda evidence: traffic.counted_against_hardware(evidence).query("counted != hardware"),
    "gate": lambda evidence: grades.gate(tables.accuracy(evidence)),
    "naive_blocks": lambda evidence: timings.largest_square(climb.climb(evidence, "task1a")),
    "tile_counts": lambda evidence: timings.largest_square(climb.climb(evidence, "task3")),
    "rungs_double": tables.rungs_double,
}
#: The figures of the whole study, functions of figures.py; each is a file of each platform. Nothing here draws, because
#: a run needs their names at its start.
STUDY_FIGURES = ("accuracy_and_rate", "roofline", "rungs")
#: The figures beside those of tasks and of the whole study.
FIGURES = ("climb", "rungs_double", "rate_over_size", "shape_map", "spread_of_exponents")
#: Names of layouts that are not those of their tables.
LAYOUTS: dict[str, str] = dict.fromkeys(("checks", "faults", "gate", "provenance"), "")
LAYOUTS |= {"rungs_double": "rungs"}
