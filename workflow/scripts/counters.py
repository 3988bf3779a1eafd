"""Read the hardware's counters at the points that are also traced."""

from tilewise.count import counters
from tilewise.files import script, write_csv
from tilewise.measure.lease import one_gpu
from tilewise.study import registry
from tilewise.study.device import read as read_device

with script(snakemake.log[0]):
    kernels = registry.load()
    device = read_device(snakemake.input.device)
    points = counters.cross_check_points(kernels)
    with one_gpu(device):
        sms = device["gpu"]["sms"] if device["gpu"] else 1
        write_csv(counters.count(points, kernels, snakemake.log[0], sms=sms), snakemake.output[0])
