"""The method `sweep`: every point of the task, verified and timed."""

from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import Work, measure_task


class Sweep(Method):
    """Its facts are how long the task took."""

    name = "sweep"

    def run(self, work: Work) -> Tables:
        """As Method says."""
        return measure_task(work)
