"""The method `sweep`: every point of the task, verified and timed."""

from collections.abc import Mapping
from typing import Any

from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import Work, measure_in_turns, measure_task


class Sweep(Method):
    """Its facts are how long the task took."""

    name = "sweep"

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        timing = config["timing"]
        return [timing["repeats"], timing["agree_percent"]] if backend == "gpu" else None

    def run(self, work: Work) -> Tables:
        in_turns = work.config["tasks"][work.task].get("in_turns") and work.device.backend == "gpu"
        return measure_in_turns(work) if in_turns else measure_task(work)
