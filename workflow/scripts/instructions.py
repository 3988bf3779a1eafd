"""Read from the machine code of every CUDA kernel what its multiply-add loop is made of."""

import tempfile
from pathlib import Path

from tilewise.count import machine_code
from tilewise.files import script, write_csv
from tilewise.study import columns
from tilewise.study.device import read as read_device
from tilewise.workflow import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device = read_device(snakemake.input.device)
    points, workers = study.cuda_points(device["platform"]), snakemake.threads
    with tempfile.TemporaryDirectory() as folder:
        if device["gpu"]:
            capability = device["gpu"]["compute_capability"]
            builds = {Path(build).name: Path(build) for build in snakemake.input.code}
        else:
            capability = study.config["machine_code"]["capability"]
            builds = machine_code.compile_for(capability, points, study.kernels, folder, workers)
        rows = machine_code.table(points, study.kernels, builds, capability, workers)
    write_csv(columns.frame(rows, "instructions"), snakemake.output[0])
