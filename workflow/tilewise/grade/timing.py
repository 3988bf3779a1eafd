"""Time hand-ins and a kernel of the study on a GPU: here, or in a job of Slurm by `python -m tilewise.grade.timing
FOLDER`."""

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from kernelscope.yaml_input import read_yaml
from tilewise import RECORDED, ROOT, UserError
from tilewise.compile import build
from tilewise.files import read_json, write_json
from tilewise.grade.handin import copy_device_code, sizes
from tilewise.grade.roles import set_constants
from tilewise.grade.tasks import holds
from tilewise.grade.ways import Call
from tilewise.measure import probe
from tilewise.measure.job import prepare
from tilewise.measure.lease import one_gpu
from tilewise.measure.task import run_jobs
from tilewise.nvidia import gpus
from tilewise.study import columns, registry, slurm
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.schema import validate
from tilewise.study.status import NOT_BUILT, Status
from tilewise.study.tuning import nearest

#: Seconds that a job of Slurm takes for one hand-in, about: NVRTC, and NVBench.
SECONDS = 5
#: The findings about a hand-in's calls, without which it cannot be timed.
CALLED = {"calls", "function", "dtype", "constants", "equal"}
#: Statuses that are faults of the kernel, not of the machine.
FAILS = (Status.INCORRECT, Status.INVALID_LAUNCH, Status.TIMEOUT, Status.ERROR)
#: srun's options by the names of Snakemake's resources.
OPTIONS = {
    "slurm_account": "--account={}",
    "slurm_partition": "--partition={}",
    "qos": "--qos={}",
    "constraint": "--constraint={}",
    "gres": "--gres={}",
    "gpu_model": "--gpus={}:1",
    slurm.REQUEST: "{}",
    "runtime": "--time={}",
}
#: The project's own settings, and those of a user's cluster.
CONFIG, CLUSTER = ROOT / "config" / "config.yaml", ROOT / "config" / "cluster.yaml"


def add_times(
    marked: Mapping[str, dict[str, Any]], sources: Mapping[str, tuple[Path, Path]], task: Mapping[str, Any],
    folder: Path, in_slurm: bool, limit: float,
) -> list[str]:  # fmt: skip
    """Add the times of those that have passed to their findings, and the mistake of one that is too slow or fails on
    the GPU; returns remarks. `sources` are the file and the folder of each hand-in; what a run leaves lies in `folder`.
    Raises UserError without a usable GPU, or if a job of Slurm fails."""
    shape = sizes(task["timed"])
    is_cube = len(set(shape)) == 1
    hand_ins: dict[str, dict[str, Any]] = {}
    for student, findings in marked.items():
        if findings["mistakes"] or not findings.keys() >= CALLED or (findings["constants"] and not is_cube):
            continue
        path, root = sources[student]
        place = str(len(hand_ins) + 1)
        into = folder / "sources" / place
        shutil.rmtree(into, ignore_errors=True)
        copy_device_code(path, root, into)
        set_constants(into, findings["constants"], shape[0])
        hand_ins[student] = {name: findings[name] for name in ("calls", "function", "dtype")} | {
            "place": place,
            "file": str(path.resolve().relative_to(root.resolve())),
            "shape": [shape[0]] * 3 if findings["equal"] else shape,
        }
    if not hand_ins:
        return []
    request = {"hand_ins": hand_ins, "reference": task.get("reference"), "shape": shape, "limit": limit}
    write_json(request, folder / "request.json")
    (folder / "times.json").unlink(missing_ok=True)
    if in_slurm:
        time_in_slurm(folder, len(hand_ins))
    else:
        time_folder(folder)
    answer = read_json(folder / "times.json")
    remarks = []
    for student, rows in answer["hand_ins"].items():
        remarks += judge(marked[student], rows, answer, task, student)
    for dtype, row in answer["reference"].items():
        if row["status"] != Status.OK:
            remarks.append(f"{task['reference']} for {dtype} is not timed: {row['message']}")
    return remarks


