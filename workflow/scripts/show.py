"""Write the tables and figures of a platform: those of its tasks, and those that compare all kernels."""

from pathlib import Path

from tilewise.files import script
from tilewise.measure import where
from tilewise.report.show import show

with script(snakemake.log[0]):
    folder = Path(snakemake.input.device).parent
    show(folder, snakemake.output.tables, snakemake.output.figures, where.cores(snakemake.threads))
