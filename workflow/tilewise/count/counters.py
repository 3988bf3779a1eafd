"""What the hardware counts: the memory traffic of kernels on a GPU, read with Nsight Compute (ncu).

`python -m tilewise.count.counters results/<platform>/counters.csv` profiles `cross_check_points` on this machine's
GPU, all in one run of ncu, and writes one row per point: the columns of traffic.csv that hardware has a counter for,
under the same names. ncu's own output stays beside it as counters.log.
"""

import argparse
import csv
import itertools
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
from tilewise.build.build import build
from tilewise.measure.job import Job, prepare
from tilewise.study import columns, registry
from tilewise.study.points import Point, point
from tilewise.study.precision import PRECISIONS
from tilewise.study.registry import Kernel

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
PLACES = (("/usr/local", "cuda*/bin/ncu"), ("/opt/nvidia/nsight-compute", "*/ncu"))
PERMISSION = (
    "ncu is installed, but the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM): run as "
    "root, or put 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into a file in /etc/modprobe.d and restart "
    "the machine; in a container, add the capability SYS_ADMIN"
)


def cross_check_points(kernels: Mapping[str, Kernel]) -> list[Point]:
    """The points at which counted and hardware numbers are compared: a square, and shapes no tile or warp divides."""
    shapes = [(256, 256, 256), (64, 64, 64), (33, 35, 70), (17, 17, 17), (100, 101, 103), (1, 37, 45), (37, 45, 1)]
    blocks = [(16, 16), (32, 32), (8, 128), (16, 64), (128, 8), (256, 4), (24, 5)]
    choices: list[tuple[str, dict[str, int]]] = [("naive", {"block_x": x, "block_y": y}) for x, y in blocks]
    choices += [("tiled", {"tile": tile}) for tile in (8, 16, 32)]
    choices += [("multi_tile", {"tile": 16, "ntb": ntb}) for ntb in (1, 2, 3, 4, 8)]
    choices += [("multi_tile", {"tile": 32, "ntb": ntb}) for ntb in (1, 3, 7)]
    return [
        point("counters", name, dtype, *shape, **choice)
        for (name, choice), dtype, shape in itertools.product(choices, ("float", "double"), shapes)
        if name in kernels
    ]


def keys(at: Point, kernel: Kernel) -> dict[str, Any]:
    """The columns that name a point that is counted."""
    launch = kernel.product(at)
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
) -> pd.DataFrame:
    """Profile `points` of CUDA kernels on this machine's GPU; returns a DataFrame with the columns of counters.csv.

    `kernels` is the registry; `log` receives what ncu prints; `capability` ("9.0") is the GPU's own by default, `sms`
    its multiprocessors, on which some grids depend. All launches of a point are added up. A point that the GPU refuses
    has no row. Raises UserError if ncu is missing, not permitted, or fails.
    """
    ncu = ncu or find_ncu()
    capability = capability or _capability()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        jobs = _jobs(points, kernels, capability, sms, Path(folder))
        request, launched = Path(folder, "jobs"), Path(folder, "launched")
        request.write_bytes(pickle.dumps(jobs))
        metrics = [metric for names in METRICS.values() for metric in names]
        output = _profile(ncu, metrics, request, launched)
        missing = re.findall(r"Failed to find metric (\S+)", output)
        if missing:  # a chip or an ncu may lack one counter; the others are still useful
            output += _profile(ncu, [metric for metric in metrics if metric not in missing], request, launched)
        Path(log).write_text(output)
        done = pickle.loads(launched.read_bytes()) if launched.is_file() else []
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
    for (job, launch), counted in zip(wanted, measured):
        function = launch.instance.split("<")[0]
        if function not in counted["Kernel Name"]:
            raise UserError(f"ncu's launches are not in order: {counted['Kernel Name']} for {function}; see {log}")
        row = rows.setdefault(job.key, keys(job.point, job.kernel))
        for column, names in METRICS.items():
            if counted.keys() >= {*names}:
                row[column] = row.get(column, 0) + sum(counted[name] for name in names)
    return columns.frame(rows.values(), "counters", registry.parameters(kernels))


def _capability() -> str:
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise UserError("there is no NVIDIA GPU here (nvidia-smi does not answer); the counters need one") from None
    return answer.split()[0]


def _jobs(points: Sequence[Point], kernels: Mapping[str, Kernel], capability: str, sms: int, folder: Path) -> list[Job]:
    """The points as jobs for `drive`; each kernel is built once."""
    device = {
        "platform": "counters",
        "backend": "gpu",
        "gpu": {"compute_capability": capability, "sms": sms, "name": "", "driver": ""},
        "limits": {},
        "versions": {},
        "host_compiler": "",
        "cpu": {},
    }
    config = {"seed": 0, "timing": {}, "verification": {"full_limit_gflop": {"gpu": 0}, "rows": 0}}
    builds, manifests = {}, {}
    for name in dict.fromkeys(at.kernel for at in points):
        instances = {instance for at in points if at.kernel == name for instance in kernels[name].instances(at)}
        builds[name] = folder / name
        manifests[name] = build(kernels[name], sorted(instances), device, builds[name])
    return [prepare(at, kernels[at.kernel], manifests, builds, device, config) for at in points]


def _profile(ncu: str, metrics: Sequence[str], request: Path, launched: Path) -> str:
    """What ncu prints about the launches of `request`, and its complaints."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += [
        "--metrics",
        ",".join(metrics),
        sys.executable,
        "-m",
        "tilewise.count.counters",
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
    """Runs under ncu: launch every job once, and nothing else that ncu would count. Notes which were launched."""
    import cupy

    from tilewise.measure.backends.launcher import CudaError, Product

    done = []
    for index, job in enumerate(pickle.loads(Path(request).read_bytes())):
        n, p, m = job.point.shape.values()
        precision = PRECISIONS[job.point.dtype]
        arrays = {
            name: cupy.empty(shape, precision.stored) for name, shape in (("A", (n, p)), ("B", (p, m)), ("C", (n, m)))
        }
        for name in "AB":
            arrays[name].set(precision.narrow(np, np.ones(arrays[name].shape, np.float32)))
        spaces = {space.name: cupy.empty(space.bytes, np.uint8) for space in job.workspaces}
        try:
            Product(job, {name: array.data.ptr for name, array in (arrays | spaces).items()})()
        except CudaError as error:
            print(f"{job.point.label()}: {error}", file=sys.stderr)
            continue
        cupy.cuda.runtime.deviceSynchronize()
        if (precision.wide(np, arrays["C"].get()) == p).all():
            done.append(index)
        else:
            raise SystemExit(f"{job.point.label()}: the product is wrong")
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
        launch |= {name: _number(text) if name.endswith(".sum") else text for name, text in row.items()}
    return [launches[key] for key in sorted(launches)]


def _number(text: str) -> int:
    return round(float(text.replace(",", "")))


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tilewise.count.counters", description=__doc__.split("\n")[0])
    parser.add_argument("output", nargs="?", default="counters.csv", help="the CSV to write")
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)  # how this script runs itself under ncu
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return 0
    try:
        kernels = registry.load()
        frame = count(cross_check_points(kernels), kernels, Path(options.output).with_suffix(".log"))
    except UserError as error:
        print(f"tilewise: {error}", file=sys.stderr)
        return 1
    frame.to_csv(options.output, index=False)
    print(f"{len(frame)} points counted: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
