"""What the hardware counts: the memory traffic of kernels on a GPU, read with Nsight Compute (ncu).

`python -m tilewise.count.counters results/<platform>/counters.csv` profiles `cross_check_points` on this machine's GPU,
all in one run of ncu, and writes one row per point: the columns of traffic.csv for which the hardware has a counter,
under the same names. ncu's own output is kept beside it as counters.log.
"""

import argparse
import csv
import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from tilewise import ROOT, UserError
from tilewise.count.occupancy import DEFAULT_SHARED_BYTES
from tilewise.study import registry
from tilewise.study.points import Point

#: The columns that name a point, also in traffic.csv.
KEYS = ["kernel", "dtype", "n", "p", "m", "block_x", "block_y", "tile", "ntb"]
#: Column -> the hardware counters whose sum it is.
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


def cross_check_points(kernels):
    """The points at which the two counts are compared: squares, and shapes that no tile or warp divides."""
    shapes = [(256, 256, 256), (64, 64, 64), (33, 35, 70), (17, 17, 17), (100, 101, 103), (1, 37, 45), (37, 45, 1)]
    blocks = [(16, 16), (32, 32), (8, 128), (16, 64), (128, 8), (256, 4), (24, 5)]
    choices = [("naive", {"block_x": x, "block_y": y}) for x, y in blocks]
    choices += [("tiled", {"tile": tile}) for tile in (8, 16, 32)]
    choices += [("multi_tile", {"tile": 16, "ntb": ntb}) for ntb in (1, 2, 3, 4, 8)]
    choices += [("multi_tile", {"tile": 32, "ntb": ntb}) for ntb in (1, 3, 7)]
    found = []
    for (name, choice), dtype, shape in itertools.product(choices, ("float", "double"), shapes):
        point = Point("counters", name, dtype, *shape, **choice)
        block = kernels[name].geometry(point).block
        found.append(dataclasses.replace(point, block_x=block[0], block_y=block[1]))
    return found


def find_ncu():
    """Path of ncu: from the variable NCU, on the PATH, or where CUDA installs it. Raises UserError if there is none."""
    installed = [str(path) for folder, ncu in PLACES for path in sorted(Path(folder).glob(ncu), reverse=True)]
    for path in (os.environ.get("NCU"), shutil.which("ncu"), *installed):
        if path and os.access(path, os.X_OK):
            return path
    raise UserError(
        "ncu (Nsight Compute) is not on this machine; install the CUDA toolkit or the package nsight-compute, "
        "or set NCU to its path"
    )


def count(points, kernels, log, ncu=None, capability=None):
    """Profile `points` of CUDA kernels on this machine's GPU; returns a DataFrame of KEYS and the columns of METRICS.

    `kernels` is the registry; `log` receives what ncu prints; `capability` ("9.0") is the GPU's own by default. A point
    that the GPU refuses has no row. Raises UserError if ncu is missing, is not permitted to read counters, or fails.
    """
    ncu = ncu or find_ncu()
    capability = capability or _capability()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        jobs = _compile(points, kernels, capability, Path(folder))
        request, launched = Path(folder, "jobs.json"), Path(folder, "launched.json")
        request.write_text(json.dumps(jobs))
        metrics = [metric for names in METRICS.values() for metric in names]
        output = _profile(ncu, metrics, request, launched)
        missing = re.findall(r"Failed to find metric (\S+)", output)
        if missing:  # a chip or an ncu may lack one counter; the others are still useful
            output += _profile(ncu, [metric for metric in metrics if metric not in missing], request, launched)
        Path(log).write_text(output)
        done = json.loads(launched.read_text()) if launched.is_file() else []
    measured = parse(output)
    if not measured:
        if "ERR_NVGPUCTRPERM" in output:
            raise UserError(PERMISSION)
        problems = [line for line in output.splitlines() if "==ERROR==" in line or "Error" in line]
        raise UserError(f"ncu read no counters: {(problems or ['it printed nothing'])[0]}; all of it is in {log}")
    if len(measured) != len(done):
        raise UserError(f"ncu counted {len(measured)} launches of {len(done)}; its output is in {log}")
    rows = []
    for job, counted in zip([jobs[index] for index in done], measured):
        if job["key"]["kernel"] not in counted["Kernel Name"]:
            raise UserError(f"ncu's launches are not in order: {counted['Kernel Name']} for {job['key']}; see {log}")
        rows.append(
            job["key"] | {c: sum(counted[m] for m in ms) for c, ms in METRICS.items() if counted.keys() >= {*ms}}
        )
    frame = pd.DataFrame(rows, columns=[*KEYS, *METRICS])
    return frame.astype(dict.fromkeys([*KEYS[2:], *METRICS], "Int64"))


