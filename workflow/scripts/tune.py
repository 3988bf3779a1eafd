"""Build and try every variant of a tuning on one platform: a table of all variants for each kernel."""

from pathlib import Path

from tilewise.files import script, write_csv
from tilewise.measure import environment
from tilewise.measure.lease import one_gpu
from tilewise.measure.probe import check_here
from tilewise.rules import Study
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    study = Study(snakemake.config, checked=True)
    device = read_device(snakemake.input.device)
    check_here(device)
    work = study.work(snakemake.params.task, device, snakemake.params, environment.cores(snakemake.threads))
    with one_gpu(device):
        _, variants = study.method(work.task).run(work)
    for path in snakemake.output:
        write_csv(variants[variants["kernel"] == Path(path).stem], path)
    if variants["chosen"].any():
        print(f"`tilewise tuned results/{device.platform}` shows the choices, with --write it keeps them")
