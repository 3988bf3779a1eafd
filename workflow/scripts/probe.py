"""Capture the machine that measures."""

from tilewise.files import script
from tilewise.measure.probe import capture
from tilewise.study import device

with script(snakemake.log[0]):
    device.write(capture(snakemake.wildcards.platform, snakemake.params.backend), snakemake.output[0])
