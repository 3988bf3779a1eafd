"""Write a task's table and figure, with the published results and, without a GPU, the recorded ones."""

from pathlib import Path

from tilewise.evidence import load_evidence
from tilewise.files import script
from tilewise.report import figures, tables
from tilewise.study import registry

with script(snakemake.log[0]):
    name, folder = snakemake.wildcards.task, Path(snakemake.input.device).parent
    evidence = load_evidence([folder], name, kernels=registry.load(checked=True), config=snakemake.config)
    tables.save(lambda: tables.task(name, evidence), snakemake.output.table)
    figures.save(lambda: figures.task(name, evidence), snakemake.output.figure)
