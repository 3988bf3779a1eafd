"""Join the tables of tasks into those of the platform."""

import pandas as pd

from tilewise.files import script, write_csv
from tilewise.study import columns, registry

with script(snakemake.log[0]):
    parameters = registry.parameters(registry.load(checked=True))
    for name, output in snakemake.output.items():
        tables = [columns.read(path, name, parameters) for path in snakemake.input.get(name, [])]
        write_csv(pd.concat([columns.frame([], name, parameters), *tables], ignore_index=True), output)
