"""Time the kernels of a case in turns: alone, then under load.

A case is a product (element type, shape, batch) with all kernels that are compared on it. They share the card, its
temperature and clock, and the operands; a drift of the clock affects all of them alike.

Alone: in each turn NVBench times one or a few launches of each kernel in random order and flushes the L2 cache before
each, until the ratio of every kernel to the library is known or the budget is spent. Under load: each kernel runs back
to back for a while, also in turns; a card that reaches its power limit lowers its clock.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from tilewise.measure.backends.operands import Arena, Operands, final_check, perturbed, room_of, verified
from tilewise.measure.perturbation import Change, Perturbed
from tilewise.measure.result_rows import verification_columns
from tilewise.measure.turns import Turns
from tilewise.nvidia.launcher import Product
from tilewise.study import verify
from tilewise.study.jobs import Job, Row
from tilewise.study.status import Status

#: A launch below so many ms is timed so many times in a turn.
SHORT_MS, SHORT_SAMPLES = 1.0, 3
#: Under load the host waits for the GPU about every so many s, and looks at its clock and power. What is timed comes
#: after so many s: the clock has then followed the power, if the card is warm. A cold one needs longer: its clock
#: swings by a fifth for two seconds (H100, double at n = 4096).
BATCH_S, SETTLE_S, HEAT_S = 0.05, 0.2, 3.0


class Contender:
    """A kernel of a case: its job, its row, and what was timed. `product` has its launches, if they are the study's."""

    def __init__(self, job: Job, row: Row, run: Perturbed | None, product: Product | None = None):
        self.job, self.row, self.run, self.product = job, row, run, product
        self.turns_ms: list[float] = []
        self.samples: list[float] = []
        self.clocks: list[float] = []
        self.load_ms: list[float] = []
        self.load_clocks: list[float] = []
        self.load_watts: list[float] = []

    def fail(self, found: verify.Check) -> None:
        """Take it out of the duel: its product was wrong when it was timed."""
        self.row |= verification_columns(self.job, found) | {"message": f"the timed product, {found.message}"}
        self.run = None


