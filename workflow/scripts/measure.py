"""Verify and time the points of one task."""

from tilewise.files import script, write_csv
from tilewise.measure.task import measure_task, work

with script(snakemake.log[0]):
    rows = measure_task(*work(snakemake), snakemake.params.samples, snakemake.params.journal)
    write_csv(rows, snakemake.output[0])
