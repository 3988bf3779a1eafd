"""Write a task's table and figure per platform, with the published results and, without a GPU, the recorded ones."""

from pathlib import Path

from tilewise.files import script
from tilewise.report.show import show_task

with script(snakemake.log[0]):
    for device in snakemake.input.devices:
        show_task(snakemake.params.task, Path(device).parent)
