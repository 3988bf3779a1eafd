"""Run Nsight Compute (ncu) and map its hardware counters to the columns of counters.csv.

ncu runs `python -m tilewise.nvidia.ncu REQUEST LAUNCHED`, which launches every job once.
"""

import csv
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewise import ROOT, UserError
from tilewise.study.jobs import Job
from tilewise.study.precision import PRECISIONS, result_of

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


def count(jobs: Sequence[Job], log: Path, ncu: str, full_size: bool) -> list[tuple[Job, dict[str, Any]]]:
    """ncu's counters of jobs, by the columns of FULL_SIZE or AT_ANY_SIZE; `log` receives its output.

    All launches of a job are added up; a percentage or a ratio is that of the launch that makes the product. A job that
    the GPU refuses, or whose product is wrong, is left out. Raises UserError if ncu is not permitted, or fails.
    """
    columns = FULL_SIZE if full_size else AT_ANY_SIZE
    with tempfile.TemporaryDirectory() as folder:
        request, launched = Path(folder, "jobs"), Path(folder, "launched")
        request.write_bytes(pickle.dumps(jobs))
        metrics = [metric for names in columns.values() for metric in names]
        output = _profile(ncu, metrics, request, launched)
        missing = re.findall(r"Failed to find metric (\S+)", output)
        if missing:  # a chip or an ncu may lack one counter; the others are still useful
            output += _profile(ncu, [metric for metric in metrics if metric not in missing], request, launched)
        log.write_text(output, encoding="utf-8")
        done = pickle.loads(launched.read_bytes()) if launched.is_file() else {}
    measured = parse(output)
    if not measured:
        if "ERR_NVGPUCTRPERM" in output:
            raise UserError(PERMISSION)
        problems = [line for line in output.splitlines() if "==ERROR==" in line or "Error" in line]
        raise UserError(f"ncu read no counters: {(problems or ['it printed nothing'])[0]}; all of it is in {log}")
    wanted = [(index, launch) for index in done for launch in jobs[index].launches]
    if len(measured) != len(wanted):
        raise UserError(f"ncu counted {len(measured)} launches of {len(wanted)}; its output is in {log}")
    rows: dict[int, dict[str, Any]] = {}
    for (index, launch), found in zip(wanted, measured):
        function = launch.instance.split("<")[0]
        if function not in found["Kernel Name"]:
            raise UserError(f"ncu's launches are not in order: {found['Kernel Name']} for {function}; see {log}")
        row = rows.setdefault(index, {})
        product = jobs[index].product
        for column, names in columns.items():
            if not found.keys() >= {*names}:
                continue
            if all(map(_adds_up, names)):
                row[column] = row.get(column, 0) + sum(found[name] for name in names)
            elif product and launch.instance == product.instance:
                row[column] = found[names[0]]
    return [(jobs[index], row) for index, row in rows.items() if not done[index]]


def _profile(ncu: str, metrics: Sequence[str], request: Path, launched: Path) -> str:
    """What ncu prints about the launches of `request`, and its complaints."""
    command = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += ["--metrics", ",".join(metrics)]
    command += [sys.executable, "-m", "tilewise.nvidia.ncu", str(request), str(launched)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "workflow"), *sys.path[1:]])}
    output, errors = subprocess.PIPE, subprocess.STDOUT
    return subprocess.run(command, check=False, env=environment, encoding="utf-8", stdout=output, stderr=errors).stdout


def drive(request: str, launched: str) -> None:
    """Runs under ncu: launch every job once, and nothing else that ncu would count.

    Notes which were launched, each with what is wrong about its product, if anything is.
    """
    import cupy

    from tilewise.nvidia.launcher import CudaError, Product

    done: dict[int, str] = {}
    for index, job in enumerate(pickle.loads(Path(request).read_bytes())):
        n, p, m = job.point.shape.values()
        precision = PRECISIONS[job.point.dtype]
        shapes = {"A": (n, p), "B": (p, m), "C": (n, m)}
        try:
            result = result_of(job.point.dtype)
            kinds = {"A": precision, "B": precision, "C": result}
            arrays = {name: cupy.empty(shape, kinds[name].stored) for name, shape in shapes.items()}
            for name in "AB":
                arrays[name].set(precision.narrow(np, np.ones(shapes[name], np.float32)))
            arrays |= {space.name: cupy.empty(max(1, space.bytes), np.uint8) for space in job.workspaces}
            Product(job, {name: array.data.ptr for name, array in arrays.items()})()
            right = bool((result.wide(np, arrays["C"].get()) == p).all())
        except (CudaError, UserError, cupy.cuda.runtime.CUDARuntimeError) as error:
            print(f"{job.point.label()}: {error}", file=sys.stderr)
            continue
        done[index] = "" if right else "the product is wrong"
        if not right:
            print(f"{job.point.label()}: {done[index]}", file=sys.stderr)
    Path(launched).write_bytes(pickle.dumps(done))


def parse(output: str) -> list[dict[str, Any]]:
    """The launches in what `ncu --csv --page raw` prints, in order: dicts from column or metric to text or number."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    head = max((number for number, line in enumerate(lines) if line.startswith('"ID"')), default=0)
    rows = (row for row in csv.DictReader(lines[head:]) if row["ID"])  # without the line that names the units
    return [{name: _number(name, text) for name, text in row.items()} for row in rows]


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


if __name__ == "__main__":
    drive(*sys.argv[1:])
