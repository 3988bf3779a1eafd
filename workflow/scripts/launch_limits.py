"""Try the launches that a device takes and those that it refuses."""

from tilewise.files import script, write_csv
from tilewise.measure.methods.launch_limits import launch_limits
from tilewise.measure.task import work

with script(snakemake.log[0]):
    measurements, facts = launch_limits(*work(snakemake))
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
