"""Count the instructions in the multiply-add loop of every CUDA kernel's machine code."""

from tilewise import UserError
from tilewise.explain import machine_code
from tilewise.files import script, write_csv
from tilewise.rules import Study
from tilewise.study import columns
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device, workers = read_device(snakemake.input.device), snakemake.threads
    capability = device.gpu["compute_capability"] if device.gpu else study.config["machine_code"]["capability"]
    points = study.cuda_points(device.platform)
    builds = machine_code.compile_for(capability, points, study.kernels, snakemake.params.builds, workers)
    rows = machine_code.table(points, study.kernels, builds, capability, workers)
    errors = [each["error"] for built in builds.values() for each in built["instances"].values() if "error" in each]
    if errors and not rows:
        raise UserError(f"nothing compiles for compute capability {capability}, machine_code.capability: {errors[0]}")
    write_csv(columns.frame(rows, "instructions"), snakemake.output[0])