def _capability():
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise UserError("there is no NVIDIA GPU here (nvidia-smi does not answer); the counters need one") from None
    return answer.split()[0]


def _compile(points, kernels, capability, folder):
    """The points as launches for `drive`: cubin, symbol, geometry and shape. Each instance is compiled once."""
    from tilewise.build.build import compile_cubin

    cubins = {}
    jobs = []
    for point in points:
        kernel = kernels[point.kernel]
        instance, geometry = kernel.instance(point), kernel.geometry(point)
        if instance not in cubins:
            cubin, entry = compile_cubin(kernel, instance, capability)
            path = folder / f"{len(cubins)}.cubin"
            path.write_bytes(cubin)
            cubins[instance] = {"file": str(path), "symbol": entry["symbol"]}
        key = {name: getattr(point, name) for name in KEYS}
        key |= {"block_x": geometry.block[0], "block_y": geometry.block[1]}
        launch = {"grid": geometry.grid, "block": geometry.block, "dynamic_shared_bytes": geometry.dynamic_shared_bytes}
        jobs.append({"key": key} | cubins[instance] | launch)
    return jobs


def _profile(ncu, metrics, request, launched):
    """What ncu prints about the launches of `request`, with its warnings and errors."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += [
        "--metrics",
        ",".join(metrics),
        sys.executable,
        "-m",
        "tilewise.count.counters",
        "--drive",
        request,
        launched,
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


def drive(request, launched):
    """Runs under ncu: launch every job once, and nothing else that ncu would count. Writes which were launched."""
    import cupy

    done = []
    for index, job in enumerate(json.loads(Path(request).read_text())):
        n, p, m = (job["key"][name] for name in "npm")
        dtype = registry.DTYPES[job["key"]["dtype"]][1]
        A, B, C = (cupy.empty(shape, dtype) for shape in ((n, p), (p, m), (n, m)))
        A.set(np.ones((n, p), dtype))
        B.set(np.ones((p, m), dtype))
        function = cupy.RawModule(path=job["file"]).get_function(job["symbol"])
        dynamic = job["dynamic_shared_bytes"]
        try:
            if dynamic + function.shared_size_bytes > DEFAULT_SHARED_BYTES:
                function.max_dynamic_shared_size_bytes = dynamic
            sizes = (np.int32(n), np.int32(p), np.int32(m))
            function(tuple(job["grid"]), tuple(job["block"]), (A, B, C, *sizes), shared_mem=dynamic)
        except cupy.cuda.driver.CUDADriverError as error:
            print(f"{job['key']}: {error}", file=sys.stderr)
            continue
        cupy.cuda.runtime.deviceSynchronize()
        if (C.get() == p).all():
            done.append(index)
        else:
            raise SystemExit(f"{job['key']}: the product is wrong")
    Path(launched).write_text(json.dumps(done))


def parse(output):
    """The launches in the output of `ncu --csv`, in order: dicts from column or metric to text or number.

    Accepts a table with one row per launch (`--page raw`) and one with one row per metric, which older versions print.
    """
    launches = {}
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


def _number(text):
    return round(float(text.replace(",", "")))


def main():
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
