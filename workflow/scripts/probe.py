"""Capture the machine that measures."""

from tilewise.files import script, write_json
from tilewise.measure.probe import capture

with script(snakemake.log[0]):
    write_json(capture(snakemake.wildcards.platform, snakemake.params.backend), snakemake.output[0])
