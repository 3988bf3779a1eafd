"""Write the tables and figures over all tasks of a platform."""

import functools
from pathlib import Path

from tilewise.evidence import load_evidence
from tilewise.files import script
from tilewise.report import figures, tables
from tilewise.study import registry

with script(snakemake.log[0]):
    evidence = load_evidence([Path(snakemake.input.device).parent], kernels=registry.load(checked=True))
    for path in map(Path, snakemake.output):
        kind = tables if path.suffix == ".csv" else figures
        kind.save(functools.partial(kind.OVERVIEW[path.stem], evidence), path)
