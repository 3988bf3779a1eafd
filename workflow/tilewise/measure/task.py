"""Measure the points of a task: verified, timed, and collected as tidy rows that survive a kill.

The points run in a worker process (`tilewise.measure.worker`): a crash or a sticky CUDA error ends one point and not the task,
and the worker is replaced. Every finished row goes at once into a journal, an append-only file of one JSON row a line;
a later run takes from it what was measured under the same conditions.
"""

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from tilewise.build import build
from tilewise.files import alone, digest
from tilewise.measure.probe import check_here, machine
from tilewise.study.study import Study

COLUMNS = (
    "platform task kernel dtype n p m block_x block_y grid_x grid_y tile ntb status message samples time_ms "
    "time_min_ms time_q1_ms time_q3_ms noise batch_ms gflops sm_clock_mhz registers shared_bytes relative_error "
    "bound_ratio build_sha256"
).split()
#: Whole numbers that a row may lack; pandas would make them floats.
WHOLE = "block_x block_y grid_x grid_y tile ntb samples registers shared_bytes".split()
#: Outcomes that another run would repeat; what ended by accident is tried again.
LASTING = ("ok", "incorrect", "invalid_launch", "compile_error")


class Work(NamedTuple):
    """What a measuring rule is about; its fields are the first arguments of the functions that measure.

    `builds` maps a kernel's name to its build folder, `device` is the content of device.json.
    """

    points: list
    kernels: dict
    builds: dict
    device: dict
    config: dict


def work(snakemake):
    """The Work of the rule whose script this is. Raises UserError where this is not the machine that was probed."""
    study = Study(snakemake.config)
    device = json.loads(Path(snakemake.input.device).read_text())
    check_here(device)
    builds = {Path(folder).name: folder for folder in snakemake.input.builds}
    return Work(study.points(snakemake.wildcards.task, device["backend"]), study.kernels, builds, device, study.config)


def measure_task(points, kernels, builds, device, config, samples, journal):
    """Measure every point of a task once; returns their rows as a DataFrame with the columns of measurements.csv.

    The first five arguments are those of Work; `samples` is the folder for NVBench's own files, `journal` the file that
    remembers finished points. A point that cannot be measured is a row whose status and message tell why. Two runs
    never share a journal: the second waits a minute, then raises UserError.
    """
    manifests = build.manifests(builds)
    jobs = [prepare(point, kernels[point.kernel], manifests, builds, device, config) for point in points]
    with Journal(journal) as remembered:
        rows = remembered.rows
        rows |= {job["key"]: job["row"] for job in jobs if job["row"]["status"] == "compile_error"}
        waiting = [job for job in jobs if job["key"] not in rows]
        waiting.sort(key=lambda job: not job["on_gpu"])  # NVBench takes all points of a process in one call
        for key, row in run_jobs(waiting, device, config, samples):
            remembered.add(key, row)
    return to_frame([rows[job["key"]] for job in jobs])


class Journal:
    """The rows of a task by key, those of earlier runs too, in a file of one JSON object a line.

    Used as a context, which holds it alone: a second process waits a minute, then raises UserError.
    """

    def __init__(self, path):
        self.path, self._open = Path(path), contextlib.ExitStack()

    def __enter__(self):
        self._open.enter_context(alone(self.path.with_suffix(".lock")))
        self.rows = _read_journal(self.path)
        self._lines = self._open.enter_context(self.path.open("a"))
        return self

    def __exit__(self, *error):
        return self._open.__exit__(*error)

    def add(self, key, row):
        """Add a row, to the file too where another run would give the same."""
        self.rows[key] = row
        if row["status"] in LASTING:
            # The break before it ends a line that a kill may have cut short; empty lines are passed over.
            text = json.dumps({"key": key, "row": row}, default=float)  # NumPy's numbers are none to JSON
            self._lines.write(f"\n{text}\n")
            self._lines.flush()
            os.fsync(self._lines.fileno())


def to_frame(rows):
    """Rows as a DataFrame with the columns of measurements.csv, whole numbers as such."""
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype(dict.fromkeys(WHOLE, "Int64"))


