"""Render the report over all platforms of the run."""

from pathlib import Path

from tilewise.files import script
from tilewise.report.render import render

with script(snakemake.log[0]):
    folders = [Path(device).parent for device in snakemake.input.devices]
    render(snakemake.output[0], folders)
