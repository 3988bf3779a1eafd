"""Verify and time jobs on a GPU: our launches, NVBench's times."""

import contextlib
import ctypes
import functools
import itertools
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["CUPY_TF32"] = "0"  # else the user's environment could make the float64 checks' helpers less exact
import cupy
import numpy as np
from cuda.bindings import driver
from cupy.cuda import runtime

import tilewise
from tilewise import UserError
from tilewise.measure.backends import Attempt, Setting
from tilewise.measure.backends.duel import Case
from tilewise.measure.backends.operands import Operands, bound, final_check, perturbed, verified
from tilewise.measure.job import case_of
from tilewise.measure.perturbation import Change, deck
from tilewise.measure.result_rows import failed_row, row_or_failure, timing, verification_columns
from tilewise.measure.roofs import reject_impossible
from tilewise.multiply.arguments import DTYPES
from tilewise.multiply.matmul import kernel_for
from tilewise.nvidia import nvml
from tilewise.nvidia.cublas import gemm
from tilewise.nvidia.emulation import Unsupported
from tilewise.nvidia.launcher import CudaError, Product, driver_result
from tilewise.nvidia.runtime import launch_through_runtime, library
from tilewise.study import registry, verify
from tilewise.study.jobs import Job, Row
from tilewise.study.points import Point
from tilewise.study.precision import result_of
from tilewise.study.status import ENDS_A_DUEL, NOT_BUILT, Status

#: The driver's errors for a launch that it refuses before anything runs.
REFUSED = (
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
)
#: To empty the L2 cache, as many times its bytes are written.
FLUSHES = 4
#: A product that takes longer than this has no batched time, which would be its isolated time and cost as much again.
BATCHED_BELOW_MS = 1
#: A batched time takes at most so many times `timing.min_time_s`: NVBench times isolated runs before it once more.
BATCHED_FOR = 3
#: Calls of a library's function are timed in so many turns, each of as many calls as take about so many ms.
CALLED_TURNS, CALLED_FOR_MS, MOST_CALLS = 7, 20, 1000
#: Runs of a product whose errors are examined.
TEST_RUNS = 5


def uuid() -> str:
    """The UUID of the GPU in use, as nvidia-smi writes it."""
    runtime.free(0)  # makes the context
    # CuPy's own device properties end it at its first zero byte.
    raw = bytes(driver_result(driver.cuDeviceGetUuid(0)).bytes).hex()
    return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


