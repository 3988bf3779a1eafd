"""The rate over the size: the kernels of many products, each product a brief duel.

The rows are a separate table, because the study's answers come from duels with more turns and a load.
"""

from collections.abc import Mapping
from typing import Any

from tilewise.measure.journal import Journal
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import BRIEF_DUEL, Work, run_in_turns
from tilewise.study import columns
from tilewise.study.status import NOT_BUILT
from tilewise.study.sweeps import Reading


class Sizes(Method):
    """Its facts have a row per point; measurements.csv gets none. On the emulator, where nothing is timed, none too."""

    name = "sizes"
    reading = Reading(emulators_shapes=False, on_emulator=False)
    points_per_point = 0.25

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return config["duel"] | BRIEF_DUEL if backend == "gpu" else None

    def run(self, work: Work) -> Tables:
        """Facts: a row per point."""
        jobs = work.jobs()
        built = [job for job in jobs if job.row["status"] not in NOT_BUILT]
        with Journal(work.journal) as remembered:
            found, _ = run_in_turns(built, work.briefly(), remembered)
        rows = [found.get(job.key, job.row) for job in jobs]
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name, work.parameters)
