"""Read from the machine code of every CUDA kernel what its multiply-add loop is made of."""

from tilewise.count import machine_code
from tilewise.files import script, write_csv
from tilewise.study import columns
from tilewise.study.device import read as read_device
from tilewise.workflow import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device, workers = read_device(snakemake.input.device), snakemake.threads
    capability = device["gpu"]["compute_capability"] if device["gpu"] else study.config["machine_code"]["capability"]
    points = study.cuda_points(device["platform"])
    builds = machine_code.compile_for(capability, points, study.kernels, snakemake.params.builds, workers)
    rows = machine_code.table(points, study.kernels, builds, capability, workers)
    write_csv(columns.frame(rows, "instructions"), snakemake.output[0])