class Samples:
    """The files that NVBench writes while it runs: the samples and clocks of each point, and its log on stdout."""

    def __init__(self, json_path: Path):
        self.json_path = json_path
        self.read: dict[str, int] = {}  # the number of the file of each kind that was read last
        self.log = open("/proc/self/fd/1", encoding="utf-8")
        self.log.seek(0, os.SEEK_END)

    def times_and_clocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Samples of the state timed last in ms, and their clocks in MHz. Raises UserError if NVBench kept none."""
        return 1000 * self._newest("bin").astype(np.float64), self._newest("freqs-bin") / 1e6

    def last(self) -> Row:
        """Columns of the point timed last, and its samples as times_ms. Raises UserError if NVBench kept no sample."""
        times_ms, clocks_mhz = self.times_and_clocks()
        return {
            "times_ms": times_ms.tolist(),
            "sm_clock_mhz": float(np.median(clocks_mhz)),
            "sm_clock_min_mhz": float(clocks_mhz.min()),
            "batch_ms": None,
        }

    def batch_ms(self) -> float | None:
        """The mean time of a launch of the batch that was timed last, which NVBench only logs."""
        ctypes.CDLL(None).fflush(None)  # NVBench logs through C's stdio
        batch = re.findall(r"Batch: ([\d.]+)ms GPU", self.log.read())
        return float(batch[-1]) if batch else None

    def _newest(self, kind: str) -> np.ndarray:
        """The last file of a kind, which NVBench numbers from 0; the folder is never listed, because thousands of turns
        have thousands of files."""
        folder = self.json_path.with_name(f"{self.json_path.name}-{kind}")
        last = number = self.read.get(kind, -1)
        while (folder / f"{number + 1}.bin").exists():
            number += 1
        if number == last:
            raise UserError("NVBench kept no sample of this point; its log in the samples' worker.log says why")
        self.read[kind] = number
        return np.fromfile(folder / f"{number}.bin", dtype="<f4")


class Backend:
    """The GPU that CUDA calls device 0."""

    def __init__(self, setting: Setting):
        self.device, self.config, self.samples = setting.device, setting.config, setting.samples

    @functools.cached_property
    def scratch(self) -> Any:
        """An array whose writing leaves nothing else in the L2 cache."""
        return cupy.empty(FLUSHES * self.device.gpu["l2_bytes"], cupy.uint8)

    # ---- Timing by NVBench ------------------------------------------------------------------------------------------

    def measure(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Verify and time the jobs, isolated, and batched if a launch is short."""
        self._bench(jobs, answer, functools.partial(self._timed, batched=True))

    def repeat(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Time the jobs again, isolated only: their medians show how far one process is from another."""
        self._bench(jobs, answer, functools.partial(self._timed, batched=False))

    def overhead(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Time kernels that make no product, isolated: nothing is verified."""
        self._bench(jobs, answer, self._launched)

    def _bench(
        self,
        jobs: Sequence[Job],
        answer: Callable[[Row], None],
        timed: Callable[[Job, Any, Operands, Samples], Row],
    ) -> None:
        """All jobs in one NVBench run, each timed by `timed`. The folder of samples receives NVBench's files.

        NVBench runs once in a process and writes its JSON when all points are through; but the samples of a point are
        in their file as soon as it is timed. Rows are built from these files, so a kill loses at most one point.
        """
        results, operands, ours = self._samples(), Operands(self.config), uuid()

        def run(state: Any) -> None:
            job = jobs[int(state.get_string("job"))]
            row = self.guarded(job, lambda: timed(job, state, operands, results), operands)
            row |= {"gpu_uuid": ours}
            answer(row)
            if row["status"] != Status.OK:
                state.skip(f"{row['status']}: {row['message']}")

        settings = self.config["timing"]
        stops = {
            "min-samples": settings["min_samples"],
            "min-time": settings["min_time_s"],
            "max-noise": settings["max_noise_percent"],
            "timeout": settings["timeout_s"],
        }
        _run_nvbench(run, "job", [str(index) for index in range(len(jobs))], results, settings["min_time_s"], stops)

    def _samples(self) -> Samples:
        """The files of a new run of NVBench."""
        return Samples(self.samples / f"nvbench-{len(list(self.samples.glob('nvbench-*.json-bin')))}.json")

    def _timed(self, job: Job, state: Any, operands: Operands, results: Samples, batched: bool) -> Row:
        """Verify, time with perturbations and verify again. A product that is wrong is never timed.

        The errors of the row are those of the first product.
        """
        launch, row, right, spaces = verified(job, operands)
        if not right:
            return row
        if batched:
            with elapsed() as once_ms:  # the launch before this one may have loaded the kernel, too
                launch(0)
            batched = once_ms[0] < BATCHED_BELOW_MS
        run = perturbed(job, launch, operands, spaces)

        def timed(call: Any, timer: Any) -> None:
            run.between_runs()
            timer.start()  # what precedes it is not timed, and NVBench does not hold the stream
            run.launch(call.get_stream().addressof())
            timer.stop()

        start = time.monotonic()
        state.exec(timed, timer=True)
        measured = results.last()
        if batched:
            state.set_timeout(BATCHED_FOR * self.config["timing"]["min_time_s"])
            state.exec(lambda call: run.launch(call.get_stream().addressof()), batched=True)
            measured |= {"batch_ms": results.batch_ms()}
        spent = time.monotonic() - start
        found = final_check(run, operands)
        if not found.ok:
            return _timed_wrong(row, job, found)
        measured |= timing(measured.pop("times_ms"), job)
        return reject_impossible(row, measured | {"timed_s": spent}, job.kernel, job.point, self.device.gpu)

    def _launched(self, job: Job, state: Any, operands: Operands, results: Samples) -> Row:
        """Time a job without checking its output."""
        operands.prepare(job.point.dtype, *job.point.shape.values())
        launch, facts, _kept = bound(job, operands.A, operands.B, operands.C)
        launch(0)
        runtime.deviceSynchronize()
        state.exec(lambda call: launch(call.get_stream().addressof()), batched=False)
        measured = results.last()
        measured |= timing(measured.pop("times_ms"), job)
        return job.row | facts | measured | {"status": Status.OK}

    # ---- In turns ---------------------------------------------------------------------------------------------------

    def duel(self, jobs: Sequence[Job], answer: Callable[..., None]) -> None:
        """Verify the jobs and time those of a case in turns, alone and under load (`backends.duel`).

        Every turn of every job is a state of NVBench. `answer(row, index)` gets the row of a job; without a row, the
        index of the job that comes next, which may take long or end this process. After an error, which may have left
        the GPU in a bad state, or without memory, when the arrays of the case are gone, the process ends: its other
        jobs have to be run again, in another.
        """
        results, operands, ours = self._samples(), Operands(self.config), uuid()
        settings, look = self.config["duel"], nvml.clock_and_power(ours)
        cases = [[*group] for _, group in itertools.groupby(range(len(jobs)), key=lambda index: case_of(jobs[index]))]
        index_of = {job.key: index for index, job in enumerate(jobs)}
        current: dict[int, Case] = {}  # the case at hand by its number

        def guarded(job: Job, run: Callable[[], Row], operands: Operands | None = None) -> Row:
            row = self.guarded(job, run, operands)
            if row["status"] in ENDS_A_DUEL:
                answer(row | {"gpu_uuid": ours}, index_of[job.key])
                os._exit(1)
            return row

        def possible(job: Job, row: Row, columns: Row) -> Row:
            return reject_impossible(row, columns, job.kernel, job.point, self.device.gpu)

        def run(state: Any) -> None:
            number, _, index, last = map(int, state.get_string("turn").split("/"))
            members = cases[number]
            if number not in current:
                current.clear()  # its arrays are gone before others are made
                some = [jobs[member] for member in members]
                current[number] = Case(some, operands, settings, guarded, lambda job: answer(None, index_of[job.key]))
            case = current[number]
            if case.done:
                state.skip("the ratios are known")
                return
            case.take_turn(case.contenders[members.index(index)], state, results.times_and_clocks, results.batch_ms)
            if last:
                case.end_turn()
            if case.done:
                case.load(look)
                for member, row in zip(members, case.rows(timing, possible)):
                    answer(row | {"gpu_uuid": ours}, member)

        orders = (
            (number, turn, random.sample(members, len(members)))
            for number, members in enumerate(cases)
            for turn in range(settings["most_turns"])
        )
        states = [
            f"{number}/{turn}/{index}/{int(index == order[-1])}" for number, turn, order in orders for index in order
        ]
        # A state ends after its samples: the least time is none, any noise will do.
        stops = {"min-samples": 1, "min-time": 1e-9, "max-noise": 1e6, "timeout": 1e-6}
        _run_nvbench(run, "turn", states, results, self.config["timing"]["min_time_s"], stops)

    # ---- Timing between events --------------------------------------------------------------------------------------

    def screen(self, jobs: Sequence[Job], answer: Callable[[Row], None]) -> None:
        """Verify the jobs and time each between two CUDA events, with the L2 cache flushed before each run.

        The write that flushes it takes longer than the host needs to launch, so the events see no wait for the host.
        """
        operands, ours = Operands(self.config), uuid()
        best_ms: dict[tuple, float] = {}
        for job in jobs:
            run = functools.partial(self._screened, job, operands, best_ms)
            row = self.guarded(job, run, operands)
            answer(row | {"gpu_uuid": ours})

    def _screened(self, job: Job, operands: Operands, best_ms: dict[tuple, float]) -> Row:
        """Verify, then run a few times. What is slower than others from the first is not run again."""
        point, settings = job.point, self.config["tuning"]
        launch, row, right, spaces = verified(job, operands)
        if not right:
            return row
        run = perturbed(job, launch, operands, spaces)
        alike = point.kernel, *operands.shape
        times_ms: list[float] = []
        changes, looked = deck(operands.chance), False
        for left in reversed(range(settings["runs"])):
            change = changes.pop()
            run.perturb(change)
            self.scratch.fill(0)
            with elapsed() as ms:
                run.launch(0)
            times_ms += ms
            slow = times_ms[0] > settings["give_up"] * best_ms.get(alike, times_ms[0])
            if not looked and (slow or operands.chance.randint(0, left) == 0):  # one of the products, chosen afterwards
                looked, found = True, run.verified()
                if not found.ok:
                    return _timed_wrong(row, job, replace(found, message=f"after {change}: {found.message}"))
            if slow:
                break
        screen_ms = float(np.median(times_ms))
        screened = reject_impossible(
            row, {"samples": len(times_ms), "screen_ms": screen_ms}, job.kernel, job.point, self.device.gpu
        )
        if screened["status"] == Status.OK:
            best_ms[alike] = min(screen_ms, best_ms.get(alike, screen_ms))
        return screened

    def guarded(self, job: Job, run: Callable[[], Row], operands: Operands | None = None) -> Row:
        """The row of a run, or what stopped it."""
        try:
            return run()
        except cupy.cuda.memory.OutOfMemoryError as error:
            if operands:
                operands.forget()
            return failed_row(job, Status.OUT_OF_MEMORY, error)
        except Unsupported as error:
            return failed_row(job, Status.UNSUPPORTED, error)
        except CudaError as error:
            return failed_row(job, Status.INVALID_LAUNCH if error.name in REFUSED else Status.ERROR, error)
        except (UserError, RuntimeError) as error:  # NVBench's own are RuntimeError, CuPy's are derived from it
            return failed_row(job, Status.ERROR, error)

    def energy(self, jobs: Sequence[Job], repeated: Callable[..., Row]) -> list[Row]:
        """Verify the product of each job, repeat it, and verify it again, after perturbations too.

        `repeated(point, launch, wait, counter_mj)` launches it for a while, and returns the columns that follow.
        """
        operands = Operands(self.config)

        def measured(job: Job) -> Row:
            launch, row, right, spaces = verified(job, operands)
            if not right:
                return row
            try:
                counter_mj = nvml.energy_counter(uuid())
            except nvml.Unreported as error:
                return failed_row(job, Status.UNSUPPORTED, error)
            run = perturbed(job, launch, operands, spaces)
            run.perturb(Change("all"))
            used = repeated(job.point, lambda: run.launch(0), runtime.deviceSynchronize, counter_mj)
            found = final_check(run, operands)
            return (
                reject_impossible(row, used, job.kernel, job.point, self.device.gpu)
                if found.ok
                else _timed_wrong(row, job, found)
            )

        return [
            job.row
            if job.row["status"] in NOT_BUILT
            else row_or_failure(job, functools.partial(self.guarded, job, functools.partial(measured, job), operands))
            for job in jobs
        ]

    def times(self, job: Job, A: Any, B: Any, C: Any, runs: int) -> list[float]:
        """The ms of each of several runs of a job, which nothing verifies."""
        launch, _, _kept = bound(job, A, B, C)
        return _times(launch, runs)

    # ---- The device itself ------------------------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        cupy.get_default_memory_pool().free_all_blocks()  # CuPy keeps what was freed, for itself
        return runtime.memGetInfo()

    def allocates(self, sizes: Sequence[int]) -> bool:
        cupy.get_default_memory_pool().free_all_blocks()
        with contextlib.ExitStack() as held:
            for size in sizes:
                try:
                    held.callback(runtime.free, runtime.malloc(size))
                except runtime.CUDARuntimeError as error:
                    if not str(error).startswith("cudaErrorMemoryAllocation"):
                        raise
                    return False
        return True

    def once(self, job: Job) -> Row:
        """One run of a job between two CUDA events, checked on whole random rows."""
        cupy.get_default_memory_pool().free_all_blocks()
        return self.guarded(job, lambda: self._once(job)) | {"gpu_uuid": uuid()}

    def _once(self, job: Job) -> Row:
        point, config = job.point, self.config
        A, B = verify.operands(cupy, point.dtype, point.n, point.p, point.m, config["seed"])
        C = cupy.empty((point.n, point.m), result_of(point.dtype).stored)
        launch, facts, _kept = bound(job, A, B, C)
        verify.poison(C, point.dtype, job.kernel.reads_c)
        with elapsed() as times_ms:
            launch(0)
        rows, wanted = config["verification"]["rows"], job.kernel.wanted
        found = verify.check_rows(A, B, C, point.dtype, rows, secrets.randbits(64), wanted)
        row = job.row | facts | verification_columns(job, found)
        return (
            reject_impossible(row, timing(times_ms, job), job.kernel, job.point, self.device.gpu) if found.ok else row
        )

    # ---- Products of operands that the caller makes -----------------------------------------------------------------

    xp = cupy

    def sgemm(self, A: Any, B: Any) -> Any:
        """A B in float by cuBLAS, without TF32."""
        C = cupy.empty((A.shape[0], B.shape[1]), cupy.float32)
        gemm("float", len(A), len(B), B.shape[1], A, B, C)(0)
        return C

    def multiply(self, job: Job, A: Any, B: Any) -> tuple[Any, Row]:
        C = cupy.empty((A.shape[0], B.shape[1]), result_of(job.point.dtype).stored)

        def run() -> Row:
            launch, facts, _kept = bound(job, A, B, C)
            verify.poison(C, job.point.dtype, job.kernel.reads_c)
            launch(0)
            timed = {"test_ms": float(np.median(_times(launch, TEST_RUNS)))}
            return reject_impossible(
                job.row | facts | {"status": Status.OK}, timed, job.kernel, job.point, self.device.gpu
            )

        row = self.guarded(job, run) | {"gpu_uuid": uuid()}
        return (C if row["status"] == Status.OK else None), row

    def called(self, dtype: str, n: int) -> Row:
        """Calls of tilewise.matmul and of cupy.matmul, in turns: the median times of each. Products of the first are
        checked: one before, and after the timing one for each kind of change."""
        operands = Operands(self.config)
        operands.prepare(dtype, n, n, n)
        verify.poison(operands.C, dtype)
        [seen_as] = [kind for kind, name in DTYPES.items() if name == dtype]
        A, B, out = (each.view(seen_as) for each in (operands.A, operands.B, operands.C))
        tilewise.matmul(A, B, out)
        runtime.deviceSynchronize()
        found = operands.check()
        row: Row = {"kernel": kernel_for(dtype, n, n, n), "gpu_uuid": uuid()}
        row |= {"bound_ratio": found.bound_ratio, "message": found.message}
        if not found.ok:
            return row | {"status": Status.INCORRECT}
        with elapsed() as once_ms:
            cupy.matmul(A, B, out=out)
        calls = max(1, min(MOST_CALLS, int(CALLED_FOR_MS / once_ms[0])))
        times_us: dict[str, list[float]] = {"call_us": [], "cupy_us": []}
        for _ in range(CALLED_TURNS):
            for name, multiply in (("call_us", tilewise.matmul), ("cupy_us", cupy.matmul)):
                with elapsed() as ms:
                    for _ in range(calls):
                        multiply(A, B, out=out)
                times_us[name].append(1000 * ms[0] / calls)
        for change in deck(operands.chance):
            operands.perturb(change)
            tilewise.matmul(*(each.view(seen_as) for each in (operands.A, operands.B, operands.C)))
            runtime.deviceSynchronize()
            found = operands.check_lines()
            if not found.ok:
                return row | {"status": Status.INCORRECT, "message": f"after {change}: {found.message}"}
        medians = {name: float(np.median(times)) for name, times in times_us.items()}
        at, kernel = Point("calls", row["kernel"], dtype, n, n, n), registry.load()[row["kernel"]]
        row |= {"status": Status.OK}
        checked = reject_impossible(row, {"time_ms": medians["call_us"] / 1000}, kernel, at, self.device.gpu)
        return row | medians | {"samples": CALLED_TURNS} if checked["status"] == Status.OK else checked

    def attempt(self, job: Job, raised: bool) -> Attempt:
        """Launch a job twice: through the driver, and through the CUDA runtime, whose error a program compiled by nvcc
        prints."""
        point = job.point
        A, B = verify.operands(cupy, point.dtype, point.n, point.p, point.m, self.config["seed"])
        C = cupy.empty((point.n, point.m), result_of(point.dtype).stored)

        def through_driver() -> str:
            try:
                Product(job, {name: array.data.ptr for name, array in zip("ABC", (A, B, C))}, raised)(0)
            except CudaError as error:
                return error.name
            return ""

        def tried(launch: Callable[[], Any]) -> tuple[Any, bool]:
            verify.poison(C, point.dtype)
            runtime.deviceSynchronize()
            error = launch()
            runtime.deviceSynchronize()
            return error, verify.is_untouched(C, point.dtype)

        driver_error, left = tried(through_driver)
        error, text, left_too = driver_error, "", left  # if there is no runtime library
        if cudart := library():
            (error, text), left_too = tried(lambda: launch_through_runtime(cudart, job, (A, B, C), raised))
        launched = not (driver_error or error)
        check = verify.check(C, *verify.reference(A, B, point.dtype), point.dtype, point.p) if launched else None
        return Attempt(error, text, driver_error, left and left_too, check, uuid())


def _run_nvbench(
    run: Callable[[Any], None],
    axis: str,
    values: Sequence[str],
    results: Samples,
    batch_s: float,
    stops: Mapping[str, float],
) -> None:
    """Let NVBench call `run` with a state for each value of an axis; `stops` are its options that end a state."""
    import cuda.bench

    benchmark = cuda.bench.register(run)
    benchmark.set_name(results.json_path.stem)
    benchmark.add_string_axis(axis, list(values))
    benchmark.set_batch_target_time(batch_s)
    # A chip that lowers its clock to keep within its power is measured as it is: the row has the clock.
    options = {"devices": 0, "jsonbin": results.json_path, "throttle-threshold": 0, **stops}
    cuda.bench.run_all_benchmarks(["tilewise", *(str(x) for name in options for x in (f"--{name}", options[name]))])


def _timed_wrong(row: Row, job: Job, found: verify.Check) -> Row:
    """The row of a product that was right when it was verified, and wrong when it was timed."""
    return row | verification_columns(job, found) | {"message": f"the timed product, {found.message}"}


def _times(launch: Callable[[int], None], runs: int) -> list[float]:
    """The ms of each of several runs, one after the other."""
    times_ms: list[float] = []
    for _ in range(runs):
        with elapsed() as ms:
            launch(0)
        times_ms += ms
    return times_ms


@contextlib.contextmanager
def elapsed() -> Iterator[list[float]]:
    """A list that receives the ms between the begin and the end of the block, by CUDA events on the default stream."""
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    times_ms: list[float] = []
    start.record()
    yield times_ms
    end.record()
    end.synchronize()
    times_ms.append(cupy.cuda.get_elapsed_time(start, end))
