"""Write the tables and figures of the whole study on one platform."""

from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.report import data, figures, tables

with script(snakemake.log[0]):
    evidence = data.load([Path(snakemake.input.device).parent])
    published = data.published(kernels=evidence.kernels)
    for path in snakemake.output.tables:
        write_csv(tables.OVERVIEW[Path(path).stem](evidence, published), path)
    for path in snakemake.output.figures:
        figures.save(figures.OVERVIEW[Path(path).stem](evidence, published), path)
