"""Compile one kernel for one platform."""

import json
from pathlib import Path

from tilewise.build.build import build
from tilewise.files import script
from tilewise.study import registry

with script(snakemake.log[0]):
    target = json.loads(Path(snakemake.input.target).read_text())
    kernel = registry.load()[snakemake.wildcards.kernel]
    build(kernel, snakemake.params.instances, target, snakemake.output[0])
