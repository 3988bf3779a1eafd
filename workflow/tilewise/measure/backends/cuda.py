"""Verify and time points on a GPU: CuPy launches, NVBench times. Runs only inside a worker process."""

import ctypes
import os
import re

os.environ["CUPY_TF32"] = "0"  # the user's may ask for it; CuPy looks before every product
import cuda.bench
import cupy
import numpy as np
from cupy.cuda import driver, runtime

from tilewise.count.occupancy import DEFAULT_SHARED_BYTES
from tilewise.measure import verify
from tilewise.measure.worker import outcome, timing

#: What the driver answers where it refuses a launch before anything ran.
REFUSED = ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")


def run(jobs, device, config, samples, answer):
    """Run all jobs in one NVBench run; calls `answer(row)` as each ends. The folder `samples` receives NVBench's files.

    NVBench runs once in a process and writes its JSON when all points are through; but the samples of a point are in
    their file as soon as it is timed. The rows are made from those, so that a kill costs one point.
    """
    name = f"nvbench-{len(list(samples.glob('nvbench-*.json-bin')))}"
    results = Samples(samples / f"{name}.json")
    operands = Operands(config)
    settings = config["timing"]
    benchmark = cuda.bench.register(
        lambda state: answer(measure(jobs[int(state.get_string("job"))], state, operands, results))
    )
    benchmark.set_name(name)
    benchmark.add_string_axis("job", [str(index) for index in range(len(jobs))])
    benchmark.set_batch_target_time(settings["min_time_s"])
    options = {
        "devices": 0,
        "jsonbin": results.json_path,
        "min-samples": settings["min_samples"],
        "min-time": settings["min_time_s"],
        "max-noise": settings["max_noise_percent"],
        "timeout": settings["timeout_s"],
    }
    cuda.bench.run_all_benchmarks(["tilewise", *(str(x) for name in options for x in (f"--{name}", options[name]))])


class Operands:
    """A, B, C and what C should be, for the shape and dtype at hand; points that share them come in a row."""

    def __init__(self, config):
        self.settings = config["verification"]
        self.seed = config["seed"]
        self.shape = None

    def prepare(self, dtype, n, p, m):
        """Make the operands of a shape, unless they are there."""
        if self.shape == (dtype, n, p, m):
            return
        self.shape = self.A = self.B = self.C = self.reference = None
        cupy.get_default_memory_pool().free_all_blocks()
        self.A, self.B = verify.operands(cupy, dtype, n, p, m, self.seed)
        self.C = cupy.empty((n, m), self.A.dtype)
        if 2 * n * p * m <= self.settings["full_limit_gflop"]["gpu"] * 1e9:
            self.reference = verify.reference(self.A, self.B)
        self.shape = (dtype, n, p, m)

    def check(self):
        """Verify C as it is now."""
        dtype, p = self.shape[0], self.shape[2]
        runtime.deviceSynchronize()
        if self.reference is not None:
            return verify.check(self.C, *self.reference, dtype, p)
        return verify.check_rows(self.A, self.B, self.C, dtype, self.settings["rows"], self.seed)


class Samples:
    """The files that NVBench writes while it runs: the samples and clocks of each point, and its log on stdout."""

    def __init__(self, json_path):
        self.json_path = json_path
        self.log = open("/proc/self/fd/1")
        self.log.seek(0, os.SEEK_END)

    def last(self):
        """Columns of the point timed last, and its samples as times_ms."""
        ctypes.CDLL(None).fflush(None)  # NVBench logs through C's stdio
        batch = re.findall(r"Batch: ([\d.]+)ms GPU", self.log.read())
        return {
            "times_ms": (1000 * self._newest("bin").astype(np.float64)).tolist(),
            "sm_clock_mhz": float(np.median(self._newest("freqs-bin"))) / 1e6,
            "batch_ms": float(batch[-1]) if batch else None,
        }

    def _newest(self, kind):
        folder = self.json_path.with_name(f"{self.json_path.name}-{kind}")
        return np.fromfile(max(folder.glob("*.bin"), key=lambda path: int(path.stem)), dtype="<f4")


