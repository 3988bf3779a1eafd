"""Base class of methods. A method turns the points of a task into rows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.sweeps import PLAINLY, refuse_too_many_threads

if TYPE_CHECKING:
    from tilewise.measure.task import Work

Tables = tuple[pd.DataFrame, pd.DataFrame]


class Method:
    """A method by its name in the config. A new one is a file here, a line in METHODS, a name in the config's schema, a
    list of columns for its facts in study/columns.yaml, and a table and a figure in the report.

    reading            how it reads its sweeps
    on_request         whether its tasks run only if they are named on the command line
    points_per_point   approximate cost of one point, in sweep points
    times_host         whether it reads the host's clock, so that nothing else may run on the machine meanwhile
    """

    name = ""
    reading = PLAINLY
    on_request = False
    times_host = False
    points_per_point: float = 1

    def sources(self) -> list[Path]:
        """Files that it measures with, in addition to the kernels of the task."""
        return []

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        """Config values on which its rows depend, in addition to those of every point, on such a backend."""
        return None

    def entry_conditions(self, kernel: Kernel) -> Any:
        """Values of a kernel's entry on which its rows depend, in addition to how the kernel runs."""
        return None

    def launched(self, point: Point, kernel: Kernel) -> Iterable[Point]:
        """The products for which it launches the kernel of a point, and which decide what is built: the point's own."""
        return (point,)

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError, which names the place in the config, for points that it cannot serve."""
        refuse_too_many_threads(points, kernels, place)

    def run(self, work: "Work") -> Tables:
        """Returns (measurements, facts): rows of measurements.csv, and rows of columns.FILES[name]."""
        raise NotImplementedError
