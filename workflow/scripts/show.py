"""Write the tables and figures of a platform: those of its tasks, and those that set all kernels side by side."""

from functools import partial
from pathlib import Path

from tilewise.files import script
from tilewise.report import data, figures, tables

with script(snakemake.log[0]):
    evidence = data.load([Path(snakemake.input.device).parent])
    published = data.published(kernels=evidence.kernels)
    for kind, paths in ((tables, snakemake.output.tables), (figures, snakemake.output.figures)):
        for path in map(Path, paths):
            if path.stem in kind.OVERVIEW:
                make = partial(kind.OVERVIEW[path.stem], evidence, published)
            else:
                make = partial(kind.task, path.stem, evidence.of(path.stem), published)
            kind.save(make, path)
