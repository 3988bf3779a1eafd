"""Write a task's table and figure, with the published results and, without a GPU, the recorded ones."""

from pathlib import Path

from tilewise.files import script
from tilewise.report import show

with script(snakemake.log[0]):
    folder = Path(snakemake.input.device).parent
    show.task(snakemake.wildcards.task, folder, snakemake.config, snakemake.output.table, snakemake.output.figure)
