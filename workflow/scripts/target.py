"""Pick from a platform what its builds depend on."""

import json
from pathlib import Path

from tilewise.build.build import target
from tilewise.files import script, write_json

with script(snakemake.log[0]):
    device = json.loads(Path(snakemake.input.device).read_text())
    write_json(target(device), snakemake.output[0])