def measure(job, state, operands, results):
    """Verify, time and verify again one job; returns its row. A product that is wrong is never timed."""
    row = job["row"]
    try:
        row = _measure(job, state, operands, results)
    except cupy.cuda.memory.OutOfMemoryError as error:
        operands.shape = None
        row = row | {"status": "out_of_memory", "message": str(error)}
    except driver.CUDADriverError as error:
        refused = str(error).startswith(REFUSED)
        row = row | {"status": "invalid_launch" if refused else "error", "message": str(error)}
    except (runtime.CUDARuntimeError, cupy.cuda.cublas.CUBLASError) as error:
        row = row | {"status": "error", "message": str(error)}
    if row["status"] != "ok":
        state.skip(f"{row['status']}: {row['message']}")
    return row


def _measure(job, state, operands, results):
    row = job["row"]
    shape = row["n"], row["p"], row["m"]
    launch, facts = launcher(job)
    operands.prepare(row["dtype"], *shape)
    A, B, C = operands.A, operands.B, operands.C
    verify.poison(C)
    launch(cupy.cuda.Stream.null, A, B, C)
    found = operands.check()
    if not found.ok:
        return row | facts | outcome(found)
    verify.poison(C)
    runtime.deviceSynchronize()
    state.exec(lambda call: launch(cupy.cuda.Stream.from_external(call.get_stream()), A, B, C))
    found = operands.check()
    if not found.ok:
        return row | facts | outcome(found) | {"message": f"the timed product: {found.message}"}
    measured = results.last()
    return row | facts | outcome(found) | timing(measured.pop("times_ms"), 2 * np.prod(shape, dtype=float)) | measured


def launcher(job):
    """A job as a function `launch(stream, A, B, C)`, and the columns of its row that the loaded kernel tells."""
    row = job["row"]
    if job["kind"] == "library":

        def multiply(stream, A, B, C):
            with stream:
                cupy.matmul(A, B, out=C)  # cuBLAS

        return multiply, {}
    kernel = cupy.RawModule(path=job["file"]).get_function(job["symbol"])
    dynamic = job["dynamic_shared_bytes"]
    if dynamic + kernel.shared_size_bytes > DEFAULT_SHARED_BYTES:
        kernel.max_dynamic_shared_size_bytes = dynamic
    grid, block = (row["grid_x"], row["grid_y"]), (row["block_x"], row["block_y"])
    sizes = tuple(np.int32(row[name]) for name in "npm")

    def call(stream, A, B, C):
        kernel(grid, block, (A, B, C, *sizes), shared_mem=dynamic, stream=stream)

    return call, {"registers": kernel.num_regs, "shared_bytes": kernel.shared_size_bytes + dynamic}


def memory():
    """Free and total memory of the device in B."""
    return runtime.memGetInfo()


def allocates(n, itemsize):
    """Whether three n x n matrices of this element size can be allocated at the same time."""
    pointers = []
    try:
        for _ in range(3):
            pointers.append(runtime.malloc(n * n * itemsize))
    except runtime.CUDARuntimeError as error:
        if not str(error).startswith("cudaErrorMemoryAllocation"):
            raise
        return False
    finally:
        for pointer in pointers:
            runtime.free(pointer)
    return True


def once(job, config):
    """One run of a job between two CUDA events, checked on whole random rows; returns its row."""
    row = job["row"]
    seed, rows = config["seed"], config["verification"]["rows"]
    cupy.get_default_memory_pool().free_all_blocks()
    try:
        launch, facts = launcher(job)
        A, B = verify.operands(cupy, row["dtype"], row["n"], row["p"], row["m"], seed)
        C = cupy.empty((row["n"], row["m"]), A.dtype)
        verify.poison(C)
        stream = cupy.cuda.get_current_stream()
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        launch(stream, A, B, C)
        end.record()
        end.synchronize()
        found = verify.check_rows(A, B, C, row["dtype"], rows, seed)
    except cupy.cuda.memory.OutOfMemoryError as error:
        return row | {"status": "out_of_memory", "message": str(error)}
    except driver.CUDADriverError as error:
        return row | {"status": "invalid_launch", "message": str(error)}
    except runtime.CUDARuntimeError as error:
        return row | {"status": "error", "message": str(error)}
    row = row | facts | outcome(found)
    if not found.ok:
        return row
    flop = 2 * row["n"] * row["p"] * row["m"]
    return row | timing([cupy.cuda.get_elapsed_time(start, end)], flop)
