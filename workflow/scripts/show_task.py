"""Write a task's table and figure per platform: its results beside those published and, without a GPU, recorded."""

from functools import partial
from pathlib import Path

from tilewise.files import script
from tilewise.report import data, figures, tables

with script(snakemake.log[0]):
    task = snakemake.params.task
    for folder in (Path(device).parent for device in snakemake.input.devices):
        evidence = data.load([folder], task)
        published = data.published(kernels=evidence.kernels)
        tables.save(partial(tables.task, task, evidence, published), folder / f"tables/{task}.csv")
        figures.save(partial(figures.task, task, evidence, published), folder / f"figures/{task}.svg")
