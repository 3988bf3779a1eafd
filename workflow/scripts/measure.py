"""Verify and time the points of one task."""

import json
from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.measure import measure_task
from tilewise.probe import check_here
from tilewise.study import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config)
    device = json.loads(Path(snakemake.input.device).read_text())
    check_here(device)
    points = study.points(snakemake.wildcards.task, device["backend"])
    builds = {Path(folder).name: folder for folder in snakemake.input.builds}
    rows = measure_task(
        points, study.kernels, builds, device, study.config, snakemake.params.samples, snakemake.params.journal
    )
    write_csv(rows, snakemake.output[0])
