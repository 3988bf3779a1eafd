"""Write a task's table and figure: this platform's results beside what was published and, without a GPU, recorded."""

import gc
from pathlib import Path

from tilewise.files import script
from tilewise.report import GARBAGE, data, figures, tables

with script(snakemake.log[0]):
    gc.set_threshold(*GARBAGE)
    task = Path(snakemake.output.table).stem
    evidence = data.load([Path(snakemake.input.device).parent], task)
    published = data.published(kernels=evidence.kernels)
    tables.save(lambda: tables.task(task, evidence, published), snakemake.output.table)
    figures.save(lambda: figures.task(task, evidence, published), snakemake.output.figure)
