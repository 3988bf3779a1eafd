"""Find, time and verify the largest product that the device holds."""

from tilewise.files import script, write_csv
from tilewise.measure.methods.maximum_size import maximum_size
from tilewise.measure.task import work

with script(snakemake.log[0]):
    measurements, facts = maximum_size(*work(snakemake), snakemake.params.journal)
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
