"""Read the hardware's counters at the points that are also traced."""

from tilewise import counters, registry
from tilewise.files import script, write_csv

with script(snakemake.log[0]):
    kernels = registry.load()
    points = counters.cross_check_points(kernels)
    write_csv(counters.count(points, kernels, snakemake.log[0]), snakemake.output[0])
