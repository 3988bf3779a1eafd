"""Write the tables and figures of the whole study on one platform."""

import gc
from functools import partial
from pathlib import Path

from tilewise.files import script
from tilewise.report import GARBAGE, data, figures, tables

with script(snakemake.log[0]):
    gc.set_threshold(*GARBAGE)
    evidence = data.load([Path(snakemake.input.device).parent])
    published = data.published(kernels=evidence.kernels)
    for kind, paths in ((tables, snakemake.output.tables), (figures, snakemake.output.figures)):
        for path in paths:
            kind.save(partial(kind.OVERVIEW[Path(path).stem], evidence, published), path)
