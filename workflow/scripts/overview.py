"""Write the tables and figures over all tasks of a platform."""

from pathlib import Path

from tilewise.files import script
from tilewise.report import show

with script(snakemake.log[0]):
    folder = Path(snakemake.input.device).parent
    show.overview(folder, snakemake.output)
