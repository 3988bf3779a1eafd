"""Read the task of an assignment, and refuse what would fail while a hand-in is marked."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelscope.yaml_input import read_yaml
from tilewise import UserError
from tilewise.grade.handin import sizes
from tilewise.grade.large import MOST_ELEMENTS, MOST_TERMS
from tilewise.study import registry
from tilewise.study.expressions import evaluate, names_in
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point
from tilewise.study.precision import PRECISIONS
from tilewise.study.schema import validate
from tilewise.traced.multiplication import trace_point

#: The tasks that `--task` names.
TASKS = Path(__file__).with_name("tasks.yaml")
#: Multiplications of a product that is traced: more take longer than the limit of a trace.
MOST_TRACED = 1 << 24
#: The names of a threshold, with times that differ, so that their differences are not 0.
TIMES = {"time_ms": 1.0, "reference_ms": 2.0, "recorded_ms": 4.0}


def read_task(named: str) -> tuple[str, dict[str, Any], dict[str, int]]:
    """The name and the keys of a task, and the sectors that the study's naive kernel loads at its `measured`, by
    element type. Raises UserError for a task that is not understood."""
    tasks, kernels = read_yaml(TASKS), registry.load()
    path = Path(named)
    if named in tasks:
        return named, tasks[named], check_measures(tasks[named], kernels["naive"], f"{TASKS}: {named}")
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise UserError(f"--task {named}: there are {', '.join(tasks)}, or a YAML file with a task of yours")
    read = read_yaml(path)
    validate(read, "grading", path)
    [(name, task)] = read.items()
    inherited = {key: value for key, value in tasks["tiled"].items() if key not in ("reference", "threshold")}
    task = inherited | {"measures": {}} | task
    place = f"{path}: {name}"
    for key, size in [*(("shapes", shape) for shape in task["shapes"]), ("measured", task["measured"])]:
        if math.prod(sizes(size)) > MOST_TRACED:
            raise UserError(
                f"{place}.{key}: {size} takes too long on the emulator; its n * p * m is at most {MOST_TRACED}, as of "
                "256x256x256"
            )
    for block in task["blocks"]:
        if math.prod(sizes(block)) > 1024:
            raise UserError(f"{place}.blocks: {block} has more than the 1024 threads that a GPU allows")
    n, p, m = sizes(task.get("largest", "1x1x1"))
    if max(n * p, p * m, n * m) > MOST_ELEMENTS or p > MOST_TERMS:
        raise UserError(
            f"{place}.largest: {task['largest']} has matrices of more than {MOST_ELEMENTS} elements, or p beyond "
            f"{MOST_TERMS}; 50000x50000x50000 is large enough to overflow 32 bits"
        )
    _check_threshold(task, kernels, place)
    return name, task, check_measures(task, kernels["naive"], place)


def holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Whether a condition over `names` holds. Raises UserError if it is no condition, or has no value."""
    try:
        found = evaluate(condition, names)
    except (ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise UserError(f"'{condition}': {error}") from None
    if not isinstance(found, bool):
        raise UserError(f"'{condition}' is no condition; compare it, by <= say")
    return found


def _check_threshold(task: Mapping[str, Any], kernels: Mapping[str, Kernel], place: str) -> None:
    if "reference" in task:
        reference = kernels.get(task["reference"])
        if not reference or not reference.on_gpu:
            raise UserError(
                f"{place}.reference: {task['reference']} is no kernel of the study for GPUs; `tilewise list` has them"
            )
    condition = task.get("threshold", "true")
    try:
        holds(condition, TIMES)
    except UserError as error:
        raise UserError(f"{place}.threshold: {error}; correct it, or leave it out") from None
    if needless := "reference" not in task and names_in(condition) & {"reference_ms", "recorded_ms"}:
        raise UserError(f"{place}.threshold: {min(needless)} needs a kernel of the study; add `reference: tiled`")


def check_measures(task: Mapping[str, Any], naive: Kernel, place: str) -> dict[str, int]:
    """The sectors that the study's naive kernel loads, by element type; empty without measures. Raises UserError for a
    measure that has no value for this kernel, and so perhaps for none."""
    if not task["measures"]:
        return {}
    sectors = {}
    n, p, m = sizes(task["measured"])
    for dtype in ("float", "double", "int32"):
        point = Point("trace", "naive", dtype, n, p, m, (("block_x", 16), ("block_y", 16)))
        row = trace_point(naive, point)[0]
        sectors[dtype] = row["global_load_sectors"]
        names = names_of_measures(row, dtype, sectors[dtype])
        for name, condition in task["measures"].items():
            try:
                holds(condition, names)
            except UserError as error:
                raise UserError(
                    f"{place}.measures.{name}: {error}; write a condition that has a value for every kernel, as "
                    f"{TASKS} has them"
                ) from None
    return sectors


def names_of_measures(row: Mapping[str, Any], dtype: str, naive_sectors: int) -> dict[str, Any]:
    """The names of a measure, from the row of a trace."""
    names = {name: value or 0 for name, value in row.items() if isinstance(value, int | float) or value is None}
    return names | {"itemsize": PRECISIONS[dtype].itemsize, "naive_sectors": naive_sectors}
