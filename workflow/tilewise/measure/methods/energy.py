"""Measure the energy of a product: the board's counter over seconds of repeated launches.

The counter adds up what the whole board takes, in mJ, and moves some ten times per second, hence the seconds. Before it
is read, the product has run for a while, so that clocks and power are those of steady work. The L2 cache is not flushed
between products, and the rate is that of the whole time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewise import UserError
from tilewise.measure.backends import Setting, open_backend
from tilewise.measure.methods.base import Method, Tables
from tilewise.measure.task import Work
from tilewise.study import columns
from tilewise.study.jobs import Row
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.status import Status
from tilewise.study.sweeps import Reading

#: Seconds before the counter is read, and between two looks at the clock.
WARM_UP_S, BATCH_S = 0.5, 0.05


class Energy(Method):
    """Nothing else is timed, so measurements.csv gets no row; on the emulator a row says that it has no energy."""

    name = "energy"
    reading = Reading(emulators_shapes=False)
    points_per_point = 3

    def settings(self, config: Mapping[str, Any], backend: str) -> Any:
        return config["energy"]

    def check(self, points: Sequence[Point], kernels: Mapping[str, Kernel], place: str) -> None:
        """Raise UserError for kernels that run on the CPU, too."""
        super().check(points, kernels, place)
        for point in points:
            if not kernels[point.kernel].on_gpu:
                raise UserError(f"{place}: {point.kernel} runs on the CPU; energy is for what runs on the GPU")

    def run(self, work: Work) -> Tables:
        """Facts: a row per point."""
        emulated = {"status": Status.NOT_TIMED, "message": "emulated: takes no energy of a GPU"}
        rows = _measured(work) if work.device.backend == "gpu" else [job.row | emulated for job in work.jobs()]
        return columns.frame([], "measurements", work.parameters), columns.frame(rows, self.name, work.parameters)


def _measured(work: Work) -> list[Row]:
    def used(point: Point, launch: Callable, wait: Callable, counter_mj: Callable) -> Row:
        return columns_of(point, *repeat_launches(launch, wait, counter_mj, work.config["energy"]["seconds"]))

    backend = open_backend("cuda", Setting(work.device, work.config, work.samples))
    return backend.energy(work.jobs(), used)


def repeat_launches(
    launch: Callable[[], Any],
    wait: Callable[[], Any],
    counter_mj: Callable[[], int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[int, float, float]:
    """Launch a product repeatedly for `seconds`; returns (products, seconds, joules).

    `wait` returns when what was launched is done, `counter_mj` returns the energy used since some time in the past.
    """

    def batch(count: int) -> float:
        start = clock()
        for _ in range(count):
            launch()
        wait()
        return clock() - start

    count, products = 1, 0
    while batch(count) < BATCH_S:
        count *= 2
    begin = clock()
    while clock() - begin < WARM_UP_S:
        batch(count)
    before, begin = counter_mj(), clock()
    while clock() - begin < seconds:
        batch(count)
        products += count
    elapsed = clock() - begin
    return products, elapsed, (counter_mj() - before) / 1000


def columns_of(point: Point, products: int, seconds: float, joules: float) -> Row:
    """The columns that follow from what `repeat_launches` returns."""
    operations = 2e-9 * point.multiply_adds * products
    return {
        "counted_products": products,
        "energy_s": seconds,
        "joules": joules,
        "joules_per_product": joules / products,
        "watts": joules / seconds,
        "gflops": operations / seconds,
        "gflop_per_joule": operations / joules if joules else None,
    }
