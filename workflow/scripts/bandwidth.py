"""Measure the roofline of a platform."""

import json
from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.measure.methods.bandwidth import bandwidth
from tilewise.measure.probe import check_here
from tilewise.measure.task import to_frame

with script(snakemake.log[0]):
    device = json.loads(Path(snakemake.input.device).read_text())
    check_here(device)
    write_csv(bandwidth(device, snakemake.output.builds), snakemake.output.facts)
    write_csv(to_frame([]), snakemake.output.task)  # no product was made: measurements.csv gets no row
