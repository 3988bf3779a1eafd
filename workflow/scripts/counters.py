"""Read the hardware's counters at the points that are also traced."""

from tilewise.count import counters
from tilewise.files import script, write_csv
from tilewise.study import registry

with script(snakemake.log[0]):
    kernels = registry.load()
    points = counters.cross_check_points(kernels)
    write_csv(counters.count(points, kernels, snakemake.log[0]), snakemake.output[0])
