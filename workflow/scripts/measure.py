"""Build and measure one task by its method."""

import contextlib
import dataclasses

from tilewise.files import script, write_csv
from tilewise.measure import environment
from tilewise.measure.lease import one_gpu
from tilewise.measure.probe import check_here, processor
from tilewise.rules import Study
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device = read_device(snakemake.input.device)
    needs_gpu = study.needs_gpu(snakemake.wildcards)
    if environment.slurm_job() and not needs_gpu:
        device = dataclasses.replace(
            device, cpu=processor()
        )  # a node for jobs without a GPU may have another one; the rows name it
    else:
        check_here(device)
    source = environment.source()  # before the build reads the sources
    work = study.work(snakemake.wildcards.task, device, snakemake.params, environment.cores(snakemake.threads))
    with one_gpu(device) if needs_gpu else contextlib.nullcontext():
        measurements, facts = study.method(work.task).run(work)
    if "commit" in facts:  # without rows in a journal, so that all of it was measured now
        facts = facts.assign(**source)
    write_csv(measurements, snakemake.output.task)
    write_csv(facts, snakemake.output.facts)