def judge(
    findings: dict[str, Any], rows: Sequence[Mapping[str, Any]], answer: Mapping[str, Any], task: Mapping[str, Any],
    student: str,
) -> list[str]:  # fmt: skip
    """Add what the rows of a hand-in on a GPU show to its findings; returns remarks."""
    fails = [row for row in rows if row["status"] in FAILS]
    if fails:
        words = f"At {task['timed']} on {answer['platform']}: {fails[0]['message']}."
        findings["mistakes"].append({"name": "fails_on_gpu", "line": None, "words": words})
        return []
    times = [row["time_ms"] for row in rows if row["status"] == Status.OK]
    if not times:
        return [f"{student} is not timed: {rows[0]['message']}"]
    names: dict[str, Any] = {"time_ms": min(times), "reference_ms": None, "recorded_ms": None}
    if task.get("reference"):
        names["reference_ms"] = answer["reference"].get(findings["dtype"], {}).get("time_ms")
        findings["recorded"] = known = shortest_recorded_ms(task["reference"], findings["dtype"], sizes(task["timed"]))
        if known:
            names["recorded_ms"] = nearest(known, answer["platform"])
    findings |= names
    condition = task.get("threshold")
    if not condition:
        return []
    if missing := [name for name, value in names.items() if value is None and name in condition]:
        return [f"{student}: {condition} is not tested: there is no {missing[0]} for {findings['dtype']}"]
    try:
        is_met = holds(condition, names)
    except UserError as error:  # two times that are equal, say
        return [f"{student}: the task's threshold is not tested: {error}"]
    if not is_met:
        shown = ", ".join(f"{name} is {value:.4g}" for name, value in names.items() if value is not None)
        words = f"At {task['timed']} on {answer['platform']}, {shown}; {condition} does not hold."
        findings["mistakes"].append({"name": "too_slow", "line": None, "words": words})
    return []


def time_folder(folder: Path) -> None:
    """Time what `request.json` of a folder lists, and write `times.json` beside it: the platform, the row of the
    reference by element type, and the rows of the calls of each hand-in. Raises UserError without a usable GPU."""
    request = read_json(folder / "request.json")
    config = read_yaml(CONFIG)
    config = config | {"timing": config["timing"] | {"point_limit_s": request["limit"]}}
    machine = gpus.this_machine()
    if machine.backend != "gpu":
        raise UserError("the time of hand-ins needs a GPU, and none is visible here")
    device = probe.capture(machine.name, "gpu")
    kernels, points = {}, {}
    for student, hand_in in request["hand_ins"].items():
        for number, given in enumerate(hand_in["calls"]):
            name = f"{hand_in['place']}-{number}"
            call = Call.from_json(given)
            path = folder / "sources" / hand_in["place"] / hand_in["file"]
            kernels[name] = dataclasses.replace(call.kernel(hand_in["function"], path, hand_in["dtype"]), name=name)
            points[student, number] = Point("grade", name, hand_in["dtype"], *hand_in["shape"])
    if request["reference"]:
        kernel = registry.load()[request["reference"]]
        kernels[kernel.name] = kernel
        for dtype in sorted({hand_in["dtype"] for hand_in in request["hand_ins"].values()}):
            if found := reference_point(kernel, dtype, request["shape"], machine.name):
                points["", dtype] = found
    workers = len(os.sched_getaffinity(0))
    builds = build.build(build.instances(points.values(), kernels), kernels, device, folder / "build", workers)
    jobs = {key: prepare(point, kernels[point.kernel], builds, device, config) for key, point in points.items()}
    waiting = [job for job in jobs.values() if job.row["status"] not in NOT_BUILT]
    with one_gpu(device, folder / "gpus"):
        rows = {job.key: job.row for job in jobs.values()} | dict(run_jobs(waiting, device, config, folder / "samples"))
    wanted = ("status", "message", "time_ms")
    timed = {key: {name: rows[job.key].get(name) for name in wanted} for key, job in jobs.items()}
    answer: dict[str, Any] = {"platform": machine.name, "reference": {}, "hand_ins": {}}
    for (student, number), row in timed.items():
        if student:
            answer["hand_ins"].setdefault(student, []).append(row)
        else:
            answer["reference"][number] = row
    write_json(answer, folder / "times.json")


