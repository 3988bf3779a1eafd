"""The rate over the size: many products, each timed for less than a second and once.

The rows are a separate table: what a sweep times in three runs of seconds stays what the study's answers are from.
"""

from collections.abc import Mapping
from typing import Any

from tilewise.measure.journal import Journal
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import Work, by_operands, run_remembered
from tilewise.study import columns
from tilewise.study.status import NOT_BUILT
from tilewise.study.sweeps import Reading

#: What takes the place of the config's `timing`: a time of microseconds, which never settles, ends at `timeout_s`.
BRIEFLY = {"min_samples": 3, "timeout_s": 0.4}


class Sizes(Method):
    """Its facts have a row per point; measurements.csv gets none. On the emulator, where nothing is timed, none too."""

    name = "sizes"
    reading = Reading(emulators_shapes=False, on_emulator=False)
    points_per_point = 0.4

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return BRIEFLY

    def run(self, work: Work) -> Tables:
        """Facts: a row per point."""
        timing = work.config["timing"] | BRIEFLY
        work = work._replace(config={**work.config, "timing": timing})
        jobs = work.jobs()
        built = sorted((job for job in jobs if job.row["status"] not in NOT_BUILT), key=by_operands)
        with Journal(work.journal) as remembered:
            found = run_remembered(built, work, remembered)
        rows = [found.get(job.key, job.row) for job in jobs]
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name, work.parameters)
