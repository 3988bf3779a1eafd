"""Find, time and verify the largest product that the device holds."""

import json
from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.maximum import maximum_size
from tilewise.probe import check_here
from tilewise.study import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config)
    device = json.loads(Path(snakemake.input.device).read_text())
    check_here(device)
    [point] = study.points(snakemake.wildcards.task, device["backend"])
    measurements, facts = maximum_size(
        point, study.kernels[point.kernel], snakemake.input.builds[0], device, study.config
    )
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
