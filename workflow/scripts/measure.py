"""Build and measure one task by its method."""

from tilewise.files import script, write_csv
from tilewise.measure import place
from tilewise.measure.lease import one_gpu
from tilewise.measure.probe import check_here, processor
from tilewise.study.device import read as read_device
from tilewise.workflow import Study

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device = read_device(snakemake.input.device)
    if place.slurm_job() and not study.needs_gpu(snakemake.wildcards):
        device |= {"cpu": processor()}  # a node for jobs without a GPU may have another one; the rows name it
    else:
        check_here(device)
    work = study.work(snakemake.wildcards.task, device, snakemake.params, place.cores(snakemake.threads))
    with one_gpu(device):
        measurements, facts = study.method(work.task).run(work)
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
