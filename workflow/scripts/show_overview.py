"""Write the tables and figures of the whole study on one platform."""

import gc
from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.report import GARBAGE, data, figures, tables

with script(snakemake.log[0]):
    gc.set_threshold(*GARBAGE)
    evidence = data.load([Path(snakemake.input.device).parent])
    published = data.published(kernels=evidence.kernels)
    for path in snakemake.output.tables:
        write_csv(tables.OVERVIEW[Path(path).stem](evidence, published), path)
    for path in snakemake.output.figures:
        figures.save(figures.OVERVIEW[Path(path).stem](evidence, published), path)
