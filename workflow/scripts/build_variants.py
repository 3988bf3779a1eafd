"""Compile every variant that a tuning tries on one platform."""

import os
from pathlib import Path

from tilewise.build.build import build_variants
from tilewise.files import read_json, script
from tilewise.workflow import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    target = read_json(snakemake.input.target)
    wanted = study.instances_of_tuning(snakemake.params.task, snakemake.wildcards.platform)
    folders = {Path(manifest).parent.name: Path(manifest).parent for manifest in snakemake.output}
    workers = max(snakemake.threads, int(os.environ.get("SLURM_CPUS_PER_TASK", 1)))
    build_variants(wanted, study.kernels, target, folders, workers)
