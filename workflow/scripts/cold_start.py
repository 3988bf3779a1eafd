"""Time kernels as source b does, in fresh processes, and the same kernels alone."""

from tilewise.files import script, write_csv
from tilewise.measure.methods.cold_start import cold_start
from tilewise.measure.task import measure_task, work

with script(snakemake.log[0]):
    subject = work(snakemake)
    write_csv(cold_start(*subject), snakemake.output.facts)
    write_csv(measure_task(*subject, snakemake.params.samples, snakemake.params.journal), snakemake.output.task)
