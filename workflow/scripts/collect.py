"""Join the tables of tasks into that of the platform."""

import pandas as pd

from tilewise.files import script, write_csv
from tilewise.study import columns, registry

with script(snakemake.log[0]):
    parameters, file = registry.parameters(registry.load()), snakemake.params.file
    tables = [columns.read(path, file, parameters) for path in snakemake.input.get("tasks", [])]
    write_csv(pd.concat([columns.frame([], file, parameters), *tables], ignore_index=True), snakemake.output[0])
