"""What the hardware counts: the memory traffic of kernels on a GPU, read with Nsight Compute (ncu).

`python -m tilewise.explain.counters results/<platform>/counters.csv` profiles this machine's GPU in two runs of ncu and
writes one row per point. At `cross_check_points` it reads the columns of traffic.csv that hardware has a counter for,
under the same names; at the points of the config's `counters.sweeps`, which are of full size, also how the caches, the
memory and the schedulers fare. ncu's own output is next to it, in counters.log and counters-full-size.log.
"""

import argparse
import csv
import dataclasses
import itertools
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tilewise import ROOT, UserError
from tilewise.compile import build
from tilewise.measure import gpus
from tilewise.measure.job import Job, prepare
from tilewise.study import columns, registry
from tilewise.study.device import Device
from tilewise.study.kernel import Kernel
from tilewise.study.points import Point, point
from tilewise.study.precision import PRECISIONS
from tilewise.study.schema import read_yaml
from tilewise.study.sweeps import Reading, Target, expand

#: Column -> the counters of the hardware that add up to it.
METRICS = {
    "global_load_requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"],
    "global_load_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
    "global_store_requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"],
    "global_store_sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "shared_load_requests": ["smsp__inst_executed_op_shared_ld.sum"],
    "shared_store_requests": ["smsp__inst_executed_op_shared_st.sum"],
    "shared_load_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"],
    "shared_store_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
    "shared_bank_conflicts": [
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ],
}
#: The same of what goes other ways than plain loads and stores: cp.async, ldmatrix, TMA, another block's memory.
BY_WAY = {
    "async_load_requests": [
        "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
        "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    ],
    "async_load_sectors": [
        "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
        "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    ],
    "matrix_load_requests": ["smsp__inst_executed_op_ldsm.sum"],
    "tma_load_sectors": ["l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"],
    "tma_store_sectors": ["l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum"],
    "cluster_load_sectors": ["l1tex__t_sectors_pipe_lsu_mem_dshared_op_ld.sum"],
    "cluster_store_sectors": [
        "l1tex__t_sectors_pipe_lsu_mem_dshared_op_st.sum",
        "l1tex__m_l1tex2xbar_write_sectors_mem_dshared_op_tma_st.sum",
    ],
}
AT_ANY_SIZE = METRICS | BY_WAY
#: Why a warp issues no instruction, in the words of ncu.
STALLS = (
    "long_scoreboard short_scoreboard barrier mio_throttle lg_throttle tex_throttle math_pipe_throttle gmma wait "
    "not_selected selected no_instruction branch_resolving dispatch_stall imc_miss drain membar sleeping"
).split()
#: The same at full size, with what caches, memory and schedulers do there.
FULL_SIZE = AT_ANY_SIZE | {
    "l1_hit_percent": ["l1tex__t_sector_hit_rate.pct"],
    "l2_hit_percent": ["lts__t_sector_hit_rate.pct"],
    "l2_sectors": ["lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"],
    "dram_read_bytes": ["dram__bytes_read.sum"],
    "dram_written_bytes": ["dram__bytes_write.sum"],
    "l1_percent": ["l1tex__throughput.avg.pct_of_peak_sustained_active"],
    "l2_percent": ["lts__throughput.avg.pct_of_peak_sustained_elapsed"],
    "dram_percent": ["dram__throughput.avg.pct_of_peak_sustained_elapsed"],
    "issue_percent": ["smsp__issue_active.avg.pct_of_peak_sustained_active"],
    "active_warps_percent": ["sm__warps_active.avg.pct_of_peak_sustained_active"],
    "executed_instructions": ["smsp__inst_executed.sum"],
    "profiled_ns": ["gpu__time_duration.sum"],
    **{f"stall_{name}": [f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"] for name in STALLS},
}
PLACES = (("/usr/local", "cuda*/bin/ncu"), ("/opt/nvidia/nsight-compute", "*/ncu"))
PERMISSION = (
    "ncu is installed, but the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM): run as "
    "root, or put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into a file in /etc/modprobe.d and restart "
    "the machine; in a container, add the capability SYS_ADMIN"
)


def cross_check_points(config: Mapping[str, Any], kernels: Mapping[str, Kernel], gpu: str = "") -> list[Point]:
    """The points at which counted and hardware numbers are compared: of source a's kernels a square, and shapes that no
    tile or warp divides; of every kernel that is counted at full size, the square, which the emulator can count, too.

    Arguments and errors are those of full_size_points.
    """
    shapes = [(256, 256, 256), (64, 64, 64), (33, 35, 70), (17, 17, 17), (100, 101, 103), (1, 37, 45), (37, 45, 1)]
    blocks = [(16, 16), (32, 32), (8, 128), (16, 64), (128, 8), (256, 4), (24, 5)]
    choices: list[tuple[str, dict[str, int]]] = [("naive", {"block_x": x, "block_y": y}) for x, y in blocks]
    choices += [("tiled", {"tile": tile}) for tile in (8, 16, 32)]
    choices += [("multi_tile", {"tile": 16, "ntb": ntb}) for ntb in (1, 2, 3, 4, 8)]
    choices += [("multi_tile", {"tile": 32, "ntb": ntb}) for ntb in (1, 3, 7)]
    found = [
        point("counters", name, dtype, *shape, **choice)
        for (name, choice), dtype, shape in itertools.product(choices, ("float", "double"), shapes)
        if name in kernels
    ]
    n, p, m = shapes[0]
    small = (dataclasses.replace(at, n=n, p=p, m=m) for at in full_size_points(config, kernels, gpu))
    return list(dict.fromkeys([*found, *(at for at in small if not kernels[at.kernel].unmet(at))]))


def full_size_points(config: Mapping[str, Any], kernels: Mapping[str, Kernel], gpu: str = "") -> list[Point]:
    """The points of the config's `counters.sweeps`; `gpu` is the platform whose choices they take from the registry, or
    empty for the first there. Raises UserError for what is no CUDA kernel, or cannot be right."""
    tasks = {"counters": {**config["counters"], "method": "counters"}}
    try:
        return expand({**config, "tasks": tasks}, kernels, "counters", Target(gpu=gpu), Reading(only_cuda=True))
    except UserError as error:
        raise UserError(str(error).removeprefix("tasks.")) from None


def keys(at: Point, kernel: Kernel) -> dict[str, Any]:
    """The columns that name a point that is counted."""
    launch = kernel.plan(at).product
    assert launch
    return at.columns() | {"block_x": launch.block[0], "block_y": launch.block[1]}


def find_ncu() -> str:
    """Path of ncu: the environment's NCU, on the PATH, or where CUDA installs it. UserError if there is none."""
    installed = [str(path) for folder, ncu in PLACES for path in sorted(Path(folder).glob(ncu), reverse=True)]
    for path in (os.environ.get("NCU"), shutil.which("ncu"), *installed):
        if path and os.access(path, os.X_OK):
            return path
    raise UserError(
        "ncu (Nsight Compute) is not on this machine; install the CUDA toolkit or the package nsight-compute, "
        "or set NCU to its path"
    )


def count(
    points: Sequence[Point],
    kernels: Mapping[str, Kernel],
    log: Path | str,
    ncu: str | None = None,
    capability: str | None = None,
    sms: int = 1,
    counted: Mapping[str, Sequence[str]] = AT_ANY_SIZE,
) -> pd.DataFrame:
    """Profile `points` of CUDA kernels on this machine's GPU; returns a DataFrame with the columns of counters.csv.

    `kernels` is the registry; `log` receives what ncu prints; `capability` ("9.0") is the GPU's own by default, `sms`
    its multiprocessors, on which some grids depend; `counted` maps a column to the counters that add up to it. All
    launches of a point are added up; a percentage or a ratio is that of the launch that makes the product. A point that
    the GPU refuses, that was not built, or whose product is wrong has no row; `log` names those that are wrong. Raises
    UserError if ncu is missing, not permitted, or fails.
    """
    ncu = ncu or find_ncu()
    capability = capability or _capability()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [job for job in _jobs(points, kernels, capability, sms, Path(folder)) if job.files]
        request, launched = Path(folder, "jobs"), Path(folder, "launched")
        request.write_bytes(pickle.dumps(jobs))
        metrics = [metric for names in counted.values() for metric in names]
        output = _profile(ncu, metrics, request, launched)
        missing = re.findall(r"Failed to find metric (\S+)", output)
        if missing:  # a chip or an ncu may lack one counter; the others are still useful
            output += _profile(ncu, [metric for metric in metrics if metric not in missing], request, launched)
        Path(log).write_text(output)
        done = pickle.loads(launched.read_bytes()) if launched.is_file() else {}
    measured = parse(output)
    if not measured:
        if "ERR_NVGPUCTRPERM" in output:
            raise UserError(PERMISSION)
        problems = [line for line in output.splitlines() if "==ERROR==" in line or "Error" in line]
        raise UserError(f"ncu read no counters: {(problems or ['it printed nothing'])[0]}; all of it is in {log}")
    wanted = [(jobs[index], launch) for index in done for launch in jobs[index].launches]
    if len(measured) != len(wanted):
        raise UserError(f"ncu counted {len(measured)} launches of {len(wanted)}; its output is in {log}")
    rows: dict[str, dict[str, Any]] = {}
    for (job, launch), found in zip(wanted, measured):
        function = launch.instance.split("<")[0]
        if function not in found["Kernel Name"]:
            raise UserError(f"ncu's launches are not in order: {found['Kernel Name']} for {function}; see {log}")
        row = rows.setdefault(job.key, keys(job.point, job.kernel))
        product = job.kernel.plan(job.point).product
        for column, names in counted.items():
            if not found.keys() >= {*names}:
                continue
            if all(map(_adds_up, names)):
                row[column] = row.get(column, 0) + sum(found[name] for name in names)
            elif product and launch.instance == product.instance:
                row[column] = found[names[0]]
    wrong = {jobs[index].key for index, message in done.items() if message}
    right = [row for key, row in rows.items() if key not in wrong]
    return columns.frame(right, "counters", registry.parameters(kernels))


def count_all(
    config: Mapping[str, Any], kernels: Mapping[str, Kernel], log: Path | str, gpu: str, sms: int = 1
) -> pd.DataFrame:
    """The rows of counters.csv, of both kinds of points; `gpu` and `sms` are as in full_size_points and in count.

    The log of the points of full size is next to `log`.
    """
    log = Path(log)
    small = count(cross_check_points(config, kernels, gpu), kernels, log, sms=sms)
    large_log, points = log.with_stem(f"{log.stem}-full-size"), full_size_points(config, kernels, gpu)
    large = count(points, kernels, large_log, sms=sms, counted=FULL_SIZE)
    return columns.typed(pd.concat([small, large], ignore_index=True))


def _capability() -> str:
    seen = gpus.visible()
    if not seen:
        raise UserError("no NVIDIA GPU is visible here (nvidia-smi shows none); the counters need one")
    return seen[0].capability


def _multiprocessors() -> int:
    """How many this machine's GPU has. Raises UserError if the driver does not say."""
    from cuda.bindings import driver

    wanted = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    try:
        driver.cuInit(0)
        code, count = driver.cuDeviceGetAttribute(wanted, 0)
    except RuntimeError as error:  # there is no driver
        raise UserError(f"{error}; the counters need an NVIDIA GPU and its driver") from None
    if code != driver.CUresult.CUDA_SUCCESS:
        raise UserError(f"the CUDA driver does not describe this machine's GPU: {code.name}")
    return int(count)


def _jobs(points: Sequence[Point], kernels: Mapping[str, Kernel], capability: str, sms: int, folder: Path) -> list[Job]:
    """The points as jobs for `drive`; each kernel is built once."""
    device = Device.of(capability, sms)
    config = {"seed": 0, "timing": {}, "verification": {"full_limit_gflop": {"gpu": 0}, "rows": 0}}
    builds = build.build(build.instances(points, kernels), kernels, device, folder)
    return [prepare(at, kernels[at.kernel], builds, device, config) for at in points]


def _profile(ncu: str, metrics: Sequence[str], request: Path, launched: Path) -> str:
    """What ncu prints about the launches of `request`, and its complaints."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += [
        "--metrics",
        ",".join(metrics),
        sys.executable,
        "-m",
        "tilewise.explain.counters",
        "--drive",
        str(request),
        str(launched),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "workflow"), *sys.path[1:]])}
    done = subprocess.run(
        list(map(str, command)),
        check=False,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.stdout


def drive(request: str, launched: str) -> None:
    """Runs under ncu: launch every job once, and nothing else that ncu would count.

    Notes which were launched, each with what is wrong about its product, if anything is.
    """
    import cupy

    from tilewise.measure.backends.launcher import CudaError, Product

    done: dict[int, str] = {}
    for index, job in enumerate(pickle.loads(Path(request).read_bytes())):
        n, p, m = job.point.shape.values()
        precision = PRECISIONS[job.point.dtype]
        shapes = {"A": (n, p), "B": (p, m), "C": (n, m)}
        try:
            arrays = {name: cupy.empty(shape, precision.stored) for name, shape in shapes.items()}
            for name in "AB":
                arrays[name].set(precision.narrow(np, np.ones(shapes[name], np.float32)))
            arrays |= {space.name: cupy.empty(max(1, space.bytes), np.uint8) for space in job.workspaces}
            Product(job, {name: array.data.ptr for name, array in arrays.items()})()
            right = bool((precision.wide(np, arrays["C"].get()) == p).all())
        except (CudaError, UserError, cupy.cuda.runtime.CUDARuntimeError) as error:
            print(f"{job.point.label()}: {error}", file=sys.stderr)
            continue
        done[index] = "" if right else "the product is wrong"
        if not right:
            print(f"{job.point.label()}: {done[index]}", file=sys.stderr)
    Path(launched).write_bytes(pickle.dumps(done))


def parse(output: str) -> list[dict[str, Any]]:
    """The launches in what `ncu --csv` prints, in order: dicts from column or metric to text or number.

    Accepts a table with one row per launch (`--page raw`) and one with one row per metric, which older versions print.
    """
    launches: dict[int, dict[str, Any]] = {}
    header = None
    for cells in csv.reader(line for line in output.splitlines() if line.startswith('"')):
        if cells[0] == "ID":
            header = cells
            continue
        row = dict(zip(header or [], cells))
        if not row.get("ID"):
            continue  # the line that names the units
        launch = launches.setdefault(int(row["ID"]), {})
        if "Metric Name" in row:
            row[row.pop("Metric Name")] = row.pop("Metric Value")
        launch |= {name: _number(name, text) for name, text in row.items()}
    return [launches[key] for key in sorted(launches)]


def _adds_up(metric: str) -> bool:
    """Whether a counter is a sum over the chip, not a percentage or a ratio."""
    return metric.endswith(".sum")


def _number(name: str, text: str) -> int | float | str:
    """A counter as a number; what is no counter, and what ncu could not read, as it is."""
    if not re.search(r"__\w+\.\w+", name):
        return text
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return math.nan
    if "hit_rate" in name and value > 100:  # hits and accesses were read in two passes, which fared differently
        return math.nan
    return round(value) if _adds_up(name) else value


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tilewise.explain.counters", description=__doc__.split("\n")[0])
    parser.add_argument("output", nargs="?", default="counters.csv", help="the CSV to write")
    parser.add_argument("--config", default=ROOT / "config" / "config.yaml", help="the config that names the points")
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)  # how this script runs itself under ncu
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return 0
    try:
        kernels = registry.load()
        find_ncu()
        config = read_yaml(options.config)
        frame = count_all(config, kernels, Path(options.output).with_suffix(".log"), "", _multiprocessors())
    except UserError as error:
        print(f"tilewise: {error}", file=sys.stderr)
        return 1
    frame.to_csv(options.output, index=False)
    print(f"{len(frame)} points counted: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
