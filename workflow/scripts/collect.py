"""Join the tables of tasks into those of the platform."""

from tilewise.files import script, write_csv
from tilewise.study import columns, registry

with script(snakemake.log[0]):
    parameters = registry.parameters(registry.load(checked=True))
    for name, output in snakemake.output.items():
        write_csv(columns.read_all(snakemake.input.get(name, []), name, parameters), output)
