"""Describe the run as an RO-Crate."""

from pathlib import Path

from tilewise import crate
from tilewise.files import script

with script(snakemake.log[0]):
    crate.write(Path(snakemake.output.metadata).parent, snakemake.params.platforms)
