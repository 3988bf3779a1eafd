"""Measure the overhead in isolated times: an empty kernel of one thread, timed as in sweeps.

Host, driver and card decide how long a launch and its two events take, so two machines with the same card differ by
microseconds in every isolated time.
"""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewise.compile.build import build
from tilewise.measure import job
from tilewise.measure.methods import bandwidth
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.row_summary import row_summary
from tilewise.measure.task import Work, run_jobs
from tilewise.study import columns, registry
from tilewise.study.jobs import Row
from tilewise.study.points import point

LOG = logging.getLogger(__name__)
KERNEL = "empty"
#: Entries of the config's `timing` by which NVBench stops.
STOPS = ("min_samples", "min_time_s", "max_noise_percent", "timeout_s")


class Overhead(Method):
    """No product is made: measurements.csv gets no row. The facts are one row, on the emulator none."""

    name = "overhead"

    def sources(self) -> list[Path]:
        return [bandwidth.PROBES / "registry.yaml", *registry.load(bandwidth.PROBES)[KERNEL].files]

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return [config["timing"][name] for name in STOPS] if backend == "gpu" else None

    def run(self, work: Work) -> Tables:
        rows = [_measured(work)] if work.device.backend == "gpu" else []
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name)


def _measured(work: Work) -> Row:
    kernel, at = registry.load(bandwidth.PROBES)[KERNEL], point(work.task, KERNEL, "float", 1, 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        builds = build({KERNEL: kernel.plan(at).instances}, {KERNEL: kernel}, work.device, folder)
        empty = job.prepare(at, kernel, builds, work.device, work.config)
        row = empty.row
        if empty.files:
            [(_, row)] = run_jobs([empty], work.device, work.config, work.samples, "overhead")
    LOG.info("1/1 %s: %s", at.label(), row_summary(row))
    time_ms = row.get("time_ms")
    return row | {"overhead_us": None if time_ms is None else 1000 * time_ms}
