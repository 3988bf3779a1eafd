"""Try the launches that a device takes and those that it refuses."""

import json
from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.launch_limits import launch_limits
from tilewise.probe import check_here
from tilewise.study import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config)
    device = json.loads(Path(snakemake.input.device).read_text())
    check_here(device)
    points = study.points(snakemake.wildcards.task, device["backend"])
    builds = {Path(folder).name: folder for folder in snakemake.input.builds}
    measurements, facts = launch_limits(points, study.kernels, builds, device, study.config)
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
