"""Time kernels as source b does, in fresh processes, and the same kernels alone."""

import json
from pathlib import Path

from tilewise.cold_start import cold_start
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
    write_csv(cold_start(points, study.kernels, builds, device, study.config), snakemake.output.facts)
    alone = measure_task(
        points, study.kernels, builds, device, study.config, snakemake.params.samples, snakemake.params.journal
    )
    write_csv(alone, snakemake.output.task)