class Case:
    """The duel of the jobs of a case, which share their operands.

    `guarded(job, run)` returns the row of a run or of what stopped it; `working(job)` is called before what may take
    long. `settings` are those of `duel` in the config.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        operands: Operands,
        settings: Mapping[str, Any],
        guarded: Callable[..., Row],
        working: Callable[[Job], None],
    ):
        self.operands, self.settings, self.guarded, self.working = operands, settings, guarded, working
        self.begin, self.turns, self.done = time.monotonic(), 0, False
        self.arenas: list[Arena] = []
        # The one with the largest workspace comes first: it makes the arenas, or has no memory for them.
        found = {job.key: self._verified(job) for job in sorted(jobs, key=room_of, reverse=True)}
        self.contenders = [found[job.key] for job in jobs]
        self.first_turn = time.monotonic()  # compilers and the search for the library's best are behind

    def _verified(self, job: Job) -> Contender:
        """A job whose first product was verified."""
        self.working(job)
        runs: list[Perturbed] = []
        products: list[Product] = []

        def begin() -> Row:
            if not self.arenas:
                self.arenas.append(Arena(room_of(job)))
            launch, row, right, spaces = verified(job, self.operands, self.arenas[0])
            if len(self.arenas) == 1 and len(self.operands.places) > 1:
                try:
                    self.arenas.append(Arena(room_of(job)))
                except cupy.cuda.memory.OutOfMemoryError:
                    del self.operands.places[1:]
            if right:
                runs.append(perturbed(job, launch, self.operands, spaces, self.arenas[-1]))
            if isinstance(launch, Product):
                products.append(launch)
            return row

        row = self.guarded(job, begin, self.operands)
        run = runs[0] if runs and row["status"] == Status.OK else None
        return Contender(job, row, run, products[0] if products else None)

    def _hand_over(self, job: Job) -> None:
        """Announce the next job, and set how the operands verify its products."""
        self.working(job)
        self.operands.wanted = job.kernel.wanted

    @property
    def running(self) -> list[Contender]:
        """The contenders whose products were all right."""
        return [each for each in self.contenders if each.run]

    # ---- Alone -------------------------------------------------------------------------------------------------------

    def take_turn(
        self,
        contender: Contender,
        state: Any,
        last: Callable[[], tuple[np.ndarray, np.ndarray]],
        batch_ms: Callable[[], float | None],
    ) -> None:
        """Time a launch, or a few short ones, in a state of NVBench; `last` returns its samples in ms and clocks in
        MHz. In the first turn a short one is also timed in a batch, of which `batch_ms` returns the mean."""
        run = contender.run
        if run is None:
            state.skip("it is out of the duel")
            return
        job = contender.job
        self._hand_over(job)

        def timed(call: Any, timer: Any) -> None:
            run.between_runs()
            timer.start()
            run.launch(call.get_stream().addressof())
            timer.stop()

        def turn() -> Row:
            # Without this, the right C of another kernel would pass.
            verify.poison(self.operands.C, job.point.dtype, job.kernel.reads_c)
            runtime.deviceSynchronize()
            short = bool(contender.turns_ms) and contender.turns_ms[-1] < SHORT_MS
            state.set_min_samples(SHORT_SAMPLES if short else 1)
            state.exec(timed, timer=True)
            return {"status": Status.OK}

        row = self.guarded(job, turn, self.operands)
        if row["status"] != Status.OK:
            contender.row, contender.run = row, None
            return
        if wrong := run.settle():
            contender.fail(wrong)
            return
        times_ms, clocks_mhz = last()
        if not contender.turns_ms and times_ms[0] < SHORT_MS:
            state.exec(lambda call: run.launch(call.get_stream().addressof()), batched=True)
            contender.row["batch_ms"] = batch_ms()
        contender.turns_ms.append(float(np.median(times_ms)))
        contender.samples += times_ms.tolist()
        contender.clocks += clocks_mhz.tolist()

    def end_turn(self) -> None:
        """Decide after a turn of all whether it was the last."""
        self.turns += 1
        settings, spent = self.settings, time.monotonic() - self.first_turn
        if not self.running or self.turns >= settings["most_turns"]:
            self.done = True
        elif self.turns >= settings["least_turns"]:
            self.done = spent > settings["budget_s"] or self.known().widest_percent() <= settings["ratio_percent"]

    def known(self) -> Turns:
        """What the turns say; the columns are `running`."""
        running = self.running
        kinds = [each.job.kernel.library_call for each in running]
        turns = np.array([each.turns_ms[: self.turns] for each in running]).T
        medians = np.median(turns, axis=0)
        of_library = [index for index, kind in enumerate(kinds) if kind]
        best = min(of_library, key=lambda index: medians[index], default=None)
        return Turns(turns, kinds.index("default") if "default" in kinds else None, best)

    # ---- Under load --------------------------------------------------------------------------------------------------

    def load(self, look: Callable[[], tuple[float | None, float | None]]) -> None:
        """Run each contender back to back, in turns; `look` returns the clock in MHz and the power in W."""
        turns, heated = self.settings["load_turns"], False
        for _ in range(turns):
            long = [each for each in self.running if np.median(each.turns_ms) >= self.settings["load_from_ms"]]
            for contender in random.sample(long, len(long)):
                self._run_on(contender, look, SETTLE_S if heated else HEAT_S)
                heated = True

    def _run_on(self, contender: Contender, look: Callable, settle_s: float) -> None:
        """Run a contender back to back for `load_s`, `settle_s` after it began, and verify its last product."""
        run, job, operands = contender.run, contender.job, self.operands
        assert run
        self._hand_over(job)
        count = max(1, math.ceil(BATCH_S * 1000 / float(np.median(contender.turns_ms))))
        seen: list[tuple[float | None, float | None]] = []

        def repeat(seconds: float) -> float:
            """Mean ms of a launch."""
            seen.clear()
            launches, begin = 0, time.perf_counter()
            while not launches or time.perf_counter() - begin < seconds:
                for _ in range(count):
                    run.launch(0)
                seen.append(look())
                runtime.deviceSynchronize()
                launches += count
            return 1000 * (time.perf_counter() - begin) / launches

        run.perturb(Change("all", output="NaN" if not job.kernel.reads_c else ""))
        repeat(settle_s)
        contender.load_ms.append(repeat(self.settings["load_s"]))
        contender.load_clocks += [mhz for mhz, _ in seen if mhz is not None]
        contender.load_watts += [watts for _, watts in seen if watts is not None]
        found = run.verified()
        if not found.ok:
            contender.fail(found)
        operands.restore()

    # ---- Rows --------------------------------------------------------------------------------------------------------

    def rows(
        self, timing: Callable[[Sequence[float], Job], Row], possible: Callable[[Job, Row, Row], Row]
    ) -> list[Row]:
        """The rows of the case's jobs, in their order; `timing` makes columns of samples, and `possible(job, row,
        columns)` adds columns to a row, unless the rate cannot be."""
        for contender in self.running:
            self._hand_over(contender.job)
            run = contender.run
            assert run
            run.launch(0)  # what is in C by now was made by another
            found = final_check(run, self.operands)
            if not found.ok:
                contender.fail(found)
        running, spent = self.running, time.monotonic() - self.begin
        known = self.known() if running else None
        under_load = {
            call: next((each.load_ms for each in running if each.job.kernel.library_call == call), [])
            for call in ("default", "best")
        }
        found_rows = []
        for contender in self.contenders:
            if contender not in running:
                found_rows.append(contender.row)
                continue
            assert known
            measured = timing(contender.samples, contender.job) | known.columns(running.index(contender))
            time_ms = float(np.median(contender.turns_ms[: self.turns]))
            measured |= {
                "time_ms": time_ms,
                "gflops": 2 * contender.job.point.multiply_adds / time_ms / 1e6,
                "sm_clock_mhz": float(np.median(contender.clocks)),
                "sm_clock_min_mhz": float(min(contender.clocks)),
                "turns": self.turns,
                "duel_s": spent,
                "message": "; ".join(filter(None, (contender.row["message"], _by_launch(contender)))),
                **_sustained(contender, under_load),
            }
            found_rows.append(possible(contender.job, contender.row, measured))
        return found_rows


def _by_launch(contender: Contender) -> str:
    """What each launch takes, in words, of a product that has three or more."""
    job, product = contender.job, contender.product
    if product is None or len(job.launches) < 3:
        return ""
    names = [launch.instance.split("<")[0] for launch in job.launches]
    words = (name.removeprefix(job.kernel.name).strip("_") or "product" for name in names)
    return "ms of each launch: " + ", ".join(f"{word} {ms:.3f}" for word, ms in zip(words, product.launch_times()))


def _sustained(contender: Contender, libraries: Mapping[str, Sequence[float]]) -> Row:
    """The columns under load: medians and ranges over the turns. Empty for a kernel that was too short for it."""
    times = contender.load_ms
    if not times:
        return {}
    found: Row = {
        "sustained_ms": float(np.median(times)),
        "sustained_low_ms": min(times),
        "sustained_high_ms": max(times),
        "sustained_mhz": float(np.median(contender.load_clocks)) if contender.load_clocks else None,
        "sustained_watts": float(np.median(contender.load_watts)) if contender.load_watts else None,
    }
    for kind, others in libraries.items():
        if len(others) == len(times):
            ratios = [other / own for other, own in zip(others, times)]
            name = f"sustained_vs_{kind}"
            found |= {name: float(np.median(ratios)), f"{name}_low": min(ratios), f"{name}_high": max(ratios)}
    return found
