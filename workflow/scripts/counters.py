"""Read the hardware's counters at the points that are also traced, and at full size."""

from tilewise import UserError
from tilewise.files import script, write_csv
from tilewise.measure import counters, environment
from tilewise.measure.lease import one_gpu
from tilewise.study import registry
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    kernels = registry.load(checked=True)
    device = read_device(snakemake.input.device)
    if not device.gpu:
        raise UserError(f"the platform {device.platform} has no GPU, whose counters could be read; name one that has")
    with one_gpu(device):
        found = counters.count_all(
            snakemake.config,
            kernels,
            snakemake.log[0],
            snakemake.params.choices,
            device,
            snakemake.params.builds,
            environment.cores(snakemake.threads),
        )
        write_csv(found, snakemake.output[0])
