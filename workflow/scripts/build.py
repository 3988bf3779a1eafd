"""Compile one kernel for one platform."""

import json
from pathlib import Path

from tilewise import registry
from tilewise.build import build
from tilewise.files import script

with script(snakemake.log[0]):
    device = json.loads(Path(snakemake.input.device).read_text())
    kernel = registry.load()[snakemake.wildcards.kernel]
    build(kernel, snakemake.params.instances, device, snakemake.output[0])
