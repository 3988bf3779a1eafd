"""Write the tables and figures of a platform: those of its tasks, and those that set all kernels side by side."""

from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.report import data, figures, tables

with script(snakemake.log[0]):
    evidence = data.load([Path(snakemake.input.device).parent])
    published = data.published(kernels=evidence.kernels)
    for path in map(Path, snakemake.output.tables):
        if path.stem in tables.OVERVIEW:
            table = tables.OVERVIEW[path.stem](evidence, published)
        else:
            table = tables.task(path.stem, evidence.of(path.stem), published)
        write_csv(table, path)
    for path in map(Path, snakemake.output.figures):
        if path.stem in figures.OVERVIEW:
            figure = figures.OVERVIEW[path.stem](evidence, published)
        else:
            figure = figures.task(path.stem, evidence.of(path.stem), published)
        figures.save(figure, path)
