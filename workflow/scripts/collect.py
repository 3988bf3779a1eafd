"""Join the tasks' tables into that of the platform."""

import pandas as pd

from tilewise.files import script, write_csv
from tilewise.study import columns, registry

with script(snakemake.log[0]):
    parameters = registry.parameters(registry.load())
    tables = [columns.read(path, "measurements", parameters) for path in snakemake.input.tasks]
    write_csv(pd.concat(tables, ignore_index=True), snakemake.output[0])
