"""Pick from a platform what its builds depend on."""

from tilewise.build.build import target
from tilewise.files import script, write_json
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    device = read_device(snakemake.input.device)
    write_json(target(device), snakemake.output[0])