def recorded_rows(kernel: Kernel, shape: Sequence[int]) -> dict[str, pd.DataFrame]:
    """The recorded rows of a kernel at a shape by platform, the fastest first."""
    found = {}
    for path in sorted(RECORDED.glob("*/measurements.csv")):
        table = columns.read(path, "measurements")
        at = (table["kernel"] == kernel.name) & (table["status"] == Status.OK) & table["time_ms"].notna()
        for name, size in zip(columns.SHAPE, shape):
            at &= table[name] == size
        found[path.parent.name] = table[at].sort_values("time_ms", kind="stable")
    return found


def reference_point(kernel: Kernel, dtype: str, shape: Sequence[int], platform: str) -> Point | None:
    """The point of a kernel with the parameters that were the fastest where it was recorded, on this GPU or else on
    another, for this element type or else for another; None if it was not recorded at this shape."""
    rows = {name: table for name, table in recorded_rows(kernel, shape).items() if len(table)}
    if not rows:
        return None
    table = nearest(rows, platform)
    row = next(iter([*(each for _, each in table[table["dtype"] == dtype].iterrows()), table.iloc[0]]))
    n, p, m = shape
    return Point("grade", kernel.name, dtype, n, p, m, tuple((name, int(row[name])) for name in kernel.columns))


def shortest_recorded_ms(reference: str, dtype: str, shape: Sequence[int]) -> dict[str, float]:
    """The shortest recorded ms of a kernel of the study by platform."""
    tables = recorded_rows(registry.load()[reference], shape)
    own = {name: table[table["dtype"] == dtype]["time_ms"] for name, table in tables.items()}
    return {name: float(times.iloc[0]) for name, times in own.items() if len(times)}


def time_in_slurm(folder: Path, hand_ins: int) -> None:
    """Let a job of Slurm time a folder on a GPU node, which sees the same files. Raises UserError if it fails."""
    if not shutil.which("srun"):
        raise UserError("--profile slurm: there is no srun here; log in to a node of the cluster, or leave it out")
    command = ["srun", *_options(hand_ins), sys.executable, "-m", "tilewise.grade.timing", str(folder.resolve())]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace")
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.strip()]
        own = [line for line in said if line.startswith("tilewise: ")]
        raise UserError(
            f"srun ended with status {done.returncode}: {(own or said or ['it printed nothing'])[-1]}; see "
            "docs/cluster.md for config/cluster.yaml"
        )


def _options(hand_ins: int) -> list[str]:
    """srun's options for a job with a GPU, by config/cluster.yaml."""
    config = read_yaml(CONFIG) | read_yaml(CLUSTER)
    validate(config, "config", CLUSTER)
    platforms = {name: each for name, each in slurm.spread(config["platforms"]).items() if each["backend"] == "gpu"}
    if not platforms:
        raise UserError(f"{CLUSTER}: no platform has the backend gpu")
    at = SimpleNamespace(platform=next(iter(platforms)))
    resources = slurm.gpu_job(config, platforms, SECONDS * hand_ins)
    minutes = resources.pop("runtime")(at, 1)
    values = {name: value for name, of in resources.items() if (value := of(at))} | {"runtime": minutes}
    found = ["--job-name=tilewise", "--ntasks=1", f"--cpus-per-task={slurm.GPU_CORES}", "--mem=4000"]
    found += [form.format(values[name]) for name, form in OPTIONS.items() if name in values]
    found += ["--gpus=1"] * ("gpu" in values and "gpu_model" not in values)
    return [*found, *values.get("slurm_extra", "").split()]


def main() -> int:
    """Time the folder of the command line; returns the exit status."""
    try:
        time_folder(Path(sys.argv[1]))
    except UserError as error:
        print(f"tilewise: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
