"""Count the instructions in the multiply-add loop of every CUDA kernel's machine code."""

import logging

from tilewise import UserError
from tilewise.files import script, write_csv
from tilewise.measure import machine_code
from tilewise.nvidia import sass
from tilewise.rules import Study
from tilewise.study import columns
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device, workers = read_device(snakemake.input.device), snakemake.threads
    capability = device.gpu["compute_capability"] if device.gpu else study.config["machine_code"]["capability"]
    points = study.cuda_points(device.platform)
    builds = machine_code.compile_for(capability, points, study.kernels, snakemake.params.builds, workers)
    try:
        rows = machine_code.table(points, study.kernels, builds, capability, workers)
    except sass.Unreadable as error:  # nvdisasm 13.5 does not read that of Volta: the page lacks its loops
        logging.getLogger(__name__).warning("%s", error)
        rows = []
    entries = (entry for built in builds.values() for entry in built["instances"].values())
    error = next((entry["error"] for entry in entries if "error" in entry), None)
    if error and not rows:
        raise UserError(f"nothing compiles for compute capability {capability}, machine_code.capability: {error}")
    write_csv(columns.frame(rows, "instructions"), snakemake.output[0])
