"""Read the hardware's counters at the points that are also traced, and at full size."""

from tilewise.explain import counters
from tilewise.files import script, write_csv
from tilewise.measure.lease import one_gpu
from tilewise.study import registry
from tilewise.study.device import read as read_device
from tilewise.vendor import VENDOR

with script(snakemake.log[0]):
    kernels = registry.load(checked=True)
    device = read_device(snakemake.input.device)
    with one_gpu(device):
        gpu = device if device.gpu else VENDOR.at_hand()
        found = counters.count_all(snakemake.config, kernels, snakemake.log[0], snakemake.params.choices, gpu)
        write_csv(found, snakemake.output[0])
