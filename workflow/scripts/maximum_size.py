"""Find, time and verify the largest product that the device holds."""

from tilewise.files import script, write_csv
from tilewise.maximum import maximum_size
from tilewise.measure import work

with script(snakemake.log[0]):
    measurements, facts = maximum_size(*work(snakemake), snakemake.params.journal)
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
