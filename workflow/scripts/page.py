"""Render the report over all platforms of the run."""

from pathlib import Path

from tilewise.files import script
from tilewise.report.render import render

with script(snakemake.log[0]):
    folders = [Path(device).parent for device in snakemake.input.devices]
    drawn = next((Path(figure).parent for figure in snakemake.input.figures), None)
    render(snakemake.output[0], folders, drawn=drawn)
