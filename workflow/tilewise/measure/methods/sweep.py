"""The method `sweep`: every point of the task, verified and timed."""

from collections.abc import Mapping
from typing import Any

from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import Work, measure_task


class Sweep(Method):
    """Its facts are how long the task took."""

    name = "sweep"

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return config["timing"]["repeats"] if backend == "gpu" else None

    def run(self, work: Work) -> Tables:
        return measure_task(work)