def prepare(point, kernel, manifests, builds, device, config):
    """A point as a job for the worker: what to launch, the row with all that is known before, and the journal's key.

    The key covers everything that the result depends on: the point, the binary, its launch, the machine, and how it is
    measured.
    """
    geometry = kernel.geometry(point)
    row = dict.fromkeys(COLUMNS) | dataclasses.asdict(point)
    row |= {"platform": device["platform"], "status": "error", "message": "", "samples": 0}
    on_gpu = device["backend"] == "gpu" and (kernel.kind == "cuda" or kernel.name == "cublas")
    job = {"kind": kernel.kind, "on_gpu": on_gpu, "dynamic_shared_bytes": 0}
    if geometry:
        row |= {"grid_x": geometry.grid[0], "grid_y": geometry.grid[1]}
        row |= {"block_x": geometry.block[0], "block_y": geometry.block[1]}
        job["dynamic_shared_bytes"] = geometry.dynamic_shared_bytes
    if kernel.source:
        manifest = manifests[kernel.name]
        entry = manifest["instances"][kernel.instance(point)]
        row["build_sha256"] = entry["sha256"]
        if "error" in entry:
            row |= {"status": "compile_error", "message": entry["error"]}
        else:
            job["file"] = str(Path(builds[kernel.name]) / entry.get("file", manifest.get("library", "")))
            job |= {"symbol": entry["symbol"], "instance": kernel.instance(point)}
        if "registers" in entry:
            row["registers"] = entry["registers"]
            row["shared_bytes"] = entry["shared_bytes"] + job["dynamic_shared_bytes"]
    else:
        versions = device["versions"]
        row["build_sha256"] = digest([kernel.name, versions.get(kernel.name)])
    settings = {key: config[key] for key in ("seed", "timing", "verification", "cpu")}
    # The thing measured is named by its build and its launch; a kernel whose title changes is not measured again.
    launch = [row["grid_x"], row["grid_y"], job["dynamic_shared_bytes"]]
    key = digest([dataclasses.asdict(point), row["build_sha256"], launch, machine(device), settings])
    return job | {"key": key, "row": row}


def run_jobs(jobs, device, config, samples):
    """Run jobs in worker processes; yields (key, row) as each ends. A worker that dies is replaced.

    A job that outlives `timing.point_limit_s` ends as `timeout`, one that takes its worker along as `error`. The CPU's
    loops have a budget of their own, on top of which the limit counts.
    """
    jobs = list(jobs)
    while jobs:
        finished = 0
        for index, row in _one_worker(jobs, device, config, samples):
            finished = index + 1
            yield jobs[index]["key"], row
        jobs = jobs[finished:]


def _one_worker(jobs, device, config, samples):
    """Yield (index, row) from one worker until it ends; the job that ended it is the last one yielded."""
    Path(samples).mkdir(parents=True, exist_ok=True)
    request = {"jobs": jobs, "device": device, "config": config, "samples": str(samples)}
    read_end, write_end = os.pipe()
    log_path = Path(samples) / "worker.log"
    with open(log_path, "w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tilewise.measure.worker", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
            text=True,
        )
    os.close(write_end)
    answers = queue.SimpleQueue()
    threading.Thread(target=_pump, args=(read_end, answers), daemon=True).start()
    # A worker that dies early breaks the pipe; its answers, or their absence, tell the rest.
    with contextlib.suppress(BrokenPipeError), worker.stdin:
        json.dump(request, worker.stdin)
    index = 0
    try:
        while index < len(jobs):
            limit = config["timing"]["point_limit_s"]
            if jobs[index]["kind"] != "cuda":
                limit += config["cpu"]["budget_s"][device["backend"]]
            try:
                row = answers.get(timeout=limit)
            except queue.Empty:
                yield index, jobs[index]["row"] | {"status": "timeout", "message": f"not done after {limit:g} s"}
                return
            if row is None:
                worker.wait()
                message = f"the worker ended with exit status {worker.returncode}: {_last_line(log_path)}"
                yield index, jobs[index]["row"] | {"status": "error", "message": message}
                return
            yield index, row
            index += 1
            if row["status"] == "error":
                return  # what went wrong may have left the worker's device in a bad state
        with contextlib.suppress(subprocess.TimeoutExpired):  # NVBench writes its JSON when all points are through
            worker.wait(timeout=limit)
    finally:
        worker.kill()
        worker.wait()


def _pump(read_end, answers):
    """Copy the worker's rows into a queue; None when it has closed its end."""
    with os.fdopen(read_end) as lines:
        for line in lines:
            answers.put(json.loads(line))
    answers.put(None)


def _last_line(path):
    lines = Path(path).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


def _read_journal(path):
    """Rows by key. A last line that a kill cut short is passed over."""
    rows = {}
    if Path(path).is_file():
        for line in Path(path).read_text().splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            rows[entry["key"]] = entry["row"]
    return rows
