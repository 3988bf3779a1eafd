"""The tables and figures beside those of tasks, by the names that sections use; each is made for a `render.Page`."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from tilewise.evidence import Evidence
from tilewise.explain import (
    accuracy,
    blocks,
    bottleneck,
    climb,
    profiles,
    runs,
    scatter,
    sizes,
    timings,
    traffic,
    tuned,
)
from tilewise.report import claims, figures, tables
from tilewise.study.status import Status


def _differing(counted: pd.DataFrame) -> pd.DataFrame:
    return counted[counted["counted"] != counted["hardware"]]


#: The tables beside those of tasks, by the name that sections use.
TABLES: dict[str, Callable[[Any], pd.DataFrame]] = {
    "agreement": lambda page: traffic.agreement(page.evidence),
    "cache_lines": lambda page: traffic.cache_lines(page.evidence),
    "cards": lambda page: runs.cards(page.evidence),
    "batched": lambda page: timings.batched(page.evidence),
    "block_shapes": lambda page: blocks.block_shapes(page.evidence),
    "choices": lambda page: tables.choices(page.evidence, *page.tasks),
    "counted": lambda page: _differing(traffic.counted_against_hardware(page.evidence)),
    "double_cost": lambda page: blocks.double_cost(page.evidence),
    "durations": lambda page: runs.durations(page.evidence),
    "failures": lambda page: runs.failures(page.evidence),
    "fastest": lambda page: pd.concat(
        [climb.fastest(page.rungs(task)) for task in (climb.CLIMB, "ladder_double")], ignore_index=True
    ),
    "few_blocks": lambda page: blocks.few_blocks(page.evidence),
    "instructions": lambda page: climb.loops(page.evidence),
    "ladder": lambda page: page.ladder[page.ladder["speedup_over_naive"].notna()],
    "limited_by": lambda page: bottleneck.limits(page.evidence),
    "not_emulated": lambda page: runs.not_emulated(page.evidence),
    "occupancy": lambda page: tables.occupancy(page.evidence),
    "parts": lambda page: runs.parts(page.evidence),
    "platforms": lambda page: page.compared[page.compared["changed"]],
    "profiled": lambda page: profiles.profiled(page.evidence),
    "provenance": lambda page: runs.provenance(page.evidence),
    "reasons": lambda page: climb.reasons(page.rungs()),
    "rungs": lambda page: page.rungs(),
    "rungs_double": lambda page: page.rungs("ladder_double"),
    "spilling_tiles": lambda page: climb.spilling(page.frame("tile_counts")),
    "tile_counts": lambda page: climb.tile_counts(page.evidence),
    "traffic": lambda page: traffic.traffic(page.evidence),
    "tuning": lambda page: tuned.tuning(page.evidence),
    "best_of_each": lambda page: page.ladder,
    "verification": lambda page: runs.verification(page.evidence),
    # Of sentences only:
    "between_runs": lambda page: scatter.between_runs(page.evidence),
    "beyond_naive": lambda page: sizes.beyond_naive(page.evidence),
    "broken_claims": lambda page: accuracy.broken_claims(tables.accuracy(page.evidence)),
    "causes": lambda page: runs.causes(page.frame("failures")),
    "checked": lambda page: runs.checked(page.evidence, page.frame("verification")),
    "clocks": lambda page: scatter.clocks(page.evidence),
    "company": lambda page: runs.company(page.evidence),
    "edges": lambda page: timings.edges(page.evidence),
    "faults": lambda page: traffic.faults(page.evidence),
    "gate": lambda page: accuracy.gate(tables.accuracy(page.evidence)),
    "joules": lambda page: _with_anchors(tables.energy(page.evidence), page.evidence),
    "longer_with_lines": lambda page: traffic.longer_with_lines(page.frame("cache_lines")),
    "missing_roofs": lambda page: page.frame("roofs")[lambda rows: rows["status"] != Status.OK],
    "models": lambda page: runs.models(page.frame("cards"), page.evidence),
    "naive_blocks": lambda page: timings.largest_square(climb.climb(page.evidence, "task1a")),
    "pairs": lambda page: runs.pairs(page.compared, page.both),
    "probes": lambda page: sizes.probes(page.evidence),
    "roofs": lambda page: tables.bandwidth(page.evidence.of("bandwidth")),
    "squares": lambda page: timings.squares(page.ladder, page.evidence),
    "tally": lambda page: claims.tally(page.verdicts),
    "tuned": lambda page: tuned.tuned(page.frame("tuning")),
    "verdicts": lambda page: page.verdicts,
}
#: The figures beside those of tasks and of `figures.OVERVIEW`.
FIGURES: dict[str, Callable[[Any], Any]] = {
    "platforms": lambda page: figures.draw("platforms", page.both),
    "rungs_double": lambda page: figures.rungs(page.rungs("ladder_double"), page.evidence),
    "rungs_on_both": lambda page: figures.rungs(climb.rungs(climb.climb(page.both, climb.CLIMB), page.both), page.both),
    "tuning": lambda page: figures.draw("tune", page.evidence),
}


def _with_anchors(rows: pd.DataFrame, evidence: Evidence) -> pd.DataFrame:
    return rows.assign(anchor=rows["kernel"].isin(evidence.libraries))


#: Names of layouts that are not those of their tables.
LAYOUTS: dict[str, str] = {"provenance": ""}
#: Of a table or figure, the tasks and files that it shows, if its name is not one.
TASKS: dict[str, tuple[str, ...]] = {
    "rungs": (climb.CLIMB,),
    "past_the_peak": (climb.CLIMB, "float_accuracy"),
    "tuning": ("tune",),
    "profiled": ("counters",),
}
#: The figures of the best of every kernel, in all tasks.
OF_THE_LADDER = {"accuracy_and_rate", "peak", "speedup"}
